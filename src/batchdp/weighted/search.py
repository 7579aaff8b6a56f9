"""The best weighted tables that are found: tables changed by hand from several starts, columns' strategies in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from batchdp.components.groups import TableWeights
from batchdp.components.search import Batch
from batchdp.strategies.account import Account
from batchdp.weighted.columns import (
    MOST_VALUES,
    ColumnProblem,
    ColumnStrategy,
    by_strategy,
    each_value,
    fit_column,
    shared_of,
    shared_starts,
)
from batchdp.weighted.problem import column_problem, looked_at, problem_of
from batchdp.weighted.weights import Fitted, MarginalProblem, Tables, fit, improve, plain, value_of

Dense = NDArray[np.float64]

ColumnSolver = Callable[[Dense, Account], Dense | None]
"""From a matrix of queries on one column, and who pays for the search, to a measure for it."""

ROUNDS = 150
QUICK_ROUNDS = 50
"""Where groups are only compared."""
STARTS = 4
SWEEPS = 3
LEAST_GAIN = 1e-3
LEAST_SOLVED = 40
"""Values of a column from which a search for it alone is worth its time beside the starts here."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """Tables with their weights, and how each column is measured inside them."""

    value: float
    tables: Tables
    theta: Dense
    insides: tuple[ColumnStrategy, ...]


def weighted_tables(
    batch: Batch,
    terms: TableWeights,
    account: Account,
    work: float,
    seed: int,
    solver: ColumnSolver | None = None,
    *,
    thorough: bool = True,
) -> Weighted:
    """The best found: with each value by itself, and with strategies for columns that ask for more.

    `work` is how many nominal seconds are spent on changing tables, out of the account, which pays for all else too.
    Never worse than the table of all columns, which is noise on data with values merged that are never told apart.
    """
    moves = account.share(work)
    plainly = tuple(each_value(column) for column in batch.columns)
    grams = columns_grams(batch)
    many = STARTS if thorough else 1
    asked = problem_of(terms, plainly)
    if not len(asked.amount):  # queries that are 0 whatever the data: one number is enough to measure
        return Weighted(0.0, plain(np.zeros((1, len(batch.columns)), dtype=bool)), np.ones(1), plainly)
    best = _tables(asked, looked_at(batch), moves, seed, many)
    everything = plain(np.ones((1, len(batch.columns)), dtype=bool))
    on_data = value_of(asked, everything, np.ones(1))
    found = Weighted(best.value, best.tables, best.theta, plainly)
    if on_data < best.value:
        found = Weighted(on_data, everything, np.ones(1), plainly)
    if not grams:
        return found
    rng = np.random.default_rng([seed, 1])
    # Strategies inside that suit the best plain tables, and such that suit one product of all columns.
    for tables, theta in ((best.tables, best.theta), (everything, np.ones(1))):
        insides = _improved(batch, terms, plainly, grams, tables, theta, rng, account, solver, thorough=thorough)
        for _ in range(SWEEPS if thorough else 1):
            asked = problem_of(terms, insides)
            starts = looked_at(batch).with_(everything).with_(tables)
            step = _tables(asked, starts.chosen(starts.distinct()), moves, seed, many)
            tables, theta = step.tables, step.theta
            gain = found.value - step.value
            if step.value < found.value:
                found = Weighted(step.value, tables, theta, insides)
            if gain < LEAST_GAIN * found.value or moves.over():
                break
            insides = _improved(batch, terms, insides, grams, tables, theta, rng, account)
    # A strategy that is each value by itself is measured as such: in fewer bits, and with one law for all answers.
    own = zip(found.insides, plainly, strict=True)
    return replace(found, insides=tuple(value if _is_identity(one.measure) else one for one, value in own))


def _is_identity(measure: Dense | None) -> bool:
    return measure is None or np.array_equal(measure, np.eye(*measure.shape))


def columns_grams(batch: Batch) -> dict[int, list[Dense]]:
    """FᵀF of every factor, of the columns that may get a strategy of their own."""
    found: dict[int, list[Dense]] = {}
    for i, column in enumerate(batch.columns):
        n = len(column.orbit)
        if column.orbits == 1 or not 2 < n <= MOST_VALUES:
            continue
        first = np.unique(column.value, return_index=True)[1]
        factors = [np.ones((1, n)), *(factor.matrix[:, first] for factor in batch.workload.factors[i])]
        found[i] = [F.T @ F for F in factors]
    return found


def _tables(asked: MarginalProblem, tables: Tables, moves: Account, seed: int, starts: int) -> Fitted:
    """From several starts."""
    best: Fitted | None = None
    account = moves.within or moves
    for start in range(starts):
        rng = np.random.default_rng([seed, start])
        theta = np.exp((0.1, 1.0)[start % 2] * rng.standard_normal(len(tables)))
        begun = fit(asked, tables, theta, ROUNDS, account)
        done = improve(asked, begun, rng, moves)
        if best is None or done.value < best.value:
            best = done
        if moves.over():
            break
    assert best is not None
    return fit(asked, best.tables, best.theta, 4 * ROUNDS, account)


def _improved(
    batch: Batch,
    terms: TableWeights,
    insides: Sequence[ColumnStrategy],
    grams: Mapping[int, list[Dense]],
    tables: Tables,
    theta: Dense,
    rng: np.random.Generator,
    account: Account,
    solver: ColumnSolver | None = None,
    *,
    thorough: bool = True,
) -> tuple[ColumnStrategy, ...]:
    """Every column's strategy in turn, the best for these tables."""
    now = list(insides)
    alike: dict[tuple[bytes, ...], Dense] = {}  # columns with the same factors have much the same strategy
    for i, own in grams.items():
        wanted = column_problem(i, own, terms, now, tables, theta)
        before = now[i]
        starts = shared_starts(len(own[0]), rng, thorough=thorough)
        known = None if before.measure is None else shared_of(before.measure)
        key = tuple(gram.tobytes() for gram in own)
        known = alike.get(key, known)
        if known is not None:
            starts = [known]
        try:
            L, _ = fit_column(wanted, starts, ROUNDS if thorough else QUICK_ROUNDS, 2 if thorough else 1, account)
        except LinAlgError:  # queries of so different sizes that nothing can be solved for: as it is
            continue
        if (shared := shared_of(L)) is not None:
            alike.setdefault(key, shared)
        candidates = [by_strategy(L, own)]
        if solver is not None and len(own[0]) >= LEAST_SOLVED:
            candidates.append(_solved(wanted, solver, account))
        if before.inverse is not None:
            candidates.append(before)
        usable = [one for one in candidates if one is not None and one.inverse is not None]
        if usable:
            now[i] = min(usable, key=lambda one: wanted.value(one.inverse)[0])  # type: ignore[arg-type]
    return tuple(now)


def _solved(wanted: ColumnProblem, solver: ColumnSolver, account: Account) -> ColumnStrategy | None:
    """What a search over one column by itself finds, as if no table added up over it."""
    n = len(wanted.grams[0])
    S = np.zeros((n, n))
    for k, gram in enumerate(wanted.grams):
        own = wanted.kind == k
        S += float((wanted.weight[own] / wanted.apart[own]).sum()) * gram
    squares, U = np.linalg.eigh(S)
    there = squares > 1e-12 * squares[-1]
    measure = solver(np.sqrt(squares[there])[:, None] * U[:, there].T, account)
    return None if measure is None else by_strategy(measure, wanted.grams)
