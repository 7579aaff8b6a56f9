"""How several estimators become one, by what is known of the noise alone.

An estimator δ away from an unbiased one, whose noise has a total variance V and covariance c with the estimator, has
the risk V + E‖δ‖² + 2 (c − V) (Stein 1981). So the best mix of several needs nothing but their distances and
covariances. Choosing the mix by the data costs about twice the variance of the noise along δ (James and Stein 1961).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from batchdp.linalg.matrix import Dense


def best_mix(products: Dense, gains: Dense, pull: float = 0.0) -> Dense:
    """The a ≥ 0 with Σ a ≤ 1 that minimises aᵀ M a − 2 g·a, by trying which of these hold with equality.

    Args:
        products: M, inner products of the ways from the raw answers to every estimator.
        gains: g, what is expected of each way: the raw risk less its covariance.
        pull: how much more is added for Σ (a − 1/k)².
    """
    k, best, least = len(gains), np.zeros(len(gains)), 0.0
    products, gains = products + pull * np.eye(k), gains + pull / k
    for size in range(1, k + 1):
        for chosen in combinations(range(k), size):
            own = np.ix_(chosen, chosen)
            M, g = products[own] + 1e-12 * np.trace(products[own]) / size * np.eye(size), gains[list(chosen)]
            if not np.trace(M) > 0:
                continue
            for full in (False, True):
                found = _stationary(M, g, full=full)
                if found.min() < 0 or found.sum() > 1 + 1e-9:
                    continue
                value = float(found @ M @ found - 2 * g @ found)
                if value < least:
                    least, best = value, np.zeros(k)
                    best[list(chosen)] = found
    return best


def _stationary(M: Dense, g: Dense, *, full: bool) -> Dense:
    """Where the gradient is 0, on Σ a = 1 if `full`."""
    found = np.linalg.solve(M, g)
    if full:
        along = np.linalg.solve(M, np.ones(len(g)))
        found = found + along * (1 - found.sum()) / along.sum()
    return np.asarray(found)


def average_weights(costs: Sequence[float] | Dense) -> Dense:
    """e^−cost, adding up to 1."""
    least = np.asarray(costs, dtype=np.float64) - np.min(costs)
    found = np.exp(-least)
    return np.asarray(found / found.sum())
