"""A Chromium for tests: where it is, how it starts, and what a page did that it should not.

Every browser test starts its browser here, so that all of them run offline with the same switches.
It must never download a browser, and never let a page reach beyond this machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Route, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",  # containers lack the namespaces of Chromium's own sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "[::1]", "::1")


class BrowserMissing(RuntimeError):
    """No Chromium on this machine; the message says how to install one."""


def find_browser() -> str:
    """Path of the Chromium to drive: $BOOK_BROWSER, a system one, else the one playwright installed."""
    named = os.environ.get("BOOK_BROWSER")
    if named:
        path = shutil.which(named)
        if path is None:
            raise BrowserMissing(f"BOOK_BROWSER={named} is not an executable file; unset it or name a Chromium.")
        return path
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).is_file():
        return own
    raise BrowserMissing(
        "The browser tests need Chromium: 'apt install chromium' on Debian, "
        "or 'python -m playwright install chromium', or set BOOK_BROWSER to its path."
    )


@contextmanager
def open_browser(**context_options: Any) -> Iterator[Browser]:
    """A headless Chromium, closed at the end together with everything it started.

    The options are playwright's ``new_context`` options (``viewport``, ``color_scheme``,
    ``java_script_enabled`` ...): they become the defaults of ``new_page`` and ``new_context``.
    """
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            if context_options:
                _set_defaults(browser, context_options)
            yield browser
        finally:
            browser.close()


def _set_defaults(browser: Browser, defaults: dict[str, Any]) -> None:
    new_context, new_page = browser.new_context, browser.new_page

    def context(**options: Any) -> BrowserContext:
        return new_context(**{**defaults, **options})

    def page(**options: Any) -> Page:
        return new_page(**{**defaults, **options})

    browser.new_context = context  # type: ignore[method-assign]
    browser.new_page = page  # type: ignore[method-assign]


def is_local(url: str) -> bool:
    """Whether an address stays on this machine: a file, inline data or loopback."""
    parts = urlsplit(url)
    if parts.scheme in ("file", "data", "blob", "about"):
        return True
    return (parts.hostname or "") in LOCAL_HOSTS


@dataclass
class Problems:
    """What a page did that a reader would notice, in the order it happened."""

    external_requests: list[str] = field(default_factory=list)
    console_errors: list[str] = field(default_factory=list)
    page_errors: list[str] = field(default_factory=list)
    failed_requests: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Every problem as one line that names its sort."""
        return [
            *(f"external request: {url}" for url in self.external_requests),
            *(f"console error: {text}" for text in self.console_errors),
            *(f"page error: {text}" for text in self.page_errors),
            *(f"failed request: {url}" for url in self.failed_requests),
        ]


def collect_problems(page: Page) -> Problems:
    """Watch a page from now on; an external request is recorded and stopped."""
    problems = Problems()

    def on_route(route: Route) -> None:
        if is_local(route.request.url):
            route.fallback()
        else:
            problems.external_requests.append(route.request.url)
            route.abort()

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.console_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def on_failed(request: Request) -> None:
        # A page that is left breaks off what it was still loading, such as its icon: that is no fault of it.
        if is_local(request.url) and request.failure != "net::ERR_ABORTED":
            problems.failed_requests.append(f"{request.url} ({request.failure})")

    def on_response(response: Any) -> None:
        if response.status >= 400:
            problems.failed_requests.append(f"{response.url} ({response.status})")

    # A pattern for addresses with a host only: routing file:// and data: would slow every page for nothing.
    page.route(lambda url: not is_local(url), on_route)
    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.page_errors.append(str(error)))
    page.on("requestfailed", on_failed)
    page.on("response", on_response)
    return problems
