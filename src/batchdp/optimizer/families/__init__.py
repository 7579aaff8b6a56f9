"""Every mechanism, one file or folder each: a function from a workload to a strategy, and what there is to know of it.

A family is registered here, once: `optimize`, the comparison, the largest-error objective, the benchmarks and the
shared tests read the registry. The order is the one in which families are tried and shown.
"""

from __future__ import annotations

from batchdp.optimizer.families.gaussian import GAUSSIAN_OPTIMUM
from batchdp.optimizer.families.hierarchical import HIERARCHICAL
from batchdp.optimizer.families.low_rank import LOW_RANK
from batchdp.optimizer.families.matrix_mechanism import MATRIX_MECHANISM
from batchdp.optimizer.families.noise_on_data import NOISE_ON_DATA
from batchdp.optimizer.families.noise_on_results import NOISE_ON_RESULTS
from batchdp.optimizer.families.p_identity import P_IDENTITY
from batchdp.optimizer.families.wavelet import WAVELET
from batchdp.optimizer.family import (
    FAMILIES,
    STRATEGIES,
    Family,
    FunctionFamily,
    Method,
    families_for,
    register,
    unregister,
)

for _family in (
    NOISE_ON_DATA,
    NOISE_ON_RESULTS,
    WAVELET,
    HIERARCHICAL,
    MATRIX_MECHANISM,
    P_IDENTITY,
    LOW_RANK,
    GAUSSIAN_OPTIMUM,
):
    register(_family)

__all__ = ["FAMILIES", "STRATEGIES", "Family", "FunctionFamily", "Method", "families_for", "register", "unregister"]
