"""Noise in the shape of a body, drawn exactly: round(z) with z of density ∝ exp(−ε ‖z‖_K).

z = R U / ε with U uniform in K and R the sum of k + 1 exponential numbers. All randomness is bits of the operating
system, taken as they are needed. U is a cell of a cube that is refined until all of it becomes points inside the body,
or none; R and U are refined until all of z is rounded alike. So the number of bits that they start with changes how
long it takes, and nothing else. Nothing here sees data: how often a proposal is rejected tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from math import nan

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import PrivacyParameterError
from batchdp.linalg.threads import one_thread
from batchdp.mechanism.knorm.ball import START, Bits, Box, Gamma, box, in_no_disc, nearly
from batchdp.mechanism.knorm.body import Body
from batchdp.text import Progress

LARGEST_BLOCK = 1 << 14
"""Proposals that are looked at together."""
STAGES = (8, 32)
"""Half-spaces that are looked at before the others."""


@one_thread
def draws(
    body: Body, epsilon: Fraction, count: int, progress: Progress | None = None, *, _bits: Bits | None = None
) -> list[list[int]]:
    """Independent draws of round(z), exactly, for z of density ∝ exp(−epsilon ‖z‖_K); they share the work of proposals.

    Guarantee: y + a draw is epsilon-private between whole vectors y that differ by a point of the body. It sees no
    data, so it belongs before the charge: interrupted there, it has cost nothing. `Body.seconds` says what it takes.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, Fraction | int) or epsilon <= 0:
        raise PrivacyParameterError(f"epsilon={epsilon!r} must be a Fraction above 0, exactly what is charged")
    stream = Bits() if _bits is None else _bits
    found = islice(_points(body, stream, progress), count)
    return [_rounded(body, Fraction(epsilon), point, stream) for point in found]


class Point:
    """A point of the cube, of which some bits are known."""

    def __init__(self, cell: list[int], bits: int) -> None:
        self.cell, self.bits = cell, bits

    def refine(self, stream: Bits) -> None:
        """Twice as many bits of every number."""
        self.cell = [value << self.bits | stream.take(self.bits) for value in self.cell]
        self.bits *= 2


def _points(body: Body, stream: Bits, progress: Progress | None = None) -> Iterator[Point]:
    """Points of the cube that become points of the body, wherever in their cell they are."""
    for point in _proposals(body, stream, progress):
        if _accepted(body, point, stream):
            yield point


def _accepted(body: Body, point: Point, stream: Bits) -> bool:
    """Whether the point is inside the body; its cell is refined until that is the same for all of it."""
    while True:
        found = box(point.cell, point.bits)
        if found is False:
            return False
        inside = body.place(found) if isinstance(found, Box) else None
        if inside is not None:
            return inside
        point.refine(stream)


def _proposals(body: Body, stream: Bits, progress: Progress | None) -> Iterator[Point]:
    """Cells of the cube, except such as are outside for sure."""
    tried, k = 0, body.rank
    block = int(min(max(body.proposals, 8), LARGEST_BLOCK))
    while True:
        if progress is not None:
            progress(nan, f"drawing noise: {tried:,} tried, one of {body.proposals:,.0f} is taken")
        tried += block
        if stream.start == START:
            cells = np.frombuffer(stream.source(8 * k * block), dtype=np.uint64).reshape(block, k)
            yield from (Point(cell, START) for cell in cells[~surely_outside(body, cells)].tolist())
        else:
            yield from (Point([stream.take(stream.start) for _ in range(k)], stream.start) for _ in range(block))


def surely_outside(body: Body, cells: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Cells of 64 bits that floats, with all their errors, know to be in no disc or behind a verified half-space."""
    left = np.flatnonzero(~in_no_disc(cells))
    points, _, doubtful = nearly(cells[left])
    possible = np.zeros(len(cells), dtype=bool)
    possible[left[doubtful]] = True
    left, points = left[~doubtful], points[~doubtful]
    normals, limits, first = body.survey.normals, body.survey.limits, 0
    for last in (*STAGES, len(normals)):  # a few half-spaces leave little for all others
        behind = np.any(np.abs(points @ normals[first:last].T) > limits[first:last], axis=1)
        left, points, first = left[~behind], points[~behind], last
    possible[left] = True
    return ~possible


def _rounded(body: Body, epsilon: Fraction, point: Point, stream: Bits) -> list[int]:
    """R U / ε, rounded as soon as no boundary is in its interval."""
    S = body.rounded
    gamma = Gamma(body.rank + 1, stream)
    inverse = S.inverse
    sizes = np.abs(inverse).sum(axis=1)
    while True:
        found = box(point.cell, point.bits)
        if isinstance(found, Box):
            low, high = gamma.interval(stream, point.bits)
            middle = inverse @ np.array(found.centre, dtype=object)
            # z = up / down · (middle ± radius · sizes) · (low to high)
            up = epsilon.denominator << S.bits
            down = S.divisor * epsilon.numerator << found.bits + point.bits
            least = [(m - found.radius * s) for m, s in zip(middle, sizes, strict=True)]
            most = [(m + found.radius * s) for m, s in zip(middle, sizes, strict=True)]
            below = [_nearest(a * (high if a < 0 else low) * up, down) for a in least]
            if below == [_nearest(a * (low if a < 0 else high) * up, down) for a in most]:
                return below
        point.refine(stream)


def _nearest(top: int, bottom: int) -> int:
    """The whole number next to a fraction."""
    return (2 * top + bottom) // (2 * bottom)
