"""Text in a figure must be read on a phone of 360 pixels, where a page leaves 324 for the figure."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURE_ON_A_PHONE = 324  # pixels
SMALLEST = 10  # pixels; an index or an exponent, which is a tspan or a group of its own, may be smaller
CHAPTERS = ("01-three-questions", "02-linear-algebra", "03-gemm-tiling", "04-probability")


def figures(chapter: str) -> list[str]:
    notebook = nbformat.read(ROOT / "chapters" / f"{chapter}.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    html = "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    return re.findall(r'<svg class="lab-svg".*?</svg>', html, re.DOTALL)


def sizes_on_a_phone(svg: str) -> list[float]:
    width = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    assert width is not None
    scale = min(1.0, FIGURE_ON_A_PHONE / float(width[1]))
    return [scale * float(size) for size in re.findall(r'<text[^>]* font-size="([\d.]+)"', svg)]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_text_is_large_enough(chapter: str) -> None:
    found = figures(chapter)
    assert found, "no figure in the notebook"
    for svg in found:
        label = re.search(r'aria-label="([^"]*)"', svg)
        sizes = sizes_on_a_phone(svg)
        assert sizes, label
        assert min(sizes) >= SMALLEST, f"{min(sizes):.1f} px in the figure: {label and label[1]}"


def test_a_wide_figure_would_be_found() -> None:
    assert min(sizes_on_a_phone('<svg viewBox="0 0 460.8 200"><text x="1" font-size="12">a</text></svg>')) < SMALLEST
