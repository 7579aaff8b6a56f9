"""The exact optimum for Gaussian noise under zCDP, where the problem is convex."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from batchdp.bounds.convex import Progress, solve
from batchdp.checks import finite, whole
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload, as_workload


def gaussian(
    workload: Workload | ArrayLike | Any,
    *,
    tolerance: float = 1e-3,
    max_rounds: int = 500,
    progress: Progress | None = None,
) -> Strategy:
    """The strategy with the least total error under Gaussian noise, within a relative `tolerance`.

    Its `certificate` holds the duality gap that was reached: no strategy is below `lower_bound`. `progress` is called
    with (round, lower bound, upper bound) on ‖B‖²_F; a true answer ends the search.
    """
    workload = as_workload(workload)
    tolerance = finite("tolerance", tolerance, above=0, below=1)
    max_rounds = whole("max_rounds", max_rounds, 1)
    reduction = reduce(workload)
    ended = solve(reduction.reduced, tolerance=tolerance, max_rounds=max_rounds, progress=progress)
    return Strategy.lifted(
        reduction,
        ended.measure,
        ended.reconstruct,
        method="gaussian",
        privacy="zcdp",
        rounds=ended.rounds,
        status=ended.status,
        certificate=ended,
    )
