"""What both solvers of Formula (7) share: where they start, and how their end is made exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.matrix import Dense

Progress = Callable[[int, float, float], object]
"""Called with (round, relative residual, ‖B‖²_F); a true answer ends the run."""


EXACT = 1e-11
"""The relative residual up to which R = B L counts as held to rounding."""


@dataclass(frozen=True, eq=False)
class Pair:
    """L and B for the reduced workload, columns of L of L1 norm at most 1, and how the search ended."""

    measure: Dense
    reconstruct: Dense
    rounds: int
    status: str

    @property
    def error(self) -> float:
        """‖B‖²_F, half the expected squared error at ε = 1."""
        return float(np.vdot(self.reconstruct, self.reconstruct))


def first_measure(R: Dense, rank: int, rng: np.random.Generator) -> Dense:
    """The right singular vectors in a random orientation, so that every row takes part; sensitivity 1."""
    k = len(R)
    V = np.linalg.svd(R, full_matrices=False)[2]
    Q = np.linalg.qr(rng.standard_normal((max(rank, k), max(rank, k))))[0][:rank, :k]
    L = Q @ V
    return np.asarray(L / np.abs(L).sum(axis=0).max())


def revived(L: Dense, residual: Dense, height: float) -> Dense:
    """L with zero rows re-seeded from the residual's leading right singular vectors; L itself if none is zero.

    Once a row of L and its column of B are zero, no gradient brings them back. The new row must be tall, `height`
    times 1/r: a short one dies again and again, and leaves the others where they are.
    """
    dead = np.flatnonzero(np.abs(L).max(axis=1) < 1e-9)
    if dead.size == 0:
        return L
    V = np.linalg.svd(residual, full_matrices=False)[2][: dead.size]
    L = L.copy()
    L[dead[: len(V)]] = height / len(L) * V / np.abs(V).max(axis=1, keepdims=True)
    return np.asarray(L / np.maximum(1.0, np.abs(L).sum(axis=0)))


def repaired(R: Dense, L: Dense, B: Dense, rounds: int, status: str) -> Pair | None:
    """The nearby pair with R = B L to rounding: L + B⁺ (R − B L), scaled to sensitivity 1, and B = R L⁺.

    R L⁺ is the least B for this L. Where L has nearly dependent rows the pseudo-inverse may cut directions that R
    needs; B then stays as it is, which is exact too. None if the pair has lost a direction of R for good.
    """
    for _ in range(2):  # the second pass removes the rounding of the first
        L = L + np.linalg.lstsq(B, R - B @ L, rcond=1e-13)[0]
    least = completed(R, L, rounds, status)
    if least is not None:
        return least
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0)) or 1.0
    exact = np.linalg.norm(R - B @ L) <= EXACT * np.linalg.norm(R)
    return Pair(L / sensitivity, B * sensitivity, rounds, status) if exact else None


def completed(R: Dense, L: Dense, rounds: int = 0, status: str = "closed form") -> Pair | None:
    """L scaled to sensitivity 1 with its best B = R L⁺, or None if L cannot reproduce R."""
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0))
    if sensitivity == 0:
        return None
    L = L / sensitivity
    B = least_reconstruct(R, L)
    exact = np.linalg.norm(R - B @ L) <= EXACT * np.linalg.norm(R)
    return Pair(L, B, rounds, status) if exact else None


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
