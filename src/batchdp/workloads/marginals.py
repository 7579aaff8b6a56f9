"""Contingency tables: counts by every combination of a few attributes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb, prod

import numpy as np
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.workload import Workload
from batchdp.workloads._sizes import whole

MOST_ENTRIES = 100_000_000
"""Non-zero coefficients; each marginal table has one a cell."""


def marginals(shape: Iterable[int], order: int) -> Workload:
    """All tables of `order` attributes, the cells being the combinations of all attributes' values.

    Args:
        shape: how many values each attribute has; the last attribute varies fastest along the cells.
        order: how many attributes each table keeps; 0 is the grand total alone.
    """
    sizes = whole(**{f"shape[{i}]": size for i, size in enumerate(shape)})
    if order not in range(len(sizes) + 1):
        raise WorkloadError(f"order={order!r} must be a whole number from 0 to {len(sizes)}, the attributes")
    cells = prod(sizes)
    if cells * comb(len(sizes), order) > MOST_ENTRIES:
        raise WorkloadError(f"shape={sizes!r} with order={order} has too many cells; fewer or smaller attributes")
    values = np.unravel_index(np.arange(cells), sizes)
    names: list[str] = []
    tables: list[sparse.csr_array] = []
    for kept in combinations(range(len(sizes)), order):
        kept_sizes = tuple(sizes[i] for i in kept)
        group = np.ravel_multi_index([values[i] for i in kept], kept_sizes) if kept else np.zeros(cells, int)
        queries = prod(kept_sizes)
        tables.append(sparse.csr_array((np.ones(cells), (group, np.arange(cells))), shape=(queries, cells)))
        for combination in np.ndindex(*kept_sizes):
            named = (f"a{i + 1}={value}" for i, value in zip(kept, combination, strict=True))
            names.append(" and ".join(named) or "total")
    return Workload(sparse.vstack(tables, format="csr"), names=names)
