"""Reading a MyST text notebook: every cell knows its line, and every slip is told with it."""

from pathlib import Path

import pytest

from labsupport.authoring.faults import SourceError
from labsupport.authoring.source import Cell, read

from .conftest import HEAD


def cells(tmp_path: Path, text: str, head: str = HEAD) -> list[Cell]:
    (tmp_path / "x.md").write_text(head + text, encoding="utf-8")
    return read(tmp_path / "x.md", Path("book/x.md"))


def test_cells_know_their_lines_tags_and_exercise(tmp_path: Path) -> None:
    text = '\n# Title\n\n```{code-cell} ipython3\nx = 1\n```\n\n+++ {"tags": ["solution-only"]}\n\nWhy.\n\n'
    text += "```{code-cell} ipython3\n:tags: [exercise, hide-output]\n:exercise: sum-rows\n\n\ny = 2\n```\n"
    found = cells(tmp_path, text)
    assert [(cell.kind, cell.line, cell.source) for cell in found] == [
        ("markdown", 6, "# Title"),
        ("code", 9, "x = 1"),
        ("markdown", 14, "Why."),
        ("code", 20, "\ny = 2"),
    ]
    assert found[2].tags == ("solution-only",)
    assert found[3].tags == ("exercise", "hide-output")
    assert found[3].exercise == "sum-rows"


def test_options_between_dashes(tmp_path: Path) -> None:
    found = cells(
        tmp_path, "```{code-cell} ipython3\n---\ntags: [check]\nmystnb:\n  image: {width: 10}\n---\nx = 1\n```\n"
    )
    assert [(cell.line, cell.tags, cell.metadata) for cell in found] == [
        (11, ("check",), {"mystnb": {"image": {"width": 10}}})
    ]


def test_headings_in_code_blocks_are_none(tmp_path: Path) -> None:
    [cell] = cells(tmp_path, "# One\n\n````md\n# no\n```\n# no\n```\n````\n\n## Two ##\n")
    assert cell.headings() == [(5, 1, "One"), (14, 2, "Two")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "```{code-cell} ipython3\n:tags: [exercize]\n\nx\n```\n",
            "book/x.md:8: unknown tag 'exercize'; did you mean 'exercise'?",
        ),
        (
            "```{code-cell} ipython3\n:tags: [raises-exception]\n\nx\n```\n",
            "book/x.md:8: unknown tag 'raises-exception'; use one of exercise,",
        ),
        ("```{code-cell} ipython3\n```\n", "book/x.md:6: the code cell is empty; fill it or delete it"),
        (
            "Text\n\n- item\n  ```{code-cell} ipython3\n  x\n  ```\n",
            "book/x.md:8: this code cell would be shown as text; write ```{code-cell}",
        ),
        (
            "Text\n\n```{code_cell} ipython3\nx\n```\n",
            "book/x.md:7: this code cell would be shown as text; write ```{code-cell}",
        ),
        (
            "```{code-cell} ipython3\n:tags: [\n\nx\n```\n",
            "book/x.md:5: Code cell 0 at line 5 could not be read: Invalid YAML",
        ),
        ("```{code-cell} ipython3\n:tags: {x\n", "book/x.md:5: Code cell 0"),
        ('+++ {"tags": ["check"\n\ntext\n', "book/x.md:5: Markdown cell 0 at line 5 could not be read"),
    ],
)
def test_slips_are_told_with_file_and_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError) as error:
        cells(tmp_path, text)
    assert str(error.value).startswith(told)


def test_front_matter_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^book/x.md:1: the front matter is missing; begin the file with"):
        cells(tmp_path, "# Title\n", head="")


def test_front_matter_without_a_display_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^book/x.md:1: 'display_name' is a required property; "):
        cells(tmp_path, "# Title\n", head="---\nkernelspec: {name: python3}\n---\n")
