"""The cost model: work in nominal seconds, from the sizes of what is multiplied, never by the clock.

So the same workload, seed and class of budget give the same strategy on every run. Each family's prices stand in its
settings; `benchmarks/tuning.py` measures them again.
"""

from __future__ import annotations

FLOPS = 3e10
"""Floating-point operations that one core does in a nominal second, inside BLAS."""


def reduction_price(queries: int, columns: int) -> float:
    """The singular values of the merged workload, and the strategies in closed form for it."""
    return 7e-10 * min(queries, columns) ** 2 * max(queries, columns) + 8e-7 * queries * columns
