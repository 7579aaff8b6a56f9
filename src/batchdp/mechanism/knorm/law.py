"""How shaped noise is distributed in an answer: by the sample that a plan keeps, since there is no closed form.

A group's noise is G b / (share · ε) with G ~ Gamma(k) and b a point of the sample. The law of G is exact; that of b is
as good as the sample, of which 4 096 points give intervals right to about 1 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammainc

from batchdp.linalg.matrix import Dense, dense
from batchdp.mechanism.law import ROWS, SIMULATIONS, NoiseLaw, checked_confidence
from batchdp.strategies.shape import Group, Shape

POINTS = 4096
"""Of the joint law of several groups."""
WIDEST = 16.0
"""Standard deviations within which half widths are looked for."""
HALVINGS = 24
GRID = 4096
"""Places at which the law of G is tabulated."""


@dataclass(frozen=True, eq=False)
class ShapedLaw(NoiseLaw):
    """The noise B z of all answers, with z shaped; `scale` is in units of the bodies, in the lattice's records."""

    shape: Shape = field(kw_only=True)

    @property
    def shape_text(self) -> str:
        """The groups of measurements that share a body, their shares of ε, and a digest of the sample."""
        return str(self.shape)

    @property
    def standard_errors(self) -> Dense:
        """The standard error of every answer."""
        return np.asarray(self.scale * np.sqrt(self.noise.variance_at_one * self.shape.row_squares(self.reconstruct)))

    @property
    def covariance(self) -> Dense:
        """Between all answers, m × m."""
        B = dense(self.reconstruct)
        return np.asarray(self.scale**2 * (B @ self.shape.covariance @ B.T))

    def half_widths(self, confidence: float = 0.95) -> Dense:
        """For every answer the h with |noise| ≤ h with this probability, by the sample."""
        checked_confidence(confidence)
        B = dense(self.reconstruct)
        rng = np.random.default_rng(0)  # seeded on purpose, as elsewhere: nothing is released here
        (first, group), *others = self.shape.parts
        if others:
            places = _resampled(group, POINTS, rng)
            points, weights = group.points[places], np.full(POINTS, 1 / POINTS)
        else:
            points, weights = group.points, group.weights
        beside = [(own, noise_of(other, len(points), rng)) for own, other in others]
        found = [np.zeros(0)]
        for start in range(0, len(B), ROWS):
            rows = B[start : start + ROWS]
            far = rows[:, first] @ points.T / float(group.share)
            near = sum((rows[:, own] @ z.T for own, z in beside), np.zeros_like(far))
            sigma = self.standard_errors[start : start + ROWS] / self.scale
            found.append(_quantiles(far, near, weights, sigma, group.rank, confidence))
        return np.concatenate(found) * self.scale

    def simulate(self, rng: np.random.Generator, block: int) -> Iterator[Dense]:
        """Simulated noise of all groups at ε = 1, one draw per column, so many at a time."""
        z = np.hstack([noise_of(group, SIMULATIONS, rng) for group in self.shape.groups])
        return (z[start : start + block].T for start in range(0, SIMULATIONS, block))


def noise_of(group: Group, count: int, rng: np.random.Generator) -> Dense:
    """Simulated noise of a group at ε = 1, one draw per row: for what is asked of its law, never for a release."""
    signs = rng.choice((-1.0, 1.0), count)
    sizes = signs * rng.gamma(group.rank, size=count) / float(group.share)
    return np.asarray(sizes[:, None] * group.points[_resampled(group, count, rng)])


def _resampled(group: Group, count: int, rng: np.random.Generator) -> Dense:
    """Places of the sample, each as often as its weight says, in random order."""
    steps = (np.arange(count) + rng.random()) / count
    places = np.searchsorted(np.cumsum(group.weights), steps).clip(max=len(group.weights) - 1)
    return np.asarray(rng.permutation(places))


def _quantiles(far: Dense, near: Dense, weights: Dense, sigma: Dense, rank: int, confidence: float) -> Dense:
    """h with P(|G far + near| ≤ h) = confidence over the weighted columns, for every row, by halving."""
    grid = np.linspace(0.0, rank + 40 + 12 * np.sqrt(rank), GRID)
    known = gammainc(rank, grid)
    live = np.flatnonzero(sigma)
    near, far = np.where(far < 0, -near, near)[live], np.maximum(np.abs(far[live]), 1e-300)

    def below(h: Dense) -> Dense:
        return np.interp((h[:, None] - near) / far, grid, known)

    low, high = np.zeros(live.size), WIDEST * sigma[live]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        inside = below(middle)
        if np.any(near):
            inside = inside - below(-middle)
        short = inside @ weights < confidence
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    widths = np.zeros(len(sigma))
    widths[live] = (low + high) / 2
    return widths
