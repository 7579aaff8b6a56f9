"""A look at a body from random directions: half-spaces that hold it, and how much of the ball it fills.

It is made for plans and for speed, in floats with a generator of its own, so that a plan is the same every time. No
noise comes from it, and of what it finds only cuts that are verified in whole numbers decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.mechanism.knorm.gauge import Basis, Cut, cut, searched
from batchdp.mechanism.knorm.integers import Integers

SEED = 20100
DIRECTIONS = 400
MARGIN = 2.0**-24
"""By which a float must be behind a cut, a unit of ‖y‖₁: 64 times what it can be off, see `ball.nearly`."""


@dataclass(frozen=True, eq=False)
class Survey:
    """Verified cuts, the same in floats in coordinates of the unit ball, and what was seen."""

    cuts: tuple[Cut, ...]
    bases: tuple[Basis, ...]
    """For every cut the columns that it rests on: where a search starts."""
    normals: Dense
    """One a row, such that |normal · x| ≤ 1 in the body."""
    share: float
    """Of the ball, that the body fills: the mean of ‖d‖^-k over directions d."""
    programs: float
    """Points of the ball that no cut rejects, for one that is inside; at least, because all cuts have seen more."""

    @cached_property
    def limits(self) -> Dense:
        """What |normal · x| of a float must exceed.

        A float point is off by at most 2⁻³⁰ in every coordinate, which moves the product by 2⁻³⁰ ‖y‖₁; rounding y and
        the product itself, in whatever order, by less than 2⁻⁴⁴ ‖y‖₁ up to rank 20.
        """
        return np.asarray(1 + MARGIN * np.abs(self.normals).sum(axis=1))

    def nearest(self, point: Dense) -> Basis:
        """The basis of the cut that says most of a point."""
        return self.bases[int(np.argmax(np.abs(self.normals @ point)))]


def in_floats(cuts: Sequence[Cut], bits: int) -> Dense:
    """Cuts of columns of length 2^bits as normals in coordinates of the unit ball."""
    return np.array([[(y << bits) / one.bound for y in one.normal] for one in cuts])


@one_thread
def surveyed(columns: Integers, floats: Dense, bits: int, start: Basis) -> Survey:
    """From `DIRECTIONS` random directions: the facet that each goes through, verified."""
    k = len(floats)
    cuts: list[Cut] = []
    bases: list[Basis] = []
    normals = np.zeros((0, k))
    norms, bounds = np.zeros(DIRECTIONS), np.zeros(DIRECTIONS)
    for i, direction in enumerate(np.random.default_rng(SEED).standard_normal((DIRECTIONS, k))):
        direction /= np.linalg.norm(direction)
        values = np.abs(normals @ direction)
        found = searched(floats, direction, bases[int(values.argmax())] if bases else start)
        norms[i], bounds[i] = found.high, values.max(initial=0.0)
        new = not bases or bounds[i] < found.high * (1 - 1e-6)
        made = cut(columns, found.prices) if new else None
        if made is not None:
            cuts.append(made)
            bases.append(found.basis)
            normals = np.vstack([normals, in_floats([made], bits)])
    half = DIRECTIONS // 2
    share = float(np.mean(norms**-k))
    programs = float(np.mean(bounds[half:] ** -k) / np.mean(norms[half:] ** -k))
    return Survey(tuple(cuts), tuple(bases), normals, share, max(programs, 1.0))
