"""The browser helper itself: it must see what it claims to see, or the book's browser tests prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.book.browser import BrowserMissing, collect_problems, find_browser, is_local, open_browser

pytestmark = pytest.mark.browser


def test_every_sort_of_problem_is_seen(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "<!doctype html><title>t</title><img src='https://example.org/a.png' alt=''>"
        "<script src='missing.js'></script>"
        "<script>console.error('said'); setTimeout(function () { throw new Error('thrown'); }, 0);</script>",
        encoding="utf-8",
    )
    with open_browser(viewport={"width": 360, "height": 640}) as browser:
        page = browser.new_page()
        problems = collect_problems(page)
        with page.expect_event("pageerror"):
            page.goto((tmp_path / "page.html").as_uri())
        assert page.evaluate("innerWidth") == 360
    assert problems.external_requests == ["https://example.org/a.png"]
    assert any("said" in text for text in problems.console_errors)
    assert any("thrown" in text for text in problems.page_errors)
    assert any("missing.js" in text for text in problems.failed_requests)
    assert len(problems.all()) >= 4


def test_a_quiet_page_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><title>t</title><p>words", encoding="utf-8")
    with open_browser() as browser:
        page = browser.new_page()
        problems = collect_problems(page)
        page.goto((tmp_path / "page.html").as_uri())
    assert problems.all() == []


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("file:///a/b.html", True),
        ("data:image/png;base64,AA", True),
        ("http://127.0.0.1:8888/lab", True),
        ("http://localhost/", True),
        ("ws://127.0.0.1:1/x", True),
        ("https://example.org/localhost", False),
        ("http://localhost.example.org/", False),
    ],
)
def test_local_addresses_are_told_from_others(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_a_wrong_name_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOK_BROWSER", "no-such-browser")
    with pytest.raises(BrowserMissing, match="BOOK_BROWSER=no-such-browser"):
        find_browser()
