"""Strategies of blocks as one strategy, and trees over the cells brought to the merged columns where that may pay.

The cells' own intervals differ from the merged columns'; with far more cells than columns they only do worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from batchdp.linalg.matrix import Dense, Plain, assemble, column_norms, dense, plain
from batchdp.privacy import Noise
from batchdp.strategies.bounds.convex import Objective, of_blocks
from batchdp.strategies.pair import PairStrategy
from batchdp.text import Outcome
from batchdp.workloads.matrix import MatrixWorkload, as_workload
from batchdp.workloads.reduction import Reduction

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
        scale, own = share / strategy.sensitivity, start + np.arange(strategy.measurements)
        measurements.append((plain(strategy.measurement) * scale, own, np.arange(cells.start, cells.stop)))
        reconstructions.append((plain(strategy.reconstruction) * (1 / scale), rows, own))
        start += strategy.measurements
    proven = [bound for strategy in found for bound in strategy.proven if bound.objective == "sum"]
    outcome = Outcome.of_all(strategy.status for strategy in found)
    return PairStrategy(
        workload,
        assemble(measurements, (start, workload.cells)),
        assemble(reconstructions, (workload.queries, start)),
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


Tree = tuple[Plain, Callable[[Dense], Dense]]
"""A measure over the cells, and from W its reconstruction W L⁺."""


@dataclass(frozen=True)
class Sizes:
    """Up to which sizes a closed form is tried; guards against minutes spent on what cannot win."""

    most_entries: int = 20_000_000
    """Entries of R, or columns times cells, up to which a closed form is built at all: 160 MB as an array."""
    many_columns: int = 1500
    """Columns up to which a measure over the cells gets a reconstruction of its own, which is cubic in them."""
    few_columns: int = 500
    """Columns up to which that reconstruction takes a fraction of a second and is not worth a check beforehand."""
    most_cells: int = 4096
    """Cells up to which the function as it stands is run for the largest error, where small batches profit."""


SIZES = Sizes()


def over_cells(reduction: Reduction, best: float, build: Callable[[int], Tree], sizes: Sizes) -> Iterator[Dense]:
    """The measure on the merged columns; where it takes long, only if it comes below `best` over the cells."""
    p, workload = reduction.columns, reduction.workload
    if p >= workload.cells or p > sizes.many_columns or p * workload.cells > sizes.most_entries:
        return
    L, reconstruct = build(workload.cells)
    quick = p <= sizes.few_columns or workload.queries * workload.cells > sizes.most_entries
    if quick or _error(L, reconstruct(dense(workload.weighted))) < best:
        yield reduction.restrict_measure(L)


def _error(measure: Plain, reconstruct: Dense) -> float:
    """‖B‖²_F at sensitivity 1."""
    return float(column_norms(measure, 1).max() ** 2 * np.vdot(reconstruct, reconstruct))
