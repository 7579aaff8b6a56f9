"""`optimize`: the best strategy that any method here finds.

Left to itself it runs every registered mechanism that can win and is never worse than any of them; with a time budget
of the caller's it is never worse than those in closed form.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from batchdp.checks import finite, whole
from batchdp.conversion import rho_for
from batchdp.errors import StrategyError
from batchdp.matrix import Dense
from batchdp.portfolio.baselines import baselines, closed_forms
from batchdp.portfolio.low_rank import improve_baseline, may_pay, search_low_rank, search_registered
from batchdp.portfolio.search import EndedError, Progress, Search, reduction_price
from batchdp.portfolio.shared import search_shared
from batchdp.reduction import Reduction, reduce
from batchdp.strategies.gaussian import gaussian
from batchdp.strategies.noise_on_data import noise_on_data
from batchdp.strategies.p_identity.products import products
from batchdp.strategy import Privacy, Strategy
from batchdp.threads import in_threads, one_thread
from batchdp.workload import Workload, as_workload
from batchdp.workloads.structure import Products

CLASSES = tuple(a * 10.0**b for b in (-1, 0, 1, 2, 3) for a in (1, 2, 3, 5, 7))
"""`seconds` is rounded down to one of these."""
NOMINAL_SHARE = 0.8
"""Of the seconds that are planned with: the account is an estimate of the time of one core."""


def optimize(
    workload: Workload | ArrayLike | Any,
    privacy: Privacy | Literal["auto"] = "pure",
    *,
    objective: Literal["sum", "max"] = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Strategy:
    """The strategy with the least expected error that can be found.

    Args:
        workload: W, as an array, scipy.sparse matrix or `Workload`; its weights weigh the queries' errors.
        privacy: "pure" for ε-differential privacy with Laplace noise, by a portfolio of methods; "zcdp" for Gaussian
            noise, where the optimum is exact to a duality gap of 1e-3; "auto" for whichever has the smaller error at
            the same (`epsilon`, `delta`), with the reason in the strategy's `reason`.
        objective: "sum" of all queries' squared errors, or "max" for the largest.
        seconds: the time to spend. If left out, it follows from the problem's size (seconds for hundreds of cells),
            every registered mechanism that can win is run, and the result is never worse than any of these.
        seed: the same seed and class of budget give the same strategy.
        epsilon, delta: what "auto" compares at; not used otherwise.
        tolerance: the relative duality gap at which the search under Gaussian noise ends.
        progress: called with (share of the budget spent, what is being tried, best error so far at ε = 1); a true
            answer ends the search with the best strategy so far.
    """
    if isinstance(workload, Products) and privacy == "zcdp":
        found: Any = _in_factors(workload, objective, seconds, seed, tolerance, progress)
        return cast(Strategy, found)  # has all that a strategy has
    workload = as_workload(workload)
    if privacy not in ("pure", "zcdp", "auto"):
        raise StrategyError(f'privacy={privacy!r} must be "pure" (Laplace), "zcdp" (Gaussian) or "auto"')
    if objective not in ("sum", "max"):
        raise StrategyError(f'objective={objective!r} must be "sum" or "max"')
    seconds = None if seconds is None else finite("seconds", seconds, above=0)
    seed = whole("seed", seed, 0)
    if privacy == "auto":
        options = {"objective": objective, "seconds": seconds, "seed": seed, "progress": progress}
        return _better(workload, epsilon, delta, options)
    if len(workload.blocks) > 1:
        from batchdp.portfolio.blocks import optimize_blocks

        return optimize_blocks(workload, privacy, objective, seconds, seed, tolerance, progress)
    if objective == "max":
        from batchdp.portfolio.minimax import optimize_max

        return optimize_max(workload, privacy, seconds, seed, progress)
    if privacy == "zcdp":
        watch = None if progress is None else lambda _, lower, upper: progress(lower / upper, "gaussian", upper)
        return gaussian(workload, tolerance=tolerance, progress=watch)
    return optimize_sum(workload, seconds, seed, progress)


def _in_factors(
    workload: Products,
    objective: Literal["sum", "max"],
    seconds: float | None,
    seed: int,
    tolerance: float,
    progress: Progress | None,
) -> Any:
    """A batch over many columns, which is never multiplied out."""
    from batchdp.components.optimizing import optimize_products

    if objective not in ("sum", "max"):
        raise StrategyError(f'objective={objective!r} must be "sum" or "max"')
    return optimize_products(
        workload,
        objective=objective,
        seconds=None if seconds is None else finite("seconds", seconds, above=0),
        tolerance=finite("tolerance", tolerance, above=0, below=1),
        progress=progress,
        seed=whole("seed", seed, 0),
    )


def _better(workload: Workload, epsilon: float, delta: float | None, options: dict[str, Any]) -> Strategy:
    """Laplace or Gaussian noise, by the smaller error at the same (ε, δ)."""
    if delta is None:
        raise StrategyError('delta=None: privacy="auto" needs a delta, below one over the number of people')
    rho = rho_for(epsilon, delta)
    laplace, gauss = optimize(workload, "pure", **options), optimize(workload, "zcdp", **options)
    if options["objective"] == "max":
        ours, theirs = laplace.largest_variance(epsilon=epsilon), gauss.largest_variance(rho=rho)
    else:
        ours, theirs = laplace.expected_squared_error(epsilon=epsilon), gauss.expected_squared_error(rho=rho)
    chosen, name, other = (laplace, "Laplace", "Gaussian") if ours <= theirs else (gauss, "Gaussian", "Laplace")
    return replace(
        chosen,
        reason=f"{name} noise has an expected squared error of {min(ours, theirs):.4g} at ε = {epsilon:g} and "
        f"δ = {delta:g} (ρ = {rho:.4g}); {other} noise would have {max(ours, theirs):.4g}",
    )


@one_thread
def optimize_sum(workload: Workload, seconds: float | None, seed: int, progress: Progress | None) -> Strategy:
    """The portfolio for Laplace noise and the (weighted) sum of squared errors."""
    reduction = reduce(workload)
    if reduction.rank == 0:
        return Strategy.lifted(reduction, np.zeros((0, reduction.columns)), method="nothing to measure")
    scale = np.sqrt(reduction.columns) / float(np.linalg.norm(reduction.reduced))
    R = reduction.reduced * scale
    search = Search(R, _nominal(R, seconds), progress, scale, thorough=seconds is None)
    search.spent = 0.0 if seconds is None else reduction_price(workload.queries, reduction.columns)
    with suppress(EndedError):
        _run_members(search, reduction, seed)
    assert search.best is not None  # noise on data is always there
    try:
        return Strategy.lifted(
            reduction,
            search.best.measure,
            search.best.reconstruct / scale,
            method=search.best.method,
            rounds=search.rounds,
            status=search.status,
        )
    except StrategyError:  # queries or weights of so different sizes that rounding drowns some of them
        with suppress(StrategyError):
            return noise_on_data(workload, merged=True)
        return noise_on_data(workload)


def _run_members(search: Search, reduction: Reduction, seed: int) -> None:
    """Cheap members first, then time where an estimate says it can pay."""
    search.offer_packed("noise-on-data", np.ones((1, reduction.columns)))
    for form in closed_forms(search.R):
        search.offer_pair(*form)
    named = list(baselines(reduction, search.error / search.scale**2))
    completed = in_threads(lambda one: search.completed(*one), named, entries=search.R.size)
    for (name, _), found in zip(named, completed, strict=True):
        search.keep(found, name)
    if reduction.columns == 1:
        return
    improve_baseline(search)
    low_rank_may_pay = may_pay(search.R)
    search_shared(search, products(reduction), seed, 0.3 if low_rank_may_pay else 1.0)
    if search_registered(search, reduction.reduced) and low_rank_may_pay:
        search_low_rank(search, seed)


def _nominal(R: Dense, seconds: float | None) -> float:
    """The budget in nominal seconds."""
    if seconds is not None:
        return NOMINAL_SHARE * max((c for c in CLASSES if c <= seconds), default=CLASSES[0])
    size = R.size
    nominal = 0.55 + min(1.4e-5 * size, 2.0) + min(1e-5 * size, 55.0)
    return nominal + (min(0.3 + 2e-4 * size, 20.0) if may_pay(R) else 0.0)
