"""The reference pages are what the code says."""

from __future__ import annotations

import pytest

from reference import PAGES, api, cli

STALE = "stale: run .venv/bin/python tests/reference.py"


@pytest.mark.parametrize(("page", "made"), [("api.md", api), ("cli.md", cli)])
def test_the_committed_page_is_what_the_code_says(page: str, made: object) -> None:
    assert callable(made)
    assert (PAGES / page).read_text() == made(), STALE
