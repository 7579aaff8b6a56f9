"""Every mechanism, one file each, all functions from a workload to a strategy.

Register a method here once: the shared tests, the comparison and the docs pick it up.
"""

from __future__ import annotations

from typing import Any, Protocol

from batchdp.strategies.gaussian import gaussian
from batchdp.strategies.hierarchical import hierarchical
from batchdp.strategies.low_rank import low_rank
from batchdp.strategies.matrix_mechanism import matrix_mechanism
from batchdp.strategies.noise_on_data import noise_on_data
from batchdp.strategies.noise_on_results import noise_on_results
from batchdp.strategies.p_identity import p_identity
from batchdp.strategies.strategy import Strategy
from batchdp.strategies.wavelet import wavelet


class Method(Protocol):
    """Chooses a strategy for a workload, without ever seeing data."""

    def __call__(self, workload: Any, /) -> Strategy:
        """The strategy of this family for the workload."""


STRATEGIES: dict[str, Method] = {
    "noise-on-data": noise_on_data,
    "noise-on-results": noise_on_results,
    "wavelet": wavelet,
    "hierarchical": hierarchical,
    "matrix-mechanism": matrix_mechanism,
    "p-identity": p_identity,
    "low-rank": low_rank,
    "gaussian": gaussian,
}
