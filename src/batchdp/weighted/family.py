"""Weighted tables: the error in closed form, and the best weights for tables that are given.

A measured table tells some columns apart and adds up over the others; θ times it has the L1 norm θ, so that a record
changes all of them together by Σ θ. The columns' values span an average and a rest (`inside` has what these are where
a column is measured by a strategy of its own); every combination of them, a component A, is an eigenspace of all
tables at once. With λ_A = Σ θ² Π 1/τ_i, the sum over the tables whose columns contain A and the product over a table's
columns, and T_A what the queries ask of A, the error is 2 (Σθ)² Σ_A T_A / λ_A at ε = 1. A column of two values has a
third way to be measured: the difference of its two cells, of norm 1 too, which sees the rest alone, with an eigenvalue
of 2 / τ = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from batchdp.strategies.account import UNLIMITED, Account

Dense = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_DENSE = 20_000_000
"""Components times tables up to which their relation is a dense array."""
NOTHING = 1e-9
"""The share of the sensitivity below which a table is not measured."""
ROUND_SECONDS, ENTRY_SECONDS = 1e-4, 2e-8
"""Nominal seconds of an evaluation whatever its size, and for every component of every table; measured."""
TINY = 1e-140
"""The least eigenvalue: its square must not vanish."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What the queries need: components and how much of each, and how large the columns are."""

    needed: Flags
    """Component × column: which columns it has the rest of."""
    amount: Dense
    """T_A, above 0."""
    tau: Dense
    """For every column 1ᵀ (LᵀL)⁻¹ 1: its number of values, where each is measured by itself."""
    two: Flags
    """Which columns have two values, each measured by itself."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables to be measured: which columns each tells apart, and of which it takes the difference."""

    apart: Flags
    difference: Flags

    def __len__(self) -> int:
        return len(self.apart)

    @property
    def looked(self) -> Flags:
        """All columns that a table looks at."""
        return self.apart | self.difference

    def chosen(self, which: Any) -> Tables:
        """Some of them."""
        return Tables(self.apart[which], self.difference[which])

    def with_(self, other: Tables) -> Tables:
        """Both."""
        return Tables(np.vstack([self.apart, other.apart]), np.vstack([self.difference, other.difference]))

    def distinct(self) -> NDArray[np.int64]:
        """The place of the first of each kind, in ascending order."""
        both = np.packbits(np.hstack([self.apart, self.difference]), axis=1)
        return np.sort(np.unique(both, axis=0, return_index=True)[1]).astype(np.int64)


def plain(apart: Flags) -> Tables:
    """Tables without differences."""
    return Tables(apart, np.zeros_like(apart))


def relation(asked: Asked, tables: Tables) -> Any:
    """Component × table: what θ² of a table adds to λ of a component; dense or sparse."""
    size = sizes_of(asked, tables)
    if len(asked.needed) * len(tables) <= MOST_DENSE:
        return seen(asked.needed, tables) * size
    rows, columns = _subsets(asked.needed, tables.apart)
    return sparse.csr_array((size[columns], (rows, columns)), shape=(len(asked.needed), len(tables)))


def sizes_of(asked: Asked, tables: Tables) -> Dense:
    """Π 1/τ_i over the columns that a table tells apart."""
    return np.asarray(np.exp(tables.apart @ -np.log(asked.tau)))


def seen(needed: Flags, tables: Tables) -> Dense:
    """Component × table: 1 where the table sees the component."""
    N, looked = needed.astype(np.float32), tables.looked.astype(np.float32)
    missing = N.sum(axis=1)[:, None] - N @ looked.T
    if tables.difference.any():
        differences = tables.difference.astype(np.float32)
        missing += differences.sum(axis=1) - N @ differences.T
    return np.asarray(missing < 0.5, dtype=np.float64)


def _subsets(needed: Flags, apart: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs of a component and a table that contains it, by looking every subset of a table up."""
    d = needed.shape[1]
    keys = {order: _Keys(np.flatnonzero(needed.sum(axis=1) == order), needed, order, d) for order in range(d + 1)}
    lengths = apart.sum(axis=1)
    rows, columns = [], []
    for length in np.unique(lengths):
        own = np.flatnonzero(lengths == length)
        listed = np.nonzero(apart[own])[1].reshape(len(own), int(length))
        for order in range(int(length) + 1):
            for places in combinations(range(int(length)), order):
                there, found = keys[order].find(listed[:, list(places)])
                rows.append(found)
                columns.append(own[there])
    return np.concatenate(rows), np.concatenate(columns)


class _Keys:
    """The components of so many columns, found by their columns."""

    def __init__(self, members: NDArray[np.int64], needed: Flags, order: int, d: int) -> None:
        self.d = d
        listed = np.nonzero(needed[members])[1].reshape(len(members), order)
        keys = self._key(listed)
        sort = np.argsort(keys, kind="stable")
        self.members, self.keys = members[sort], keys[sort]

    def find(self, listed: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of these are there, and which they are."""
        if not len(self.keys):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        keys = self._key(listed)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        there = np.flatnonzero(self.keys[at] == keys)
        return there, self.members[at[there]]

    def _key(self, listed: NDArray[np.int64]) -> Any:
        large = listed.shape[1] * np.log2(self.d + 1) > 62  # then Python's own whole numbers
        rows: Any = listed.astype(object if large else np.int64)
        found = rows[:, 0] if rows.shape[1] else np.zeros(len(rows), dtype=np.int64)
        for place in range(1, rows.shape[1]):
            found = found * self.d + rows[:, place]
        return found


@dataclass(frozen=True, eq=False)
class Fitted:
    """Tables with their weights, Σ θ = 1, and the error: ‖·‖² at sensitivity 1, of which ε = 1 has twice as much."""

    tables: Tables
    theta: Dense
    value: float
    evaluations: int = 0


def value_of(asked: Asked, tables: Tables, theta: Dense) -> float:
    """(Σθ)² Σ_A T_A / λ_A; infinite where something that is asked is not measured."""
    eigenvalues = relation(asked, tables) @ theta**2
    if not np.all(eigenvalues > 0):
        return np.inf
    return float(theta.sum() ** 2 * (asked.amount / eigenvalues).sum())


def fit(asked: Asked, tables: Tables, theta: Dense, rounds: int, account: Account = UNLIMITED) -> Fitted:
    """The best weights for these tables from a start, by L-BFGS over log θ; tables of no weight are dropped."""
    M = relation(asked, tables)
    T = asked.amount

    def objective(z: Dense) -> tuple[float, Dense]:
        weights = np.exp(z - z.max())
        total, squares = float(weights.sum()), weights**2
        eigenvalues = np.maximum(M @ squares, TINY)
        parts = T / eigenvalues
        error = float(parts.sum())
        gradient = 2 * weights / total - 2 * squares * (M.T @ (parts / eigenvalues)) / error
        return 2 * np.log(total) + np.log(error), gradient

    start = np.log(np.maximum(theta / theta.max(), 1e-12))
    ended = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": rounds, "ftol": 1e-10, "gtol": 1e-8}
    )
    account.charge(ended.nfev * (ROUND_SECONDS + ENTRY_SECONDS * (M.size if isinstance(M, np.ndarray) else M.nnz)))
    z = ended.x
    found = np.exp(z - z.max())
    found /= found.sum()
    kept = np.flatnonzero(found > NOTHING)
    eigenvalues = M[:, kept] @ found[kept] ** 2
    if not np.all(eigenvalues > 0):
        kept, eigenvalues = np.arange(len(found)), M @ found**2
    if not np.all(eigenvalues > 0):
        return Fitted(tables, theta / theta.sum(), np.inf, ended.nfev)
    weights = found[kept]
    value = float(weights.sum() ** 2 * (T / eigenvalues).sum())
    return Fitted(tables.chosen(kept), weights / weights.sum(), value, ended.nfev)
