"""Coordinates in which a body is nearly round, and its sample there."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular

from batchdp.linalg.gauge import gauges
from batchdp.linalg.matrix import Dense

CLOSE = 1e-2
"""How far the farthest column may be outside of the ellipsoid, squared and relative: it is a proposal and no more."""
MOST_ROUNDS = 300


def rounded(columns: Dense) -> tuple[Dense, Dense]:
    """L and C with columns = C L, where the smallest ellipsoid around ± the columns of L is nearly the unit ball."""
    k, c = columns.shape
    Q, R = qr(columns.T, mode="economic", check_finite=False)  # no condition number is squared
    G, weights = np.ascontiguousarray(Q.T), np.full(c, 1 / c)
    for _ in range(MOST_ROUNDS):
        M = (G * weights) @ G.T
        lengths = np.einsum("ij,ij->j", G, np.linalg.solve(M, G))
        weights = weights * lengths / k
        if lengths.max() <= k * (1 + CLOSE):
            break
    H = cholesky((G * weights) @ G.T, lower=True, check_finite=False)
    L = solve_triangular(H, G, lower=True, check_finite=False)
    top = float(np.linalg.norm(L, axis=0).max())
    return np.asarray(L / top), np.asarray(R.T @ H * top)


def sampled(columns: Dense, directions: int, rng: np.random.Generator) -> tuple[Dense, Dense]:
    """Points of the boundary of the hull of ± columns in random directions, and how much of it lies in each."""
    k = columns.shape[0]
    d = rng.standard_normal((directions, k))
    d /= np.linalg.norm(d, axis=1)[:, None]
    norms = gauges(columns, d)
    logs = -k * np.log(norms)
    weights = np.exp(logs - logs.max())
    return d / norms[:, None], weights / weights.sum()
