"""Workloads of intervals over ordered cells, with nothing random about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.workload import Workload
from batchdp.workloads._sizes import whole


def prefix(n: int) -> Workload:
    """Running totals: query i sums the cells 1 to i."""
    (n,) = whole(n=n)
    return _intervals(np.zeros(n, dtype=np.int64), np.arange(1, n + 1), n)


def all_ranges(n: int) -> Workload:
    """Every interval of neighbouring cells once: n (n + 1) / 2 queries."""
    (n,) = whole(n=n)
    first, last = np.triu_indices(n)
    return _intervals(first, last + 1, n)


def sliding(n: int, width: int) -> Workload:
    """Every window of `width` neighbouring cells: n − width + 1 queries."""
    n, width = whole(n=n, width=width)
    if width > n:
        raise WorkloadError(f"width={width} is more than n={n} cells; choose a width of at most n")
    first = np.arange(n - width + 1)
    return _intervals(first, first + width, n)


def _intervals(first: NDArray[np.int64], end: NDArray[np.int64], n: int) -> Workload:
    """Query i sums the cells first[i] to end[i] − 1; sparse when that is the smaller form."""
    cell = np.arange(n)
    lengths = end - first
    if int(lengths.sum()) * 2 > len(first) * n or len(first) * n <= 1_000_000:
        return Workload((first[:, None] <= cell) & (cell < end[:, None]))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, lengths)
    return Workload(sparse.csr_array((np.ones(starts[-1]), columns, starts), shape=(len(first), n)))
