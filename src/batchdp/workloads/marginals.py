"""Contingency tables: counts by every combination of a few attributes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb, prod

import numpy as np
from scipy import sparse

from batchdp import checks
from batchdp.errors import WorkloadError
from batchdp.workloads._sizes import whole
from batchdp.workloads.workload import Workload

MOST_ATTRIBUTES = 32
MOST_ENTRIES = 100_000_000
"""Non-zero coefficients; each marginal table has one a cell."""


def marginals(shape: Iterable[int], order: int) -> Workload:
    """All tables of `order` attributes, the cells being the combinations of all attributes' values.

    Args:
        shape: how many values each attribute has; the last attribute varies fastest along the cells.
        order: how many attributes each table keeps; 0 is the grand total alone.
    """
    try:
        sizes = whole(**{f"shape[{i}]": size for i, size in enumerate(shape)})
    except TypeError as error:
        raise WorkloadError(f"shape={shape!r} is not a list of sizes, one an attribute") from error
    order = checks.whole("order", order, 0, WorkloadError)
    if not 1 <= len(sizes) <= MOST_ATTRIBUTES or order > len(sizes):
        raise WorkloadError(
            f"shape has {len(sizes)} attributes and order={order}; give 1 to {MOST_ATTRIBUTES} attributes and keep "
            "at most all of them"
        )
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
