"""`answer`: the one way from counts to published answers, for every kind of plan, strategy and noise.

The order is the guarantee. Everything that can be refused is refused first, and what it costs is said. Noise is drawn:
it does not depend on the data, can take long, and whoever interrupts it has spent nothing. Room is taken on the disk.
Then the ledger is charged, and the charge is on disk; only then are records counted, the noise added, and the answers
stored under the release's id. From the charge on, Ctrl-C waits. Only what is stored is shown.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.asking.legend import Legend
from batchdp.derived.expressions import Asked
from batchdp.domain import Counted
from batchdp.errors import LedgerError, ReleaseError
from batchdp.ledger import AnyLedger, Ledger, StoredRelease, as_ledger
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.components.lattice import ComponentLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.law import checked_confidence
from batchdp.mechanism.measure import add
from batchdp.mechanism.measurement import GroupNoise, IntegerMeasurement, Neighbours, Relation
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.sample import sample
from batchdp.mechanism.weighted.lattice import WeightedLattice
from batchdp.plans import Plan
from batchdp.plans.settling import settle
from batchdp.privacy import Budget, round_down
from batchdp.private import CellCounts, Counts
from batchdp.progress import Progress
from batchdp.release.certificate import certify, certify_groups, packed
from batchdp.release.charged import paid
from batchdp.release.components.counted import reading
from batchdp.release.components.tables import TableRelease
from batchdp.release.cost import Confirm, confirmed, cost_of
from batchdp.release.digests import answers_digest, plan_digest, tell
from batchdp.release.estimating import check_fits, estimate_of
from batchdp.release.given import given_counts, given_records
from batchdp.release.records import Release, said_of
from batchdp.release.safety import room_on_disk, uninterrupted
from batchdp.release.store import MOST_KEPT, Stored, decoded, encoded
from batchdp.release.verify import check_charged, check_release
from batchdp.strategies.factored import FactoredStrategy
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import Strategy

MOST_READ = 5_000
"""Answers of tables that are read, to be kept, before a release is shown."""
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
    answers: tuple[Asked[int], ...] = ()
    """Those to be shown, where some are computed from others."""
    column_names: tuple[str, ...] | None = None
    legend: Legend | None = None
    counted: Counted | None = None
    """What is counted, before any noise."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries, or of the columns of tables."""
        if isinstance(self.strategy, FactoredStrategy):
            return self.column_names or tuple(f"a{i + 1}" for i in range(len(self.strategy.workload.sizes)))
        found: tuple[str, ...] = self.strategy.workload.names
        return found


@overload
def answer(
    planned: Plan | PairStrategy,
    table: Any,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    ledger: AnyLedger,
    release_id: str | None = None,
    label: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Release: ...


@overload
def answer(
    planned: FactoredStrategy,
    table: Any,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    ledger: AnyLedger,
    release_id: str | None = None,
    label: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> TableRelease: ...


def answer(
    planned: Plan | Strategy,
    table: Any,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    ledger: AnyLedger,
    release_id: str | None = None,
    label: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Release | TableRelease:
    """Private answers to a batch of queries.

    Guarantee: ε-differential privacy (or ρ-zCDP) when one privacy unit is added or removed (or replaced), for any
    data whatever. The ledger is charged before the data is read; a crash may waste budget but gives none away.

    Args:
        planned: a plan, of tables or not, or a strategy from `optimize` or elsewhere.
        table: for a plan the table: a path (CSV, Parquet), a pandas, Polars or PyArrow frame, a DuckDB connection, a
            postgresql:// address, an ibis table or a Spark DataFrame. For a strategy the counts: how many records fall
            in each cell, as whole numbers in the workload's order. No count is refused for what it is, which would tell
            about the data: a text is the number that it spells; 1.5 is rounded down to 1; what is no number ("<5", a
            list, any other object), below 0, missing (NaN, None) or infinite is taken as 0, and what is above 2^62 as
            2^62. The guarantee is that of counts which one record moves by 1, so give none that were suppressed or
            rounded before. For a strategy over many columns the records: a 2-D array or a
            frame with one whole-number code a column, of any type,
            which one record can change; a record with a code that is none is not counted. Or the counts of all cells,
            in one dimension.
        epsilon, rho: the budget, whichever the strategy's kind of noise takes.
        ledger: what the budget is taken from, or the path of its file.
        release_id: a repeat with the same id returns the stored answers, never fresh noise; made up if left out.
        label: what the ledger's history calls the data; a plan's table, or "counts", if left out.
        neighbours: "add-remove" (default) or "replace". This and the next two come from the domain for a plan.
        rows_per_unit: at most how many records one person has.
        max_rows: a public cap on the number of records, which decides how fine the lattice can be. If left out, the
            largest power of ten up to 10^12 with which the bias stays below 1 % of the noise; the certificate names
            it as `largest_total`. With more records the answers stay private but may be far too low.
        confidence: of the intervals.
        progress: called with (share, what is being done) while a table is counted.
        confirm: called with the `Cost` once everything else is known to be in order, and only if the ledger would be
            charged; anything but a true answer ends it, with nothing read and nothing spent.
    """
    books = as_ledger(ledger)
    with ExitStack() as opened:
        request = _request(planned, opened, table, neighbours, rows_per_unit, max_rows, label, progress)
        done: Release | TableRelease = release(
            request,
            Budget.of(request.strategy.noise, epsilon=epsilon, rho=rho),
            ledger=books,
            release_id=release_id,
            confidence=confidence,
            confirm=confirm,
            progress=progress,
        )
        return done


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
            label or planned.domain.table,
            asked,
            tuple(planned.asked) if planned.derived else (),
            column_names=getattr(strategy.workload, "column_names", None),
            legend=legend,
            counted=planned.counted,
        )
    if isinstance(strategy, FactoredStrategy):
        records, own, rules = given_records(strategy, table)
        return Request(strategy, records, whose, cap, label or "records", column_names=own, counted=rules)
    cells, rules = given_counts(table, strategy.workload)  # which refuses a wrong shape or type
    return Request(strategy, lambda: CellCounts(cells()), whose, cap, label or "counts", counted=rules)


def release(
    request: Request,
    budget: Budget,
    *,
    ledger: Ledger,
    release_id: str | None = None,
    confidence: float = 0.95,
    confirm: Confirm | None = None,
    progress: Progress | None = None,
    draw: Draw | None = None,
) -> Any:
    """`answer`, with room for a test's own noise in `draw`."""
    checked_confidence(confidence)
    budget = Budget(budget.noise, round_down(budget.amount))  # as it is written down: a decimal number
    if getattr(request.strategy, "relaxation", 0) > 0:
        raise ReleaseError("strategy: a relaxed strategy misses its workload by design; optimise without relaxation")
    before = None if release_id is None else ledger.stored(release_id)
    kept = None if before is None else decoded(before.output, before.release_id).certificate
    cap = request.max_rows if request.max_rows is not None or kept is None else kept.largest_total
    made = prepare(request.strategy, request.neighbours, budget, cap, drawn=before is not None)
    identity, digest = release_id or uuid.uuid4().hex, _plan_digest(request, made)
    spend: dict[str, Any] = {
        budget.noise.unit: budget,
        "plan_digest": digest,
        "table": request.label,
        "privacy_unit": request.neighbours.privacy_unit,
        "answers_digest": say(made.measurement, request, digest),
    }
    if before is not None:
        return _again(ledger.reserve(identity, **spend), request, made, ledger, confidence)
    needed = estimate_of(made)
    if progress is not None and needed.seconds >= 1:
        progress(0.0, str(needed))
    check_fits(needed, ledger.path)
    cost = cost_of(budget, ledger, identity, request.neighbours)
    if cost.is_new:
        ledger.check_left(budget)  # before noise is drawn in vain; `reserve` decides
    if confirm is not None:
        confirmed(confirm, cost)
    noise = (draw or sample)(made.measurement, made.noises, progress) if cost.is_new else None
    groups = certify_groups(made)
    with room_on_disk(ledger.path, needed.stored + len(packed(groups)) + 10_000) as free, uninterrupted():
        reserved = ledger.reserve(identity, **spend)
        if isinstance(reserved, StoredRelease):  # by another process, meanwhile
            return _again(reserved, request, made, ledger, confidence)

        def finish() -> Any:
            if noise is None:
                raise LedgerError(f"release_id={identity!r} was charged before, and the ledger granted it once more")
            certificate = certify(
                made,
                groups,
                release_id=identity,
                digest=digest,
                table=request.label,
                head=reserved.head,
                derived=sum(one.derived for one in request.answers),
                shape=getattr(made.reader, "shape_text", ""),
            )
            noisy = add(made.measurement, request.read(), noise)
            done = present(made.measurement, request, made.reader, Stored(certificate, noisy), confidence)
            kept = answered(done) if needed.answers <= MOST_KEPT else (None, None)
            free()
            ledger.complete(reserved, encoded(Stored(certificate, noisy, *kept)))
            return done

        # From here on records are read. Nothing may raise because of what they are.
        return paid(finish, identity)


def _again(stored: Any, request: Request, made: Mechanism, ledger: Ledger, confidence: float) -> Any:
    """The release that is stored under this id: reconstructed anew, never drawn again."""
    assert isinstance(stored, StoredRelease)
    kept = decoded(stored.output, stored.release_id)
    scales = np.array([one.scale for one in kept.certificate.groups])  # that were drawn then
    if len(scales) != len(made.noises) or len(kept.noisy) != made.measurement.sizes.sum():
        raise LedgerError(f"release_id={stored.release_id!r}: what the ledger has stored has other measurements")
    done = present(made.measurement, request, made.measurement.reader(scales), kept, confidence)
    check_release(done)
    check_charged(done, ledger, stored)
    return done


def _plan_digest(request: Request, made: Mechanism) -> str:
    told = tell(request.legend, request.counted) if isinstance(request.strategy, FactoredStrategy) else request.asked
    return plan_digest(made.measurement, str(request.neighbours), request.names, told)


@singledispatch
def say(measurement: Any, request: Request, digest: str) -> str:
    """SHA-256 of what the answers are: their names and queries; each kind of measurement registers its own.

    Args:
        measurement: what is measured.
        request: what is asked for.
        digest: of the plan, where that says it all.
    """
    raise TypeError(f"nothing says what the answers of a {type(measurement).__name__} are")


@say.register(Lattice)
@say.register(AmountLattice)
def _(measurement: Any, request: Request, digest: str) -> str:
    said = said_of(request.names, request.answers, request.counted)
    return answers_digest(said, (measurement.measure, plain(measurement.workload.matrix)))


@say.register(ComponentLattice)
@say.register(WeightedLattice)
def _(measurement: Any, request: Request, digest: str) -> str:
    return digest


@singledispatch
def present(measurement: Any, request: Request, reader: Any, stored: Stored, confidence: float) -> Any:
    """What the caller gets: a release, from measurements with their noise; each kind registers its own."""
    raise TypeError(f"nothing says how the measurements of a {type(measurement).__name__} are shown")


@present.register(Lattice)
@present.register(AmountLattice)
def _(measurement: Any, request: Request, reader: Any, stored: Stored, confidence: float) -> Release:
    noisy = stored.noisy.astype(np.float64) / 2.0**measurement.bits
    return Release(
        names=request.names,
        values=_reconstruct(measurement.reconstruct, noisy) if stored.values is None else stored.values,
        law=reader,
        measurements=noisy,
        measure=measurement.measure,
        workload=sparse.csr_array(plain(measurement.workload.matrix)),
        certificate=stored.certificate,
        confidence=confidence,
        asked=request.answers,
        counted=request.counted,
    )


@present.register(ComponentLattice)
@present.register(WeightedLattice)
def _(measurement: Any, request: Request, reader: Any, stored: Stored, confidence: float) -> TableRelease:
    told = request.names, confidence, request.legend, request.counted
    return TableRelease(reader, stored.noisy, stored.certificate, *told)


@singledispatch
def answered(release: Any) -> tuple[Dense | None, Dense | None]:
    """All answers of a release with their standard errors, as far as a ledger keeps them beside the measurements."""
    raise TypeError(f"nothing says what the answers of a {type(release).__name__} are")


@answered.register
def _(release: Release) -> tuple[Dense | None, Dense | None]:
    return release.values, release.standard_errors


@answered.register
def _(release: TableRelease) -> tuple[Dense | None, Dense | None]:
    """Of few: tables are read from the measurements when somebody looks."""
    if release.workload.queries > MOST_READ:
        return None, None
    tables = range(len(release.tables))
    values = [release.values(t).reshape(-1) for t in tables]
    return np.concatenate(values), np.concatenate([release.standard_errors(t).reshape(-1) for t in tables])


def _reconstruct(B: Any, noisy: Dense) -> Dense:
    """B y, summed pairwise: rounding grows with the logarithm of the number of measurements."""
    if not isinstance(B, np.ndarray):
        return np.asarray(B @ noisy)
    rows = max(1, 4_000_000 // max(1, B.shape[1]))
    parts = [(B[start : start + rows] * noisy).sum(axis=1) for start in range(0, len(B), rows)]
    return np.concatenate(parts)
