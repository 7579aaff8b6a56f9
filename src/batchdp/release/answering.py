"""`answer`: the one way from counts to published answers, for every kind of plan, strategy and noise.

The order is the guarantee. Everything that can be refused is refused first, and what it costs is said. Noise is drawn:
it does not depend on the data, can take long, and whoever interrupts it has spent nothing. Room is taken on the disk.
Then the ledger is charged, and the charge is on disk; only then are records counted, the noise added, and the answers
stored under the release's id. From the charge on, Ctrl-C waits. Only what is stored is shown.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Counted
from batchdp.errors import BatchDPError, LedgerError, ReleaseError, TableError
from batchdp.ledger import AnyLedger, Ledger, StoredRelease, as_ledger
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.conversion import budget_of
from batchdp.mechanism.law import checked_confidence
from batchdp.mechanism.measure import add
from batchdp.mechanism.measurement import GroupNoise, IntegerMeasurement, Neighbours, Relation
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.reader import Reader
from batchdp.mechanism.sample import sample
from batchdp.plans import Plan
from batchdp.plans.encoding import kinds_of, shown_answers
from batchdp.plans.planned import called, settle
from batchdp.plans.source import Source
from batchdp.privacy import Budget, Currency, round_down, round_up
from batchdp.private import CellCounts, Counts
from batchdp.queries.expressions import Asked
from batchdp.queries.views import View
from batchdp.release.certificate import certify, certify_groups, packed
from batchdp.release.counts import given_counts, given_records, reading
from batchdp.release.estimates import check_fits, estimate_of
from batchdp.release.file import Stored, decoded, encoded
from batchdp.release.release import Release
from batchdp.release.said import Said
from batchdp.release.verify import answers_digest, check_charged, check_release, plan_digest
from batchdp.strategies.strategy import Strategy
from batchdp.text import Progress
from batchdp.workloads.encode import AskedTables, Legend


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block ends; then it counts. Only the main thread is ever interrupted."""
    foreign = signal.getsignal(signal.SIGINT) is None  # not Python's own, and could not be put back
    if foreign or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def room_on_disk(ledger: Path, size: int) -> Iterator[Callable[[], None]]:
    """Take so many bytes beside the ledger, refused where there are not as many; given back when called, or at the end.

    A full disk is then noticed before anything is charged.
    """
    path = ledger.with_name(f".{ledger.name}.{secrets.token_hex(8)}.room")
    with ExitStack() as taken:
        try:
            file = taken.enter_context(path.open("xb"))
            taken.callback(_remove, path)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            else:
                file.write(b"\0" * size)
            _remove(path)  # the room stays taken while the file is open, and no longer, even if this process is killed
        except OSError as error:
            raise LedgerError(
                f"the output needs {size / 1e6:,.0f} MB beside {str(ledger)!r} ({error.strerror or error}); nothing "
                "was charged: free some space"
            ) from error
        yield taken.close


def _remove(path: Path) -> None:
    with suppress(OSError):  # some systems remove no file that is open
        path.unlink(missing_ok=True)


T = TypeVar("T")


def paid(action: Callable[[], T], release_id: str) -> T:
    """What the action gives, from counting to storing; whatever fails in it, the error says that the budget is gone.

    The text of an error that nobody thought of may hold counts, so only its type is told, and it is no context of the
    one that is raised. Interrupts stay what they are, with a note.
    """
    charged = f"release {release_id!r} was charged before, its budget stays spent"
    kind: type[BatchDPError] = ReleaseError
    try:
        return action()
    except (TableError, LedgerError) as error:  # which never depend on records
        kind, problem = type(error), str(error)
    except Exception as error:
        problem = f"what follows the charge failed with {type(error).__name__}, whose message may show records"
    except BaseException as stop:
        stop.__cause__ = stop.__context__ = None
        stop.add_note(f"{charged}; if its answers were stored, the same release_id gives them")
        raise
    raise kind(f"{problem}; {charged} and its answers were shown to nobody: choose a new release_id")


@dataclass(frozen=True)
class Cost:
    """What a release would cost a ledger, and whose privacy it is about."""

    budget: Budget
    """What the release guarantees: the ε or ρ that was asked for, as it was written."""
    unit: Currency
    """What the ledger counts in; that of the next three figures."""
    charged: float
    remaining: float
    """What the ledger has before."""
    left: float
    """What it would have afterwards; below 0 where it refuses the release."""
    neighbours: Neighbours
    """What two tables that must not be told apart differ by, and whose privacy that is."""
    is_new: bool
    """Whether the release's id was never charged; if it was, the stored answers are free, or it is refused."""
    delta: float = 0.0
    """Of values that it finds by thresholds."""

    @property
    def is_due(self) -> bool:
        """Whether the ledger would be charged: the id is new, and enough is left."""
        return self.is_new and self.left >= 0


Confirm = Callable[[Cost], bool]


def cost_of(made: Mechanism, ledger: Ledger, release_id: str, share: str | None = None) -> Cost:
    """What the ledger would charge for a release with this noise; charges nothing itself."""
    return cost_of_budget(made.budget, made.neighbours, ledger, release_id, share, scale=made.least_scale)


def cost_of_budget(
    budget: Budget,
    neighbours: Neighbours,
    ledger: Ledger,
    release_id: str,
    share: str | None = None,
    *,
    scale: float | None = None,
    delta: Fraction | None = None,
) -> Cost:
    """The same for any budget, perhaps with the δ of values that are found by thresholds."""
    account, name = ledger.account.with_room(delta or Fraction(0)), share or ""
    due = account.charge(budget, scale, delta)
    after = account.spend(due, name)
    # In the currency that would admit it; where none would, in one that it has a price in.
    unit = next(iter(after.admitting or [unit for unit in account.admitting if due[unit] is not None]), account.unit)
    there, cost = account.left(unit, name) or Fraction(0), due[unit] or Fraction(0)
    figures = round_up(cost), round_down(there), round_down(there - cost)
    return Cost(budget, unit, *figures, neighbours, is_new=not ledger.is_used(release_id), delta=float(delta or 0))


Draw = Callable[[IntegerMeasurement, Sequence[GroupNoise], Progress | None], NDArray[Any]]


@dataclass(frozen=True)
class Request:
    """What is to be released, with nothing read yet."""

    strategy: Any
    read: Callable[[], Counts]
    """Counts the records, once they are paid for."""
    neighbours: Neighbours
    max_rows: int | None
    label: str
    """What the ledger's history calls the data."""
    asked: str = ""
    """What cells stand for: an id that was used for something else is refused."""
    answers: Sequence[Asked[int]] = ()
    """Those to be shown, where some are computed from others."""
    column_names: tuple[str, ...] | None = None
    legend: Legend | None = None
    counted: Counted | None = None
    """What is counted, before any noise."""
    kinds: sparse.csr_array | None = None
    """What a record of every kind adds to every answer, as in `Release`."""
    views: tuple[View, ...] = ()
    """What is shown of the answers."""
    source: Source | None = None
    """What is asked of which domain."""

    @property
    def derived(self) -> int:
        """How many of the answers are computed from others."""
        if isinstance(self.answers, AskedTables):
            return sum(prod(self.answers.shape(run)) for run in self.answers.derived)
        return sum(one.derived for one in self.answers)


def answer(
    planned: Plan | Strategy,
    table: Any,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
    ledger: AnyLedger,
    share: str | None = None,
    release_id: str | None = None,
    label: str | None = None,
    snapshot: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Release:
    """Answer a batch of queries privately.

    Guarantee: ε-differential privacy (or ρ-zCDP) when one privacy unit is added or removed (or replaced),
    whatever the data are. The ledger is charged before the data is read; a crash may waste budget but gives none away.

    Args:
        planned: a plan, or a strategy from `optimize` or of your own.
        table: for a plan, the table: a path (CSV, Parquet), a pandas, Polars or PyArrow frame, a DuckDB connection, a
            postgresql:// address, an ibis table or a Spark DataFrame; of several tables, a dictionary by name. For a
            strategy, the counts in the workload's order: how many records fall in each cell, neither rounded nor
            suppressed before. For a strategy over many columns, the records as whole-number codes: a 2-D array or a
            frame. No value is ever refused, since that would tell about the data: counts are read as numbers where that
            is possible and as 0 where it is not, and a record with an invalid code is left out.
        epsilon: the budget of Laplace noise; with `delta`, of either kind of noise.
        rho: the budget of Gaussian noise.
        delta: with `epsilon`; Gaussian noise then gets what a ledger of (ε, δ) would grant.
        ledger: the ledger that is charged, or the path of its file.
        share: the name of the ledger's share that is charged; if left out, what belongs to no share is.
        release_id: if an id was used before, its stored answers are returned, never fresh noise; made up if left out.
        label: what the ledger's history calls the data; the plan's table, or "counts", if left out.
        snapshot: which state of the table this is, such as "2026-11"; the ledger and the release keep it.
        neighbours: "add-remove" (default) or "replace". For a plan, this and the next two come from the domain.
        rows_per_unit: the most records that one person has.
        max_rows: a public cap on the number of records, which decides how fine the lattice can be. If left out, the
            largest power of ten up to 10^12 with which the bias stays below 1 % of the noise; the certificate calls it
            `largest_total`. With more records than that, the answers are still private but may be far too low.
        confidence: the confidence of the intervals.
        progress: called with (share done, what is being done) while a table is counted.
        confirm: called with the `Cost` when everything else is in order and the ledger is about to be charged. Unless
            it returns something true, nothing is read and nothing is spent.
    """
    books = as_ledger(ledger)
    with ExitStack() as opened:
        request = _request(planned, opened, table, neighbours, rows_per_unit, max_rows, label, progress)
        return release(
            request,
            budget_of(request.strategy.noise, epsilon=epsilon, rho=rho, delta=delta),
            ledger=books,
            share=share,
            snapshot=snapshot,
            release_id=release_id,
            confidence=confidence,
            confirm=confirm,
            progress=progress,
        )


def _request(
    planned: Plan | Strategy,
    opened: ExitStack,
    table: Any,
    neighbours: Relation | None,
    rows_per_unit: int | None,
    max_rows: int | None,
    label: str | None,
    progress: Progress | None,
) -> Request:
    """What is asked for; opening the table checks its schema, and no record is read yet."""
    strategy, whose, cap = settle(planned, neighbours, rows_per_unit, max_rows)
    if isinstance(planned, Plan):
        legend = getattr(planned.batch, "legend", None)
        # A legend says what the tables stand for.
        asked = "" if legend else json.dumps([planned.sql, planned.domain.model_dump(mode="json")])
        return Request(
            strategy,
            reading(planned.batch, planned, opened, table, progress),
            whose,
            cap,
            label or called(planned.protected),
            asked,
            shown_answers(planned.batch),
            column_names=getattr(strategy.workload, "column_names", None),
            legend=legend,
            counted=planned.counted,
            kinds=kinds_of(planned.batch, planned.domain),
            views=planned.batch.views,
            source=Source.of(planned),
        )
    if getattr(strategy, "takes_records", False):
        records, own, rules = given_records(strategy, table)
        return Request(strategy, records, whose, cap, label or "records", column_names=own, counted=rules)
    cells, rules = given_counts(table, strategy.workload)  # which refuses a wrong shape or type
    workload = strategy.workload
    unknown = sparse.csr_array((len(workload.names), 0)) if len(workload.blocks) > 1 else None
    return Request(strategy, lambda: CellCounts(cells()), whose, cap, label or "counts", counted=rules, kinds=unknown)


def release(
    request: Request,
    budget: Budget,
    *,
    ledger: Ledger,
    share: str | None = None,
    snapshot: str | None = None,
    release_id: str | None = None,
    confidence: float = 0.95,
    confirm: Confirm | None = None,
    progress: Progress | None = None,
    draw: Draw | None = None,
) -> Release:
    """`answer`, with room for a test's own noise in `draw`."""
    checked_confidence(confidence)
    budget = Budget(budget.noise, round_down(budget.amount))  # as it is written down: a decimal number
    if getattr(request.strategy, "relaxation", 0) > 0:
        raise ReleaseError("strategy: a relaxed strategy misses its workload by design; optimise without relaxation")
    before = None if release_id is None else ledger.stored(release_id)
    kept = None if before is None else decoded(before.output, before.release_id).certificate
    cap = request.max_rows if request.max_rows is not None or kept is None else kept.largest_total
    made = prepare(request.strategy, request.neighbours, budget, cap, drawn=before is not None)
    identity, whose, told = release_id or uuid.uuid4().hex, str(request.neighbours), _say(request, made.reader).told()
    names = made.reader.names or told["column_names"]
    digest = plan_digest(made.measurement, whose, names, request.asked or json.dumps(told))
    named: dict[str, str] = {"plan_digest": digest, "table": request.label}
    spend: dict[str, Any] = {
        budget.noise.unit: budget,
        **named,
        "privacy_unit": request.neighbours.privacy_unit,
        "answers_digest": answers_digest(made.reader, told, whose),
        "scale": made.least_scale,
        "neighbours": request.neighbours.relation,
        "share": share,
        "snapshot": snapshot,
    }
    if before is not None:
        return _again(ledger.reserve(identity, **spend), request, made, ledger, confidence)
    needed = estimate_of(made)
    if progress is not None and needed.seconds >= 1:
        progress(0.0, str(needed))
    check_fits(needed, ledger.path)
    cost = cost_of(made, ledger, identity, share)
    if cost.is_new:
        ledger.check_left(
            budget, made.least_scale, request.neighbours.relation, share
        )  # before noise is drawn in vain; `reserve` decides
    if confirm is not None and cost.is_due and not confirm(cost):
        raise ReleaseError("not confirmed, so nothing was read and nothing was spent")
    noise = (draw or sample)(made.measurement, made.noises, progress) if cost.is_new else None
    groups = certify_groups(made)
    with room_on_disk(ledger.path, needed.stored + len(packed(groups)) + 10_000) as free, uninterrupted():
        reserved = ledger.reserve(identity, **spend)
        if isinstance(reserved, StoredRelease):  # by another process, meanwhile
            return _again(reserved, request, made, ledger, confidence)

        def finish() -> Release:
            if noise is None:
                raise LedgerError(f"release_id={identity!r} was charged before, and the ledger granted it once more")
            said: dict[str, Any] = {"derived": request.derived, "snapshot": snapshot or "", **named}
            certificate = certify(made, groups, release_id=identity, ledger_head=reserved.head, **said)
            noisy = add(made.measurement, request.read(), noise)
            done = _present(request, made.reader, Stored(certificate, noisy), confidence)
            free()
            ledger.complete(reserved, encoded(Stored(certificate, noisy, *_kept(done))))
            return done

        # From here on records are read. Nothing may raise because of what they are.
        return paid(finish, identity)


def _again(stored: Any, request: Request, made: Mechanism, ledger: Ledger, confidence: float) -> Release:
    """The release that is stored under this id: reconstructed anew, never drawn again."""
    assert isinstance(stored, StoredRelease)
    kept = decoded(stored.output, stored.release_id)
    scales = np.array([one.scale for one in kept.certificate.groups])  # that were drawn then
    if len(scales) != len(made.noises) or len(kept.noisy) != made.measurement.sizes.sum():
        raise LedgerError(f"release_id={stored.release_id!r}: what the ledger has stored has other measurements")
    done = _present(request, made.measurement.reader(scales), kept, confidence)
    check_release(done)
    check_charged(done, ledger, stored)
    return done


def _say(request: Request, reader: Reader) -> Said:
    names = request.column_names or ()
    if reader.names is None and not names:
        names = tuple(f"a{i + 1}" for i in range(len(request.strategy.workload.sizes)))
    return Said(names, request.answers, request.legend, request.counted, request.views, request.source)


def _present(request: Request, reader: Reader, stored: Stored, confidence: float) -> Release:
    """What the caller gets: a release, from measurements with their noise."""
    said, kinds = vars(_say(request, reader)), request.kinds
    return Release(
        reader, stored.noisy, stored.certificate, confidence=confidence, given=stored.values, kinds=kinds, **said
    )


def _kept(release: Release) -> tuple[Dense | None, Dense | None]:
    """All linear answers with their standard errors, as far as a ledger keeps them beside the measurements."""
    reader = release.reader
    if reader.answers > reader.most_read:
        return None, None
    errors = [release.linear_figures(t).standard_errors for t in range(len(reader.sizes))]
    return release.linear_answers, np.concatenate(errors)
