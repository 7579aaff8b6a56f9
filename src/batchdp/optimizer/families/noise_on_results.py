"""Noise on results (the paper's NOQ or NOR): a noisy answer for every query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from batchdp.linalg.matrix import Dense, column_norms, dense, identity
from batchdp.optimizer.family import Family, Method
from batchdp.strategies.blocks import SIZES
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, as_workload
from batchdp.workloads.reduction import Reduction, reduce


def noise_on_results(workload: MatrixWorkload | ArrayLike | Any, *, least_squares: bool = False) -> PairStrategy:
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
        return PairStrategy(workload, workload.matrix, reconstruct, method="noise-on-results")
    return PairStrategy(workload, workload.matrix, identity(workload.queries), method="noise-on-results")


def _may_pay(reduction: Reduction) -> bool:
    """Whether noise on results, with k Δ² as its least error, comes near noise on data."""
    sensitivity = float(column_norms(reduction.workload.matrix, 1).max(initial=0.0))
    return reduction.rank * sensitivity**2 < 4 * float(np.vdot(reduction.reduced, reduction.reduced))


@final
@dataclass(frozen=True, eq=False)
class _NoiseOnResults(Family):
    def worth(self, reduction: Reduction) -> bool:
        return reduction.workload.cells <= SIZES.most_cells

    def variants(self) -> tuple[Method, ...]:
        return noise_on_results, partial(noise_on_results, least_squares=True)

    def plainly(self, workload: MatrixWorkload) -> PairStrategy:
        return noise_on_results(workload)

    def over_cells(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        p, workload = reduction.columns, reduction.workload
        many = p > SIZES.many_columns
        if workload.queries * p <= SIZES.most_entries and (not many or _may_pay(reduction)):
            yield reduction.restrict_measure(workload.matrix)


NOISE_ON_RESULTS = _NoiseOnResults("noise-on-results", noise_on_results, quick=True)
