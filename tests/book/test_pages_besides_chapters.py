"""Each page besides the chapters, as a reader meets it: exercises, solutions, reference."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.book.pages import CHAPTERS, PAGES, assert_in_order


@pytest.mark.browser
@pytest.mark.parametrize("name", [name for name in PAGES if name not in CHAPTERS])
def test_page_is_in_order(name: str, site: str, page: Page) -> None:
    assert_in_order(name, site, page)
