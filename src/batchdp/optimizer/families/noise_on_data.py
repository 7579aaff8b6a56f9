"""Noise on data (the paper's LM): a noisy count for every cell, recombined as the queries say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from batchdp.linalg.matrix import Dense, identity
from batchdp.optimizer.family import Family, Method
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import Reduction, reduce


def noise_on_data(workload: MatrixWorkload | ArrayLike | Any, *, merged: bool = False) -> PairStrategy:
    """Measure every cell: L = I, B = W (Formula 4).

    With `merged`, cells that no query tells apart are measured as one, which is never worse.
    """
    workload = as_workload(workload)
    if merged:
        reduction = reduce(workload)
        L = reduction.lift_measure(np.eye(reduction.columns))
        return PairStrategy(workload, L, reduction.merged_workload(), method="noise-on-data")
    return PairStrategy(workload, identity(workload.cells), workload.matrix, method="noise-on-data")


LARGE = 2048
"""Columns above which the identity is a sparse matrix."""


@final
@dataclass(frozen=True, eq=False)
class _NoiseOnData(Family):
    def worth(self, reduction: Reduction) -> bool:
        return True

    def variants(self) -> tuple[Method, ...]:
        return partial(noise_on_data, merged=True), noise_on_data

    def plainly(self, workload: MatrixWorkload) -> PairStrategy:
        return noise_on_data(workload)

    def on_columns(self, R: Dense) -> Iterator[Pair]:
        """Every merged column once."""
        p = R.shape[1]
        yield Pair(np.eye(p) if p <= LARGE else identity(p), R)


NOISE_ON_DATA = _NoiseOnData("noise-on-data", noise_on_data, quick=True)
