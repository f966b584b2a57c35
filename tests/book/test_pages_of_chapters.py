"""Each chapter as a reader meets it. A file of its own, so that a worker can take it while another takes the rest."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.book.pages import CHAPTERS, assert_in_order


@pytest.mark.browser
@pytest.mark.parametrize("name", CHAPTERS)
def test_page_is_in_order(name: str, site: str, page: Page) -> None:
    assert_in_order(name, site, page)
