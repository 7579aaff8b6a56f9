"""`optimize` for batches over many columns with Gaussian noise: closed form where there is one, else the best found."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import column_of
from batchdp.components.groups import Terms, TooManyClassesError, one_column
from batchdp.components.largest import least_largest
from batchdp.components.limits import limit_of
from batchdp.components.measures import improved, in_fractions
from batchdp.components.search import (
    GOOD_ENOUGH,
    MOST_TABLES_APART,
    Batch,
    Found,
    one_product,
    split_by,
    tables_apart,
)
from batchdp.components.strategy import ListedParts, ResidualStrategy, WholeParts
from batchdp.components.whole import cell_variances, closure, is_whole, least_sum
from batchdp.errors import StrategyError
from batchdp.linalg.threads import one_thread
from batchdp.outcome import Outcome
from batchdp.privacy import GAUSSIAN
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]
Progress = Callable[[float, str, float], object]
"""Told the share of the time, what is being tried and the best error so far; a true answer ends the search."""

DEFAULT_SECONDS = 120.0
FINER = 0.1
"""Of the tolerance that is asked for: what is left to solve is small, and rounds are cheap."""
RHO = float(GAUSSIAN.reference)
ROUNDS = 15
"""Of weights on tables, for the largest variance where there is no closed form."""


class Clock:
    """The time that is left, and whom to tell."""

    def __init__(self, seconds: float | None, progress: Progress | None) -> None:
        self._start, self.seconds, self._progress = time.monotonic(), seconds or DEFAULT_SECONDS, progress
        self._ended = self._spent = False
        self.trying, self.best = "components", np.inf

    def over(self) -> bool:
        """Whether to stop."""
        spent = (time.monotonic() - self._start) / self.seconds
        if self._progress is not None and not self._ended:
            self._ended = bool(self._progress(min(1.0, spent), self.trying, self.best))
        self._spent = spent >= 1
        return self._ended or self._spent

    def outcome(self, found: float, proven: float) -> Outcome:
        """How a search ended whose best is this, where what is at most `proven` is optimal."""
        if found <= proven:
            return Outcome.OPTIMAL
        if self._ended:
            return Outcome.CANCELLED
        return Outcome.BUDGET_SPENT if self._spent else Outcome.CONVERGED

    def watch(self, _lower: float, _upper: float) -> bool:
        """For solvers: told their bounds, which are of a part of the problem."""
        return self.over()


@one_thread
def optimize_products(
    workload: KroneckerWorkload,
    *,
    objective: Literal["sum", "max"] = "sum",
    seconds: float | None = None,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
    seed: int = 0,
) -> ResidualStrategy:
    """The best strategy over components, by the (weighted) sum of squared errors or the largest variance."""
    clock = Clock(seconds, progress)
    if is_whole(workload):
        return _whole(workload, objective, clock)
    batch = Batch(workload)
    if objective == "max":
        return _largest(batch, clock, tolerance, seed)
    found, limit = best_sum(batch, batch.terms(workload.weights), clock, tolerance, seed)
    return _strategy(batch, found, limit, clock.outcome(found.total, limit * GOOD_ENOUGH))


def best_sum(batch: Batch, terms: Terms, clock: Clock, tolerance: float, seed: int) -> tuple[Found, float]:
    """The strategy with the least weighted sum of squared errors, and what none is below."""
    tolerance = FINER * tolerance
    found, measures = _components(batch, terms, clock, tolerance)
    best = min(found, key=lambda one: one.total, default=None)
    limit = max((one.limit for one in found), default=0.0)
    if best is not None and limit > 0 and best.total <= GOOD_ENOUGH * limit:
        return best, limit
    with suppress(TooManyClassesError):  # one column by itself is too much: so it is with tables apart
        clock.trying = "one product"
        found.append(one_product(batch, terms, tolerance=tolerance))
        if len(terms) <= MOST_TABLES_APART and not clock.over():
            clock.trying = "tables apart"
            found.append(tables_apart(batch, terms, tolerance=tolerance))
    if not found:
        orbits = max(column.orbits for column in batch.columns)
        raise StrategyError(
            f"one of the columns has {orbits:,} groups of values that queries tell apart, more than can be solved "
            "together with Gaussian noise; ask for fewer ranges or groups of its values, or use Laplace noise "
            '(privacy="pure")'
        )
    best = min(found, key=lambda one: one.total)
    clock.trying, clock.best = "limit", best.total
    if limit == 0:
        limit = limit_of(batch, terms, measures, clock.over, seed)
    return best, min(limit, best.total)


def _components(
    batch: Batch, terms: Terms, clock: Clock, tolerance: float
) -> tuple[list[Found], list[dict[int, Dense]]]:
    """Components with nothing split where that fits, else with as few columns split as fit and with all; measures."""
    wide = batch.wide()
    found: list[Found] = []
    for count in range(len(wide) + 1):
        measures = {i: batch.uniform(i) for i in wide[:count]}
        try:
            found.append(split_by(batch, terms, measures, tolerance=tolerance, watch=clock.watch))
        except TooManyClassesError:
            continue
        break
    else:
        return [], []
    clock.best = found[-1].total
    if not measures:
        return found, []
    if len(measures) < len(wide) and not clock.over():
        everything = {i: batch.uniform(i) for i in wide}
        with suppress(TooManyClassesError):
            found.append(split_by(batch, terms, everything, tolerance=tolerance, watch=clock.watch))
    clock.trying = "measures"
    for one in list(found):
        better = improved(batch, terms, one.measures, clock.over)
        if better is not None:
            better = {i: in_fractions(mu) for i, mu in better.items()}
            try:
                found.append(split_by(batch, terms, better, tolerance=tolerance, watch=clock.watch))
            except TooManyClassesError:
                break  # the time is over
            clock.best = min(clock.best, found[-1].total)
    best = min(found, key=lambda one: one.total).measures
    dual = {i: _dual(batch, i, best.get(i, batch.uniform(i))) for i in wide}
    return found, [dual, {i: batch.uniform(i) for i in wide}]


def _dual(batch: Batch, i: int, measure: Dense) -> Dense:
    """The weights of a column's classes in the limit of its first factor: a good measure for limits."""
    weights = one_column(i, 1, batch.lens(i, measure), 1e-2, None).weights
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


def _whole(workload: KroneckerWorkload, objective: Literal["sum", "max"], clock: Clock) -> ResidualStrategy:
    found = closure(workload)
    shares, total = least_sum(found, workload.weights)
    limit, largest, status = total, None, Outcome.CLOSED_FORM
    if objective == "max":
        clock.trying = "largest variance"

        def watch(_lower: float, upper: float) -> bool:
            clock.best = upper
            return clock.over()

        shares, upper, lower = least_largest(found, workload.weights, watch)
        largest, status = (upper, lower), clock.outcome(upper, lower * GOOD_ENOUGH)
        sizes = workload.table_sizes()
        total = float((cell_variances(found, shares, len(sizes)) * sizes) @ workload.weights)
    columns = tuple(map(column_of, workload.sizes, workload.factors))
    averages = tuple(np.full(len(c.orbit), 1 / len(c.orbit)) for c in columns)
    parts = WholeParts(found, shares)
    return ResidualStrategy(
        workload=workload,
        columns=columns,
        averages=averages,
        parts=parts,
        total=total,
        limit=limit,
        method="components",
        largest=largest,
        status=status,
    )


def _largest(batch: Batch, clock: Clock, tolerance: float, seed: int) -> ResidualStrategy:
    """Weights on tables, more on those whose worst cell is above the mean; every set of weights gives a limit."""
    workload = batch.workload
    sizes = workload.table_sizes()
    y = 1 / (sizes * len(sizes))
    best: ResidualStrategy | None = None
    upper, lower = np.inf, 0.0
    clock.trying = "largest variance"
    for _ in range(ROUNDS):
        y /= float(y @ sizes)
        found, limit = best_sum(batch, batch.terms(y * workload.weights), clock, tolerance, seed)
        strategy = _strategy(batch, found, limit)
        worst = np.array([w * strategy.variances(t, rho=RHO).max() for t, w in enumerate(workload.weights)])
        lower = max(lower, limit)
        if float(worst.max()) < upper:
            best, upper = strategy, float(worst.max())
            clock.best = upper
        if upper <= lower * (1 + 10 * tolerance) or clock.over():
            break
        y = y * np.clip(worst / worst.mean(), 0.2, 5.0)
    assert best is not None
    plain, limit = best_sum(batch, batch.terms(workload.weights), clock, tolerance, seed)
    other = _strategy(batch, plain, limit)
    largest = other.largest_variance(rho=RHO)
    if largest < upper:  # the weights have not come far in the time that there was
        best, upper = other, largest
    tables = enumerate(workload.weights)
    total = float(sum(w * best.variances(t, rho=RHO).sum() for t, w in tables))
    return replace(
        best, total=total, limit=limit, largest=(upper, lower), status=clock.outcome(upper, lower * GOOD_ENOUGH)
    )
