"""The best strategy with Laplace noise, or noise in the shape of the batch where that is clearly better.

One line a kind of workload in `add_shape`: what is multiplied out may have a shape, what is not says why it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.errors import LatticeError, StrategyError
from batchdp.linalg.matrix import Dense, dense, plain
from batchdp.mechanism.knorm.body import Body
from batchdp.optimizer.blocks import is_large, optimize_sum
from batchdp.optimizer.families import families_for
from batchdp.optimizer.marginal.search import optimize_products as by_weighted_tables
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual.optimizing import optimize_products as by_components
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise
from batchdp.strategies.account import Account, Progress
from batchdp.strategies.blocks import error_of
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.bounds.spectral import solve_max
from batchdp.strategies.marginal.strategy import MarginalStrategy
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.strategies.shaped import ShapeLimits, shaped
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import SMALLEST, MatrixWorkload, as_workload
from batchdp.workloads.reduction import Reduction, reduce

ROUNDS = 6
"""How often the queries are weighed anew under Laplace noise."""
DEFAULT_SECONDS = 2.0
"""What a round takes where the caller sets no time."""
LEAST_WEIGHT = 1e-3
"""The least weight of a query relative to the mean: one that matters little must still be answerable."""


def optimize_max(workload: MatrixWorkload, noise: Noise, options: Options) -> PairStrategy:
    """The strategy with the least largest (importance times) variance, for one block of cells."""
    reduction = reduce(workload)
    worst = solve_max(dense(reduction.rows), reduction.reduced, tolerance=options.tolerance)
    if noise.bound_is_tight:  # the convex optimum is a strategy of this noise
        return PairStrategy.lifted(reduction, worst.pair, method=noise.name.lower(), noise=noise, proven=(worst.bound,))
    candidates = _registered(reduction, thorough=options.seconds is None)
    assert worst.bound.query_weights is not None
    candidates += _reweighted(workload, worst.bound.query_weights, options)
    best = min(candidates, key=lambda one: one.largest_variance(**noise.reference.arguments))
    return replace(best, proven=(worst.bound,))


def _reweighted(workload: MatrixWorkload, worst: Dense, options: Options) -> list[PairStrategy]:
    """The best sums under equal weights, under those of the convex optimum, and under a few that follow from these."""
    progress, seconds = options.progress, options.seconds
    weights, cancelled, found = np.full(workload.queries, 1 / workload.queries), False, []

    def watch(share: float, doing: str, error: float) -> bool:
        nonlocal cancelled
        cancelled = cancelled or bool(progress and progress((round_ + share) / ROUNDS, doing, error))
        return cancelled

    share_of_time = DEFAULT_SECONDS if seconds is None else seconds / ROUNDS
    for round_ in range(ROUNDS):
        strategy = _weighted(workload, weights, share_of_time, options.seed, watch)
        found.append(strategy)
        if cancelled:
            break
        variances = _importance(workload) * strategy.per_query_variance(epsilon=1.0)
        mean = float(weights @ variances)
        if mean == 0:
            break
        moved = worst if round_ == 0 else weights * variances / mean
        weights = np.maximum(moved, LEAST_WEIGHT / len(weights))
        weights /= weights.sum()
    return found


def _importance(workload: MatrixWorkload) -> Dense:
    return np.ones(workload.queries) if workload.weights is None else workload.weights


def _weighted(
    workload: MatrixWorkload, weights: Dense, seconds: float | None, seed: int, progress: Progress
) -> PairStrategy:
    """The best sum with these weights on top of the workload's own, as a strategy for the workload itself."""
    heavy = np.maximum(weights, LEAST_WEIGHT / len(weights)) * _importance(workload)
    heavy = np.maximum(heavy / heavy.max(), SMALLEST)
    found = optimize_sum(MatrixWorkload(workload.matrix, workload.names, heavy), seconds, seed, progress)
    return replace(found, workload=workload, proven=())  # which would be about other weights


def _registered(reduction: Reduction, *, thorough: bool) -> list[PairStrategy]:
    """What the result must not be worse than: every family that can win here, the searching ones if there is time."""
    found = []
    for family in families_for(LAPLACE):
        if family.worth(reduction) and (thorough or not family.searches):
            for variant in family.variants():
                with suppress(StrategyError):  # queries of so different sizes that rounding drowns some of them
                    found.append(variant(reduction.workload))
    return found


SECONDS_A_COLUMN = 2.0
"""For the strategy of one column by itself."""
MOST_ENTRIES = 20_000_000
"""Of weighted tables that are multiplied out for a batch that came as a matrix too."""
PART = 0.3
"""Of the caller's seconds, for weighted tables beside all other methods."""


def _by_components(workload: KroneckerWorkload, options: Options) -> ResidualStrategy:
    return by_components(workload, **vars(options))


def _by_weighted_tables(workload: KroneckerWorkload, options: Options) -> MarginalStrategy:
    solver = _ColumnStrategies(None if options.seconds is None else options.seconds / 10, options.seed)
    return by_weighted_tables(
        workload,
        objective=options.objective,
        seconds=options.seconds,
        seed=options.seed,
        progress=options.progress,
        solver=solver,
    )


OVER_COLUMNS: dict[Noise, Callable[[KroneckerWorkload, Options], Strategy]] = {
    LAPLACE: _by_weighted_tables,
    GAUSSIAN: _by_components,
}
"""The searches over many columns, by the noise."""


class _ColumnStrategies:
    """From the queries on one column to what is measured of it, each asked once."""

    def __init__(self, seconds: float | None, seed: int) -> None:
        self.seconds, self.seed = SECONDS_A_COLUMN if seconds is None else min(seconds, SECONDS_A_COLUMN), seed
        self.known: dict[bytes, Dense] = {}

    def __call__(self, queries: Dense, account: Account) -> Dense | None:
        size = float(np.linalg.norm(queries))
        gram = np.round(queries.T @ queries / size**2, 9)
        key = gram.tobytes()
        if key not in self.known:
            account.charge(self.seconds)
            found = optimize_sum(MatrixWorkload(queries / size), self.seconds, self.seed, None)
            self.known[key] = dense(found.measurement)
        return self.known[key]


def as_tables(workload: MatrixWorkload, options: Options) -> PairStrategy | None:
    """Weighted tables for a batch that came as products, multiplied out; None where it did not, or they do not fit."""
    batch, seconds = workload.structure, options.seconds
    if batch is None or len(workload.blocks) > 1 or len(batch.sizes) < 2:
        return None
    part = None if seconds is None else PART * seconds
    found = by_weighted_tables(batch, seconds=part, seed=options.seed, progress=options.progress)
    if found.measurements * workload.cells > MOST_ENTRIES or found.measurements * workload.queries > MOST_ENTRIES:
        return None
    try:
        return PairStrategy(
            workload,
            sparse.csr_array(found.measure),
            sparse.csr_array(found.reconstruct),
            method=found.method,
            privacy=found.privacy,
            status=found.status,
        )
    except StrategyError:  # which misses its workload by rounding; the other methods remain
        return None


BITS = 20
"""Of the integers that the time of a draw is estimated with; it does not depend on them."""


def shaped_noise(
    workload: MatrixWorkload, limits: ShapeLimits, seed: int = 0, objective: Objective = "sum"
) -> PairStrategy:
    """Shaped noise for a workload, drawn within the limits; a StrategyError says why there is none."""
    if is_large(workload):
        raise StrategyError("noise is shaped for batches of moderate size, and this one is too large for any search")
    try:
        return shaped(workload, limits, objective=objective, seed=seed, price=seconds_of)
    except (LatticeError, np.linalg.LinAlgError) as problem:
        raise StrategyError(f"its body cannot be drawn from: {problem}") from problem


@singledispatch
def add_shape(workload: Any, found: Any, options: Options, limits: ShapeLimits) -> Any:
    """The strategy, or noise in the shape of the batch where that is clearly better; `reason` says which."""
    return with_shape(as_workload(workload), found, options.objective, limits, options.seed, options.progress)


@add_shape.register
def _(workload: KroneckerWorkload, found: MarginalStrategy, options: Options, limits: ShapeLimits) -> MarginalStrategy:
    why = "tables of many columns are measured as products, and noise is shaped for single cells alone"
    return replace(found, reason=f"Laplace noise: {why}; ask for few answers, by SQL, instead.")


def with_shape(
    workload: MatrixWorkload,
    pair: PairStrategy,
    objective: Objective,
    limits: ShapeLimits,
    seed: int,
    progress: Progress | None = None,
) -> PairStrategy:
    """The pair, unless a shape is better by more than so many standard errors; with the reason."""
    if progress is not None and progress(1.0, "noise in the shape of the batch", error_of(pair, objective)):
        return pair
    try:
        found = shaped_noise(workload, limits, seed, objective)
    except StrategyError as problem:
        return replace(pair, reason=" ".join([pair.reason, f"Laplace noise: {problem}."]).strip())
    error, other = error_of(found, objective), error_of(pair, objective)
    spread = error * _relative_spread(found, objective)
    said = f"Noise in the shape of the batch has an expected squared error of {error:.4g} ± {spread:.2g} at ε = 1"
    said += ", simulated"
    if error + limits.clearly * spread < other:
        reason = f"{said}; the best pair, {pair.method}, has {other:.4g}. A draw takes {_seconds(found)}."
        return replace(found, proven=pair.proven, reason=reason)
    return replace(pair, reason=f"{said}; this pair has {other:.4g}.")


def seconds_of(measure: Dense) -> float:
    """What a draw of the noise of a body takes, in nominal seconds."""
    top = float(np.abs(measure).max())
    return Body(np.trunc(measure / top * 2.0**BITS).astype(np.int64).astype(object)).seconds


def _relative_spread(found: PairStrategy, objective: Objective) -> float:
    """Of what is minimised: the total, or the worst query's error."""
    if objective == "sum":
        return found.simulation_error
    assert found.shape is not None
    variances, weights = found.per_query_variance(epsilon=1.0), found.workload.weights
    worst = int(np.argmax(variances if weights is None else variances * weights))
    return found.shape.relative_spread(plain(found.reconstruction)[[worst]])


def _seconds(found: PairStrategy) -> str:
    """How long a draw takes, in words."""
    assert found.shape is not None
    seconds = found.shape.seconds
    return f"about {seconds:.2g} seconds" if seconds >= 1 else "less than a second"
