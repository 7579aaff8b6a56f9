"""Tables from noisy components: answers, variances and bias, one table at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np
from scipy.special import erfinv

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import Integers
from batchdp.mechanism.reader import outer_rows
from batchdp.mechanism.residual.integers import IntegerPiece, count_spread
from batchdp.mechanism.residual.lattice import ComponentLattice, PieceProduct, WholeGroups
from batchdp.mechanism.tables import ROUNDING, Axis, LatticeReader, TableAxes, along
from batchdp.strategies.residual.terms import kron


class TableView:
    """How a table is read from residuals."""

    def __init__(self, lattice: ComponentLattice, table: int, axes: dict[int, Axis]) -> None:
        self.lattice, self.table, self.axes = lattice, table, axes
        self.columns = lattice.columns
        self.one = np.ones((1,) * len(axes))

    def parts(self) -> Iterator[tuple[int, int, PieceProduct]]:
        """Group, first measurement and product of pieces of all that it is read from."""
        for g, start, part in self.lattice.parts_of(self.table, self.axes):
            # What does not look at a column has no spread along it.
            if all(i in self.axes for piece in part.pieces for i, _ in piece.spread):
                yield g, start, part

    def _on_orbits(self, i: int) -> Dense:
        return self.axes[i].on_orbits(self.columns[i]) if i in self.axes else np.ones((1, self.columns[i].orbits))

    def _averages(self, part: PieceProduct) -> dict[int, Dense]:
        """What queries make of the averages of columns that a part does not look at."""
        looked = part.columns
        return {i: axis.average(self.lattice.averages[i]) for i, axis in self.axes.items() if i not in looked}

    def recover(self, part: PieceProduct, noisy: Integers) -> Dense:
        """The part's share in the table's answers, to be broadcast to the table's shape."""
        y = noisy.astype(np.float64).reshape(part.shape(self.columns))
        order: list[int] = []  # the column of every axis
        for piece in part.pieces:
            axis = len(order)
            y = _multiply(y, axis, piece.recover)
            y = y.reshape([*y.shape[:axis], *(self.columns[i].orbits for i in piece.matrix), *y.shape[axis + 1 :]])
            for i in piece.matrix:
                y = _multiply(y, len(order), self._on_orbits(i))
                order.append(i)
            for i, o in piece.spread:
                y = y - y.mean(axis=len(order), keepdims=True)
                members = self.axes[i].members(self.columns[i], o)
                y = y if members is None else _multiply(y, len(order), members)
                order.append(i)
        y = y.squeeze(axis=tuple(a for a, i in enumerate(order) if i not in self.axes))  # of one row each
        order = [i for i in order if i in self.axes]
        y = y.transpose(np.argsort(order)) if order else y
        y = y.reshape([y.shape[sorted(order).index(i)] if i in order else 1 for i in self.axes])
        for i, average in self._averages(part).items():
            y = y * along(self.axes, i, average)
        return np.asarray(y, dtype=np.float64)

    def weights(self, part: PieceProduct, at: Mapping[int, Integers], places: int) -> Dense:
        """What `recover` multiplies the part's measurements by, answer × measurement; `at` as in `LatticeReader`."""
        found = []
        for piece in part.pieces:
            own = [self._on_orbits(i)[at[i]] if i in self.axes else self._on_orbits(i) for i in piece.matrix]
            found.append(outer_rows(own, places) @ piece.recover)
            for i, o in piece.spread:
                members = self.axes[i].members(self.columns[i], o)
                rows = np.eye(int(self.columns[i].counts[o]))[at[i]] if members is None else members[at[i]]
                found.append(rows - rows.mean(axis=1, keepdims=True))
        found += [average[at[i]][:, None] for i, average in self._averages(part).items()]
        return outer_rows(found, places)

    def squares(self, part: PieceProduct) -> Dense:
        """The sum of squares of what `recover` multiplies the measurements by, for every answer, to be broadcast."""
        found = self.one
        for i, average in self._averages(part).items():
            found = found * along(self.axes, i, np.square(average))
        for piece in part.pieces:
            queries, shape = self._queries(piece)
            size = self._spread(piece, lambda centred: np.square(centred).sum(axis=1))
            found = found * np.square(queries @ piece.recover).sum(axis=1).reshape(shape) * size
        return found

    def missed(self, part: PieceProduct) -> Dense:
        """A bound on how much of every answer is missing, per record, because integers are truncated.

        It is the sum of all products over pieces with at least one piece's missing part.
        """
        kept = self.one
        for i, average in self._averages(part).items():
            kept = kept * along(self.axes, i, np.abs(average))
        whole = kept
        for piece in part.pieces:
            queries, shape = self._queries(piece)
            size = self._spread(piece, lambda centred: np.abs(centred).max(axis=1, initial=0.0))
            times = float(count_spread(piece.spread, self.columns))
            there = np.abs((queries @ piece.recover) @ (piece.integers * times)).max(axis=1)
            absent = np.zeros(len(queries)) if piece.missing is None else np.abs(queries @ piece.missing).max(axis=1)
            kept = kept * there.reshape(shape) * size
            whole = whole * (there + absent).reshape(shape) * size
        return np.asarray(whole - kept)

    def _queries(self, piece: IntegerPiece) -> tuple[Dense, list[int]]:
        """Query × combination of orbits, and the shape of the queries in the table's."""
        own = {i: self._on_orbits(i) for i in piece.matrix}
        return kron(list(own.values())), [len(own[i]) if i in own else 1 for i in self.axes]

    def _spread(self, piece: IntegerPiece, size: Callable[[Dense], Dense]) -> Dense:
        """The sizes of what queries make of the values of every spread, apart from their average."""
        found = self.one
        for i, o in piece.spread:
            members = self.axes[i].members(self.columns[i], o)
            if members is None:
                own = np.array([1 - 1 / int(self.columns[i].counts[o])])
            else:
                own = size(members - members.mean(axis=1, keepdims=True))
            found = found * along(self.axes, i, own)
        return found


def _multiply(y: Dense, axis: int, rows: Dense) -> Dense:
    return np.moveaxis(np.moveaxis(y, axis, -1) @ rows.T, -1, axis)


class TableReader(LatticeReader):
    """Reads tables from the noisy measurements of residuals."""

    lattice: ComponentLattice

    def __init__(self, lattice: ComponentLattice, scales: Dense) -> None:
        super().__init__(lattice, scales)
        self._axes = TableAxes(lattice.workload, lattice.columns)

    def _view(self, table: int) -> TableView:
        return TableView(self.lattice, table, self._axes.of(table))

    def values(self, table: int, noisy: Integers) -> Dense:
        """The private answers of a table."""
        found, view = np.zeros(self.shape(table)), self._view(table)
        for _, start, part in view.parts():
            found += view.recover(part, noisy[start : start + prod(part.shape(self.lattice.columns))])
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
