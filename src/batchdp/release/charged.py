"""What is said where something fails after the charge: what became of the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchdp.errors import LedgerError, TableError
from batchdp.ledger import Ledger, Reservation

T = TypeVar("T")


def counted(records: Callable[[], T], identity: str) -> T:
    """What is counted; where the engine fails, the error says that the budget is gone."""
    try:
        return records()
    except TableError as error:
        problem = str(error)
    raise TableError(f"{problem}; release {identity!r} was charged before and its budget stays spent")


def store(ledger: Ledger, reserved: Reservation, output: bytes) -> None:
    """Into the ledger; where that fails, the error says what became of the budget."""
    try:
        ledger.complete(reserved, output)
    except LedgerError as error:
        raise LedgerError(
            f"{error}; release {reserved.release_id!r} was charged before, its budget stays spent and its answers were "
            "shown to nobody: choose a new release_id"
        ) from error
