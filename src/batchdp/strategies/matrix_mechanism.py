"""The matrix mechanism (Li, Hay, Rastogi, Miklau, McGregor) as the paper's Appendix B implements it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchdp.checks import finite, whole
from batchdp.linalg.matrix import Dense, check_size, dense
from batchdp.linalg.threads import one_thread
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.family import Family
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.workload import Workload, as_workload


@dataclass(frozen=True)
class Settings:
    """The constants of the spectral projected gradient, and where it is run."""

    memory: int = 10
    """Past values that the non-monotone line search compares with, as Birgin, Martínez and Raydan suggest."""
    floor: float = 1e-8
    """The least eigenvalue of M relative to its largest, the square root of the rounding: keeps M positive definite."""
    most_cells: int = 64
    """Cells up to which `optimize` asks it, because it is quick there; chosen by hand."""
    minutes_beyond: int = 512
    """Cells beyond which it takes minutes, with sixty rounds of n³ operations."""


SETTINGS = Settings()


@one_thread
@block_by_block
def matrix_mechanism(
    workload: Workload | ArrayLike | Any, *, max_rounds: int = 60, smoothing: float = 0.01
) -> Strategy:
    """The best full-rank strategy under L2 sensitivity, used under L1 sensitivity as the paper does.

    With M = AᵀA it minimises max(diag M) · tr(WᵀW M⁻¹), the maximum smoothed to a relative `smoothing`
    (Formula 14), by a spectral projected gradient; L = M^½ and B = W M^-½.
    """
    workload = as_workload(workload)
    max_rounds, smoothing = whole("max_rounds", max_rounds, 0), finite("smoothing", smoothing, above=0, below=1)
    check_size(workload.cells, workload.cells)
    W = dense(workload.weighted)
    G = W.T @ W
    n = workload.cells
    norm = float(np.trace(G))
    if norm == 0:  # every query is 0 whatever the data: nothing to optimise
        return Strategy(workload, np.eye(n), dense(workload.matrix), method="matrix-mechanism")
    objective = _objective(G / norm, smoothing / np.log(max(n, 2)))
    M = _spectral_projected_gradient(objective, _average_optimum(G), max_rounds)
    eigenvalues, V = np.linalg.eigh(M)
    root = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * SETTINGS.floor))
    L = (V * root) @ V.T
    B = dense(workload.matrix @ ((V / root) @ V.T))
    return Strategy(workload, L, B, method="matrix-mechanism")


def _average_optimum(G: Dense) -> Dense:
    """(WᵀW)^½, made positive definite: the minimiser if the mean of diag M stood in place of its maximum."""
    eigenvalues, V = np.linalg.eigh(G)
    return np.asarray((V * np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * 1e-6))) @ V.T)


Objective = Callable[[Dense], tuple[Dense, float, Dense]]


def _objective(G: Dense, mu: float) -> Objective:
    """From a symmetric M: its projection on the positive definite cone, the objective there, the gradient."""

    def evaluate(M: Dense) -> tuple[Dense, float, Dense]:
        eigenvalues, V = np.linalg.eigh(M)
        eigenvalues = np.maximum(eigenvalues, max(eigenvalues[-1], 1e-300) * SETTINGS.floor)
        M = (V * eigenvalues) @ V.T
        # The objective does not change with the scale of M; fixing it keeps the smoothing relative.
        M /= M.diagonal().max()
        inverse = (V / eigenvalues) @ V.T
        inverse /= inverse[0] @ M[:, 0]
        diagonal = M.diagonal()
        exponentials = np.exp((diagonal - diagonal.max()) / mu)
        largest = float(diagonal.max() + mu * np.log(exponentials.sum()))
        pulled = inverse @ G @ inverse
        trace = float(np.einsum("ij,ji->", G, inverse))
        gradient = -largest * pulled
        gradient[np.diag_indices_from(gradient)] += trace * exponentials / exponentials.sum()
        return M, largest * trace, gradient

    return evaluate


def _spectral_projected_gradient(evaluate: Objective, start: Dense, max_rounds: int) -> Dense:
    """Barzilai–Borwein steps with a line search that may go up a little on the way down."""
    M, value, gradient = evaluate(start)
    best, best_value = M, value
    recent = deque([value], maxlen=SETTINGS.memory)
    step = 1 / max(float(np.abs(gradient).max()), 1e-300)
    for _ in range(max_rounds):
        decrease = float(np.sum(gradient * gradient))
        for _ in range(20):
            M_next, value_next, gradient_next = evaluate(M - step * gradient)
            if value_next <= max(recent) - 1e-4 * step * decrease:
                break
            step /= 4
        else:
            break
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


MATRIX_MECHANISM = Family(
    "matrix-mechanism",
    matrix_mechanism,
    settings=SETTINGS,
    slow_beyond=SETTINGS.minutes_beyond,
    worth=lambda reduction: reduction.workload.cells <= SETTINGS.most_cells,
)
