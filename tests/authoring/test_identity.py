"""Cell ids: read from exercises and headings, valid, unique, and unmoved by what is inserted elsewhere."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport.authoring.faults import SourceError
from labsupport.authoring.identity import cell_ids, slug
from labsupport.authoring.source import Cell

HERE = Path("x.md")


def text(source: str) -> Cell:
    return Cell("markdown", source, 1)


def code(source: str = "1") -> Cell:
    return Cell("code", source, 1)


CELLS = [
    text("# 5. Title"),
    code(),
    text("(sec-5-1)=\n## 5.1 Stable softmax"),
    code(),
    text("more"),
    text("## Answer it"),
    Cell("code", "x = ...", 9, ("exercise",), "softmax-stable"),
    Cell("code", 'check("softmax-stable", x)', 12, ("check",)),
    code(),
]


def test_ids_come_from_exercises_and_headings() -> None:
    assert cell_ids(CELLS, HERE) == [
        "sec-5-title",
        "sec-5-title--2",
        "sec-5-1-stable-softmax",
        "sec-5-1-stable-softmax--2",
        "sec-5-1-stable-softmax--3",
        "sec-answer-it",
        "softmax-stable",
        "softmax-stable-check",
        "sec-answer-it--2",
    ]


@pytest.mark.parametrize("place", range(len(CELLS) + 1))
def test_an_inserted_cell_renumbers_its_own_section_only(place: int) -> None:
    before = cell_ids(CELLS, HERE)
    after = cell_ids([*CELLS[:place], code("new"), *CELLS[place:]], HERE)
    prefix = (before[place - 1] if place else "top").split("--")[0]
    if prefix.startswith("softmax"):
        prefix = "sec-answer-it"
    assert {name for name in before if not name.startswith(prefix)} <= set(after)


def test_a_heading_that_comes_twice_counts_on() -> None:
    assert cell_ids([text("## Trap"), text("## Other"), text("## Trap")], HERE) == [
        "sec-trap",
        "sec-other",
        "sec-trap--2",
    ]


def test_one_exercise_is_checked_once() -> None:
    again = [*CELLS, Cell("code", 'check("softmax-stable", x)', 20, ("check",))]
    with pytest.raises(
        SourceError, match=r"^x.md:20: the id 'softmax-stable-check' belongs to the cell in line 12 too; "
    ):
        cell_ids(again, HERE)


@given(st.text())
def test_every_heading_gives_a_valid_id(heading: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(heading))
    assert len(f"sec-{slug(heading)}--9999") <= 64


def test_roles_and_accents_in_headings() -> None:
    assert slug("5.2 {term}`Résumé` und Maß: $x^2$") == "5-2-resume-und-ma-x-2"
