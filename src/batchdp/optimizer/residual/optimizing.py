"""`optimize` for batches over many columns with Gaussian noise: closed form where there is one, else the best found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any, Literal, TypeVar

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.options import USUAL, Options
from batchdp.optimizer.residual.groups import MOST_CLASSES, TooManyClassesError, solve_column
from batchdp.optimizer.residual.limits import limit_of
from batchdp.optimizer.residual.measures import improve_measures, in_fractions
from batchdp.optimizer.residual.search import (
    GOOD_ENOUGH,
    HOPELESS,
    MOST_TABLES_APART,
    Found,
    fewest_split,
    one_product,
    split_by,
    tables_apart,
)
from batchdp.optimizer.residual.splits import Batch, TableWeights
from batchdp.privacy import GAUSSIAN
from batchdp.strategies.account import Account
from batchdp.strategies.residual.columns import columns_of
from batchdp.strategies.residual.strategy import (
    ListedParts,
    ResidualStrategy,
    WholeParts,
    cell_variances,
    closure,
    is_whole,
    least_largest,
    least_sum,
)
from batchdp.strategies.strategy import FactoredStrategy
from batchdp.text import Outcome
from batchdp.workloads.kronecker import KroneckerWorkload

DEFAULT_SECONDS = 120.0
"""Nominal ones, where the caller gives none."""
FINER = 0.1
"""Of the tolerance that is asked for: what is left to solve is small, and rounds are cheap."""
RHO = float(GAUSSIAN.reference)
LEFT = 1e-9
"""Of a query's size: a component that is no larger is rounding."""
ROUNDS = 15
"""Of weights on tables, for the largest variance where there is no closed form."""


@one_thread
def optimize_products(workload: KroneckerWorkload, options: Options = USUAL) -> ResidualStrategy:
    """The best strategy over components, by the (weighted) sum of squared errors or the largest variance."""
    account = Account(options.seconds or DEFAULT_SECONDS, options.progress, trying="components")
    if is_whole(workload):
        return _whole(workload, options.objective, account)
    batch = Batch(workload)
    _check_ties(batch)
    if options.objective == "max":
        return _largest(batch, account, options.tolerance, options.seed)
    found, limit = best_sum(batch, batch.terms(workload.weights), account, options.tolerance, options.seed)
    return _strategy(batch, found, limit, account.outcome(found.total, limit * GOOD_ENOUGH))


def _check_ties(batch: Batch) -> None:
    """Refuse, before any search, a query whose tied columns have a component that is too large to be solved."""
    workload = batch.workload
    for (axis, kind), number in batch.numbers.items():
        looked, array, sizes = batch.joint[number]
        groups = [batch.columns[c].orbits for c in looked]
        if prod(groups) <= MOST_CLASSES:
            continue
        for place in range(1, array.ndim):  # what is left of a sum, whose columns are tied and do not interact, is 0
            array = array - array.mean(axis=place, keepdims=True)
        if np.abs(array).max(initial=0.0) <= LEFT * sizes.max(initial=0.0):
            continue
        at = np.flatnonzero((workload.columns == axis) & (workload.chosen == kind - 1))
        table = workload.tables[int(np.searchsorted(workload.starts, at[0], side="right")) - 1]
        named = ", ".join(f"a{c + 1}" if workload.column_names is None else workload.column_names[c] for c in looked)
        raise StrategyError(
            f"query {table.name!r} ties the columns {named} together, by an OR, a product or a CASE; they have "
            f"{' × '.join(map(str, groups))} groups of values that queries tell apart, and beyond {MOST_CLASSES:,} "
            "combinations cannot be solved with Gaussian noise in a batch of so many answers; compare fewer values in "
            "them, or ask for it in a batch of its own"
        )


def best_sum(batch: Batch, terms: TableWeights, account: Account, tolerance: float, seed: int) -> tuple[Found, float]:
    """The strategy with the least weighted sum of squared errors, and what none is below."""
    tolerance = FINER * tolerance
    found, measures = _components(batch, terms, account, tolerance)
    best = min(found, key=lambda one: one.total, default=None)
    limit = max((one.limit for one in found), default=0.0)
    if best is not None and limit > 0 and best.total <= GOOD_ENOUGH * limit:
        return best, limit
    with suppress(TooManyClassesError):  # one column by itself is too much: so it is with tables apart
        account.trying = "one product"
        lasting = account.lasting_share()
        if not batch.joint:  # whose columns no product has
            enough = HOPELESS * best.total if best is not None else np.inf
            found.append(one_product(batch, terms, tolerance=tolerance, account=lasting, enough=enough))
        if len(terms) <= MOST_TABLES_APART and not account.over():
            account.trying = "tables apart"
            found.append(tables_apart(batch, terms, tolerance=tolerance, account=lasting))
    if not found:
        orbits = max(column.orbits for column in batch.columns)
        raise StrategyError(
            f"one of the columns has {orbits:,} groups of values that queries tell apart, more than can be solved "
            "together with Gaussian noise; ask for fewer ranges or groups of its values, or use Laplace noise "
            '(privacy="pure")'
        )
    best = min(found, key=lambda one: one.total)
    account.trying, account.best = "limit", best.total
    if limit == 0:
        limit = limit_of(batch, terms, measures, account, seed, best.total)
    return best, min(limit, best.total)


def _components(
    batch: Batch, terms: TableWeights, account: Account, tolerance: float
) -> tuple[list[Found], list[dict[int, Dense]]]:
    """Components with nothing split where that fits, else with as few columns split as fit and with all; measures."""
    wide = batch.wide()
    found: list[Found] = []
    for count in range(fewest_split(batch, terms), len(wide) + 1):
        measures = {i: batch.uniform(i) for i in wide[:count]}
        try:
            found.append(split_by(batch, terms, measures, tolerance=tolerance, account=account))
        except TooManyClassesError:
            continue
        break
    else:
        return [], []
    account.best = found[-1].total
    if not measures:
        return found, []
    if len(measures) < len(wide) and not account.over():
        everything = {i: batch.uniform(i) for i in wide}
        with suppress(TooManyClassesError):
            found.append(split_by(batch, terms, everything, tolerance=tolerance, account=account))
    account.trying = "measures"
    for one in list(found):
        better = improve_measures(batch, terms, one.measures, account)
        if better is not None:
            better = {i: in_fractions(mu) for i, mu in better.items()}
            try:
                found.append(split_by(batch, terms, better, tolerance=tolerance, account=account))
            except TooManyClassesError:
                break  # the time is over
            account.best = min(account.best, found[-1].total)
    best = {**{i: batch.uniform(i) for i in wide}, **min(found, key=lambda one: one.total).measures}
    lasting = account.lasting_share()
    return found, [dual_measures(batch, own, lasting) for own in (best, {})] + [{i: batch.uniform(i) for i in wide}]


def dual_measures(batch: Batch, measures: Mapping[int, Dense], account: Account) -> dict[int, Dense]:
    """Good measures for limits, given those that columns are split by, if they are; what is alike is solved once."""
    first = {j: twins[0] for twins in batch.twins for j in twins}
    found: dict[tuple[int, bytes], Dense] = {}
    keys = {i: (first[i], measures[i].tobytes() if i in measures else b"") for i in batch.wide()}
    for i, key in keys.items():
        if key not in found:
            found[key] = _dual(batch, i, measures.get(i), account)
    return {i: found[key] for i, key in keys.items()}


def _dual(batch: Batch, i: int, measure: Dense | None, account: Account) -> Dense:
    """The weights of a column's classes in the limit of its first factor: a good measure for limits."""
    if len(batch.columns[i].rows) == 1:  # which only joint factors look at
        return batch.uniform(i)
    weights = solve_column(i, {1: 1.0}, batch.view(i, measure), 1e-2, account).weights
    return batch.uniform(i) if weights is None else weights


def _strategy(batch: Batch, found: Found, limit: float, status: Outcome = Outcome.CONVERGED) -> ResidualStrategy:
    averages = []
    for i, column in enumerate(batch.columns):
        measure = found.measures.get(i, batch.uniform(i))
        averages.append(measure[column.orbit] / column.counts[column.orbit])
    parts = ListedParts(found.shared(batch.tables))
    return ResidualStrategy(
        workload=batch.workload,
        columns=batch.columns,
        averages=tuple(averages),
        parts=parts,
        total=found.total,
        limit=limit,
        method=found.method,
        status=status,
    )


def _whole(workload: KroneckerWorkload, objective: Literal["sum", "max"], account: Account) -> ResidualStrategy:
    found = closure(workload)
    shares, total = least_sum(found, workload.weights)
    limit, largest, status = total, None, Outcome.CLOSED_FORM
    if objective == "max":
        account.trying = "largest variance"
        shares, upper, lower = least_largest(found, workload.weights, account)
        largest, status = (upper, lower), account.outcome(upper, lower * GOOD_ENOUGH)
        sizes = workload.table_sizes()
        total = float((cell_variances(found, shares, len(sizes)) * sizes) @ workload.weights)
    says = {"total": total, "limit": limit, "method": "components", "largest": largest, "status": status}
    return of_whole_tables(workload, WholeParts(found, shares), says)


def of_whole_tables(workload: KroneckerWorkload, parts: WholeParts, says: dict[str, Any]) -> ResidualStrategy:
    """The strategy with these shares of the components of whole tables, and what it says of itself."""
    columns = columns_of(workload)
    averages = tuple(np.full(len(c.orbit), 1 / len(c.orbit)) for c in columns)
    return ResidualStrategy(workload=workload, columns=columns, averages=averages, parts=parts, **says)


def _largest(batch: Batch, account: Account, tolerance: float, seed: int) -> ResidualStrategy:
    """The least largest variance; or that of the least sum, where that is less."""

    def solved(weights: Dense) -> ResidualStrategy:
        return _strategy(batch, *best_sum(batch, batch.terms(weights), account, tolerance, seed))

    weights = batch.workload.weights
    account.trying = "largest variance"
    best, upper, lower = equalised(batch.workload, account, ROUNDS, lambda own: [solved(own)], 1 + 10 * tolerance)
    plain = solved(weights)
    if plain.largest_variance(rho=RHO) < upper:  # the weights have not come far in the time that there was
        best, upper = plain, plain.largest_variance(rho=RHO)
    total, status = added_up(best), account.outcome(upper, lower * GOOD_ENOUGH)
    return replace(best, total=total, limit=plain.limit, largest=(upper, lower), status=status)


Made = TypeVar("Made", bound=FactoredStrategy)


def equalised(
    workload: KroneckerWorkload, account: Account, rounds: int, tried: Callable[[Dense], Iterable[Made]], enough: float
) -> tuple[Made, float, float]:
    """The strategy with the least largest variance, that variance, and what none is below.

    Weights go to the tables whose worst cell is above the mean, and `tried` makes strategies for them; every set of
    weights gives a limit. It ends where the variance is no more than `enough` times that.
    """
    sizes = workload.table_sizes()
    y = 1 / (sizes * len(sizes))
    best: Made | None = None
    upper, lower = np.inf, 0.0
    for _ in range(rounds):
        y = y / float(y @ sizes)
        for strategy in tried(y * workload.weights):
            worst = strategy.worst_variances() * workload.weights
            lower = max(lower, strategy.limit)
            if float(worst.max()) < upper:
                best, upper = strategy, float(worst.max())
        account.best = upper
        if upper <= lower * enough or account.over():
            break
        y = y * np.clip(worst / worst.mean(), 0.2, 5.0)
    assert best is not None
    return best, upper, lower


def added_up(strategy: FactoredStrategy) -> float:
    """The weighted sum of all variances, in the unit of `total`."""
    workload = strategy.workload
    return float((strategy.mean_variances() * workload.table_sizes()) @ workload.weights)
