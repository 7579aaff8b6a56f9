"""The answers of a release one by one, each made when it is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.linalg.matrix import Dense, Plain
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.reader import Reader
from batchdp.queries.expressions import Asked, parts_of
from batchdp.release.tables import Block

if TYPE_CHECKING:
    from batchdp.release.release import Release


class Figures:
    """Of some answers, in one dimension, each array made when it is looked at; here of a table of linear answers.

    What is not determined is not a number, and a quantile has no standard error.
    """

    def __init__(self, release: Release, table: int, places: NDArray[np.int64] | None = None) -> None:
        """With places in the table, only those answers: intervals of the others are not computed."""
        self._release, self._table, self._places = release, table, places

    def _some(self, name: str) -> Dense:
        return np.asarray(getattr(self._release.linear_figures(self._table), name)[self._places])

    @cached_property
    def values(self) -> Dense:
        """The private answers: as they were given first, or read from the measurements."""
        return self._release.linear_values(self._table) if self._places is None else self._some("values")

    @cached_property
    def standard_errors(self) -> Dense:
        """The standard error of every answer's noise."""
        if self._places is not None:
            return self._some("standard_errors")
        return self._release.reader.errors_of(self._table).reshape(-1)

    @cached_property
    def half_widths(self) -> Dense:
        """Half the width of every interval."""
        reader, confidence = self._release.reader, self._release.confidence
        if self._places is None:
            return reader.widths_of(self._table, confidence).reshape(-1)
        if "half_widths" in self._release.linear_figures(self._table).__dict__:
            return self._some("half_widths")
        return reader.widths_at(self._table, self._places, confidence)

    @cached_property
    def low(self) -> Dense:
        """The lower ends of the intervals."""
        return self.values - self.half_widths

    @cached_property
    def high(self) -> Dense:
        """The upper ends of the intervals."""
        return self.values + self.half_widths


class FoundFigures(Figures):
    """Of answers that are all computed: an array each of values, standard errors, lower and upper ends."""

    def __init__(self, found: Dense) -> None:
        self._found = found
        self.values, self.standard_errors, self.low, self.high = found
        self.half_widths = (self.high - self.low) / 2

    def at(self, places: Any) -> FoundFigures:
        """Of some of them."""
        return FoundFigures(self._found[:, places])


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some of a reader's answers, numbered anew."""

    reader: Reader
    numbers: NDArray[np.int64]

    @property
    def shape_text(self) -> str:
        """The shape of the noise, for people."""
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
    return FoundFigures(found)


@dataclass(frozen=True)
class Answer:
    """One private answer; the interval holds what it would be without noise, with the release's confidence.

    A derived one is computed from others. Where it is not determined, its figures are NaN; a quantile has no standard
    error.

    Args:
        name: what the SQL calls it, with its group: "visits[clinic=north]".
        value: the answer, with its noise.
        standard_error: the standard error of the noise.
        low: the lower end of the interval.
        high: the upper end of the interval.
        derived: whether it is computed from others.
    """

    name: str
    value: float
    standard_error: float
    low: float
    high: float
    derived: bool = False

    @property
    def determined(self) -> bool:
        """Whether there is an answer: a ratio has none where the interval of its denominator holds 0."""
        return not math.isnan(self.value)


class Answers(Sequence[Answer]):
    """All answers of a release, in order; a table is read when one of its answers is looked at."""

    def __init__(
        self,
        release: Release,
        widths: Callable[[int, int], float] | None = None,
        listed: FoundFigures | None = None,
        how: str = "",
    ) -> None:
        """With other half widths than the release's, where they are given.

        Args:
            release: whose answers.
            widths: of a linear answer, by its table and its place there.
            listed: of what is listed.
            how: intervals were found, where they are not the release's own.
        """
        self._release, self._widths, self._listed, self.how = release, widths, listed, how

    def __len__(self) -> int:
        return len(self._release.layout)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        block = self._release.layout.block_at(i)
        return self._answer(block, i - block.start, self._figures(block))

    def __iter__(self) -> Iterator[Answer]:
        for block in self._release.layout.each_block():
            figures = self._figures(block)
            for k in range(block.size):
                yield self._answer(block, k, figures)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return id(self)

    def _figures(self, block: Block) -> Figures:
        if block.linear is None and self._listed is not None:
            return self._listed.at(block.among_listed)
        return self._release.block_figures(block)

    def _answer(self, block: Block, k: int, figures: Figures) -> Answer:
        layout, starts = self._release.layout, self._release.reader.starts
        number = layout.number(block, k)
        value, error = float(figures.values[k]), float(figures.standard_errors[k])
        if number is None or self._widths is None:
            low, high = float(figures.low[k]), float(figures.high[k])
        else:
            table = int(np.searchsorted(starts, number, side="right")) - 1
            half = self._widths(table, number - int(starts[table]))
            low, high = value - half, value + half
        return Answer(layout.name(block, k), value, error, low, high, number is None)

    def __repr__(self) -> str:
        return f"<{len(self):,} answers, made when looked at>"
