"""Every method side by side on one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from batchdp.reduction import reduce
from batchdp.strategies import STRATEGIES, Method
from batchdp.strategy import Strategy
from batchdp.workload import Workload, as_workload


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
    """All methods' figures for a workload, and the bound that none of them can pass."""

    m: int
    n: int
    rank: int
    lower_bound: float
    methods: tuple[Row, ...]


def compare(
    workload: Workload | ArrayLike | Any,
    methods: dict[str, Method] = STRATEGIES,
    *,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Comparison:
    """Run every method on the workload; `progress` wraps the iteration, e.g. to draw a bar."""
    workload = as_workload(workload)
    rows = []
    strategy: Strategy | None = None
    for name in progress(methods):
        start = time.perf_counter()
        strategy = methods[name](workload)
        seconds = time.perf_counter() - start
        error = strategy.expected_squared_error(epsilon=1.0)
        rows.append(Row(name, error, strategy.sensitivity, strategy.residual, seconds))
    bound = strategy.lower_bound(epsilon=1.0) if strategy else 0.0
    return Comparison(workload.queries, workload.cells, reduce(workload).rank, bound, tuple(rows))
