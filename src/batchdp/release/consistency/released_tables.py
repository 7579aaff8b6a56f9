"""Consistent tables over many columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.mechanism.marginal.lattice import IntegerResults
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.residual.lattice import WholeGroups
from batchdp.mechanism.residual.tables import TableReader
from batchdp.progress import Progress
from batchdp.release.consistency.faces import (
    Columns,
    closure,
    margin_along,
    maximal,
    project,
    split_table,
    spread,
    subsets,
)
from batchdp.release.consistency.release import Consistent, Rounding, fit, fit_cells
from batchdp.release.consistency.rounding import round_controlled, round_margin, round_onto_margins
from batchdp.release.consistency.tables import closest_tables
from batchdp.workloads.kronecker import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.release.release import Release

Read = Callable[[int], Dense]


def whole_tables(
    read: Read, asked: Sequence[Columns], names: Sequence[str], progress: Progress | None
) -> tuple[list[Indices], tuple[tuple[str, float], ...]]:
    """Consistent tables in whole numbers, in their order, and on what they no longer agree; `read` gives a table."""
    largest = maximal(asked)
    if len(largest) == 1:
        return _from_one(read(asked.index(largest[0])), largest[0], asked), ()
    found = _one_by_one(read, asked, progress)
    return found, _disagreements(found, asked, names)


def _from_one(table: Dense, columns: Columns, asked: Sequence[Columns]) -> list[Indices]:
    """Of one table all others are margins: they are summed from its whole cells."""
    if table.ndim <= 2:
        whole = round_controlled(table.reshape(-1), _totals(table.shape))[0].reshape(table.shape)
    else:
        total = int(round_margin(table.reshape(-1), round(float(table.sum()))).sum())
        whole = round_onto_margins(
            table, [round_margin(margin_along(table, axis), total) for axis in range(table.ndim)]
        )
    return [project(whole, columns, own) for own in asked]


def _one_by_one(read: Read, asked: Sequence[Columns], progress: Progress | None) -> list[Indices]:
    """The total and the one-way margins once for all tables, then every table onto its own."""
    total: int | None = None
    margins: dict[int, Indices] = {}
    found: list[Indices] = []
    for t, own in enumerate(asked):
        values = read(t)
        total = round(float(values.sum())) if total is None else total
        for axis, i in enumerate(own):
            if i not in margins:
                margins[i] = round_margin(margin_along(values, axis), total)
        if len(own) < 2:
            found.append(margins[own[0]] if own else np.array(total))
        else:
            found.append(round_onto_margins(values, [margins[i] for i in own]))
        if progress is not None:
            progress((t + 1) / len(asked), "rounding tables")
    return found


def _totals(shape: tuple[int, ...]) -> sparse.csr_array:
    """Rows, columns and the total of a table, over its cells."""
    rows = [np.zeros(prod(shape), dtype=np.int64)]
    if len(shape) == 2:
        i, j = np.indices(shape).reshape(2, -1)
        rows += [1 + i, 1 + shape[0] + j]
    cells = np.tile(np.arange(prod(shape)), len(rows))
    return sparse.csr_array((np.ones(len(cells)), (np.concatenate(rows), cells)))


def _disagreements(
    found: Sequence[Indices], asked: Sequence[Columns], names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """The margins of two columns and more that tables share and no longer agree on, the worst first."""
    first: dict[Columns, list[Indices]] = {}
    worst: dict[Columns, float] = {}
    for t, own in enumerate(asked):
        for part in subsets(own):
            if len(part) < 2:
                continue
            margin = project(found[t], own, part)
            seen = first.setdefault(part, [margin, margin])
            seen[0], seen[1] = np.minimum(seen[0], margin), np.maximum(seen[1], margin)
            worst[part] = float((seen[1] - seen[0]).max(initial=0))
    named = [(" × ".join(names[i] for i in part), off) for part, off in worst.items() if off > 0]
    return tuple(sorted(named, key=lambda one: -one[1]))


MOST_ANSWERS = 100_000_000
"""Cells of the tables that are no margin of another: each takes some 70 bytes."""
MOST_CELLS = 100_000
"""Combinations of all columns' values for which tables that are not whole are fitted."""
MOST_ENTRIES = 20_000_000
"""Coefficients of their queries."""


@fit.register(TableReader)
@fit.register(WeightedReader)
def _(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Fit components, or cells where tables are not whole; round them if asked."""
    batch: KroneckerWorkload = reader.workload
    fitting = [t for t in range(len(batch.tables)) if all(f.given is None for f in batch.factors_of(t).values())]
    if len(fitting) < len(batch.tables) and _fits(batch):
        return _from_cells(batch, release, whole=whole, progress=progress)
    asked = [batch.tables[t].columns for t in fitting]
    within = [next((A for A in asked if set(own.columns) <= set(A)), None) for own in batch.tables]
    if None in within:
        raise ReleaseError(
            f"consistent: some tables ask for ranges or groups of values, and all columns together have more than "
            f"{MOST_CELLS:,} cells or {MOST_ENTRIES:,} coefficients; ask also for a whole table of these columns, of "
            "which ranges and groups are sums, or release tables of fewer columns"
        )
    answers = sum(prod(batch.sizes[i] for i in own) for own in maximal(asked))
    if answers > MOST_ANSWERS:
        raise ReleaseError(
            f"consistent: {answers:,} cells in the largest tables, more than the {MOST_ANSWERS:,} that fit into 8 GB; "
            "release tables of fewer columns"
        )
    fitted = closest_tables(*estimates(release, fitting), asked, batch.sizes, progress=progress)
    read, rounding = _reader(batch, fitting, fitted.table), None
    if whole:
        tables, unkept = whole_tables(lambda k: fitted.table(asked[k]), asked, release.column_names, progress)
        before, read = read, _reader(batch, fitting, lambda own: _margin_of(tables, asked, own))
        rounding = Rounding.of((np.abs(read(t) - before(t)) for t in range(len(batch.tables))), unkept)
    return Consistent(release, read, fitted.status, rounding, fitted.gap, fitted.lifted)


def _reader(batch: KroneckerWorkload, fitting: Sequence[int], cells: Callable[[Columns], Dense]) -> Read:
    """Whole tables as they are, others as what they ask of the whole table of their columns."""
    known = set(fitting)

    def read(table: int) -> Dense:
        found = cells(batch.tables[table].columns)
        if table not in known:
            for axis, factor in enumerate(batch.factors_of(table).values()):
                if factor.given is not None:
                    found = np.moveaxis(np.tensordot(factor.matrix, found, axes=(1, axis)), 0, axis)
        return np.asarray(found)

    return read


def _margin_of(tables: Sequence[Indices], asked: Sequence[Columns], own: Columns) -> Dense:
    """A table of whole numbers, or the margin of the first that has its columns."""
    k = asked.index(own) if own in asked else next(k for k, A in enumerate(asked) if set(own) <= set(A))
    return np.asarray(project(tables[k], asked[k], own), dtype=np.float64)


def estimates(release: Release, tables: Sequence[int]) -> tuple[dict[Columns, Dense], dict[Columns, float]]:
    """The components of these whole tables, and one over the variance of the noise in each.

    What the release knows of its components, else from the standard errors: tables with noise of their own are averaged
    and add up what they know; of tables that are read from the same measurements the best counts.
    """
    reader: Any = release.reader
    batch: KroneckerWorkload = reader.workload
    asked, known = [batch.tables[t].columns for t in tables], component_variances(reader)

    def values(table: int) -> Dense:
        return release.linear_values(table).reshape(batch.tables[table].shape)

    if known is not None:
        first: dict[Columns, Dense] = {}
        for own in maximal(asked):  # tables agree on them already
            parts = split_table(values(tables[asked.index(own)]), own)
            first.update((C, z) for C, z in parts.items() if C not in first)
        return first, {C: 1 / known[C] if known.get(C, 0.0) > 0 else 1.0 for C in first}
    sizes, same = batch.sizes, _measured_together(reader)
    found: dict[Columns, Dense] = {}
    total, best = dict.fromkeys(closure(asked), 0.0), dict.fromkeys(closure(asked), 0.0)
    for t, table in zip(tables, asked, strict=True):
        variance = max(float(np.square(reader.errors_of(t)).mean()), 1e-300)
        for C, part in split_table(values(t), table).items():
            precision = 1 / variance / spread(C, table, sizes)
            total[C] += precision
            best[C] = max(best[C], precision)
            found[C] = found[C] + (part - found[C]) * (precision / total[C]) if C in found else part
    return found, best if same else total


def _measured_together(reader: Any) -> bool:
    """Whether all tables are read from one group of measurements, of which none has noise of its own for a table."""
    measures: Sequence[object] = getattr(reader.lattice, "measures", ())
    return len(measures) == 1 and not isinstance(measures[0], IntegerResults)


def component_variances(reader: Any) -> dict[Columns, float] | None:
    """Of the noise in every component that was measured by itself; None where that is not what was measured."""
    groups = getattr(reader.lattice, "groups", None)
    if not isinstance(groups, WholeGroups):
        return None
    found = {}
    for g, group in enumerate(groups):
        (part,) = group.parts()
        (piece,) = part.pieces
        found[part.columns] = (float(reader.scales[g]) * float(piece.recover[0, 0])) ** 2
    return found


def _from_cells(batch: KroneckerWorkload, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Where tables ask for ranges or groups: non-negative cells that fit all answers, weighted by their variances."""
    tables, starts = range(len(batch.tables)), release.reader.starts
    W = sparse.csr_array(sparse.vstack([batch.matrix_of(t) for t in tables]))
    errors = np.concatenate([release.reader.errors_of(t).reshape(-1) for t in tables])
    found = fit_cells(W, errors, release, whole=whole, progress=progress)
    every = found.read(0)
    return replace(found, read=lambda t: every[starts[t] : starts[t + 1]].reshape(batch.tables[t].shape))


def _fits(batch: KroneckerWorkload) -> bool:
    """Whether all columns together have so few cells that each is fitted."""
    entries = 0
    for t in range(len(batch.tables)) if batch.cells <= MOST_CELLS else ():
        own = batch.factors_of(t)
        entries += prod(int(np.count_nonzero(own[i].matrix)) if i in own else n for i, n in enumerate(batch.sizes))
    return batch.cells <= MOST_CELLS and entries <= MOST_ENTRIES
