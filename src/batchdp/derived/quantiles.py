"""Quantiles of a column from noisy running totals over its bins, with intervals that hold for any data.

With c_k the number of records up to edge k and T that of all, G_k = c_k − p T never falls, and the p-quantile lies
above every edge with G < 0 and not above one with G > 0. The private G_k is within h_k of the truth, so edges are ruled
out from below while G_k + h_k < 0 and from above while G_k − h_k > 0, each side up to the first edge that is not. What
lies between is the interval: whole bins, because nothing is known of where in a bin the records are.

The h_k may be those of a simultaneous band, or those of each G_k by itself, at the same confidence: going inwards and
stopping at the first edge that stays, a mistake must be made at the first true edge of a side, one edge out of all,
with half of 1 − confidence. (Tests in a fixed order need no correction.) So the narrower band is enough.
"""

from __future__ import annotations

from typing import NamedTuple

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
