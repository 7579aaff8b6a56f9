"""A strategy over components: what is measured of which columns, with what share of the budget.

The measurements of all parts together are L, with L2 sensitivity 1: Gaussian noise of variance 1 / 2ρ on each is ρ-zCDP
when one record is added or removed. A table is reconstructed from the parts that have a share in its queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np

from batchdp.linalg.fixed_point import FixedPoint, Pace
from batchdp.linalg.matrix import Dense, Indices
from batchdp.privacy import GAUSSIAN, Noise
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, axes_of
from batchdp.strategies.residual.terms import ResidualFactor, ResidualTerm, TableView, TermGroup, measured
from batchdp.strategies.strategy import FactoredStrategy
from batchdp.workloads.kronecker import KroneckerWorkload


@dataclass(frozen=True, eq=False)
class Below:
    """Where some tables, all of as many columns, have one of their components: table, component, Π_{C∖A} 1/n_j."""

    tables: Indices
    components: Indices
    average: Dense


@dataclass(frozen=True, eq=False)
class Closure:
    """All components of the asked tables, fewest columns first; those of a one-valued column are left out."""

    sets: tuple[Indices, ...]
    """By number of columns: one component per row, the columns in ascending order."""
    below: tuple[Below, ...]
    freedom: Dense
    """D_A / N_A: the squared column norm of P_A, which is also every diagonal entry of it."""
    dimension: Dense
    """D_A."""

    @property
    def size(self) -> int:
        """How many components there are."""
        return len(self.freedom)

    def columns_of(self, component: int) -> tuple[int, ...]:
        """The columns of a component."""
        for rows in self.sets:
            if component < len(rows):
                return tuple(int(i) for i in rows[component])
            component -= len(rows)
        raise IndexError(component)

    def find(self, columns: tuple[int, ...]) -> int | None:
        """The number of a component, None where nothing asks for it."""
        start = sum(len(rows) for rows in self.sets[: len(columns)])
        if len(columns) >= len(self.sets):
            return None
        there = np.flatnonzero(np.all(self.sets[len(columns)] == np.array(columns, dtype=np.int64), axis=1))
        return start + int(there[0]) if there.size else None

    def within(self, columns: Iterable[int]) -> Iterator[int]:
        """The numbers of all components of some columns, fewest columns first."""
        looked = sorted(columns)
        every = (own for kept in range(len(looked) + 1) for own in combinations(looked, kept))
        return (found for found in map(self.find, every) if found is not None)

    def up(self, tables: Dense, power: int) -> Dense:
        """For every component the sum over the tables above it of a table's number times average^power."""
        found = np.zeros(self.size)
        for part in self.below:
            found += np.bincount(part.components, tables[part.tables] * part.average**power, minlength=self.size)
        return found

    def down(self, components: Dense, power: int, tables: int) -> Dense:
        """For every table the sum over its components of a component's number times average^power."""
        found = np.zeros(tables)
        for part in self.below:
            found[part.tables] += components[part.components] * part.average**power
        return found


def is_whole(batch: KroneckerWorkload) -> bool:
    """Whether every table counts each combination of its columns' values."""
    return all(factor.given is None for own in batch.factors for factor in own)


def closure(batch: KroneckerWorkload) -> Closure:
    """The components of a batch of whole tables."""
    sizes = np.array(batch.sizes, dtype=float)
    lengths = np.diff(batch.starts)
    pieces: list[tuple[Indices, Indices, Dense]] = []  # tables, the columns kept, the average over the others
    for order in np.unique(lengths):
        tables = np.flatnonzero(lengths == order)
        asked = batch.columns[batch.starts[tables][:, None] + np.arange(order)]
        inverse = 1 / sizes[asked]
        for kept in range(order + 1):
            for places in combinations(range(order), kept):
                others = [place for place in range(order) if place not in places]
                columns = asked[:, list(places)]
                there = np.all(sizes[columns] > 1, axis=1)
                pieces.append((tables[there], columns[there], inverse[there][:, others].prod(axis=1)))
    sets: list[Indices] = []
    below: list[Below] = []
    start = 0
    for kept in range(int(lengths.max(initial=0)) + 1):
        here = [piece for piece in pieces if piece[1].shape[1] == kept and len(piece[0])]
        rows, numbers = _distinct(
            np.concatenate([p[1] for p in here]) if here else np.zeros((0, kept), np.int64), len(sizes)
        )
        sets.append(rows)
        ends = np.cumsum([len(p[0]) for p in here])
        for (tables, _, average), own in zip(here, np.split(numbers, ends[:-1]) if here else [], strict=True):
            below.append(Below(tables, start + own, average))
        start += len(rows)
    freedom = np.concatenate([np.prod(1 - 1 / sizes[rows], axis=1) for rows in sets])
    dimension = np.concatenate([np.prod(sizes[rows] - 1, axis=1) for rows in sets])
    return Closure(tuple(sets), tuple(below), freedom, dimension)


def _distinct(rows: Indices, columns: int) -> tuple[Indices, Indices]:
    """The distinct rows in ascending order, and the number of each row among them."""
    _, first, numbers = np.unique(keys_of(rows, columns), return_index=True, return_inverse=True)
    return rows[first], numbers.astype(np.int64)


def keys_of(rows: Indices, columns: int) -> Any:
    """A whole number for every row of numbers of columns, in the order of the rows; Python's own where it is large."""
    large = rows.shape[1] * np.log2(columns + 1) > 62
    found = np.zeros(len(rows), dtype=object if large else np.int64)
    for place in rows.T:
        found = found * columns + place
    return found


def least_sum(found: Closure, weights: Dense) -> tuple[Dense, float]:
    """Every component's share of the budget for the least weighted sum of squared errors, and that sum at ρ = ½."""
    roots = np.sqrt(found.up(weights, 1) * found.dimension * found.freedom)
    total = float(roots.sum())
    return roots / total, total**2


def cell_variances(found: Closure, shares: Dense, tables: int) -> Dense:
    """The variance of each cell of every table at ρ = ½: Σ_A (Π_{C∖A} 1/n_j)² (D_A / N_A)² / p_A."""
    return found.down(found.freedom**2 / shares, 2, tables)


TOLERANCE = 1e-5
"""Found over limit, less 1."""
MOST_ROUNDS = 3000
PACE = Pace(exponent=1.5, first=2 / 3, safe=0.5, largest_move=2.0)
ROUND_SECONDS, ENTRY_SECONDS = 3e-4, 2e-8
"""Nominal seconds of a round whatever its size, and for every component of every table; measured."""
LOWEST = -40.0
"""log of a table's weight relative to the mean: one that does not matter."""


def least_largest(found: Closure, weights: Dense, account: Account = UNLIMITED) -> tuple[Dense, float, float]:
    """Shares of the budget, the largest variance (times its table's weight) at ρ = ½, and what none is below."""
    tables = len(weights)
    price = ROUND_SECONDS + ENTRY_SECONDS * sum(len(one.tables) for one in found.below)
    loop = FixedPoint(np.full(tables, -np.log(tables)), PACE)
    best, lower, upper = np.full(found.size, 1 / found.size), 0.0, np.inf
    for _ in range(MOST_ROUNDS):
        account.charge(price)
        u = loop.u - np.logaddexp.reduce(loop.u)
        h = found.up(np.exp(u) * weights, 2) * found.freedom**2
        roots = np.sqrt(np.maximum(h, h.max() * 1e-30))
        mean = float(roots.sum()) ** 2
        shares = roots / roots.sum()
        variances = weights * cell_variances(found, shares, tables)
        largest = float(variances.max())
        if largest < upper:
            best, upper = shares, largest
        if not loop.accept(mean, u, variances / mean):
            continue
        lower = max(lower, mean)
        account.best = upper
        if upper <= lower * (1 + TOLERANCE) or account.over():
            break
        loop.move(LOWEST - np.log(tables))
    return best, upper, lower


class Parts(Protocol):
    """The measurements of a strategy, however they are held: residual terms in their order."""

    @property
    def shares(self) -> Dense:
        """Of the budget, one per group."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ResidualTerm[ResidualFactor]]: ...

    def of(self, table: int, looked: set[int]) -> Iterator[ResidualTerm[ResidualFactor]]:
        """Those that may have a share in a table, which looks at these columns."""
        ...

    def table_variances(self, tables: int) -> Dense | None:
        """For every table the variance that all of its answers have; None where they differ."""
        ...


@dataclass(frozen=True, eq=False)
class ListedParts:
    """Parts held group by group."""

    groups: tuple[TermGroup, ...]

    @cached_property
    def parts(self) -> tuple[ResidualTerm[ResidualFactor], ...]:
        """The parts of all groups, one by one."""
        return tuple(part for group in self.groups for part in group.parts())

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[ResidualTerm[ResidualFactor]]:
        return iter(self.parts)

    @property
    def shares(self) -> Dense:
        """Of the budget, one per group."""
        found = np.zeros(1 + max((group.number for group in self.groups), default=0))
        for group in self.groups:
            found[group.number] = group.scale**2
        return found

    def of(self, table: int, looked: set[int]) -> Iterator[ResidualTerm[ResidualFactor]]:
        """Those that may have a share in a table, which looks at these columns."""
        return (part for part in self.parts if part.serves(table, looked))

    def table_variances(self, tables: int) -> Dense | None:
        """None: the answers of a table differ."""
        return None


@dataclass(frozen=True, eq=False)
class WholeParts:
    """The components of whole tables, each made when it is looked at: hundreds of thousands are two arrays."""

    closure: Closure
    shares: Dense

    def __len__(self) -> int:
        return self.closure.size

    def __iter__(self) -> Iterator[ResidualTerm[ResidualFactor]]:
        return (self._part(a) for a in range(len(self)))

    def of(self, table: int, looked: set[int]) -> Iterator[ResidualTerm[ResidualFactor]]:
        """The components of a table's columns."""
        return map(self._part, self.closure.within(looked))

    def table_variances(self, tables: int) -> Dense | None:
        """For every table the variance that all of its answers have."""
        return cell_variances(self.closure, self.shares, tables)

    def _part(self, component: int) -> ResidualTerm[ResidualFactor]:
        columns = self.closure.columns_of(component)
        one = np.ones((1, 1))
        scale = float(np.sqrt(self.shares[component] / self.closure.freedom[component]))
        return ResidualTerm((ResidualFactor((), tuple((i, 0) for i in columns), one, one),), scale, group=component)


@dataclass(frozen=True, eq=False, kw_only=True)
class ResidualStrategy(FactoredStrategy):
    """A Gaussian strategy for a batch over many columns. Sensitivity: 1 in the L2 norm, so figures are at ρ = ½.

    Args:
        columns: what the search knows of every column.
        averages: for every column the measure that it is averaged by, a number for each value that is told apart.
        parts: the measurements.
        workload, total, limit, method, largest, status, reason: as in `FactoredStrategy`.
    """

    noise: ClassVar[Noise] = GAUSSIAN

    columns: tuple[Column, ...] = field(repr=False)
    averages: tuple[Dense, ...] = field(repr=False)
    parts: Parts = field(repr=False)

    sensitivity: float = field(default=1.0, init=False, repr=False)
    """How much one record can change the measurements, in the L2 norm."""

    def view(self, table: int) -> TableView:
        """How a table is read from the parts."""
        return TableView(self.columns, self.averages, axes_of(self.workload, table, self.columns))

    def distinct_variances(self, table: int) -> Dense:
        """The variances of a table's answers, in the unit of `total`, to be broadcast to its shape."""
        view = self.view(table)
        return sum((view.squares(part) / part.scale**2 for part in self.parts.of(table, set(view.axes))), 0 * view.one)

    def _reproduced(self, table: int, records: Indices) -> Iterator[Dense]:
        view = self.view(table)
        parts = list(self.parts.of(table, set(view.axes)))
        for record in records:
            found = (view.recover(p, measured(p, self.columns, record[None])[:, 0]) / p.scale for p in parts)
            yield sum(found, np.zeros(self.workload.tables[table].shape))

    def _weights(self, table: int, at: Mapping[int, Indices], places: int) -> Iterator[tuple[int, Dense]]:
        view, start = self.view(table), 0
        for part in self.parts:
            if part.serves(table, view.axes):
                yield start, view.weights(part, at, places) / part.scale
            start += prod(part.shape(self.columns))

    def _table_variances(self) -> Dense | None:
        return self.parts.table_variances(len(self.workload.tables))

    @cached_property
    def _largest(self) -> float:
        return super()._largest if self.largest is None else self.largest[0]

    @property
    def shares(self) -> Dense:
        """What share of ρ every group of parts has; they add up to 1."""
        return self.parts.shares

    @property
    def measurements(self) -> int:
        """How many numbers are drawn."""
        return sum(prod(part.shape(self.columns)) for part in self.parts)

    @cached_property
    def measure(self) -> Dense:
        """L as an array over all cells; refused where it does not fit into memory."""
        self._fits("measure", self.measurements, self.workload.cells)
        records = self._cells()
        return np.concatenate([measured(part, self.columns, records) for part in self.parts])

    def __repr__(self) -> str:
        return (
            f"Strategy({self.method}, {self.privacy}: {self.workload.queries:,} queries from {len(self.parts):,} "
            f"parts, found / limit {self.total / self.limit if self.limit else 1.0:.5g})"
        )
