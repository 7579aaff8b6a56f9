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
from scipy.linalg import LinAlgError, qr

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.mechanism.knorm.ball import Box, cube_share
from batchdp.mechanism.knorm.gauge import (
    WEIGHT_BITS,
    Basis,
    Cut,
    Found,
    Integers,
    cut,
    exact_norm,
    independent_columns,
    residual,
    searched,
    solved,
    whole_matrix,
)
from batchdp.strategies.shape import rounded as nearly_round

MOST_RANK = 20
"""Of a body: beyond it no draw would end."""
MOST_BITS = 256
"""Of an entry: floats search among the columns."""
DRAW, CELL, PROGRAM = 3e-3, 5e-8, 2e-4
"""Nominal seconds: of a draw by itself, of a cell a number, of a linear program a rank."""
NUDGE = 2.0**-36
CLOSE = 2.0**-30
"""Where a box is larger than this, it is cheaper to look at more bits than to decide exactly."""
FINE = 22
"""Bits by which the new coordinates are finer than the columns."""
SEED = 20100
DIRECTIONS = 400
MARGIN = 2.0**-24
"""By which a float must be behind a cut, a unit of ‖y‖₁: 64 times what it can be off, see `ball.nearly`."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """S and what it does to the columns: b = S a has length 2^bits at most, for every one."""

    change: Integers
    """S, k × k, invertible."""
    inverse: Integers
    """S⁻¹ · `divisor`."""
    divisor: int
    columns: Integers
    """b = S a."""
    bits: int


def rounded(columns: Integers) -> Rounded:
    """Coordinates in which the smallest ellipsoid around the columns is nearly the unit ball.

    Floats propose, integers verify: ‖b‖² ≤ 4^bits for every column, and S has an inverse. So the ball that is used
    holds every column, whatever the floats found; only the share of points that are accepted depends on it.
    """
    k = len(columns)
    largest = max(abs(int(x)) for x in columns.flat)
    bits = largest.bit_length() + k.bit_length() + FINE
    try:
        _, back = nearly_round(columns.astype(np.float64) / 2.0 ** largest.bit_length())
        floats = np.linalg.inv(back) / 2.0 ** largest.bit_length()
    except (LinAlgError, OverflowError, FloatingPointError):
        floats = np.full((k, k), np.nan)
    for shrink in (2.0**-20, 2.0**-10, 2.0**-5, 0.5, 0.75):
        if not np.isfinite(floats).all():
            break
        S = np.array([[round(x * (1 - shrink)) for x in row] for row in np.ldexp(floats, bits).tolist()], dtype=object)
        b = S @ columns
        inverse, divisor = solved(S, np.eye(k, dtype=object))
        if divisor and max((b * b).sum(axis=0)) <= 4**bits:
            return Rounded(S, inverse, divisor, b, bits)
    raise LatticeError(
        "vertices=… are of so different size that no ellipsoid around them can be computed; scale the queries alike"
    )


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


@one_thread
def surveyed(columns: Integers, floats: Dense, bits: int, start: Basis) -> Survey:
    """From `DIRECTIONS` random directions: the facet that each goes through, verified.

    It is made for plans and for speed, in floats with a generator of its own, so that a plan is the same every time. No
    noise comes from it, and of what it finds only cuts that are verified in whole numbers decide anything.
    """
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
            normals = np.vstack([normals, [(y << bits) / made.bound for y in made.normal]])
    half = DIRECTIONS // 2
    share = float(np.mean(norms**-k))
    programs = float(np.mean(bounds[half:] ** -k) / np.mean(norms[half:] ** -k))
    return Survey(tuple(cuts), tuple(bases), normals, share, max(programs, 1.0))


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
            raise LatticeError("vertices must be a matrix of whole numbers, one column per vertex")
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
        """The dimension k of the space."""
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
            likely = qr(A.astype(np.float64), mode="r", pivoting=True)[1][: self.rank].tolist()
            if solved(A[:, likely], np.eye(self.rank, dtype=object))[1]:
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
        inverse, d = solved(b[:, self._reference], np.eye(self.rank, dtype=object))
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
        start = basis if solved(b[:, basis], np.eye(self.rank, dtype=object))[1] else self._reference
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
        return CELL * cells * self.rank + PROGRAM * programs * self.rank
