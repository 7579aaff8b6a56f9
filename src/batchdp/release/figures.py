"""Values, standard errors and intervals of some answers, each computed when it is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.derived.expressions import Asked, parts_of
from batchdp.linalg.matrix import Dense, Plain
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.reader import Reader

if TYPE_CHECKING:
    from batchdp.release.records import Release


class Figures(Protocol):
    """Of some answers, in one dimension; not numbers where an answer is not determined."""

    @property
    def values(self) -> Dense:
        """The private answers."""

    @property
    def standard_errors(self) -> Dense:
        """Of the noise; a quantile has none."""

    @property
    def half_widths(self) -> Dense:
        """Half the width of every interval."""

    @property
    def low(self) -> Dense:
        """The lower ends."""

    @property
    def high(self) -> Dense:
        """The upper ends."""


class LinearFigures:
    """Of a table of linear answers."""

    def __init__(self, release: Release, table: int) -> None:
        self._release, self._table = release, table

    @cached_property
    def values(self) -> Dense:
        """As they were given first, or read from the measurements."""
        return self._release.linear_values(self._table)

    @cached_property
    def standard_errors(self) -> Dense:
        """Of the noise."""
        return self._release.reader.errors_of(self._table).reshape(-1)

    @cached_property
    def half_widths(self) -> Dense:
        """Half the width of every interval."""
        return self._release.reader.widths_of(self._table, self._release.confidence).reshape(-1)

    @cached_property
    def low(self) -> Dense:
        """The lower ends."""
        return self.values - self.half_widths

    @cached_property
    def high(self) -> Dense:
        """The upper ends."""
        return self.values + self.half_widths


class SomeLinearFigures(LinearFigures):
    """Of some answers of a table: intervals of the others are not computed."""

    def __init__(self, release: Release, table: int, whole: LinearFigures, places: NDArray[np.int64]) -> None:
        super().__init__(release, table)
        self._whole, self._places = whole, places

    @cached_property
    def values(self) -> Dense:
        """As they were given first, or read from the measurements."""
        return self._whole.values[self._places]

    @cached_property
    def standard_errors(self) -> Dense:
        """Of the noise."""
        return self._whole.standard_errors[self._places]

    @cached_property
    def half_widths(self) -> Dense:
        """Half the width of every interval."""
        if "half_widths" in self._whole.__dict__:
            return self._whole.half_widths[self._places]
        return self._release.reader.widths_at(self._table, self._places, self._release.confidence)


@dataclass(frozen=True, eq=False)
class FoundFigures:
    """Of answers that are all computed."""

    values: Dense
    standard_errors: Dense
    low: Dense
    high: Dense

    @property
    def half_widths(self) -> Dense:
        """Half the width of every interval."""
        return (self.high - self.low) / 2

    def at(self, places: Any) -> FoundFigures:
        """Of some of them."""
        return FoundFigures(*(one[places] for one in (self.values, self.standard_errors, self.low, self.high)))


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some of a reader's answers, numbered anew."""

    reader: Reader
    numbers: NDArray[np.int64]

    @property
    def shape_text(self) -> str:
        """Of the noise."""
        return self.reader.shape_text

    def rows(self, numbers: Sequence[int] | NDArray[np.int64]) -> sparse.csr_array:
        """The weights of some of them on draws of scale 1."""
        return self.reader.rows(self.numbers[np.asarray(numbers, dtype=np.int64)])

    def law(self, rows: Plain, times: Dense | None = None) -> NoiseLaw:
        """Of the noise in sums with such weights."""
        return self.reader.law(rows, times)


def renumber(asked: Sequence[Asked[int]]) -> tuple[NDArray[np.int64], list[Asked[int]]]:
    """The linear answers that something is computed from, in ascending order, and the same with their places there."""
    numbers = np.unique([part for one in asked for part in parts_of(one.of)]).astype(np.int64)
    place = {number: i for i, number in enumerate(numbers.tolist())}
    return numbers, [
        Asked(one.name, place[one.of] if isinstance(one.of, int) else one.of.mapped(place.__getitem__)) for one in asked
    ]


def figures_of(release: Release, asked: Sequence[Asked[int]], confidence: float) -> FoundFigures:
    """Of answers that are listed: linear ones as their tables have them, others computed from these."""
    found = np.full((4, len(asked)), np.nan)
    plain = np.array([i for i, one in enumerate(asked) if isinstance(one.of, int)], dtype=np.int64)
    numbers = [one.of for one in asked if isinstance(one.of, int)]
    for t, own, places in release.reader.split(numbers):
        whole = release.linear_figures(t)
        half = release.reader.widths_at(t, places, confidence)
        values = whole.values[places]
        found[:, plain[own]] = values, whole.standard_errors[places], values - half, values + half
    derived = [i for i, one in enumerate(asked) if one.derived]
    if derived:
        parts, local = renumber([asked[i] for i in derived])
        made = estimates(local, release.picked(parts), Chosen(release.reader, parts), confidence)
        found[:, derived] = made.values, made.standard_errors, made.low, made.high
    return FoundFigures(*found)
