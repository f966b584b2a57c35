"""The built book, served on loopback and opened in Chromium, for every test of its pages.

The tests read the built book and never change it.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from labsupport.authoring import book
from tests.book.browser import open_browser
from tests.book.pages import HTML, ROOT


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
