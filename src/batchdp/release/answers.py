"""The answers of a release one by one, each made when it is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchdp.release.figures import Figures, FoundFigures
from batchdp.release.tables import Block

if TYPE_CHECKING:
    from batchdp.release.records import Release


@dataclass(frozen=True)
class Answer:
    """One private answer; the interval holds what it would be without noise, with the release's confidence.

    A derived one is computed from others; its figures are not numbers where it is not determined, and a quantile has
    no standard error.
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
            return self._listed.at(slice(block.listed, block.listed + block.size))
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
