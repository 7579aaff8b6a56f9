"""`optimize`: the best strategy that any method here finds.

Left to itself it runs every registered mechanism that can win and is never worse than any of them; with a time budget
of the caller's it is never worse than those in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, dense, fitting, row_maxima, rows_span
from batchdp.linalg.product import Product
from batchdp.mechanism.conversion import rho_for
from batchdp.optimizer.blocks import by_rows, is_large, may_group, optimize_blocks, optimize_max, optimize_sum
from batchdp.optimizer.families import families_for
from batchdp.optimizer.marginal import search as marginal
from batchdp.optimizer.options import ANY, Options, checked_search, checked_shape
from batchdp.optimizer.residual import optimizing as residual
from batchdp.optimizer.shapes import add_shape
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise, Privacy, noise_of
from batchdp.strategies.account import Account, Progress
from batchdp.strategies.blocks import error_of
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.marginal.strategy import MarginalStrategy
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.strategies.shaped import DEFAULT, ShapeLimits
from batchdp.strategies.strategy import Strategy
from batchdp.text import timed
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, Workload, as_workload

ShapeChoice = Literal["pair", "any"]
TIE = 1e-12
"""Errors that differ by less, relative, are the same but for rounding."""
SECONDS_A_COLUMN, SECONDS_AN_ENTRY = 2.0, 1e-4
"""For the strategy of one column by itself: at most, and for each entry of its queries' Gram matrix."""
MOST_ENTRIES = 20_000_000
"""Of weighted tables that are multiplied out for a batch that came as a matrix too."""
MOST_SEARCHED = 500_000
"""Queries times cells of a batch that came in factors from which other methods must show something beside these."""
BESIDE_FACTORS, PROMISING = 0.3, 2.0
"""Nominal seconds, and the error that they must come to, as a multiple of that in factors."""
PART = 0.3
"""Of the caller's seconds, for weighted tables beside all other methods."""
NEAREST = 1e-5
"""How much smaller than the largest a query may be, by its weight, where the search lost some to rounding."""


class _Search(TypedDict, total=False):
    objective: Objective
    seconds: float | None
    seed: int
    epsilon: float
    delta: float | None
    tolerance: float
    shape: ShapeChoice
    limits: ShapeLimits
    progress: Progress | None


@overload
def optimize(workload: KroneckerWorkload, privacy: Literal["zcdp"], **search: Unpack[_Search]) -> ResidualStrategy: ...
@overload
def optimize(
    workload: KroneckerWorkload, privacy: Literal["pure"] = "pure", **search: Unpack[_Search]
) -> MarginalStrategy: ...
@overload
def optimize(workload: KroneckerWorkload, privacy: Literal["auto"], **search: Unpack[_Search]) -> Strategy: ...
@overload
def optimize(
    workload: MatrixWorkload | Product | ArrayLike | sparse.sparray | sparse.spmatrix,
    privacy: Privacy | Literal["auto"] = LAPLACE.privacy,
    **search: Unpack[_Search],
) -> PairStrategy: ...
@overload
def optimize(
    workload: Workload, privacy: Privacy | Literal["auto"] = LAPLACE.privacy, **search: Unpack[_Search]
) -> Any: ...
@fitting("the search for a strategy")
def optimize(
    workload: Workload | ArrayLike | Any,
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
) -> Strategy:
    """Find the strategy with the least expected error.

    Args:
        workload: W, as an array, a scipy.sparse matrix or a `Workload`; its weights weigh the queries' errors. The
            strategy of a batch over many columns is in factors, as the batch is, and never multiplied out.
        privacy: "pure" for ε-differential privacy with Laplace noise, by a portfolio of methods. "zcdp" for Gaussian
            noise, where the optimum is exact to a duality gap of `tolerance`. "auto" for whichever has the smaller
            error at the same `epsilon` and `delta`; the strategy's `reason` says why.
        objective: "sum" of all queries' squared errors, or "max" for the largest.
        seconds: the time to spend, in nominal seconds: work is counted by what it takes on one core of a usual machine,
            so the result does not depend on how busy yours is. If left out, the time follows from the problem's size
            (seconds for hundreds of cells), and every mechanism that can win is run. The result is then never worse
            than any of these, unless a large batch came in factors and a short search stays far from them.
        seed: the same seed and time give the same strategy.
        epsilon: with `delta`, what "auto" compares at; other strategies are the same at every ε.
        delta: see `epsilon`; needed by "auto" alone.
        tolerance: the relative duality gap at which a search for an exact optimum ends: under Gaussian noise, and for
            the bound of `objective="max"`. The search for the least sum under Laplace noise has no such gap and goes by
            `seconds`.
        shape: "pair" for Laplace or Gaussian noise on a pair of matrices. "any" also tries noise in the shape of the
            batch, under pure ε, and takes it where its simulated error is clearly below that of the best pair; `reason`
            says what was found.
        limits: the rank and the time of a draw up to which noise is shaped. Simulating a shape takes time on top of
            `seconds`: a second for a few hundred columns, more for a thousand.
        progress: called with (share of the time spent, what is being tried, best error so far at ε = 1). If it returns
            something true, the search ends with the best strategy so far.
    """
    options = checked_search(privacy, objective, seconds, seed, tolerance, progress)
    shape_limits = checked_shape(shape, privacy, limits)

    def best(noise: Noise) -> Any:
        with timed(f"looked for a strategy with {noise.name} noise"):
            found = best_strategy(workload, noise, options)
        return add_shape(workload, found, options, shape_limits) if shape == ANY and noise == LAPLACE else found

    found: Strategy = _better(best, objective, epsilon, delta) if privacy == "auto" else best(noise_of(privacy))
    return found


def best_strategy(workload: Any, noise: Noise, options: Options) -> Any:
    """The best strategy with a noise: in factors, never multiplied out, or of a matrix block by block."""
    if isinstance(workload, KroneckerWorkload):
        return OVER_COLUMNS[noise](workload, options)
    return _of_blocks(as_workload(workload), noise, options)


OVER_COLUMNS: dict[Noise, Callable[[KroneckerWorkload, Options], Strategy]] = {
    LAPLACE: lambda workload, options: marginal.optimize_products(workload, options, _ColumnStrategies(options)),
    GAUSSIAN: residual.optimize_products,
}
"""The searches over many columns, by the noise."""


def _of_blocks(workload: MatrixWorkload, noise: Noise, options: Options) -> PairStrategy:
    if len(workload.blocks) > 1:
        # The errors of a query that spans blocks add up: the least largest in each need not be the least in all.
        tried: tuple[Objective, ...] = (options.objective,)
        if options.objective == "max" and rows_span(workload.matrix, workload.blocks):
            tried = ("max", "sum")
        each = options.split(len(tried), options.progress)

        def of_block(part: MatrixWorkload, own: Options) -> PairStrategy:
            return _of_blocks(part, noise, own)

        found = [optimize_blocks(workload, noise, replace(each, objective=one), of_block) for one in tried]
        return min(found, key=lambda strategy: error_of(strategy, options.objective))
    try:
        return _of_one_block(workload, noise, options)
    except StrategyError:  # queries of so different sizes that rounding drowns some of them
        nearer = MatrixWorkload(workload.matrix, workload.names, _nearer_weights(workload))
        one = _of_one_block(nearer, noise, options)
        return replace(one, workload=workload, proven=())  # which would be about other weights


def _nearer_weights(workload: MatrixWorkload) -> Dense:
    """The weights, with those of the smallest queries raised until rounding leaves something of them."""
    largest = row_maxima(workload.matrix)
    sizes = largest if workload.weights is None else largest * np.sqrt(workload.weights)
    kept = np.maximum(sizes, NEAREST * sizes.max(initial=0.0)) / np.where(largest > 0, largest, 1.0)
    return np.asarray(np.square(np.where(largest > 0, kept, 1.0)))


def _of_one_block(workload: MatrixWorkload, noise: Noise, options: Options) -> PairStrategy:
    if options.objective == "max":
        return optimize_max(workload, noise, options)
    if noise != LAPLACE:
        return _best_optimum(workload, noise, options)
    tables = _as_tables(workload, options)
    if large := is_large(workload):  # what takes no search and no copy of the workload
        closed = (family.plainly(workload) for family in families_for(LAPLACE))
        best = min((one for one in closed if one is not None), key=lambda one: error_of(one, "sum"))
    else:
        best = _searched(workload, options, tables)
    others = (by_rows(workload) if tables is None and (large or may_group(workload)) else None, tables)
    for other in others:
        # By more than rounding: what was found on the merged cells can be kept in factors.
        if other is not None and error_of(other, "sum") < (1 - TIE) * error_of(best, "sum"):
            best = other
    return best


def _searched(workload: MatrixWorkload, options: Options, tables: PairStrategy | None) -> PairStrategy:
    """The best of all families; of a large batch that came in factors at length only if a short search comes near."""
    if options.seconds is None and tables is not None and workload.queries * workload.cells > MOST_SEARCHED:
        short = optimize_sum(workload, BESIDE_FACTORS, options.seed, options.progress)
        if error_of(short, "sum") > PROMISING * error_of(tables, "sum"):
            return short
    return optimize_sum(workload, options.seconds, options.seed, options.progress)


def _best_optimum(workload: MatrixWorkload, noise: Noise, options: Options) -> PairStrategy:
    """The best of the families of a noise for which the problem is convex."""
    found, progress = [], options.progress
    for family in families_for(noise):

        def watch(_: int, lower: float, upper: float, name: str = family.name) -> object:
            return progress is not None and progress(lower / upper, name, upper)

        with timed(f"tried {family.name}"):
            found.append(family.optimum(workload, options.tolerance, None if progress is None else watch))
    return min(found, key=lambda strategy: error_of(strategy, "sum"))


class _ColumnStrategies:
    """From the queries on one column to what is measured of it, each asked once."""

    def __init__(self, options: Options) -> None:
        self.seconds, self.seed = min((options.seconds or np.inf) / 10, SECONDS_A_COLUMN), options.seed
        self.known: dict[bytes, Dense] = {}

    def __call__(self, queries: Dense, account: Account) -> Dense | None:
        size = float(np.linalg.norm(queries))
        gram = np.round(queries.T @ queries / size**2, 9)
        key = gram.tobytes()
        if key not in self.known:
            seconds = min(self.seconds, SECONDS_AN_ENTRY * gram.size)
            account.charge(seconds)
            found = optimize_sum(MatrixWorkload(queries / size), seconds, self.seed, None)
            self.known[key] = dense(found.measurement)
        return self.known[key]


def _as_tables(workload: MatrixWorkload, options: Options) -> PairStrategy | None:
    """Weighted tables for a batch that came as products, multiplied out; None where it did not, or they do not fit."""
    batch, seconds = workload.structure, options.seconds
    if batch is None or batch.joint or len(workload.blocks) > 1 or len(batch.sizes) < 2:
        return None
    part = replace(options, objective="sum", seconds=None if seconds is None else PART * seconds)
    found = marginal.optimize_products(batch, part)
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


def _better(best: Callable[[Noise], Any], objective: Objective, epsilon: float, delta: float | None) -> Any:
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
