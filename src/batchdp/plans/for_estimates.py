"""Weights of tables for plans whose answers will be denoised: chosen by simulation on invented populations.

Denoised tables lean on their margins, and large tables say little beyond them. So one-way tables are worth more than
their own errors, and large pairs less: weights are `one_way` on single columns and (n_i n_j)^−by_size, with mean 1, on
pairs. Both are tried on invented populations of the domain's sizes, mixtures of classes with skewed columns, about so
many records: margins on the simplex, pairs shrunk toward the product of theirs with the best strength. That is the
plainest denoiser; the better ones of a release rank plans as it does. Nothing here looks at data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
from scipy.special import wrightomega

from batchdp.linalg.matrix import Dense

ONE_WAY = (0.01, 1.0, 10.0, 100.0, 1000.0, 5000.0)
BY_SIZE = (0.0, 0.4, 0.75, 1.1, 1.5)
STRENGTHS = (0.03, 0.3, 1.0, 3.0, 30.0)
"""λ of the shrinking; the best for every pair is taken."""
POPULATIONS = 2
CLASSES = 12
MOST_CELLS = 150_000
"""Of the pairs that are simulated for every population."""
LEAST = 1e-9


@dataclass(frozen=True)
class EstimateWeights:
    """How much tables count in a plan for estimates.

    Args:
        one_way: of tables of one column.
        by_size: how much less large tables count, as a power of their cells.
        distance: the L1 distance over the number of records that simulations had, the mean over pairs.
        even: the same with weights of 1.
    """

    one_way: float
    by_size: float
    distance: float
    even: float

    def weights(self, sizes: Sequence[int], tables: Sequence[Sequence[int]]) -> Dense:
        """Of tables, by their columns: one-way tables as said, the others by their cells, with mean 1."""
        cells = np.array([prod(sizes[i] for i in own) for own in tables], dtype=np.float64)
        large = np.array([len(own) > 1 for own in tables])
        found = np.power(cells, -self.by_size)
        return np.where(large, found / (found[large].mean() if large.any() else 1.0), self.one_way)


def weights_for_estimates(sizes: Sequence[int], rho: float, rows: int, *, seed: int = 0) -> EstimateWeights:
    """The weights with the least simulated distance for pairs of these columns.

    Args:
        sizes: how many values every column has.
        rho: the budget, in zCDP.
        rows: roughly how many records there will be.
        seed: of the invented populations and their noise.
    """
    pairs = _chosen_pairs(sizes, np.random.default_rng(seed))
    if not pairs:
        return EstimateWeights(1.0, 0.0, np.nan, np.nan)
    found = {}
    for one_way, by_size in [(0.0, 0.0), *product(ONE_WAY, BY_SIZE)]:
        t = _variances(sizes, rho, one_way, by_size)
        distances = []
        for population in range(POPULATIONS):
            rng = np.random.default_rng([seed, population])  # the same ones for all weights
            distances.append(np.mean(list(_distances(_invent(sizes, rows, rng), pairs, t, rows, rng))))
        found[one_way, by_size] = float(np.mean(distances))
    even = found.pop((0.0, 0.0))
    best = min(found, key=found.__getitem__)
    return EstimateWeights(*best, found[best], even)


def _chosen_pairs(sizes: Sequence[int], rng: np.random.Generator) -> list[tuple[int, int]]:
    """All pairs, or some where they have very many cells."""
    told = [i for i, n in enumerate(sizes) if n > 1]
    pairs = list(combinations(told, 2))
    cells = np.cumsum([sizes[i] * sizes[j] for i, j in pairs])
    if len(pairs) == 0 or cells[-1] <= MOST_CELLS:
        return pairs
    order = rng.permutation(len(pairs))
    kept = np.cumsum([sizes[pairs[k][0]] * sizes[pairs[k][1]] for k in order]) <= MOST_CELLS
    return [pairs[k] for k in order[kept]] or [min(pairs, key=lambda own: sizes[own[0]] * sizes[own[1]])]


def _variances(sizes: Sequence[int], rho: float, one_way: float, by_size: float) -> dict[tuple[int, ...], float]:
    """t of the total, of every column and of every pair, by the best plan for these weights."""
    told = [i for i, n in enumerate(sizes) if n > 1]
    pairs = list(combinations(told, 2))
    weight = {(i, j): float(sizes[i] * sizes[j]) ** -by_size for i, j in pairs}
    mean = sum(weight.values()) / len(weight)
    asked: dict[tuple[int, ...], float] = {(): 0.0, **{(i,): one_way for i in told}}
    for (i, j), own in weight.items():
        own = own / mean
        asked[i, j] = own
        asked[i,] += own / sizes[j]
        asked[j,] += own / sizes[i]
        asked[()] += own / (sizes[i] * sizes[j])
    for i in told:
        asked[()] += one_way / sizes[i]
    freedom = {C: prod(1 - 1 / sizes[i] for i in C) for C in asked}
    roots = {C: (v * prod(sizes[i] - 1 for i in C) * freedom[C]) ** 0.5 for C, v in asked.items()}
    total = sum(roots.values())
    return {C: freedom[C] * total / roots[C] / (2 * rho) for C in asked}


def _invent(sizes: Sequence[int], rows: int, rng: np.random.Generator) -> tuple[Dense, list[Dense]]:
    """Shares of classes, and of every column its values within each: value × class."""
    columns = []
    for n in sizes:
        base = np.arange(1, n + 1.0) ** -rng.uniform(0.3, 2.0)
        base = rng.permutation(base) if rng.random() < 0.5 else base
        own = np.maximum(base / base.sum() * n * rng.uniform(0.3, 3.0), 1e-3)
        columns.append(rng.dirichlet(own, size=CLASSES).T)
    return rng.dirichlet(np.ones(CLASSES)), columns


def _distances(
    population: tuple[Dense, list[Dense]],
    pairs: Sequence[tuple[int, int]],
    t: dict[tuple[int, ...], float],
    rows: int,
    rng: np.random.Generator,
) -> Iterator[float]:
    """The L1 distance of every denoised pair to the true one, over the number of records."""
    shares, within = population
    margins = {}
    for i in sorted({i for own in pairs for i in own}):
        noise = rng.standard_normal(len(within[i])) * t[i,] ** 0.5
        margins[i] = _simplex(rows * within[i] @ shares + noise - noise.mean(), rows)
    for i, j in pairs:
        truth = rng.poisson(rows * (within[i] * shares) @ within[j].T).astype(np.float64)
        noise = rng.standard_normal(truth.shape) * t[i, j] ** 0.5
        noise = noise - noise.mean(axis=0) - noise.mean(axis=1, keepdims=True) + noise.mean()
        own = truth - truth.mean(axis=0) - truth.mean(axis=1, keepdims=True) + truth.mean()
        a, b = margins[i][:, None], margins[j][None, :]
        y = own + noise + a / b.size + b / a.size - rows / truth.size
        target = np.maximum(a * b / rows, LEAST * rows / truth.size)
        yield min(float(np.abs(x - truth).sum()) / rows for x in (target, *_shrunk(y, target, t[i, j] ** 0.5, rows)))


def _shrunk(y: Dense, target: Dense, s: float, rows: int) -> Iterator[Dense]:
    """x with x − y + c log(x/P) = 0 for every strength, scaled to the total."""
    for strength in STRENGTHS:
        c = strength * s
        x = c * wrightomega(np.maximum(y / c + np.log(target / c), -700.0))
        yield x * (rows / max(float(x.sum()), 1e-300))


def _simplex(values: Dense, total: float) -> Dense:
    """The closest values that are not negative and have this total."""
    falling = np.sort(values)[::-1]
    lowered = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - lowered[np.flatnonzero(falling > lowered)[-1]], 0.0))
