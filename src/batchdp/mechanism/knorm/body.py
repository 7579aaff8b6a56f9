"""The body K of a batch: the hull of ± its columns, and who is inside. Nothing here draws noise or sees data.

Everything that a draw needs is decided here, from the columns alone: coordinates in which the body is round,
half-spaces that hold it, how much of the ball it fills. Floats search, and every decision is proven in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.knorm.ball import Box, cube_share
from batchdp.mechanism.knorm.ellipsoid import Rounded, rounded
from batchdp.mechanism.knorm.gauge import WEIGHT_BITS, Cut, Found, cut, exact_norm, residual, searched
from batchdp.mechanism.knorm.integers import Integers, identity, independent_columns, solved, whole_matrix
from batchdp.mechanism.knorm.survey import Survey, surveyed

MOST_RANK = 20
"""Of a body: beyond it no draw would end."""
MOST_BITS = 256
"""Of an entry: floats search among the columns."""
DRAW, CELL, PROGRAM = 3e-3, 4e-8, 2e-4
"""Nominal seconds: of a draw by itself, of a cell a number, of a linear program a rank."""
NUDGE = 2.0**-36
CLOSE = 2.0**-30
"""Where a box is larger than this, it is cheaper to look at more bits than to decide exactly."""


@dataclass(frozen=True, eq=False)
class Body:
    """K = the hull of ± the columns of `vertices`, whole numbers of full rank; ‖z‖_K = min Σ|λ| with Σ λ a = z.

    Args:
        vertices: k × c. Columns may be zero, or come twice.
    """

    vertices: NDArray[Any]

    def __post_init__(self) -> None:
        given = whole_matrix(self.vertices)
        if given is None or not given.size:
            raise LatticeError("vertices must be a matrix of whole numbers, one column a vertex")
        if len(given) > MOST_RANK:
            raise LatticeError(f"vertices of {len(given)} rows: no body of rank above {MOST_RANK} can be drawn from")
        if any(abs(x) >> MOST_BITS for row in given.tolist() for x in row):
            raise LatticeError(f"vertices have entries of more than {MOST_BITS} bits; scale the queries down")
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
            weights = found.rounded_weights
            point = [int(i == row) << bits for row in range(self.rank)]
            missing = residual(b, weights, found.basis, point, 0)
            better += Fraction(sum(map(abs, weights)), 1 << WEIGHT_BITS) + Fraction(missing, 1 << shift) * unit
        return ceil(min(unit, better))

    @cached_property
    def survey(self) -> Survey:
        """Half-spaces that hold the body, verified, and how much of the ball it fills."""
        return surveyed(self.rounded.columns, self._floats, self.rounded.bits, np.array(self._reference))

    def search(self, point: Dense, *, until: float | None = None) -> Found:
        """What floats say of a point of the ball, or rather of one beside it: ties make a search go in circles.

        That costs nothing but a longer proof where the point is as near to the boundary.
        """
        beside = point + NUDGE * np.sin(np.arange(1.0, self.rank + 1))
        return searched(self._floats, beside, self.survey.nearest(beside), until=until)

    def place(self, box: Box) -> bool | None:
        """Whether all of a box of the ball is inside the body, or outside; None where it may be in both.

        No float is believed: inside by weights, outside by a half-space, both verified; or by the exact norm.
        """
        bits, b = self.rounded.bits, self.rounded.columns
        found = self.search(np.array([x / 2**box.bits for x in box.centre]), until=1.0)
        weights = found.rounded_weights
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
        basis = found.basis.tolist()
        start = basis if solved(b[:, basis], identity(self.rank))[1] else self._reference
        return exact_norm(b, np.array(point, dtype=object), start, found.weights.tolist())

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

    def contains(self, point: Sequence[Any], times: Fraction | int = 1) -> bool:
        """Whether a point is in `times` the body, which has its boundary; proven either way."""
        if times <= 0:
            return not any(point) and times == 0
        whole, divisor = self._inside([Fraction(x) / times for x in point])
        # A box of the ball that holds the point, which is on no lattice of bits where the divisor is odd.
        bits = 2 * WEIGHT_BITS + divisor.bit_length()
        centre = [(x << bits) // (divisor << self.rounded.bits) for x in whole]
        decided = self.place(Box(centre, 1, bits))
        return self.norm(point) <= times if decided is None else decided

    @property
    def proposals(self) -> float:
        """How many cells of the cube a draw will try, on average; simulated."""
        return 1 / (self.survey.share * cube_share(self.rank))

    @property
    def seconds(self) -> float:
        """What a draw will take, in nominal seconds: by prices, and by what was simulated."""
        return DRAW + self.seconds_together

    @property
    def seconds_together(self) -> float:
        """The same of each of many draws that are made together."""
        cells, programs = self.proposals, self.survey.programs
        return CELL * cells * self.rank * (1 + len(self.survey.cuts) / 40) + PROGRAM * programs * self.rank
