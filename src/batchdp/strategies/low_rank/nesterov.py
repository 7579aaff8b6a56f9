"""Algorithm 2 of the paper: accelerated projected gradients for L while B stands still.

The iterates are those of the printed algorithm, to rounding, for a fraction of its work:

- L is held as its transpose, and a column of it goes through a whole step while it is in the processor's cache.
- The objective is quadratic, so that the gradient at a combination of two iterates is the same combination of their
  gradients: a step takes one product with β BᵀB, not one for the gradient and one for line 12.
- Few entries of a projected column are not zero, three in a hundred at the paper's own sizes: the product takes those.
- A column's threshold times ω is its multiplier, which changes little from step to step: where it was is where the
  search for the next one begins.
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np

from batchdp.linalg.matrix import Dense

NEARLY = 0.9
"""Of its last multiplier, that a column's next one is guessed not to be below."""


class Kernels(Protocol):
    """What the time goes into; `rows` are columns of L, contiguous, whose zeros cost nothing."""

    def step(
        self,
        now: Dense,
        now_slope: Dense,
        before: Dense,
        before_slope: Dense,
        momentum: float,
        omega: float,
        thresholds: Dense,
        H: Dense,
        F: Dense,
        after: Dense,
        after_slope: Dense,
        /,
    ) -> tuple[float, float]:
        """From S = now + momentum (now − before) to `after`, projected; ‖D‖² and ⟨D, H D⟩ with D = after − S.

        Thresholds are searched from a guess for each column, which they replace.
        """

    def product(self, rows: Dense, matrix: Dense, /) -> Dense:
        """The product rows · matrix."""

    def transposed_product(self, rows: Dense, matrix: Dense, /) -> Dense:
        """The product rowsᵀ · matrix."""


@cache
def kernels() -> Kernels:
    """Numba's, where it is installed; NumPy's take some times as long."""
    try:
        from batchdp.strategies.low_rank import compiled
    except ImportError:
        from batchdp.strategies.low_rank import in_blocks

        return in_blocks
    return compiled


class _Iterate(NamedTuple):
    """A matrix, a column of L a row, and its gradient."""

    point: Dense
    slope: Dense


class Descent:
    """What one run of Algorithm 1 remembers from call to call of Algorithm 2."""

    def __init__(self, rank: int, columns: int, steps: int) -> None:
        """For an L of this shape, and so many steps a call."""
        self.omega, self._steps = 1.0, steps
        self._multipliers = np.zeros(columns)
        self._iterates = [_Iterate(np.empty((columns, rank)), np.empty((columns, rank))) for _ in range(3)]

    def least(self, B: Dense, target: Dense, start: Dense, beta: float) -> Dense:
        """Minimise β/2 tr(Lᵀ Bᵀ B L) − tr(targetᵀ B L) with target = β R + π (Formula 10) from a start.

        ω starts at a quarter of the last accepted one: the same powers of two, found sooner.
        """
        H, F = beta * (B.T @ B), target.T @ B
        chi, self.omega = start.size * 1e-12, max(1.0, self.omega / 4)
        now = before = self._iterates[0]
        now.point[...] = start.T
        np.subtract(kernels().product(now.point, H), F, out=now.slope)
        older, newer = 0.0, 1.0  # δ(t−2), δ(t−1)
        for t in range(1, self._steps + 1):
            after = self._iterates[t % 3]
            while True:
                thresholds = NEARLY / self.omega * self._multipliers
                momentum = (older - 1) / newer
                moved, bent = kernels().step(*now, *before, momentum, self.omega, thresholds, H, F, *after)
                self._multipliers = self.omega * thresholds
                if moved < chi * chi:
                    return after.point.copy().T
                if bent <= self.omega * moved * (1 + 1e-12):  # line 12: ⟨D, β BᵀB D⟩ ≤ ω ‖D‖²
                    break
                self.omega *= 2
            before, now = now, after
            older, newer = newer, (1 + sqrt(1 + 4 * newer * newer)) / 2
        return now.point.copy().T
