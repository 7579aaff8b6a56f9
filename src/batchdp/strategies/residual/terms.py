"""What a strategy measures of some columns: a matrix over their orbits, spreads within orbits, or both multiplied.

A `ResidualFactor` is a factor of a measurement. On `matrix` columns it looks at the orbits only, by the matrix J with
one column for every combination of them; on `spread` columns it measures I − J/|O| of one orbit O. A `ResidualTerm` is
a product of factors on different columns; columns without a factor are summed over, and queries averaged over them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense, Indices, outer_rows
from batchdp.strategies.residual.columns import Axis, Column, JointAxis, along


@dataclass(frozen=True, eq=False)
class ResidualFactor:
    """Measure J of the matrix columns' orbits, times I − J/|O| of every spread column; recover from J⁺."""

    matrix: tuple[int, ...]
    """In ascending order."""
    spread: tuple[tuple[int, int], ...]
    """Column and orbit."""
    measure: NDArray[Any]
    """J: measurement × combination of orbits, the last column fastest; 1 × 1 where there are no matrix columns."""
    recover: Dense
    """J⁺, with the queries' centring where a column is centred: combination of orbits × measurement."""

    @property
    def columns(self) -> tuple[int, ...]:
        """That it looks at."""
        return *self.matrix, *(i for i, _ in self.spread)


Piece = TypeVar("Piece", bound=ResidualFactor, covariant=True)


@dataclass(frozen=True, eq=False)
class ResidualTerm(Generic[Piece]):
    """A measurement: the product of its pieces, times `scale`."""

    pieces: tuple[Piece, ...]
    scale: float
    tables: frozenset[int] | None = None
    """The tables that are reconstructed from it, all of them if left out."""
    group: int = 0
    """Parts of one group share its part of the budget: no record uses more of it in all of them together."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it looks at, in ascending order."""
        return tuple(sorted(i for piece in self.pieces for i in piece.columns))

    def shape(self, columns: Sequence[Column]) -> tuple[int, ...]:
        """Of its measurements: piece after piece, the rows, then the values of every spread."""
        sizes: list[int] = []
        for piece in self.pieces:
            sizes += [len(piece.measure), *(int(columns[i].counts[o]) for i, o in piece.spread)]
        return tuple(sizes)

    def serves(self, table: int, looked: Container[int]) -> bool:
        """Whether it has a share in a table of these columns: what does not look at one has no spread along it."""
        spread = (i for piece in self.pieces for i, _ in piece.spread)
        return (self.tables is None or table in self.tables) and all(i in looked for i in spread)


@dataclass(frozen=True, eq=False)
class TermGroup:
    """Parts that share a part of the budget: one piece of every list, in all combinations, times `scale`.

    The lists look at different columns. No record uses more than 1 of a list, so none more than scale² of the group.
    """

    lists: tuple[tuple[ResidualFactor, ...], ...]
    scale: float
    tables: frozenset[int] | None = None
    """As in `ResidualTerm`."""
    number: int = 0

    def parts(self) -> Iterator[ResidualTerm[ResidualFactor]]:
        """The last list fastest."""
        return (ResidualTerm(pieces, self.scale, self.tables, self.number) for pieces in product(*self.lists))


def kron(factors: Iterable[Dense]) -> Dense:
    """The Kronecker product of all factors, the last fastest; 1 × 1 of none."""
    found: Dense = np.ones((1, 1))
    for factor in factors:
        found = np.asarray(np.kron(found, factor), dtype=np.float64)
    return found


def measured(part: ResidualTerm[Any], columns: Sequence[Column], records: Indices) -> Dense:
    """The part's measurements of each record: L's columns, measurement × record."""
    found = np.full((1, len(records)), part.scale)
    for piece in part.pieces:
        found = _multiplied(found, piece.measure[:, _place(piece, columns, records)])
        for i, orbit in piece.spread:
            members, value = np.flatnonzero(columns[i].orbit == orbit), columns[i].value[records[:, i]]
            spread = ((members[:, None] == value) - 1 / len(members)) * (columns[i].orbit[value] == orbit)
            found = _multiplied(found, spread)
    return found


def _place(piece: ResidualFactor, columns: Sequence[Column], records: Indices) -> Indices:
    """Which column of J every record has."""
    if not piece.matrix:
        return np.zeros(len(records), dtype=np.int64)
    orbits = [columns[i].orbit[columns[i].value[records[:, i]]] for i in piece.matrix]
    return np.ravel_multi_index(orbits, [columns[i].orbits for i in piece.matrix]).astype(np.int64)


def _multiplied(first: Dense, second: Dense) -> Dense:
    """Column by column, all products of an entry of the first and one of the second."""
    return (first[:, None, :] * second[None, :, :]).reshape(-1, first.shape[1])


class TableView:
    """How a table is read from what is measured of residuals.

    Args:
        columns: all columns of the batch.
        averages: how each is averaged where a part does not look at it, one number per distinct value.
        axes: how the table looks at its columns, in ascending order.
    """

    def __init__(
        self, columns: Sequence[Column], averages: Sequence[Dense], axes: Mapping[int, Axis | JointAxis]
    ) -> None:
        self.columns, self.averages, self.axes = columns, averages, axes
        self.one = np.ones((1,) * len(axes))
        self._axis_of = {c: i for i, axis in axes.items() for c in axis.looked}

    def _sides(self, piece: ResidualFactor) -> list[tuple[int, tuple[int, ...], Dense]]:
        """The axes of a piece's matrix columns, those columns of each, and query × combination of their orbits.

        A column that the table does not ask for is an axis of one query, which sums over it.
        """
        kept: dict[int, tuple[int, ...]] = {}
        for c in piece.matrix:
            axis = self._axis_of.get(c, c)
            kept[axis] = (*kept.get(axis, ()), c)
        order = {axis: place for place, axis in enumerate(self.axes)}
        found = []
        for axis in sorted(kept, key=lambda axis: order.get(axis, -1)):
            own = kept[axis]
            rows = self.axes[axis].on_orbits(own, self.averages) if axis in order else np.ones((1, self._orbits(own)))
            found.append((axis, own, rows))
        return found

    def _is_parted(self, part: ResidualTerm[Any]) -> bool:
        """Whether several pieces look at one axis: what a table is read from has tied columns in one piece."""
        seen = [{self._axis_of[c] for c in piece.columns if c in self._axis_of} for piece in part.pieces]
        return sum(map(len, seen)) > len(set().union(*seen))

    def _orbits(self, columns: Iterable[int]) -> int:
        return prod(self.columns[c].orbits for c in columns)

    def _in_order(self, rows: Dense, sides: Sequence[tuple[int, tuple[int, ...], Dense]]) -> Dense:
        """Columns that are combinations of the sides' orbits, as those of the piece's matrix columns in their order."""
        given = [c for _, own, _ in sides for c in own]
        if given == sorted(given):
            return rows
        wide = rows.reshape(-1, *(self.columns[c].orbits for c in given))
        return wide.transpose(0, *(1 + np.argsort(given))).reshape(rows.shape)

    def _averages(self, part: ResidualTerm[Any]) -> dict[int, Dense]:
        """What queries make of the averages of axes that a part does not look at."""
        looked = set(part.columns)
        away = {i: axis for i, axis in self.axes.items() if looked.isdisjoint(axis.looked)}
        return {i: axis.on_orbits((), self.averages)[:, 0] for i, axis in away.items()}

    def recover(self, part: ResidualTerm[Any], measured: Dense) -> Dense:
        """The part's share in the table's answers, to be broadcast to the table's shape."""
        if self._is_parted(part):
            return 0 * self.one
        y = measured.reshape(part.shape(self.columns))
        order: list[int] = []  # which of the table's axes every axis is
        for piece in part.pieces:
            at, sides = len(order), self._sides(piece)
            y = _multiply(y, at, piece.recover)
            given = [c for _, own, _ in sides for c in own]
            before, behind = y.shape[:at], y.shape[at + 1 :]
            if given != sorted(given):
                y = y.reshape([*before, *(self.columns[c].orbits for c in piece.matrix), *behind])
                y = np.moveaxis(y, [at + piece.matrix.index(c) for c in given], range(at, at + len(given)))
            y = y.reshape([*before, *(self._orbits(own) for _, own, _ in sides), *behind])
            for i, _, rows in sides:
                y = _multiply(y, len(order), rows)
                order.append(i)
            for i, o in piece.spread:
                y = y - y.mean(axis=len(order), keepdims=True)
                members = self.axes[i].members(o)
                y = y if members is None else _multiply(y, len(order), members)
                order.append(i)
        y = y.squeeze(axis=tuple(a for a, i in enumerate(order) if i not in self.axes))  # of one row each
        order = [i for i in order if i in self.axes]
        place = {i: order.index(i) for i in self.axes if i in order}
        y = y.transpose(list(place.values())) if order else y
        y = y.reshape([y.shape[[*place].index(i)] if i in place else 1 for i in self.axes])
        for i, average in self._averages(part).items():
            y = y * along(self.axes, i, average)
        return np.asarray(y, dtype=np.float64)

    def weights(self, part: ResidualTerm[Any], at: Mapping[int, Indices], places: int) -> Dense:
        """What `recover` multiplies the part's measurements by, answer × measurement; `at` as in `LatticeReader`."""
        if any(i not in self.axes for piece in part.pieces for i, _ in piece.spread) or self._is_parted(part):
            return np.zeros((places, prod(part.shape(self.columns))))
        found = []
        for piece in part.pieces:
            sides = self._sides(piece)
            own = [rows[at[i]] if i in self.axes else rows for i, _, rows in sides]
            found.append(self._in_order(outer_rows(own, places), sides) @ piece.recover)
            for i, o in piece.spread:
                members = self.axes[i].members(o)
                rows = np.eye(int(self.columns[i].counts[o]))[at[i]] if members is None else members[at[i]]
                found.append(rows - rows.mean(axis=1, keepdims=True))
        found += [average[at[i]][:, None] for i, average in self._averages(part).items()]
        return outer_rows(found, places)

    def squares(self, part: ResidualTerm[Any]) -> Dense:
        """The sum of squares of what `recover` multiplies the measurements by, for every answer, to be broadcast."""
        if self._is_parted(part):
            return 0 * self.one
        found = self.one
        for i, average in self._averages(part).items():
            found = found * along(self.axes, i, np.square(average))
        for piece in part.pieces:
            queries, shape = self._queries(piece)
            size = self._spread(piece, lambda centred: np.square(centred).sum(axis=1))
            found = found * np.square(queries @ piece.recover).sum(axis=1).reshape(shape) * size
        return found

    def _queries(self, piece: ResidualFactor) -> tuple[Dense, list[int]]:
        """Query × combination of orbits, and the shape of the queries in the table's."""
        sides = self._sides(piece)
        own = {i: len(rows) for i, _, rows in sides}
        return self._in_order(kron(rows for _, _, rows in sides), sides), [own.get(i, 1) for i in self.axes]

    def _spread(self, piece: ResidualFactor, size: Callable[[Dense], Dense]) -> Dense:
        """The sizes of what queries make of the values of every spread, apart from their average."""
        found = self.one
        for i, o in piece.spread:
            members = self.axes[i].members(o)
            if members is None:
                own = np.array([1 - 1 / int(self.columns[i].counts[o])])
            else:
                own = size(members - members.mean(axis=1, keepdims=True))
            found = found * along(self.axes, i, own)
        return found


def _multiply(y: Dense, axis: int, rows: Dense) -> Dense:
    return np.moveaxis(np.moveaxis(y, axis, -1) @ rows.T, -1, axis)
