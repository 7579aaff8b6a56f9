"""From a measure to an exact pair: the least reconstruction, and a check that it reproduces the workload."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.matrix import Dense, column_norms, dense_product
from batchdp.outcome import Outcome
from batchdp.workloads.pair import Pair

EXACT = 1e-11
"""The relative residual up to which R = B L counts as held to rounding."""


def completed(R: Dense, L: Dense, rounds: int = 0, outcome: Outcome = Outcome.CLOSED_FORM) -> Pair | None:
    """L scaled to sensitivity 1 with its best B = R L⁺, or None if L cannot reproduce R."""
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0))
    if sensitivity == 0:
        return None
    L = L / sensitivity
    pair = Pair(L, least_reconstruct(R, L), outcome, rounds)
    return pair if is_exact(R, pair) else None


def scaled(pair: Pair) -> Pair:
    """The same pair at sensitivity 1."""
    sensitivity = float(column_norms(pair.measure, 1).max())
    return Pair(pair.measure * (1 / sensitivity), pair.reconstruct * sensitivity, pair.outcome, pair.rounds)


def is_exact(R: Dense, pair: Pair) -> bool:
    """Whether R = B L to rounding."""
    miss = np.linalg.norm(R - dense_product(pair.reconstruct, pair.measure))
    return bool(miss <= EXACT * np.linalg.norm(R))


def least_reconstruct(R: Dense, L: Dense) -> Dense:
    """B = R L⁺: by Cholesky with one refinement where that is exact, else by least squares.

    The SVD inside least squares costs a second at a thousand columns; the Gram matrix a few hundredths.
    """
    r, n = L.shape
    try:
        if r >= n:
            factor = cho_factor(L.T @ L, lower=True, check_finite=False)
            B = cho_solve(factor, R.T, check_finite=False).T @ L.T
            B += cho_solve(factor, (R - B @ L).T, check_finite=False).T @ L.T
        else:
            factor = cho_factor(L @ L.T, lower=True, check_finite=False)
            B = cho_solve(factor, L @ R.T, check_finite=False).T
            B += cho_solve(factor, L @ (R - B @ L).T, check_finite=False).T
        pivots = np.diag(factor[0])
        # With dependent rows R = B L may hold though B is not the smallest.
        if pivots.min() > 1e-6 * pivots.max() and np.linalg.norm(R - B @ L) <= 1e-12 * np.linalg.norm(R):
            return np.asarray(B)
    except LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(L.T, R.T, rcond=1e-13)[0].T)
