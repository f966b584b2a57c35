"""The training map: one source for drawing and list, links that lead somewhere, and a page that answers every hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from labsupport import training
from labsupport.figures import training_map_page
from labsupport.figures.training_map import BOXES, GROUPS, STAGES
from tests.book.browser import collect_problems, open_browser

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
IDS = [box.id for box in BOXES]
expect.set_options(timeout=20_000)  # a page may wait for a processor that other tests use


class Reader(HTMLParser):
    """What the fragment holds: ids, link targets, texts of both drawings and of the list."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.open: list[str] = []
        self.in_drawings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "a":
            self.targets.append(str(values["href"]))
        if tag == "svg":
            self.open.append(str(values["class"]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.in_drawings.append(data)


@pytest.fixture(scope="module")
def told() -> Reader:
    reader = Reader()
    reader.feed((ROOT / training_map_page.FRAGMENT).read_text(encoding="utf-8"))
    return reader


# -- without a browser ------------------------------------------------------------------------


def test_the_page_includes_what_the_boxes_give_today() -> None:
    path = ROOT / training_map_page.FRAGMENT
    command = "python -m labsupport.figures.training_map_page"
    assert path.read_text(encoding="utf-8") == training_map_page.fragment(), f"{path.name} is old; run: {command}"
    page = (ROOT / "book" / "training-map.md").read_text(encoding="utf-8")
    assert f":file: {path.name}" in page


def test_twenty_two_boxes_in_five_groups() -> None:
    assert IDS == [
        "1A", "1B", "1C", "2A", "2B", "2C", "2D", "3A", "3B", "3C", "3D", "3E", "4A", "4B", "4C", "4D", "4E", "4F",
        "4G", "5A", "5B", "5C",
    ]  # fmt: skip
    assert {box.group for box in BOXES} == set(GROUPS)
    for box in BOXES:
        for part in (box.summary, box.takes, box.does, box.gives, box.example, box.caution):
            assert len(part) > 20
            assert part[0].isupper() or part[0].isdigit()
            assert part.rstrip().endswith("."), (box.id, part)
        assert 1 <= box.stage <= 10


def test_every_stage_of_the_lab_belongs_to_a_box_and_every_box_to_a_section_that_exists() -> None:
    assert {box.stage for box in BOXES} == set(range(1, 11))
    for box in BOXES:
        assert box.sections
        for section in (*box.sections, f"13.{box.stage}"):
            chapter = training_map_page.PAGES[int(section.split(".")[0])]
            source = (ROOT / "book" / "chapters" / f"{chapter}.md").read_text(encoding="utf-8")
            label = f"(sec-{section.replace('.', '-')})="
            assert re.search(rf"^{re.escape(label)}$", source, re.M), f"box {box.id} links to {section}: no {label}"
    lab = (ROOT / "book" / "chapters" / "13-training-lab.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## 13\.\d+ Stage (\d+)", lab, re.M)
    assert [int(title) for title in titles] == list(range(1, 11)) and len(STAGES) == 10


def test_drawings_hold_real_text_and_lead_to_the_list(told: Reader) -> None:
    assert sorted(told.ids) == sorted(box.anchor for box in BOXES)  # each once
    inside = [target for target in told.targets if target.startswith("#")]
    assert sorted(inside) == sorted(2 * [f"#{box.anchor}" for box in BOXES])
    for name in (*IDS, "next batch", "Logits", "AdamW"):
        assert told.in_drawings.count(name) == 2, name
    outside = {target for target in told.targets if not target.startswith("#")}
    for target in outside:
        assert re.fullmatch(r"\.\./chapters/\d\d-[\w-]+\.html#sec-\d+-\d+", target), target


def test_nothing_in_a_drawing_overlaps() -> None:
    for layout in (training_map_page.wide(), training_map_page.narrow()):
        assert sorted(layout.places) == sorted(IDS)
        corners = list(layout.places.items())
        for i, (one, (x, y)) in enumerate(corners):
            assert 0 <= x and x + layout.box_width <= layout.width, one
            assert 0 <= y and y + training_map_page.HEIGHT <= layout.height, one
            for other, (u, v) in corners[i + 1 :]:
                assert abs(x - u) >= layout.box_width or abs(y - v) >= training_map_page.HEIGHT, (one, other)
        for box in BOXES:
            fx, fy, fw, fh = layout.frames[box.group]
            x, y = layout.places[box.id]
            assert fx < x and x + layout.box_width < fx + fw and fy < y and y + training_map_page.HEIGHT < fy + fh


def test_numbers_in_the_examples_are_those_of_the_lab() -> None:
    examples = {box.id: box.example for box in BOXES}
    tokenizer, _, _ = training.prepare(training.Settings())
    assert " garden" in tokenizer.tokens and f"V = {len(tokenizer.tokens)}" in examples["1A"]
    assert "512 tokens" in examples["1B"]
    assert "4 GiB" in examples["2A"]
    assert "230" in examples["2D"]
    assert "25,600" in examples["3B"]
    assert "120 GB" in examples["4A"] and "1.9 GB" in examples["4A"]
    assert "16,777,216" in examples["4E"] and "65,536" in examples["4E"]
    assert "47 positions" in examples["5B"] and "1,100" in examples["5B"]


# -- in a browser -----------------------------------------------------------------------------

TEMPLATE = """<!doctype html>
<html lang="en" data-theme="{theme}" class="js"><head><meta charset="utf-8"><title>Map</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{static}/book.css"><link rel="stylesheet" href="{static}/explore.css">
<link rel="stylesheet" href="{static}/widgets/training-map.css">
<script defer src="{static}/explore.js"></script><script defer src="{static}/widgets/training-map.js"></script>
</head><body><main class="book-main"><article class="book-article"><h1>Training map</h1><h2>The map</h2>
{fragment}</article></main></body></html>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Theme → address of the map on a page of the book's own style."""
    folder = tmp_path_factory.mktemp("map")
    fragment = (ROOT / training_map_page.FRAGMENT).read_text(encoding="utf-8")
    found = {}
    for theme in ("light", "dark"):
        path = folder / f"{theme}.html"
        path.write_text(TEMPLATE.format(theme=theme, static=STATIC.as_uri(), fragment=fragment), encoding="utf-8")
        found[theme] = path.as_uri()
    return found


def visit(browser: Browser, address: str, width: int = 900, **options: object) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 800}, **options)
    page.goto(address)
    if options.get("java_script_enabled", True):
        page.wait_for_selector(".map-tools")
    return page


def shown(page: Page) -> list[str]:
    """Boxes whose description can be read."""
    ids = page.eval_on_selector_all(".map-item", "all => all.filter(e => e.offsetParent).map(e => e.dataset.box)")
    return list(ids)


def drawn(page: Page, layout: str = "wide") -> list[str]:
    """Boxes that can be seen in the drawing."""
    script = "all => all.filter(e => getComputedStyle(e).visibility === 'visible').map(e => e.dataset.box)"
    return list(page.eval_on_selector_all(f".map-{layout} .map-box", script))


@pytest.mark.browser
def test_a_click_shows_everything_about_a_box(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"])
    problems = collect_problems(page)
    assert shown(page) == ["1A"]
    for box in BOXES:
        page.click(f".map-wide [data-box='{box.id}']")
        assert shown(page) == [box.id]
        item = page.locator(f"#{box.anchor}")
        for part in ("What comes in", "What it does, and why", "What goes out", "Example", "Caution"):
            expect(item.get_by_text(part, exact=True)).to_be_visible()
        expect(item.get_by_role("link", name=f"Lab, stage {box.stage}")).to_be_visible()
        expect(page.locator(".map-wide [aria-current]")).to_have_attribute("data-box", box.id)
        assert page.url.endswith(f"#{box.anchor}")
        assert box.name in page.locator("[aria-live]").inner_text()
    assert problems.all() == []
    page.close()


@pytest.mark.browser
def test_pointing_gives_a_tip_that_can_be_reached_and_dismissed(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"])
    tip = page.locator(".map-tip")
    expect(tip).to_be_hidden()
    for box in BOXES:
        page.hover(f".map-wide [data-box='{box.id}'] >> text={box.id}", force=True)
        expect(tip).to_contain_text(box.summary)
        frame, place = tip.bounding_box(), page.locator(".map-place").bounding_box()
        assert frame and place
        assert place["x"] - 1 <= frame["x"] and frame["x"] + frame["width"] <= place["x"] + place["width"] + 1
        page.mouse.move(5, 5, steps=3)  # as a hand moves: more than one event on the way
        expect(tip).to_be_hidden()
    page.hover(".map-wide [data-box='1A']")
    expect(tip).to_be_visible()
    tip.hover()  # it stays while the pointer is on it
    page.wait_for_timeout(250)
    expect(tip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.close()


@pytest.mark.browser
def test_keys_alone_reach_every_box(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"])
    page.focus(".map-filter button:last-child")
    page.keyboard.press("Tab")
    seen = []
    for _ in IDS:
        seen.append(page.evaluate("document.activeElement.dataset.box"))
        assert shown(page)[0] == seen[-1]
        page.keyboard.press("ArrowRight")
    assert seen == IDS
    page.keyboard.press("Home")
    assert shown(page) == ["1A"]
    expect(page.locator(".map-tip")).to_contain_text(BOXES[0].summary)  # focus shows the tip, too
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    assert shown(page) == ["5B"]
    page.keyboard.press("Enter")
    assert shown(page) == ["5B"] and page.url.endswith("#map-5b")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "previous box"
    page.keyboard.press("Enter")
    assert shown(page) == ["5A"]
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_filter_shows_one_group(browser: Browser, pages: dict[str, str], group: int) -> None:
    page = visit(browser, pages["light"])
    members = [box.id for box in BOXES if box.group == group]
    button = page.get_by_role("button", name=re.compile(rf"^{group} .*\({len(members)}\)$"))
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert drawn(page) == members
    assert shown(page) == [members[0]]
    page.get_by_role("button", name="all as a list").click()
    assert shown(page) == members
    page.get_by_role("button", name="All (22)").click()
    assert drawn(page) == shown(page) == IDS
    page.close()


@pytest.mark.browser
def test_a_finger_on_a_phone(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"], width=360, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".map-wide").is_hidden()
    for box in BOXES:
        target = page.locator(f".map-narrow [data-box='{box.id}']")
        frame = target.bounding_box()
        assert frame and frame["height"] >= 24 and frame["width"] >= 100
        target.tap()
        assert shown(page) == [box.id]
        expect(page.locator(f"#{box.anchor} h4")).to_be_in_viewport()
    sizes = page.eval_on_selector_all(
        ".map-narrow text", "all => all.map(t => t.getBoundingClientRect().height / (t.textContent ? 1.2 : 1))"
    )
    assert min(sizes) >= 9
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 900])
def test_text_stays_inside_its_box(browser: Browser, pages: dict[str, str], width: int) -> None:
    page = visit(browser, pages["light"], width=width)
    layout = "narrow" if width < 640 else "wide"
    outside = page.evaluate(
        """layout => [...document.querySelectorAll(`.map-${layout} .map-box`)].flatMap(box => {
             const frame = box.querySelector("rect").getBoundingClientRect();
             return [...box.querySelectorAll("text")].map(t => t.getBoundingClientRect())
               .filter(t => t.left < frame.left || t.right > frame.right)
               .concat([...box.querySelectorAll("text")].map(t => t.getBoundingClientRect())
                 .filter(t => t.top < frame.top - 1 || t.bottom > frame.bottom + 1))
               .map(() => box.dataset.box); })""",
        layout,
    )
    assert outside == []
    page.close()


@pytest.mark.browser
def test_without_javascript_it_is_a_list_and_the_drawing_leads_into_it(
    browser: Browser, pages: dict[str, str]
) -> None:
    page = visit(browser, pages["light"], java_script_enabled=False)
    for box in BOXES:
        item = page.locator(f"#{box.anchor}")
        expect(item.get_by_text(box.summary, exact=True)).to_be_visible()
        expect(item.get_by_text("Caution", exact=True)).to_be_visible()
    page.click(".map-wide [data-box='4E']")
    expect(page.locator("#map-4e h4")).to_be_in_viewport()
    page.close()


@pytest.mark.browser
def test_an_address_opens_its_box(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"] + "#map-3d")
    assert shown(page) == ["3D"]
    page.get_by_role("button", name=re.compile("^5 Inference")).click()
    page.evaluate("location.hash = '#map-2b'")
    page.wait_for_timeout(100)
    assert shown(page) == ["2B"] and drawn(page) == IDS
    page.close()


@pytest.mark.browser
def test_on_paper_everything_is_there(browser: Browser, pages: dict[str, str]) -> None:
    page = visit(browser, pages["light"], width=360)
    page.get_by_role("button", name=re.compile("^2 Forward")).click()
    page.emulate_media(media="print")
    assert shown(page) == IDS
    assert drawn(page) == IDS
    assert page.locator(".map-wide").is_visible() and page.locator(".map-narrow").is_hidden()
    assert page.locator(".map-tools").first.is_hidden()
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 900])
def test_accessibility_rules(browser: Browser, pages: dict[str, str], theme: str, width: int) -> None:
    page = visit(browser, pages[theme], width=width)
    for _ in ("one box", "all as a list"):
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
        page.get_by_role("button", name="all as a list").click()
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_in_the_drawing_can_be_read(browser: Browser, pages: dict[str, str], theme: str) -> None:
    """axe does not measure contrast inside SVG: every text must have the page's ink."""
    page = visit(browser, pages[theme])
    colours = page.evaluate(
        """() => [...new Set([...document.querySelectorAll(".map-wide text")].map(t => getComputedStyle(t).fill))]"""
    )
    ink = page.evaluate("getComputedStyle(document.querySelector('.lab-figure')).color")
    assert colours == [ink]
    page.close()
