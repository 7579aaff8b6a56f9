"""W = U R with orthonormal U and R of full row rank, by the cheapest way that is exact.

- Few directions in many rows: a product with random columns spans them all, and one more product is R.
- Independent rows already: a Cholesky factorisation shows it, and R is W itself.
- Otherwise, and for everything small, singular values.
"""

from __future__ import annotations

import numpy as np

from batchdp.linalg.matrix import Dense, Plain, dense, identity, row_residuals, row_squares

LARGE = 1000
"""Rows from which singular values are avoided where they can be."""
MANY_ENTRIES = 1_000_000
"""From which a low rank is looked for first."""
FIRST_GUESS = 32
"""Of the rank of a matrix with many rows and columns; doubled while it is too small."""
EXACT = 1e-13
"""The largest relative residual of any row of W − U R that counts as rounding."""
WELL_CONDITIONED = 1e-5
"""The smallest pivot of a Cholesky factor, relative to the largest, that shows independent rows beyond doubt."""


def independent_rows(W: Plain) -> tuple[Plain, Dense]:
    """U and R."""
    if W.shape[0] == 0 or W.shape[1] == 0:
        return np.zeros((W.shape[0], 0)), np.zeros((0, W.shape[1]))
    least, found = min(W.shape), None
    if W.shape[0] * W.shape[1] >= MANY_ENTRIES:
        found = _of_low_rank(W, FIRST_GUESS, min(4 * FIRST_GUESS, least // 4))
        if found is None and least >= LARGE and W.shape[0] <= W.shape[1]:
            found = _of_full_rank(dense(W))
        found = found or _of_low_rank(W, 8 * FIRST_GUESS, least // 4)
    return found or _by_singular_values(dense(W))


def leading_signs(R: Dense) -> Dense:
    """For every column the sign with which it points along the strongest direction of all."""
    if R.shape[0] == 0:
        return np.ones(R.shape[1])
    v = R[0]
    if R.shape[0] >= LARGE:  # R may not come from singular values, which have the strongest first
        u = np.ones(R.shape[0])
        for _ in range(30):
            v = u @ R
            u = R @ v
            u /= np.linalg.norm(u)
    return np.where(v < 0, -1.0, 1.0)


def _of_low_rank(W: Plain, guess: int, most: int) -> tuple[Plain, Dense] | None:
    """From the span of W times random columns, if that many suffice."""
    m, p = W.shape
    while guess <= most:
        Q, T = np.linalg.qr(np.asarray(W @ np.random.default_rng(0).standard_normal((p, guess))))
        pivots = np.abs(np.diag(T))
        if pivots.min() <= pivots.max() * m * np.finfo(float).eps:
            break
        guess *= 2
    else:
        return None
    R = np.asarray((W.T @ Q).T)
    U, sigma, V = np.linalg.svd(R, full_matrices=False)
    k = int(np.sum(sigma > sigma[0] * max(m, p) * np.finfo(float).eps))
    U, R = np.ascontiguousarray(Q @ U[:, :k]), sigma[:k, None] * V[:k]
    exact = row_residuals(W, U, R) <= EXACT * np.sqrt(row_squares(W))
    return (U, R) if np.all(exact) else None


def _of_full_rank(W: Dense) -> tuple[Plain, Dense] | None:
    """W itself, if its rows are far from dependent."""
    sizes = np.sqrt(row_squares(W))
    if not np.all(sizes > 1e-6 * sizes.max()):
        return None
    G = (W @ W.T) / sizes / sizes[:, None]
    try:
        pivots = np.diag(np.linalg.cholesky(G))
    except np.linalg.LinAlgError:
        return None
    return (identity(len(W)), W) if pivots.min() > WELL_CONDITIONED * pivots.max() else None


def _by_singular_values(W: Dense) -> tuple[Dense, Dense]:
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    k = int(np.sum(sigma > sigma[0] * max(W.shape) * np.finfo(float).eps))
    return np.ascontiguousarray(U[:, :k]), sigma[:k, None] * V[:k]
