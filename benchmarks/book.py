"""How long the book takes to build and to show, and what its pages weigh, beside the targets.

    python -m benchmarks.book

Builds happen in a copy of the repository, so that a measurement never touches the book that is being read.
Times are of this machine and of this moment.
"""

import functools
import http.server
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.book.browser import open_browser

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "labsupport.authoring", "book"]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "_build", "work", "__pycache__", ".*_cache", ".hypothesis")
REPEATS = 3
#: Runs in the page from its start: marks the moment at which every formula is set.
WATCH = """document.addEventListener("DOMContentLoaded", () => {
  const waiting = setInterval(() => {
    if (!(window.MathJax && MathJax.startup && MathJax.startup.document)) return;
    clearInterval(waiting);
    MathJax.startup.promise.then(() => performance.mark("formulas"));
  }, 5);
})"""
MARKS = """async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  const at = name => (performance.getEntriesByName(name)[0] || {startTime: 0}).startTime / 1000;
  return [at("first-contentful-paint"), at("formulas")];
}"""


def timed(root: Path, *arguments: str) -> float:
    """Run the command in a repository and return its seconds, the start of the interpreter included."""
    started = time.perf_counter()
    done = subprocess.run([*COMMAND, *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the book does not build:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def build_times() -> list[tuple[str, float, float]]:
    """(what, seconds, target) of a cold build, of one without changes, and of one after a changed sentence."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "book"
        shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        rows = [("cold build of all pages, s", timed(root, "--clean"), 30.0)]
        rows.append(("build without a change, s", timed(root), 5.0))
        source = next(iter(sorted((root / "book" / "chapters").glob("05-*.md"))), root / "book" / "notation.md")
        source.write_text(source.read_text(encoding="utf-8") + "\nOne more sentence.\n", encoding="utf-8")
        rows.append((f"build after a changed sentence ({source.stem}), s", timed(root), 5.0))
    return rows


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def look_at(page: Any, address: str, weigh: bool) -> tuple[int, float, float]:
    """(bytes besides figures or 0, seconds to paint, seconds to finished formulas) of one page.

    To weigh a page every file is read once more beside the browser, which slows it: times are then of no use.
    """
    bodies: dict[str, bytes] = {}
    if weigh:
        page.on("response", lambda response: bodies.update({response.url: response.body()}))
    page.add_init_script(WATCH)
    page.goto(address, wait_until="load")
    paint, formulas = page.evaluate(MARKS)
    page.wait_for_load_state("networkidle")  # what still comes has a weight, too
    weight = 0
    for url, body in bodies.items():
        if not re.search(r"\.(png|svg|jpe?g)($|\?)", url):
            figures = re.findall(rb"<figure.*?</figure>", body, re.DOTALL) if ".html" in url else []
            weight += len(body) - sum(map(len, figures))
    return weight, paint, formulas


def page_figures() -> list[tuple[str, float, float]]:
    """(what, value, target) of the pages of the built book, worst page first.

    Each page is loaded once to be weighed and REPEATS times for its times.
    """
    from labsupport.authoring import book

    if not book.is_current(ROOT):
        timed(ROOT)
    html = ROOT / "_build" / "html"
    names = [path.relative_to(html).as_posix() for path in sorted(html.glob("*/*.html"))]
    handler = functools.partial(QuietHandler, directory=str(html))
    seen: dict[str, tuple[int, float, float]] = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open_browser(viewport={"width": 1280, "height": 900}) as browser:
            for name in names:
                looks = []
                for turn in range(1 + REPEATS):
                    page = browser.new_page()
                    looks.append(look_at(page, f"http://127.0.0.1:{server.server_port}/{name}", weigh=turn == 0))
                    page.close()
                seen[name] = (
                    looks[0][0],
                    statistics.median(look[1] for look in looks[1:]),
                    statistics.median(look[2] for look in looks[1:]),
                )
        server.shutdown()
    rows = []
    for index, what, scale, target in (
        (0, "page weight besides figures, MB", 1e6, 2.0),
        (1, "first paint, s", 1.0, 0.6),
        (2, "formulas finished, s", 1.0, 1.5),
    ):
        worst = max(seen, key=lambda name: seen[name][index])
        middle = statistics.median(values[index] for values in seen.values())
        rows.append((f"{what}: median of {len(seen)} pages", middle / scale, target))
        rows.append((f"{what}: most, {worst}", seen[worst][index] / scale, target))
    return rows


def main() -> int:
    """Measure and print; returns 1 when a target is missed."""
    missed = 0
    for what, value, target in [*build_times(), *page_figures()]:
        missed += value > target
        print(f"{what:<62} {value:7.2f}  (at most {target:g}){'  MISSED' if value > target else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
