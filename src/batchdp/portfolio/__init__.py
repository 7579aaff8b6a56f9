"""`optimize`: the best strategy that any method here finds.

Left to itself it runs every registered mechanism that can win and is never worse than any of them; with a time budget
of the caller's it is never worse than those in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp.bounds.optimality import Objective
from batchdp.checks import finite
from batchdp.components.strategy import ResidualStrategy
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, row_maxima, rows_span
from batchdp.linalg.product import Product
from batchdp.mechanism.conversion import rho_for
from batchdp.portfolio.blocks import optimize_blocks
from batchdp.portfolio.largest_error import optimize_max
from batchdp.portfolio.many_columns import as_tables, optimize_products
from batchdp.portfolio.options import ANY, checked_search, checked_shape
from batchdp.portfolio.rows import by_rows, is_large, may_group
from batchdp.portfolio.search import Progress
from batchdp.portfolio.shapes import with_shape
from batchdp.portfolio.sums import optimize_sum
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise, Privacy, noise_of
from batchdp.strategies import families_for
from batchdp.strategies.blocks import error_of
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shaped import DEFAULT, ShapeLimits
from batchdp.weighted.strategy import MarginalStrategy
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import MatrixWorkload, as_workload

ShapeChoice = Literal["pair", "any"]
NOT_TABLES = "Laplace noise: noise is shaped for matrices of queries, and this is a batch of tables."
TIE = 1e-12
"""Errors that differ by less, relative, are the same but for rounding."""
NEAREST = 1e-5
"""How much smaller than the largest a query may be, by its weight, where the search lost some to rounding."""


@overload
def optimize(
    workload: KroneckerWorkload,
    privacy: Literal["zcdp"],
    *,
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> ResidualStrategy: ...


@overload
def optimize(
    workload: KroneckerWorkload,
    privacy: Literal["pure"] = "pure",
    *,
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> MarginalStrategy: ...


@overload
def optimize(
    workload: KroneckerWorkload,
    privacy: Literal["auto"],
    *,
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> ResidualStrategy | MarginalStrategy: ...


@overload
def optimize(
    workload: MatrixWorkload | Product | ArrayLike | sparse.sparray | sparse.spmatrix,
    privacy: Privacy | Literal["auto"] = LAPLACE.privacy,
    *,
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> PairStrategy: ...


def optimize(
    workload: MatrixWorkload | KroneckerWorkload | ArrayLike | Any,
    privacy: Privacy | Literal["auto"] = LAPLACE.privacy,
    *,
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> PairStrategy | ResidualStrategy | MarginalStrategy:
    """The strategy with the least expected error that can be found.

    Args:
        workload: W, as an array, scipy.sparse matrix or `Workload`; its weights weigh the queries' errors. The strategy
            of a batch over many columns is in factors, as the batch is, and never multiplied out.
        privacy: "pure" for ε-differential privacy with Laplace noise, by a portfolio of methods; "zcdp" for Gaussian
            noise, where the optimum is exact to a duality gap of `tolerance`; "auto" for whichever has the smaller
            error at the same (`epsilon`, `delta`), with the reason in the strategy's `reason`.
        objective: "sum" of all queries' squared errors, or "max" for the largest.
        seconds: the time to spend. If left out, it follows from the problem's size (seconds for hundreds of cells),
            every registered mechanism that can win is run, and the result is never worse than any of these.
        seed: the same seed and class of budget give the same strategy.
        epsilon, delta: what "auto" compares at; not used otherwise.
        tolerance: the relative duality gap at which the searches for an exact optimum end: that under Gaussian noise,
            and the bound of `objective="max"`. The search under Laplace noise for the least sum has none and goes by
            `seconds`.
        shape: "pair" for Laplace or Gaussian noise on a pair; "any" for noise in the shape of the batch where its
            simulated error is clearly below that of the best pair, under pure ε and for one block of cells; the
            strategy's `reason` says what was found.
        limits: up to which rank and time of a draw noise is shaped. What a shape is simulated for comes on top of
            `seconds`: a second for a few hundred columns, some for a thousand.
        progress: called with (share of the budget spent, what is being tried, best error so far at ε = 1); a true
            answer ends the search with the best strategy so far.
    """
    seconds, seed = checked_search(privacy, objective, seconds, seed)
    tolerance = finite("tolerance", tolerance, above=0, below=1)
    shape_limits = checked_shape(shape, privacy, limits)
    if isinstance(workload, KroneckerWorkload):  # never multiplied out

        def best_in_factors(noise: Noise) -> ResidualStrategy | MarginalStrategy:
            found = optimize_products(workload, noise, objective, seconds, seed, tolerance, progress)
            return replace(found, reason=NOT_TABLES) if shape == ANY and noise == LAPLACE else found

        if privacy == "auto":
            return _better(best_in_factors, objective, epsilon, delta)
        return best_in_factors(noise_of(privacy))
    batch = as_workload(workload)

    def best(noise: Noise) -> PairStrategy:
        found = _optimize(batch, noise, objective, seconds, seed, tolerance, progress)
        if shape == ANY and noise == LAPLACE:
            found = with_shape(batch, found, objective, shape_limits, seed, progress)
        return found

    return _better(best, objective, epsilon, delta) if privacy == "auto" else best(noise_of(privacy))


def _optimize(
    workload: MatrixWorkload,
    noise: Noise,
    objective: Objective,
    seconds: float | None,
    seed: int,
    tolerance: float,
    progress: Progress | None,
) -> PairStrategy:
    if len(workload.blocks) > 1:
        # The errors of a query that spans blocks add up: the least largest in each need not be the least in all.
        tried: tuple[Objective, ...] = (objective,)
        if objective == "max" and rows_span(workload.matrix, workload.blocks):
            tried = ("max", "sum")
        each = None if seconds is None else seconds / len(tried)

        def by_blocks(of_blocks: Objective) -> PairStrategy:
            def of_block(part: MatrixWorkload, share: float | None, watch: Progress | None) -> PairStrategy:
                return _optimize(part, noise, of_blocks, share, seed, tolerance, watch)

            return optimize_blocks(workload, noise, of_blocks, each, progress, of_block)

        return min(map(by_blocks, tried), key=lambda strategy: error_of(strategy, objective))
    try:
        return _of_one_block(workload, noise, objective, seconds, seed, tolerance, progress)
    except StrategyError:  # queries of so different sizes that rounding drowns some of them
        nearer = MatrixWorkload(workload.matrix, workload.names, _nearer_weights(workload))
        found = _of_one_block(nearer, noise, objective, seconds, seed, tolerance, progress)
        return replace(found, workload=workload, proven=())  # which would be about other weights


def _nearer_weights(workload: MatrixWorkload) -> Dense:
    """The weights, with those of the smallest queries raised until rounding leaves something of them."""
    largest = row_maxima(workload.matrix)
    sizes = largest if workload.weights is None else largest * np.sqrt(workload.weights)
    kept = np.maximum(sizes, NEAREST * sizes.max(initial=0.0)) / np.where(largest > 0, largest, 1.0)
    return np.asarray(np.square(np.where(largest > 0, kept, 1.0)))


def _of_one_block(
    workload: MatrixWorkload,
    noise: Noise,
    objective: Objective,
    seconds: float | None,
    seed: int,
    tolerance: float,
    progress: Progress | None,
) -> PairStrategy:
    if objective == "max":
        return optimize_max(workload, noise, seconds, seed, tolerance, progress)
    if noise == LAPLACE:
        large = is_large(workload)
        found = _closed(workload) if large else [optimize_sum(workload, seconds, seed, progress)]
        others = (
            by_rows(workload) if large or may_group(workload) else None,
            as_tables(workload, seconds, seed, progress),
        )
        best = min(found, key=lambda one: error_of(one, "sum"))
        for one in others:
            # By more than rounding: what was found on the merged cells can be kept in factors.
            if one is not None and error_of(one, "sum") < (1 - TIE) * error_of(best, "sum"):
                best = one
        return best
    return _best_optimum(workload, noise, tolerance, progress)


def _closed(workload: MatrixWorkload) -> list[PairStrategy]:
    """What takes no search and no copy of the workload: noise on data and noise on results as they stand."""
    return [family.method(workload) for family in families_for(LAPLACE) if family.plain]


def _best_optimum(workload: MatrixWorkload, noise: Noise, tolerance: float, progress: Progress | None) -> PairStrategy:
    """The best of the families of a noise for which the problem is convex."""
    found = []
    for family in families_for(noise):

        def watch(_: int, lower: float, upper: float, name: str = family.name) -> object:
            return progress is not None and progress(lower / upper, name, upper)

        found.append(
            family.method(workload)
            if family.optimum is None
            else family.optimum(workload, tolerance, None if progress is None else watch)
        )
    return min(found, key=lambda strategy: error_of(strategy, "sum"))


Found = TypeVar("Found", PairStrategy, ResidualStrategy | MarginalStrategy)


def _better(best: Callable[[Noise], Found], objective: Objective, epsilon: float, delta: float | None) -> Found:
    """Laplace or Gaussian noise, by the smaller error at the same (ε, δ)."""
    if delta is None:
        raise StrategyError('delta=None: privacy="auto" needs a delta, below one over the number of people')
    budgets = (Budget(LAPLACE, epsilon), Budget(GAUSSIAN, rho_for(epsilon, delta)))
    found = []
    for budget in budgets:
        strategy = best(budget.noise)
        of_objective = strategy.expected_squared_error if objective == "sum" else strategy.largest_variance
        found.append((of_objective(**budget.arguments), strategy))
    (least, chosen), (most, other) = sorted(found, key=lambda one: one[0])
    return replace(
        chosen,
        reason=f"{chosen.reason} ".lstrip()
        + f"{chosen.noise.name} noise has an expected squared error of {least:.4g} at ε = {epsilon:g} and "
        f"δ = {delta:g} (ρ = {float(budgets[1]):.4g}); {other.noise.name} noise would have {most:.4g}",
    )
