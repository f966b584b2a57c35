"""The markers of a solution: what each notebook gets, and every slip an author can make with them."""

import re
from pathlib import Path

import pytest

from labsupport.authoring.faults import SourceError
from labsupport.authoring.solutions import looks_like_marker, split
from labsupport.authoring.source import Cell, read

from .conftest import HEAD

SHOWN = Path("book/exercises/05-tiny.md")
CHECK = '\n```{code-cell} ipython3\n:tags: [check]\n\ncheck("twice", twice)\n```\n'


def cells(tmp_path: Path, text: str) -> list[Cell]:
    (tmp_path / "x.md").write_text(HEAD + text, encoding="utf-8")
    return read(tmp_path / "x.md", SHOWN)


def answer(code: str, name: str = "twice", check: str = CHECK) -> str:
    """An exercise whose first line of code is line 9 of the file."""
    return f"```{{code-cell}} ipython3\n:tags: [exercise]\n:exercise: {name}\n\n{code}\n```\n{check}"


def test_a_region_becomes_a_stub(tmp_path: Path) -> None:
    code = 'def twice(x):\n    """Double."""\n    if x:\n        # BEGIN SOLUTION\n        y = x + x + 0\n        # END SOLUTION\n    return y'
    opened, solved, secret = split(cells(tmp_path, answer(code)), SHOWN)
    assert (
        opened[0].source == 'def twice(x):\n    """Double."""\n    if x:\n        ...  # your code here\n    return y'
    )
    assert solved[0].source == 'def twice(x):\n    """Double."""\n    if x:\n        y = x + x + 0\n    return y'
    assert secret == [(13, "        y = x + x + 0")]
    assert opened[0].numbers == (9, 10, 11, 12, 15)
    assert solved[0].numbers == (9, 10, 11, 13, 15)


@pytest.mark.parametrize(
    ("line", "stub", "solved"),
    [
        ('answer = "1.5 GiB"  # SOLUTION', "answer = ...", 'answer = "1.5 GiB"'),
        ("größe: int = (3 + 4)  # SOLUTION", "größe: int = ...", "größe: int = (3 + 4)"),
        ("a, b = 1, 2  # SOLUTION", "a, b = ...", "a, b = 1, 2"),
    ],
)
def test_a_marked_assignment_becomes_open(tmp_path: Path, line: str, stub: str, solved: str) -> None:
    opened, solution, _ = split(cells(tmp_path, answer(line)), SHOWN)
    assert (opened[0].source, solution[0].source) == (stub, solved)


def test_cells_for_one_notebook_only(tmp_path: Path) -> None:
    text = (
        answer("x = 12  # SOLUTION")
        + '\n+++ {"tags": ["solution-only"]}\n\nWhy.\n\n+++ {"tags": ["exercise-only"]}\n\nTry.\n'
    )
    opened, solved, _ = split(cells(tmp_path, text), SHOWN)
    assert [cell.source for cell in opened][2:] == ["Try."]
    assert [cell.source for cell in solved][2:] == ["Why."]


def region(begin: str = "# BEGIN SOLUTION", end: str = "# END SOLUTION") -> str:
    return f"def twice(x):\n    {begin}\n    return x + x + 0\n    {end}"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (region(begin="# begin solution"), "10: '# begin solution' looks like a solution marker but is none"),
        (region(begin="# BEGIN SOLUTON"), "10: '# BEGIN SOLUTON' looks like a solution marker but is none"),
        (region(begin="#BEGIN SOLUTION"), "10: '#BEGIN SOLUTION' looks like a solution marker but is none"),
        (region(begin="### BEGIN SOLUTION"), "10: '### BEGIN SOLUTION' looks like"),
        (region(begin="# BEGIN SOLUTION:"), "10: '# BEGIN SOLUTION:' looks like"),
        (region(begin="# BEGIN"), "12: # END SOLUTION without # BEGIN SOLUTION"),
        (region(end="# END SOLUTIONS"), "12: '# END SOLUTIONS' looks like"),
        (region(end="# END_SOLUTION"), "12: '# END_SOLUTION' looks like"),
        (region(end="# END"), "10: # BEGIN SOLUTION is never closed"),
        (region(begin="# END SOLUTION"), "10: # END SOLUTION without # BEGIN SOLUTION"),
        (region(end="# BEGIN SOLUTION"), "12: # BEGIN SOLUTION inside the region begun in line 10"),
        ("x = 1234567  # Solution", "9: 'x = 1234567  # Solution' looks like a solution marker but is none"),
        ("x = 1234567  # SOLUTION: 3", "9: 'x = 1234567  # SOLUTION: 3' looks like"),
        ("x = 1234567 # SOLUTIN", "9: 'x = 1234567 # SOLUTIN' looks like"),
        ("print(1234567)  # SOLUTION", "9: # SOLUTION after something that is no one-line assignment"),
        ("x = max(  # SOLUTION\n    1, 2)", "9: # SOLUTION after something that is no one-line assignment"),
        (region().replace("x + 0", "x + 0  # SOLUTION"), "11: # SOLUTION inside a region"),
        ("def twice(x):\n    return 1", "9: the exercise cell has no solution"),
        ("# BEGIN SOLUTION\nx = 1234567\n# END SOLUTION", "9: the solution region is not inside a function"),
        ("for x in y:\n    # BEGIN SOLUTION\n    print(x, 1, 2)\n    # END SOLUTION", "10: the solution region is not inside a function"),
        ("# BEGIN SOLUTION\ndef twice(x):\n    return x + x\n# END SOLUTION", "9: the solution region is not inside a function"),
        ("def twice(x):\n    # BEGIN SOLUTION\n    # END SOLUTION\n    return 1", "10: the solution region is empty"),
        ("def twice(x):\n    # BEGIN SOLUTION\n    # only a remark\n    # END SOLUTION\n    return 1", "10: the solution region is empty"),
        ("def twice(x)\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION", "9: the exercise cell is no Python: expected ':'"),
        (
            "def twice(x):\n    y = (\n        # BEGIN SOLUTION\n        x + x + 0)\n    # END SOLUTION\n    return y",
            "10: what remains without the solution is no Python",
        ),
    ],
)  # fmt: skip
def test_slips_in_markers(tmp_path: Path, code: str, told: str) -> None:
    with pytest.raises(SourceError) as error:
        split(cells(tmp_path, answer(code)), SHOWN)
    assert any(line.startswith(f"{SHOWN}:{told}") for line in str(error.value).splitlines()), str(error.value)
    assert re.search(r"; \w", str(error.value)), "it says what to do"


PLAIN = answer("x = 1234567  # SOLUTION")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PLAIN.replace(":exercise: twice\n", ""), "8: the exercise cell has no id; add the option line `:exercise: its-id`"),
        (PLAIN.replace(": twice", ": Twice it"), "9: 'Twice it' is no exercise id"),
        (PLAIN.replace(":tags: [exercise]\n", ""), "8: `:exercise: twice` on a cell without the tag 'exercise'"),
        (PLAIN + PLAIN, "21: the exercise id 'twice' stands in line 9 too"),
        (answer("x = 1234567  # SOLUTION", check=""), "9: no check cell follows the exercise 'twice'"),
        (answer("x = 1234567  # SOLUTION", check="") + answer("y = 7654321  # SOLUTION", "other", CHECK.replace("twice", "other")), "9: no check cell follows"),
        (PLAIN.replace('check("twice"', 'check("thrice"'), "15: check('thrice') follows the exercise 'twice'; use the same id"),
        (PLAIN.replace('check("twice", twice)', "print(1)"), "9: no check cell follows the exercise 'twice'"),
        (PLAIN.replace(":tags: [check]\n\n", ""), "13: check('twice') in a cell without the tag 'check'"),
        (PLAIN + CHECK, "21: check('twice') follows no exercise cell of its own"),
        ("```{code-cell} ipython3\ndef f():\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION\n```\n", "7: a solution marker outside an exercise cell"),
        ("```{code-cell} ipython3\nx = 1  # SOLUTION\n```\n", "6: a solution marker outside an exercise cell"),
        ("Text.\n\n# BEGIN SOLUTION\n\nText.\n", "7: a solution marker outside an exercise cell"),
        ("<!-- BEGIN SOLUTION -->\n\nText.\n", "5: a solution marker outside an exercise cell"),
        ('+++ {"tags": ["exercise"]}\n\nText.\n', "7: the tag 'exercise' on a cell that holds no code"),
    ],
)  # fmt: skip
def test_slips_in_the_order_of_cells(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError) as error:
        split(cells(tmp_path, text), SHOWN)
    assert any(line.startswith(f"{SHOWN}:{told}") for line in str(error.value).splitlines()), str(error.value)


@pytest.mark.parametrize(
    "leak",
    [
        "The trick is `scaled = x * 3.75`.\n",
        "```python\nscaled  =  x*3.75\n```\n",
        "```{code-cell} ipython3\nx = 1\nscaled = x * 3.75\n```\n",
        "```{code-cell} ipython3\n# scaled = x * 3.75\n1\n```\n",
    ],
)
def test_no_line_of_a_solution_survives_elsewhere(tmp_path: Path, leak: str) -> None:
    code = "def twice(x):\n    # BEGIN SOLUTION\n    scaled = x * 3.75  # why\n    return scaled\n    # END SOLUTION"
    with pytest.raises(
        SourceError, match=r"the solution line 'scaled = x \* 3.75  # why' \(line 11\) stands in the exercise"
    ):
        split(cells(tmp_path, answer(code) + "\n" + leak), SHOWN)
    kept = '\n+++ {"tags": ["solution-only"]}\n\nHere `scaled = x * 3.75`.\n'
    opened, _, _ = split(cells(tmp_path, answer(code) + kept), SHOWN)
    assert "scaled" not in "".join(cell.source for cell in opened)


def test_common_lines_are_no_leak(tmp_path: Path) -> None:
    code = "def twice(x):\n    # BEGIN SOLUTION\n    import numpy as np\n    result = np.add(x, x)\n    return result\n    # END SOLUTION"
    given = "```{code-cell} ipython3\nimport numpy as np\ndef given(result):\n    return result\n```\n\n"
    opened, _, _ = split(cells(tmp_path, given + answer(code)), SHOWN)
    assert opened[0].source.endswith("return result")


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # the solution of A x = b",
        "# solve it",
        "# the end of the sum",
        "y = solution(3)",
        "# begin with the maximum",
    ],
)
def test_ordinary_comments_are_no_markers(line: str) -> None:
    assert not looks_like_marker(line)
