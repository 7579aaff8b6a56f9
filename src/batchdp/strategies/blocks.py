"""Several blocks of cells: each with its own strategy, given the share of the budget that leaves the least error.

Measurements of block g scaled to a sensitivity of p_g have E_g / p_g² as their error, E_g being that at the whole
budget. Where a record has a cell in every block `Noise.shares` has the best p_g; blocks that exclude each other do not
share: then Σ p_g^q ≤ 1 holds over every set of blocks that meet in a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse

from batchdp.bounds.optimality import Objective, of_blocks
from batchdp.linalg.matrix import Dense, plain
from batchdp.outcome import Outcome
from batchdp.privacy import Noise
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.workload import MatrixWorkload, as_workload

ROUNDS = 500
"""Of finding the prices of sets of blocks."""
SMALLEST_SHARE = 1e-15
"""An error relative to the largest that still gets a share."""

F = TypeVar("F", bound=Callable[..., PairStrategy])


def block_by_block(method: F) -> F:
    """The method, run on every block of a workload by itself: one that searches knows nothing of several blocks."""

    @wraps(method)
    def by_blocks(workload: Any, *args: Any, **kwargs: Any) -> PairStrategy:
        workload = as_workload(workload)
        if len(workload.blocks) == 1:
            return method(workload, *args, **kwargs)
        found = [method(part, *args, **kwargs) for _, _, part in workload.parts()]
        if not found:  # every query is 0 whatever the data
            nothing = method(MatrixWorkload(workload.matrix, workload.names, workload.weights), *args, **kwargs)
            return replace(nothing, workload=workload)
        return assembled(workload, found, found[0].noise, method=found[0].method)

    return cast(F, by_blocks)


def assembled(
    workload: MatrixWorkload, found: Sequence[PairStrategy], noise: Noise, *, method: str, objective: Objective = "sum"
) -> PairStrategy:
    """The strategies of all blocks that queries look at, in their order, as one."""
    sizes = np.array([error_of(strategy, objective) for strategy in found])
    met = workload.met_parts() if len(workload.meetings) > 1 else [list(range(len(sizes)))]
    shares = best_shares(noise, sizes, met, of_sum=objective == "sum") if sizes.any() else np.ones(len(sizes))
    measurements, reconstructions, start = [], [], 0
    for (rows, cells, _), strategy, share in zip(workload.parts(), found, shares, strict=True):
        scale = share / strategy.sensitivity
        L, B = sparse.coo_array(plain(strategy.measurement)), sparse.coo_array(plain(strategy.reconstruction))
        measurements.append((scale * L.data, L.coords[0] + start, L.coords[1] + cells.start))
        reconstructions.append((B.data / scale, rows[B.coords[0]], B.coords[1] + start))
        start += strategy.measurements
    proven = [bound for strategy in found for bound in strategy.proven if bound.objective == "sum"]
    outcome = Outcome.of_all(strategy.status for strategy in found)
    return PairStrategy(
        workload,
        _matrix(measurements, (start, workload.cells)),
        _matrix(reconstructions, (workload.queries, start)),
        method=method,
        privacy=noise.privacy,
        rounds=sum(strategy.rounds for strategy in found),
        status=Outcome.OPTIMAL_BY_BLOCK if outcome is Outcome.OPTIMAL and len(found) > 1 else outcome,
        proven=(of_blocks(proven, workload.summed_together()),) if found and len(proven) == len(found) else (),
    )


def best_shares(noise: Noise, errors: Dense, met: Sequence[Sequence[int]], *, of_sum: bool) -> Dense:
    """The sensitivities p of blocks with errors E_g / p_g² that leave the least sum, or the least largest.

    Σ p^q ≤ 1 over every set of blocks that meet. The least sum has prices μ on the sets, 0 but where the sum is 1, and
    p_g^(q + 2) ∝ E_g / Σ μ over the sets with g; prices go up where a set has more than 1 and down where it has less.
    """
    if len(met) == 1:
        return noise.shares(errors, of_sum=of_sum)
    A = np.array([[float(g in own) for g in range(len(errors))] for own in met if own])
    q = noise.norm
    if of_sum:
        E = np.maximum(errors, SMALLEST_SHARE * errors.max())
        prices = np.full(len(A), float(E.mean()))
        for _ in range(ROUNDS):
            y = (E / (prices @ A)) ** (q / (q + 2))
            prices = np.maximum(prices * (A @ y) ** ((q + 2) / (2 * q)), 1e-30 * prices.max())
    else:
        y = np.sqrt(errors) ** q
    return np.asarray((y / float((A @ y).max())) ** (1 / q))


def error_of(strategy: PairStrategy, objective: Objective) -> float:
    """What an objective minimises, at the budget that figures are compared at."""
    budget = strategy.noise.reference.arguments
    return strategy.expected_squared_error(**budget) if objective == "sum" else strategy.largest_variance(**budget)


def _matrix(entries: list[tuple[Any, Any, Any]], shape: tuple[int, int]) -> sparse.csr_array:
    values, rows, columns = (np.concatenate([part[k] for part in entries] or [np.zeros(0, int)]) for k in range(3))
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), shape=shape))
