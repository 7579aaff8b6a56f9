"""Derived answers with their intervals, from the answers that they are computed from and the joint law of the noise.

Every figure here is a function of what was released, so it costs no privacy. Not a number stands for what is not
determined, because the interval of a denominator, or of the size of a group, holds 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.linalg.matrix import Dense, Plain
from batchdp.mechanism.law import NoiseLaw, bounded_widths, checked_confidence
from batchdp.privacy import GAUSSIAN
from batchdp.queries.expressions import Affine, Asked, Combination, Crossing, Moments
from batchdp.queries.intervals import combined_intervals, quantile

AT_ONCE = 256
"""Expressions whose noise is looked at together."""
MOST_WEIGHTS = 20_000_000
"""Of sums on measurements that are held at a time."""
MANY = 1_000
"""Weights of a sum beyond which equal ones are taken together."""
ALIKE = 1e-12
"""Of the largest weight: what is nearer is equal."""


class Joint(Protocol):
    """The noise in linear answers, together: a reader of measurements, or the law of a matrix."""

    @property
    def shape_text(self) -> str:
        """Of the noise; nothing where it is independent on every measurement."""

    def rows(self, numbers: Sequence[int] | NDArray[np.int64]) -> sparse.csr_array:
        """The weights of some answers on draws of scale 1."""

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Of every answer that was asked for: its value, standard error and interval; not numbers where not determined.

    Quantiles have an interval and no standard error.
    """

    values: Dense
    standard_errors: Dense
    low: Dense
    high: Dense


Packed = dict[tuple[Affine[int], ...], tuple[Dense, Dense]]
"""Of sums that are looked at together: their weights on every kind of draw, and how many draws are of each kind."""


def estimates(
    asked: Sequence[Asked[int]], values: Dense, law: Joint, confidence: float, packed: Packed | None = None
) -> Estimates:
    """All that was asked for, from the answers to the queries and the law of the noise in them.

    Whoever asks again for other values, with the same law, gives the same `packed`, and nothing is found twice.
    """
    checked_confidence(confidence)
    found = np.full((4, len(asked)), np.nan)
    plain = [i for i, one in enumerate(asked) if isinstance(one.of, int)]
    own = [one.of for one in asked if isinstance(one.of, int)]
    part = law.law(law.rows(own))
    half = part.half_widths(confidence)
    found[:, plain] = values[own], part.standard_errors, values[own] - half, values[own] + half
    noise = _Noise(law, confidence, packed)
    by_terms: dict[int, list[int]] = {}
    for i, one in enumerate(asked):
        if isinstance(one.of, Combination):
            by_terms.setdefault(len(_sides(one.of)), []).append(i)
        elif isinstance(one.of, Crossing):
            found[:, i] = _crossed(one.of, values, noise)
        elif isinstance(one.of, Moments):
            found[:, i] = _moment(one.of, values, noise)
    for places in by_terms.values():
        for start in range(0, len(places), AT_ONCE):
            some = places[start : start + AT_ONCE]
            found[:, some] = _combined([asked[i].of for i in some], values, noise)  # type: ignore[misc]
    return Estimates(*found)


def evaluated(asked: Sequence[Asked[int]], values: Dense) -> Dense:
    """What was asked for, from answers that are taken for true; not a number for a division by 0 or an empty group."""
    return np.array([_value(one.of, values) for one in asked], dtype=np.float64)


def _value(of: int | Combination[int] | Crossing[int] | Moments[int], values: Dense) -> float:
    if isinstance(of, Combination):
        below = [_of(ratio.denominator, values) for ratio in of.ratios]
        if 0.0 in below:
            return math.nan
        ratios = (_of(ratio.numerator, values) / D for ratio, D in zip(of.ratios, below, strict=True))
        return _of(of.plain, values) + sum(ratios)
    if isinstance(of, Crossing):
        totals = _totals(of, values)
        found = quantile(totals, of.edges, of.share, np.zeros(len(totals)), margin_of_total=0.0)
        return math.nan if found is None else _snapped(of, found.value, round)
    if isinstance(of, Moments):
        numbers = [float(values[part]) for part in of.parts]
        if not numbers[0] - of.sample > 0 or not _has_spread(of, numbers):
            return math.nan
        moment = of.of(numbers).real
        return math.sqrt(max(moment, 0.0)) if of.what == "deviation" else moment
    return float(values[of])


def _has_spread(one: Moments[int], numbers: Sequence[float]) -> bool:
    """Whether a correlation divides by something: both variances are above 0."""
    n, (sums, products) = numbers[0], (numbers[1:3], numbers[4:])
    return one.what != "correlation" or all(p > s * s / n for s, p in zip(sums, products, strict=True))


def _moment(one: Moments[int], values: Dense, noise: _Noise) -> tuple[float, float, float, float]:
    """The moment, its standard error, low and high: by its slope in every part (the delta method).

    The interval of a deviation is that of the variance, in roots; a correlation ends at −1 and 1.
    """
    parts = list(one.parts)
    numbers = [float(values[part]) for part in parts]
    steps = [1e-20 * max(1.0, abs(number)) for number in numbers]
    if not numbers[0] - one.sample > 0 or not _has_spread(one, numbers):
        return (math.nan,) * 4
    slopes = [
        one.of([z + 1j * step * (k == i) for i, z in enumerate(numbers)]).imag / step for k, step in enumerate(steps)
    ]
    sums = [Affine(0.0, tuple(zip(slopes, parts, strict=True))), Affine(0.0, ((1.0, one.count),))]
    (half, of_count), (error, _) = noise.margins(sums), noise.errors(sums)
    value = one.of(numbers).real
    if not of_count < numbers[0] - one.sample or not math.isfinite(half):
        return (math.nan,) * 4
    low, high = value - half, value + half
    if one.what == "correlation":
        return min(max(value, -1.0), 1.0), error, max(low, -1.0), min(high, 1.0)
    if one.what == "covariance":
        return value, error, low, high
    low, value, high = max(low, 0.0), max(value, 0.0), max(high, 0.0)
    if one.what == "variance":
        return value, error, low, high
    root = math.sqrt(value)
    return root, error / (2 * root) if root else math.nan, math.sqrt(low), math.sqrt(high)


def _sides(one: Combination[int]) -> list[tuple[Affine[int], Affine[int]]]:
    """Numerators and denominators; what is plain, if more than a constant, is over 1."""
    plain = [(Affine(0.0, one.plain.terms), Affine[int](1.0))] if one.plain.terms else []
    return plain + [(ratio.numerator, ratio.denominator) for ratio in one.ratios]


def _combined(some: Sequence[Combination[int]], values: Dense, noise: _Noise) -> Dense:
    """Value, standard error, low and high of each; all have as many terms."""
    sides = [_sides(one) for one in some]
    N, D = (np.array([[_of(own[at], values) for own in each] for each in sides]).T for at in (0, 1))
    rows, times = noise.rows([[one for own in each for one in own] for each in sides])  # expression × side × draw

    def weighed(a: Any, b: Any) -> NoiseLaw:
        sums = np.einsum("jk,kjr->kr", a, rows[:, 0::2]) + np.einsum("jk,kjr->kr", b, rows[:, 1::2])
        return noise.law(sums, times)

    low, high = combined_intervals(
        N,
        D,
        lambda a, b: weighed(a, b).half_widths(noise.confidence),
        deviation=lambda a, b: weighed(a, b).standard_errors,
    )
    known = ~np.isnan(low)
    D = np.where(known, D, 1.0)
    theta = N / D
    error = weighed(1 / D, -theta / D).standard_errors
    constants = np.array([one.plain.constant for one in some])
    return np.where(known, np.stack([theta.sum(axis=0), error, low, high]), np.nan) + np.outer((1, 0, 1, 1), constants)


def _crossed(one: Crossing[int], values: Dense, noise: _Noise) -> tuple[float, float, float, float]:
    """The quantile, no standard error, low and high."""
    sums = [Affine(0.0, ((1.0, part), (-one.share, one.total))) for part in one.below]
    totals = _totals(one, values)
    margins = noise.margins_within(sums, np.abs(totals[1:-1] - one.share * totals[-1]))
    (of_total,) = noise.margins([Affine(0.0, ((1.0, one.total),))])
    band = np.concatenate([[0.0], margins, [0.0]])  # of each by itself: see `quantile`
    found = quantile(totals, one.edges, one.share, band, margin_of_total=float(of_total))
    if found is None:
        return (math.nan,) * 4
    # Edges lie half a step from the values on either side.
    ends = _snapped(one, found.low, math.ceil), _snapped(one, found.high, math.floor)
    return _snapped(one, found.value, round), math.nan, *ends


def _snapped(one: Crossing[int], at: float, to: Any) -> float:
    """The value of a column with a step that is meant by a place between the edges."""
    if one.step is None:
        return at
    last = round((one.edges[-1] - one.start) / one.step - 0.5)
    place = int(to(round((at - one.start) / one.step, 9)))
    return one.start + min(max(place, 0), last) * one.step


def _totals(one: Crossing[int], values: Dense) -> Dense:
    return np.concatenate([[0.0], values[list(one.below)], values[[one.total]]])


def _of(one: Affine[int], values: Dense) -> float:
    return one.constant + math.fsum(factor * float(values[part]) for factor, part in one.terms)


class _Noise:
    """The noise in sums of answers: as weights on draws of noise, with what these say of its size."""

    def __init__(self, joint: Joint, confidence: float, packed: Packed | None) -> None:
        self._joint, self.confidence, self._known = joint, confidence, packed
        self.law = joint.law

    def rows(self, sums: Sequence[Sequence[Affine[int]]]) -> tuple[Dense, Dense | None]:
        """Of several sums for every expression: expression × sum × kind of draw; and how many draws are of each kind,
        expression × kind, where it is not one."""
        packed = [self._packed(tuple(own)) for own in sums]
        wide = max(one.shape[1] for one, _ in packed)
        found, times = np.zeros((len(packed), len(sums[0]), wide)), np.ones((len(packed), wide))
        for into, often, (one, counts) in zip(found, times, packed, strict=True):
            into[:, : one.shape[1]] = one
            often[: one.shape[1]] = counts
        return found, None if np.all(times == 1) else times

    def margins(self, sums: Sequence[Affine[int]]) -> Dense:
        """The half width of each."""
        return np.concatenate([np.zeros(0), *(one.half_widths(self.confidence) for one in self._laws(sums))])

    def margins_within(self, sums: Sequence[Affine[int]], distances: Dense) -> Dense:
        """The half width of each that may reach so far; of each other one a bound, which is no further than that."""
        bounds = (bounded_widths(one.noise, one.standard_errors, self.confidence, 1) for one in self._laws(sums))
        found = np.concatenate([np.zeros(0), *bounds])
        near = np.flatnonzero(found > distances)
        found[near] = self.margins([sums[k] for k in near.tolist()])
        return found

    def errors(self, sums: Sequence[Affine[int]]) -> Dense:
        """The standard error of each."""
        return np.concatenate([np.zeros(0), *(one.standard_errors for one in self._laws(sums))])

    def _laws(self, sums: Sequence[Affine[int]]) -> Iterator[NoiseLaw]:
        """Of the noise in the sums, some at a time."""
        weights, B = self._weights(sums)
        step = max(1, MOST_WEIGHTS // max(1, B.shape[1]))
        return (self.law((weights[own : own + step] @ B).toarray()) for own in range(0, len(sums), step))

    def _packed(self, sums: tuple[Affine[int], ...]) -> tuple[Dense, Dense]:
        """The weights of sums that are looked at together, sum × kind of draw, and how many are of each kind."""
        if self._known is None:  # so many may be asked for that all together would not fit
            return self._pack(sums)
        if sums not in self._known:
            self._known[sums] = self._pack(sums)
        return self._known[sums]

    def _pack(self, sums: Sequence[Affine[int]]) -> tuple[Dense, Dense]:
        weights, B = self._weights(sums)
        rows = (weights @ B).toarray()
        if self._joint.shape_text or rows.shape[1] <= MANY:
            return rows, np.ones(rows.shape[1])
        if self.law(rows[:, :1]).noise == GAUSSIAN:  # of which the covariances are all there is to know
            return np.asarray(np.linalg.qr(rows.T).R.T), np.ones(min(rows.shape))
        alike = np.rint(rows / (ALIKE * np.abs(rows).max(axis=1, keepdims=True, initial=1e-300)))
        _, first, counts = np.unique(alike, axis=1, return_index=True, return_counts=True)
        return rows[:, first], counts.astype(np.float64)

    def _weights(self, sums: Sequence[Affine[int]]) -> tuple[sparse.csr_array, sparse.csr_array]:
        """What the sums make of their parts, and these of the measurements, those left out that none uses."""
        parts = sorted({part for one in sums for part in one.parts})
        B = self._joint.rows(parts)
        if not self._joint.shape_text:  # measurements that share a body have to stay together
            B = sparse.csr_array(B[:, np.unique(B.indices)])
        place = {part: i for i, part in enumerate(parts)}
        entries = [(i, place[part], factor) for i, one in enumerate(sums) for factor, part in one.terms]
        rows, columns, factors = zip(*entries, strict=True) if entries else ((), (), ())
        return sparse.csr_array(sparse.coo_array((factors, (rows, columns)), shape=(len(sums), len(parts)))), B
