"""`Ledger`: the privacy budget of one table, in a file; charged before an answer is drawn, never after."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger import outputs
from batchdp.ledger.chain import (
    LONGEST_TEXT,
    BrokenChainError,
    Entry,
    Event,
    Reservation,
    Standing,
    StoredRelease,
    as_text,
    charge,
    grant,
)
from batchdp.ledger.file import LedgerFile
from batchdp.ledger.outputs import as_entry, check_entries, find_output, find_paid, migrate, repeat
from batchdp.mechanism.conversion import check_delta, epsilon_of
from batchdp.privacy import UNITS, Amount, Budget, Unit, round_down, round_up
from batchdp.text import Shown, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LARGEST_OUTPUT = 4_000_000_000
"""Bytes."""


class Ledger(Shown):
    """A privacy budget in a file that any number of processes and threads may spend from at once.

    Guarantee: what was granted adds up to at most the total, whatever processes, crashes and failed writes come
    between, as long as the file is neither edited nor put back to an earlier state; `verify` finds out. Call
    `reserve`, count, draw, `complete`, and only then show the output: a crash may waste budget but never gives any
    away. All that was granted is in the one file at every moment: a copy of it shows no less than was spent when the
    copying began, or is refused. SQLite's locks need a local disk, not a network folder.

    No file stays open between calls, so nothing needs closing; `with ledger:` is allowed and changes nothing.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        """As `open`."""
        self._file = _locate(path, timeout)
        with self._file.reading() as books:
            books.check_whole()

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
        total = Budget.either(epsilon=epsilon, rho=rho)
        first = Event.create(total.noise.unit, float(total), grant(total))
        _locate(path, timeout).create(first)
        return cls(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Ledger:
        """The ledger in this file, which must exist.

        Args:
            path: a file that `create` made.
            timeout: how many seconds to wait for another process that is writing to it.
        """
        return cls(path, timeout=timeout)

    @classmethod
    def migrate(cls, old: str | os.PathLike[str], new: str | os.PathLike[str], *, timeout: float = 30.0) -> Ledger:
        """Carry a ledger of a version before 0.3 over to a new file: the same total, spends, outputs and hashes.

        The old file is marked, so that no version of batchdp spends from it or carries it over again; keep no copy of
        it in use, which would grant everything twice. Answers of earlier versions that this one cannot read stay paid
        for and stored: their ids are refused, never drawn again.
        """
        target = _locate(new, timeout)
        migrate(_locate(old, timeout), target)
        return cls(target.path, timeout=timeout)

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
        return round_down(self._ends()[0].left)

    @property
    def spent(self) -> float:
        """What was charged so far, interrupted releases included."""
        first, last = self._ends()
        return round_up(first.left - last.left)

    @property
    def remaining(self) -> float:
        """What may still be spent; asking for exactly this is not refused."""
        return round_down(self.exact_remaining)

    @property
    def exact_remaining(self) -> Fraction:
        """What may still be spent, without the rounding of a float."""
        return self._ends()[1].left

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of everything spent so far, converted from ρ in a ρ ledger."""
        check_delta(delta)
        spent = self.spent
        return epsilon_of(Budget(UNITS[self.unit], spent), delta) if spent else 0.0

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
        privacy_unit: str | None = None,
        answers_digest: str | None = None,
    ) -> Reservation | StoredRelease:
        """Charge a release; the spend is on the disk when this returns, and refused spends cost nothing.

        Args:
            release_id: a name of your choice, new for each release. One that was released already gives its stored
                output, not fresh noise, and costs nothing; what is asked must then be the same.
            epsilon, rho: what the release guarantees; give one.
            plan_digest, table: what is asked of which table, for `history`.
            privacy_unit: whose privacy the guarantee is about: the column with one value a person, or in words.
            answers_digest: a fingerprint of what the answers are called and mean, to tell a renamed release by.
        """
        asked = Budget.either(epsilon=epsilon, rho=rho)
        said = {"release_id": release_id, "plan_digest": plan_digest, "table": table}
        more = {"privacy_unit": privacy_unit, "answers_digest": answers_digest}
        for name, value in (said | {name: value for name, value in more.items() if value is not None}).items():
            _check_text(name, value)
        with self._file.writing() as books:
            first, last = books.first(), books.last()
            cost = charge(asked, UNITS[first.unit])
            earlier = books.about(release_id)
            event = last.reserve(**said, **more, unit=asked.noise.unit, requested=float(asked), cost=cost)
            if earlier:
                return repeat(books, earlier, event, self.path)
            _check_left(first, last, asked, cost)
            books.append(event)
        return Reservation(release_id, round_up(cost), event.hash)

    def check_left(self, budget: Budget) -> None:
        """Refuse what is more than is left, as `reserve` would; nothing is charged.

        Another process that is writing is waited for here, where whoever interrupts it has lost nothing.
        """
        with self._file.writing() as books:
            first, last = books.first(), books.last()
        _check_left(first, last, budget, charge(budget, UNITS[first.unit]))

    def complete(self, reservation: Reservation, output: bytes) -> StoredRelease:
        """Store the one output that a reservation paid for; show it to nobody before this returns.

        Above a million bytes it becomes a file in the folder `<ledger>.outputs`, on the disk before the ledger says
        that it is released. If it cannot be stored, the release stays charged and without an output; the same call may
        be tried again, for instance when the disk has space, as long as reservation and output are at hand.
        """
        if not isinstance(reservation, Reservation):
            raise BudgetError(f"reservation is a {type(reservation).__name__}; give what reserve returned")
        if not isinstance(output, bytes) or len(output) > LARGEST_OUTPUT:
            raise BudgetError(f"output is not bytes, or longer than {LARGEST_OUTPUT:,}; encode or split the release")
        beside = len(output) > outputs.LARGEST_ROW
        if beside:
            with self._file.reading() as books:
                find_paid(books, reservation)  # before a file is written
            outputs.store_output(self.path, output)
        with self._file.writing() as books:
            event = books.last().release(find_paid(books, reservation), output, beside=beside)
            books.append(event, None if beside else output)
        return StoredRelease(reservation.release_id, output, reservation.charged, reservation.head)

    def stored(self, release_id: str) -> StoredRelease | None:
        """What was released under an id; None where it has no output. Costs nothing."""
        with self._file.reading() as books:
            earlier = books.about(_check_text("release_id", release_id))
            return None if len(earlier) < 2 else find_output(books, earlier, self.path)

    def each_output(self, look: Callable[[Entry, bytes], None]) -> None:
        """Show every release's entry and stored output, oldest first; those whose file is not here are left out."""
        entries = {entry.release_id: entry for entry in self.history()}
        with self._file.reading() as books:
            for event in books.all():
                if event.kind == "release" and outputs.is_here(self.path, event):
                    stored = find_output(books, [event, event], self.path)
                    look(entries[event.release_id], stored.output)

    def history(self) -> tuple[Entry, ...]:
        """Every spend, oldest first."""
        return self.standing().entries

    def standing(self, head: str | None = None) -> Standing:
        """All of it at one moment: now, or when its head was the one that is given."""
        with self._file.reading() as books:
            events = list(books.all())
            books.last()
        if head is not None:
            end = next((event.number for event in events if event.hash == head), None)
            if end is None:
                raise LedgerError(f"head={head!r} is not in the chain of {str(self.path)!r}; it is another ledger's")
            events = events[: end + 1]
        total, left = events[0].left, events[-1].left
        released = {event.release_id for event in events if event.kind == "release"}
        return Standing(
            events[0].unit,
            round_down(total),
            round_up(total - left),
            round_down(left),
            events[-1].hash,
            tuple(as_entry(event, event.release_id in released) for event in events if event.kind == "reserve"),
        )

    def plot(self, *, axes: Axes | None = None) -> Figure:
        """What each spend took from the total, oldest first, on matplotlib axes of one's own if given."""
        return draw(self, axes=axes)

    def plot_together(self, *, axes: Axes | None = None) -> Figure:
        """What each of the latest spends, and all together, amount to as (ε, δ), on axes of one's own if given."""
        from batchdp.ledger.books import list_curves

        return draw(list_curves(self.history()), function="plot_curves", axes=axes)

    def verify(self, head: str | None = None) -> str:
        """Compute the whole chain again; the head if all is well, a LedgerError that says what is wrong if not.

        Args:
            head: one that was printed earlier, by this ledger or with a release. Without it, a ledger that was put
                back to an earlier state, or whose every hash was computed anew, goes unnoticed.
        """
        with self._file.reading() as books:
            hashes = check_entries(books, self.path)
            if head is not None and head not in hashes:
                raise BrokenChainError(f"head={head!r} is not in its chain, so it was edited or put back")
        return hashes[-1]

    def _ends(self) -> tuple[Event, Event]:
        with self._file.reading() as books:
            return books.first(), books.last()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        try:
            first, last = self._ends()
        except LedgerError:
            return f"Ledger({str(self.path)!r}, cannot be read)"
        spent = as_text(first.left - last.left)
        return (
            f"Ledger({str(self.path)!r}, {spent} of {first.unit} {as_text(first.left)} spent, "
            f"{as_text(last.left)} left, head {last.hash[:12]}…)"
        )


def _check_left(first: Event, last: Event, asked: Budget, cost: Fraction) -> None:
    if cost <= last.left:
        return
    unit, spent, left = first.unit, as_text(first.left - last.left), as_text(last.left)
    due = "" if asked.noise.unit == unit else f", which costs {unit} {as_text(cost)},"
    remedy = f"ask for at most {unit} {left}" if last.left else "only earlier releases can be had again, by their ids"
    raise BudgetError(
        f"{asked.noise.unit}={float(asked)!r}{due} is more than is left: {spent} of {unit} {as_text(first.left)} "
        f"is spent, {as_text(cost)} is requested, {left} is left; {remedy}"
    )


def _check_text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_TEXT:
        raise BudgetError(f"{name}={str(value)[:50]!r} must be 1 to {LONGEST_TEXT} printable characters")
    return value


def _locate(path: str | os.PathLike[str], timeout: float) -> LedgerFile:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= 1e6:
        raise LedgerError(f"timeout={timeout!r} must be a number of seconds from 0 to 1e6")
    try:
        return LedgerFile(Path(os.path.realpath(path)), float(timeout))
    except (TypeError, ValueError):
        raise LedgerError(f"path={path!r} is not the name of a file") from None


AnyLedger = Ledger | str | os.PathLike[str]


def as_ledger(given: AnyLedger | Any) -> Ledger:
    """The ledger, opened where a path is given."""
    if isinstance(given, Ledger):
        return given
    if isinstance(given, str | os.PathLike):
        if os.fspath(given) and not os.path.isdir(given):
            return Ledger.open(given)
        kind = f"the folder {str(given)!r}" if os.fspath(given) else "an empty text"
    else:
        kind = "missing" if given is None else f"a {type(given).__name__}"
    raise LedgerError(f"ledger is {kind}; give a Ledger, or the path of a file that Ledger.create made")
