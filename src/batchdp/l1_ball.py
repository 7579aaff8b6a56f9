"""Euclidean projection of every column of a matrix onto the L1 ball at once (the paper's Formula 11)."""

from __future__ import annotations

import numpy as np

from batchdp.matrix import Dense

MOST_PASSES = 100


def project_columns(matrix: Dense, radius: float = 1.0) -> Dense:
    """The nearest matrix whose columns have L1 norm at most `radius`.

    The projection shrinks every entry of a column towards 0 by the same threshold t, the root of
    Σ max(|x| − t, 0) = radius. That function is convex, decreasing and piecewise linear, so Newton's method from
    t = (Σ|x| − radius) / r climbs to the root in a few passes without sorting.
    """
    magnitudes = np.abs(matrix)
    sums = magnitudes.sum(axis=0)
    outside = np.flatnonzero(sums > radius)
    if outside.size == 0:
        return matrix.copy()
    A = magnitudes[:, outside]
    t = (sums[outside] - radius) / len(A)
    for _ in range(MOST_PASSES):
        above = t < A
        following = (np.where(above, A, 0.0).sum(axis=0) - radius) / np.maximum(above.sum(axis=0), 1)
        if not np.any(following > t * (1 + 1e-15) + 1e-300):
            break
        t = np.maximum(following, t)
    projected = matrix.copy()
    projected[:, outside] = np.copysign(np.maximum(A - t, 0.0), matrix[:, outside])
    return projected
