"""Coordinates in which the smallest ellipsoid around a body is nearly the unit ball, in whole numbers.

Floats propose, integers verify: whatever the floats found, the ball that is used holds every column. Only the share of
points that are accepted depends on how good they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.knorm.integers import Integers, identity, solved

GAP = 1e-3
"""Of the dual problem, at which the ellipsoid is small enough: less than 1 % of volume."""
MOST_STEPS = 20_000
FINE = 22
"""Bits by which the new coordinates are finer than the columns."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """S and what it does to the columns: b = S a has length 2^bits at most, for every one."""

    change: Integers
    """S, k × k, invertible."""
    inverse: Integers
    """S⁻¹ · `divisor`."""
    divisor: int
    columns: Integers
    """b = S a."""
    bits: int


def rounded(columns: Integers) -> Rounded:
    """The change of coordinates, verified: ‖b‖² ≤ 4^bits for every column, and S has an inverse."""
    k = len(columns)
    largest = max(abs(int(x)) for x in columns.flat)
    bits = largest.bit_length() + k.bit_length() + FINE
    try:
        floats = _unit_ball(columns.astype(np.float64) / 2.0 ** largest.bit_length()) / 2.0 ** largest.bit_length()
    except (LinAlgError, OverflowError, FloatingPointError):
        floats = np.full((k, k), np.nan)
    for shrink in (2.0**-20, 2.0**-10, 2.0**-5, 0.5, 0.75):
        if not np.isfinite(floats).all():
            break
        S = np.array([[round(x * (1 - shrink)) for x in row] for row in np.ldexp(floats, bits).tolist()], dtype=object)
        b = S @ columns
        inverse, divisor = solved(S, identity(k))
        if divisor and max((b * b).sum(axis=0)) <= 4**bits:
            return Rounded(S, inverse, divisor, b, bits)
    raise LatticeError(
        "vertices=… are of so different size that no ellipsoid around them can be computed; scale the queries alike"
    )


def _unit_ball(columns: Dense) -> Dense:
    """T with max ‖T a‖ = 1 and the largest determinant, nearly: Khachiyan's steps, and away from columns (Wolfe).

    Weights p ≥ 0, Σ p = 1, maximise det Σ p a aᵀ; at the optimum aᵀ (Σ p a aᵀ)⁻¹ a ≤ k for every column.
    """
    k, c = columns.shape
    G, R = qr(columns.T, mode="economic")
    G = np.ascontiguousarray(G.T)  # whitened: columns = Rᵀ G, and no condition number is squared
    p = np.full(c, 1.0 / c)
    for step in range(MOST_STEPS):
        if step % 50 == 0:
            inverse = np.linalg.inv((G * p) @ G.T)
            g = np.einsum("ij,ij->j", G, inverse @ G)
        most = int(np.argmax(g))
        least = int(np.argmin(np.where(p > 0, g, np.inf)))
        up, down = g[most] / k - 1, 1 - g[least] / k
        if max(up, down) <= GAP or k == 1:
            break
        j = most if up >= down else least
        size = (g[j] / k - 1) / (g[j] - 1) if g[j] > 1 else -np.inf
        size = max(size, -p[j] / (1 - p[j]))  # no weight below zero
        a = inverse @ G[:, j]
        p *= 1 - size
        p[j] = max(p[j] + size, 0.0)
        fraction = size / (1 - size + size * g[j])
        inverse = (inverse - fraction * np.outer(a, a)) / (1 - size)
        g = (g - fraction * np.square(a @ G)) / (1 - size)
    C = cholesky(np.linalg.inv((G * p) @ G.T), lower=False)
    T = C / np.sqrt(np.square(C @ G).sum(axis=0).max())
    # T G = T R⁻ᵀ columns
    return np.asarray(solve_triangular(R, T.T, lower=False).T)
