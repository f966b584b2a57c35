"""The rendered book as a whole: how its pages hang together, and what a reader does on them.

What every single page must be is in pages.py; building is tested in test_building.py.
"""

from __future__ import annotations

import functools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from playwright.sync_api import Browser, Page, Route

from labsupport.authoring import book
from tests.book.browser import collect_problems
from tests.book.pages import AXE, AXE_RUN, CHAPTERS, FORMULAS_DONE, LOOK, PAGES, ROOT


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGES[0], CHAPTERS[0]])
def test_page_works_from_a_file(name: str, html: Path, page: Page) -> None:
    problems = collect_problems(page)
    page.goto((html / f"{name}.html").as_uri(), wait_until="load")
    page.evaluate(FORMULAS_DONE)
    assert problems.all() == []
    seen = page.evaluate(LOOK)
    assert (seen["unset"], seen["merror"]) == (0, [])


@pytest.mark.browser
def test_start_page_leads_into_the_book(site: str, page: Page) -> None:
    page.goto(site)
    page.wait_for_url("**/book/intro.html")
    assert page.title() == "The Mathematics of AI Infrastructure"


@pytest.mark.browser
def test_slider_changes_the_picture(html: Path, site: str, page: Page) -> None:
    explorable = [name for name in PAGES if "data-explore" in (html / f"{name}.html").read_text(encoding="utf-8")]
    assert explorable, "no page has an explorable figure"
    page.goto(f"{site}{explorable[0]}.html", wait_until="load")
    figure = page.locator("[data-explore]").first
    slider = figure.locator("input[type=range]").first
    before = figure.locator("svg").first.inner_html()
    slider.focus()
    page.keyboard.press("End" if slider.input_value() != slider.get_attribute("max") else "Home")
    assert figure.locator("svg").first.inner_html() != before


@pytest.mark.browser
def test_search_finds_a_word_and_leads_to_it(site: str, page: Page) -> None:
    problems = collect_problems(page)
    page.goto(f"{site}book/notation.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("vocabulary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li .context")
    page.wait_for_selector("#search-results li a[href*='notation.html']")  # results come in one by one
    page.evaluate(AXE)
    assert page.evaluate(AXE_RUN, {}) == []
    hrefs = page.eval_on_selector_all("#search-results li a", "links => links.map(link => link.getAttribute('href'))")
    assert any("notation.html" in href for href in hrefs)
    page.locator("#search-results li a").first.click()
    page.wait_for_selector(".book-article h1")
    assert problems.all() == []


#: The longest page, and a section far down, with hundreds of formulas above it.
FAR_DOWN = "chapters/08-optimization.html", "sec-8-9"
TOP_OF_TARGET = "id => Math.round(document.getElementById(id).getBoundingClientRect().top)"
FORMULAS_SET = "async () => { await MathJax.startup.promise; await new Promise(r => setTimeout(r, 200)); }"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 360])
def test_a_link_to_a_section_lands_on_it_also_when_formulas_are_set(browser: Browser, site: str, width: int) -> None:
    name, section = FAR_DOWN
    page = browser.new_page(viewport={"width": width, "height": 800})
    try:
        page.goto(f"{site}/{name}#{section}", wait_until="load")
        page.evaluate(FORMULAS_SET)
        header = page.evaluate("document.querySelector('.book-header').getBoundingClientRect().bottom")
        assert header <= page.evaluate(TOP_OF_TARGET, section) <= header + 40
    finally:
        page.close()


@pytest.mark.browser
def test_a_reader_who_scrolls_before_the_formulas_are_set_is_not_taken_back(browser: Browser, site: str) -> None:
    name, section = FAR_DOWN
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    held: list[Route] = []
    try:
        page.route("**/mathjax/output/chtml.js", lambda route: held.append(route))
        page.goto(f"{site}/{name}#{section}", wait_until="commit")
        page.wait_for_function("id => document.getElementById(id) && scrollY > 1000", arg=section)
        page.mouse.move(640, 400)
        page.mouse.wheel(0, 3000)
        page.wait_for_function(f"id => ({TOP_OF_TARGET})(id) < -1500", arg=section)
        assert held, "MathJax is not fetched from where this test holds it up"
        for route in held:
            route.continue_()
        page.wait_for_function("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
        page.evaluate(FORMULAS_SET)
        assert page.evaluate(TOP_OF_TARGET, section) < -1000
    finally:
        page.close()


@pytest.mark.browser
def test_colours_are_chosen_and_remembered(site: str, page: Page) -> None:
    page.goto(f"{site}book/errata.html")
    button = page.locator(".mode-button")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.get_attribute("aria-label"), page.evaluate("document.documentElement.dataset.theme")))
    assert seen == [("Colours: light", "light"), ("Colours: dark", "dark"), ("Colours: as the system", "light")]
    button.click()
    button.click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_menu_of_a_phone_opens_and_closes_by_keyboard(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto(f"{site}book/notation.html")
    menu, button = page.locator("#book-nav"), page.locator(".menu-button")
    assert not menu.is_visible()
    button.press("Enter")
    assert menu.is_visible()
    assert button.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.textContent") == "Notation"
    page.evaluate(AXE)
    assert page.evaluate(AXE_RUN, {}) == []
    page.keyboard.press("Escape")
    assert not menu.is_visible()
    assert page.evaluate("document.activeElement.className").find("menu-button") >= 0
    page.close()


@pytest.mark.browser
def test_page_is_readable_without_javascript(browser: Browser, site: str) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(f"{site}book/how-to-use.html")
    assert page.locator("h1").is_visible()
    assert page.locator("#book-nav a", has_text="Notation").is_visible()
    assert page.locator(".js-only").first.is_hidden()
    context.close()


class Links(HTMLParser):
    """The targets and the places of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places.add(given.get("id") or "")
        for name in ("href", "src"):
            if given.get(name):
                self.targets.append(given[name] or "")


def read_links(file: Path) -> Links:
    links = Links()
    links.feed(file.read_text(encoding="utf-8"))
    return links


def test_links_between_pages_lead_somewhere(html: Path) -> None:
    read = functools.lru_cache(maxsize=None)(read_links)
    broken = []
    for name in PAGES:
        file = html / f"{name}.html"
        for target in read(file).targets:
            if re.match(r"[a-z]+:", target):
                continue
            address, place = urldefrag(target.split("?")[0] if "#" not in target else target)
            other = (file.parent / unquote(address)).resolve() if address else file
            if not other.is_file():
                broken.append(f"{name}: {target} is not there")
            elif place and other.suffix == ".html" and unquote(place) not in read(other).places:
                broken.append(f"{name}: {target} names no place")
    assert broken == []


def test_no_page_names_an_outside_address_to_load(html: Path) -> None:
    loading = re.compile(r'<(?:script|img|iframe|link|source)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    for name in PAGES:
        assert loading.findall((html / f"{name}.html").read_text(encoding="utf-8")) == []


def test_contents_name_every_page() -> None:
    written = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for pattern in ("book/*.md", "chapters/*.ipynb", "exercises/*.ipynb", "solutions/*.ipynb")
        for path in ROOT.glob(pattern)
    }
    assert written - set(PAGES) == set(), "run: python -m labsupport.authoring book --toc"
    assert (ROOT / "_toc.yml").read_text(encoding="utf-8") == book.contents(ROOT)


def test_start_page_links_every_chapter(html: Path) -> None:
    text = (html / "book" / "intro.html").read_text(encoding="utf-8")
    rows = text.split('class="chapter-map', 1)[1].split("</dl>", 1)[0]
    linked = {f"chapters/{stem}" for stem in re.findall(r'href="\.\./chapters/([\w-]+)\.html"', rows)}
    assert linked == set(CHAPTERS)
    assert rows.count("<dt") == 13


def test_numbers_of_the_start_page() -> None:
    import numpy as np

    from labsupport.cost import attention_cost, score_bytes

    text = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    batch, heads, length, width = 1, 32, 8192, 128
    assert f"({batch}, {heads}, {length}, {width})" in text
    assert f"({batch}, {heads}, {length}, {length})" in text
    product = 2 * batch * heads * length**2 * width
    assert attention_cost(batch, heads, length, width).flops >= 2 * product  # both products of attention
    assert f"{product / 1e12:.2f} TFLOP" in text
    assert f"**{score_bytes(batch, heads, length, 'float16') / 2**30:g} GiB**" in text
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(np.float16(12)))
    assert f"{np.finfo(np.float16).max:g}" in text


def test_the_settings_leave_out_what_calls_outside() -> None:
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    extensions = settings["sphinx"]["config"]["extensions"]
    assert "sphinx_comments" in extensions
    assert not {"sphinx_thebe", "sphinx.ext.intersphinx"} & set(extensions)
    assert settings["execute"]["execute_notebooks"] == "off"
    assert json.dumps(settings).find("https://") == -1
