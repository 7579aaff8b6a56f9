"""A family of ten lines: what somebody adds who has an idea. `pytest -p toy_family` registers it for a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchdp.linalg.matrix import dense
from batchdp.optimizer.families import FunctionFamily, register
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import as_workload


def singular_vectors(given: Any) -> PairStrategy:
    """Measure the directions of the workload, and nothing else (the start of the paper's Lemma 3, not rotated)."""
    workload = as_workload(given)
    U, sizes, V = np.linalg.svd(dense(workload.matrix), full_matrices=False)
    k = int(np.sum(sizes > 1e-12 * sizes[0]))
    return PairStrategy(workload, V[:k], U[:, :k] * sizes[:k], method="toy")


TOY = FunctionFamily("toy", singular_vectors)


def pytest_configure() -> None:
    register(TOY)
