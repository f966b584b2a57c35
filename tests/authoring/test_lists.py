"""Numbered lists of the book: the numbers that are typed are those that a reader sees.

A page counts the items of a list itself. A number that stands inside another item's line is no item, and every
number after it comes out too small.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "book").rglob("*.md"))
ITEM = re.compile(r"^(\d+)\. ")


def out_of_order(text: str) -> list[str]:
    """Items whose typed number is not one more than that of the item before."""
    wrong, before = [], 0
    for line in text.splitlines():
        found = ITEM.match(line)
        if found:
            number = int(found[1])
            if number not in (1, before + 1):
                wrong.append(line)
            before = number
        elif line and not line.startswith(" "):
            before = 0
    return wrong


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_items_of_a_list_are_numbered_as_a_page_numbers_them(source: Path) -> None:
    assert out_of_order(source.read_text(encoding="utf-8")) == []


def test_a_number_inside_a_line_is_found_by_the_gap_behind_it() -> None:
    assert out_of_order("4. four;\n5. five; 6. six;\n7. seven.") == ["4. four;", "7. seven."]
    assert out_of_order("1. one\n   on\n2. two\n\n3. three\n\nText.\n\n1. again") == []
