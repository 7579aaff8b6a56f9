"""The entries of a ledger and what they cost. Each holds the hash of the one before, so the last hash vouches for all
of them.

Whoever can write the file can also compute a new chain. That is why releases print the head: an old head that is
missing from the chain shows that the ledger was edited or put back to an earlier state.

Costs are exact: decimal numbers, and a float is the shortest one that it stands for.

| asked for | in epsilon | in rho | in mu2 |
|---|---|---|---|
| epsilon, discrete Laplace noise | epsilon | epsilon − c (1 − e^−epsilon), c just below 1 | refused |
| epsilon, other noise | epsilon | epsilon²/2, which epsilon-DP implies | refused |
| rho, discrete Gaussian noise | refused: zCDP implies no pure guarantee | rho | 2 rho / (1 − 4/σ²) |
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any, Literal, get_args

from batchdp.accounting import LEAST_SCALE
from batchdp.mechanism.measurement import Relation
from batchdp.privacy import UNITS, Currency, Unit

# ── what a spend costs ──

PLACES = 650
"""Decimal places that are counted: half the square of any float has fewer. Only a fraction such as 1/3 is rounded."""
BILLION = 10**9
"""Earlier versions counted whole billionths; `privacy.MOST` in them still fits SQLite's 64-bit integers."""
SHOWN = 10
"""Digits that are written out for people, where they tell amounts apart."""
MOST_SHOWN = 40
"""Digits, also where more would tell them apart."""
EXACT = re.compile(rf"[0-9]{{1,10}}\.[0-9]{{1,{PLACES}}}")


def as_decimal(amount: Fraction) -> str:
    """An amount as a decimal number, cut off behind the places that are counted."""
    whole, rest = divmod(math.floor(amount * 10**PLACES), 10**PLACES)
    return f"{whole}.{rest:0{PLACES}d}".rstrip("0").rstrip(".")


def as_text(amount: Fraction, *others: Fraction) -> str:
    """An amount for people: exact, or cut off with dots, behind as many digits as tell it from these others, or 40."""
    digits, told_from = SHOWN, [other for other in others if other != amount]
    while (shown := _cut(amount, digits)) in [_cut(other, digits) for other in told_from] and digits < MOST_SHOWN:
        digits += 1
    number, e, power = f"{shown:f}".partition("e") if shown.adjusted() > -7 else f"{shown:e}".partition("e")
    return f"{number}{'' if Fraction(shown) == amount else '…'}{e}{power}"


def _cut(amount: Fraction, digits: int) -> Decimal:
    context = Context(prec=digits, rounding=ROUND_DOWN)
    return context.divide(Decimal(amount.numerator), Decimal(amount.denominator)).normalize(context)


# ── entries ──

Kind = Literal["create", "carry", "share", "reserve", "release"]
"""What an entry does: say the promise, say a new one, move a share, charge a spend, store its output."""

LONGEST_TEXT = 1000
LATER = (
    "privacy_unit",
    "output_bytes",
    "answers_digest",
    "exact_charged",
    "exact_remaining",
    "scale",
    "relation",
    "share",
    "charges",
    "account",
    "snapshot",
)
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
    """Whose privacy: the column with one value per person, or in words; None where nobody said."""
    output_bytes: int | None = None
    """How long the output is, where it is a file beside the ledger; None where it is in the ledger itself."""
    answers_digest: str | None = None
    """SHA-256 of what the answers are: their names and queries; None where nobody said."""
    exact_charged: str | None = None
    """As a decimal number, where `charged` is rounded; None where it is not, as with the next."""
    exact_remaining: str | None = None
    scale: float | None = None
    """The least λ or σ that was drawn, in lattice steps; None where nobody said."""
    relation: Relation | None = None
    """What all spends of the ledger are about, as far as anybody said."""
    share: str | None = None
    """Which one was spent from, or moved."""
    charges: str | None = None
    """What was charged in every currency; in the first entry of a ledger of (ε, δ), what it promises."""
    account: str | None = None
    """What every share has, and has spent in every currency; None where `remaining` says it all, as with `charges`."""
    snapshot: str | None = None
    """Which state of the table was read, such as a month; None where nobody said."""

    @classmethod
    def create(
        cls, unit: Unit, requested: float, left: Fraction, *, cost: Fraction = Fraction(0), **more: Any
    ) -> Event:
        """The entry that a ledger begins with."""
        return cls(0, "create", _now(), "", "", "", unit, requested, 0, 0, "", START, **more)._with(cost, left)

    @property
    def cost(self) -> Fraction:
        """What was charged, in the ledger's unit."""
        return Fraction(self.charged, BILLION) if self.exact_charged is None else Fraction(self.exact_charged)

    @property
    def left(self) -> Fraction:
        """What remains, in the ledger's unit; in the first entry, the total."""
        return Fraction(self.remaining, BILLION) if self.exact_remaining is None else Fraction(self.exact_remaining)

    def follow(self, kind: Kind, *, cost: Fraction, left: Fraction | None = None, **said: Any) -> Event:
        """The entry that follows this one, with these fields; those of which nothing is said are empty."""
        unsaid: dict[str, Any] = dict.fromkeys((*LATER, "charges", "account"))
        unsaid |= {"output_sha256": "", "relation": self.relation}
        follows: dict[str, Any] = {"number": self.number + 1, "kind": kind, "time": _now(), "previous": self.hash}
        return replace(self, **(unsaid | said | follows))._with(cost, self.left - cost if left is None else left)

    def reserve(self, *, cost: Fraction, **asked: Any) -> Event:
        """The spend that follows this entry."""
        return self.follow("reserve", cost=cost, **asked)

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
            relation=self.relation,
            charges=None,
            account=self.account,
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
            and self.kind in get_args(Kind)
            and self.unit in UNITS
            and isinstance(self.requested, float)
            and 0 < self.requested < math.inf
            and all(said is None or isinstance(said, str) for said in (self.privacy_unit, self.answers_digest))
            and all(
                said is None or isinstance(said, str)
                for said in (self.share, self.charges, self.account, self.snapshot)
            )
            and self.relation in (None, *get_args(Relation))
            and (self.scale is None or (isinstance(self.scale, float) and LEAST_SCALE <= self.scale < math.inf))
            and all(
                said is None or (isinstance(said, str) and EXACT.fullmatch(said))
                for said in (self.exact_charged, self.exact_remaining)
            )
            and self == self._with(self.cost, self.left)
        )


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal digits."""
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
    """Whose privacy: the column with one value per person, or in words; None where nobody said, as in version 0.1."""
    head: str = ""
    """The ledger's head right after the spend, as releases print it."""
    answers_digest: str | None = None
    """SHA-256 of what the answers are: their names and queries; None where nobody said, and of tables,
    whose plan digest covers it."""
    scale: float | None = None
    """The least λ or σ of the discrete noise, in lattice steps, which its charge depends on; None where nobody said."""
    relation: Relation | None = None
    """"add-remove" or "replace", as in the whole ledger; None where nobody said until then."""
    share: str | None = None
    """Which share it was taken from; None where from what no share has."""
    snapshot: str | None = None
    """Which state of the table was read, such as a month; None where nobody said."""
    delta: float | None = None
    """Of values that it finds by thresholds; None where it finds none."""


@dataclass(frozen=True)
class Standing:
    """A ledger at one moment: what was spent until then, and on what."""

    promise: str
    """What all of it keeps, for people: the ledger's ε, ρ, or (ε, δ)."""
    unit: Currency
    """Of the next three figures and of what entries say was charged: in a ledger of (ε, δ), the currency of the filter
    that admits all and has most left."""
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
