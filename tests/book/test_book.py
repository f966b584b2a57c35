"""The rendered book as a reader meets it: every page in a real browser, in both colours, wide and narrow.

Each page is loaded once and looked at in four ways, because loading and setting the formulas takes longest.
These tests read the built book and never change it; those of the building itself work on a small copy.
"""

from __future__ import annotations

import functools
import http.server
import io
import json
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import axe_playwright_python
import pytest
import yaml
from playwright.sync_api import Browser, Page

from labsupport.authoring import book, sphinx_ext
from tests.book.browser import collect_problems, open_browser

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
MEGABYTE = 1_000_000


def pages_of(toc: Path) -> list[str]:
    """Every page that a table of contents names, in its order."""
    entries = re.findall(r"^\s*-?\s*(?:file|root): (\S+)$", toc.read_text(encoding="utf-8"), re.MULTILINE)
    return list(dict.fromkeys(entries))


PAGES = pages_of(ROOT / "_toc.yml")


@pytest.fixture(scope="module")
def html() -> Path:
    """The built book; built now where it is missing or older than its sources."""
    if not book.is_current(ROOT):
        assert book.main(["--pages-only"]) == 0
    return HTML


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: pytest's output is for failures."""


@pytest.fixture(scope="module")
def site(html: Path) -> Iterator[str]:
    """The address of the built book on loopback."""
    handler = functools.partial(QuietHandler, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")  # one that stays open stands in the way of the next file's
def browser() -> Iterator[Browser]:
    with open_browser(viewport={"width": 1280, "height": 900}, color_scheme="light") as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    yield opened
    opened.close()


FORMULAS_DONE = """async () => {
  if (document.querySelector("span.math, div.math") === null) return true;
  for (let i = 0; i < 200 && !(window.MathJax && MathJax.startup && MathJax.startup.promise); i++)
    await new Promise(resolve => setTimeout(resolve, 25));
  await MathJax.startup.promise;
  await new Promise(resolve => setTimeout(resolve, 120));  // book.js marks what scrolls a moment later
  return true;
}"""

LOOK = r"""() => {
  const article = document.querySelector(".book-article");
  const text = article.cloneNode(true);
  text.querySelectorAll("pre, code, script, style, mjx-container, textarea").forEach(node => node.remove());
  const root = document.documentElement;
  return {
    sideways: root.scrollWidth - root.clientWidth,
    raw: (text.textContent.match(/\$\S[^$\n]*\$|\\[(\[][^\n]*/g) || []).slice(0, 3),
    unset: [...document.querySelectorAll("span.math, div.math")].filter(m => !m.querySelector("mjx-container")).length,
    merror: [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(m => m.textContent).slice(0, 3),
    unreachable: [...document.querySelectorAll(
      "pre, .pst-scrollable-table-container, .output, div.math, mjx-container")]
      .filter(box => box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX))
      .filter(box => box.tabIndex < 0 && !box.querySelector("a, button, input, select, summary, [tabindex='0']"))
      .map(box => box.outerHTML.slice(0, 80)).slice(0, 3),
    noalt: [...document.querySelectorAll("img:not([alt])")].map(image => image.src).slice(0, 3),
  };
}"""

# A header of a table that is one formula is told by the formula's own MathML, which axe does not count as text.
# The inside of a formula or a drawing is thousands of nodes without a rule of their own: the formula is MathJax's,
# the drawing's colours are held by the tests of the figures, and LOOK sees whether a wide formula can be reached.
AXE_RUN = """options => axe.run(
  {include: [["html"]], exclude: [["mjx-container"], ["svg > *"], ["th:has(mjx-container)"]]}, options
).then(result => result.violations.map(violation =>
  `${violation.id}: ${violation.nodes.length} x ${violation.nodes[0].target.join(" ")}: ` +
  `${violation.nodes[0].failureSummary.replace(/\\s+/g, " ").slice(0, 300)}`))"""
CONTRAST_ONLY = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
REST = {"rules": {"color-contrast": {"enabled": False}}}


def weight_besides_figures(responses: dict[str, bytes]) -> int:
    """Bytes that a page loads, without image files and without what stands in its figures."""
    total = 0
    for url, body in responses.items():
        if re.search(r"\.(png|svg|jpe?g|gif|webp)($|\?)", url):
            continue
        figures = re.findall(rb"<figure.*?</figure>", body, re.DOTALL) if ".html" in url else []
        total += len(body) - sum(map(len, figures))
    return total


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_page_is_in_order(name: str, site: str, page: Page) -> None:
    problems = collect_problems(page)
    responses: dict[str, bytes] = {}
    page.on("response", lambda response: responses.update({response.url: response.body()}))
    page.goto(f"{site}{name}.html", wait_until="load")
    page.evaluate(FORMULAS_DONE)
    page.evaluate(AXE)
    found = []
    # The rules on colours depend on the theme, the others on the width; None: no need to ask axe again.
    for width, theme, rules in (
        (1280, "light", {}),
        (1280, "dark", CONTRAST_ONLY),
        (360, "dark", REST),
        (360, "light", None),
    ):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.wait_for_function(f"innerWidth === {width} && document.documentElement.dataset.theme === '{theme}'")
        page.wait_for_timeout(150)  # book.js marks what scrolls 50 ms after a change of width
        seen = page.evaluate(LOOK)
        found += [f"{width} {theme}: {what}: {value}" for what, value in seen.items() if value]
        if rules is not None:
            found += [f"{width} {theme}: axe: {line}" for line in page.evaluate(AXE_RUN, rules)]
    assert found + problems.all() == []
    assert weight_besides_figures(responses) <= 2 * MEGABYTE


@pytest.mark.browser
@pytest.mark.parametrize("name", [PAGES[0], *[page for page in PAGES if page.startswith("chapters/")][:1]])
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
    assert linked == {name for name in PAGES if name.startswith("chapters/")}
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


# --- building, on a small copy ----------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A book of two pages with this book's settings, layout and style."""
    for name in ("_config.yml", "book/references.bib", "book/_static/book.css", "book/_static/book.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "book/_static/favicon.svg", tmp_path / "book/_static/favicon.svg")
    shutil.copytree(ROOT / "book" / "_templates", tmp_path / "book" / "_templates")
    for name in book.RENDERING_CODE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "book" / "glossary").mkdir()
    (tmp_path / "book" / "glossary" / "01-a.md").write_text("zeta\n: Last.\n\nalpha\n: First.\n", encoding="utf-8")
    (tmp_path / "book" / "intro.md").write_text("# Title\n\nA sentence, {term}`alpha`.\n", encoding="utf-8")
    (tmp_path / "book" / "glossary.md").write_text("# Glossary\n\n```{book-glossary}\n```\n", encoding="utf-8")
    (tmp_path / "_toc.yml").write_text(book.contents(tmp_path), encoding="utf-8")
    return tmp_path


def test_a_changed_sentence_reaches_its_page_and_nothing_is_done_twice(small: Path) -> None:
    assert book.render(small)
    page = small / "_build" / "html" / "book" / "intro.html"
    glossary = small / "_build" / "html" / "book" / "glossary.html"
    untouched = glossary.stat().st_mtime_ns
    assert "A sentence" in page.read_text(encoding="utf-8")
    assert not book.render(small)
    source = small / "book" / "intro.md"
    source.write_text(source.read_text(encoding="utf-8").replace("A sentence", "Another sentence"), encoding="utf-8")
    assert book.render(small)
    assert "Another sentence" in page.read_text(encoding="utf-8")
    assert glossary.stat().st_mtime_ns == untouched
    text = glossary.read_text(encoding="utf-8")
    assert text.index("alpha") < text.index("zeta")


def test_a_changed_style_reaches_the_pages_without_a_changed_sentence(small: Path) -> None:
    assert book.render(small)
    style = small / "book" / "_static" / "book.css"
    style.write_text(style.read_text(encoding="utf-8") + "/* a new last line */\n", encoding="utf-8")
    assert book.render(small)
    built = (small / "_build" / "html" / "_static" / "book.css").read_text(encoding="utf-8")
    assert built.endswith("/* a new last line */\n")


def test_a_new_glossary_file_reaches_the_glossary(small: Path) -> None:
    assert book.render(small)
    (small / "book" / "glossary" / "02-b.md").write_text("middle\n: Between.\n", encoding="utf-8")
    assert book.render(small)
    text = (small / "_build" / "html" / "book" / "glossary.html").read_text(encoding="utf-8")
    assert text.index("alpha") < text.index("middle") < text.index("zeta")


def test_a_warning_fails_the_build_again_and_again(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intro = small / "book" / "intro.md"
    good = intro.read_text(encoding="utf-8")
    intro.write_text(good + "\nSee {doc}`nowhere`.\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(book.BookError, match="warnings"):
            book.render(small)
        assert "nowhere" in capsys.readouterr().err
    intro.write_text(good, encoding="utf-8")
    assert book.render(small)


def test_a_widget_without_a_script_fails_the_build(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intro = small / "book" / "intro.md"
    intro.write_text(intro.read_text(encoding="utf-8") + '\n<figure data-widget="absent"></figure>\n', encoding="utf-8")
    with pytest.raises(book.BookError, match="warnings"):
        book.render(small)
    assert "widgets/absent.js" in capsys.readouterr().err


def test_outside_a_book_the_command_says_where_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(book, "__file__", str(tmp_path / "a" / "b" / "book.py"))
    assert book.main(["--pages-only"]) == 1
    assert "root of the book's repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor\n: One.\n\nTensor\n: Two.\n", r"x\.md:4: the term 'Tensor' stands already in x\.md:1"),
        (": A definition.\n", r"x\.md:1: a definition without a term"),
        ("tensor\n", r"x\.md:1: the term 'tensor' has no definition"),
        ("tensor\n  more\n", r"x\.md:2: an indented line that continues no definition"),
    ],
)
def test_a_slip_in_a_glossary_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    entries, slips = sphinx_ext.merge_glossaries([tmp_path / "x.md"])
    assert len(slips) == 1
    assert re.match(message, slips[0])
    assert [entry.terms[0][0] for entry in entries] in ([], ["tensor"])


def test_the_settings_leave_out_what_calls_outside() -> None:
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    extensions = settings["sphinx"]["config"]["extensions"]
    assert "sphinx_comments" in extensions
    assert not {"sphinx_thebe", "sphinx.ext.intersphinx"} & set(extensions)
    assert settings["execute"]["execute_notebooks"] == "off"
    assert json.dumps(settings).find("https://") == -1


def test_a_warning_in_a_notebook_names_the_line_of_its_source(small: Path) -> None:
    shutil.copy(ROOT / "requirements.txt", small / "requirements.txt")
    chapters = small / "book" / "chapters"
    chapters.mkdir()
    text = (
        "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n"
        "kernelspec: {display_name: Python 3, language: python, name: python3}\n---\n"
        "# 1. Title\n\nFirst cell.\n\n+++\n\n## 1.1 Second\n\nSee {doc}`nowhere`.\n"
    )
    (chapters / "01-scratch.md").write_text(text, encoding="utf-8")
    wrong = next(number for number, line in enumerate(text.splitlines(), start=1) if "nowhere" in line)
    stream = io.StringIO()
    warnings = book.SourceWarnings(small, stream)
    warnings.write("/x/chapters/01-scratch.ipynb:20003: WARNING: unknown document: 'nowhere'\n")
    warnings.write("/x/chapters/77-gone.ipynb:10001: WARNING: other\n")
    assert stream.getvalue().splitlines() == [
        f"book/chapters/01-scratch.md:{wrong}: WARNING: unknown document: 'nowhere'",
        "/x/chapters/77-gone.ipynb:10001: WARNING: other",
    ]


def test_equations_are_numbered_within_their_chapter() -> None:
    numbers = {"c": (9,), "a": (3,), "b": (4,)}
    assert sphinx_ext.chapter_numbers("chapters/05-softmax-and-kl", numbers) == {"a": (5, 1), "b": (5, 2), "c": (5, 3)}
    assert sphinx_ext.chapter_numbers("book/notation", numbers) == {"a": (1,), "b": (2,), "c": (3,)}
