"""Explorable figures and widgets on a page from a disk, in Chromium: by keyboard, in light and dark, on a phone.

Each page here is minimal, with the book's own scripts and stylesheet; the built book has its own tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page

from labsupport.figures import (
    bit_explorer,
    broadcast_explorer,
    explore,
    show,
    steps,
    strides_explorer,
    style,
    svg,
    worksheet,
)
from tests.book.browser import Problems, collect_problems, open_browser

pytestmark = pytest.mark.browser

STATIC = Path(__file__).resolve().parents[2] / "book" / "_static"
NAMES = ("strides", "bits", "worksheet", "broadcast", "steps")
GROUNDS = {"light": ("#ffffff", "#222832"), "dark": ("#14181e", "#ced6dd")}


def draw(gain: float, bias: int) -> Any:
    fig, ax = style.new(6.4, 3.4)
    ax.plot([0, 1, 2], [bias, bias + gain, bias + 4 * gain], "o-", label="a line of the book")
    ax.set_ylim(-2, 20)
    ax.set_xlabel("step $t$")
    ax.legend(loc="upper left")
    return fig


def diagram(step: int) -> str:
    return svg.picture(340, 110, svg.cells(20, 30, [[1, 2], [3, 4]], highlight={divmod(step, 2): "green"}),
                       svg.arrow((100, 60), (160, 60), label="@"), svg.box(180, 35, 120, 50, f"step {step}"))


@pytest.fixture(scope="module")
def figures() -> dict[str, str]:
    """One of each, as HTML; drawn once."""
    return {
        "explore": explore(
            draw, alt="Gain {gain}, bias {bias}", caption="Move `gain`.", start={"bias": 1}, gain=[1, 2, 4], bias=[0, 1]
        ).html,
        "still": show(diagram(0), alt="A diagram", caption="Nothing moves.").html,
        "strides": strides_explorer((3, 4), caption="Pick a cell.").html,
        "bits": bit_explorer(0.1, "FP16").html,
        "worksheet": worksheet().html,
        "broadcast": broadcast_explorer((8, 1, 3), (7, 1)).html,
        "steps": steps([(f"Step {k}", f"Cell {k} is multiplied.", diagram(k)) for k in range(3)], alt="Player").html,
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def written(folder: Path, body: str, theme: str = "light", scripts: tuple[str, ...] | None = None) -> str:
    """Write a page and return its file address. Widget scripts come before explore.js unless said otherwise."""
    names = scripts if scripts is not None else (*(f"widgets/{name}" for name in NAMES), "explore")
    ground, ink = GROUNDS[theme]
    links = "".join(f'<script src="{(STATIC / f"{name}.js").as_uri()}"></script>' for name in names)
    path = folder / "page.html"
    path.write_text(
        f'<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8"><title>Explorables</title>'
        f'<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="{(STATIC / "explore.css").as_uri()}">'
        f"<style>html{{--pst-color-background:{ground};--pst-color-text-base:{ink};color-scheme:{theme}}}"
        f"body{{background:{ground};color:{ink};font-family:sans-serif}}"
        "body{margin:0 auto;max-width:720px;padding:0 12px}</style>"
        f"</head><body><main><h1>Explorables</h1>{body}</main>{links}</body></html>",
        encoding="utf-8",
    )
    return path.as_uri()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """visit(body, theme=, width=, ...) -> (page, problems); no page may end with a problem."""
    opened: list[tuple[Page, Problems]] = []

    def go(body: str, theme: str = "light", width: int = 1280, script: bool = True, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=script)
        page = context.new_page()
        opened.append((page, collect_problems(page)))
        page.goto(written(tmp_path, body, theme, **options))
        return page

    yield go
    for page, problems in opened:
        found = problems.all()
        page.context.close()
        assert found == []


def text(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def slider(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name, exact=True)


def box(page: Page, name: str) -> Locator:
    return page.get_by_role("textbox", name=name, exact=True)


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1280)])
def test_all_of_them_are_accessible_and_fit(visit: Any, figures: dict[str, str], theme: str, width: int) -> None:
    page = visit("".join(figures.values()), theme, width)
    assert page.locator(".lab-stage").count() == len(NAMES)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in ("reveal all", "transpose", "all axes"):
        page.get_by_role("button", name=button, exact=True).click()
    result = Axe().run(page, options={"preload": False})
    assert [(one["id"], one["nodes"][0]["html"]) for one in result.response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        "[...document.querySelectorAll('.lab-stage button, .lab-stage input, .lab-slider input')]"
        ".map(e => e.getBoundingClientRect()).filter(r => r.width && (r.width < 24 || r.height < 24)).length"
    )
    assert small == 0  # WCAG 2.2, 2.5.8: a touch target is at least 24 × 24 pixels


@pytest.mark.parametrize("theme", GROUNDS)
def test_black_is_ink_and_the_palette_follows_the_theme(visit: Any, figures: dict[str, str], theme: str) -> None:
    page = visit(figures["explore"], theme)
    colour = "e => { const s = getComputedStyle(e); return [s.fill, s.stroke]; }"
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert page.locator("svg text").first.evaluate(colour)[0] == ink
    blue = {"light": "rgb(32, 112, 200)", "dark": "rgb(99, 179, 255)"}[theme]
    assert blue in page.evaluate("[...document.querySelectorAll('svg path')].map(e => getComputedStyle(e).stroke)")


def test_sliders_change_the_picture_by_keyboard_on_two_axes(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["explore"])
    picture = page.locator("svg")
    gain, bias = slider(page, "gain"), slider(page, "bias")
    assert (gain.input_value(), bias.input_value()) == ("0", "1")
    seen = {picture.inner_html()}
    assert picture.get_attribute("aria-label") == "Gain 1, bias 1"
    for one, key, alt in [(gain, "ArrowRight", "Gain 2, bias 1"), (gain, "End", "Gain 4, bias 1"),
                          (bias, "ArrowLeft", "Gain 4, bias 0"), (gain, "Home", "Gain 1, bias 0")]:
        one.focus()
        page.keyboard.press(key)
        assert picture.get_attribute("aria-label") == alt
        assert text(page, "[aria-live]") == alt
        seen.add(picture.inner_html())
    assert len(seen) == 5
    assert gain.get_attribute("aria-valuetext") == "1"
    assert page.locator("output").all_inner_texts() == ["1", "0"]
    assert page.locator(".lab-values").count() == 0
    slider(page, "gain").press("ArrowRight")
    slider(page, "gain").press("ArrowLeft")
    assert picture.inner_html() in seen


def test_every_frame_defines_what_it_refers_to(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["explore"] + figures["still"])
    missing = (
        "[...document.querySelectorAll('svg use')].filter(e => !document.querySelector(e.getAttribute('href'))).length"
    )
    for _ in range(3):
        assert page.locator("svg use").count() > 0
        assert page.evaluate(missing) == 0
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        slider(page, "gain").press("ArrowRight")


def test_without_javascript_everything_is_read(visit: Any, figures: dict[str, str]) -> None:
    page = visit("".join(figures.values()), width=360, script=False)
    assert page.locator("input").count() == 0
    assert "gain: 1, bias: 1" in text(page, "main")
    assert page.locator("svg[role=img]").count() == 5
    expected = ("x.T.reshape(-1)", "0 01011 1001100110", "Show the results", "shape (8, 7, 3)", "Cell 2 is multiplied.")
    for words in expected:
        assert words in page.locator("main").inner_text()


def test_without_the_scripts_the_page_is_the_same(visit: Any, figures: dict[str, str]) -> None:
    page = visit("".join(figures.values()), scripts=())
    assert page.locator("input").count() == 0
    assert page.locator(".lab-fallback").count() == len(NAMES)


def test_scripts_load_in_any_order_and_a_page_may_lack_some(visit: Any, figures: dict[str, str]) -> None:
    body = figures["bits"] + figures["broadcast"] + figures["explore"]
    page = visit(body, scripts=("explore", "widgets/broadcast", "explore"))
    assert page.locator(".lab-stage").count() == 1
    assert page.locator(".lab-fallback").count() == 1
    assert slider(page, "gain").count() == 1


def test_a_widget_that_fails_leaves_its_fallback(browser: Browser, tmp_path: Path, figures: dict[str, str]) -> None:
    broken = figures["bits"].replace("FP16", "FP99", 1)
    page = browser.new_page()
    problems = collect_problems(page)
    page.goto(written(tmp_path, broken))
    assert page.locator(".lab-fallback table").is_visible()
    assert problems.page_errors
    page.close()


def test_the_stride_explorer_by_keyboard(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["strides"])
    page.get_by_role("button", name="element (0, 0)").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert text(page, ".lab-formula") == "x[1, 1] is buffer cell 0 + 1·4 + 1·1 = 5"
    assert text(page, ".lab-store.lab-picked").split() == ["5", "5"]
    page.get_by_role("button", name="transpose").press("Enter")
    facts = page.locator(".lab-facts").inner_text().split("\n")
    assert facts[1::2] == ["(4, 3)", "(1, 4)", "0", "no"]
    assert text(page, ".lab-verdict").startswith("view: ")
    page.get_by_role("button", name="reshape").press("Enter")
    assert text(page, ".lab-verdict").startswith("copy: ")
    assert page.locator(".lab-code li").all_inner_texts()[-1] == "x = x.reshape(-1) copy"
    box(page, "new shape").fill("5, 5")
    page.get_by_role("button", name="reshape").press("Enter")
    assert text(page, ".lab-verdict") == "Not possible: 12 elements do not fit shape (5, 5)."
    page.get_by_role("button", name="start again").press("Enter")
    assert page.locator(".lab-code li").count() == 1


def test_stretched_elements_share_a_cell(visit: Any) -> None:
    page = visit(strides_explorer((1, 3), [{"name": "broadcast", "shape": [2, 3]}]).html)
    page.get_by_role("button", name="element (1, 2)").hover()
    assert text(page, ".lab-formula") == "x[1, 2] is buffer cell 0 + 1·0 + 2·1 = 2"
    assert page.locator(".lab-cell.lab-same").count() == 1


def test_the_bit_explorer_by_keyboard(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["bits"])
    fact = page.locator(".lab-facts div")
    assert fact.filter(has_text="stored value").inner_text().split("\n")[1] == "0.0999755859375"
    sign = page.get_by_role("button", name="sign bit 0")
    sign.press("Enter")
    assert page.get_by_role("button", name="sign bit 0").get_attribute("aria-pressed") == "true"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "sign bit 0"
    assert fact.filter(has_text="stored value").inner_text().split("\n")[1] == "-0.0999755859375"
    page.get_by_role("combobox", name="format").select_option("E4M3")
    box(page, "number").fill("500")
    page.keyboard.press("Enter")
    assert "no infinity, so it becomes NaN" in text(page, ".lab-verdict")
    page.get_by_role("button", name="largest").click()
    assert fact.filter(has_text="pattern").inner_text().split("\n")[1] == "0x7E"
    assert fact.filter(has_text="next above").inner_text().split("\n")[1] == "none"
    box(page, "number").fill("seven")
    page.keyboard.press("Enter")
    assert text(page, ".lab-verdict").startswith("Type a number")


def test_the_worksheet_asks_before_it_tells(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["worksheet"])
    assert "8.607" not in page.locator("main").inner_text()
    box(page, "bytes of the weight").fill("0.979 GiB")
    page.keyboard.press("Enter")
    assert text(page, ".lab-question:nth-child(3) .lab-answer") == "Right: 1,050,673,152 B = 0.979 GiB = 1.051 GB."
    page.get_by_role("button", name="reveal all").click()
    assert f"2·B·S·H·V = {2 * 4 * 2048 * 4096 * 128256:,} FLOP = 8.607 TFLOP" in page.locator("main").inner_text()
    box(page, "batch B").fill("0")
    page.keyboard.press("Tab")
    assert "whole number from 1" in text(page, ".lab-verdict")


def test_broadcasting_step_by_step(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["broadcast"])
    result = page.locator("tbody tr").last
    assert result.locator("td").all_inner_texts() == ["?", "?", "?"]
    page.get_by_role("button", name="next axis").press("Enter")
    assert result.locator("td").all_inner_texts() == ["?", "?", "3"]
    page.get_by_role("button", name="all axes").press("Enter")
    assert result.locator("td").all_inner_texts() == ["8", "7", "3"]
    assert text(page, ".lab-verdict").endswith("The result has shape (8, 7, 3).")
    box(page, "shape of b").fill("4, 3, 2")
    page.get_by_role("button", name="line up").press("Enter")
    page.get_by_role("button", name="all axes").press("Enter")
    assert "axis -1 fails" in text(page, ".lab-verdict")


def test_the_player_shows_one_step_at_a_time(visit: Any, figures: dict[str, str]) -> None:
    page = visit(figures["steps"])
    shown = page.locator(".lab-steps li:visible")
    assert shown.all_inner_texts()[0].startswith("Step 0")
    page.get_by_role("button", name="next").press("Enter")
    assert shown.count() == 1
    assert shown.all_inner_texts()[0].startswith("Step 1")
    slider(page, "step").press("End")
    assert shown.all_inner_texts()[0].startswith("Step 2")
    assert page.get_by_role("button", name="next").is_disabled()
    assert text(page, "[aria-live]") == "3 of 3. Step 2 Cell 2 is multiplied."
