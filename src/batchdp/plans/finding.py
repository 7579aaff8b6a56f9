"""What is asked to find a domain, and what follows from the noisy answers; nothing here sees data.

Two small batches of one table per column. The first counts which kind of value a column has and how many rows a unit
has; the second counts the numbers and months of those columns that have them, in bins that are public: every whole
number up to 32, and beyond it round numbers, six in a power of ten where most data is and three elsewhere, on both
sides of 0, and the decades of our centuries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from batchdp.domain.columns import LARGEST, Column, Dates, Integers, Listed, Numbers
from batchdp.domain.draft import MOST_STEPS, Described

LineKind = Literal["whole", "number", "date"]
Ends = tuple[Any, Any]
"""The lowest and the highest value, each of which may be None: not known."""
KINDS = 4
"""Kinds of values that the first batch tells apart, by `engines.derived`: whole, number, day, other."""
FIRST_MONTH, LAST_MONTH = 12 * 1900 + 1, 12 * 2100 + 12
ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000, 10_000, 100_000)
"""Bins of how many rows a unit has."""
COVERED = 0.95
"""Of the units, that the proposed cap is enough for."""
FRACTIONS = 0.01
"""Share of a column's numbers that may have a fraction where it is still said to be of whole numbers."""
WINDOWS: dict[LineKind, tuple[int, ...]] = {"whole": (1, 2, 4), "number": (1, 2), "date": (1, 3, 12, 60, 120)}
"""Bins in a row that are looked at together: a column may be spread over many."""
SURE, NEAR = 1e-3, 3.0
"""The chance that anything is seen anywhere in a column that is not there; standard errors that a bin next to what was
seen must have."""
TAIL = 0.003
"""Share of a column that may lie beyond either end."""
MOST_BINS = 8
EACH = 50
"""Whole numbers in a range that GROUP BY gives one by one."""


@cache
def edges_of(kind: LineKind) -> tuple[float, ...]:
    """The lower edges of the public bins, and the end of the last."""
    fine = [Decimal(m).scaleb(e) for e in range(-1, 6) for m in ("1", "1.5", "2", "3", "5", "7")]
    coarse = [Decimal(m).scaleb(e) for e in (*range(-6, -1), *range(6, 15)) for m in ("1", "2", "5")]
    found = {one for one in (*fine, *coarse) if kind == "number" or one == int(one)}
    found |= {Decimal(year) for year in range(1900, 2101, 10)}
    if kind == "whole":
        found |= {Decimal(n) for n in (*range(1, 33), 40, 60, 80, 90)}
    numbers = [float(one) if one != int(one) else int(one) for one in sorted(found)]
    return (-LARGEST, *(-one for one in reversed(numbers)), 0, *numbers, LARGEST)


def kind_column() -> Listed:
    """A column of the first batch."""
    return Listed(values=tuple(range(1, KINDS + 1)), groups="all")


def rows_column() -> Integers:
    """How many rows a unit has."""
    return Integers(integers=(1, LARGEST), bins=ROWS, groups="all")


def line_column(kind: LineKind) -> Column:
    """A column of the second batch."""
    if kind == "date":
        return Listed(values=tuple(range(FIRST_MONTH, LAST_MONTH + 1)), groups="all")
    edges = edges_of(kind)
    line: dict[str, Any] = {"bins": edges[:-1], "groups": "all"}
    if kind == "whole":
        return Integers(integers=(-LARGEST, LARGEST), **line)
    return Numbers(range=(-LARGEST, LARGEST), **line)


# ── from noisy counts ──


def _least_sum(bins: int, logarithm: float) -> float:
    """What a sum of so many Laplace variables of scale 1 exceeds with e^−logarithm at the most: Chernoff's bound."""
    s = np.linspace(0.01, 0.99, 99)
    return float(np.min((logarithm - bins * np.log1p(-s * s)) / s))


def _near(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """What so many bins next to what was seen must hold, for noise of scale 1.

    The more bins are taken in, the worse it is if they are empty: a normal variable's chance falls with their square.
    """
    return np.asarray(np.sqrt(2 * bins * (NEAR**2 + 4 * np.log(bins))))


def find_ends(counts: NDArray[np.float64], scale: float, windows: Sequence[int]) -> tuple[int, int] | None:
    """The first and the last bin that hold something, as far as noise of this scale lets it be seen; None if none."""
    sums = {w: np.convolve(counts, np.ones(w), "valid") for w in windows if w <= len(counts)}
    logarithm = float(np.log(sum(map(len, sums.values())) / SURE))
    near = dict(zip(sums, scale * _near(np.array([*sums])), strict=True))
    low = high = -1
    for w, own in sums.items():
        seen = np.flatnonzero(own >= _least_sum(w, logarithm) * scale)
        if low < 0:
            if len(seen):
                low, high = int(seen[0]), int(seen[-1]) + w - 1
            continue
        before, after = seen[seen + w <= low], seen[seen > high]
        low = int(before[0]) if len(before) else low
        high = int(after[-1]) + w - 1 if len(after) else high
    if low < 0:
        return None
    while more := next((w for w in sums if low >= w and counts[low - w : low].sum() >= near[w]), 0):
        low -= more
    while more := next((w for w in sums if counts[high + 1 : high + 1 + w].sum() >= near[w]), 0):
        high = min(len(counts) - 1, high + more)
    inside = counts[low : high + 1]
    return low + _count_few(inside, scale), high - _count_few(inside[::-1], scale)


def _count_few(counts: NDArray[np.float64], scale: float) -> int:
    """How many of the first bins hold so little together that they are no part of a column.

    A window of several bins is seen for what lies in any of them, and the others may be empty. Bins are left out as
    long as all of them together may be noise, or are surely a small share of the column.
    """
    together = np.cumsum(counts)[:-1]
    errors = scale * _near(np.arange(1, len(counts)))
    enough = together >= np.maximum(errors, TAIL * counts.sum() - errors)
    return int(np.argmax(enough)) if enough.any() else 0


def found_line(kind: LineKind, counts: NDArray[np.float64], scale: float, known: Ends = (None, None)) -> Column | None:
    """The column as its noisy counts show it, within the ends that are known; None where nothing can be seen."""
    ends = find_ends(counts, scale, WINDOWS[kind])
    if ends is None:
        return None
    if kind == "date":
        first, after = (_first_day(FIRST_MONTH + place) for place in (ends[0], ends[1] + 1))
        return line_between(kind, *_within((first, after - timedelta(days=1)), known))
    edges = edges_of(kind)
    low, high = edges[ends[0]], edges[ends[1] + 1]
    if kind == "whole":
        high = max(int(low), int(high) - 1) if high < LARGEST else LARGEST
    return line_between(kind, *_within((low, high), known))


def _within(found: tuple[Any, Any], known: Ends) -> tuple[Any, Any]:
    """What was found, cut off at the ends that are known; where nothing is left, as it was found."""
    low, high = (end if own is None else own for end, own in zip(found, known, strict=True))
    low, high = max(found[0], low), min(found[1], high)
    return (low, high) if low < high else found


def declared_by(column: Described) -> Column | None:
    """The column as its schema declares it: by a list, or by both ends; None where it does not say enough."""
    kind, ends = column.kind, (column.low, column.high)
    with suppress(ValueError):
        if column.values:
            return Listed(values=column.values)
        if kind in ("whole", "number", "date") and None not in ends and column.low < column.high:  # type: ignore[operator]
            digits = column.step if column.step is not None and _are_multiples(ends, column.step) else None
            return line_between(kind, *ends, digits)
    return None


def _are_multiples(ends: Ends, step: float) -> bool:
    low, high = ends
    return high - low <= MOST_STEPS * step and not any(Decimal(str(end)) % Decimal(str(step)) for end in ends)


def line_between(kind: LineKind, low: Any, high: Any, step: float | None = None) -> Column:
    """A column of numbers or dates with these ends, its groups, and its steps."""
    if kind == "date":
        return Dates(dates=(low, high), bins=_years(low, high + timedelta(days=1)))
    if kind == "whole":
        low, high = math.floor(low), math.ceil(high)
        bins = None if high - low < EACH else _round_bins(low, high + 1)
        return Integers(integers=(low, high), bins=bins, outside="clip")
    step = _step(low, high) if step is None else step
    return Numbers(range=(low, high), bins=_round_bins(low, high), step=step, outside="clip")


def _round_bins(low: float, high: float) -> tuple[Any, ...]:
    """Lower edges of some bins of one width, at multiples of it."""
    exponent = int(np.floor(np.log10((high - low) / MOST_BINS)))
    widths = (Decimal(m).scaleb(exponent) for m in (1, 2, 5, 10))
    width = next(w for w in widths if (high - low) / float(w) <= MOST_BINS)
    first = int(np.floor(low / float(width))) + 1
    inside = [float(k * width) for k in range(first, first + MOST_BINS + 1)]
    return (low, *(int(edge) if edge == int(edge) else edge for edge in inside if low < edge < high))


def _first_day(month: int) -> date:
    year, rest = divmod(month - 1, 12)
    return date(year, rest + 1, 1)


def _years(first: date, after: date) -> tuple[date, ...]:
    starts = [first, *(date(year, 1, 1) for year in range(first.year + 1, after.year + 1) if date(year, 1, 1) < after)]
    return tuple(starts[:: -(-len(starts) // MOST_BINS)])


def _step(low: float, high: float) -> float:
    """A power of ten of which both ends are multiples, about 10 000 in the range."""
    own = [int(Decimal(repr(end)).normalize().as_tuple().exponent) for end in (low, high) if end]
    exponent = min([*own, int(np.floor(np.log10(high - low))) - 4])
    return float(Decimal(1).scaleb(exponent)) if exponent < 0 else 10**exponent


def propose_cap(counts: NDArray[np.float64], error: float, counted: int) -> int | None:
    """The least number of rows that is enough for 95 % of the units; None where no unit can be seen.

    Args:
        counts: rows of units that have so many rows, by bin; a unit with n has min(n, `counted`) of them.
        error: the standard error of a count.
        counted: rows of a unit that were counted.
    """
    units = np.where(counts > 3 * error, counts, 0) / np.minimum(ROWS, counted)
    if not units.sum():
        return None
    place = int(np.searchsorted(np.cumsum(units) / units.sum(), COVERED))
    place = min(place, len(ROWS) - 1)
    return min(2**20, ROWS[place + 1] - 1 if place + 1 < len(ROWS) else 2**20)


@dataclass(frozen=True)
class Kinds:
    """How many rows of a column hold what, with noise."""

    counts: Mapping[str, float]
    missing: float
    error: float

    @property
    def known(self) -> float:
        """Rows that hold anything."""
        return sum(self.counts.values())

    def kind(self) -> Literal["whole", "number", "date", "text"] | None:
        """What most of the values are; None where hardly any can be seen."""
        if self.known < 4 * self.error * len(self.counts) ** 0.5:
            return None
        whole, fractions, days, other = (self.counts[name] for name in ("whole", "number", "date", "text"))
        if max(days, other) > whole + fractions:
            return "date" if days > other else "text"
        return "whole" if fractions <= FRACTIONS * (whole + fractions) + 2 * self.error else "number"

    def share_missing(self) -> float:
        """The share of rows that are NULL."""
        return min(1.0, max(0.0, self.missing) / max(1.0, self.known + self.missing))
