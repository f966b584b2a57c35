"""A label may exist once in the book, so the solution notebook has labels of its own."""

from labsupport.authoring.labels import for_solution
from labsupport.authoring.source import Cell

TEXT = """# Exercises 5: softmax

(ex-stable)=
## Stable

See {ref}`ex-stable`, {ref}`this <ex-stable>`, [here](#ex-stable), {eq}`eq-ex-lse` and {eq}`eq-5-lse`.

$$
x
$$ (eq-ex-lse)

```{figure} a.svg
:name: fig-a
```
"""
RENAMED = """# Solutions 5: softmax

(solution-ex-stable)=
## Stable

See {ref}`solution-ex-stable`, {ref}`this <solution-ex-stable>`, [here](#solution-ex-stable), {eq}`solution-eq-ex-lse` and {eq}`eq-5-lse`.

$$
x
$$ (solution-eq-ex-lse)

```{figure} a.svg
:name: solution-fig-a
```
"""


def test_own_labels_are_renamed_and_others_left() -> None:
    code = Cell("code", "# Exercises (ex-stable)=", 30)
    assert [cell.source for cell in for_solution([Cell("markdown", TEXT, 1), code])] == [RENAMED, code.source]


def test_only_the_title_changes() -> None:
    [cell] = for_solution([Cell("markdown", "# Softmax\n\nExercises help.", 1)])
    assert cell.source == "# Softmax\n\nExercises help."
