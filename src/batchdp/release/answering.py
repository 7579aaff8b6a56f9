"""`answer`: the one way from counts to published answers.

The order is the guarantee: everything that can be refused is refused first; then the ledger is charged and the charge
is on disk; only then are counts read, noise drawn, and the answers stored under the release's id.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, overload

import numpy as np
from scipy import sparse

from batchdp.derived.expressions import Asked
from batchdp.errors import ReleaseError
from batchdp.ledger import AnyLedger, Ledger, StoredRelease, as_ledger
from batchdp.linalg.matrix import Dense, plain
from batchdp.measuring.amounts import AmountLattice
from batchdp.measuring.lattice import Integers, Lattice
from batchdp.measuring.law import checked_confidence
from batchdp.measuring.neighbours import Neighbours, Relation
from batchdp.measuring.preparing import exact_charge
from batchdp.plans import Plan, TablePlan
from batchdp.plans.settling import check_domain_says, declared_neighbours, given_neighbours, settled
from batchdp.privacy import Budget
from batchdp.progress import Progress
from batchdp.release.certificate import PrivacyCertificate, certified
from batchdp.release.charged import paid
from batchdp.release.claims import check_charged, check_release
from batchdp.release.components.answering import release_components
from batchdp.release.components.counted import reading
from batchdp.release.components.tables import TableRelease
from batchdp.release.cost import Confirm, agreed
from batchdp.release.given import given_counts, given_records
from batchdp.release.meaning import answers_digest, prepared_as_asked
from batchdp.release.records import Release, said_of
from batchdp.release.storing import decoded, encoded
from batchdp.strategies.over_tables import OverTables
from batchdp.strategies.strategy import Strategy

Draw = Callable[[Sequence[int]], list[int]]


@overload
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
) -> Release: ...


@overload
def answer(
    planned: TablePlan | OverTables,
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
    planned: Plan | TablePlan | Strategy | OverTables,
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
            in each cell, as whole numbers in the workload's order. For a strategy over many columns (`Components` and
            `WeightedTables`) the records: a 2-D array or a frame with one whole-number code a column, floats where a
            code may be missing; a record with a code that is none is not counted. Or the counts of all cells, in one
            dimension.
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
    if isinstance(planned, TablePlan | OverTables):
        with ExitStack() as tables:
            return release_components(
                **_over_columns(planned, tables, table, neighbours, rows_per_unit, max_rows, label, progress),
                epsilon=epsilon,
                rho=rho,
                ledger=books,
                release_id=release_id,
                confidence=confidence,
                progress=progress,
                confirm=confirm,
            )
    strategy, relation, cap = settled(planned, neighbours, rows_per_unit, max_rows)
    with ExitStack() as tables:
        if isinstance(planned, Plan):
            counts = _counting(planned, tables, table, progress)
        else:
            counts = given_counts(table, strategy.workload)  # which refuses a wrong shape or type
        return release(
            strategy,
            counts,
            epsilon=epsilon,
            rho=rho,
            ledger=books,
            release_id=release_id,
            label=label or (planned.domain.table if isinstance(planned, Plan) else "counts"),
            neighbours=relation,
            max_rows=cap,
            confidence=confidence,
            asked=_asked(planned) if isinstance(planned, Plan) else "",
            answers=planned.asked if isinstance(planned, Plan) and planned.derived else (),
            confirm=confirm,
            progress=progress,
        )


def _over_columns(
    planned: TablePlan | OverTables,
    tables: ExitStack,
    table: Any,
    neighbours: Relation | None,
    rows_per_unit: int | None,
    max_rows: int | None,
    label: str | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """What `release_components` is given: by the domain for a plan, by the caller for a strategy."""
    if isinstance(planned, TablePlan):
        check_domain_says(neighbours, rows_per_unit, max_rows)
        return {
            "strategy": planned.strategy,
            "read": reading(planned, tables, table, progress),
            "label": label or planned.domain.table,
            "neighbours": declared_neighbours(planned.domain),
            "max_rows": planned.domain.privacy.max_rows,
            "column_names": planned.column_names,
            "legend": planned.batch.legend,
        }
    read, names = given_records(planned, table)
    return {
        "strategy": planned,
        "read": read,
        "label": label or "records",
        "neighbours": given_neighbours(neighbours, rows_per_unit),
        "max_rows": max_rows,
        "column_names": names,
    }


def _asked(plan: Plan) -> str:
    """What the cells of a plan stand for, which its matrices do not show."""
    return json.dumps([plan.sql, plan.domain.model_dump(mode="json")])


def _counting(plan: Plan, tables: ExitStack, table: Any, progress: Progress | None) -> Callable[[], Integers]:
    """Open the table, which checks its schema, and say how it will be counted; no record is read yet."""
    from batchdp.tables import counting, open_table

    atoms, privacy = plan.cells.atoms, plan.domain.privacy
    source = tables.enter_context(open_table(table, plan.domain, columns=[one.column for one in atoms]))
    counted = counting(source, atoms, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
    return lambda: plan.cells.counts(counted(progress))


def release(
    strategy: Strategy,
    counts: Callable[[], Integers],
    *,
    epsilon: float | None,
    rho: float | None,
    ledger: Ledger,
    release_id: str | None,
    label: str,
    neighbours: Neighbours,
    max_rows: int | None,
    confidence: float,
    asked: str = "",
    answers: tuple[Asked[int], ...] = (),
    draw: Draw | None = None,
    confirm: Confirm | None = None,
    progress: Progress | None = None,
) -> Release:
    """`answer` with room for a test's own noise in `draw`; OpenDP's, or noise in a shape, is drawn otherwise.

    `asked` says what the workload's cells stand for: an id that was used for something else is refused. `answers` are
    those to be shown, where some are computed from others.
    """
    checked_confidence(confidence)
    if strategy.relaxation > 0:
        raise ReleaseError("strategy: a relaxed strategy misses its workload by design; optimise without relaxation")
    charge, budget = exact_charge(Budget.of(strategy.noise, epsilon=epsilon, rho=rho))
    stored = None if release_id is None else ledger.stored(release_id)
    before = None if stored is None else decoded(stored.output, stored.release_id).certificate
    lattice, noise, law, digest = prepared_as_asked(strategy, neighbours, budget, max_rows, asked, before)
    identity = release_id or uuid.uuid4().hex
    ready = agreed(noise, charge, ledger, identity, neighbours, confirm, progress)
    whose = neighbours.privacy_unit
    asked_for: dict[str, Any] = {strategy.noise.unit: charge}
    names, W = strategy.workload.names, sparse.csr_array(plain(lattice.workload.matrix))
    meant = answers_digest(said_of(names, answers), lattice.measure, W)
    reserved = ledger.reserve(
        identity, **asked_for, plan_digest=digest, table=label, privacy_unit=whose, answers_digest=meant
    )
    if isinstance(reserved, StoredRelease):
        kept = decoded(reserved.output, identity)
        certificate, noisy = kept.certificate, kept.measurements
        law = replace(law, scale=certificate.scale / 2.0**lattice.bits)  # that was drawn then
        values = _reconstructed(lattice, noisy) if kept.values is None else kept.values
    else:
        head = reserved.head

        def measured() -> tuple[PrivacyCertificate, Dense, Dense]:
            noisy_integers = (draw or ready)(lattice.measured(counts()))
            noisy = np.array([float(z) for z in noisy_integers]) / 2.0**lattice.bits
            derived = sum(one.derived for one in answers)
            drawn = (lattice, noise, neighbours, budget, law)
            certificate = certified(identity, *drawn, digest=digest, table=label, head=head, derived=derived)
            values = _reconstructed(lattice, noisy)
            ledger.complete(reserved, encoded(certificate, noisy, values, law.standard_errors))
            return certificate, noisy, values

        # From here on counts are read. Nothing may raise because of what they are.
        certificate, noisy, values = paid(measured, identity)
    done = Release(
        names=names,
        values=values,
        law=law,
        measurements=noisy,
        measure=lattice.measure,
        workload=W,
        certificate=certificate,
        confidence=confidence,
        asked=answers,
    )
    if isinstance(reserved, StoredRelease):
        check_release(done)
        check_charged(done, ledger, reserved)
    return done


def _reconstructed(lattice: Lattice | AmountLattice, noisy: Dense) -> Dense:
    """B y, summed pairwise: rounding grows with the logarithm of the number of measurements."""
    B = lattice.reconstruct
    if not isinstance(B, np.ndarray):
        return np.asarray(B @ noisy)
    rows = max(1, 4_000_000 // max(1, B.shape[1]))
    parts = [(B[start : start + rows] * noisy).sum(axis=1) for start in range(0, len(B), rows)]
    return np.concatenate(parts)
