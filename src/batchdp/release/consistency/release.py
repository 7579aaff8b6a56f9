"""Consistent answers of a release: they agree, are nowhere below 0, and are whole if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.mechanism.marginal.lattice import IntegerResults
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.residual.lattice import WholeGroups
from batchdp.mechanism.residual.tables import TableReader
from batchdp.release.beside import Beside, Read
from batchdp.release.consistency.cells import closest_cells
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
from batchdp.release.consistency.rounding import round_controlled, round_margin, round_onto_margins
from batchdp.release.consistency.tables import closest_tables
from batchdp.text import Outcome, Progress
from batchdp.workloads.kronecker import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.release.release import Release

INTERVALS = (
    "Standard errors and intervals belong to the noisy answers, not to the consistent ones. These are often closer to "
    "what is counted, not always. Where the noisy answers imply a count below 0, shown or not, it is raised to 0 and "
    "the answers that it is part of move to fit, so they are not unbiased."
)
WORTH_SAYING = 1e-6
"""Of the records that were moved to make tables agree: less is what averages of nearly equal margins leave."""
UNKEPT_SHOWN = 5


@dataclass(frozen=True)
class Rounding:
    """What whole numbers cost.

    Args:
        largest_move: the most that an answer moved.
        unkept: margins on which tables no longer agree, each with the largest difference; the worst first.
        moved_totals: how many answers moved by 1 or more.
    """

    largest_move: float
    moved_totals: int
    unkept: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, moves: Iterable[Dense], unkept: tuple[tuple[str, float], ...] = ()) -> Rounding:
        """From how far the answers of every table moved."""
        found = [(float(own.max(initial=0.0)), int(np.count_nonzero(own >= 1))) for own in moves]
        return cls(max(most for most, _ in found), sum(far for _, far in found), unkept)

    @property
    def adds_up(self) -> bool:
        """Whether all tables still agree."""
        return not self.unkept

    def __str__(self) -> str:
        most = self.largest_move
        text = f"Whole numbers: no answer moved by more than {f'{most:,.0f}' if most >= 1000 else f'{most:.3g}'}"
        text += f", {self.moved_totals:,} by 1 or more; " if self.moved_totals else "; "
        if self.adds_up:
            return text + "everything still adds up."
        named = ", ".join(f"{name} (by up to {difference:g})" for name, difference in self.unkept[:UNKEPT_SHOWN])
        more = f" and {len(self.unkept) - UNKEPT_SHOWN:,} more" if len(self.unkept) > UNKEPT_SHOWN else ""
        return text + f"the total and every column's margin add up, these shared margins no longer do: {named}{more}."


@dataclass(frozen=True, eq=False)
class Consistent(Beside):
    """Answers that agree with one another and with records that could exist. Post-processing, free of charge.

    Args:
        release, read: as in `Beside`.
        status: how the search ended.
        rounding: what whole numbers cost; None where they were not asked for.
        gap: how far the squared distance to the noisy answers may be above the least, as a share of it.
        lifted: records that were moved to make tables agree where the search ended early, as a share of all.
    """

    heading: ClassVar[str] = "consistent"
    meaning: ClassVar[str] = "answers that agree with one another and are never negative"

    status: Outcome
    rounding: Rounding | None = None
    gap: float = 0.0
    lifted: float = 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside these answers: sentences for files, pages and the terminal."""
        found = [INTERVALS]
        if self.status is Outcome.CANCELLED:
            found.append("The search was stopped: the best so far agrees and is not negative, yet is not the closest.")
        elif self.status in (Outcome.OUT_OF_ROUNDS, Outcome.OUT_OF_TIME, Outcome.STALLED):
            ended = f"The search ended early ({self.status})"
            found.append(f"{ended}: the answers agree and are not negative, yet may not be the closest.")
        if self.lifted >= WORTH_SAYING:
            found.append(
                f"To make tables agree, {self.lifted:.2g} of the records were spread as every column's margin is: the "
                "total and, nearly, margins of one column are those of a search that ended; larger tables may be worse."
            )
        return (*found, *([] if self.rounding is None else [str(self.rounding)]))

    def __repr__(self) -> str:
        whole = ", whole" if self.rounding is not None else ""
        return f"Consistent({len(self.release.answers):,} answers that agree{whole}; {self.status})"


@singledispatch
def fit(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Linear answers that agree, by the kind of reader; each registers its own."""
    raise TypeError(f"nothing says how the answers of a {type(reader).__name__} are made to agree")


@fit.register(CellReader)
def _(reader: CellReader, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    W = reader.workload if release.kinds is None else release.kinds
    if not W.shape[1]:
        raise ReleaseError(
            "consistent: this batch is measured in several blocks, and which of their cells one record can have "
            "together is not known, or makes too many kinds of records to fit; ask for fewer columns at once"
        )
    return fit_cells(_distinct(W), reader.standard_errors, release, whole=whole, progress=progress)


def fit_cells(
    W: sparse.csr_array, errors: Dense, release: Release, *, whole: bool, progress: Progress | None
) -> Consistent:
    """The answers W x of the non-negative cells x that fit the released ones best, rounded if asked; as one table."""
    # In units of the noise; answers without noise ask for nothing.
    precision = np.divide(1.0, errors, out=np.ones(len(errors)), where=errors > 0)
    rows = sparse.csr_array(sparse.diags_array(precision) @ W)
    fitted = closest_cells(rows, precision * release.linear_answers, progress=progress)
    found = np.asarray(W @ fitted.x)
    if not whole:
        return Consistent(release, lambda _: found, fitted.status)
    rounded = np.asarray(W @ round_controlled(fitted.x, counting_queries(W))[0].astype(np.float64))
    cost = Rounding.of([np.abs(rounded - found)])
    return Consistent(release, lambda _: rounded, fitted.status, cost)


def counting_queries(workload: sparse.csr_array) -> sparse.csr_array:
    """The queries that count records, each cell once or not at all."""
    W = sparse.csr_array(workload)
    W.eliminate_zeros()
    lengths = np.diff(W.indptr)
    others = np.bincount(np.repeat(np.arange(len(lengths)), lengths), W.data != 1, len(lengths))
    return sparse.csr_array(W[np.flatnonzero((others == 0) & (lengths > 0))])


def _distinct(workload: sparse.csr_array) -> sparse.csr_array:
    """W on the cells that it tells apart: the others can be fitted as one."""
    W = sparse.csc_array(workload)
    W.sort_indices()
    keys: dict[bytes, int] = {}
    for j in range(W.shape[1]):
        part = slice(W.indptr[j], W.indptr[j + 1])
        keys.setdefault(W.indices[part].tobytes() + W.data[part].tobytes(), j)
    return sparse.csr_array(W[:, sorted(keys.values())])


# ── Tables over many columns.


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
MOST_LOOKED_AT = 1_000_000
"""Coefficients of a column's factors among which values between others are looked for."""
BETWEEN = 1e-12
"""How far a value may be from what others make, relative to the largest coefficients: rounding."""


@fit.register(TableReader)
@fit.register(WeightedReader)
def _(reader: Any, release: Release, *, whole: bool, progress: Progress | None) -> Consistent:
    """Fit components, or cells where tables are not whole; round them if asked."""
    batch: KroneckerWorkload = reader.workload
    fitting = [t for t in range(len(batch.tables)) if all(f.given is None for f in batch.factors_of(t).values())]
    if len(fitting) < len(batch.tables) and (kept := _fitted_values(batch)) is not None:
        return _from_cells(batch, kept, release, whole=whole, progress=progress)
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
    read, rounding = read_tables(batch, fitting, fitted.table), None
    if whole:
        tables, unkept = whole_tables(lambda k: fitted.table(asked[k]), asked, release.column_names, progress)
        before, read = read, read_tables(batch, fitting, lambda own: margin_of(tables, asked, own))
        rounding = Rounding.of((np.abs(read(t) - before(t)) for t in range(len(batch.tables))), unkept)
    return Consistent(release, read, fitted.status, rounding, fitted.gap, fitted.lifted)


def read_tables(batch: KroneckerWorkload, fitting: Sequence[int], cells: Callable[[Columns], Dense]) -> Read:
    """Whole tables as they are, others as what they ask of the whole table of their columns."""
    known = set(fitting)

    def read(table: int) -> Dense:
        found = cells(batch.tables[table].columns)
        return np.asarray(found) if table in known else batch.ask(table, found)

    return read


def margin_of(tables: Sequence[Indices], asked: Sequence[Columns], own: Columns) -> Dense:
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


def _from_cells(
    batch: KroneckerWorkload, kept: Sequence[Indices], release: Release, *, whole: bool, progress: Progress | None
) -> Consistent:
    """Where tables ask for ranges or groups: non-negative cells that fit all answers, weighted by their variances."""
    tables, starts = range(len(batch.tables)), release.reader.starts
    W = sparse.csr_array(sparse.vstack([batch.matrix_on(t, kept) for t in tables]))
    errors = np.concatenate([release.reader.errors_of(t).reshape(-1) for t in tables])
    found = fit_cells(W, errors, release, whole=whole, progress=progress)
    every = found.read(0)
    return replace(found, read=lambda t: every[starts[t] : starts[t + 1]].reshape(batch.tables[t].shape))


def _fitted_values(batch: KroneckerWorkload) -> Sequence[Indices] | None:
    """The values of every column whose cells are fitted: all, or those that all answers can be made of; or none fit."""
    every = [np.arange(n) for n in batch.sizes]
    if _fits(batch, every):
        return every
    extreme = [_extreme_values(batch, i) for i in range(len(batch.sizes))]
    return extreme if _fits(batch, extreme) else None


def _extreme_values(batch: KroneckerWorkload, column: int) -> Indices:
    """Values of a column without which some answers could not be.

    Whatever a table asks of a record is linear in what its column's factors have for the record's value. So a value
    between others, like 20 between 0 and 40 where a sum and a count are asked, adds nothing that these do not.
    """
    chosen = set(batch.chosen[batch.columns == column].tolist())
    factors = [batch.factors[column][c] for c in chosen]
    n, rows = batch.sizes[column], sum(factor.rows for factor in factors)
    tied = any(column in looked for looked in batch.joint)
    if tied or any(factor.given is None for factor in factors) or n * rows > MOST_LOOKED_AT:
        return np.arange(n)
    points = np.vstack([np.ones((1, n)), *(factor.matrix for factor in factors)])
    points /= np.abs(points).max(axis=1, initial=1e-300, keepdims=True)
    kept = np.unique(points, axis=1, return_index=True)[1]
    if int(np.sum(batch.columns == column)) == len(batch.tables):  # no table counts what none of its factors counts
        kept = kept[np.any(points[1:, kept] != 0, axis=0)]
    left = sorted(kept.tolist())
    ends = [np.flatnonzero(row == end) for row in points[:, left] for end in (row.min(initial=0), row.max(initial=0))]
    alone = {left[int(where[0])] for where in ends if len(where) == 1}
    for value in [value for value in left if value not in alone]:
        others = [other for other in left if other != value]
        if others and nnls(points[:, others], points[:, value])[1] <= BETWEEN:
            left = others
    return np.array(left, dtype=np.int64)


def _fits(batch: KroneckerWorkload, kept: Sequence[Indices]) -> bool:
    """Whether the cells of these values are so few that each is fitted."""
    cells, entries = prod(map(len, kept)), 0
    for t in range(len(batch.tables)) if cells <= MOST_CELLS else ():
        entries += batch.entries_on(t, kept)
    return cells <= MOST_CELLS and entries <= MOST_ENTRIES
