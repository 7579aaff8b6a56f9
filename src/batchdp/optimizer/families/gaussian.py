"""The exact optimum for Gaussian noise under zCDP, where the problem is convex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from numpy.typing import ArrayLike

from batchdp.errors import check_finite, check_whole
from batchdp.optimizer.family import Family
from batchdp.privacy import GAUSSIAN
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.bounds.convex import Progress, solve
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, as_workload
from batchdp.workloads.reduction import Reduction, reduce


@block_by_block
def gaussian(
    workload: MatrixWorkload | ArrayLike | Any,
    *,
    tolerance: float = 1e-3,
    max_rounds: int = 500,
    progress: Progress | None = None,
) -> PairStrategy:
    """The strategy with the least total error under Gaussian noise, within a relative `tolerance`.

    Its `optimality` holds the duality gap that was reached: no strategy is below `lower_bound`. Over several blocks
    every block's strategy is the best, and no strategy without measurements that span blocks is better; the lower
    bound adds up theirs and is not tight. `progress` is called with (round, lower bound, upper bound) on ‖B‖²_F; a
    true answer ends the search.
    """
    workload = as_workload(workload)
    tolerance = check_finite("tolerance", tolerance, above=0, below=1)
    max_rounds = check_whole("max_rounds", max_rounds, 1)
    reduction = reduce(workload)
    ended = solve(reduction.reduced, tolerance=tolerance, max_rounds=max_rounds, progress=progress)
    return PairStrategy.lifted(reduction, ended.pair, method="gaussian", noise=GAUSSIAN, proven=(ended.bound,))


@final
@dataclass(frozen=True, eq=False)
class _GaussianOptimum(Family):
    def worth(self, reduction: Reduction) -> bool:
        return True

    def optimum(self, workload: MatrixWorkload, tolerance: float, progress: Progress | None) -> PairStrategy:
        return gaussian(workload, tolerance=tolerance, progress=progress)


GAUSSIAN_OPTIMUM = _GaussianOptimum("gaussian", gaussian, noise=GAUSSIAN, searches=True, mixes=True)
