"""Pictures must be the same bytes everywhere, small, free of ids that clash and of colours that vanish in dark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from labsupport.figures import compact, show, style

SCRIPT = """
import numpy as np
from labsupport.figures import explore, show, style
def draw(n):
    fig, ax = style.new(5, 3)
    x = np.linspace(0, 4, 200)
    ax.plot(x, np.sin(n * x), label="sine $x^2$")
    ax.scatter(x[::40], x[::40] / 4, color="k")
    ax.bar([1, 2], [0.2, 0.4], hatch="//")
    ax.fill_between(x, -1, np.cos(x))
    ax.set_ylim(-0.5, 0.5)
    ax.legend(loc="upper right")
    return fig
print(show(draw(2), alt="still").html)
print(explore(draw, alt="{n}", n=[1, 2, 3]).html)
"""


def plotted(**limits: tuple[float, float]) -> compact.Picture:
    fig, ax = style.new(5, 3)
    x = np.linspace(-3, 3, 50)
    ax.plot(x, np.exp(x))
    ax.set(**limits)
    return compact.picture(fig)


def test_two_processes_with_other_hash_seeds_write_the_same_bytes() -> None:
    outputs = []
    for seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "LABSUPPORT_STATIC": "1"}
        command = [sys.executable, "-c", SCRIPT]
        run = subprocess.run(command, env=environment, capture_output=True, timeout=100, check=True)
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 5000


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.50, "2.5"), (-0.04, "0"), (72.05, "72.1"), (72.0499999999, "72.1"), (100, "100"), (-1.25, "-1.3"), (1e-9, "0")],
)
def test_numbers_are_short_and_stable_on_the_border_of_two_roundings(value: float, text: str) -> None:
    assert compact.short(value) == text


def test_a_figure_keeps_no_metadata_date_white_ground_or_fixed_black() -> None:
    fig, ax = style.new(5, 3)
    ax.plot([0, 1], [0, 1], color="k")
    text = show(fig, alt="a line").html
    for word in ("metadata", "<!--", "xmlns", "dc:", "clip-path", "#000000", "font-family=\"'DejaVu", "<style"):
        assert word not in text
    assert 'stroke="currentColor"' in text
    assert len(text) < 6000


def test_numbers_in_the_picture_have_one_decimal() -> None:
    text = "".join(plotted().parts)
    drawn = re.findall(r' (?:d|x|y)="([^"]+)"', text)
    assert drawn
    assert not [data for data in drawn if re.search(r"\.\d\d", data)]


def test_palette_colours_become_variables_of_the_page() -> None:
    fig, ax = style.new(4, 3)
    ax.plot([0, 1], color=style.PALETTE.red)
    assert f"var(--lab-red,{style.PALETTE.red})" in show(fig, alt="a red line").html


def test_only_what_crosses_the_axes_is_clipped() -> None:
    assert "clip-path" not in "".join(plotted().parts)
    assert "clip-path" in "".join(plotted(ylim=(0, 5)).parts)


def test_a_transformed_image_keeps_its_clip_outside_the_transform() -> None:
    fig, ax = style.new(3, 2)
    ax.imshow([[1, 2], [3, 4]])
    group = next(part for part in compact.picture(fig).parts if "<image" in part)
    assert group.startswith("<g clip-path")
    assert "clip-path" not in group[3:].partition("<image")[2]


def test_ids_of_two_figures_differ_and_every_reference_is_defined() -> None:
    texts = []
    for top in (4, 5):
        fig, ax = style.new(4, 3)
        ax.plot([0, 1, 2], [0, 9, 1], "o-")
        ax.set_ylim(0, top)
        texts.append(show(fig, alt="a peak").html)
    ids = [re.findall(r'\bid="([^"]+)"', text) for text in texts]
    assert all(ids)
    assert not set(ids[0]) & set(ids[1])
    for text, own in zip(texts, ids, strict=True):
        assert len(own) == len(set(own))
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) == set(own)


def test_paint_of_a_group_is_not_lost_on_its_children() -> None:
    drawn = compact.picture('<svg viewBox="0 0 9 9"><g fill="red"><path d="M0 0L9 9Z" fill="black"/></g></svg>')
    assert drawn.parts == ('<g fill="red"><path d="M0 0L9 9Z" fill="currentColor"/></g>',)


def test_the_result_is_well_formed_and_escapes_text() -> None:
    fig, ax = style.new(4, 3)
    ax.set_title("a < b & c")
    text = compact.markup(compact.named([compact.picture(fig)], "")[0], 'says "x < y"')
    root = ET.fromstring(text)
    assert root.get("aria-label") == 'says "x < y"'
    assert "a < b & c" in [node.text for node in root.iter("text")]


@pytest.mark.parametrize("drawing", [None, 3, [1, 2]])
def test_what_is_no_drawing_is_refused(drawing: object) -> None:
    with pytest.raises(ValueError, match="must return a matplotlib Figure or an SVG string"):
        compact.picture(drawing)


@pytest.mark.parametrize(
    ("text", "message"),
    [("<svg viewBox='0 0 9 9'><p></svg>", "does not parse"), ("<svg width='9'></svg>", "viewBox"),
     ("<svg viewBox='1 0 9 9'/>", "viewBox")],
)
def test_a_broken_svg_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compact.picture(text)
