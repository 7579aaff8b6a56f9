"""Tables from noisy components: answers, variances and bias, one table at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from scipy.special import erfinv

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.residual.integers import count_spread
from batchdp.mechanism.residual.lattice import ComponentLattice, IntegerTerm, WholeGroups
from batchdp.mechanism.tables import ROUNDING, LatticeReader
from batchdp.strategies.residual.columns import along, axes_of
from batchdp.strategies.residual.terms import TableView


class IntegerView(TableView):
    """How a table is read from residuals in integers."""

    def __init__(self, lattice: ComponentLattice, table: int) -> None:
        super().__init__(lattice.columns, lattice.averages, axes_of(lattice.workload, table, lattice.columns))
        self.lattice, self.table = lattice, table

    def parts(self) -> Iterator[tuple[int, int, IntegerTerm]]:
        """Group, first measurement and product of pieces of all that it is read from."""
        return self.lattice.parts_of(self.table, self.axes)

    def missed(self, part: IntegerTerm) -> Dense:
        """A bound on how much of every answer is missing, per record, because integers are truncated.

        It is the sum of all products over pieces with at least one piece's missing part.
        """
        if self._is_parted(part):
            return 0 * self.one
        kept = self.one
        for i, average in self._averages(part).items():
            kept = kept * along(self.axes, i, np.abs(average))
        whole = kept
        for piece in part.pieces:
            queries, shape = self._queries(piece)
            size = self._spread(piece, lambda centred: np.abs(centred).max(axis=1, initial=0.0))
            times = float(count_spread(piece.spread, self.columns))
            there = np.abs((queries @ piece.recover) @ (piece.measure * times)).max(axis=1)
            absent = np.zeros(len(queries)) if piece.missing is None else np.abs(queries @ piece.missing).max(axis=1)
            kept = kept * there.reshape(shape) * size
            whole = whole * (there + absent).reshape(shape) * size
        return np.asarray(whole - kept)


class TableReader(LatticeReader):
    """Reads tables from the noisy measurements of residuals."""

    lattice: ComponentLattice

    def _view(self, table: int) -> IntegerView:
        return IntegerView(self.lattice, table)

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        found, view = np.zeros(self.shape(table)), self._view(table)
        for _, start, part in view.parts():
            own = noisy[start : start + prod(part.shape(view.columns))]
            found += view.recover(part, own.astype(np.float64))
        return found

    def variances(self, table: int) -> Dense:
        """Of a table's answers, to be broadcast to its shape: a whole table has one for all."""
        view = self._view(table)
        return sum((float(self.scales[g]) ** 2 * view.squares(part) for g, _, part in view.parts()), 0 * view.one)

    def half_widths(self, table: int, confidence: float) -> Dense:
        """Of the intervals of a table's answers, to be broadcast to its shape."""
        return np.asarray(np.sqrt(2 * self.variances(table)) * erfinv(confidence))

    def weights(self, table: int, at: dict[int, Integers], places: int) -> Iterator[tuple[int, Dense]]:
        """What some answers make of every part, times the scale of its noise."""
        view = self._view(table)
        for g, start, part in view.parts():
            yield start, float(self.scales[g]) * view.weights(part, at, places)

    def bias_share(self, table: int) -> float:
        """The most that an answer of a table can be off apart from noise, as a share of its standard error."""
        view = self._view(table)
        bias = variance = 0 * view.one
        for g, _, part in view.parts():
            squares = view.squares(part)
            variance = variance + float(self.scales[g]) ** 2 * squares
            if any(piece.missing is not None for piece in part.pieces):
                bias = bias + view.missed(part)
            # Rounding in floats: at most |B| |Q| per record, times the length of the sums.
            length = 64 + sum(part.shape(view.columns)) + sum(len(p.recover) for p in part.pieces)
            bias = bias + ROUNDING * length * np.sqrt(squares) * float(self.lattice.groups[g].moved) ** 0.5
        share = np.divide(bias, np.sqrt(variance), out=np.zeros(bias.shape), where=variance > 0)
        return float((self.lattice.largest_total * share).max(initial=0.0))

    def distinct(self) -> Iterator[int]:
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
