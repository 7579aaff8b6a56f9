"""The matrix mechanism (Li, Hay, Rastogi, Miklau, McGregor) as the paper's Appendix B implements it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import check_finite, check_whole
from batchdp.linalg.cone import inside, project
from batchdp.linalg.matrix import Dense, check_size, dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.family import FunctionFamily
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, as_workload

MEMORY = 10
"""Past values that the non-monotone line search compares with, as Birgin, Martínez and Raydan suggest."""
FLOOR = 1e-8
"""The least eigenvalue of M relative to its largest, the square root of the rounding: keeps M positive definite."""


@one_thread
@block_by_block
def matrix_mechanism(
    workload: MatrixWorkload | ArrayLike | Any, *, max_rounds: int = 60, smoothing: float = 0.01
) -> PairStrategy:
    """The best full-rank strategy under L2 sensitivity, used under L1 sensitivity as the paper does.

    With M = AᵀA it minimises max(diag M) · tr(WᵀW M⁻¹), the maximum smoothed to a relative `smoothing`
    (Formula 14), by a spectral projected gradient; L = M^½ and B = W M^-½.
    """
    workload = as_workload(workload)
    max_rounds = check_whole("max_rounds", max_rounds, 0)
    smoothing = check_finite("smoothing", smoothing, above=0, below=1)
    check_size(workload.cells, workload.cells)
    W = dense(workload.weighted)
    n = workload.cells
    norm = float(np.linalg.norm(W))
    if norm == 0:  # every query is 0 whatever the data: nothing to optimise
        return PairStrategy(workload, np.eye(n), dense(workload.matrix), method="matrix-mechanism")
    R = np.asarray(np.linalg.qr(W, mode="r") if len(W) > n else W) / norm
    M = _spectral_projected_gradient(_Objective(R, smoothing / np.log(max(n, 2))), _average_optimum(R), max_rounds)
    eigenvalues, V = np.linalg.eigh(M)
    root = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * FLOOR))
    L = (V * root) @ V.T
    B = dense(workload.matrix @ ((V / root) @ V.T))
    return PairStrategy(workload, L, B, method="matrix-mechanism")


def _average_optimum(R: Dense) -> Dense:
    """(RᵀR)^½, made positive definite: the minimiser if the mean of diag M stood in place of its maximum."""
    _, roots, V = np.linalg.svd(R, full_matrices=False)
    least = roots[0] * 1e-3
    M = (V.T * np.maximum(roots - least, 0)) @ V
    M[np.diag_indices_from(M)] += least
    return np.asarray(M)


@dataclass(frozen=True)
class _Objective:
    """Formula (14) as a function of a symmetric M, with its gradient."""

    R: Dense
    """Rows with RᵀR in proportion to WᵀW."""
    mu: float
    """The width of the smoothed maximum."""

    def __call__(self, M: Dense, ceiling: float = np.inf) -> tuple[Dense, float, Dense] | None:
        """M's projection on the positive definite cone, the value there, the gradient; None if above the ceiling."""
        if ceiling <= 0:  # which no value is
            return None
        widest = float(M.diagonal().max())
        # A projection P only adds to the diagonal, and tr(RᵀR P⁻¹) ≥ tr(UᵀRᵀR U (UᵀP U)⁻¹).
        definite = inside(M, FLOOR) or project(
            M, FLOOR, lambda U, height: widest * float(np.sum((self.R @ U) ** 2)) > ceiling * height
        )
        if definite is None:
            return None
        # The objective does not change with the scale of M; fixing it keeps the smoothing relative.
        scale = float(definite.matrix.diagonal().max())
        M, pulled = definite.matrix / scale, definite.divided(self.R) * scale
        diagonal = M.diagonal()
        exponentials = np.exp((diagonal - diagonal.max()) / self.mu)
        largest = float(diagonal.max() + self.mu * np.log(exponentials.sum()))
        trace = float(np.sum(pulled * self.R))
        if not largest * trace <= ceiling:  # nor if rounding has left no number at all
            return None
        gradient = (-largest * pulled.T) @ pulled
        gradient[np.diag_indices_from(gradient)] += trace * exponentials / exponentials.sum()
        return M, largest * trace, gradient


def _spectral_projected_gradient(evaluate: _Objective, start: Dense, max_rounds: int) -> Dense:
    """Barzilai–Borwein steps with a line search that may go up a little on the way down."""
    found = evaluate(start)
    if found is None:
        return start
    M, value, gradient = found
    best, best_value = M, value
    recent = deque([value], maxlen=MEMORY)
    step = 1 / max(float(np.abs(gradient).max()), 1e-300)
    for _ in range(max_rounds):
        decrease = float(np.sum(gradient * gradient))
        for _ in range(20):
            found = evaluate(M - step * gradient, max(recent) - 1e-4 * step * decrease)
            if found is not None:
                break
            step /= 4
        else:
            break
        M_next, value_next, gradient_next = found
        change, turn = M_next - M, gradient_next - gradient
        curvature = float(np.sum(change * turn))
        length = float(np.sum(change * change))
        if length <= 1e-14 * float(np.sum(M * M)):
            break
        step = float(np.clip(length / curvature, 1e-10, 1e10)) if curvature > 0 else step * 4
        M, value, gradient = M_next, value_next, gradient_next
        recent.append(value)
        if value < best_value:
            best, best_value = M, value
    return best


# Beyond 1024 cells it takes minutes: sixty rounds of n³ operations, and several times as many refused trials.
MATRIX_MECHANISM = FunctionFamily("matrix-mechanism", matrix_mechanism, slow_beyond=1024, most_cells=64)
