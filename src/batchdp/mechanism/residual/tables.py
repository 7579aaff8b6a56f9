"""Tables from noisy components: answers, variances and bias, one table at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import erfinv

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Plain
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.reader import Reader, blocks_of_rows, outer_rows, unravel
from batchdp.mechanism.residual.lattice import ComponentLattice, IntegerPart, WholeGroups
from batchdp.privacy import Noise
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.terms import kron, orbit_average
from batchdp.workloads.kronecker import KroneckerWorkload

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Axis:
    """How a table looks at one column: its queries on distinct values, None where they are each value by itself."""

    rows: int
    matrix: Dense | None
    """Query × distinct value."""

    def on_orbits(self, column: Column) -> Dense:
        """Query × orbit: averages."""
        return orbit_average(column) if self.matrix is None else self.matrix @ orbit_average(column)

    def averaged(self, average: Dense) -> Dense:
        """A number a query."""
        return average if self.matrix is None else self.matrix @ average

    def members(self, column: Column, orbit: int) -> Dense | None:
        """Query × value of the orbit; None where that is each value by itself."""
        if self.matrix is None:
            return None if column.orbits == 1 else np.eye(len(column.orbit))[:, column.orbit == orbit]
        return self.matrix[:, column.orbit == orbit]


Axes = Mapping[int, Axis]
"""Of a table's columns, in ascending order."""


def recover(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes, noisy: Integers
) -> Dense | None:
    """The part's share in a table's answers, to be broadcast to the table's shape; None where it has none."""
    if any(i not in axes for piece in part.pieces for i, _ in piece.spread):
        return None  # what does not look at a column has no spread along it
    y = noisy.astype(np.float64).reshape(part.shape(columns))
    order: list[int] = []  # the column of every axis
    axis = 0
    for piece in part.pieces:
        y = np.moveaxis(np.moveaxis(y, axis, -1) @ piece.recover.T, -1, axis)
        own = [columns[i].orbits for i in piece.matrix]
        y = y.reshape([*y.shape[:axis], *own, *y.shape[axis + 1 :]])
        for i in piece.matrix:
            rows = axes[i].on_orbits(columns[i]) if i in axes else np.ones((1, columns[i].orbits))
            y = np.moveaxis(np.moveaxis(y, axis, -1) @ rows.T, -1, axis)
            order.append(i)
            axis += 1
        for i, o in piece.spread:
            y = y - y.mean(axis=axis, keepdims=True)
            members = axes[i].members(columns[i], o)
            if members is not None:
                y = np.moveaxis(np.moveaxis(y, axis, -1) @ members.T, -1, axis)
            order.append(i)
            axis += 1
    outside = [a for a, i in enumerate(order) if i not in axes]  # of one row each
    y = y.squeeze(axis=tuple(outside))
    order = [i for i in order if i in axes]
    y = y.transpose(np.argsort(order)) if order else y
    y = y.reshape([y.shape[sorted(order).index(i)] if i in order else 1 for i in axes])
    for i in axes:
        if i not in order:
            y = y * along(axes, i, axes[i].averaged(averages[i]))
    return np.asarray(y, dtype=np.float64)


def weights_of(
    part: IntegerPart,
    columns: tuple[Column, ...],
    averages: tuple[Dense, ...],
    axes: Axes,
    at: Mapping[int, Integers],
    places: int,
) -> Dense | None:
    """What `recovered` multiplies the part's measurements by, answer × measurement; None where it has none.

    Args:
        part: what was measured.
        columns, averages: of the lattice.
        axes: how the table looks at its columns.
        at: for every column of the table the queries' places along it, one an answer.
        places: how many answers there are.
    """
    if any(i not in axes for piece in part.pieces for i, _ in piece.spread):
        return None
    looked, found = set(part.columns), []
    for piece in part.pieces:
        own = [
            axes[i].on_orbits(columns[i])[at[i]] if i in axes else np.ones((1, columns[i].orbits)) for i in piece.matrix
        ]
        found.append(outer_rows(own, places) @ piece.recover)
        for i, o in piece.spread:
            members = axes[i].members(columns[i], o)
            rows = np.eye(int(columns[i].counts[o]))[at[i]] if members is None else members[at[i]]
            found.append(rows - rows.mean(axis=1, keepdims=True))
    found += [axes[i].averaged(averages[i])[at[i]][:, None] for i in axes if i not in looked]
    return outer_rows(found, places)


def squared_weights(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes
) -> Dense | None:
    """The sum of squares of what `recover` multiplies the measurements by, for every answer, to be broadcast."""
    return _by_pieces(part, columns, averages, axes, bias=False)


def bound_missed(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes
) -> Dense | None:
    """A bound on how much of every answer is missing, per record, because integers are truncated."""
    if all(piece.missing is None for piece in part.pieces):
        return None
    return _by_pieces(part, columns, averages, axes, bias=True)


def _by_pieces(
    part: IntegerPart, columns: tuple[Column, ...], averages: tuple[Dense, ...], axes: Axes, *, bias: bool
) -> Dense | None:
    """A product over pieces; for the bias the sum of all terms with at least one piece's missing part."""
    if any(i not in axes for piece in part.pieces for i, _ in piece.spread):
        return None
    looked = set(part.columns)
    outer = np.ones((1,) * len(axes))
    for i in axes:
        if i not in looked:
            mean = axes[i].averaged(averages[i])
            outer = outer * along(axes, i, np.abs(mean) if bias else np.square(mean))
    whole, kept = outer, outer
    for piece in part.pieces:
        own = [axes[i].on_orbits(columns[i]) if i in axes else np.ones((1, columns[i].orbits)) for i in piece.matrix]
        queries = kron(own)
        shape = [len(own[piece.matrix.index(i)]) if i in piece.matrix else 1 for i in axes]
        size = np.ones((1,) * len(axes))
        for i, o in piece.spread:
            size = size * along(axes, i, _spread_axis(axes[i], columns[i], o, bias=bias))
        if not bias:
            whole = whole * np.square(queries @ piece.recover).sum(axis=1).reshape(shape) * size
            continue
        times = prod(int(columns[i].counts[o]) for i, o in piece.spread)
        there = np.abs((queries @ piece.recover) @ (piece.integers * float(times))).max(axis=1)
        absent = np.zeros(len(queries)) if piece.missing is None else np.abs(queries @ piece.missing).max(axis=1)
        kept = kept * there.reshape(shape) * size
        whole = whole * (there + absent).reshape(shape) * size
    return np.asarray(whole - kept if bias else whole)


def _spread_axis(axis: Axis, column: Column, orbit: int, *, bias: bool) -> Dense:
    n = int(column.counts[orbit])
    members = axis.members(column, orbit)
    if members is None:
        return np.array([1 - 1 / n])
    centred = members - members.mean(axis=1, keepdims=True)
    return np.asarray(np.abs(centred).max(axis=1, initial=0.0) if bias else np.square(centred).sum(axis=1))


def along(axes: Iterable[int], i: int, values: Dense) -> Dense:
    """One value a query on column i, along its axis; one for all of them stays one."""
    return values.reshape([len(values) if j == i else 1 for j in axes])


ROUNDING = 2 * np.finfo(float).eps
MOST_TABLE = 200_000_000
"""Answers of one table that are made at a time."""


def fitting_shape(batch: KroneckerWorkload, table: int) -> tuple[int, ...]:
    """Of a table; refused where it does not fit into memory."""
    own = batch.tables[table]
    if own.queries > MOST_TABLE:
        raise StrategyError(f"table {own.name!r} has {own.queries:,} answers, more than fit into memory")
    return tuple(own.shape)


class TableReader(Reader):
    """Reads tables from the noisy measurements of a lattice."""

    names = None

    def __init__(self, lattice: ComponentLattice, scales: Dense) -> None:
        self.lattice, self.scales = lattice, scales
        self.columns, self.averages = lattice.columns, lattice.averages
        self._first = [np.unique(c.value, return_index=True)[1] for c in self.columns]

    @property
    def workload(self) -> KroneckerWorkload:
        """The batch that is answered."""
        return self.lattice.workload

    @property
    def noise(self) -> Noise:
        """Gaussian."""
        return self.lattice.noise

    @property
    def measurements(self) -> int:
        """How many noisy numbers there are."""
        return self.lattice.measurements

    @cached_property
    def sizes(self) -> Integers:
        """How many answers every table has."""
        return np.rint(self.workload.table_sizes()).astype(np.int64)

    def axes(self, table: int) -> dict[int, Axis]:
        """How a table looks at its columns."""
        found = {}
        for i, factor in self.lattice.workload.factors_of(table).items():
            whole = factor.given is None
            found[i] = Axis(factor.rows, None if whole else factor.matrix[:, self._first[i]])
        return found

    def shape(self, table: int) -> tuple[int, ...]:
        """Of a table; refused where it does not fit into memory."""
        return fitting_shape(self.lattice.workload, table)

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        shape, axes = self.shape(table), self.axes(table)
        found = np.zeros(shape)
        for _, start, part in self.lattice.parts_of(table, axes):
            own = noisy[start : start + int(np.prod(part.shape(self.columns), dtype=np.int64))]
            share = recover(part, self.columns, self.averages, axes, own)
            if share is not None:
                found += share
        return found

    def variances(self, table: int) -> Dense:
        """Of a table's answers, to be broadcast to its shape: a whole table has one for all."""
        axes = self.axes(table)
        found = np.zeros((1,) * len(axes))
        for g, _, part in self.lattice.parts_of(table, axes):
            own = squared_weights(part, self.columns, self.averages, axes)
            if own is not None:
                found = found + float(self.scales[g]) ** 2 * own
        return found

    def half_widths(self, table: int, confidence: float) -> Dense:
        """Of the intervals of a table's answers, to be broadcast to its shape."""
        return np.asarray(np.sqrt(2 * self.variances(table)) * erfinv(confidence))

    def rows_of(self, table: int, places: Integers) -> sparse.csr_array:
        """Rows of B for some of a table's answers, each weight times the scale of its noise."""
        axes = self.axes(table)
        at = dict(zip(axes, unravel(places, self.shape(table)), strict=True))
        found = []
        for g, start, part in self.lattice.parts_of(table, axes):
            own = weights_of(part, self.columns, self.averages, axes, at, len(places))
            if own is not None:
                found.append((start, float(self.scales[g]) * own))
        return blocks_of_rows(found, len(places), self.measurements)

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""
        return NoiseLaw(rows, 1.0, self.noise, times)

    def worst_bias(self) -> tuple[float, int]:
        """The most that an answer can be off apart from noise, as a share of its standard error; and which table's."""
        cap = self.lattice.largest_total
        worst, where = 0.0, 0
        for t in self._distinct():
            axes = self.axes(t)
            bias, variance = np.zeros((1,) * len(axes)), np.zeros((1,) * len(axes))
            for g, _, part in self.lattice.parts_of(t, axes):
                weights = squared_weights(part, self.columns, self.averages, axes)
                if weights is None:
                    continue
                variance = variance + float(self.scales[g]) ** 2 * weights
                lost = bound_missed(part, self.columns, self.averages, axes)
                bias = bias if lost is None else bias + lost
                # Rounding in floats: at most |B| |Q| per record, times the length of the sums.
                length = 64 + sum(part.shape(self.columns)) + sum(len(p.recover) for p in part.pieces)
                moved = float(self.lattice.groups[g].squares) ** 0.5
                bias = bias + ROUNDING * length * np.sqrt(weights) * moved
            share = cap * np.divide(bias, np.sqrt(variance), out=np.zeros(bias.shape), where=variance > 0)
            if float(share.max(initial=0.0)) > worst:
                worst, where = float(share.max()), t
        return worst, where

    def _distinct(self) -> Iterator[int]:
        """Tables that differ: of whole tables those of other sizes only, since all else is the same but for names."""
        batch = self.lattice.workload
        if not isinstance(self.lattice.groups, WholeGroups):
            yield from range(len(batch.tables))
            return
        # The relative rounding grows with the number of columns and their sizes: the widest tables are the worst.
        lengths = np.diff(batch.starts)
        for order in np.unique(lengths):
            there = np.flatnonzero(lengths == order)
            rows = batch.columns[batch.starts[there][:, None] + np.arange(order)]
            yield int(there[np.argmax(np.array(batch.sizes)[rows].sum(axis=1))])
