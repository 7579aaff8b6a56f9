"""Intervals of what is computed from noisy answers: quantiles and ratios."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

Dense = NDArray[np.float64]


class Quantile(NamedTuple):
    """A quantile with its interval."""

    value: float
    low: float
    high: float


def quantile(
    totals: ArrayLike, edges: ArrayLike, p: float, band: ArrayLike, *, margin_of_total: float
) -> Quantile | None:
    """The p-quantile; None where it is not determined, as the interval of the number of records holds 0.

    The value is where running totals, made non-decreasing by least squares, cross p of their last, linear within a bin.

    Args:
        totals: K + 1 noisy running totals at the edges, the first 0, the last the number of all records.
        edges: K + 1 increasing edges of the bins.
        p: between 0 and 1.
        band: K + 1 half widths of the noise in totals − p · last, of each by itself or of all at once.
        margin_of_total: the half width of the noise in the last.
    """
    c, e, h = (np.asarray(one, np.float64) for one in (totals, edges, band))
    T = float(c[-1])
    if not margin_of_total < T:
        return None
    G = c - p * T
    # The first and the last edge are known without noise: no record is below, none above.
    below, above = G[1:-1] + h[1:-1] < 0, G[1:-1] - h[1:-1] > 0
    low, high = e[_leading(below)], e[len(e) - 1 - _leading(above[::-1])]
    return Quantile(min(max(_crossing(c, e, p), float(low)), float(high)), float(low), float(high))


def _leading(flags: NDArray[np.bool_]) -> int:
    """How many are true before the first that is not."""
    return int(np.argmin(np.append(flags, False)))


def _crossing(c: Dense, e: Dense, p: float) -> float:
    """Where the totals, kept from falling and within 0 and the last, cross p of it; where they rest there, half way."""
    fitted = np.clip(isotonic_regression(c[1:-1]).x if len(c) > 2 else [], 0.0, c[-1])
    F, goal = np.concatenate([[0.0], fitted, c[-1:]]), p * c[-1]
    last, first = int(np.flatnonzero(goal >= F)[-1]), int(np.argmax(goal <= F))
    if first <= last:
        return float(e[first] + e[last]) / 2
    return float(e[last] + (e[first] - e[last]) * (goal - F[last]) / (F[first] - F[last]))


Spread = Callable[[Any, Any], Any]
"""Of the noise in Σ_k a_k N_k + b_k D_k, by the weights a and b: one of each a term."""

ROUNDS = 8
CLOSE = 1e-3
"""How far κ may be from that of its own end, relatively."""


@np.errstate(over="ignore", invalid="ignore")
def ratio_intervals(
    numerators: Dense, denominators: Dense, margin: Spread, *, deviation: Spread
) -> tuple[Dense, Dense]:
    """Fieller's intervals of many ratios; not determined where the denominator's own interval holds 0.

    Args:
        numerators, denominators: the private answers N and D, one of each a ratio.
        margin: (a, b) to the half width of the noise in a N + b D at the wanted confidence, for all ratios at once.
        deviation: (a, b) to its standard deviation.

    Returns: the low and the high ends, not numbers where nothing is determined.
    """
    N, D = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    zero, one = np.zeros_like(D), np.ones_like(D)
    known = np.isfinite(N) & (np.abs(D) > margin(zero, one))
    D = np.where(known, D, 1.0)
    theta = N / D
    known &= np.isfinite(theta)
    theta, spread = np.where(known, theta, 0.0), deviation(zero, one) / np.abs(D)
    u = deviation(one, -theta) / np.abs(D)
    rho = _correlation(deviation, (one, -theta), (zero, one))

    def end(side: int, kappa: Dense) -> Dense:
        """Infinite where κ is too large for D."""
        g = np.square(kappa * spread)
        r, rest = side * rho * np.sqrt(g), np.where(g < 1, 1 - g, 1.0)
        both = np.sqrt(np.square(r) + rest) + np.abs(r)
        moved = u * kappa * np.where(r > 0, 1 / both, both / rest)  # √(r² + 1 − g) − r is (1 − g) over the sum
        return np.where(g < 1, theta + side * moved, side * np.inf)

    first = _kappa(margin, deviation, one, -theta)
    low, high = (_settled(end, side, first, margin, deviation) for side in (-1, 1))
    known &= np.isfinite(low) & np.isfinite(high)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _settled(end: Callable[[int, Dense], Dense], side: int, kappa: Dense, margin: Spread, deviation: Spread) -> Dense:
    """An end at which κ is that of the law there; else the larger of the last two, to be on the safe side."""
    for _ in range(ROUNDS):
        theta = end(side, kappa)
        at_infinity = ~np.isfinite(theta)
        found = _kappa(margin, deviation, np.where(at_infinity, 0.0, 1.0), np.where(at_infinity, 1.0, -theta))
        close = np.abs(found - kappa) <= CLOSE * kappa
        kappa, before = found, kappa
        if np.all(close):
            break
    return end(side, np.where(close, kappa, np.maximum(kappa, before)))


@np.errstate(over="ignore", invalid="ignore")
def combined_intervals(
    numerators: Dense, denominators: Dense, margin: Spread, *, deviation: Spread
) -> tuple[Dense, Dense]:
    """Intervals of many sums Σ_k N_k / D_k; not determined where one of the denominators' intervals holds 0.

    One term has Fieller's interval. Several have MOVER's (Zou and Donner 2008): each ratio's own interval, asymmetric
    as it may be, combined as standard deviations are, with the correlations that the linearised ratios have. Laplace
    noise in a sum is closer to Gaussian than in its terms, whose wider intervals are kept: on the safe side. Terms
    with one denominator should be given as one: (N₁ + N₂) / D is exact.

    Args:
        numerators, denominators: term × sum; a plain answer has the denominator 1, without noise.
        margin: (a, b), both term × sum, to the half width of the noise in Σ_k a_k N_k + b_k D_k, one a sum.
        deviation: (a, b) to its standard deviation.

    Returns: the low and the high ends, not numbers where nothing is determined.
    """
    N, D = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    J, K = N.shape

    def weights(k: int, x: Dense) -> Dense:
        """Of term k, the others' being 0."""
        found = np.zeros((J, K))
        found[k] = x
        return found

    def of_term(spread: Spread, k: int) -> Spread:
        return lambda a, b: spread(weights(k, a), weights(k, b))

    ends = [ratio_intervals(N[k], D[k], of_term(margin, k), deviation=of_term(deviation, k)) for k in range(J)]
    if J == 1:
        return ends[0]
    D = np.where(np.isnan(ends).any(axis=1), 1.0, D)
    theta = N / D
    sides = [theta - [low for low, _ in ends], [high for _, high in ends] - theta]
    squares = [np.square(side).sum(axis=0) for side in sides]
    # The noise in N/D goes with that in (N − θ D) / D.
    linear = [(weights(k, 1 / D[k]), weights(k, -theta[k] / D[k])) for k in range(J)]
    for j in range(J):
        for k in range(j):
            rho = _correlation(deviation, linear[j], linear[k])
            for square, side in zip(squares, sides, strict=True):
                square += 2 * rho * side[j] * side[k]
    below, above = (np.sqrt(np.maximum(square, 0.0)) for square in squares)
    return theta.sum(axis=0) - below, theta.sum(axis=0) + above


def _kappa(margin: Spread, deviation: Spread, a: Dense, b: Dense) -> Dense:
    """m / σ; 0 where there is no noise."""
    sigma = deviation(a, b)
    return np.asarray(np.divide(margin(a, b), sigma, out=np.zeros_like(sigma), where=sigma > 0))


def _correlation(deviation: Spread, first: tuple[Dense, Dense], second: tuple[Dense, Dense]) -> Dense:
    """Of the noise in two combinations, from σ² of their sum and difference, each scaled to 1; 0 where one has none."""
    sigmas = [deviation(*weights) for weights in (first, second)]
    noisy = (sigmas[0] > 0) & (sigmas[1] > 0)
    (a, b), (c, d) = (
        tuple(x / np.where(noisy, sigma, 1.0) for x in weights)
        for weights, sigma in zip((first, second), sigmas, strict=True)
    )
    found = (np.square(deviation(a + c, b + d)) - np.square(deviation(a - c, b - d))) / 4
    return np.where(noisy, np.clip(found, -1.0, 1.0), 0.0)
