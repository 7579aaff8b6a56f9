"""What can be known of a body beforehand by simulation, in floats: for plans, never for a decision about a draw.

The generator has a seed of its own, so that a plan is the same every time. No noise comes from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from batchdp.linalg.matrix import Dense
from batchdp.measuring.shaped.gauge import Basis, Cut, cut, searched
from batchdp.measuring.shaped.integers import Integers

if TYPE_CHECKING:
    from batchdp.measuring.shaped.body import Body

SEED = 20240
MOST_CUTS = 400
PATIENCE = 60
"""Directions without a new facet, after which there are no more worth knowing."""
DIRECTIONS = 400
"""For the share of the ball that a body fills."""


def unit_directions(rank: int, count: int, seed: int) -> Dense:
    """Uniform on the sphere, one a row."""
    points = np.random.default_rng(seed).standard_normal((count, rank))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def cuts(columns: Integers, floats: Dense, start: Basis) -> tuple[list[Cut], list[Basis]]:
    """Facets in random directions, verified, and the columns that each rests on."""
    found: list[Cut] = []
    bases: list[Basis] = []
    normals = np.zeros((0, len(floats)))
    idle = 0
    for direction in unit_directions(len(floats), MOST_CUTS, SEED):
        basis = bases[int(np.argmax(np.abs(normals @ direction)))] if bases else start
        best = searched(floats, direction, basis)
        prices = best.prices * np.sign(best.prices[np.argmax(np.abs(best.prices))])
        idle += 1
        if not np.isclose(normals, prices, rtol=1e-9, atol=1e-9).all(axis=1).any():
            outer = cut(columns, prices)
            if outer is not None:
                found.append(outer)
                bases.append(best.basis)
                normals = np.vstack([normals, prices])
                idle = 0
        if idle > PATIENCE:
            break
    return found, bases


def directions(body: Body, count: int, seed: int = SEED) -> tuple[Dense, Dense]:
    """Points on the boundary of a body, one a column in the coordinates of its vertices, and weights of their directions.

    For U uniform in the body and f with f(t x) = t^d f(x): E f(U) ≈ k / (k + d) · Σ w f(points) / Σ w. The mean of the
    weights is the share of the enclosing ball.
    """
    spheres = unit_directions(body.rank, count, seed)
    norms = np.array([body.search(direction).high for direction in spheres])
    S = body.rounded
    back = np.array([[x / S.divisor for x in row] for row in S.inverse.tolist()]) * 2.0**S.bits
    return np.asarray(back @ (spheres / norms[:, None]).T), norms**-body.rank


def ball_volume(body: Body) -> float:
    """Of the enclosing ellipsoid, in the coordinates of the vertices; inf where floats do not reach."""
    k = body.rank
    S = body.rounded
    # det S⁻¹ = det(inverse) / divisor^k, and det S = divisor up to its sign, as Bareiss' elimination ends with it.
    with np.errstate(over="ignore"):
        from math import log

        return float(np.exp(k / 2 * np.log(np.pi) - gammaln(k / 2 + 1) + k * S.bits * np.log(2.0) - log(S.divisor)))


def simulated_work(body: Body) -> tuple[float, float]:
    """How much of the ball the body fills, and how many linear programs a draw takes that half-spaces do not spare."""
    from batchdp.measuring.shaped.ball import ERROR  # noqa: F401

    spheres = unit_directions(body.rank, DIRECTIONS, SEED + 1)
    norms = np.array([body.search(direction).high for direction in spheres])
    bounds = np.abs(spheres @ body.half_spaces.normals.T).max(axis=1)
    share = float(np.mean(norms**-body.rank))
    return share, float(np.mean(bounds**-body.rank)) / share
