"""The three random workloads of the paper's Section 6.

The order of draws is part of the interface: the same seed gives the same workload in every release, so that
figures can be compared with other programs'.
"""

from __future__ import annotations

import numpy as np

from batchdp.workloads._sizes import generator, whole
from batchdp.workloads.ordered import intervals
from batchdp.workloads.workload import MatrixWorkload


def discrete(m: int, n: int, seed: int = 0) -> MatrixWorkload:
    """WDiscrete: every coefficient is 1 with probability 0.02 and −1 otherwise."""
    m, n = whole(m=m, n=n)
    rng = generator(seed)
    return MatrixWorkload(np.where(rng.random((m, n)) < 0.02, 1.0, -1.0))


def ranges(m: int, n: int, seed: int = 0) -> MatrixWorkload:
    """WRange: every query sums the cells between two cells drawn uniformly, both included."""
    m, n = whole(m=m, n=n)
    rng = generator(seed)
    first, last = np.sort(rng.integers(0, n, size=(m, 2)), axis=1).T
    return intervals(first, last, n)


def related(m: int, n: int, s: int | None = None, seed: int = 0) -> MatrixWorkload:
    """WRelated: m random mixtures of s random base queries, W = C A; s is half of min(m, n) if left out."""
    m, n = whole(m=m, n=n)
    (s,) = whole(s=max(1, min(m, n) // 2) if s is None else s)
    rng = generator(seed)
    A = rng.standard_normal((s, n))
    C = rng.standard_normal((m, s))
    return MatrixWorkload(C @ A)
