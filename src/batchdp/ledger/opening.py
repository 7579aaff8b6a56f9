"""What callers give as a ledger: one that is open, or the path of its file."""

from __future__ import annotations

import os
from typing import Any

from batchdp.errors import LedgerError
from batchdp.ledger.ledger import Ledger

AnyLedger = Ledger | str | os.PathLike[str]


def as_ledger(given: AnyLedger | Any) -> Ledger:
    """The ledger, opened where a path is given."""
    if isinstance(given, Ledger):
        return given
    if isinstance(given, str | os.PathLike):
        return Ledger.open(given)
    kind = "missing" if given is None else f"a {type(given).__name__}"
    raise LedgerError(f"ledger is {kind}; give a Ledger, or the path of a file that Ledger.create made")
