"""Ready-made workloads: marginals, ordered ones, and the paper's three."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp import errors
from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Indices, Plain
from batchdp.linalg.product import CellMap, Product
from batchdp.workloads.kronecker import MOST_TABLES, Factor, KroneckerWorkload, column_sizes
from batchdp.workloads.matrix import MatrixWorkload, Workload


def whole(**named: int) -> tuple[int, ...]:
    """The values, each checked to be a whole number of at least 1."""
    return tuple(errors.check_whole(name, value, 1, WorkloadError) for name, value in named.items())


def generator(seed: int) -> np.random.Generator:
    """The random numbers that a seed stands for."""
    return np.random.default_rng(errors.check_whole("seed", seed, 0, WorkloadError))


def marginals(shape: Iterable[int], order: int | Iterable[int]) -> Workload:
    """All tables of `order` attributes, the cells being the combinations of all attributes' values.

    Args:
        shape: how many values each attribute has; the last attribute varies fastest along the cells.
        order: how many attributes each table keeps, or a list of these; 0 is the grand total alone.

    Returns: a `MatrixWorkload` with names and the factors beside it where that fits; else a `KroneckerWorkload`.
    """
    sizes = column_sizes("shape", shape)
    orders = _orders(order, len(sizes))
    tables = sum(comb(len(sizes), k) for k in orders)
    if tables > MOST_TABLES:
        raise WorkloadError(
            f"order={order!r} of {len(sizes)} attributes makes {tables:,} tables, more than {MOST_TABLES:,}; "
            "lower the order, or name the tables that matter by products"
        )
    lengths = np.repeat(orders, [comb(len(sizes), k) for k in orders])
    kept = chain.from_iterable(chain.from_iterable(combinations(range(len(sizes)), k) for k in orders))
    columns = np.fromiter(kept, dtype=np.int64, count=int(lengths.sum()))
    batch = KroneckerWorkload(
        sizes,
        tuple((Factor(n),) for n in sizes),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        columns,
        np.zeros(len(columns), dtype=np.int64),
        np.ones(tables),
    )
    if not batch.fits:
        return batch
    return MatrixWorkload(batch.matrix, _names(batch), structure=batch)


def _orders(order: int | Iterable[int], attributes: int) -> list[int]:
    several = isinstance(order, Iterable) and not isinstance(order, str)
    orders = [errors.check_whole("order", k, 0, WorkloadError) for k in (order if several else [order])]  # type: ignore[union-attr]
    if not orders:
        raise WorkloadError("order is empty; give a number of attributes, or several")
    if len(set(orders)) < len(orders):
        raise WorkloadError(f"order={order!r} has a number more than once; give every order once")
    if max(orders) > attributes:
        raise WorkloadError(f"shape has {attributes} attributes and order={order!r}; keep at most all of them")
    return orders


def _names(batch: KroneckerWorkload) -> Iterable[str]:
    for table in batch.tables:
        for combination in np.ndindex(*table.shape):
            named = (f"a{i + 1}={value}" for i, value in zip(table.columns, combination, strict=True))
            yield " and ".join(named) or "total"


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


def _intervals(first: Indices, end: Indices, n: int) -> MatrixWorkload:
    """Query i sums the cells first[i] to end[i] − 1; by distinct columns when that is far smaller."""
    if len(first) * n > MANY_ENTRIES:
        starts = np.unique(np.concatenate([[0], first, end[end < n]]))
        if 2 * len(starts) < n:
            distinct = _matrix(np.searchsorted(starts, first), np.searchsorted(starts, end), len(starts))
            piece = np.searchsorted(starts, np.arange(n), side="right") - 1
            return MatrixWorkload(Product(distinct, CellMap(piece, np.ones(n), len(starts)).matrix()))
    return MatrixWorkload(_matrix(first, end, n))


def _matrix(first: Indices, end: Indices, n: int) -> Plain:
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
