"""Weighted tables: the error in closed form, the best weights for tables that are given, and moves to better tables.

A measured table tells some columns apart and adds up over the others; θ times it has the L1 norm θ, so that a record
changes all of them together by Σ θ. The columns' values span an average and a rest (`columns` has what these are where
a column is measured by a strategy of its own); every combination of them, a component A, is an eigenspace of all
tables at once. With λ_A = Σ θ² Π 1/τ_i, the sum over the tables whose columns contain A and the product over a table's
columns, and T_A what the queries ask of A, the error is 2 (Σθ)² Σ_A T_A / λ_A at ε = 1. A column of two values has a
third way to be measured: the difference of its two cells, of norm 1 too, which sees the rest alone, with an eigenvalue
of 2 / τ = 1.

Weights alone end in a valley: a table that is not measured is never worth a little weight, only a lot at once. So
tables are changed by hand: a larger one takes the place of all that it contains, one loses a column, or takes the
difference of one. All changes of a round are priced at once, with a few weights each; the best that do not meddle with
one another are made, and the weights fitted anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from batchdp.linalg.matrix import Dense, Indices
from batchdp.strategies.account import UNLIMITED, Account
from batchdp.strategies.residual.strategy import closure, is_whole, keys_of
from batchdp.workloads.kronecker import KroneckerWorkload

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
class MarginalProblem:
    """What the queries need: components and how much of each, and how large the columns are."""

    needed: Flags
    """Component × column: which columns it has the rest of."""
    amount: Dense
    """T_A, above 0."""
    tau: Dense
    """For every column 1ᵀ (LᵀL)⁻¹ 1: its number of values, where each is measured by itself."""
    two: Flags
    """Which columns have two values, each measured by itself."""


def whole_problem(workload: KroneckerWorkload) -> MarginalProblem:
    """The same for whole tables, of which there may be hundreds of thousands."""
    assert is_whole(workload)
    found = closure(workload)
    needed = np.zeros((found.size, len(workload.sizes)), dtype=bool)
    start = 0
    for rows in found.sets:
        needed[start + np.arange(len(rows))[:, None], rows] = True
        start += len(rows)
    amount = found.up(workload.weights, 1) * found.freedom
    sizes = np.array(workload.sizes, dtype=float)
    return MarginalProblem(needed, amount, sizes, sizes == 2)


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
        """Some of the tables, in order."""
        return Tables(self.apart[which], self.difference[which])

    def with_(self, other: Tables) -> Tables:
        """These tables, then the others."""
        return Tables(np.vstack([self.apart, other.apart]), np.vstack([self.difference, other.difference]))

    def distinct(self) -> Indices:
        """The place of the first of each kind, in ascending order."""
        both = np.packbits(np.hstack([self.apart, self.difference]), axis=1)
        return np.sort(np.unique(both, axis=0, return_index=True)[1]).astype(np.int64)


def plain(apart: Flags) -> Tables:
    """The tables without any differences."""
    return Tables(apart, np.zeros_like(apart))


def relation(asked: MarginalProblem, tables: Tables) -> Any:
    """Component × table: what θ² of a table adds to λ of a component; dense or sparse."""
    size = sizes_of(asked.tau, tables)
    if len(asked.needed) * len(tables) <= MOST_DENSE:
        return seen(asked.needed, tables) * size
    rows, columns = _subsets(asked.needed, tables.apart)
    return sparse.csr_array((size[columns], (rows, columns)), shape=(len(asked.needed), len(tables)))


def sizes_of(tau: Dense, tables: Tables) -> Dense:
    """Π 1/τ_i over the columns that a table tells apart."""
    return np.asarray(np.exp(tables.apart @ -np.log(tau)))


def seen(needed: Flags, tables: Tables) -> Dense:
    """Component × table: 1 where the table sees the component."""
    N, looked = needed.astype(np.float32), tables.looked.astype(np.float32)
    missing = N.sum(axis=1)[:, None] - N @ looked.T
    if tables.difference.any():
        differences = tables.difference.astype(np.float32)
        missing += differences.sum(axis=1) - N @ differences.T
    return np.asarray(missing < 0.5, dtype=np.float64)


def _subsets(needed: Flags, apart: Flags) -> tuple[Indices, Indices]:
    """All pairs of a component and a table that contains it, by looking every subset of a table up."""
    d = needed.shape[1]
    by_order = {}
    for order in range(d + 1):
        members = np.flatnonzero(needed.sum(axis=1) == order)
        keys = keys_of(np.nonzero(needed[members])[1].reshape(len(members), order), d)
        sort = np.argsort(keys, kind="stable")
        by_order[order] = members[sort], keys[sort]
    lengths = apart.sum(axis=1)
    rows, columns = [], []
    for length in np.unique(lengths).tolist():
        own = np.flatnonzero(lengths == length)
        listed = np.nonzero(apart[own])[1].reshape(len(own), length)
        for order in range(length + 1):
            members, known = by_order[order]
            for places in combinations(range(length), order) if len(known) else ():
                keys = keys_of(listed[:, list(places)], d)
                at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                there = np.flatnonzero(known[at] == keys)
                rows.append(members[at[there]])
                columns.append(own[there])
    return np.concatenate(rows), np.concatenate(columns)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Tables with their weights, Σ θ = 1, and the error: ‖·‖² at sensitivity 1, of which ε = 1 has twice as much."""

    tables: Tables
    theta: Dense
    value: float
    evaluations: int = 0


def value_of(asked: MarginalProblem, tables: Tables, theta: Dense) -> float:
    """(Σθ)² Σ_A T_A / λ_A; infinite where something that is asked is not measured."""
    eigenvalues = relation(asked, tables) @ theta**2
    if not np.all(eigenvalues > 0):
        return np.inf
    return float(theta.sum() ** 2 * (asked.amount / eigenvalues).sum())


def fit(asked: MarginalProblem, tables: Tables, theta: Dense, rounds: int, account: Account = UNLIMITED) -> Fitted:
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


GRID = (0.3, 0.5, 0.75, 1.0, 1.4)
"""The new table's weight, relative to the weight of those whose place it takes."""
MOST_ENTRIES = 6_000_000
"""Components times changes that are priced in a round."""
ROUNDS = 60
"""Of fitting the weights after a change."""
LEAST_GAIN = 1e-5
PATIENCE = 2
"""Rounds without a gain after which no change is said to pay."""
FEW_COLUMNS = 10
"""Up to which all sets of columns are tried as one more table."""
ANY = 200
"""Sets of columns that are tried so where there are more."""
PRICE = 1 / 4e8
"""Nominal seconds an operation of pricing changes and fitting weights; measured."""
FEW_REPLACED = 0.02
"""Share of the tables that a change replaces, up to which products go by entries."""
ONE_MORE = 0.2
"""What the weight of one more table is relative to, all others having 1 together."""


def improve(asked: MarginalProblem, start: Fitted, rng: np.random.Generator, account: Account) -> Fitted:
    """Change tables until no change pays, or the account is over."""
    best, at_once, failed = start, 64, 0
    while failed < PATIENCE:
        new, gone, gain, weight = _priced(asked, best, rng)
        work = float(len(asked.needed)) * (len(new) * (2 * len(GRID) + len(best.tables) / 4))
        better = False
        if len(new):
            while True:
                chosen = _apart(gone, gain, at_once)
                changed = _made(best, new, gone, weight, chosen)
                found = fit(asked, *changed, ROUNDS)
                work += 8.0 * found.evaluations * len(asked.needed) * len(best.tables)
                if found.value < best.value * (1 - LEAST_GAIN):
                    best, better = found, True
                    break
                if len(chosen) <= 1:
                    break
                at_once = max(1, len(chosen) // 4)
        failed = 0 if better else failed + 1
        at_once = min(64, 2 * at_once) if better else at_once
        account.charge(work * PRICE)
        if account.over():
            break
    return best


Changes = tuple[int, Callable[[Indices], tuple[Flags, Flags, Flags]]]
"""How many there are of a kind, and some of them: what new tables tell apart, their differences, what they replace."""


def _candidates(asked: MarginalProblem, tables: Tables, rng: np.random.Generator, most: int) -> tuple[Tables, Flags]:
    """New tables, and for each which of the present ones it takes the place of; where many, some that are drawn."""
    parts = _changes(asked, tables, rng)
    ends = np.cumsum([count for count, _ in parts])
    kept = np.arange(ends[-1])
    if ends[-1] > most:
        kept = np.sort(rng.choice(ends[-1], most, replace=False))
    split = np.split(kept, np.searchsorted(kept, ends[:-1]))
    made = [make(own - (end - count)) for own, end, (count, make) in zip(split, ends, parts, strict=True)]
    apart, difference, gone = (np.concatenate([part[k] for part in made]) for k in range(3))
    return Tables(apart, difference), gone


def _changes(asked: MarginalProblem, tables: Tables, rng: np.random.Generator) -> list[Changes]:
    """All changes of every kind, none of them made: there are millions where few are priced."""
    S, d = tables.apart.shape
    looked, whole, differ = tables.looked, tables.apart, tables.difference

    def put(flags: Flags, one: Indices, column: Indices, value: bool) -> Flags:
        changed = flags[one]
        changed[np.arange(len(one)), column] = value
        return changed

    def alone(which: Indices) -> Flags:
        return np.asarray(which[:, None] == np.arange(S))

    def in_place_of_all(grown: Flags) -> tuple[Flags, Flags, Flags]:
        return grown, np.zeros_like(grown), _inside(looked, grown)

    # One more column, and everything below; or in the place of the one table.
    at, new = np.nonzero(~whole)

    def beside(k: Indices) -> tuple[Flags, Flags, Flags]:
        grown = put(whole, at[k], new[k], True)
        return grown, differ[at[k]] & ~grown, alone(at[k])

    # Two as one.
    count = min(S * (S - 1) // 2, 4 * len(at) + 64)
    first, second = rng.integers(0, S, count), rng.integers(0, S, count)
    # One column less; of two values, its difference.
    of, gone = np.nonzero(looked)
    two, halved = np.nonzero(whole & asked.two)

    def fewer(k: Indices) -> tuple[Flags, Flags, Flags]:
        less, apart = (put(own, of[k], gone[k], False) for own in (whole, differ))
        return less, apart, alone(of[k])

    def half(k: Indices) -> tuple[Flags, Flags, Flags]:
        less = put(whole, two[k], halved[k], False)
        return less, put(differ, two[k], halved[k], True), alone(two[k])

    # Any other, beside all that there are.
    every = np.arange(2 ** min(d, FEW_COLUMNS))[:, None] >> np.arange(d) & 1 == 1
    some = every if d <= FEW_COLUMNS else rng.random((ANY, d)) < rng.uniform(0.1, 0.9, (ANY, 1))
    extra = np.concatenate([some, put(whole, two, halved, False)])
    return [
        (len(at), lambda k: in_place_of_all(put(whole, at[k], new[k], True))),
        (len(at), beside),
        (count, lambda k: in_place_of_all(looked[first[k]] | looked[second[k]])),
        (len(of), fewer),
        (len(two), half),
        (len(extra), lambda k: (extra[k], np.zeros_like(extra[k]), np.zeros((len(k), S), dtype=bool))),
    ]


def _inside(looked: Flags, grown: Flags) -> Flags:
    """New table × present table: whether the present one looks at no other column."""
    outside = (~grown).astype(np.float32) @ looked.T.astype(np.float32)
    return np.asarray(outside < 0.5)


def _priced(asked: MarginalProblem, now: Fitted, rng: np.random.Generator) -> tuple[Tables, Flags, Dense, Dense]:
    """The changes that pay: new tables, what each replaces, the gain and the weight."""
    N = len(asked.needed)
    new, gone = _candidates(asked, now.tables, rng, max(200, MOST_ENTRIES // N))
    size = sizes_of(asked.tau, now.tables)
    squares = seen(asked.needed, now.tables) * (size * now.theta**2)
    eigenvalues = squares.sum(axis=1)
    # What few tables are replaced by each change is summed by its entries.
    replaced = sparse.csc_array(gone.T, dtype=np.float64) if gone.mean() < FEW_REPLACED else gone.T
    left = eigenvalues[:, None] - squares @ replaced
    left[left < 1e-12 * eigenvalues[:, None]] = 0.0
    freed = gone @ now.theta
    buffer = np.empty_like(left)
    added = seen(asked.needed, new) * sizes_of(asked.tau, new)
    best, weight = np.full(len(new), np.inf), np.zeros(len(new))
    with np.errstate(divide="ignore", over="ignore"):
        for share in GRID:
            theta = share * np.where(freed > 0, freed, ONE_MORE)
            np.multiply(added, theta**2, out=buffer)
            np.divide(1, np.add(left, buffer, out=buffer), out=buffer)
            values = (1 - freed + theta) ** 2 * (asked.amount @ buffer)
            lower = values < best
            best[lower], weight[lower] = values[lower], theta[lower]
    gain = now.value - best
    pays = np.flatnonzero(gain > LEAST_GAIN * now.value)
    # Unfitted weights hide some of what a change is worth: those that nearly pay are tried where none does.
    if not len(pays):
        pays = np.argsort(-gain, kind="stable")[:3]
        pays = pays[np.isfinite(gain[pays])]
    return new.chosen(pays), gone[pays], gain[pays], weight[pays]


def _apart(gone: Flags, gain: Dense, most: int) -> list[int]:
    """The best changes that do not replace the same tables."""
    taken = np.zeros(gone.shape[1], dtype=bool)
    chosen: list[int] = []
    for k in np.argsort(-gain, kind="stable"):
        if not np.any(gone[k] & taken):
            chosen.append(int(k))
            taken |= gone[k]
        if len(chosen) == most:
            break
    return chosen


def _made(now: Fitted, new: Tables, gone: Flags, weight: Dense, chosen: list[int]) -> tuple[Tables, Dense]:
    kept = ~np.any(gone[chosen], axis=0)
    tables = now.tables.chosen(kept).with_(new.chosen(chosen))
    theta = np.concatenate([now.theta[kept], weight[chosen]])
    first = tables.distinct()
    return tables.chosen(first), theta[first]
