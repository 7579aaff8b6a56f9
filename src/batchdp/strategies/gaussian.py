"""The exact optimum for Gaussian noise under zCDP, where the problem is convex."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from batchdp.bounds.convex import solve
from batchdp.errors import StrategyError
from batchdp.reduction import reduce
from batchdp.strategy import Strategy
from batchdp.workload import Workload, as_workload


def gaussian(workload: Workload | ArrayLike | Any, *, tolerance: float = 1e-3, max_rounds: int = 500) -> Strategy:
    """The strategy with the least total error under Gaussian noise, within a relative `tolerance`.

    Its `certificate` holds the duality gap that was reached: no strategy is below `lower_bound`.
    """
    workload = as_workload(workload)
    if not 0 < tolerance < 1:
        raise StrategyError(f"tolerance={tolerance!r} must be between 0 and 1; 1e-3 is usual")
    reduction = reduce(workload)
    ended = solve(reduction.reduced, tolerance=tolerance, max_rounds=max_rounds)
    return Strategy.lifted(
        reduction,
        ended.measure,
        method="gaussian",
        privacy="zcdp",
        rounds=ended.rounds,
        status=ended.status,
        certificate=ended,
    )
