"""Every method side by side on one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from batchdp.portfolio import optimize
from batchdp.strategies import STRATEGIES, Method
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload, as_workload


@dataclass(frozen=True)
class Row:
    """One method's strategy in figures; the error is the total over all queries at ε = 1."""

    name: str
    expected_squared_error: float
    sensitivity: float
    residual: float
    seconds: float


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


METHODS: dict[str, Method] = {
    "optimize": optimize,
    **{name: method for name, method in STRATEGIES.items() if name != "gaussian"},
}
"""Everything with Laplace noise."""
QUICK: dict[str, Method] = {
    name: STRATEGIES[name] for name in ("noise-on-data", "noise-on-results", "wavelet", "hierarchical", "p-identity")
}
"""Those that take seconds where the others take minutes."""


def compare(
    workload: Workload | ArrayLike | Any,
    methods: dict[str, Method] = METHODS,
    *,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Comparison:
    """Run every method on the workload; `progress` wraps the iteration, e.g. to draw a bar."""
    workload = as_workload(workload)
    every = {"gaussian": STRATEGIES["gaussian"], **methods}
    rows = {}
    for name in progress(every):
        start = time.perf_counter()
        strategy = every[name](workload)
        seconds = time.perf_counter() - start
        budget = {"epsilon": 1.0} if strategy.privacy == "pure" else {"rho": 0.5}
        error = strategy.expected_squared_error(**budget)
        rows[name] = Row(name, error, strategy.sensitivity, strategy.residual, seconds)
        if name == "gaussian":
            bound = 2 * strategy.certificate.lower_bound
    gaussian = rows.pop("gaussian")
    return Comparison(workload.queries, workload.cells, reduce(workload).rank, bound, tuple(rows.values()), gaussian)
