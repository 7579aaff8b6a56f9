"""Improve a p-Identity strategy by freeing what its form holds fixed.

`polish_shared` frees the diagonal and the signs and costs O(k p n) a round; `polish_dense` frees every entry of L and
costs O(n³). Both project columns onto the L1 ball, which sets entries to zero exactly where L-BFGS-B only creeps.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from batchdp.linalg.descent import Descended, descend
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.error import error
from batchdp.strategies.families.p_identity.packed import reconstruct
from batchdp.strategies.families.p_identity.products import Products
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings


def polish_shared(R: Products, packed: Dense, rounds: int, settings: Settings = SETTINGS) -> Descended[None]:
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
        np.maximum(projected[0], settings.smallest_diagonal, out=projected[0])
        return projected

    return descend(evaluate, packed, rounds, project=project)


def wants_more(R: Dense, packed: Dense, settings: Settings = SETTINGS) -> bool:
    """Whether measuring columns together as [diag(d); Θ] does not would gain anything to speak of.

    With Z = (LᵀL)⁻¹ Rᵀ, entry (i, j) of the derivative by L is −2 d_i ⟨z_i, z_j⟩ in the rows of the diagonal. A column
    spends its budget well if no entry is larger than that of its own row, and those add up to the error.
    """
    B = reconstruct(R, packed)
    if B is None:
        return False
    d = packed[0]
    Z = B[:, : len(d)] / d
    G = np.abs(Z.T @ Z) * d[:, None]
    own = np.diag(G)
    return float((G.max(axis=0) - own).sum()) > settings.least_gain * float(own.sum())


def polish_dense(R: Dense, measure: Dense, rounds: int) -> Descended[None]:
    """L with every entry free, of full column rank; its value is ‖B‖²_F."""

    def error(L: Dense) -> tuple[float, Dense, None]:
        Z = cho_solve(cho_factor(L.T @ L, lower=True, check_finite=False), R.T, check_finite=False)
        return float(np.vdot(Z, R.T)), -2 * (L @ Z) @ Z.T, None

    return descend(error, measure, rounds)
