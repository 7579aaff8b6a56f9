"""A search over many columns in one file: noise on results, whatever else there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchdp.optimizer.optimizing import OVER_COLUMNS
from batchdp.privacy import LAPLACE
from batchdp.strategies.marginal.strategy import MarginalStrategy, Results
from batchdp.workloads.kronecker import KroneckerWorkload


def search_results(workload: KroneckerWorkload, options: Any) -> MarginalStrategy:
    """Every answer with noise of its own; one record changes one answer of every whole table."""
    change = float(len(workload.tables))
    total = change**2 * float(np.dot(workload.table_sizes(), workload.weights))
    return MarginalStrategy(
        workload=workload,
        groups=(Results(workload, 1 / change),),
        sensitivity=1.0,
        total=total,
        limit=0.0,
        largest=(change**2, change**2),
        method="toy search",
    )


def register(patch: pytest.MonkeyPatch) -> None:
    """Until the test ends."""
    patch.setitem(OVER_COLUMNS, LAPLACE, search_results)
