"""Several blocks of cells: each optimised by itself, then given the share of the budget that leaves the least error.

A record has a cell in every block. Measurements of block g scaled to a sensitivity of p_g have E_g / p_g² as their
error, E_g being that at the whole budget. Laplace: Σ p_g = 1, so p_g ∝ E_g^⅓. Gaussian: Σ p_g² = 1, so p_g² ∝ E_g^½.
For the largest error instead of the sum all E_g / p_g² become equal: p_g ∝ E_g^½ or p_g² ∝ E_g.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import plain
from batchdp.portfolio import optimize
from batchdp.portfolio.search import Progress
from batchdp.strategies.strategy import Privacy, Strategy
from batchdp.workloads.workload import Workload

SECONDS = 40.0
"""For all blocks together, where the caller gives none and each would take seconds."""
MANY = 8
"""Blocks up to which each takes the time that its size asks for."""


def optimize_blocks(
    workload: Workload,
    privacy: Privacy,
    objective: Literal["sum", "max"],
    seconds: float | None,
    seed: int,
    tolerance: float,
    progress: Progress | None,
) -> Strategy:
    """The strategies of all blocks as one."""
    parts = list(workload.parts())
    each = (
        seconds / len(parts) if seconds is not None and parts else SECONDS / len(parts) if len(parts) > MANY else None
    )
    found = []
    for i, (_, _, part) in enumerate(parts):

        def watch(share: float, trying: str, _: float, i: int = i) -> object:
            assert progress is not None
            # An error of one block says nothing about the batch.
            return progress((i + share) / len(parts), f"block {i + 1} of {len(parts)}: {trying}", float("nan"))

        found.append(
            optimize(
                part,
                privacy,
                objective=objective,
                seconds=each,
                seed=seed,
                tolerance=tolerance,
                progress=None if progress is None else watch,
            )
        )
    sizes = [_error(strategy, objective) for strategy in found]
    measurements, reconstructions, start = [], [], 0
    for (rows, cells, _), strategy, share in zip(parts, found, _shares(sizes, privacy, objective), strict=True):
        scale = share / strategy.sensitivity
        L, B = sparse.coo_array(plain(strategy.measurement)), sparse.coo_array(plain(strategy.reconstruction))
        measurements.append((scale * L.data, L.coords[0] + start, L.coords[1] + cells.start))
        reconstructions.append((B.data / scale, rows[B.coords[0]], B.coords[1] + start))
        start += strategy.measurements
    methods = sorted({strategy.method for strategy in found})
    return Strategy(
        workload,
        _assembled(measurements, (start, workload.cells)),
        _assembled(reconstructions, (workload.queries, start)),
        method=f"{len(found)} blocks: {', '.join(methods)}" if found else "nothing to measure",
        privacy=privacy,
        rounds=sum(strategy.rounds for strategy in found),
        status="; ".join(sorted({strategy.status for strategy in found})) or "closed form",
    )


def _assembled(entries: list[tuple[Any, Any, Any]], shape: tuple[int, int]) -> sparse.csr_array:
    values, rows, columns = (np.concatenate([part[k] for part in entries] or [np.zeros(0, int)]) for k in range(3))
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), shape=shape))


def _error(strategy: Strategy, objective: Literal["sum", "max"]) -> float:
    budget = {"epsilon": 1.0} if strategy.privacy == "pure" else {"rho": 0.5}
    return strategy.expected_squared_error(**budget) if objective == "sum" else strategy.largest_variance(**budget)


def _shares(sizes: list[float], privacy: Privacy, objective: Literal["sum", "max"]) -> np.ndarray:
    errors = np.array(sizes)
    if privacy == "pure":
        parts = np.cbrt(errors) if objective == "sum" else np.sqrt(errors)
        return np.asarray(parts / parts.sum())
    parts = np.sqrt(errors) if objective == "sum" else errors
    return np.asarray(np.sqrt(parts / parts.sum()))
