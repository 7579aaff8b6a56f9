"""The entries of a ledger and what they cost. Each holds the hash of the one before, so the last hash vouches for all
of them.

Whoever can write the file can also compute a new chain. That is why releases print the head: an old head that is
missing from the chain shows that the ledger was edited or put back to an earlier state.

Costs are exact: decimal numbers, and a float is the shortest one that it stands for.

| asked for | ledger in epsilon | ledger in rho |
|---|---|---|
| epsilon | epsilon: pure guarantees add up | epsilon²/2: epsilon-DP implies (epsilon²/2)-zCDP |
| rho | refused: zCDP implies no pure guarantee | rho: zCDP guarantees add up |
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Literal

from batchdp.errors import BudgetError
from batchdp.privacy import UNITS, Budget, Noise, Unit

# ── what a spend costs ──

PLACES = 650
"""Decimal places that are counted: half the square of any float has fewer. Only a fraction such as 1/3 is rounded."""
BILLION = 10**9
"""Earlier versions counted whole billionths; `privacy.MOST` in them still fits SQLite's 64-bit integers."""
SHOWN = 30
"""Decimal places that are written out for people."""
EXACT = re.compile(rf"[0-9]{{1,10}}\.[0-9]{{1,{PLACES}}}")


def grant(budget: Budget) -> Fraction:
    """What a ledger with this total grants: never more than it says."""
    return Fraction(math.floor(budget.amount * 10**PLACES), 10**PLACES)


def charge(budget: Budget, ledger: Noise) -> Fraction:
    """What a release with this guarantee costs, in the unit of a ledger that counts in `ledger.unit`: never less."""
    due = budget.noise.charge(budget.amount, ledger.unit)
    if due is None:
        raise BudgetError(
            f"rho={float(budget)!r} cannot be charged to a ledger in epsilon: zCDP gives no pure epsilon guarantee; "
            "ask for epsilon= (Laplace noise), or create a ledger with rho="
        )
    return Fraction(math.ceil(due * 10**PLACES), 10**PLACES)


def as_decimal(amount: Fraction, places: int = PLACES) -> str:
    """An amount as a decimal number, cut off behind so many places."""
    whole, rest = divmod(math.floor(amount * 10**places), 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


def as_text(amount: Fraction) -> str:
    """An amount for people: exact, or with dots where it is cut off."""
    shown = as_decimal(amount, SHOWN)
    return shown if Fraction(shown) == amount else f"{shown}…"


# ── entries ──

Kind = Literal["create", "reserve", "release"]

LONGEST_TEXT = 1000
LATER = ("privacy_unit", "output_bytes", "answers_digest", "exact_charged", "exact_remaining")
"""Fields that version 1 did not have."""
START = "0" * 64
"""What stands for the previous hash in the first entry."""


class BrokenChainError(Exception):
    """An entry is not what it was when it was written; becomes a LedgerError that names the file."""


@dataclass(frozen=True)
class Event:
    """One entry. The first says the total; a reserve takes its charge from what remains; a release takes nothing."""

    number: int
    kind: Kind
    time: str
    release_id: str
    plan_digest: str
    table: str
    unit: Unit
    """What was asked for; in the first entry, the ledger's own unit."""
    requested: float
    charged: int
    """In billionths of the ledger's unit, rounded up; `cost` is exact."""
    remaining: int
    """In billionths, rounded down; `left` is exact."""
    output_sha256: str
    previous: str
    privacy_unit: str | None = None
    """Whose privacy: the column with one value a person, or in words; None where nobody said."""
    output_bytes: int | None = None
    """How long the output is, where it is a file beside the ledger; None where it is in the ledger itself."""
    answers_digest: str | None = None
    """SHA-256 of what the answers are: their names and queries; None where nobody said."""
    exact_charged: str | None = None
    """As a decimal number, where `charged` is rounded; None where it is not, as with the next."""
    exact_remaining: str | None = None

    @classmethod
    def create(cls, unit: Unit, requested: float, total: Fraction) -> Event:
        """The entry that a ledger begins with."""
        return cls(0, "create", _now(), "", "", "", unit, requested, 0, 0, "", START)._with(Fraction(0), total)

    @property
    def cost(self) -> Fraction:
        """What was charged, in the ledger's unit."""
        return Fraction(self.charged, BILLION) if self.exact_charged is None else Fraction(self.exact_charged)

    @property
    def left(self) -> Fraction:
        """What remains, in the ledger's unit; in the first entry, the total."""
        return Fraction(self.remaining, BILLION) if self.exact_remaining is None else Fraction(self.exact_remaining)

    def reserve(self, *, cost: Fraction, **asked: Any) -> Event:
        """The spend that follows this entry, with these fields; those of which nothing is said are empty."""
        unsaid = {"output_sha256": "", "privacy_unit": None, "output_bytes": None, "answers_digest": None}
        follows: dict[str, Any] = {"number": self.number + 1, "kind": "reserve", "time": _now(), "previous": self.hash}
        return replace(self, **follows, **(unsaid | asked))._with(cost, self.left - cost)

    def release(self, reserved: Event, output: bytes, *, beside: bool = False) -> Event:
        """The completion, following this entry, of one reserved earlier; its output in the ledger, or `beside` it."""
        return replace(
            reserved,
            number=self.number + 1,
            kind="release",
            time=_now(),
            output_sha256=sha256(output),
            previous=self.hash,
            output_bytes=len(output) if beside else None,
        )._with(Fraction(0), self.left)

    def _with(self, cost: Fraction, left: Fraction) -> Event:
        """The entry with these amounts, as they are stored."""
        charged, remaining = math.ceil(cost * BILLION), math.floor(left * BILLION)
        return replace(
            self,
            charged=charged,
            remaining=remaining,
            exact_charged=None if cost == Fraction(charged, BILLION) else as_decimal(cost),
            exact_remaining=None if left == Fraction(remaining, BILLION) else as_decimal(left),
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the fields as JSON, the previous hash among them.

        What earlier versions did not know is left out where there is nothing to say: their entries keep their hashes.
        """
        fields = {name: value for name, value in vars(self).items() if value is not None or name not in LATER}
        return sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())

    @classmethod
    def read(cls, row: Sequence[Any]) -> Event:
        """An entry from its stored fields and, last, its stored hash, which must agree."""
        *fields, stored = row
        event = cls(*fields)
        if not event._sound or event.hash != stored:
            raise BrokenChainError(f"entry {event.number} was changed after it was written")
        return event

    @property
    def _sound(self) -> bool:
        """Whether every field holds what it should: a forged file can have anything in any of them."""
        texts = (self.time, self.release_id, self.plan_digest, self.table, self.output_sha256, self.previous)
        wholes = (self.number, self.charged, self.remaining, 0 if self.output_bytes is None else self.output_bytes)
        return (
            all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in texts)
            and all(isinstance(count, int) and count >= 0 for count in wholes)
            and self.kind in ("create", "reserve", "release")
            and self.unit in UNITS
            and isinstance(self.requested, float)
            and 0 < self.requested < math.inf
            and all(said is None or isinstance(said, str) for said in (self.privacy_unit, self.answers_digest))
            and all(
                said is None or (isinstance(said, str) and EXACT.fullmatch(said))
                for said in (self.exact_charged, self.exact_remaining)
            )
            and self == self._with(self.cost, self.left)
        )


def check_chain(entries: Iterable[tuple[Event, str]]) -> list[str]:
    """The hash of every entry, first to last, once each is found to follow from those before it.

    Args:
        entries: each with the SHA-256 of its stored output, "" where there is none; all as `Event.read` gave them.
    """
    hashes: list[str] = []
    open_ids: set[str] = set()
    before: Event | None = None
    for event, digest in entries:
        if event.number != len(hashes) or event.previous != (hashes[-1] if hashes else START):
            raise BrokenChainError(f"entry {event.number} does not follow the one before it; entries are missing")
        if event.kind == "reserve":
            open_ids.add(event.release_id)
        elif event.kind == "release":
            if event.release_id not in open_ids:
                raise BrokenChainError(f"entry {event.number} releases {event.release_id!r}, which was never charged")
            open_ids.remove(event.release_id)
        if (before is None) != (event.kind == "create"):
            raise BrokenChainError(f"entry {event.number} is out of place; only the first one creates a ledger")
        if before is not None and before.left - event.cost != event.left:
            raise BrokenChainError(f"entry {event.number} does not add up with the one before it")
        if digest != event.output_sha256:
            raise BrokenChainError(f"the output stored with entry {event.number} was changed after it was written")
        hashes.append(event.hash)
        before = event
    if not hashes:
        raise BrokenChainError("its entries are missing")
    return hashes


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


# ── what a ledger hands out ──


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
