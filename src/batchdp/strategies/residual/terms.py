"""What a strategy measures of some columns: a matrix over their orbits, spreads within orbits, or both multiplied.

A `ResidualFactor` is a factor of a measurement. On `matrix` columns it looks at the orbits only, by the matrix J with
one column for every combination of them; on `spread` columns it measures I − J/|O| of one orbit O. A `ResidualTerm` is
a product of factors on different columns; columns without a factor are summed over, and queries averaged over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.strategies.residual.columns import Column


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


def _measures(part: ResidualTerm, columns: Sequence[Column], records: Indices) -> Iterator[Dense]:
    """The part's measurements of each record, in factors: measurement × record."""
    for piece in part.pieces:
        yield piece.measure[:, _place(piece, columns, records)]
        for i, orbit in piece.spread:
            members, value = np.flatnonzero(columns[i].orbit == orbit), columns[i].value[records[:, i]]
            yield ((members[:, None] == value) - 1 / len(members)) * (columns[i].orbit[value] == orbit)


def measured(part: ResidualTerm, columns: Sequence[Column], records: Indices) -> Dense:
    """The part's measurements of each record: L's columns, measurement × record."""
    return reduce(_multiplied, _measures(part, columns, records), np.full((1, len(records)), part.scale))


def _shares(
    part: ResidualTerm, columns: Sequence[Column], factors: Mapping[int, Dense], averages: Sequence[Dense]
) -> Iterator[tuple[tuple[int, ...], Dense]]:
    """The part's share in a table's queries, in factors, `_measures` last: of some columns query × measurement.

    `factors` are query × distinct value, by column; one row of ones where a column is not among them. `averages` say
    how a column that the part does not look at is averaged, one number a distinct value.
    """
    for i in sorted(set(factors) - set(part.columns)):
        yield (i,), (factors[i] @ averages[i])[:, None]
    for piece in part.pieces:
        own = (
            factors[i] @ orbit_average(columns[i]) if i in factors else np.ones((1, columns[i].orbits))
            for i in piece.matrix
        )
        yield piece.matrix, kron(own) @ piece.recover
        for i, orbit in piece.spread:
            members = factors[i][:, columns[i].orbit == orbit]
            yield (i,), members - members.mean(axis=1, keepdims=True)


def recovered(
    part: ResidualTerm, columns: Sequence[Column], factors: Sequence[Dense], averages: Sequence[Dense]
) -> Dense:
    """The part's share in a table's queries: B's rows, query × measurement; one factor a column."""
    shape = tuple(len(F) for F in factors)
    found = np.full((int(np.prod(shape)), 1), 1 / part.scale)
    places = np.unravel_index(np.arange(len(found)), shape)
    for looked, own in _shares(part, columns, dict(enumerate(factors)), averages):
        sizes = [shape[i] for i in looked]
        place = np.ravel_multi_index([places[i] for i in looked], sizes) if looked else np.zeros(len(found), np.int64)
        found = _multiplied(found.T, own[place].T).T
    return found


def variances(
    part: ResidualTerm, columns: Sequence[Column], factors: Mapping[int, Dense], averages: Sequence[Dense]
) -> Dense:
    """What the part adds to the variance of every cell of a table at ρ = ½.

    `factors` are those of the table's own columns, in ascending order, which are the axes of the result.
    """
    total = np.full((1,) * len(factors), 1 / part.scale**2)
    for looked, own in _shares(part, columns, factors, averages):
        total = total * _along(looked, np.square(own).sum(axis=1), factors)
    return total


def reproduced(
    part: ResidualTerm,
    columns: Sequence[Column],
    factors: Mapping[int, Dense],
    averages: Sequence[Dense],
    records: Indices,
) -> Iterator[Dense]:
    """What the part gives back of each record's answers in a table: B L, with the table's columns as axes."""
    shares, own = list(_shares(part, columns, factors, averages)), list(_measures(part, columns, records))
    own = [np.ones((1, len(records)))] * (len(shares) - len(own)) + own
    for r in range(len(records)):
        total = np.ones((1,) * len(factors))
        for (looked, share), measure in zip(shares, own, strict=True):
            total = total * _along(looked, share @ measure[:, r], factors)
        yield total


def orbit_average(column: Column) -> Dense:
    """Distinct value × orbit: what a query on values is on average on each orbit."""
    found = np.zeros((len(column.orbit), column.orbits))
    found[np.arange(len(column.orbit)), column.orbit] = 1 / column.counts[column.orbit]
    return found


def _along(looked: tuple[int, ...], values: Dense, factors: Mapping[int, Dense]) -> Dense:
    """One value for each combination of some columns' rows, with an axis for every column of the table."""
    return values.reshape([len(F) if i in looked else 1 for i, F in factors.items()])


def _place(piece: ResidualFactor, columns: Sequence[Column], records: Indices) -> Indices:
    """Which column of J every record has."""
    if not piece.matrix:
        return np.zeros(len(records), dtype=np.int64)
    orbits = [columns[i].orbit[columns[i].value[records[:, i]]] for i in piece.matrix]
    return np.ravel_multi_index(orbits, [columns[i].orbits for i in piece.matrix]).astype(np.int64)


def _multiplied(first: Dense, second: Dense) -> Dense:
    """Column by column, all products of an entry of the first and one of the second."""
    return (first[:, None, :] * second[None, :, :]).reshape(-1, first.shape[1])
