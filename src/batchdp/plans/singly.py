"""Every query answered by itself, with an equal share of the budget: what people do without a plan."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense, plain, row_maxima
from batchdp.plans.planned import Plan
from batchdp.privacy import Budget


def singly(plan: Plan, budget: Budget) -> Dense:
    """The standard error of every query if it had its share and noise of its own."""
    workload, noise = plan.asked_workload, plan.strategy.noise
    W = sparse.csc_array(plain(workload.matrix))
    ends = np.cumsum(workload.blocks)
    largest = np.column_stack(
        [row_maxima(sparse.csr_array(W[:, end - size : end])) for end, size in zip(ends, workload.blocks, strict=True)]
    )
    # A record has a cell in every block that it meets: what it adds there adds up.
    own = np.max([largest[:, list(met)].sum(axis=1) for met in workload.meetings], axis=0)
    return np.asarray(plan.factor * own * np.sqrt(noise.variance(1.0, float(budget) / len(own))))
