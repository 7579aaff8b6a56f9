"""What was spent from a ledger, in every currency that it counts in, and what may still be: its filters and shares.

A filter is a currency that adds up, with a total that is fixed when the ledger is made. A spend is granted if one
filter admits the whole history: in its currency, every share has spent no more than its part of the total.
docs/accounting.md proves that this is valid where spends are chosen after seeing answers, and shows that it is not
valid to compute an exact composition anew before every grant.

Spends that name no share take from what no share has, whose name here is "".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from batchdp.accounting import epsilon_of_rho, gaussian_delta, largest_mu2, largest_rho
from batchdp.errors import BudgetError, PrivacyParameterError
from batchdp.ledger.chain import PLACES, START, BrokenChainError, Event, as_decimal, as_text
from batchdp.mechanism.conversion import GAUSSIAN_SHARE, add_up, exact_delta
from batchdp.privacy import LAPLACE, LETTERS, UNITS, Amount, Budget, Currency, Unit, shortest

DELTA: Literal["delta"] = "delta"
"""Beside the currencies: the δ of values that are found by thresholds, which adds up whatever the currency."""
Charges = Mapping[Currency | Literal["delta"], Fraction | None]
"""What something costs by currency; None where it cannot be said in that one."""

MOST_SHARES = 100
DECIMAL = re.compile(rf"[0-9]{{1,40}}(\.[0-9]{{1,{PLACES}}})?")
HOLDS = {
    "epsilon": lambda total, epsilon, delta: total <= epsilon,
    "rho": lambda total, epsilon, delta: epsilon_of_rho(total, delta) <= epsilon,
    "mu2": lambda total, epsilon, delta: gaussian_delta(total, epsilon) <= delta,
}
"""Whether a filter with this total keeps (ε, δ)."""


@dataclass(frozen=True)
class Filter:
    """A currency's total, and the part of the ledger's δ that it needs."""

    total: Fraction
    delta: Fraction = Fraction(0)


@dataclass(frozen=True)
class Account:
    """All that was spent, and all that may be."""

    unit: Unit
    """Of the total, and of shares."""
    total: Fraction
    filters: Mapping[Currency, Filter]
    delta: Fraction | None = None
    """Of a ledger of (ε, δ)."""
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    spent: Mapping[str, Charges] = field(default_factory=dict)
    """By share; of those that have spent nothing there may be no entry."""
    thresholds: Fraction = Fraction(0)
    """The part of δ that values found by thresholds may spend, whichever filter admits them."""

    @classmethod
    def of(
        cls,
        total: Budget,
        delta: Amount | None = None,
        gaussian: Amount | None = None,
        thresholds: Amount | None = None,
    ) -> Account:
        """A new one, with nothing spent.

        Args:
            total: ε or ρ.
            delta: the δ of a ledger of (ε, δ).
            gaussian: the part of what is left of δ, from 0 to 1, for spends of Gaussian noise alone; the rest is for
                mixed ones.
            thresholds: the part of δ, from 0 to 1, for values that are found by thresholds.
        """
        unit, amount = total.noise.unit, cut_off(total.amount)
        if delta is None:
            for name, given in (("gaussian", gaussian), ("thresholds", thresholds)):
                if given is not None:
                    raise PrivacyParameterError(f"{name}={given!r} is a part of delta; give delta too")
            return cls(unit, amount, {unit: Filter(amount)})
        if not total.noise.is_pure:
            raise PrivacyParameterError(f"delta={delta!r} goes with epsilon=; a ledger of rho has every delta")
        exact = exact_delta(delta)
        found = cut_off(exact * (0 if thresholds is None else _part("thresholds", thresholds, "0.1")))
        part = GAUSSIAN_SHARE if gaussian is None else _part("gaussian", gaussian, "0.999")
        alone, mixed = cut_off((exact - found) * part), cut_off((exact - found) * (1 - part))
        filters: dict[Currency, Filter] = {"epsilon": Filter(amount)}
        if alone:
            filters["mu2"] = Filter(largest_mu2(amount, alone), alone)
        if mixed:
            filters["rho"] = Filter(largest_rho(amount, mixed), mixed)
        held = {unit: one for unit, one in filters.items() if one.total}
        return cls(unit, amount, held, exact, thresholds=found)

    def with_room(self, delta: Fraction) -> Account:
        """With so much of δ for thresholds where nothing was spent or shared yet: no answer can have decided it."""
        known = self.delta or Fraction(0)
        used = self.shares or any(any(one.values()) for one in self.spent.values())
        if used or not self.thresholds < delta <= known:
            return self
        deltas = {unit: one.delta for unit, one in self.filters.items()}
        held = sum(deltas.values(), Fraction(0))
        gaussian = deltas.get("mu2", Fraction(0)) / held if held else None
        return Account.of(Budget(LAPLACE, self.total), known, gaussian, delta / known)

    @property
    def is_plain(self) -> bool:
        """Whether one number says it all: one filter, and no shares."""
        return self.delta is None and not self.shares

    @property
    def promise(self) -> str:
        """What the ledger keeps, for people."""
        letter = LETTERS[self.unit]
        if self.delta is None:
            return f"{letter} = {float(self.total):g}"
        return f"({letter}, δ) = ({float(self.total):g}, {float(self.delta):g})"

    def part(self, share: str) -> Fraction:
        """What a share has of the total; of "", what no share has."""
        return self.shares[share] if share else self.total - sum(self.shares.values(), Fraction(0))

    def sum(self, unit: Currency | Literal["delta"], share: str | None = None) -> Fraction | None:
        """What was spent in a currency, by a share or by all; None where it cannot be said in this one."""
        own = list(self.spent.values()) if share is None else [self.spent.get(share, {})]
        return add_up(one.get(unit, Fraction(0)) for one in own)

    def left(self, unit: Currency, share: str = "") -> Fraction | None:
        """What a share may still spend in a currency; None where its filter has closed, and below 0 never granted."""
        if unit not in self.admitting:
            return None
        return self._limit(unit, share) - (self.sum(unit, share) or 0)

    def _limit(self, unit: Currency | Literal["delta"], share: str) -> Fraction:
        whole = self.thresholds if unit == DELTA else self.filters[unit].total
        return whole * self.part(share) / self.total

    def delta_left(self, share: str = "") -> Fraction:
        """The δ that a share may still spend on values found by thresholds."""
        return self._limit(DELTA, share) - (self.sum(DELTA, share) or 0)

    @cached_property
    def admitting(self) -> list[Currency]:
        """The filters that admit the whole history, those first that have most left of their total."""
        names = {"", *self.shares, *self.spent}

        if any(self.delta_left(share) < 0 for share in names):
            return []

        def admits(unit: Currency) -> bool:
            sums = ((self.sum(unit, share), self._limit(unit, share)) for share in names)
            return all(spent is not None and spent <= limit for spent, limit in sums)

        return sorted(filter(admits, self.filters), key=lambda unit: (self.sum(unit) or 0) / self.filters[unit].total)

    @property
    def leading(self) -> Currency:
        """Of the filter that admits all and has most left, in which figures are told."""
        return self.admitting[0]

    def charge(self, asked: Budget, scale: float | None = None, delta: Amount | None = None) -> Charges:
        """What a release costs in each of the ledger's currencies; refused where it has a price in none.

        Args:
            asked: its budget.
            scale: `least_scale` of its noise; None where nobody knows.
            delta: of values that it finds by thresholds, which the promise of a ledger must have room for.
        """
        due = {unit: asked.noise.charge(asked.amount, unit, scale) for unit in self.filters}
        if all(one is None for one in due.values()):
            kept = " or ".join(self.filters)
            raise BudgetError(
                f"{asked.noise.unit}={float(asked)!r} cannot be charged to a ledger in {kept}: zCDP gives no pure "
                "epsilon guarantee; ask for epsilon= (Laplace noise), or create a ledger with rho="
            )
        charges: dict[Any, Fraction | None] = {unit: None if one is None else _up(one) for unit, one in due.items()}
        if delta is None:
            return charges
        if not self.thresholds:
            kept = "has no delta" if self.delta is None else "was created, or first spent from, with no thresholds="
            raise BudgetError(
                f"delta={float(delta):g} cannot be charged: this ledger of {self.promise} {kept}, which values found "
                "in texts need; create one with epsilon=, delta= and thresholds=, or leave delta out, and declare "
                "texts yourself"
            )
        return charges | {DELTA: _up(exact_delta(delta))}

    def check_share(self, share: str) -> None:
        """Refuse the name of a share that is not here."""
        if share not in ("", *self.shares):
            known = ", ".join(map(repr, self.shares)) or "no shares"
            raise BudgetError(f"share={share!r} is not in this ledger, which has {known}; set it first")

    def spend(self, charges: Charges, share: str = "") -> Account:
        """With this spend added, whether or not it is granted."""
        self.check_share(share)
        own: dict[Any, Fraction | None] = {
            unit: add_up((self.sum(unit, share), charges[unit])) for unit in self.filters
        }
        if delta := (self.sum(DELTA, share) or 0) + (charges.get(DELTA) or 0):
            own[DELTA] = Fraction(delta)
        return replace(self, spent={**self.spent, share: own})

    def move(self, share: str, amount: Fraction) -> Account:
        """With a share of this amount, taken from what no share has, or given back to it."""
        moved = replace(self, shares={**self.shares, share: amount})
        free = self.part("") + self.shares.get(share, Fraction(0))
        if amount > free:
            raise BudgetError(
                f"{share}={as_text(amount, free)} is more than is free: shares never add up to more than {self.unit} "
                f"{as_text(self.total)}, of which {as_text(free, amount)} is in no other share"
            )
        if len(moved.shares) > MOST_SHARES:
            raise BudgetError(f"share={share!r}: a ledger has at most {MOST_SHARES} shares")
        if not moved.admitting:
            raise BudgetError(
                f"{share}={as_text(amount)} leaves less than was spent already, by that share or outside all shares; "
                "what was spent cannot be given back"
            )
        return moved

    # ── in entries ──

    def amounts(self, charges: Charges | None = None) -> dict[str, Any]:
        """The fields of an entry that leaves this account, by a spend of these charges."""
        if self.is_plain:
            cost = Fraction(0) if charges is None else charges[self.unit]
            return {"cost": cost, "left": self.total - (self.sum(self.unit) or 0), "charges": None, "account": None}
        state = {"shares": _texts(self.shares), "spent": {name: _texts(one) for name, one in self.spent.items()}}
        written = None if charges is None else _json(_texts(charges))
        return {"cost": Fraction(0), "left": Fraction(0), "charges": written, "account": _json(state)}

    def terms(self) -> dict[str, Any]:
        """The same of the entry that says what the ledger promises."""
        amounts = self.amounts()
        if self.delta is not None:
            filters = {unit: [as_decimal(one.total), as_decimal(one.delta)] for unit, one in self.filters.items()}
            promised = {"total": as_decimal(self.total), "delta": as_decimal(self.delta), "filters": filters}
            if self.thresholds:
                promised["thresholds"] = as_decimal(self.thresholds)
            amounts["charges"] = _json(promised)
        return amounts

    @classmethod
    def read(cls, terms: Event, event: Event) -> Account:
        """As it is after an entry, in a ledger whose promise is in `terms`."""
        try:
            return _as_promised(terms)._after(event)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise BrokenChainError(f"entry {event.number} does not say what was spent") from None

    def _after(self, event: Event) -> Account:
        if event.account is None:
            return replace(self, spent={"": {self.unit: self.total - event.left}})
        state = json.loads(event.account)
        spent = {name: _amounts(one) for name, one in state["spent"].items()}
        return replace(self, shares=_shares(state["shares"]), spent=spent)

    def is_sound(self) -> bool:
        """Whether the filters keep what the ledger promises."""
        if self.delta is None:
            return True
        deltas = sum((one.delta for one in self.filters.values()), self.thresholds)
        kept = (HOLDS[unit](one.total, self.total, one.delta) for unit, one in self.filters.items())
        return deltas <= self.delta and all(kept)


def charges_of(event: Event, account: Account, first: Event) -> Charges:
    """What a spend costs in the currencies of an account, which may be of a later promise than the spend's."""
    if event.charges is not None:
        return _amounts(json.loads(event.charges))
    if account.delta is None:
        return {account.unit: event.cost}
    noise, asked = UNITS[event.unit], shortest(event.requested)
    if (noise.charge(asked, first.unit, event.scale) or 0) < event.cost:  # more was asked for than a float can say
        asked = shortest(math.nextafter(event.requested, math.inf))
    return account.charge(Budget(noise, asked), event.scale)


def delta_of(event: Event) -> Fraction | None:
    """The δ of values that a spend finds by thresholds; None where it finds none."""
    return None if event.charges is None else _amounts(json.loads(event.charges)).get(DELTA)


def _as_promised(terms: Event) -> Account:
    if terms.charges is None:
        return Account(terms.unit, terms.left, {terms.unit: Filter(terms.left)})
    said = json.loads(terms.charges)
    filters = {unit: Filter(*map(_number, pair)) for unit, pair in said["filters"].items()}
    if not filters.keys() <= LETTERS.keys() or not all(one.total > 0 for one in filters.values()):
        raise ValueError
    found = _number(said.get("thresholds", "0"))
    return Account(terms.unit, _number(said["total"]), filters, _number(said["delta"]), thresholds=found)


def _part(name: str, given: Amount | Any, usual: str) -> Fraction:
    try:
        exact = shortest(given) if isinstance(given, float) else Fraction(given)
    except (TypeError, ValueError, OverflowError):
        exact = Fraction(-1)
    if isinstance(given, bool) or not 0 <= exact <= 1:
        raise PrivacyParameterError(f"{name}={given!r} must be a part of delta, from 0 to 1; {usual} is usual")
    return exact


def _up(amount: Fraction) -> Fraction:
    return Fraction(math.ceil(amount * 10**PLACES), 10**PLACES)


def cut_off(amount: Fraction) -> Fraction:
    """Behind the places that are counted."""
    return Fraction(math.floor(amount * 10**PLACES), 10**PLACES)


def _texts(amounts: Mapping[Any, Fraction | None]) -> dict[str, str | None]:
    return {name: None if one is None else as_decimal(one) for name, one in amounts.items()}


def _amounts(texts: Mapping[Any, str | None]) -> dict[Any, Fraction | None]:
    return {unit: None if one is None else _number(one) for unit, one in texts.items()}


def _shares(texts: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: _number(one) for name, one in texts.items()}


def _number(text: str) -> Fraction:
    if not DECIMAL.fullmatch(text):
        raise ValueError
    return Fraction(text)


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


# ── the whole chain ──


def carried_over(events: Iterable[Event], account: Account) -> Account:
    """A new account with everything that these entries spent."""
    first: Event | None = None
    for event in events:
        first = first or event
        if event.kind == "reserve":
            account = account.spend(charges_of(event, account, first))
    return account


def check_chain(entries: Iterable[tuple[Event, str]]) -> list[str]:
    """The hash of every entry, first to last, once each is found to follow from those before it.

    Args:
        entries: each with the SHA-256 of its stored output, "" where there is none; all as `Event.read` gave them.
    """
    events: list[Event] = []
    hashes: list[str] = []
    open_ids: set[str] = set()
    terms: Event | None = None
    for event, digest in entries:
        if event.number != len(hashes) or event.previous != (hashes[-1] if hashes else START):
            raise BrokenChainError(f"entry {event.number} does not follow the one before it; entries are missing")
        if event.kind == "reserve":
            open_ids.add(event.release_id)
        elif event.kind == "release":
            if event.release_id not in open_ids:
                raise BrokenChainError(f"entry {event.number} releases {event.release_id!r}, which was never charged")
            open_ids.remove(event.release_id)
        if (terms is None) != (event.kind == "create"):
            raise BrokenChainError(f"entry {event.number} is out of place; only the first one creates a ledger")
        if event.kind in ("create", "carry"):
            terms = event
        assert terms is not None
        _check_amounts(event, events, terms)
        if digest != event.output_sha256:
            raise BrokenChainError(f"the output stored with entry {event.number} was changed after it was written")
        hashes.append(event.hash)
        events.append(event)
    if not hashes:
        raise BrokenChainError("its entries are missing")
    return hashes


def _check_amounts(event: Event, before: list[Event], terms: Event) -> None:
    """Whether an entry leaves what the one before it left, less its own charge, and its ledger has one relation."""
    left = Account.read(terms, event)
    if event is terms:
        if before and before[0].charges is not None and any(one.kind != "create" for one in before):
            raise BrokenChainError(f"entry {event.number} divides a delta again after some of it was spent")
        expected = carried_over(before, replace(left, shares={}, spent={})) if before else replace(left, spent={})
        adds_up = left.is_sound() and _same(left, expected)
    else:
        expected = Account.read(terms, before[-1])
        if event.kind == "reserve":
            expected = expected.spend(charges_of(event, expected, terms), event.share or "")
        elif event.kind == "share":
            expected = expected.move(event.share or "", left.shares[event.share or ""])
        adds_up = _same(left, expected)
    if before and before[-1].relation not in (None, event.relation):
        raise BrokenChainError(f"entry {event.number} is about other neighbours than the one before it")
    if not adds_up or not left.admitting:
        raise BrokenChainError(f"entry {event.number} does not add up with the one before it")


def _same(one: Account, other: Account) -> bool:
    names = {*one.spent, *other.spent}
    units: set[Any] = {*one.filters, DELTA}
    sums = all(one.sum(unit, name) == other.sum(unit, name) for unit in units for name in names)
    return sums and dict(one.shares) == dict(other.shares)
