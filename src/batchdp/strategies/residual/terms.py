"""What a strategy measures of some columns: a matrix over their orbits, spreads within orbits, or both multiplied.

A `ResidualFactor` is a factor of a measurement. On `matrix` columns it looks at the orbits only, by the matrix J with
one column for every combination of them; on `spread` columns it measures I − J/|O| of one orbit O. A `ResidualTerm` is
a product of factors on different columns; columns without a factor are summed over, and queries averaged over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from batchdp.strategies.residual.columns import Column

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ResidualFactor:
    """Measure J of the matrix columns' orbits, times I − J/|O| of every spread column; recover from J⁺."""

    matrix: tuple[int, ...]
    """In ascending order."""
    spread: tuple[tuple[int, int], ...]
    """Column and orbit."""
    measure: Dense
    """J: measurement × combination of orbits, the last column fastest; 1 × 1 where there are no matrix columns."""
    recover: Dense
    """J⁺, with the queries' centring where a column is centred: combination of orbits × measurement."""

    @cached_property
    def usage(self) -> Dense:
        """Squared column norms of J."""
        return np.asarray(np.einsum("ij,ij->j", self.measure, self.measure))


@dataclass(frozen=True, eq=False)
class ResidualTerm:
    """A measurement: the product of its pieces, times `scale`."""

    pieces: tuple[ResidualFactor, ...]
    scale: float
    tables: frozenset[int] | None = None
    """The tables that are reconstructed from it, all of them if left out."""
    group: int = 0
    """Parts of one group share its part of the budget: no record uses more of it in all of them together."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it looks at, in ascending order."""
        own = [i for piece in self.pieces for i in (*piece.matrix, *(column for column, _ in piece.spread))]
        return tuple(sorted(own))


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

    def parts(self) -> Iterator[ResidualTerm]:
        """The last list fastest."""
        return (ResidualTerm(pieces, self.scale, self.tables, self.number) for pieces in product(*self.lists))


def kron(factors: Iterable[Dense]) -> Dense:
    """The Kronecker product of all factors, the last fastest; 1 × 1 of none."""
    found: Dense = np.ones((1, 1))
    for factor in factors:
        found = np.asarray(np.kron(found, factor), dtype=np.float64)
    return found


def centring(size: int) -> Dense:
    """I − J/n: what is left of a value when the average is taken away."""
    return np.eye(size) - 1 / size


def usage_of(part: ResidualTerm, columns: Sequence[Column], records: Indices) -> Dense:
    """How much of the budget every record uses: squared column norms of the part; records × columns, by value."""
    used = np.full(len(records), part.scale**2)
    for piece in part.pieces:
        used *= piece.usage[_place(piece, columns, records)]
        for i, orbit in piece.spread:
            n = int(columns[i].counts[orbit])
            used *= np.where(columns[i].orbit[columns[i].value[records[:, i]]] == orbit, 1 - 1 / n, 0.0)
    return used


def measured(part: ResidualTerm, columns: Sequence[Column], records: Indices) -> Dense:
    """The part's measurements of each record: L's columns, measurement × record."""
    found = np.full((1, len(records)), part.scale)
    for piece in part.pieces:
        found = _multiplied(found, piece.measure[:, _place(piece, columns, records)])
        for i, orbit in piece.spread:
            members = np.flatnonzero(columns[i].orbit == orbit)
            wide = np.zeros((len(members), len(columns[i].orbit)))
            wide[:, members] = centring(len(members))
            found = _multiplied(found, wide[:, columns[i].value[records[:, i]]])
    return found


def recovered(
    part: ResidualTerm, columns: Sequence[Column], factors: Sequence[Dense], averages: Sequence[Dense]
) -> Dense:
    """The part's share in a table's queries: B's rows, query × measurement.

    `factors` are query × distinct value, one row of ones where a column does not matter; `averages` say how a
    column that the part does not look at is averaged, one number a distinct value.
    """
    shape = tuple(len(F) for F in factors)
    found = np.full((int(np.prod(shape)), 1), 1 / part.scale)
    places = np.unravel_index(np.arange(len(found)), shape)
    for i in set(range(len(columns))) - set(part.columns):
        found = found * (factors[i] @ averages[i])[places[i]][:, None]
    for piece in part.pieces:
        if piece.matrix:
            own = kron([factors[i] @ orbit_average(columns[i]) for i in piece.matrix])
            own_place = np.ravel_multi_index([places[i] for i in piece.matrix], [shape[i] for i in piece.matrix])
            found = _multiplied(found.T, (own @ piece.recover)[own_place].T).T
        else:
            found = found * piece.recover[0, 0]
        for i, orbit in piece.spread:
            members = np.flatnonzero(columns[i].orbit == orbit)
            centred = factors[i][:, members] @ centring(len(members))
            found = _multiplied(found.T, centred[places[i]].T).T
    return found


def variances(
    part: ResidualTerm, columns: Sequence[Column], factors: Mapping[int, Dense], averages: Sequence[Dense]
) -> Dense:
    """What the part adds to the variance of every cell of a table at ρ = ½.

    `factors` are those of the table's own columns, in ascending order, which are the axes of the result.
    """
    total = np.full((1,) * len(factors), 1 / part.scale**2)
    looked = set(part.columns)
    for i in set(factors) - looked:
        total = total * _along({i: factors[i]}, np.square(factors[i] @ averages[i]), factors)
    for piece in part.pieces:
        rows = {i: _rows(factors, i, columns[i]) for i in piece.matrix}
        own = kron(rows.values())
        total = total * _along(rows, np.square(own @ piece.recover).sum(axis=1), factors)
        for i, orbit in piece.spread:
            if i not in factors:
                return np.zeros((1,) * len(factors))  # ones have no spread
            members = factors[i][:, columns[i].orbit == orbit]
            spread = np.square(members - members.mean(axis=1, keepdims=True)).sum(axis=1)
            total = total * _along({i: factors[i]}, spread, factors)
    return np.asarray(total)


def reproduced(
    part: ResidualTerm,
    columns: Sequence[Column],
    factors: Mapping[int, Dense],
    averages: Sequence[Dense],
    record: Indices,
) -> Dense:
    """What the part gives back of one record's answers in a table: B L, with the table's columns as axes."""
    total = np.ones((1,) * len(factors))
    for i in set(factors) - set(part.columns):
        total = total * _along({i: factors[i]}, factors[i] @ averages[i], factors)
    for piece in part.pieces:
        rows = {i: _rows(factors, i, columns[i]) for i in piece.matrix}
        place = _place(piece, columns, record[None])[0]
        total = total * _along(rows, kron(rows.values()) @ (piece.recover @ piece.measure[:, place]), factors)
        for i, orbit in piece.spread:
            value = columns[i].value[record[i]]
            if i not in factors or columns[i].orbit[value] != orbit:
                return np.zeros((1,) * len(factors))
            average = factors[i][:, columns[i].orbit == orbit].mean(axis=1)
            total = total * _along({i: factors[i]}, factors[i][:, value] - average, factors)
    return np.asarray(total)


def orbit_average(column: Column) -> Dense:
    """Distinct value × orbit: what a query on values is on average on each orbit."""
    found = np.zeros((len(column.orbit), column.orbits))
    found[np.arange(len(column.orbit)), column.orbit] = 1 / column.counts[column.orbit]
    return found


def _rows(factors: Mapping[int, Dense], i: int, column: Column) -> Dense:
    return factors[i] @ orbit_average(column) if i in factors else np.ones((1, column.orbits))


def _along(rows: Mapping[int, Dense], values: Dense, factors: Mapping[int, Dense]) -> Dense:
    """One value for each combination of some columns' rows, with an axis for every column of the table."""
    return values.reshape([len(rows[i]) if i in rows else 1 for i in factors])


def _place(piece: ResidualFactor, columns: Sequence[Column], records: Indices) -> Indices:
    """Which column of J every record has."""
    if not piece.matrix:
        return np.zeros(len(records), dtype=np.int64)
    orbits = [columns[i].orbit[columns[i].value[records[:, i]]] for i in piece.matrix]
    return np.ravel_multi_index(orbits, [columns[i].orbits for i in piece.matrix]).astype(np.int64)


def _multiplied(first: Dense, second: Dense) -> Dense:
    """Column by column, all products of an entry of the first and one of the second."""
    return (first[:, None, :] * second[None, :, :]).reshape(-1, first.shape[1])
