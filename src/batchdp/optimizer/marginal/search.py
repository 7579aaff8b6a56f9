"""The best weighted tables that are found: tables changed by hand from several starts, columns' strategies in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from scipy.linalg import LinAlgError

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.marginal.problem import (
    column_problem,
    largest_change,
    looked_at,
    partitions,
    problem_of,
    starts,
    sub_batch,
)
from batchdp.optimizer.options import USUAL, Options
from batchdp.optimizer.residual.groups import TooManyClassesError
from batchdp.optimizer.residual.limits import limit_of
from batchdp.optimizer.residual.optimizing import DEFAULT_SECONDS, added_up, equalised
from batchdp.optimizer.residual.search import split_by
from batchdp.optimizer.residual.splits import Batch, TableWeights
from batchdp.privacy import LAPLACE
from batchdp.strategies.account import Account
from batchdp.strategies.marginal.columns import (
    MOST_VALUES,
    ColumnProblem,
    ColumnStrategy,
    by_strategy,
    each_value,
    fit_column,
    shared_of,
    shared_starts,
)
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy, Results, TableGroup
from batchdp.strategies.marginal.weights import (
    Fitted,
    MarginalProblem,
    Tables,
    fit,
    improve,
    plain,
    value_of,
    whole_problem,
)
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.strategy import closure, is_whole, least_sum
from batchdp.text import Outcome
from batchdp.workloads.kronecker import Factor, KroneckerWorkload

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
    alike = [one.measure is None or np.array_equal(one.measure, np.eye(*one.measure.shape)) for one in found.insides]
    insides = tuple(value if same else one for one, value, same in zip(found.insides, plainly, alike, strict=True))
    return replace(found, insides=insides)


def columns_grams(batch: Batch) -> dict[int, list[Dense]]:
    """FᵀF of every factor, of the columns that may get a strategy of their own."""
    found: dict[int, list[Dense]] = {}
    for i, column in enumerate(batch.columns):
        n = len(column.orbit)
        if column.orbits == 1 or not 2 < n <= MOST_VALUES:
            continue
        found[i] = grams_of(column, batch.workload.factors[i])
    return found


def grams_of(column: Column, factors: Sequence[Factor]) -> list[Dense]:
    """FᵀF of the factors of a column on the values that are told apart, behind that of one that does not matter."""
    first = np.unique(column.value, return_index=True)[1]
    matrices = [np.ones((1, len(first))), *(factor.matrix[:, first] for factor in factors)]
    return [F.T @ F for F in matrices]


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


MOST_COMPONENTS = 4000
"""Up to which tables are changed one by one."""
MOST_TABLES = 20_000
NOMINAL_SECONDS = 12.0
"""For changing tables one by one, where the caller gives none."""
FEW_ROUNDS = 60
TURNS = 5
"""How often tables are weighed anew for the least largest variance."""


@dataclass(frozen=True, eq=False)
class _Found:
    """A strategy and its error, before anything is known about limits."""

    total: float
    groups: tuple[TableGroup, ...]
    method: str


@one_thread
def optimize_products(
    workload: KroneckerWorkload, options: Options = USUAL, solver: ColumnSolver | None = None
) -> MarginalStrategy:
    """The best strategy with Laplace noise, by the (weighted) sum of squared errors or the largest variance."""
    if workload.joint:
        raise StrategyError(
            "some factors look at several columns together; a batch of these that is too large for a matrix can be "
            'planned with Gaussian noise only: ask for privacy="zcdp", or for factors of one column each'
        )
    account = Account(options.seconds or DEFAULT_SECONDS, options.progress)
    work = NOMINAL_SECONDS if options.seconds is None else 0.6 * options.seconds
    search = _Search(workload, account, work, options.seed, solver)
    if options.objective == "max":
        return _largest(search)
    found = search.best(workload.weights)
    return search.strategy(found, search.limit(workload.weights))


class _Search:
    """What a search knows before it begins, and how it ends."""

    def __init__(
        self, workload: KroneckerWorkload, account: Account, work: float, seed: int, solver: ColumnSolver | None
    ) -> None:
        self.workload, self.account, self.work, self.seed, self.solver = workload, account, work, seed, solver
        self.whole = is_whole(workload)
        large = self.whole and len(workload.starts) - 1 > MOST_TABLES
        self.large = large or (self.whole and closure(workload).size > MOST_COMPONENTS)
        self.batch = Batch(workload)

    def best(self, weights: Dense) -> _Found:
        """The least sum of squared errors with these weights of the tables."""
        found = [self._supersets(weights)] if self.large else self._members(weights)
        found.append(self._results(weights))
        best = min(found, key=lambda one: one.total)
        self.account.best = best.total
        return best

    def _members(self, weights: Dense) -> list[_Found]:
        workload, everything = self.workload, tuple(range(len(self.workload.tables)))
        self.account.trying = "weighted tables"
        known: dict[tuple[int, ...], tuple[Weighted, Batch]] = {}

        def solved(tables: Sequence[int], *, thorough: bool = False) -> tuple[Weighted, Batch]:
            key = tuple(tables)
            if key not in known or thorough:
                whole = key == everything
                batch = self.batch if whole else Batch(sub_batch(workload, key))
                terms: TableWeights = batch.terms(weights[list(key)])
                solver, work = (self.solver, self.work) if thorough else (None, self.work / 8)
                own = weighted_tables(batch, terms, self.account, work, self.seed, solver, thorough=thorough)
                if key not in known or own.value < known[key][0].value:
                    known[key] = own, batch
            return known[key]

        found = [self._together([(everything, *solved(everything, thorough=True))])]
        self.account.best = found[0].total
        self.account.trying = "groups of tables"
        best, chosen = found[0].total, [list(everything)]
        for split in partitions(self.batch):
            if self.account.over():
                break
            total = sum(solved(own)[0].value ** (1 / 3) for own in split) ** 3
            if total < best:
                best, chosen = total, split
        if len(chosen) > 1:
            parts = [(tuple(own), *solved(own, thorough=True)) for own in chosen]
            found.append(self._together(parts))
        return found

    def _together(self, parts: Sequence[tuple[tuple[int, ...], Weighted, Batch]]) -> _Found:
        """Groups with the shares of the sensitivity that leave the least sum."""
        errors = np.array([own.value for _, own, _ in parts])
        if not errors.any():
            return _Found(0.0, tuple(self._group(*part, 1.0 / len(parts)) for part in parts), "nothing to measure")
        shares = LAPLACE.shares(errors, of_sum=True)
        # A group of queries that are 0 has no share, and stays: its tables are answered too.
        groups = [self._group(*part, share) for part, share in zip(parts, shares, strict=True)]
        total = float((errors[shares > 0] / shares[shares > 0] ** 2).sum())
        method = "weighted tables" if len(parts) == 1 else f"{len(parts)} groups of weighted tables"
        return _Found(total, tuple(groups), method)

    def _group(self, tables: tuple[int, ...], own: Weighted, batch: Batch, share: float) -> MarginalGroup:
        serves = None if len(tables) == len(self.workload.tables) else frozenset(tables)
        return MarginalGroup(batch.columns, own.insides, own.tables, own.theta * (share / own.theta.sum()), serves)

    def _supersets(self, weights: Dense) -> _Found:
        """Whole tables, more than can be changed one by one."""
        self.account.trying = "supersets of tables"
        workload = self.workload
        asked = whole_problem(replace(workload, weights=weights))
        apart = np.zeros((len(workload.tables), len(workload.sizes)), dtype=bool)
        apart[np.repeat(np.arange(len(apart)), np.diff(workload.starts)), workload.columns] = True
        best: Fitted | None = None
        for tables, theta in starts(asked, plain(apart)):
            if best is not None and self.account.over():
                break
            own = fit(asked, tables, theta, FEW_ROUNDS, self.account)
            best = own if best is None or own.value < best.value else best
        assert best is not None
        insides = tuple(each_value(column) for column in self.batch.columns)
        group = MarginalGroup(self.batch.columns, insides, best.tables, best.theta)
        return _Found(best.value, (group,), "weighted tables")

    def _results(self, weights: Dense) -> _Found:
        change = largest_change(self.batch, self.batch.terms(weights))
        if change == 0:
            return _Found(np.inf, (), "noise on results")
        total = float(weights @ self.workload.table_sizes()) * change**2
        return _Found(total, (Results(self.workload, 1 / change),), "noise on results")

    def plainly(self, weights: Dense) -> list[_Found]:
        """Noise on results and, where it can be written down, noise on data: what no answer should be worse than."""
        found = [self._results(weights)]
        if not self.large:
            insides = tuple(each_value(column) for column in self.batch.columns)
            everything = plain(np.ones((1, len(insides)), dtype=bool))
            total = value_of(problem_of(self.batch.terms(weights), insides), everything, np.ones(1))
            group = MarginalGroup(self.batch.columns, insides, everything, np.ones(1))
            found.append(_Found(total, (group,), "noise on data"))
        return [one for one in found if np.isfinite(one.total)]

    def limit(self, weights: Dense) -> float:
        """What no Laplace strategy is below: the Gaussian limit at ρ = ½, in the unit of `total`."""
        self.account.trying = "limit"
        if self.whole:
            return least_sum(closure(self.workload), weights)[1]
        terms = self.batch.terms(weights)
        try:
            return split_by(self.batch, terms, {}, tolerance=1e-2, account=self.account).limit
        except TooManyClassesError:
            uniform = {i: self.batch.uniform(i) for i in self.batch.wide()}
            return limit_of(self.batch, terms, [uniform], self.account, self.seed)

    def strategy(self, found: _Found, limit: float) -> MarginalStrategy:
        return MarginalStrategy(
            workload=self.workload,
            groups=found.groups,
            sensitivity=1.0,
            total=found.total,
            limit=min(limit, found.total),
            method=found.method,
            status=Outcome.CANCELLED if self.account.cancelled else Outcome.BEST_OF_STARTS,
        )


def _largest(search: _Search) -> MarginalStrategy:
    """The least largest variance, no larger than that of noise on results, or on data where that can be written."""
    workload, turns = search.workload, count()
    search.work /= TURNS

    def tried(weights: Dense) -> list[MarginalStrategy]:
        limit, plainly = search.limit(weights), search.plainly(weights) if next(turns) == 0 else []
        return [search.strategy(found, limit) for found in (*plainly, search.best(weights))]

    best, upper, lower = equalised(workload, search.account, TURNS, tried, enough=1.0)
    total = added_up(best)
    limit = min(search.limit(workload.weights), total)
    return replace(best, total=total, limit=limit, largest=(upper, lower))
