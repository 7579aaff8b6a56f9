"""The kernels of Algorithm 2 by NumPy and SciPy: a few columns of L at a time, which stay in the processor's cache."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from batchdp.linalg.l1_ball import project_columns, projected_rows
from batchdp.linalg.matrix import Dense

BLOCK_ENTRIES = 49_152
"""Of L, that go through a step at a time."""
FEW = 0.15
"""The share of entries up to which a product with the non-zero ones alone is faster."""


def step(
    now: Dense,
    now_slope: Dense,
    before: Dense,
    before_slope: Dense,
    momentum: float,
    omega: float,
    thresholds: Dense,
    H: Dense,
    F: Dense,
    after: Dense,
    after_slope: Dense,
) -> tuple[float, float]:
    """A step of Algorithm 2; where L has many non-zero entries, guesses are of no use and stay as they are."""
    n, r = F.shape
    width = max(16, BLOCK_ENTRIES // r)
    few = _few(now)
    moved = bent = 0.0
    for first in range(0, n, width):
        part = slice(first, first + width)
        S = _combined(now[part], before[part], momentum)
        slope = _combined(now_slope[part], before_slope[part], momentum)
        X = slope * (-1 / omega)
        X += S
        D, rise = after[part], after_slope[part]
        if few:
            kept, thresholds[part] = projected_rows(X, thresholds[part])
            kept.toarray(out=D)
            np.subtract(kept @ H, F[part], out=rise)
        else:
            D[...] = project_columns(X.T).T
            np.subtract(D @ H, F[part], out=rise)
        S -= D
        slope -= rise
        moved += float(np.vdot(S, S))
        bent += float(np.vdot(S, slope))
    return moved, bent


def _combined(now: Dense, before: Dense, momentum: float) -> Dense:
    """now + momentum (now − before)."""
    S = now - before
    S *= momentum
    S += now
    return S


def product(rows: Dense, matrix: Dense) -> Dense:
    """The product rows · matrix."""
    return np.asarray(csr_array(rows) @ matrix if _few(rows) else rows @ matrix)


def transposed_product(rows: Dense, matrix: Dense) -> Dense:
    """The product rowsᵀ · matrix."""
    return np.asarray(csr_array(rows).T @ matrix if _few(rows) else rows.T @ matrix)


def _few(rows: Dense) -> bool:
    return bool(np.count_nonzero(rows) <= FEW * rows.size)
