"""The margin of one column, with its total held: smooth along its values, mixed with the raw one.

x = e^θ with Σ x = T has the least ‖x − y‖²/2t + (λ/2) θᵀ K θ, where θᵀ K θ = Σ (Δθ)² of neighbours. Several λ are
averaged by their evidence, and the average is mixed with the closest non-negative margin and the raw one by the
estimated risk: where values have no order, smooth margins fit badly, and little is taken of them.
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
MOST_STEPS = 50
LARGEST_STEP = 2.0
SETTLED = 1e-5
PROBES = 8
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


def _bend(theta: Dense) -> Dense:
    """K θ."""
    d = np.diff(theta)
    return np.asarray(np.concatenate([[0.0], d]) - np.concatenate([d, [0.0]]))


def _bands(diagonal: Dense, stiffness: float) -> Dense:
    """diag(d) + λ K, as its upper bands."""
    found = np.full((2, len(diagonal)), -stiffness)
    found[1] = diagonal + 2 * stiffness
    found[1, [0, -1]] -= stiffness
    return found


def _solve(diagonal: Dense, stiffness: float, right: Dense) -> Dense:
    """(diag(d) + λ K)⁻¹ times columns."""
    return np.asarray(linalg.solveh_banded(_bands(diagonal, stiffness), right, check_finite=False))


def _fit(y: Dense, t: float, total: float, theta: Dense, stiffness: float) -> Dense:
    """θ, by damped Newton steps that keep the total."""

    def cost(theta: Dense) -> float:
        return float(np.square(np.exp(theta) - y).sum()) / (2 * t) + stiffness / 2 * float(theta @ _bend(theta))

    damping, now = 1e-3, cost(theta)
    for _ in range(MOST_STEPS):
        x = np.exp(theta)
        slope = x * (x - y) / t + stiffness * _bend(theta)
        square = np.square(x) / t
        diagonal = square + damping * (square + 1e-3 * stiffness + 1e-9)
        both = _solve(diagonal, stiffness, np.column_stack([-slope, x]))
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


def _judge(y: Dense, t: float, total: float, theta: Dense, stiffness: float) -> tuple[float, float]:
    """−log of the evidence, and the degrees of freedom."""
    x = np.exp(theta)
    diagonal = np.square(x) / t + 1e-12
    fit = float(np.square(x - y).sum()) / (2 * t) + stiffness / 2 * float(theta @ _bend(theta))
    along = _solve(diagonal, stiffness, x[:, None])[:, 0]
    curved = (
        2 * float(np.log(linalg.cholesky_banded(_bands(diagonal, stiffness), check_finite=False)[1]).sum())
        + np.log(float(x @ along))
        - 2 * np.log(total)
    )
    n = len(y)
    if n <= MOST_EXACT:
        trace = float((np.square(x) * np.diag(_solve(diagonal, stiffness, np.eye(n)))).sum())
    else:
        rng, trace = np.random.default_rng(0), 0.0
        for _ in range(PROBES):
            signs = np.where(rng.integers(0, 2, n) > 0, x, -x)
            trace += float(signs @ _solve(diagonal, stiffness, signs)) / PROBES
    df = (trace - float(np.square(x * along).sum()) / float(x @ along)) / t
    return fit + curved / 2 - (n - 1) / 2 * np.log(stiffness), df


def denoise_margin(noisy: Dense, t: float, total: float) -> Margin:
    """The margin with this total and the least estimated risk.

    Args:
        noisy: y, with this total.
        t: the variance of the noise in every direction but that of the total.
        total: of the margin, above 0.
    """
    n = len(noisy)
    raw_risk = t * (n - 1)
    positive = project_onto_simplex(noisy, total)
    if n < 3 or t <= 0:
        return Margin(positive, raw_risk, raw_risk, 1.0)
    found, theta = [], np.full(n, np.log(total / n))
    for stiffness in STIFFNESS:
        theta = _fit(noisy, t, total, theta, stiffness)
        found.append((np.exp(theta), *_judge(noisy, t, total, theta, stiffness)))
    weights = average_weights([evidence for _, evidence, _ in found])
    smooth = np.sum([w * x for w, (x, _, _) in zip(weights, found, strict=True)], axis=0)
    between = sum(w * float(np.square(x - smooth).sum()) for w, (x, _, _) in zip(weights, found, strict=True))
    covariances = [t * float(weights @ [df for _, _, df in found]) + between, t * (np.count_nonzero(positive) - 1)]
    ways = np.array([smooth - noisy, positive - noisy])
    products, gains = ways @ ways.T, raw_risk - np.array(covariances)
    mix = best_mix(products, gains)
    risk = raw_risk + float(mix @ products @ mix - 2 * gains @ mix)
    return Margin(project_onto_simplex(noisy + mix @ ways, total), risk, raw_risk, float(1 - mix.sum()))
