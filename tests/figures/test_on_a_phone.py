"""Text in a figure must be read on a phone of 360 pixels, where a page leaves 324 for the figure, and stand free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page

from tests.book.browser import open_browser

ROOT = Path(__file__).resolve().parents[2]
FIGURE_ON_A_PHONE = 324  # pixels
SMALLEST = 10  # pixels; an index or an exponent, which is a tspan or a group of its own, may be smaller
CHAPTERS = sorted(path.stem for path in (ROOT / "chapters").glob("*.ipynb"))


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
        assert round(min(sizes)) >= SMALLEST, f"{min(sizes):.1f} px in the figure: {label and label[1]}"


#: Texts that leave their drawing, and texts that lie on one another.
CLASHES = """() => {
  const svg = document.querySelector("svg.lab-svg"), frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")]
    .filter(text => text.textContent.trim() && getComputedStyle(text).visibility === "visible")
    .map(text => [text.textContent.trim(), text.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  const cut = texts.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1
    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1).map(([text]) => `cut off: ${text}`);
  const over = texts.flatMap(([one, a], place) => texts.slice(place + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.25 * Math.min(a.height, b.height)
  ).map(([other]) => `on one another: ${one}, ${other}`));
  return [...cut, ...over];
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_browser(viewport={"width": 400, "height": 800}) as browser:
        yield browser.new_page()


def clashes(page: Page, svg: str) -> list[str]:
    page.set_content(f'<!doctype html><body style="margin: 0"><div style="width: {FIGURE_ON_A_PHONE}px">{svg}</div>')
    return list(page.evaluate(CLASHES))


@pytest.mark.browser
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_text_is_cut_off_or_lies_on_another(page: Page, chapter: str) -> None:
    found = {re.findall(r'aria-label="([^"]*)"', svg)[0]: clashes(page, svg) for svg in figures(chapter)}
    assert {label: what for label, what in found.items() if what} == {}


@pytest.mark.browser
def test_clashes_would_be_found(page: Page) -> None:
    texts = '<text x="{x}" y="50">one</text><text x="60" y="52">two</text>'
    svg = f'<svg class="lab-svg" viewBox="0 0 200 100">{texts}</svg>'
    assert clashes(page, svg.format(x=10)) == []
    assert clashes(page, svg.format(x=50)) == ["on one another: one, two"]
    assert clashes(page, svg.format(x=190)) == ["cut off: one"]


def test_a_wide_figure_would_be_found() -> None:
    assert min(sizes_on_a_phone('<svg viewBox="0 0 460.8 200"><text x="1" font-size="12">a</text></svg>')) < SMALLEST
