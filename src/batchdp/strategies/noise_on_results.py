"""Noise on results (the paper's NOQ or NOR): a noisy answer for every query."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from batchdp.linalg.matrix import dense, identity
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload, as_workload


def noise_on_results(workload: Workload | ArrayLike | Any, *, least_squares: bool = False) -> Strategy:
    """Measure every query: L = W, B = I (Formula 5), with total error 2 m Δ² / ε², Δ = max_j Σ_i |W_ij|.

    The paper's Section 3.2 prints max_j Σ_i W_ij² for Δ², squaring the entries instead of the column sum;
    the two agree only where a column has a single entry.

    With `least_squares`, B = W W⁺: answers that contradict one another are reconciled, which is never worse.
    """
    workload = as_workload(workload)
    if least_squares:
        reduction = reduce(workload)
        # W⁺ acts through the span of the weighted rows: U B_R with B_R = Uᵀ √weights.
        U = dense(reduction.rows)
        B = U.T if workload.weights is None else U.T * workload.weights**0.5
        reconstruct = reduction.lift_reconstruct(B)
        return Strategy(workload, workload.matrix, reconstruct, method="noise-on-results")
    return Strategy(workload, workload.matrix, identity(workload.queries), method="noise-on-results")
