"""Tables from noisy components: answers, variances and bias, one table at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import erfinv

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Plain
from batchdp.mechanism.components.axes import (
    Axis,
    bound_missed,
    recover,
    squared_weights,
    weights_of,
)
from batchdp.mechanism.components.lattice import ComponentLattice, WholeGroups
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.reader import Reader, blocks_of_rows, unravel
from batchdp.privacy import Noise
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]

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
