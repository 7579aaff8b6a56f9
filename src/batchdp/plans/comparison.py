"""Every method side by side on one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import fitting
from batchdp.optimizer import optimize
from batchdp.optimizer.families import STRATEGIES, families_for
from batchdp.optimizer.shapes import shaped_noise
from batchdp.plans import Plan
from batchdp.plans.baselines import simple_variances
from batchdp.privacy import GAUSSIAN, LAPLACE
from batchdp.strategies.shaped import ShapeLimits
from batchdp.strategies.strategy import Strategy
from batchdp.text import Shown
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, Workload, as_workload
from batchdp.workloads.reduction import reduce

Compared = Callable[[Any], Strategy]
"""From a workload to a strategy for it."""
Wrap = Callable[[Iterable[str]], Iterable[str]]
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
class Comparison(Shown):
    """All methods' figures for a workload under Laplace noise, and the bound that none of them can pass."""

    m: int
    n: int
    rank: int | None
    """None where the batch is too large for a matrix."""
    lower_bound: float
    methods: tuple[Row, ...]
    gaussian: Row
    """The optimum under Gaussian noise at ρ = ε²/2 = 1/2, the zCDP that ε = 1 implies: a weaker promise."""
    weighted: bool = False
    """Whether every query's squared error is times its weight, as in a fair plan."""
    shaped: Row | None = None
    """Noise in the shape of the batch, which the bound says nothing about; None where there is none within limits."""
    note: str = ""
    """What is not shown, and why."""


def all_methods() -> dict[str, Compared]:
    """`optimize` and every registered family with Laplace noise."""
    return {"optimize": optimize, **{family.name: family.method for family in families_for(LAPLACE)}}


def quick_methods() -> dict[str, Compared]:
    """Those that take seconds where the others take minutes."""
    return {family.name: family.method for family in families_for(LAPLACE) if family.quick}


@fitting("one of the methods")
def compare(
    workload: Plan | Workload | ArrayLike | Any, methods: Mapping[str, Compared] | None = None, *, progress: Wrap = iter
) -> Comparison:
    """Run every method, or those that are given, on a workload or on that of a plan.

    A batch over many columns that is too large for a matrix is not multiplied out. What has a closed form or works in
    factors is shown, and `note` says what is not.

    Args:
        workload: a plan, a workload or a matrix.
        methods: functions from a workload to a strategy, by name; if left out, `optimize` and every mechanism with
            Laplace noise.
        progress: wraps the iteration over the methods, as tqdm does.
    """
    batch = workload.asked_workload if isinstance(workload, Plan) else workload
    return compare_on(batch, all_methods() if methods is None else methods, progress, shapes=methods is None)


@singledispatch
def compare_on(workload: Any, methods: Mapping[str, Compared], progress: Wrap, *, shapes: bool) -> Comparison:
    """The methods on a workload, by its kind: here a matrix."""
    batch = as_workload(workload)
    every = {GAUSSIAN_OPTIMUM: STRATEGIES[GAUSSIAN_OPTIMUM], **methods}
    rows, bound = {}, 0.0
    for name in progress(every):
        rows[name], strategy = _run(name, every[name], batch)
        if name == GAUSSIAN_OPTIMUM:
            bound = LAPLACE.reference.variance(strategy.limit)
    gaussian = rows.pop(GAUSSIAN_OPTIMUM)
    rank, weighted = reduce(batch).rank, batch.weights is not None
    shaped = _shaped(batch) if shapes else None
    return Comparison(batch.queries, batch.cells, rank, bound, tuple(rows.values()), gaussian, weighted, shaped)


@compare_on.register
def _(workload: KroneckerWorkload, methods: Mapping[str, Compared], progress: Wrap, *, shapes: bool) -> Comparison:
    if workload.fits:
        return compare_on(workload.workload(), methods, progress, shapes=shapes)
    closed = {name: found for name, found in _closed_forms(workload).items() if name in methods}
    left_out = [name for name in methods if name in STRATEGIES and name not in closed]
    rows = [Row(name, *found, residual=0.0, seconds=0.0) for name, found in closed.items()]
    others = progress([name for name in methods if name not in STRATEGIES])
    rows.extend(_run(name, methods[name], workload)[0] for name in others)
    gaussian, optimum = _run(GAUSSIAN_OPTIMUM, lambda batch: optimize(batch, GAUSSIAN.privacy), workload)
    return Comparison(
        workload.queries,
        workload.cells,
        None,
        LAPLACE.reference.variance(optimum.limit),
        tuple(rows),
        gaussian,
        weighted=not np.all(workload.weights == 1),
        note=f"The batch is too large for a matrix. Left out, because they need one: {', '.join(left_out)}.",
    )


def _run(name: str, method: Compared, workload: Any) -> tuple[Row, Strategy]:
    start = time.perf_counter()
    strategy = method(workload)
    seconds = time.perf_counter() - start
    error = strategy.expected_squared_error(**strategy.noise.reference.arguments)
    return Row(name, error, strategy.sensitivity, strategy.residual, seconds), strategy


def _closed_forms(workload: KroneckerWorkload) -> dict[str, tuple[float, float]]:
    """The expected squared error at ε = 1 and the sensitivity of methods that need no matrix."""
    on_data, on_results = simple_variances(workload, 1.0)
    totals = [float((workload.weights * workload.table_sizes()) @ means) for means in (on_data, on_results)]
    sensitivities = 1.0, float(np.sqrt(on_results[0] / LAPLACE.variance_at_one))
    return dict(zip(("noise-on-data", "noise-on-results"), zip(totals, sensitivities, strict=True), strict=True))


def _shaped(workload: MatrixWorkload) -> Row | None:
    """Noise in the shape of the batch, where it can be drawn."""
    try:
        row, found = _run("", lambda batch: shaped_noise(batch, ShapeLimits()), workload)
    except StrategyError:
        return None
    return replace(row, name=found.method, standard_error=row.expected_squared_error * found.simulation_error)
