"""How a group of tables looks at one column: as it is, or at what is left of it after averaging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchdp.components.columns import Column, without_rounding

Dense = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lens:
    """How a group looks at a column: `rows` has the factors over orbits (centred where it is split), or their average.

    `mean` is the squared norm of each factor's average where the group has only that besides the spreads.
    """

    rows: tuple[Dense, ...] | None
    mean: Dense
    spread: Dense
    counts: NDArray[np.int64]
    centre: Dense | None = None
    """Orbit × orbit: what queries over orbits are multiplied by; I if there is none."""

    @property
    def classes(self) -> int:
        """Of records, as far as this column goes."""
        return len(self.counts)

    def alike(self, kinds: set[int]) -> dict[int, float] | None:
        """Every factor as a multiple of the first, if they are."""
        first, *others = sorted(kinds)
        ratios = {first: 1.0}
        for kind in others:
            ratio = self._ratio(kind, first)
            if ratio is None:
                return None
            ratios[kind] = ratio
        return ratios

    def _ratio(self, kind: int, first: int) -> float | None:
        one = self._gram(first)
        two = self._gram(kind)
        size = float(np.abs(one).max(initial=0.0))
        if size == 0:
            return None
        ratio = float(np.abs(two).max() / size)
        return ratio if np.abs(two - ratio * one).max() <= 1e-13 * ratio * size else None

    def _gram(self, kind: int) -> Dense:
        own = self.rows[kind].T @ self.rows[kind] if self.rows is not None else self.mean[kind : kind + 1]
        return np.concatenate([own.reshape(-1), self.spread[kind]])


def lens(column: Column, measure: Dense | None) -> Lens:
    """A column as it is where `measure` is None, or what is left of it after averaging."""
    averaged = np.ones(1) if measure is None else measure
    if column.orbits == 1:
        mean = np.array([float(np.square(F).sum()) for F in column.rows])
        return Lens(None, mean, column.spread, column.counts)
    if measure is None:
        return Lens(column.rows, np.zeros(len(column.rows)), column.spread, column.counts)
    centre = np.eye(column.orbits) - averaged[:, None]
    left = tuple(without_rounding(F @ centre, np.abs(F).max(axis=1)) for F in column.rows)
    return Lens(left, np.zeros(0), column.spread, column.counts, centre)
