"""What records are fitted to: counts by groups of values, denoised, and what the groups are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.mechanism.reader import CellReader
from batchdp.queries.query import QUERY
from batchdp.release.beside import Beside, Read
from batchdp.release.consistency.cells import closest_cells
from batchdp.text import Progress
from batchdp.workloads.kronecker import Factor, KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.release.release import Release

Codes = NDArray[np.int32]
"""Values as numbers."""
MOST_ROUNDS = 50
"""In which values get the margins of all their groups."""
NO_TABLES = (
    "records: no table of this release counts records by groups of a column, as those of GROUP BY and of plan "
    "--marginals do, so that there is nothing to draw records from; plan --for-records asks for what is needed"
)


@dataclass(frozen=True, eq=False)
class Axis:
    """Groups of one column's values.

    Args:
        column: the number of the column.
        group: of every value, −1 where it is in none.
        rows: how many groups there are.
    """

    column: int
    group: Indices
    rows: int

    @property
    def complete(self) -> bool:
        """Whether every value is in a group."""
        return bool(self.group.min(initial=0) >= 0)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """One table of counts.

    Args:
        name: of the table.
        axes: numbers of its axes, in the order of its cells.
        counts: denoised, as an array.
        released: as they were released.
        noise: the standard errors of these, added up.
    """

    name: str
    axes: tuple[int, ...]
    counts: Dense
    released: Dense
    noise: float


@dataclass(frozen=True, eq=False)
class Heading:
    """A column of the records, as far as it is known: a title for every value, −1 for none."""

    name: str
    titles: tuple[str, ...]
    place: Indices


@dataclass(frozen=True, eq=False)
class Fitting:
    """All that records are fitted to.

    Args:
        names: of the columns.
        sizes: how many values each has.
        axes: groups of values.
        tables: what is counted by them.
        headings: for every column, what its values are called.
        total: how many records there are, by the release.
        others: names of tables that records are not fitted to: sums, running totals, several columns in one condition.
        cells: of a single column, its margin where it is known otherwise.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    axes: tuple[Axis, ...]
    tables: tuple[FittedTable, ...]
    headings: tuple[tuple[Heading, ...], ...]
    total: float
    others: tuple[str, ...] = ()
    cells: Dense | None = None

    def columns_of(self, table: FittedTable) -> tuple[int, ...]:
        """The columns that a table looks at."""
        return tuple(self.axes[a].column for a in table.axes)

    def margins(self) -> list[Dense]:
        """Of every column how often its values come, as shares: even within groups, if nothing finer is known."""
        if self.cells is not None:
            return [self.cells / max(self.cells.sum(), 1e-300)]
        shares = [np.full(n, 1 / n) for n in self.sizes]
        known: dict[int, Dense] = {}
        for table in self.tables:
            for place, a in enumerate(table.axes):
                rest = [b for b in table.axes if b != a]
                if a not in known and all(self.axes[b].complete for b in rest):
                    along = tuple(other for other in range(table.counts.ndim) if other != place)
                    known[a] = np.maximum(table.counts.sum(axis=along), 0.0) / self.total
        for _ in range(MOST_ROUNDS if len(known) > len(self.sizes) else 1):
            for a, wanted in known.items():
                axis, own = self.axes[a], shares[self.axes[a].column]
                inside = axis.group >= 0
                now = np.bincount(axis.group[inside], own[inside], minlength=axis.rows)
                ratio = np.divide(wanted, now, out=np.zeros(axis.rows), where=now > 0)
                own[inside] *= ratio[axis.group[inside]]
                left, outside = max(0.0, 1 - float(wanted.sum())), float(own[~inside].sum())
                own[~inside] *= left / outside if outside > 0 else 0.0
        return [own / max(own.sum(), 1e-300) for own in shares]

    def together(self) -> dict[tuple[int, ...], Known]:
        """All pairs and triples of columns that a table has in complete groups, by columns; the finest of each."""
        found = dict[tuple[int, ...], Known]()
        for table in sorted(self.tables, key=lambda one: (len(one.axes), -one.counts.size)):
            axes = [self.axes[a] for a in table.axes]
            if all(axis.complete for axis in axes):
                for places in (own for k in (2, 3) for own in combinations(range(len(axes)), k)):
                    ordered = sorted(places, key=lambda place: axes[place].column)
                    own = tuple(axes[place] for place in ordered)
                    found.setdefault(tuple(axis.column for axis in own), Known(table, tuple(ordered), own))
        return found


@dataclass(frozen=True, eq=False)
class Known:
    """How some columns go together, by a table.

    Args:
        table: which knows it.
        places: of the columns in that table.
        axes: their groups.
    """

    table: FittedTable
    places: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def groups(self) -> Dense:
        """Shares of the groups, an axis a column."""
        rest = tuple(place for place in range(self.table.counts.ndim) if place not in self.places)
        counts = np.maximum(self.table.counts.sum(axis=rest), 0.0)
        ordered = counts.transpose([sorted(self.places).index(place) for place in self.places])
        return np.asarray(ordered / max(ordered.sum(), 1e-300))

    def shares(self, margins: Sequence[Dense]) -> Dense:
        """Shares of the values: within their groups, columns have nothing to do with one another."""
        found = self.groups[np.ix_(*(axis.group for axis in self.axes))]
        for place, axis in enumerate(self.axes):
            within = _within(margins[axis.column], axis)
            found = found * within.reshape([-1 if place == own else 1 for own in range(len(self.axes))])
        return found


def _within(margin: Dense, axis: Axis) -> Dense:
    """The share of every value in its group."""
    groups = np.bincount(axis.group, margin, minlength=axis.rows)
    sizes = np.bincount(axis.group, minlength=axis.rows)
    even = 1 / np.maximum(sizes[axis.group], 1)
    return np.asarray(np.where(groups[axis.group] > 0, margin / np.maximum(groups[axis.group], 1e-300), even))


@singledispatch
def fitting(
    reader: Any, release: Release, beside: Beside, table: str | None = None, progress: Progress | None = None
) -> Fitting:
    """What records of a release are fitted to: tables over many columns, if the kind of reader registers nothing else.

    Args:
        reader: of the release.
        release: what was released.
        beside: its denoised answers.
        table: whose rows are drawn, where the release counts several.
        progress: called with (share done, what is being done).
    """
    answers_of(release, table)
    return fit_tables(release, beside.read)


def fit_tables(release: Release, read: Read) -> Fitting:
    """Tables over many columns, with these counts."""
    reader: Any = release.reader
    batch: KroneckerWorkload = reader.workload
    axes: dict[tuple[int, int], int] = {}
    listed: list[Axis] = []
    tables, others = [], []
    for t, table in enumerate(batch.tables):
        span = slice(batch.starts[t], batch.starts[t + 1])
        own = list(zip(batch.columns[span].tolist(), batch.chosen[span].tolist(), strict=True))
        found = [(key, _groups(key[0], batch.factors[key[0]][key[1]], len(batch.sizes))) for key in own]
        if any(axis is None for _, axis in found):
            others.append(table.name)
            continue
        for key, axis in found:
            if key not in axes and axis is not None:
                axes[key] = len(listed)
                listed.append(axis)
        counts, raw = (np.asarray(of(t)).reshape(table.shape) for of in (read, release.linear_values))
        noise = float(np.sum(reader.errors_of(t)))
        tables.append(FittedTable(table.name, tuple(axes[key] for key in own), counts, raw, noise))
    whole = [table for table in tables if all(listed[a].complete for a in table.axes)]
    if not whole or not any(table.axes for table in tables):
        raise ReleaseError(NO_TABLES)
    headings = tuple(tuple(_headings(release, i, listed, axes)) for i in range(len(batch.sizes)))
    total = float(whole[0].counts.sum())
    names = release.column_names
    return Fitting(names, batch.sizes, tuple(listed), tuple(tables), headings, max(total, 1.0), tuple(others))


def _groups(axis: int, factor: Factor, columns: int) -> Axis | None:
    """The groups of a factor; None where it is no partition of one column's values."""
    if axis >= columns:
        return None
    if factor.given is None:
        return Axis(axis, np.arange(factor.size), factor.size)
    return _partition(factor.entries, axis)


def _partition(queries: sparse.csr_array, column: int = 0) -> Axis | None:
    """Queries of which every value is in one at most; None where they are others."""
    queries.eliminate_zeros()
    rows, values = queries.tocoo().coords
    if np.any(queries.data != 1) or np.bincount(values, minlength=1).max() > 1:
        return None
    group = np.full(queries.shape[1], -1, dtype=np.int64)
    group[values] = rows
    return Axis(column, group, queries.shape[0])


def _headings(
    release: Release, column: int, listed: Sequence[Axis], axes: dict[tuple[int, int], int]
) -> Iterable[Heading]:
    """What the values of a column are called by the keys of tables; their numbers, if there is no legend."""
    reader: Any = release.reader
    batch: KroneckerWorkload = reader.workload
    if release.legend is None:
        n = batch.sizes[column]
        yield Heading(release.column_names[column], tuple(map(str, range(n))), np.arange(n))
        return
    seen = set()
    at = np.flatnonzero(batch.columns == column)
    for kind, chosen in sorted(set(zip(release.legend.axes[at].tolist(), batch.chosen[at].tolist(), strict=True))):
        if (column, chosen) not in axes:
            continue
        group, left = listed[axes[column, chosen]].group, listed[axes[column, chosen]].rows
        for k in release.legend.kinds[kind]:
            key = release.legend.keys[k]
            left //= len(key.titles)
            if (key.heading, key.titles) not in seen:
                seen.add((key.heading, key.titles))
                yield Heading(key.heading, key.titles, np.where(group < 0, -1, group // left % len(key.titles)))


def answers_of(release: Release, table: str | None) -> Indices | None:
    """The numbers of the linear answers that are about one table; nothing where all are about the same one."""
    cells = getattr(None if release.source is None else release.source.batch, "cells", None)
    counted = {part.table: part.queries for part in getattr(cells, "parts", ())}
    names = ", ".join(counted or [release.certificate.table])
    if table is not None and table not in (counted or {release.certificate.table: ()}):
        raise ReleaseError(f"records: table={table!r} is not one that this release counts; those are: {names}")
    if len(counted) < 2:
        return None
    if table is None:
        raise ReleaseError(
            f"records: this release counts several tables: {names}; records are rows of one table, so give table=, or "
            "--table on the command line, with one of these names"
        )
    return np.array(sorted(counted[table]), dtype=np.int64)


@fitting.register(CellReader)
def _(
    reader: CellReader, release: Release, beside: Beside, table: str | None = None, progress: Progress | None = None
) -> Fitting:
    """One column, whose values are the cells: kinds of records, each in one group of every table or in none."""
    W = sparse.csr_array(reader.workload if release.kinds is None else release.kinds)
    found = answers_of(release, table)
    among = np.arange(W.shape[0]) if found is None else found
    axes: list[Axis] = []
    tables, others = [], []
    headings: dict[tuple[str, tuple[str, ...]], Heading] = {}
    for t, asked in enumerate(release.tables):
        numbers = [release.layout.number(release.layout.block_at(k), k - release.layout.block_at(k).start)
                   for k in asked.answers]  # fmt: skip
        linear = [k for k in numbers if k is not None]
        if linear and not np.isin(linear, among).any():
            continue
        axis = None if len(linear) < len(numbers) else _partition(sparse.csr_array(W[linear]))
        if axis is None or not W.shape[1]:
            others.append(asked.name)
            continue
        figures, tables_axes = release.figures(t), (len(axes),)
        axes.append(axis)
        tables.append(
            FittedTable(asked.name, tables_axes, beside.of_table(asked), figures.values, figures.standard_errors.sum())
        )
        if asked.columns != (QUERY,):
            for name, own in zip(asked.columns, asked.groups.arrays(), strict=True):
                titles = tuple(dict.fromkeys("" if one is None else str(one) for one in own))
                number = np.array([titles.index("" if one is None else str(one)) for one in own])
                place = np.where(axis.group < 0, -1, number[axis.group])
                headings.setdefault((name, titles), Heading(name, titles, place))
    if not headings:
        raise ReleaseError(NO_TABLES)
    W, errors = W[among], reader.standard_errors[among]
    precision = np.divide(1.0, errors, out=np.ones(len(errors)), where=errors > 0)
    answers = np.concatenate([beside.read(k).reshape(-1) for k in range(len(reader.sizes))])[among]
    cells = closest_cells(sparse.csr_array(sparse.diags_array(precision) @ W), precision * answers, progress=progress).x
    return Fitting(
        (table or release.certificate.table,), (W.shape[1],), tuple(axes), tuple(tables), (tuple(headings.values()),),
        max(float(cells.sum()), 1.0), tuple(others), cells,
    )  # fmt: skip
