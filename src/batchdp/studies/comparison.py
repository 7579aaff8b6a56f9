"""Every method side by side on one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from batchdp.errors import StrategyError
from batchdp.portfolio import optimize
from batchdp.portfolio.shapes import shaped_noise
from batchdp.privacy import LAPLACE
from batchdp.strategies import STRATEGIES, Method, families_for
from batchdp.strategies.shaped import ShapeLimits
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import MatrixWorkload, as_workload

GAUSSIAN_OPTIMUM = "gaussian"
"""The family whose optimum is the bound for all."""


@dataclass(frozen=True)
class Row:
    """One method's strategy in figures; the error is the total over all queries at ε = 1."""

    name: str
    expected_squared_error: float
    sensitivity: float
    residual: float
    seconds: float
    standard_error: float = 0.0
    """Of the error, where it is simulated."""


@dataclass(frozen=True)
class Comparison:
    """All methods' figures for a workload under Laplace noise, and the bound that none of them can pass."""

    m: int
    n: int
    rank: int
    lower_bound: float
    methods: tuple[Row, ...]
    gaussian: Row
    """The optimum under Gaussian noise at ρ = ε²/2 = 1/2, the zCDP that ε = 1 implies: a weaker promise."""
    weighted: bool = False
    """Whether every query's squared error is times its weight, as in a fair plan."""
    shaped: Row | None = None
    """Noise in the shape of the batch, which the bound says nothing about; None where there is none within limits."""


def all_methods() -> dict[str, Method]:
    """`optimize` and every registered family with Laplace noise."""
    return {"optimize": optimize, **{family.name: family.method for family in families_for(LAPLACE)}}


def quick_methods() -> dict[str, Method]:
    """Those that take seconds where the others take minutes."""
    return {family.name: family.method for family in families_for(LAPLACE) if family.quick}


def compare(
    workload: MatrixWorkload | ArrayLike | Any,
    methods: dict[str, Method] | None = None,
    *,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Comparison:
    """Run every method on the workload, all of them if none are given; `progress` wraps the iteration."""
    workload = as_workload(workload)
    every = {GAUSSIAN_OPTIMUM: STRATEGIES[GAUSSIAN_OPTIMUM], **(all_methods() if methods is None else methods)}
    rows, bound = {}, 0.0
    for name in progress(every):
        start = time.perf_counter()
        strategy = every[name](workload)
        seconds = time.perf_counter() - start
        error = strategy.expected_squared_error(**strategy.noise.reference.arguments)
        rows[name] = Row(name, error, strategy.sensitivity, strategy.residual, seconds)
        if name == GAUSSIAN_OPTIMUM:
            bound = LAPLACE.reference.variance(strategy.optimality.lower_bound)
    gaussian = rows.pop(GAUSSIAN_OPTIMUM)
    rank, weighted = reduce(workload).rank, workload.weights is not None
    shaped = _compare_shape(workload) if methods is None else None
    return Comparison(workload.queries, workload.cells, rank, bound, tuple(rows.values()), gaussian, weighted, shaped)


def _compare_shape(workload: MatrixWorkload) -> Row | None:
    """Noise in the shape of the batch, where it can be drawn."""
    start = time.perf_counter()
    try:
        found = shaped_noise(workload, ShapeLimits())
    except StrategyError:
        return None
    seconds, error = time.perf_counter() - start, found.expected_squared_error(**found.noise.reference.arguments)
    return Row(found.method, error, found.sensitivity, found.residual, seconds, error * found.simulation_error)
