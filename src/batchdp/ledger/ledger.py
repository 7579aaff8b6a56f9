"""`Ledger`: the privacy budget of one table, in a file; charged before an answer is drawn, never after."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from batchdp.conversion import checked_delta, epsilon_at
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger.accounting import Amount, Unit, as_float, as_float_below, as_text, billionths, charge, exact, one_of
from batchdp.ledger.books import Books
from batchdp.ledger.chain import BrokenChainError, Event, check, sha256
from batchdp.ledger.file import LedgerFile
from batchdp.ledger.records import Entry, Reservation, StoredRelease
from batchdp.markup import summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 1000
ROWS_SHOWN = 8
"""Spends in a notebook."""
LARGEST_OUTPUT = 500_000_000
"""Bytes; SQLite's own limit is twice this."""


class Ledger:
    """A privacy budget in a file that any number of processes and threads may spend from at once.

    Guarantee: what was granted adds up to at most the total, whatever processes, crashes and failed writes come
    between, as long as the file is neither edited nor put back to an earlier state; `verify` finds out. Call
    `reserve`, count, draw, `complete`, and only then show the output: a crash may waste budget but never gives any
    away. The file is in SQLite's write-ahead mode, which needs a local disk, not a network folder.

    No file stays open between calls, so nothing needs closing; many spends in a row are faster inside `with ledger:`.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        """As `open`."""
        self._file = _located(path, timeout)
        self._holds: list[AbstractContextManager[None]] = []
        with self._file.reading() as books:
            books.last()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        timeout: float = 30.0,
    ) -> Ledger:
        """A new ledger with this total, in epsilon (pure guarantees only) or in rho (zCDP, and pure ones too)."""
        unit, amount = one_of(epsilon, rho)
        total = exact(unit, amount)
        _located(path, timeout).create(Event.create(unit, float(total), billionths(total)))
        return cls(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Ledger:
        """The ledger in this file, which must exist.

        Args:
            path: a file that `create` made.
            timeout: how many seconds to wait for another process that is writing to it.
        """
        return cls(path, timeout=timeout)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def unit(self) -> Unit:
        """What the total is in: "epsilon" or "rho"."""
        return self._ends()[0].unit

    @property
    def total(self) -> float:
        """What may be spent in all."""
        return as_float(self._ends()[0].remaining)

    @property
    def spent(self) -> float:
        """What was charged so far, interrupted releases included."""
        first, last = self._ends()
        return as_float(first.remaining - last.remaining)

    @property
    def remaining(self) -> float:
        """What may still be spent; asking for exactly this is not refused."""
        return as_float_below(self._ends()[1].remaining)

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of everything spent so far, converted from ρ in a ρ ledger."""
        checked_delta(delta)
        spent = self.spent
        return spent if self.unit == "epsilon" or spent == 0 else epsilon_at(spent, delta)

    @property
    def head(self) -> str:
        """The hash of the last entry, which vouches for all entries."""
        return self._ends()[1].hash

    def reserve(
        self,
        release_id: str,
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        plan_digest: str,
        table: str,
    ) -> Reservation | StoredRelease:
        """Charge a release; the spend is on the disk when this returns, and refused spends cost nothing.

        Args:
            release_id: a name of your choice, new for each release. One that was released already gives its stored
                output, not fresh noise, and costs nothing; what is asked must then be the same.
            epsilon, rho: what the release guarantees; give one.
            plan_digest, table: what is asked of which table, for `history`.
        """
        unit, amount = one_of(epsilon, rho)
        asked = exact(unit, amount)
        names = {
            name: _name(name, value)
            for name, value in (("release_id", release_id), ("plan_digest", plan_digest), ("table", table))
        }
        with self._file.writing() as books:
            first, last = books.first(), books.last()
            charged = charge(unit, asked, ledger_unit=first.unit)
            earlier = books.about(release_id)
            event = last.reserve(**names, unit=unit, requested=float(asked), charged=charged)
            if earlier:
                return _stored(books, earlier, event)
            if charged > last.remaining:
                raise BudgetError(_refusal(first, last, event))
            books.append(event)
        return Reservation(release_id, as_float(charged), event.hash)

    def complete(self, reservation: Reservation, output: bytes) -> StoredRelease:
        """Store the one output that a reservation paid for; show it to nobody before this returns."""
        if not isinstance(reservation, Reservation):
            raise BudgetError(f"reservation is a {type(reservation).__name__}; give what reserve returned")
        if not isinstance(output, bytes) or len(output) > LARGEST_OUTPUT:
            raise BudgetError(f"output is not bytes, or longer than {LARGEST_OUTPUT:,}; encode or split the release")
        named = f"release_id={reservation.release_id!r}"
        with self._file.writing() as books:
            earlier = books.about(reservation.release_id)
            if not earlier or earlier[0].hash != reservation.head:
                raise BudgetError(f"{named} was not reserved in this ledger; reserve it here first")
            if len(earlier) > 1:
                raise BudgetError(f"{named} was completed already; reserve it again to get its stored output")
            books.append(books.last().release(earlier[0], output), output)
        return StoredRelease(reservation.release_id, output, reservation.charged, reservation.head)

    def history(self) -> tuple[Entry, ...]:
        """Every spend, oldest first."""
        with self._file.reading() as books:
            events = list(books.all())
        released = {event.release_id for event in events if event.kind == "release"}
        return tuple(
            Entry(
                event.release_id,
                event.plan_digest,
                event.table,
                event.unit,
                event.requested,
                as_float(event.charged),
                event.time,
                "released" if event.release_id in released else "reserved",
            )
            for event in events
            if event.kind == "reserve"
        )

    def plot(self, *, axes: Axes | None = None) -> Figure:
        """What each spend took from the total, oldest first, on matplotlib axes of one's own if given."""
        from batchdp.plots.ledger import plot_ledger

        spends = self.history()
        return plot_ledger(
            [f"{one.time[:10]}  {one.table}" for one in spends],
            [one.charged for one in spends],
            [one.state == "reserved" for one in spends],
            total=self.total,
            unit="ε" if self.unit == "epsilon" else "ρ",
            axes=axes,
        )

    def verify(self, head: str | None = None) -> str:
        """Compute the whole chain again; the head if all is well, a LedgerError that says what is wrong if not.

        Args:
            head: one that was printed earlier, by this ledger or with a release. Without it, a ledger that was put
                back to an earlier state, or whose every hash was computed anew, goes unnoticed.
        """
        with self._file.reading() as books:
            damage = books.damage()
            if damage is not None:
                raise BrokenChainError(f"SQLite reports {damage!r}")
            hashes = check((event, books.output(event)) for event in books.all())
            if head is not None and head not in hashes:
                raise BrokenChainError(f"head={head!r} is not in its chain, so it was edited or put back")
        return hashes[-1]

    def _ends(self) -> tuple[Event, Event]:
        with self._file.reading() as books:
            return books.first(), books.last()

    def __enter__(self) -> Ledger:
        hold = self._file.hold()
        hold.__enter__()
        self._holds.append(hold)
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.pop().__exit__(None, None, None)

    def __repr__(self) -> str:
        try:
            first, last = self._ends()
        except LedgerError:
            return f"Ledger({str(self.path)!r}, cannot be read)"
        spent, left = first.remaining - last.remaining, last.remaining
        return (
            f"Ledger({str(self.path)!r}, {as_text(spent)} of {first.unit} {as_text(first.remaining)} spent, "
            f"{as_text(left)} left, head {last.hash[:12]}…)"
        )

    def _repr_html_(self) -> str:
        try:
            (first, last), spends = self._ends(), self.history()
        except LedgerError:
            return summary("Ledger", {"file": self.path.name, "state": "cannot be read"})
        facts = {
            "file": self.path.name,
            "total": f"{first.unit} {as_text(first.remaining)}",
            "spent": as_text(first.remaining - last.remaining),
            "left": as_text(last.remaining),
            "head": f"{last.hash[:12]}…",
        }
        latest = spends[: -ROWS_SHOWN - 1 : -1]
        return summary(
            "Ledger",
            facts,
            headings=("latest spends", "release", "charged", "state") if spends else (),
            rows=[
                (f"{one.time[:16]} {one.table}", one.release_id[:12], f"{one.charged:g}", one.state) for one in latest
            ],
            more=max(0, len(spends) - ROWS_SHOWN),
        )


def _stored(books: Books, earlier: list[Event], asked: Event) -> StoredRelease:
    """The output of an id that was used before, if it has one and the same thing is asked."""
    reserved, named = earlier[0], f"release_id={asked.release_id!r}"
    for field_name in ("plan_digest", "table", "unit", "requested", "charged"):
        before, now = getattr(reserved, field_name), getattr(asked, field_name)
        if before != now:
            raise BudgetError(
                f"{named} was used at {reserved.time} with {field_name}={before!r}, not {now!r}; "
                "choose a new release_id"
            )
    if len(earlier) == 1:
        raise BudgetError(
            f"{named} was charged at {reserved.time} but has no output (interrupted, or still running elsewhere); "
            "its budget stays spent, choose a new release_id"
        )
    output = books.output(earlier[1])
    if output is None or sha256(output) != earlier[1].output_sha256:
        raise BrokenChainError(f"the output stored with entry {earlier[1].number} was changed after it was written")
    return StoredRelease(asked.release_id, output, as_float(reserved.charged), reserved.hash)


def _refusal(first: Event, last: Event, asked: Event) -> str:
    unit, spent, left = first.unit, as_text(first.remaining - last.remaining), as_text(last.remaining)
    cost = "" if asked.unit == unit else f", which costs {unit} {as_text(asked.charged)},"
    remedy = (
        f"ask for at most {unit} {left}" if last.remaining else "only earlier releases can be had again, by their ids"
    )
    return (
        f"{asked.unit}={asked.requested!r}{cost} is more than is left: {spent} of {unit} {as_text(first.remaining)} "
        f"is spent, {as_text(asked.charged)} is requested, {left} is left; {remedy}"
    )


def _name(name: str, value: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_NAME:
        raise BudgetError(f"{name}={str(value)[:50]!r} must be 1 to {LONGEST_NAME} printable characters")
    return value


def _located(path: str | os.PathLike[str], timeout: float) -> LedgerFile:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= 1e6:
        raise LedgerError(f"timeout={timeout!r} must be a number of seconds from 0 to 1e6")
    try:
        return LedgerFile(Path(os.path.realpath(path)), float(timeout))
    except (TypeError, ValueError):
        raise LedgerError(f"path={path!r} is not the name of a file") from None
