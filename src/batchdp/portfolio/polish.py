"""Improve a p-Identity strategy by freeing what its form holds fixed.

`polish_shared` frees the diagonal and the signs and costs O(k p n) a round; `polish_dense` frees every entry of L and
costs O(n³). Both project columns onto the L1 ball, which sets entries to zero exactly where L-BFGS-B only creeps.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from batchdp.l1_ball import project_columns
from batchdp.matrix import Dense
from batchdp.strategies.low_rank.descent import Descent, descend

SMALLEST_DIAGONAL = 1e-6
"""The error needs the inverse of the diagonal."""


def pack(shared: Dense) -> Dense:
    """Rows d, Θ of the strategy [diag(d); Θ] that p-Identity makes of its shared queries."""
    return np.asarray(np.vstack([np.ones(shared.shape[1]), shared]) / (1 + np.abs(shared).sum(axis=0)))


def unpack(packed: Dense) -> Dense:
    """The measure L of a packed strategy, without rows that are zero."""
    T = packed[1:]
    return np.vstack([np.diag(packed[0]), T[np.abs(T).sum(axis=1) > 0]])


def polish_shared(R: Dense, packed: Dense, rounds: int) -> Descent[None]:
    """The packed strategy with d and the signs of Θ free; its value is ‖B‖²_F."""

    def error(packed: Dense) -> tuple[float, Dense, None]:
        d, T = packed[0], packed[1:]
        P, C = T / d, R / d
        K = P @ P.T
        K[np.diag_indices_from(K)] += 1
        X = C - cho_solve(cho_factor(K, lower=True, check_finite=False), P @ C.T, check_finite=False).T @ P
        Z = X / d
        gradient = np.empty_like(packed)
        gradient[0] = -2 * d * np.einsum("ij,ij->j", Z, Z)
        gradient[1:] = -2 * (T @ Z.T) @ Z
        return float(np.vdot(C, X)), gradient, None

    def project(packed: Dense) -> Dense:
        projected = project_columns(packed)
        np.maximum(projected[0], SMALLEST_DIAGONAL, out=projected[0])
        return projected

    return descend(error, packed, rounds, project=project)


def polish_dense(R: Dense, measure: Dense, rounds: int) -> Descent[None]:
    """L with every entry free, of full column rank; its value is ‖B‖²_F."""

    def error(L: Dense) -> tuple[float, Dense, None]:
        Z = cho_solve(cho_factor(L.T @ L, lower=True, check_finite=False), R.T, check_finite=False)
        return float(np.vdot(Z, R.T)), -2 * (L @ Z) @ Z.T, None

    return descend(error, measure, rounds)
