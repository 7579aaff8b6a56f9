"""Workloads of intervals over ordered cells, with nothing random about them.

Where the cells far outnumber the ends of the intervals, a workload keeps the distinct columns and which of them every
cell has: 2 000 intervals of a million cells have at most 4 001.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Plain
from batchdp.linalg.product import CellMap, Product
from batchdp.workloads._sizes import whole
from batchdp.workloads.workload import MatrixWorkload

MOST_CELLS = 10_000_000
MOST_ENTRIES = 1_000_000_000
"""Coefficients; eight bytes each."""
MANY_ENTRIES = 20_000_000
"""Coefficients from which it pays to keep distinct columns only."""


def intervals(first: ArrayLike, last: ArrayLike, n: int) -> MatrixWorkload:
    """Query i sums the cells first[i] to last[i] of n, counted from 0, both included."""
    n = _cells(n)
    ends = np.atleast_1d(np.asarray(first)), np.atleast_1d(np.asarray(last))
    if any(end.ndim != 1 or end.dtype.kind not in "iu" for end in ends) or len(ends[0]) != len(ends[1]):
        raise WorkloadError("first and last must be whole numbers, one each a query")
    wrong = np.flatnonzero((ends[0] < 0) | (ends[1] < ends[0]) | (ends[1] >= n))
    if wrong.size:
        i = int(wrong[0])
        raise WorkloadError(
            f"first={ends[0][i]} and last={ends[1][i]} of query {i} are not an interval of cells 0 to {n - 1}"
        )
    start, stop = (end.astype(np.int64) for end in ends)
    return _intervals(start, stop + 1, n)


def prefix(n: int) -> MatrixWorkload:
    """Running totals: query i sums the cells 1 to i."""
    n = _cells(n)
    return _intervals(np.zeros(n, dtype=np.int64), np.arange(1, n + 1), n)


def all_ranges(n: int) -> MatrixWorkload:
    """Every interval of neighbouring cells once: n (n + 1) / 2 queries."""
    n = _cells(n)
    if n * (n + 1) // 2 > MOST_CELLS:
        raise WorkloadError(f"n={n} makes {n * (n + 1) // 2:,} queries, more than {MOST_CELLS:,}; take fewer cells")
    first, last = np.triu_indices(n)
    return _intervals(first, last + 1, n)


def sliding(n: int, width: int) -> MatrixWorkload:
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


def _intervals(first: NDArray[np.int64], end: NDArray[np.int64], n: int) -> MatrixWorkload:
    """Query i sums the cells first[i] to end[i] − 1; by distinct columns when that is far smaller."""
    if len(first) * n > MANY_ENTRIES:
        starts = np.unique(np.concatenate([[0], first, end[end < n]]))
        if 2 * len(starts) < n:
            distinct = _matrix(np.searchsorted(starts, first), np.searchsorted(starts, end), len(starts))
            piece = np.searchsorted(starts, np.arange(n), side="right") - 1
            return MatrixWorkload(Product(distinct, CellMap(piece, np.ones(n), len(starts)).matrix()))
    return MatrixWorkload(_matrix(first, end, n))


def _matrix(first: NDArray[np.int64], end: NDArray[np.int64], n: int) -> Plain:
    """Sparse when that is the smaller form."""
    cell = np.arange(n)
    lengths = end - first
    if len(first) * n > MOST_ENTRIES and int(lengths.sum()) > MOST_ENTRIES:
        raise WorkloadError(
            f"n={n} makes {int(lengths.sum()):,} coefficients, more than {MOST_ENTRIES:,}; take fewer cells"
        )
    if int(lengths.sum()) * 2 > len(first) * n or len(first) * n <= 1_000_000:
        return np.asarray((first[:, None] <= cell) & (cell < end[:, None]), dtype=np.float64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, lengths)
    return sparse.csr_array((np.ones(starts[-1]), columns, starts), shape=(len(first), n))
