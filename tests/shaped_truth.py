"""Bodies, and what is known of them by other means: facets by trying all of them, laws of noise by integrals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
from math import exp, factorial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from batchdp.mechanism import sample as sampling
from batchdp.mechanism.knorm.gauge import solved
from batchdp.mechanism.prepare import Mechanism

Matrix = NDArray[Any]
Law = dict[tuple[int, ...], float]


def flags(rank: int) -> Matrix:
    """All 0/1 columns but zero: counts of independent flags."""
    return np.array([column for column in product((0, 1), repeat=rank) if any(column)]).T


def cube(rank: int) -> Matrix:
    """The columns are its corners: ‖z‖ is the largest entry."""
    return np.array(list(product((-1, 1), repeat=rank))).T


def differences(rank: int) -> Matrix:
    """Of the corners of a simplex."""
    corners = [*np.eye(rank, dtype=int), np.zeros(rank, dtype=int)]
    return np.array([a - b for a, b in combinations(corners, 2)]).T


def gaussian(rank: int, count: int, size: int = 2**20, seed: int = 0) -> Matrix:
    return np.rint(np.random.default_rng(seed).standard_normal((rank, count)) * size).astype(np.int64)


def polygon(count: int) -> Matrix:
    """Nearly round: half of its corners."""
    angles = np.arange(count) * np.pi / count
    return np.asarray(np.rint(10_000 * np.array([np.cos(angles), np.sin(angles)])).astype(int))


def facets(vertices: Matrix) -> list[list[Fraction]]:
    """All y with yᵀa ≤ 1 for every ± column that are equal to 1 on k independent ones: every choice is tried."""
    k = len(vertices)
    columns = [[int(x) for x in column] for column in vertices.T]
    found = set()
    for chosen in combinations(columns, k):
        for signs in product((1, -1), repeat=k - 1):
            B = np.array([[s * x for x in column] for s, column in zip((1, *signs), chosen, strict=True)], dtype=object)
            y, d = solved(B, np.array([1] * k, dtype=object))
            if d and all(abs(sum(a * b for a, b in zip(y, column, strict=True))) <= d for column in columns):
                found.add(tuple(Fraction(int(x), d) for x in y))
    return [list(y) for y in found]


def norm_by(known: Sequence[Sequence[Fraction]], point: Sequence[Any]) -> Fraction:
    """By all facets."""
    exact = [Fraction(x) for x in point]
    return max(abs(sum((a * b for a, b in zip(y, exact, strict=True)), Fraction(0))) for y in known)


def rounded_laplace(scale: float, most: int) -> dict[int, float]:
    """P(round(z) = n) for z of density exp(−|z| / scale) / (2 scale), |n| ≤ most."""

    def tail(x: float) -> float:
        return exp(-x / scale) / 2

    law = {0: 1 - 2 * tail(0.5)}
    for n in range(1, most + 1):
        law[n] = law[-n] = tail(n - 0.5) - tail(n + 0.5)
    return law


def law_by_integral(known: Sequence[Sequence[Fraction]], volume: float, epsilon: float, most: int, steps: int) -> Law:
    """P(round(z) = n) for z of density ∝ exp(−ε ‖z‖): midpoints of `steps` parts of every side of a unit cell."""
    Y = np.array([[float(x) for x in y] for y in known])
    k = Y.shape[1]
    inner = (np.arange(steps) + 0.5) / steps - 0.5
    offsets = np.array(list(product(inner, repeat=k)))
    density = epsilon**k / (factorial(k) * volume)
    law = {}
    for n in product(range(-most, most + 1), repeat=k):
        norms = np.abs((offsets + np.array(n)) @ Y.T).max(axis=1)
        law[n] = density * float(np.mean(np.exp(-epsilon * norms)))
    return law


def surprise(draws: Sequence[tuple[int, ...]], law: Law) -> float:
    """The chance of a chi-square as large as this; cells that expect fewer than ten are one, with all the others."""
    seen, total = Counter(draws), len(draws)
    often = {n for n, p in law.items() if p * total >= 10}
    pairs = [(seen[n], law[n] * total) for n in often]
    pairs.append((total - sum(s for s, _ in pairs), total - sum(e for _, e in pairs)))
    pairs = [(s, e) for s, e in pairs if e > 1e-9]
    return float(chi2.sf(sum((s - e) ** 2 / e for s, e in pairs), len(pairs) - 1))


def noise_of(made: Mechanism, count: int) -> NDArray[np.float64]:
    """Noise for so many releases, as it would be drawn for them, one a row."""
    return np.array(sampling.sample_bodies(made.measurement.groups, made.noises, count), dtype=float)


def epsilons_of(made: Mechanism) -> tuple[Fraction, ...]:
    """What every body of a release is really drawn with."""
    asked: list[Fraction] = []

    def nothing(body: Any, epsilon: Fraction, count: int, progress: Any = None) -> list[list[int]]:
        asked.append(epsilon)
        return [[0] * body.rank for _ in range(count)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "draws", nothing)
        sampling.sample(made.measurement, made.noises)
    return tuple(asked)
