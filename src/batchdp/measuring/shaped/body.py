"""The body K of a batch: the hull of ± its columns, whole numbers, and who is inside; nothing here is random or reads data.

Everything that a draw needs is decided here, from the columns alone: coordinates in which the body is round, half-spaces
that hold it, how much of the ball it fills. Floats search, and every decision is proven in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, lcm
from typing import Any

import numpy as np

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.measuring.shaped.ball import Box, cube_share
from batchdp.measuring.shaped.ellipsoid import Rounded, rounded
from batchdp.measuring.shaped.gauge import (
    WEIGHT_BITS,
    Basis,
    Cut,
    Found,
    cut,
    exact_norm,
    residual,
    searched,
)
from batchdp.measuring.shaped.integers import Integers, identity, independent_columns, solved, whole_matrix

MOST_RANK = 20
"""Of a body: beyond it no draw would end."""
MARGIN = 2.0**-24
"""By which floats must be outside a half-space, a unit of ‖y‖₁: 64 times what they can be off, see `ball.nearly`."""
CLOSE = 2.0**-30
"""Where a box is larger than this, it is cheaper to look at more bits than to decide exactly."""


@dataclass(frozen=True, eq=False)
class HalfSpaces:
    """Verified cuts, and the same in floats, in coordinates of the unit ball."""

    cuts: tuple[Cut, ...]
    normals: Dense
    """One a row, such that |normal · x| ≤ 1 in the body."""
    limits: Dense
    """What |normal · x| of a float point must exceed, so that the true point is outside."""
    bases: tuple[Basis, ...]

    @classmethod
    def of(cls, cuts: Sequence[Cut], bases: Sequence[Basis], bits: int) -> HalfSpaces:
        """The floats of verified cuts."""
        normals = np.array([[y / one.bound * 2.0**bits for y in one.normal] for one in cuts])
        return cls(tuple(cuts), normals, 1 + MARGIN * np.abs(normals).sum(axis=1), tuple(bases))


@dataclass(frozen=True, eq=False)
class Body:
    """K = the hull of ± the columns of `vertices`, whole numbers of full rank; ‖z‖_K = min Σ|λ| with Σ λ a = z.

    Args:
        vertices: k × c. Columns may be zero, or come twice.
    """

    vertices: Integers

    def __post_init__(self) -> None:
        given = whole_matrix(self.vertices)
        if given is None or not given.size:
            raise LatticeError("vertices must be a matrix of whole numbers, one column a vertex")
        if len(given) > MOST_RANK:
            raise LatticeError(f"vertices of {len(given)} rows: no body of rank above {MOST_RANK} can be drawn from")
        given.setflags(write=False)
        object.__setattr__(self, "vertices", given)
        if len(self._reference) < self.rank:
            raise LatticeError(
                f"vertices have rank {len(self._reference)}, below their {self.rank} rows; leave out dependent rows"
            )

    @property
    def rank(self) -> int:
        """k."""
        return len(self.vertices)

    @cached_property
    def _places(self) -> list[int]:
        """One column of every kind: none is zero, or another one with either sign."""
        found: dict[tuple[int, ...], int] = {}
        for j, column in enumerate(self.vertices.T.tolist()):
            first = next((x for x in column if x), 0)
            if first:
                found.setdefault(tuple(column if first > 0 else [-x for x in column]), j)
        return list(found.values())

    @cached_property
    def _columns(self) -> Integers:
        return self.vertices[:, self._places]

    @cached_property
    def _reference(self) -> list[int]:
        """Independent columns, as many as there are."""
        A = self._columns
        if A.shape[1] >= self.rank:
            from scipy.linalg import qr

            likely = qr(A.astype(np.float64), mode="r", pivoting=True)[1][: self.rank].tolist()
            if solved(A[:, likely], identity(self.rank))[1]:
                return list(likely)
        return independent_columns(A) if A.size else []

    @cached_property
    def rounded(self) -> Rounded:
        """Coordinates in which the smallest ellipsoid around the body is nearly the unit ball."""
        return rounded(self._columns)

    @cached_property
    def _floats(self) -> Dense:
        """The columns in coordinates of the unit ball."""
        return np.array([[x / 2**self.rounded.bits for x in row] for row in self.rounded.columns.tolist()])

    @cached_property
    def unit(self) -> int:
        """At least 2^bits Σ ‖e‖_K over the unit vectors: a box of radius r in the ball has a norm of at most r · unit.

        First by the inverse of independent columns, exactly; then by what the search finds, where the remainder is
        so small that the first bound will do for it.
        """
        b, bits = self.rounded.columns, self.rounded.bits
        inverse, d = solved(b[:, self._reference], identity(self.rank))
        crude = sum(abs(int(x)) for x in inverse.flat)
        unit, shift = Fraction(crude << bits, d), bits + WEIGHT_BITS
        better = Fraction(0)
        for i, e in enumerate(np.eye(self.rank)):
            found = searched(self._floats, e, np.array(self._reference))
            weights = [round(w) for w in (found.weights * 2.0**WEIGHT_BITS).tolist()]
            point = [int(i == row) << bits for row in range(self.rank)]
            missing = residual(b, weights, found.basis, point, 0)
            better += Fraction(sum(map(abs, weights)), 1 << WEIGHT_BITS) + Fraction(missing, 1 << shift) * unit
        return ceil(min(unit, better))

    def search(self, point: Dense, *, until: float | None = None) -> Found:
        """What floats say of a point of the ball, from the stored basis that is nearest to it."""
        known = self.half_spaces
        best = int(np.argmax(np.abs(known.normals @ point)))
        return searched(self._floats, point, known.bases[best], until=until)

    @cached_property
    def half_spaces(self) -> HalfSpaces:
        """Cuts in random directions: the facets that most points outside are behind."""
        return _half_spaces(self)

    def place(self, box: Box) -> bool | None:
        """Whether all of a box of the ball is inside the body, or outside; None where it may be in both.

        No float is believed: inside by weights, outside by a half-space, both verified; or by the exact norm.
        """
        bits, b = self.rounded.bits, self.rounded.columns
        found = self.search(np.array([x / 2**box.bits for x in box.centre]), until=1.0)
        if np.isfinite(found.weights).all():
            weights = [round(w) for w in (found.weights * 2.0**WEIGHT_BITS).tolist()]
            missing = residual(b, weights, found.basis, [x << bits for x in box.centre], box.bits)
            # Σ|λ| + (what is missing + radius) · unit ≤ 1, in units of 2^-(bits of all three).
            sums = sum(map(abs, weights)) << box.bits + bits
            if sums + (missing + (box.radius << WEIGHT_BITS + bits)) * self.unit <= 1 << box.bits + WEIGHT_BITS + bits:
                return True
        outer = cut(b, found.prices)
        if outer is not None and self._behind(outer, box):
            return False
        if box.radius / 2**box.bits * self.unit > CLOSE:
            return None
        norm = self._exact([x << bits for x in box.centre], found)[0] / (1 << box.bits)
        reach = Fraction(box.radius * self.unit, 1 << box.bits)
        return True if norm + reach <= 1 else False if norm - reach > 1 else None

    def _behind(self, outer: Cut, box: Box) -> bool:
        """Whether all of a box is behind a half-space."""
        distance = abs(sum(y * x for y, x in zip(outer.normal, box.centre, strict=True)))
        nearest = distance - box.radius * sum(map(abs, outer.normal))
        return nearest << self.rounded.bits > outer.bound << box.bits

    def _exact(self, point: Sequence[int], found: Found) -> tuple[Fraction, dict[int, Fraction]]:
        """The norm of a point and its weights, in coordinates of the ball, from the columns that floats found."""
        b = self.rounded.columns
        likely = found.basis.tolist()
        start = likely if solved(b[:, likely], identity(self.rank))[1] else self._reference
        return exact_norm(b, np.array(point, dtype=object), start)

    def _inside(self, point: Sequence[Any]) -> tuple[list[int], int]:
        """A point of fractions in the new coordinates: whole numbers and their divisor."""
        fractions = [Fraction(x) for x in point]
        if len(fractions) != self.rank:
            raise LatticeError(f"a point of {len(fractions)} coordinates in a body of rank {self.rank}")
        divisor = lcm(*(x.denominator for x in fractions))
        whole = np.array([int(x * divisor) for x in fractions], dtype=object)
        return [int(x) for x in self.rounded.change @ whole], divisor

    def _looked_up(self, point: Sequence[Any]) -> tuple[Fraction, dict[int, Fraction]]:
        whole, divisor = self._inside(point)
        scale = divisor << self.rounded.bits
        found = self.search(np.array([float(Fraction(x, scale)) for x in whole]))
        norm, weights = self._exact(whole, found)
        return norm / divisor, {self._places[j]: w / divisor for j, w in weights.items() if w}

    def norm(self, point: Sequence[Any]) -> Fraction:
        """‖point‖_K, exactly; for fractions or whole numbers in the coordinates of the vertices."""
        return self._looked_up(point)[0]

    def combination(self, point: Sequence[Any]) -> dict[int, Fraction]:
        """Weights of vertices, by column, that sum up to a point, and in absolute value to its norm, exactly."""
        return self._looked_up(point)[1]

    def contains(self, point: Sequence[Any]) -> bool:
        """Whether a point is in the body, which has its boundary; proven either way."""
        whole, divisor = self._inside(point)
        # In units of the ball, with an odd part of the divisor that no shift can take: a little box around the point.
        bits = 2 * WEIGHT_BITS + divisor.bit_length()
        shift = bits - self.rounded.bits
        centre = [(x << shift if shift >= 0 else x >> -shift) // divisor for x in whole]
        decided = self.place(Box(centre, 1, bits))
        return self.norm(point) <= 1 if decided is None else decided

    @cached_property
    def _simulated(self) -> tuple[float, float]:
        from batchdp.measuring.shaped.simulating import simulated_work

        return simulated_work(self)

    @property
    def acceptance(self) -> float:
        """How much of the enclosing ball the body fills, simulated."""
        return self._simulated[0]

    @property
    def proposals(self) -> float:
        """How many cells of the cube a draw will try, on average."""
        return 1 / (self.acceptance * cube_share(self.rank))

    @property
    def programs(self) -> float:
        """How many linear programs a draw will solve, on average."""
        return self._simulated[1]


def _half_spaces(body: Body) -> HalfSpaces:
    from batchdp.measuring.shaped.simulating import cuts

    return HalfSpaces.of(*cuts(body.rounded.columns, body._floats, np.array(body._reference)), body.rounded.bits)
