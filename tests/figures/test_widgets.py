"""Widgets in Python: what a reader without scripts sees must be right, and wrong settings must be refused."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from labsupport.figures import (
    bit_explorer,
    broadcast_explorer,
    steps,
    strides_explorer,
    svg,
    widget,
    widgets,
    worksheet,
)


def config(text: str) -> Any:
    found = re.search(r'data-config="([^"]*)"', text)
    assert found
    return json.loads(html.unescape(found[1]))


def rows(text: str) -> list[list[str]]:
    lines = re.findall(r"<tr>(.*?)</tr>", text)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)] for line in lines]


def drawing(label: str) -> str:
    return svg.picture(90, 40, svg.box(5, 5, 60, 30, label))


def test_a_widget_carries_its_configuration_safely() -> None:
    made = widget("bits", {"b": "it's \"<b>\"", "a": [1]}, "<p>read me</p>", alt='an "alt"', caption="cap")
    assert config(made.html) == {"a": [1], "b": "it's \"<b>\""}
    assert 'data-alt="an &quot;alt&quot;"' in made.html
    assert '<div class="lab-fallback"><p>read me</p></div>' in made.html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Bits", {}, "<p>x</p>", "a"), "lower-case letters"), (("../x", {}, "<p>x</p>", "a"), "lower-case letters"),
        (("bits", {}, " ", "a"), "needs a fallback"), (("bits", {}, "<p>x</p>", " "), "needs alt text"),
        (("bits", {}, "x" * 300_000, "a"), "more than 250,000"),
    ],
)
def test_a_wrong_widget_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        widget(*arguments)


def test_the_stride_table_is_numpys() -> None:
    table = rows(strides_explorer((3, 4)).html)
    assert table[2] == ["x.T", "(4, 3)", "(1, 4)", "no", "view"]
    assert table[4] == ["x[::-1]", "(3, 4)", "(-4, 1)", "no", "view"]
    assert table[7] == ["x.T.reshape(-1)", "(12,)", "(1,)", "yes", "copy"]
    with pytest.raises(ValueError, match=r"1 to 64 elements, got \(65,\)"):
        strides_explorer((65,))


def test_the_bit_table_shows_all_six_formats() -> None:
    table = rows(bit_explorer(0.1, "BF16").html)
    assert [row[0] for row in table[1:]] == ["FP32", "TF32", "FP16", "BF16", "E4M3", "E5M2"]
    assert table[4][1:3] == ["0 01111011 1001101", "0.1000976562"]
    assert config(bit_explorer(float("inf")).html)["value"] == "inf"
    with pytest.raises(ValueError, match="no float format 'FP64'"):
        bit_explorer(1.0, "FP64")


def test_the_worksheet_is_exact() -> None:
    values = {name: value for name, _, value in widgets.worksheet_rows(4, 2048, 4096, 128256)}
    assert values["shape of the logits"] == "(4, 2048, 128256)"
    assert values["FLOPs"] == f"{2 * 4 * 2048 * 4096 * 128256:,} FLOP = 8.607 TFLOP"
    assert values["bytes of the weight"] == "1,050,673,152 B = 0.979 GiB = 1.051 GB"
    total = 2 * (4096 * 128256 + 4 * 2048 * 4096 + 4 * 2048 * 128256)
    assert values["arithmetic intensity"] == f"{2 * 4 * 2048 * 4096 * 128256 / total:,.2f} FLOP/B"
    assert "<details><summary>Show the results" in worksheet().html


@pytest.mark.parametrize(("name", "value"), [("B", 0), ("H", 10**9 + 1), ("V", 2.5), ("dtype", "INT4")])
def test_a_wrong_worksheet_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}|no dtype"):
        worksheet(**{name: value})


def test_broadcasting_without_scripts() -> None:
    good, bad = broadcast_explorer((8, 1, 3), (7, 1)).html, broadcast_explorer((2, 3), (4, 3)).html
    assert rows(good)[1:] == [["a", "8", "1", "3"], ["b", "–", "7", "1"], ["result", "8", "7", "3"]]
    assert "(8, 7, 3)" in good
    assert len(rows(bad)) == 3
    assert "2" in bad.partition("</table>")[2]


def test_all_steps_are_a_readable_list() -> None:
    made = steps([("One", "loads `A`.", drawing("a")), ("Two.", "adds & stores.", drawing("b"))], alt="player")
    assert made.html.count("<li>") == 2
    assert "<strong>One</strong> loads <code>A</code>." in made.html
    assert 'aria-label="Two: adds &amp; stores."' in made.html


def test_wrong_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        steps([], alt="a")
    with pytest.raises(ValueError, match="step 2 needs a title and a text"):
        steps([("One", "x", drawing("a")), ("Two", "", drawing("b"))], alt="a")
    with pytest.raises(ValueError, match="drawings of one size"):
        steps([("One", "x", drawing("a")), ("Two", "y", svg.picture(9, 9, svg.rect(0, 0, 9, 9)))], alt="a")
