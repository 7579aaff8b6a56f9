"""`Ledger`: the privacy budget of one table, in a file; charged before an answer is drawn, never after."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchdp.accounting import epsilon_of_mu2
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger import outputs
from batchdp.ledger.account import Account, charges_of, cut_off
from batchdp.ledger.books import together
from batchdp.ledger.chain import BrokenChainError, Entry, Event, Reservation, Standing, StoredRelease, as_text
from batchdp.ledger.file import LedgerFile
from batchdp.ledger.granting import (
    check_admitted,
    check_scale,
    check_text,
    epsilon_spent,
    promise_with,
    remaining_for,
    with_delta,
)
from batchdp.ledger.outputs import as_entry, check_entries, divided, find_output, find_paid, migrate, repeat
from batchdp.mechanism.conversion import GAUSSIAN_SHARE, check_delta, least_epsilon
from batchdp.mechanism.measurement import Neighbours, Relation
from batchdp.privacy import GAUSSIAN, LAPLACE, UNITS, Amount, Budget, Privacy, Unit, noise_of, round_down, round_up
from batchdp.text import Shown, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LARGEST_OUTPUT = 4_000_000_000
"""Bytes."""
MOST_ENTRIES = 2**28
"""With 2^32 measurements each, as many as `accounting.COORDINATES`."""


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
        """Opens the file, as `open` does."""
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
        delta: Amount | None = None,
        gaussian: Amount | None = None,
        thresholds: Amount | None = None,
        neighbours: Relation | None = None,
        timeout: float = 30.0,
    ) -> Ledger:
        """A new ledger with this total.

        Args:
            path: of a file that is not there yet.
            epsilon: for pure guarantees only, or with `delta` for every kind of noise.
            rho: for zCDP, and pure guarantees too.
            delta: with `epsilon`, everything together is (ε, δ)-differentially private. What may be spent is fixed now:
                Σε, Σμ² of Gaussian noise alone, or Σρ of both kinds, whichever admits the whole history.
            gaussian: the part of δ for Gaussian noise alone, from 0 to 1; 0.999 if left out, and the rest for Σρ. Of
                what `thresholds` leave.
            thresholds: the part of δ for values that `discover` finds in texts; none if left out, unless the ledger's
                first spend is such a one and takes what it needs.
            neighbours: "add-remove" or "replace", which all releases are about; the first one decides if left out.
            timeout: as for `open`.
        """
        total = Budget.either(epsilon=epsilon, rho=rho)
        relation = None if neighbours is None else Neighbours(neighbours).relation
        account = Account.of(total, delta, gaussian, thresholds)
        first = Event.create(total.noise.unit, float(total), relation=relation, **account.terms())
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
    def migrate(
        cls,
        old: str | os.PathLike[str],
        new: str | os.PathLike[str],
        *,
        delta: Amount | None = None,
        timeout: float = 30.0,
    ) -> Ledger:
        """Carry a ledger over to a new file, with all its spends, outputs and hashes; with `delta`, into one of (ε, δ).

        The old file is marked, so that no version of batchdp spends from it or carries it over again; keep no copy of
        it in use, which would grant everything twice. Answers of earlier versions that this one cannot read stay paid
        for and stored: their ids are refused, never drawn again.

        Args:
            old: a ledger of a version before 0.3; with `delta`, any ledger of ε or ρ.
            new: a file that is not there yet.
            delta: of the new promise, whose ε is that of the old ledger, or what its ρ stands for at half of this δ.
            timeout: as for `open`.
        """
        target = _locate(new, timeout)
        promised = None if delta is None else lambda account: promise_with(account, delta)
        migrate(_locate(old, timeout), target, promised)
        return cls(target.path, timeout=timeout)

    @property
    def path(self) -> Path:
        """The file that the ledger is in."""
        return self._file.path

    @property
    def account(self) -> Account:
        """What was spent in every currency and by every share, and what may be, exactly."""
        with self._file.reading() as books:
            return books.account()

    @property
    def unit(self) -> Unit:
        """What the total is in: "epsilon" or "rho"."""
        return self.account.unit

    @property
    def delta(self) -> float | None:
        """The δ of a ledger of (ε, δ); None of others."""
        delta = self.account.delta
        return None if delta is None else float(delta)

    @property
    def total(self) -> float:
        """What may be spent in all: ε or ρ."""
        return round_down(self.account.total)

    @property
    def spent(self) -> float:
        """What was charged so far, interrupted releases included; with a δ, the ε that it amounts to at that δ."""
        account = self.account
        if account.delta is None:
            return round_up(account.sum(account.unit) or Fraction(0))
        return round_up(min(account.total, epsilon_spent(account)))

    @property
    def remaining(self) -> float:
        """What may still be spent; asking for exactly this is not refused.

        With a δ, the largest ε that can be asked for at that δ with the kind of noise that has most left;
        `remaining_for` says it for each.
        """
        account = self.account
        if account.delta is None:
            return round_down(self.exact_remaining)
        rho = remaining_for(account, GAUSSIAN)
        gaussian = epsilon_of_mu2(2 * rho, account.delta * GAUSSIAN_SHARE) if rho else Fraction(0)
        found = max(remaining_for(account, LAPLACE), min(account.total, gaussian))
        return round_down(found)

    @property
    def exact_remaining(self) -> Fraction:
        """What may still be spent, without the rounding of a float, in the currency of `standing`."""
        account = self.account
        return account.filters[account.leading].total - (account.sum(account.leading) or 0)

    def remaining_for(self, privacy: Privacy, *, share: str | None = None) -> float:
        """The largest ε of Laplace noise ("pure"), or ρ of Gaussian noise ("zcdp"), that would be granted now.

        Args:
            privacy: the kind of noise.
            share: whose; if left out, of what no share has.
        """
        return round_down(remaining_for(self.account, noise_of(privacy), _share(share)))

    def epsilon_at(self, delta: float) -> float:
        """The ε of the (ε, δ)-differential privacy of everything spent so far.

        It is what a fixed sequence of these releases has: the least that follows from Σε, Σρ or, where all noise was
        Gaussian, Σμ².
        """
        check_delta(delta)
        amounts, found = together(self.history())
        return round_up(least_epsilon(amounts, delta, found))

    @property
    def shares(self) -> dict[str, tuple[float, float, float]]:
        """Every share: what it has of the total, and, in the currency of `standing`, what it spent and has left."""
        account, found = self.account, {}
        for name, amount in account.shares.items():
            spent, left = account.sum(account.leading, name) or Fraction(0), account.left(account.leading, name)
            found[name] = (round_down(amount), round_up(spent), round_down(left or Fraction(0)))
        return found

    def share(self, name: str, amount: Amount) -> str:
        """Give a share of the total to a team, or change it; the head of the chain, of which this is an entry.

        Shares are parts of an amount that adds up: of ε or ρ, and in a ledger of (ε, δ) the same part of all its
        currencies. They never add up to more than the total, and none is below what was spent from it.

        Args:
            name: of the share.
            amount: in the unit of `total`; 0 gives back what is left of it.
        """
        check_text("share", name)
        with self._file.writing() as books:
            last = books.last()
            account = books.account(last)
            part = cut_off(Fraction(0) if _is_zero(amount) else Budget(UNITS[account.unit], amount).amount)
            moved = account.move(name, part)
            about: dict[str, Any] = {
                "release_id": f"share {last.number + 1}",
                "plan_digest": "",
                "table": "",
                "share": name,
            }
            event = last.follow("share", **about, **moved.amounts())
            books.append(event)
        return event.hash

    @property
    def head(self) -> str:
        """The hash of the last entry, which vouches for all entries."""
        with self._file.reading() as books:
            return books.last().hash

    def reserve(
        self,
        release_id: str,
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        delta: Amount | None = None,
        plan_digest: str,
        table: str,
        privacy_unit: str | None = None,
        answers_digest: str | None = None,
        scale: float | None = None,
        neighbours: Relation | None = None,
        share: str | None = None,
        snapshot: str | None = None,
    ) -> Reservation | StoredRelease:
        """Charge a release; the spend is on the disk when this returns, and refused spends cost nothing.

        Args:
            release_id: a name of your choice, new for each release. One that was released already gives its stored
                output, not fresh noise, and costs nothing; what is asked must then be the same.
            epsilon, rho: what the release guarantees; give one.
            delta: with epsilon, of values that it finds by thresholds; the promise of the ledger must have room for it.
            plan_digest, table: what is asked of which table, for `history`.
            privacy_unit: whose privacy the guarantee is about: the column with one value per person, or in words.
            answers_digest: a fingerprint of what the answers are called and mean, to tell a renamed release by.
            scale: the least λ or σ, at least 64, where all noise is discrete Laplace or all is discrete Gaussian noise
                on whole numbers, of at most 2^32 measurements. It then costs less than any noise of this ε or ρ would.
            neighbours: "add-remove" or "replace": what the guarantee is about, the same in all of a ledger.
            share: what it is taken from; if left out, from what no share has.
            snapshot: which state of the table is read, such as "2026-11".
        """
        asked = with_delta(Budget.either(epsilon=epsilon, rho=rho), delta)
        said: dict[str, Any] = {"release_id": release_id, "plan_digest": plan_digest, "table": table}
        more: dict[str, Any] = {"privacy_unit": privacy_unit, "answers_digest": answers_digest}
        more |= {"share": share, "snapshot": snapshot}
        for name, value in (said | {name: value for name, value in more.items() if value is not None}).items():
            check_text(name, value)
        drawn = None if scale is None else check_scale(scale)
        with self._file.writing() as books:
            last = books.last()
            earlier = books.about(release_id)
            last, account = (last, books.account(last)) if earlier else divided(books, last, delta)
            due = account.charge(asked, drawn, delta)
            after = account.spend(due, share or "")
            more |= {"unit": asked.noise.unit, "requested": round_up(asked.amount), "scale": drawn}
            event = last.reserve(**said, **more, **after.amounts(due))
            if earlier:
                stored = repeat(books, earlier, event, due, self.path)
                _agree(last, neighbours)
                return stored
            event = replace(event, relation=_agree(last, neighbours))
            check_admitted(account, after, asked, due, share or "", drawn)
            if last.number >= MOST_ENTRIES:
                raise BudgetError(f"the ledger has {last.number:,} entries, and takes no more")
            if last.hash != books.last().hash:
                books.append(last)
            books.append(event)
            charged = round_up(due[after.leading] or Fraction(0))
        return Reservation(release_id, charged, event.hash)

    def check_left(
        self,
        budget: Budget,
        scale: float | None = None,
        neighbours: Relation | None = None,
        share: str | None = None,
        delta: Amount | None = None,
    ) -> None:
        """Refuse what is more than is left, or about other neighbours, as `reserve` would; nothing is charged.

        Another process that is writing is waited for here, where whoever interrupts it has lost nothing.
        """
        with self._file.writing() as books:
            last, account = divided(books, books.last(), delta)
        _agree(last, neighbours)
        due, own = account.charge(with_delta(budget, delta), scale, delta), _share(share)
        check_admitted(account, account.spend(due, own), budget, due, own, scale)

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
            earlier = books.about(check_text("release_id", release_id))
            return None if len(earlier) < 2 else find_output(books, earlier, self.path)

    def is_used(self, release_id: str) -> bool:
        """Whether an id was charged before."""
        with self._file.reading() as books:
            return bool(books.about(check_text("release_id", release_id)))

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
        terms = next(event for event in reversed(events) if event.kind in ("create", "carry"))
        account = Account.read(terms, events[-1])
        unit = account.leading
        total, spent = account.filters[unit].total, account.sum(unit) or Fraction(0)
        released = {event.release_id for event in events if event.kind == "release"}
        charged = {event: charges_of(event, account, events[0])[unit] for event in events if event.kind == "reserve"}
        return Standing(
            account.promise,
            unit,
            round_down(total),
            round_up(spent),
            round_down(total - spent),
            events[-1].hash,
            tuple(
                as_entry(event, cost or Fraction(0), event.release_id in released) for event, cost in charged.items()
            ),
        )

    def plot(self, *, axes: Axes | None = None) -> Figure:
        """What each spend took from the total, oldest first, on matplotlib axes of your own if given."""
        return draw(self, axes=axes)

    def plot_together(self, *, axes: Axes | None = None) -> Figure:
        """What each of the latest spends, and all together, amount to as (ε, δ), on axes of your own if given."""
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

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        try:
            account, head = self.account, self.head
        except LedgerError:
            return f"Ledger({str(self.path)!r}, cannot be read)"
        unit, promise = account.leading, "" if account.delta is None else f" for {account.promise}"
        total, spent = account.filters[unit].total, account.sum(unit) or Fraction(0)
        return (
            f"Ledger({str(self.path)!r}, {as_text(spent, total)} of {unit} {as_text(total)}{promise} spent, "
            f"{as_text(total - spent)} left, head {head[:12]}…)"
        )


def _agree(last: Event, neighbours: Relation | None) -> Relation | None:
    """The relation that all of a ledger's releases are about, this one included."""
    asked = None if neighbours is None else Neighbours(neighbours).relation
    if asked is None or last.relation in (None, asked):
        return asked or last.relation
    raise BudgetError(
        f"neighbours={asked!r} cannot be charged here: this ledger's releases are about {last.relation!r}, and the two "
        f"do not add up; release for {last.relation!r}, or use another ledger"
    )


def _is_zero(amount: Any) -> bool:
    return isinstance(amount, Real | Decimal) and not isinstance(amount, bool) and not amount


def _share(named: str | None) -> str:
    """As the account has it."""
    return "" if named is None else check_text("share", named)


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
