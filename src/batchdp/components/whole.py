"""Whole tables in closed form: every table counts each combination of some columns' values.

Asked tables C split into components A ⊆ C, the same for all tables. With n_i values a column, N_A = Π n_i and
D_A = Π (n_i − 1), the queries' part in A has the Gram matrix v_A P_A, P_A = ⊗ (I − J / n_i), where a table of weight w
adds w Π_{j ∈ C∖A} 1/n_j to v_A. Measuring P_A is best; with the share p_A of the budget its error is
v_A D_A² / (N_A p_A), and shares ∝ the roots leave (Σ_A √v_A D_A / √N_A)² in all, which no strategy is below.

For the least largest variance: all cells of a table have one variance, linear in 1 / p_A. For any weights y on the
tables, adding up to 1, the least weighted mean variance is (Σ_A √h_A)², h_A = Σ_C y_C (Π_{C∖A} 1/n_j)² (D_A / N_A)²,
and no strategy has a smaller largest variance. Tables above that mean get more weight until the two meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.fixed_point import FixedPoint, Pace
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]


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
    """By number of columns: one component a row, the columns in ascending order."""
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
    if rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    key = rows[:, 0]
    for place in range(1, rows.shape[1]):
        if (int(key.max(initial=0)) + 1) * columns > 2**62:  # as few numbers as there are beginnings
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        key = key * columns + rows[:, place]
    _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], numbers.astype(np.int64)


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
