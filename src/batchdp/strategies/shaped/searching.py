"""Which measurements share a body: one body for all where the rank allows it, else parts of the batch.

With E_g the error of group g at the whole ε, shares s_g ∝ E_g^⅓ leave (Σ E_g^⅓)³ in all. Parts are tried in the order
of the singular values, with borders that move as long as that helps, and as queries in the order in which they are
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, dense, row_squares
from batchdp.linalg.threads import one_thread
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Group, Shape
from batchdp.strategies.shaped.limits import ShapeLimits
from batchdp.strategies.shaped.rounding import rounded, sampled
from batchdp.workloads.pair import Pair
from batchdp.workloads.reduction import Reduction, reduce
from batchdp.workloads.workload import MatrixWorkload

METHOD = "shaped"
PILOT = 400
"""Directions in which a candidate is looked at; its error is then right to a few percent."""
PARTS = 10_000
"""Shares of ε are so many parts of it."""
INDEPENDENT = 0.1
"""What must be left of a query, relative, beside those before it, to be one of those that stand for the batch."""

MOST_SKEWED = 2.0**10
"""How many times longer than wide a body may be in the queries' own coordinates."""

Price = Callable[[Dense], float]
"""From what is measured by a group to the seconds that a draw of its noise takes."""
Sizes = tuple[int, ...]
Border = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """X with R = N X: rows of X that follow each other may share a body."""

    measure: Dense
    """X, one coordinate a row and one class of cells a column."""
    reconstruct: Dense
    """N."""
    exact: bool
    """Whether X is made of the queries themselves: integers stay integers, and are measured without bias."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Measurements that would share a body."""

    measure: Dense
    reconstruct: Dense
    """What of R they are read as."""
    round: Dense
    """The same measurements in coordinates in which the body is nearly round."""
    back: Dense
    """From those coordinates to the measurements' own."""
    error: float
    """At the whole ε = 1, by a few directions."""

    def sample(self, directions: int, rng: np.random.Generator) -> tuple[Dense, Dense]:
        """Points of the body's boundary, and how much of it lies in their directions."""
        points, weights = sampled(self.round, directions, rng)
        return np.asarray(points @ self.back.T), weights


def shaped(workload: MatrixWorkload, limits: ShapeLimits, *, seed: int = 0, price: Price | None = None) -> PairStrategy:
    """The strategy with noise in the shape of the batch that has the least simulated error, within the limits.

    A StrategyError says why there is none. Nothing here is random but for the seed.
    """
    if len(workload.blocks) > 1:
        raise StrategyError("noise is shaped for one block of cells, and the batch has several")
    if workload.ends:
        raise StrategyError("noise is shaped for counts of cells, and the batch sums amounts between them")
    reduction = reduce(workload)
    asked = row_squares(workload.matrix) > 0  # of a query of nothing U has rounding errors, which would be its answer
    reduction = replace(reduction, rows=dense(reduction.rows) * asked[:, None])
    _check(reduction, limits)
    return _search(reduction, limits, seed, price)


def _check(reduction: Reduction, limits: ShapeLimits) -> None:
    k = reduction.rank
    if k < 2:
        raise StrategyError(f"a batch of rank {k} has no shape but Laplace noise")
    if k > limits.rank * limits.groups:
        raise StrategyError(f"rank {k} is above {limits.groups} groups of {limits.rank}; raise the limits, or ask less")
    touched = reduction.scales != 0
    columns = len(np.unique(np.stack([reduction.classes, np.abs(reduction.scales)])[:, touched], axis=1).T)
    if columns > limits.columns:
        raise StrategyError(f"{columns} different columns are more than {limits.columns}; raise the limit, or ask less")


@one_thread
def _search(reduction: Reduction, limits: ShapeLimits, seed: int, price: Price | None) -> PairStrategy:
    """The best groups of all that are tried; smaller ones where a draw of these would take too long."""
    ways = [_parts_of(turned, seed) for turned in _coordinates(reduction, limits)]
    most, seconds = min(limits.rank, reduction.rank), np.inf
    while most >= 1 and (groups := ceil(reduction.rank / most)) <= limits.groups:
        sizes = _even(reduction.rank, groups)
        parts = min((_moved(sizes, most, part) for part in ways), key=_together)
        seconds = 0.0 if price is None else sum(price(part.measure) for part in parts)
        if seconds <= limits.seconds:
            return _strategy(reduction, parts, limits, seed, seconds)
        most = max(len(part.measure) for part in parts) - 1
    raise StrategyError(f"a draw would take {seconds:.3g} seconds, more than {limits.seconds:g}; raise the limit")


def _together(parts: list[_Part]) -> float:
    return float(sum(np.cbrt(part.error) for part in parts) ** 3)


def _coordinates(reduction: Reduction, limits: ShapeLimits) -> list[_Coordinates]:
    """Along the singular values, and the queries; for a single body they do not matter, so the exact ones will do."""
    spectrum, queries = _Coordinates(reduction.reduced, np.eye(reduction.rank), exact=False), _by_queries(reduction)
    if queries is None:
        return [spectrum]
    return [queries] if reduction.rank <= limits.rank else [spectrum, queries]


def _parts_of(turned: _Coordinates, seed: int) -> Callable[[Border], _Part]:
    """From the first and the last of consecutive coordinates to their part, which is looked at once."""

    @cache
    def part(border: Border) -> _Part:
        own = slice(*border)
        return _part(turned.measure[own], turned.reconstruct[:, own], seed, exact=turned.exact)

    return part


def _part(X: Dense, N: Dense, seed: int, *, exact: bool) -> _Part:
    L, C = rounded(X)
    points, weights = sampled(L, PILOT, np.random.default_rng(seed))
    error = _error(points, weights, N @ C)
    if exact and np.linalg.cond(C) <= MOST_SKEWED:
        size = np.ldexp(1.0, -int(np.frexp(np.abs(X).max())[1]))  # no group may vanish beside another on the lattice
        return _Part(X * size, N / size, L, C * size, error)
    return _Part(L, np.asarray(N @ C), L, np.eye(len(L)), error)


def _error(points: Dense, weights: Dense, reconstruct: Dense) -> float:
    k = points.shape[1]
    return float(k * (k + 1) * (weights @ np.square(points @ reconstruct.T).sum(axis=1)))


def _even(k: int, groups: int) -> Sizes:
    return tuple(k // groups + (g < k % groups) for g in range(groups))


def _moved(sizes: Sizes, most: int, part: Callable[[Border], _Part]) -> list[_Part]:
    """The parts of these sizes, with borders moved by one while that helps."""

    def parts(sizes: Sizes) -> list[_Part]:
        ends = np.cumsum(sizes).tolist()
        return [part((end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    best = parts(sizes)
    while True:
        moves = [_with_moved(sizes, border, step) for border in range(len(sizes) - 1) for step in (1, -1)]
        tried = [(_together(parts(one)), one) for one in moves if min(one) >= 1 and max(one) <= most]
        if not tried or min(tried)[0] >= _together(best):
            return best
        sizes = min(tried)[1]
        best = parts(sizes)


def _with_moved(sizes: Sizes, border: int, step: int) -> Sizes:
    moved = list(sizes)
    moved[border] += step
    moved[border + 1] -= step
    return tuple(moved)


def _by_queries(reduction: Reduction) -> _Coordinates | None:
    """The first queries that are independent enough to stand for all; None where there are too few."""
    U = dense(reduction.rows)
    chosen: list[int] = []
    Q = np.zeros((0, U.shape[1]))
    for i, row in enumerate(U):
        rest = row - (row @ Q.T) @ Q
        length = float(np.linalg.norm(rest))
        if length > INDEPENDENT * float(np.linalg.norm(row)) > 0:
            chosen.append(i)
            Q = np.vstack([Q, rest / length])
            if len(chosen) == U.shape[1]:
                break
    else:
        return None
    weights = reduction.workload.weights
    N = np.linalg.inv(U[chosen]) * (1.0 if weights is None else np.sqrt(weights[chosen]))
    return _Coordinates(reduction.merged_workload()[chosen], np.asarray(N), exact=True)


def _strategy(reduction: Reduction, parts: list[_Part], limits: ShapeLimits, seed: int, seconds: float) -> PairStrategy:
    """With fresh directions, more of them: a candidate that was chosen for its error is worse than it seemed."""
    rng = np.random.default_rng([seed, 1])
    samples = [part.sample(limits.directions, rng) for part in parts]
    errors = [_error(*sample, part.reconstruct) for sample, part in zip(samples, parts, strict=True)]
    groups = [Group(share, *sample) for share, sample in zip(_shares(errors), samples, strict=True)]
    pair = Pair(np.vstack([part.measure for part in parts]), np.hstack([part.reconstruct for part in parts]))
    return PairStrategy.lifted(reduction, pair, method=METHOD, shape=Shape(tuple(groups), seconds))


def _shares(errors: list[float]) -> list[Fraction]:
    """∝ E^⅓, in whole parts of ε that are 1 in all."""
    roots = np.cbrt(errors)
    parts = [max(1, int(part)) for part in np.floor(PARTS * roots / roots.sum())]
    parts[int(np.argmax(parts))] += PARTS - sum(parts)
    return [Fraction(part, PARTS) for part in parts]
