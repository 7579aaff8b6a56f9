"""Whether what a file says of shaped noise can be true: standard errors and intervals follow from its sample alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.linalg import eigvalsh

from batchdp.errors import StrategyError
from batchdp.linalg.gauge import gauges
from batchdp.linalg.matrix import Dense
from batchdp.strategies.shape import Group, Shape
from batchdp.strategies.shaped.rounding import rounded, sampled

LOOKED = 16
"""Points of a sample that are compared with the body."""
OFF = 1e-4
"""How far the norm of such a point may be from 1: columns of a lattice of 20 bits are not those that were sampled."""
DIRECTIONS = 1000
TRIES = 3
"""Before a sample is refused: that of a thin body may be off by chance."""
MEAN, LARGEST = (0.67, 1.5), 6.0
"""Variances of a new sample over those of the one in the file: on average, and in the worst direction."""


def check_sample(shape: Shape, columns: Iterable[Dense]) -> None:
    """Refuse a sample that is not of the hulls of ± the columns of the groups.

    Places and directions are drawn afresh, so that nobody can prepare a file for them.
    """
    for group, own in zip(shape.groups, columns, strict=True):
        rng = np.random.default_rng()
        places = rng.integers(len(group.points), size=LOOKED)
        on_boundary = np.allclose(gauges(own, group.points[places]), 1.0, atol=OFF)
        if not on_boundary or not any(_alike(group, own, rng) for _ in range(TRIES)):
            raise StrategyError("shape: its sample is not of the body that it says")


def _alike(group: Group, columns: Dense, rng: np.random.Generator) -> bool:
    """Whether a new sample has about the same variances."""
    L, C = rounded(columns[:, np.any(columns, axis=0)])
    points, weights = sampled(L, DIRECTIONS, rng)
    points = points @ C.T
    said, seen = ((p.T * w) @ p for p, w in ((group.points, group.weights), (points, weights)))
    try:
        ratios = eigvalsh(seen, said)
    except np.linalg.LinAlgError:  # no variance at all in some direction
        return False
    return bool(MEAN[0] < ratios.mean() < MEAN[1] and ratios.max() < LARGEST)
