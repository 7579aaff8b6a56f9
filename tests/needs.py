"""What some tests need and not every machine has: skipped with a message, unless BATCHDP_REQUIRE insists.

`BATCHDP_REQUIRE=browser,…` is a list of things that must be there; the tests that need them then fail instead.
"""

from __future__ import annotations

import os

import pytest

REQUIRED = {one.strip() for one in os.environ.get("BATCHDP_REQUIRE", "").split(",")} - {""}


def need(what: str, *, missing: str | None) -> None:
    """Go on if nothing is missing; else skip, or fail if it is required, saying what is missing."""
    if missing is None:
        return
    if what in REQUIRED:
        pytest.fail(f"BATCHDP_REQUIRE asks for {what}, but {missing}")
    pytest.skip(f"{missing}; BATCHDP_REQUIRE={what} makes this a failure")
