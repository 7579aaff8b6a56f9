"""Euclidean projection of every column of a matrix onto the L1 ball at once (the paper's Formula 11)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr
from scipy.sparse import csr_array

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread

TOLERANCE = 1e-9
"""How far a column may be outside of a half-space, relative: then the norm is too large by no more."""
PIVOT = 1e-11
"""The least that a basis weight may change by to leave, relative to the columns' size."""
MOST_PIVOTS = 5000
MOST_ENTRIES = 4_000_000
"""Of the products of prices and columns that are in memory at a time."""


@one_thread
def gauges(columns: Dense, points: Dense) -> Dense:
    """‖z‖_K of every row z of `points`; `columns` is k × c, of rank k."""
    k, c = columns.shape
    if points.ndim != 2 or points.shape[1] != k:
        raise StrategyError(f"points of shape {points.shape} are not rows of {k} coordinates")
    start = qr(columns, mode="r", pivoting=True, check_finite=False)[1][:k]
    inverse = np.asarray(np.linalg.inv(columns[:, start]), np.float64)
    rows = max(1, MOST_ENTRIES // max(c, k * k))
    parts = [_norms(columns, points[i : i + rows], inverse) for i in range(0, len(points), rows)]
    return np.concatenate([np.zeros(0), *parts])


def _norms(columns: Dense, points: Dense, first: Dense) -> Dense:
    """The same for a few points, from the inverse of one basis."""
    norms: Dense = np.abs(points @ first.T).sum(axis=1)
    left = np.flatnonzero(norms > 0)
    weights = points[left] @ first.T
    signs = np.where(weights < 0, -1.0, 1.0)
    weights, inverse = np.abs(weights), first[None] * signs[:, :, None]
    for _ in range(MOST_PIVOTS):
        if not left.size:
            return norms
        reduced = inverse.sum(axis=1) @ columns
        entering = np.abs(reduced).argmax(axis=1)
        gain = np.take_along_axis(reduced, entering[:, None], axis=1)[:, 0]
        more = np.abs(gain) > 1 + TOLERANCE
        norms[left] = weights.sum(axis=1)
        left, weights, inverse, entering, gain = (one[more] for one in (left, weights, inverse, entering, gain))
        weights, inverse = _pivoted(weights, inverse, columns[:, entering].T * np.sign(gain)[:, None])
    raise StrategyError(f"the norm of {left.size} points was not found in {MOST_PIVOTS} steps; rescale the queries")


def _pivoted(weights: Dense, inverse: Dense, entering: Dense) -> tuple[Dense, Dense]:
    """Every basis with one column more and without the one that binds first."""
    change = np.einsum("sij,sj->si", inverse, entering)
    may = change > PIVOT
    ratios = np.where(may, weights / np.where(may, change, 1.0), np.inf)
    leaving, rows = ratios.argmin(axis=1), np.arange(len(ratios))
    step = ratios[rows, leaving]
    if not np.all(np.isfinite(step)):
        raise StrategyError("the columns of a body do not span its space; rescale the queries")
    weights = weights - step[:, None] * change
    weights[rows, leaving] = step
    pivot = inverse[rows, leaving] / change[rows, leaving][:, None]
    change[rows, leaving] = 0.0
    inverse = inverse - change[:, :, None] * pivot[:, None, :]
    inverse[rows, leaving] = pivot
    return weights, inverse


MOST_PASSES = 100
BLOCK_ENTRIES = 24_576
"""Columns are taken a few at a time, so that every pass over them stays in the processor's cache."""


def project_columns(matrix: Dense, radius: float = 1.0) -> Dense:
    """The nearest matrix whose columns have L1 norm at most `radius`, in the precision of the matrix.

    The projection shrinks every entry of a column towards 0 by the same threshold t, the root of
    Σ max(|x| − t, 0) = radius. That function is convex, decreasing and piecewise linear, so Newton's method from
    t = (Σ|x| − radius) / r climbs to the root in a few passes without sorting.
    """
    r, n = matrix.shape
    projected = matrix.copy()
    ones = np.ones(r, matrix.dtype)
    width = max(16, BLOCK_ENTRIES // max(1, r))
    for first in range(0, n, width):
        X = projected[:, first : first + width]
        A = np.abs(X)
        sums = np.add.reduce(A, axis=0)
        outside = sums > radius
        some = np.count_nonzero(outside)  # as `any` and `all` are, but without Python in between
        if not some:
            continue
        everywhere = some == len(outside)
        if not everywhere:
            A, sums = A[:, outside], sums[outside]
        t = _thresholds(A, (sums - radius) / r, radius, ones)
        A -= t
        np.maximum(A, 0.0, out=A)
        if everywhere:
            np.copysign(A, X, out=X)
        else:
            X[:, outside] = np.copysign(A, X[:, outside])
    return projected


def _thresholds(A: Dense, t: Dense, radius: float, ones: Dense) -> Dense:
    """The root for each column of magnitudes, from below."""
    above, kept = np.empty_like(A), np.empty_like(A)
    rounding = 4 * float(np.finfo(A.dtype).eps)
    for _ in range(MOST_PASSES):
        above[...] = t < A  # as numbers: BLAS then sums them
        np.multiply(A, above, out=kept)
        following = (ones @ kept - radius) / np.maximum(ones @ above, 1.0)
        if not np.count_nonzero(following > t * (1 + rounding)):
            break
        t = np.maximum(following, t)
    return t


def projected_rows(matrix: Dense, guesses: Dense, radius: float = 1.0) -> tuple[csr_array, Dense]:
    """The nearest matrix whose *rows* have L1 norm at most `radius`, as its non-zero entries; and the thresholds.

    A threshold that is guessed from below leaves few entries above it, and only those are looked at again. From a guess
    above the root, Newton's method lands below it, because the function is convex.
    """
    n, r = matrix.shape
    A = np.abs(matrix)
    magnitudes = A.ravel()
    least = np.maximum((A @ np.ones(r) - radius) / r, 0.0)
    low = np.maximum(least, guesses)
    while True:
        place = np.flatnonzero(low[:, None] < A)
        row, value = place // r, magnitudes[place]
        t = _newton(row, value, n, radius)
        too_high = (t < low) & (low > least)
        if not too_high.any():
            break
        low[too_high] = np.maximum(t, least)[too_high]
    t = np.maximum(t, low)
    rounding = 4 * float(np.finfo(np.float64).eps)
    for _ in range(MOST_PASSES):
        above = value > t[row]
        place, row, value = place[above], row[above], value[above]
        following = _newton(row, value, n, radius)
        if not np.any(following > t * (1 + rounding)):
            break
        t = np.maximum(following, t)
    entries = np.copysign(value - t[row], matrix.ravel()[place])
    ends = np.zeros(n + 1, np.intp)
    np.cumsum(np.bincount(row, minlength=n), out=ends[1:])
    return csr_array((entries, place - row * r, ends), shape=(n, r)), t


def _newton(row: np.ndarray, value: Dense, rows: int, radius: float) -> Dense:
    """The next threshold of each row from the entries above the present one."""
    return np.asarray((np.bincount(row, value, rows) - radius) / np.maximum(np.bincount(row, minlength=rows), 1))
