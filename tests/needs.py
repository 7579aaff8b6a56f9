"""What some tests need and not every machine has: skipped with a message, unless BATCHDP_REQUIRE insists.

`BATCHDP_REQUIRE=postgres,spark,browser,notebook` lists what must be there; the tests that need it then fail
instead. `make engines` installs all of it.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def need(name: str, *, missing: str | None) -> None:
    """Go on if nothing is missing."""
    if missing is not None:
        require(name, missing)


def require(name: str, reason: str) -> NoReturn:
    """End a test that needs something missing: skipped, or failed if BATCHDP_REQUIRE asks for it."""
    if name in os.environ.get("BATCHDP_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"{name} is required by BATCHDP_REQUIRE, but {reason}")
    pytest.skip(f"needs {name}: {reason}")
