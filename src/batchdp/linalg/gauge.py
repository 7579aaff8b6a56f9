"""The norm that a body defines, of many points at once: ‖z‖_K = min Σ|λ_j| with Σ λ_j a_j = z, in floats.

K is the hull of ± the columns a_j. Columns may be taken with either sign, so any k independent ones are a feasible
basis and the simplex method starts there; one step of NumPy is one pivot for all points that are not done. Points in
general position, as random ones are, have no ties and so no cycles.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

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
