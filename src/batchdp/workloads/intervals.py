"""Workloads of intervals over ordered cells, with nothing random about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.workload import Workload
from batchdp.workloads._sizes import whole

MOST_CELLS = 10_000_000
MOST_ENTRIES = 1_000_000_000
"""Coefficients; eight bytes each."""


def prefix(n: int) -> Workload:
    """Running totals: query i sums the cells 1 to i."""
    n = _cells(n)
    return _intervals(np.zeros(n, dtype=np.int64), np.arange(1, n + 1), n)


def all_ranges(n: int) -> Workload:
    """Every interval of neighbouring cells once: n (n + 1) / 2 queries."""
    n = _cells(n)
    if n * (n + 1) // 2 > MOST_CELLS:
        raise WorkloadError(f"n={n} makes {n * (n + 1) // 2:,} queries, more than {MOST_CELLS:,}; take fewer cells")
    first, last = np.triu_indices(n)
    return _intervals(first, last + 1, n)


def sliding(n: int, width: int) -> Workload:
    """Every window of `width` neighbouring cells: n − width + 1 queries."""
    n, (width,) = _cells(n), whole(width=width)
    if width > n:
        raise WorkloadError(f"width={width} is more than n={n} cells; choose a width of at most n")
    first = np.arange(n - width + 1)
    return _intervals(first, first + width, n)


def _cells(n: int) -> int:
    (n,) = whole(n=n)
    if n > MOST_CELLS:
        raise WorkloadError(f"n={n} is more than {MOST_CELLS:,} cells; take fewer")
    return n


def _intervals(first: NDArray[np.int64], end: NDArray[np.int64], n: int) -> Workload:
    """Query i sums the cells first[i] to end[i] − 1; sparse when that is the smaller form."""
    cell = np.arange(n)
    lengths = end - first
    if len(first) * n > MOST_ENTRIES and int(lengths.sum()) > MOST_ENTRIES:
        raise WorkloadError(
            f"n={n} makes {int(lengths.sum()):,} coefficients, more than {MOST_ENTRIES:,}; take fewer cells"
        )
    if int(lengths.sum()) * 2 > len(first) * n or len(first) * n <= 1_000_000:
        return Workload((first[:, None] <= cell) & (cell < end[:, None]))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, lengths)
    return Workload(sparse.csr_array((np.ones(starts[-1]), columns, starts), shape=(len(first), n)))
