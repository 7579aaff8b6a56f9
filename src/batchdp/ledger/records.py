"""What a ledger hands out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from batchdp.privacy import Unit


@dataclass(frozen=True)
class Entry:
    """One spend, as `Ledger.history` lists it."""

    release_id: str
    plan_digest: str
    table: str
    unit: Unit
    """Of `requested`; `charged` is in the ledger's unit."""
    requested: float
    charged: float
    time: str
    """When it was reserved: UTC, ISO 8601."""
    state: Literal["reserved", "released"]
    """A spend that stays "reserved" was interrupted: it is charged, and has no output."""
    privacy_unit: str | None = None
    """Whose privacy: the column with one value a person, or in words; None where nobody said, as in version 0.1."""
    head: str = ""
    """The ledger's head right after the spend, as releases print it."""
    answers_digest: str | None = None
    """SHA-256 of what the answers are: their names and queries; None where nobody said, and of tables,
    whose plan digest covers it."""


@dataclass(frozen=True)
class Standing:
    """A ledger at one moment: what was spent until then, and on what."""

    unit: Unit
    total: float
    spent: float
    remaining: float
    head: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Reservation:
    """A spend that is on the disk: the answer may now be drawn, then given to `Ledger.complete`."""

    release_id: str
    charged: float
    """In the ledger's unit."""
    head: str
    """The ledger's head right after the spend; print it with the release."""


@dataclass(frozen=True)
class StoredRelease:
    """A release that is on the disk; its output is the only one that its spend paid for."""

    release_id: str
    output: bytes = field(repr=False)
    charged: float
    head: str
    """As in the reservation."""
