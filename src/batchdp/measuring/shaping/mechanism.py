"""Shaped noise on integer measurements, refused unless every column is inside its bodies, in whole numbers.

One person moves Q x by at most `factor` columns. Group g of a column lies in the body K_g, so in the norm
Σ share_g ‖z_g‖_{K_g} a person moves it by at most factor · Σ share ≤ factor, and noise of a density that falls with
exp(−(ε / factor) · norm) is ε-private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np

from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.measuring.mechanism import Mechanism
from batchdp.measuring.shaped.body import Body
from batchdp.measuring.shaped.drawing import draws
from batchdp.measuring.shaping.lattice import ShapedLattice
from batchdp.privacy import LAPLACE, Budget
from batchdp.progress import Progress

LARGEST_SCALE = 2**100
"""Noise beyond this protects nothing that anybody could read."""


@dataclass(frozen=True)
class ShapedMechanism(Mechanism):
    """Adds noise in the shape of its bodies; `scale` and `sensitivity` are in units of the bodies."""

    bodies: tuple[Body, ...]
    epsilons: tuple[Fraction, ...]
    """Of every body: its share of ε, divided by how many columns one person can have."""

    @property
    def is_slow(self) -> bool:
        """A draw may take seconds."""
        return True

    def ready(self, progress: Progress | None = None) -> Callable[[Sequence[int]], list[int]]:
        """Noise drawn now, to be added once: it sees no data, so whoever interrupts it has spent nothing."""
        drawn = self.draws(1, progress)
        # Popped, because noise that was added twice would give away the difference.
        return lambda measured: [y + z for y, z in zip(measured, drawn.pop(), strict=True)]

    def draws(self, count: int, progress: Progress | None = None) -> list[list[int]]:
        """Noise for so many releases."""
        groups = [draws(body, own, count, progress) for body, own in zip(self.bodies, self.epsilons, strict=True)]
        return [list(chain.from_iterable(parts)) for parts in zip(*groups, strict=True)]


def shaped_mechanism(lattice: ShapedLattice, factor: int, budget: float) -> ShapedMechanism:
    """The noise for people of at most `factor` columns.

    Guarantee: `draw` is ε-private, ε = `budget`, between Q x and Q x' that differ by at most `factor` columns of Q.
    """
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise PrivacyParameterError(f"factor={factor!r} must be a whole number of at least 1")
    epsilon = Budget(LAPLACE, budget).certain
    shares = [group.share for group in lattice.shape.groups]
    if sum(shares) > 1:
        raise LatticeError(f"the shares of ε add up to {sum(shares)}, more than 1")
    if (outside := columns_outside(lattice, lattice.bodies)) is not None:
        raise LatticeError(f"column {outside} of the measurements is outside of its body")
    if factor / epsilon > LARGEST_SCALE:
        raise PrivacyParameterError(
            f"epsilon={budget!r} asks for noise of more than {float(LARGEST_SCALE):.0e} bodies; raise the budget"
        )
    scale = float(factor / epsilon)
    if Fraction(scale) * epsilon < factor:
        scale = math.nextafter(scale, math.inf)

    def draw(measured: Sequence[int]) -> list[int]:
        return made.ready()(measured)

    made = ShapedMechanism(
        lattice.privacy, scale, factor, budget, float(epsilon), draw, lattice.bodies,
        tuple(epsilon * share / factor for share in shares),
    )  # fmt: skip
    return made


def columns_outside(lattice: ShapedLattice, bodies: Iterable[Body]) -> list[int] | None:
    """A column of Q, or the part of it that a group has, that is not inside its body; None if all are. Exact."""
    for (own, _), body in zip(lattice.shape.parts, bodies, strict=True):
        vertices = set(map(tuple, body.vertices.T.tolist()))
        rows = np.ascontiguousarray(lattice.integers[own].T.toarray().astype(np.int64))
        for raw in {row.tobytes() for row in rows}:
            column = tuple(np.frombuffer(raw, dtype=np.int64).tolist())
            opposite = tuple(-q for q in column)
            if column in vertices or opposite in vertices or not any(column):
                continue
            if not body.contains(column):
                return list(column)
    return None
