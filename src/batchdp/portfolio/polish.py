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
from batchdp.strategies.p_identity.error import Products, error

SMALLEST_DIAGONAL = 1e-4
"""The error is a difference of terms that grow with the inverse of the diagonal."""


def polish_shared(R: Products, packed: Dense, rounds: int) -> Descent[None]:
    """The packed strategy with d and the signs of Θ free; its value is ‖B‖²_F."""

    def evaluate(packed: Dense) -> tuple[float, Dense, None]:
        e = 1 / packed[0]
        P = packed[1:] * e
        value, by_P, by_e = error(R, P, e)
        gradient = np.empty_like(packed)
        gradient[0] = -2 * e * (np.einsum("ij,ij->j", P, by_P) + e * by_e)
        np.multiply(by_P, 2 * e, out=gradient[1:])
        return value, gradient, None

    def project(packed: Dense) -> Dense:
        projected = project_columns(packed)
        np.maximum(projected[0], SMALLEST_DIAGONAL, out=projected[0])
        return projected

    return descend(evaluate, packed, rounds, project=project)


def polish_dense(R: Dense, measure: Dense, rounds: int) -> Descent[None]:
    """L with every entry free, of full column rank; its value is ‖B‖²_F."""

    def error(L: Dense) -> tuple[float, Dense, None]:
        Z = cho_solve(cho_factor(L.T @ L, lower=True, check_finite=False), R.T, check_finite=False)
        return float(np.vdot(Z, R.T)), -2 * (L @ Z) @ Z.T, None

    return descend(error, measure, rounds)
