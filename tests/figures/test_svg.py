"""Hand-made diagrams: every piece parses, scales and takes the page's colours; wrong pieces are refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from labsupport.figures import compact, show, style, svg


def parsed(*pieces: str) -> ET.Element:
    return ET.fromstring(svg.picture(300, 200, *pieces))


def test_a_diagram_of_everything_becomes_one_figure() -> None:
    grid = svg.cells(0, 0, [[1, 2], [3, 4]], rows="ab", cols="cd", title="Z", highlight={(1, 0): "green"})
    drawing = svg.picture(
        360, 200,
        svg.box(5, 5, 80, 40, "X", sub="(B, S, H)"), svg.circle(150, 60, 20, "@", color="purple"),
        svg.arrow((85, 25), (130, 55), label="matmul", via=[(100, 25)]), svg.line([(0, 0), (9, 9)], dashed=True),
        svg.group(grid, x=200, y=60),
        svg.text(10, 180, "two\nlines", anchor="start", mono=True, rotate=15), svg.rect(1, 1, 5, 5, fill="ground"),
    )
    text = show(drawing, alt="everything").html
    for word in ("X", "(B, S, H)", "matmul", "two", "lines", "var(--lab-green", "currentColor", "max-width:360px"):
        assert word in text
    assert "#000" not in text
    assert " id=" not in text


def test_pieces_keep_their_places_through_compacting() -> None:
    drawn = compact.picture(svg.picture(90, 90, svg.rect(10.26, 20, 30, 40)))
    (rect,) = (ET.fromstring(part) for part in drawn.parts)
    assert [rect.get(name) for name in ("x", "y", "width", "height")] == ["10.3", "20", "30", "40"]


def test_an_arrow_ends_at_its_point_and_its_tip_looks_along_it() -> None:
    tip = parsed(svg.arrow((0, 50), (100, 50))).findall("path")[1].get("d") or ""
    corners = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", tip)]
    assert corners[0] == (100, 50)
    assert all(x < 100 for x, _ in corners[1:])


def test_cells_are_one_rectangle_and_one_label_each() -> None:
    root = parsed(svg.cells(10, 10, [["a", "b", ""], [1, 2, 3]], size=20, highlight={(0, 1): "red"}))
    rects = root.findall("rect")
    assert len(rects) == 6
    assert [node.text for node in root.findall("text")] == ["a", "b", "1", "2", "3"]
    assert [rect.get("fill", "none").startswith("var(--lab-red") for rect in rects] == [False, True, *[False] * 4]


def test_text_is_escaped() -> None:
    assert parsed(svg.text(0, 0, "a < b & c")).findall("text")[0].text == "a < b & c"


def test_colours_have_names() -> None:
    assert svg.colour("ink") == "currentColor"
    assert svg.colour("blue") == f"var(--lab-blue,{style.PALETTE.blue})"
    with pytest.raises(ValueError, match="no colour named 'pink'; the book has ink, none, ground, blue"):
        svg.box(0, 0, 9, 9, color="pink")


def test_wrong_pieces_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows of one length of at least 1, got lengths \[1, 2\]"):
        svg.cells(0, 0, [[1], [1, 2]])
    with pytest.raises(ValueError, match=r"highlight \(2, 0\) lies outside a grid of 1 × 2 cells"):
        svg.cells(0, 0, [[1, 2]], highlight={(2, 0): "red"})
    with pytest.raises(ValueError, match="two different ends"):
        svg.arrow((1, 1), (1, 1))
    with pytest.raises(ValueError, match="at least two points, got 1"):
        svg.line([(0, 0)])
