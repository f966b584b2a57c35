"""What every page of the rendered book must be: in both colours, wide and narrow, in a real browser.

A page is loaded once and looked at in four ways, because loading and setting the formulas takes longest.
"""

from __future__ import annotations

import re
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

from tests.book.browser import collect_problems

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
MEGABYTE = 1_000_000


def pages_of(toc: Path) -> list[str]:
    """Every page that a table of contents names, in its order."""
    entries = re.findall(r"^\s*-?\s*(?:file|root): (\S+)$", toc.read_text(encoding="utf-8"), re.MULTILINE)
    return list(dict.fromkeys(entries))


PAGES = pages_of(ROOT / "_toc.yml")
CHAPTERS = [name for name in PAGES if name.startswith("chapters/")]

FORMULAS_DONE = """async () => {
  if (document.querySelector("span.math, div.math") !== null) {
    for (let i = 0; i < 200 && !(window.MathJax && MathJax.startup && MathJax.startup.promise); i++)
      await new Promise(resolve => setTimeout(resolve, 25));
    await MathJax.startup.promise;
  }
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
    wide: [...document.querySelectorAll("div.math, div.math > mjx-container")]
      .filter(box => box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX))
      .map(box => box.textContent.slice(0, 40)).slice(0, 3),
    stray: [...document.querySelectorAll("span.math")].filter(formula => {
      const next = formula.nextSibling;
      if (!next || next.nodeType !== Node.TEXT_NODE || !/^[.,;:!?)\]]/.test(next.data)) return false;
      const first = document.createRange();
      first.setStart(next, 0);
      first.setEnd(next, 1);
      return first.getBoundingClientRect().left < formula.getBoundingClientRect().left;
    }).map(formula => formula.parentElement.textContent.slice(-40)).slice(0, 3),
    noalt: [...document.querySelectorAll("img:not([alt])")].map(image => image.src).slice(0, 3),
  };
}"""

# The inside of a formula or a drawing is thousands of nodes without a rule of their own: the formula is MathJax's,
# the drawing's colours are held by the tests of the figures, and LOOK sees whether a wide formula can be reached.
# Code is thousands of tokens whose colour follows from their classes alone: the first of each kind in a page stands
# for the others. All of this goes before axe looks, which otherwise spends nine tenths of its time on it.
THIN_OUT = """() => {
  for (const formula of document.querySelectorAll("mjx-container")) {
    const {width, height} = formula.getBoundingClientRect();
    Object.assign(formula.style, {width: `${width}px`, height: `${height}px`, overflow: "hidden"});
    if (getComputedStyle(formula).display === "inline") formula.style.display = "inline-block";
    formula.textContent = "formula";
  }
  for (const drawing of document.querySelectorAll("svg"))
    drawing.replaceChildren(...[...drawing.children].filter(child => /^(title|desc)$/.test(child.localName)));
  const seen = new Set();
  for (const token of document.querySelectorAll("pre span[class]")) {
    let kind = "";
    for (let node = token; node.matches(".book-article *"); node = node.parentElement) kind += `<${node.className}`;
    if (seen.has(kind)) token.replaceWith(...token.childNodes);
    seen.add(kind);
  }
  document.querySelectorAll("pre").forEach(code => code.normalize());
}"""
# A header of a table that is one formula is told by the formula's own MathML, which axe does not count as text.
AXE_RUN = """options => axe.run(
  {include: [["html"]], exclude: [["mjx-container"], ["svg > *"], ["th:has(mjx-container)"]]},
  {resultTypes: ["violations"], ...options}
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


def show_as(page: Page, width: int, theme: str) -> None:
    """Give the window this width and this colour, and wait until the page has followed."""
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.wait_for_function(f"innerWidth === {width} && document.documentElement.dataset.theme === '{theme}'")
    if before is None or before["width"] != width:
        page.wait_for_timeout(150)  # book.js marks what scrolls 50 ms after a change of width


def assert_in_order(name: str, site: str, page: Page) -> None:
    """Open a page of the book served at ``site`` and fail with everything on it that is not in order."""
    problems = collect_problems(page)
    responses: dict[str, bytes] = {}
    page.on("response", lambda response: responses.update({response.url: response.body()}))
    page.goto(f"{site}{name}.html", wait_until="load")
    page.evaluate(FORMULAS_DONE)
    found = []
    for width, theme in ((1280, "light"), (1280, "dark"), (360, "dark"), (360, "light")):
        show_as(page, width, theme)
        found += [f"{width} {theme}: {what}: {value}" for what, value in page.evaluate(LOOK).items() if value]
    page.evaluate(THIN_OUT)
    page.evaluate(AXE)
    # The rules on colours depend on the theme, the others on the width.
    for width, theme, rules in ((360, "light", REST), (1280, "light", {}), (1280, "dark", CONTRAST_ONLY)):
        show_as(page, width, theme)
        found += [f"{width} {theme}: axe: {line}" for line in page.evaluate(AXE_RUN, rules)]
    assert found + problems.all() == []
    assert weight_besides_figures(responses) <= 2 * MEGABYTE
