"""Contingency tables: counts by every combination of a few attributes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations
from math import comb

import numpy as np

from batchdp import checks
from batchdp.errors import WorkloadError
from batchdp.workloads.structure import MOST_TABLES, Factor, KroneckerWorkload, column_sizes
from batchdp.workloads.workload import MatrixWorkload


def marginals(shape: Iterable[int], order: int | Iterable[int]) -> MatrixWorkload | KroneckerWorkload:
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
    orders = [checks.check_whole("order", k, 0, WorkloadError) for k in (order if several else [order])]  # type: ignore[union-attr]
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
