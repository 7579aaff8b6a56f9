"""`answer`: the one way from counts to published answers.

The order is the guarantee: everything that can be refused is refused first; then the ledger is charged and the charge
is on disk; only then are counts read, noise drawn, and the answers stored under the release's id.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from batchdp.errors import LedgerError, PrivacyParameterError, ReleaseError, TableError
from batchdp.ledger import Ledger, Reservation, StoredRelease
from batchdp.linalg.matrix import Dense, plain
from batchdp.measuring.lattice import Integers, Lattice
from batchdp.measuring.law import checked_confidence
from batchdp.measuring.neighbours import Neighbours, Relation
from batchdp.measuring.preparing import checked_budget, exact_charge, prepared
from batchdp.plans import Plan
from batchdp.plans.settling import settled
from batchdp.privacy import Budget
from batchdp.progress import Progress
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.claims import check_charged, check_release
from batchdp.release.cost import Cost, cost_of
from batchdp.release.records import Release
from batchdp.release.storing import decoded, encoded
from batchdp.strategies.strategy import Strategy

Draw = Callable[[Sequence[int]], list[int]]
Confirm = Callable[[Cost], bool]
LARGEST_COUNT = 2**62
NO_COUNTS = (str, bytes, complex, list, tuple, dict, set)


def answer(
    planned: Plan | Strategy,
    table: Any,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    ledger: Ledger,
    release_id: str | None = None,
    label: str | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Release:
    """Private answers to a batch of queries.

    Guarantee: ε-differential privacy (or ρ-zCDP) when one privacy unit is added or removed (or replaced), for any
    data whatever. The ledger is charged before the data is read; a crash may waste budget but gives none away.

    Args:
        planned: a plan, or a strategy from `optimize` or elsewhere.
        table: for a plan the table: a path (CSV, Parquet), a pandas, Polars or PyArrow frame, a DuckDB connection, a
            postgresql:// address, an ibis table or a Spark DataFrame. For a strategy the counts: how many records fall
            in each cell, as whole numbers in the workload's order.
        epsilon, rho: the budget, whichever the strategy's kind of noise takes.
        ledger: what the budget is taken from.
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
    strategy, relation, cap = settled(planned, neighbours, rows_per_unit, max_rows)
    with ExitStack() as tables:
        if isinstance(planned, Plan):
            counts = _counting(planned, tables, table, progress)
        else:
            counts = _counts_of(table, strategy.workload.cells)  # which refuses a wrong shape or type
        return release(
            strategy,
            counts,
            epsilon=epsilon,
            rho=rho,
            ledger=ledger,
            release_id=release_id,
            label=label or (planned.domain.table if isinstance(planned, Plan) else "counts"),
            neighbours=relation,
            max_rows=cap,
            confidence=confidence,
            asked=_asked(planned) if isinstance(planned, Plan) else "",
            confirm=confirm,
        )


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
    draw: Draw | None = None,
    confirm: Confirm | None = None,
) -> Release:
    """`answer` with room for a test's own noise in `draw`; OpenDP's is drawn otherwise.

    `asked` says what the workload's cells stand for: an id that was used for something else is refused.
    """
    checked_confidence(confidence)
    if strategy.relaxation > 0:
        raise ReleaseError("strategy: a relaxed strategy misses its workload by design; optimise without relaxation")
    charge, budget = exact_charge(checked_budget(strategy, epsilon, rho))
    lattice, noise, law = prepared(strategy, neighbours, budget, max_rows)
    digest = plan_digest(lattice, neighbours, asked)

    identity = release_id or uuid.uuid4().hex
    if confirm is not None:
        _confirmed(confirm, cost_of(Budget(strategy.noise, charge), ledger, identity, neighbours))
    whose = neighbours.privacy_unit
    asked_for: dict[str, Any] = {strategy.noise.unit: charge}
    reserved = ledger.reserve(identity, **asked_for, plan_digest=digest, table=label, privacy_unit=whose)
    if isinstance(reserved, StoredRelease):
        certificate, noisy = decoded(reserved.output, identity)
        law = replace(law, scale=certificate.scale / 2.0**lattice.bits)  # that was drawn then
    else:
        # From here on counts are read. Nothing below may raise because of what they are.
        noisy_integers = (draw or noise.draw)(lattice.measured(_counted(counts, identity)))
        noisy = np.array([float(z) for z in noisy_integers]) / 2.0**lattice.bits
        certificate = PrivacyCertificate(
            release_id=identity,
            privacy=lattice.privacy,
            budget=budget,
            neighbours=str(neighbours),
            privacy_unit=whose,
            sensitivity=noise.sensitivity,
            scale=noise.scale,
            loss=noise.loss,
            bits=lattice.bits,
            largest_total=lattice.largest_total,
            bias_bound=float(lattice.bias_bound.max(initial=0.0)),
            plan_digest=digest,
            table=label,
            ledger_head=reserved.head,
            opendp=version("opendp"),
        )
        _stored(ledger, reserved, encoded(certificate, noisy))
    done = Release(
        names=strategy.workload.names,
        values=_reconstructed(lattice, noisy),
        law=law,
        measurements=noisy,
        measure=lattice.measure,
        workload=sparse.csr_array(plain(lattice.workload.matrix)),
        certificate=certificate,
        confidence=confidence,
    )
    if isinstance(reserved, StoredRelease):
        check_release(done)
        check_charged(done, ledger, reserved)
    return done


def _confirmed(confirm: Confirm, cost: Cost) -> None:
    """Go on only if that is wanted; what costs nothing, or will be refused, is not asked about."""
    if cost.is_due and not confirm(cost):
        raise ReleaseError("not confirmed, so nothing was read and nothing was spent")


def _stored(ledger: Ledger, reserved: Reservation, output: bytes) -> None:
    """Into the ledger; where that fails, the error says what became of the budget."""
    try:
        ledger.complete(reserved, output)
    except LedgerError as error:
        raise LedgerError(
            f"{error}; release {reserved.release_id!r} was charged before, its budget stays spent and its answers were "
            "shown to nobody: choose a new release_id"
        ) from error


def _counted(counts: Callable[[], Integers], identity: str) -> Integers:
    """The counts; where the engine fails, the error says that the budget is gone."""
    try:
        return counts()
    except TableError as error:
        problem = str(error)
    raise TableError(f"{problem}; release {identity!r} was charged before and its budget stays spent")


def plan_digest(lattice: Lattice, neighbours: Neighbours, asked: str = "") -> str:
    """A fingerprint of everything that decides what is released, apart from the data and the budget."""
    digest = hashlib.sha256()
    Q = lattice.integers
    workload = lattice.workload
    settings: list[Any] = [lattice.privacy, lattice.bits, lattice.largest_total, str(neighbours), Q.shape]
    header = [*settings, workload.names, workload.blocks, asked]
    digest.update(json.dumps(header).encode())
    B = sparse.csr_array(lattice.reconstruct)
    merging = () if lattice.merging is None else (sparse.csr_array(lattice.merging),)
    for matrix in (Q, B, sparse.csr_array(plain(lattice.workload.matrix)), *merging):
        for part in (matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _reconstructed(lattice: Lattice, noisy: Dense) -> Dense:
    """B y, summed pairwise: rounding grows with the logarithm of the number of measurements."""
    B = lattice.reconstruct
    if not isinstance(B, np.ndarray):
        return np.asarray(B @ noisy)
    rows = max(1, 4_000_000 // max(1, B.shape[1]))
    parts = [(B[start : start + rows] * noisy).sum(axis=1) for start in range(0, len(B), rows)]
    return np.concatenate(parts)


def _counts_of(counts: Any, cells: int) -> Callable[[], Integers]:
    """What gives the counts as whole numbers. Their shape and type are public and checked; their values never are.

    Floats are taken too, because counts become floats where a cell is empty: a missing count is none, and what is no
    whole number is rounded down. Counts are clamped to what 63 bits hold. Nothing of this moves two neighbours further
    apart.
    """
    values = counts.filled(0) if isinstance(counts, np.ma.MaskedArray) else counts
    if isinstance(counts, (list, tuple)):
        for count in counts:
            if isinstance(count, NO_COUNTS):
                raise PrivacyParameterError(f"counts holds a {type(count).__name__}; counts must be whole numbers")
        values = np.array(counts, dtype=object)
    shape, dtype = np.shape(values), getattr(values, "dtype", None) or np.asarray(values).dtype
    if shape != (cells,):
        raise PrivacyParameterError(f"counts has shape {shape}; the workload has {cells} cells: give one count each")
    kind = getattr(dtype, "kind", None) or ("i" if str(dtype).lower().startswith(("int", "uint")) else "")
    if kind not in ("i", "u", "b", "f", "O"):
        raise PrivacyParameterError(f"counts has entries of type {dtype}; counts must be whole numbers (integers)")
    return lambda: _whole_counts(
        np.asarray(values, dtype=object if kind == "O" or not hasattr(dtype, "kind") else None)
    )


@np.errstate(all="ignore")
def _whole_counts(counts: npt.NDArray[Any]) -> Integers:
    if counts.dtype == object:
        counts = np.array([_one_count(count) for count in counts], dtype=np.int64)
    if counts.dtype.kind == "f":
        counts = np.floor(np.clip(np.nan_to_num(counts.astype(np.float64), posinf=0.0, neginf=0.0), 0.0, 2.0**62))
    wide = counts if counts.dtype == np.uint64 else np.maximum(counts.astype(np.int64), 0)
    whole: Integers = np.minimum(wide, np.array(LARGEST_COUNT, dtype=wide.dtype)).astype(np.int64)
    return whole


def _one_count(count: Any) -> int:
    try:
        floor: int = math.floor(count)
        return min(max(floor, 0), LARGEST_COUNT)
    except Exception:  # missing or infinite, in one of their many ways
        return 0
