"""The margin of one column, with its total held: smooth along its values, or alike over them, mixed with the raw one.

x = e^θ with Σ x = T has the least ‖x − y‖²/2t + (λ/2) θᵀ K θ, where K penalises differences of neighbours, for columns
whose values have an order, or differences from the mean, for others. Several λ of both are averaged by their evidence,
and the average is mixed with the closest non-negative margin and the raw one by the estimated risk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from batchdp.linalg.matrix import Dense
from batchdp.release.consistency.tables import project_onto_simplex
from batchdp.release.denoise.mixing import average_weights, best_mix

STIFFNESS = (1000.0, 200.0, 40.0, 8.0, 1.5, 0.3)
"""λ of differences between neighbours, the stiffest first."""
ALIKE = (100.0, 10.0, 2.0, 0.5, 0.15)
"""λ of differences from the mean."""
MOST_STEPS = 50
LARGEST_STEP = 2.0
SETTLED = 1e-5
PROBES = 32
"""Random signs that traces are estimated with where there are very many values."""
MOST_EXACT = 2000
"""Values up to which they are not."""


@dataclass(frozen=True, eq=False)
class Margin:
    """A margin that is not negative and has its total."""

    values: Dense
    risk: float
    """Estimated, of all values together."""
    raw_risk: float
    kept: float
    """How much of the raw margin there is in it."""


class _Penalty:
    """K, tridiagonal, and how its curvature is inverted."""

    def __init__(self, n: int, *, ordered: bool) -> None:
        self.n, self.ordered = n, ordered

    def times(self, theta: Dense) -> Dense:
        if not self.ordered:
            return np.asarray(theta - theta.mean())
        d = np.diff(theta)
        return np.concatenate([[0.0], d]) - np.concatenate([d, [0.0]])

    def normaliser(self, stiffness: float) -> float:
        """−log of the density at its peak, but for what all penalties have."""
        return -(self.n - 1) / 2 * np.log(stiffness) + (0 if self.ordered else np.log(self.n) / 2)

    def solve(self, diagonal: Dense, stiffness: float, right: Dense) -> Dense:
        """(diag(d) + λ K)⁻¹ times columns."""
        if self.ordered:
            bands = np.zeros((2, self.n))
            bands[1] = diagonal + stiffness * np.where(np.isin(np.arange(self.n), (0, self.n - 1)), 1.0, 2.0)
            bands[0, 1:] = -stiffness
            return np.asarray(linalg.solveh_banded(bands, right, check_finite=False))
        own = (diagonal + stiffness)[:, None]
        inside, across = right / own, 1 / own
        left = self.n / stiffness - float(across.sum())
        return np.asarray(inside + across * (inside.sum(axis=0) / left))

    def log_determinant(self, diagonal: Dense, stiffness: float) -> float:
        if self.ordered:
            bands = np.zeros((2, self.n))
            bands[1] = diagonal + stiffness * np.where(np.isin(np.arange(self.n), (0, self.n - 1)), 1.0, 2.0)
            bands[0, 1:] = -stiffness
            return 2 * float(np.log(linalg.cholesky_banded(bands, check_finite=False)[1]).sum())
        own = diagonal + stiffness
        return float(np.log(own).sum() + np.log(max(1 - stiffness / self.n * float((1 / own).sum()), 1e-300)))


def _fit(y: Dense, t: float, total: float, theta: Dense, stiffness: float, penalty: _Penalty) -> Dense:
    """θ, by damped Newton steps that keep the total."""

    def cost(theta: Dense) -> float:
        return float(np.square(np.exp(theta) - y).sum()) / (2 * t) + stiffness / 2 * float(theta @ penalty.times(theta))

    damping, now = 1e-3, cost(theta)
    for _ in range(MOST_STEPS):
        x = np.exp(theta)
        slope = x * (x - y) / t + stiffness * penalty.times(theta)
        square = np.square(x) / t
        diagonal = square + damping * (square + 1e-3 * stiffness + 1e-9)
        both = penalty.solve(diagonal, stiffness, np.column_stack([-slope, x]))
        step = both[:, 0] - both[:, 1] * (float(x @ both[:, 0]) / float(x @ both[:, 1]))
        step = step * min(1.0, LARGEST_STEP / max(float(np.abs(step).max()), 1e-300))
        tried = theta + step
        tried = tried + np.log(total / np.exp(tried).sum())
        after = cost(tried)
        if after <= now:
            gained, theta, now = now - after, tried, after
            damping = max(damping / 10, 1e-9)
            if gained <= SETTLED:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    return theta


def _judge(y: Dense, t: float, total: float, theta: Dense, stiffness: float, penalty: _Penalty) -> tuple[float, float]:
    """−log of the evidence, and the degrees of freedom."""
    x = np.exp(theta)
    diagonal = np.square(x) / t + 1e-12
    fit = float(np.square(x - y).sum()) / (2 * t) + stiffness / 2 * float(theta @ penalty.times(theta))
    along = penalty.solve(diagonal, stiffness, x[:, None])[:, 0]
    curved = penalty.log_determinant(diagonal, stiffness) + np.log(float(x @ along)) - 2 * np.log(total)
    n = len(y)
    if n <= MOST_EXACT:
        trace = float((np.square(x) * np.diag(penalty.solve(diagonal, stiffness, np.eye(n)))).sum())
    else:
        signs = np.random.default_rng(0).choice((-1.0, 1.0), (n, PROBES)) * x[:, None]
        trace = float((signs * penalty.solve(diagonal, stiffness, signs)).sum()) / PROBES
    df = (trace - float(np.square(x * along).sum()) / float(x @ along)) / t
    return fit + curved / 2 + penalty.normaliser(stiffness), df


def denoise_margin(noisy: Dense, t: float, total: float, *, ordered: bool = True) -> Margin:
    """The margin with this total and the least estimated risk.

    Args:
        noisy: y, with this total.
        t: the variance of the noise in every direction but that of the total.
        total: of the margin, above 0.
        ordered: whether neighbours may be alike.
    """
    n = len(noisy)
    raw_risk = t * (n - 1)
    positive = project_onto_simplex(noisy, total)
    if n < 3 or t <= 0:
        return Margin(positive, raw_risk, raw_risk, 1.0)
    found = []
    for own, grid in ((True, STIFFNESS), (False, ALIKE)):
        if own and not ordered:
            continue
        penalty, theta = _Penalty(n, ordered=own), np.full(n, np.log(total / n))
        for stiffness in grid:
            theta = _fit(noisy, t, total, theta, stiffness, penalty)
            found.append((np.exp(theta), *_judge(noisy, t, total, theta, stiffness, penalty)))
    weights = average_weights([evidence for _, evidence, _ in found])
    smooth = np.sum([w * x for w, (x, _, _) in zip(weights, found, strict=True)], axis=0)
    between = sum(w * float(np.square(x - smooth).sum()) for w, (x, _, _) in zip(weights, found, strict=True))
    covariances = [t * float(weights @ [df for _, _, df in found]) + between, t * (np.count_nonzero(positive) - 1)]
    ways = np.array([smooth - noisy, positive - noisy])
    products, gains = ways @ ways.T, raw_risk - np.array(covariances)
    mix = best_mix(products, gains)
    risk = raw_risk + float(mix @ products @ mix - 2 * gains @ mix)
    return Margin(project_onto_simplex(noisy + mix @ ways, total), risk, raw_risk, float(1 - mix.sum()))
