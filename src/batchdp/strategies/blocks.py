"""Several blocks of cells: each with its own strategy, given the share of the budget that leaves the least error.

A record has a cell in every block. Measurements of block g scaled to a sensitivity of p_g have E_g / p_g² as their
error, E_g being that at the whole budget; `Noise.shares` has the best p_g.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse

from batchdp.bounds.optimality import Objective, of_blocks
from batchdp.linalg.matrix import plain
from batchdp.outcome import Outcome
from batchdp.privacy import Noise
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.workload import Workload, as_workload

F = TypeVar("F", bound=Callable[..., Strategy])


def block_by_block(method: F) -> F:
    """The method, run on every block of a workload by itself: one that searches knows nothing of several blocks."""

    @wraps(method)
    def by_blocks(workload: Any, *args: Any, **kwargs: Any) -> Strategy:
        workload = as_workload(workload)
        if len(workload.blocks) == 1:
            return method(workload, *args, **kwargs)
        found = [method(part, *args, **kwargs) for _, _, part in workload.parts()]
        if not found:  # every query is 0 whatever the data
            nothing = method(Workload(workload.matrix, workload.names, workload.weights), *args, **kwargs)
            return replace(nothing, workload=workload)
        return assembled(workload, found, found[0].noise, method=found[0].method)

    return cast(F, by_blocks)


def assembled(
    workload: Workload, found: Sequence[Strategy], noise: Noise, *, method: str, objective: Objective = "sum"
) -> Strategy:
    """The strategies of all blocks that queries look at, in their order, as one."""
    sizes = np.array([error_of(strategy, objective) for strategy in found])
    shares = noise.shares(sizes, of_sum=objective == "sum") if sizes.any() else np.ones(len(sizes))
    measurements, reconstructions, start = [], [], 0
    for (rows, cells, _), strategy, share in zip(workload.parts(), found, shares, strict=True):
        scale = share / strategy.sensitivity
        L, B = sparse.coo_array(plain(strategy.measurement)), sparse.coo_array(plain(strategy.reconstruction))
        measurements.append((scale * L.data, L.coords[0] + start, L.coords[1] + cells.start))
        reconstructions.append((B.data / scale, rows[B.coords[0]], B.coords[1] + start))
        start += strategy.measurements
    proven = [bound for strategy in found for bound in strategy.proven if bound.objective == "sum"]
    outcome = Outcome.of_all(strategy.status for strategy in found)
    return Strategy(
        workload,
        _matrix(measurements, (start, workload.cells)),
        _matrix(reconstructions, (workload.queries, start)),
        method=method,
        privacy=noise.privacy,
        rounds=sum(strategy.rounds for strategy in found),
        status=Outcome.OPTIMAL_BY_BLOCK if outcome is Outcome.OPTIMAL and len(found) > 1 else outcome,
        proven=(of_blocks(proven),) if found and len(proven) == len(found) else (),
    )


def error_of(strategy: Strategy, objective: Objective) -> float:
    """What an objective minimises, at the budget that figures are compared at."""
    budget = strategy.noise.reference.arguments
    return strategy.expected_squared_error(**budget) if objective == "sum" else strategy.largest_variance(**budget)


def _matrix(entries: list[tuple[Any, Any, Any]], shape: tuple[int, int]) -> sparse.csr_array:
    values, rows, columns = (np.concatenate([part[k] for part in entries] or [np.zeros(0, int)]) for k in range(3))
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), shape=shape))
