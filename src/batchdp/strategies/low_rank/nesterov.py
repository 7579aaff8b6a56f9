"""Algorithm 2 of the paper: accelerated projected gradients for L while B stands still.

The iterates are those of the printed algorithm, to rounding, for a fraction of its work:

- L is held as its transpose, and a few columns of it go through a whole step while they are in the processor's cache.
- The objective is quadratic, so that the gradient at a combination of two iterates is the same combination of their
  gradients: a step takes one product with β BᵀB, not one for the gradient and one for line 12.
- Few entries of a projected column are not zero, three in a hundred at the paper's own sizes: the product takes those.
- A column's threshold times ω is its multiplier, which changes little from step to step: where it was is where the
  search for the next one begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.sparse import csr_array

from batchdp.linalg.l1_ball import project_columns, projected_rows
from batchdp.linalg.matrix import Dense

BLOCK_ENTRIES = 49_152
"""Of L, that go through a step at a time."""
FEW = 0.15
"""The share of entries up to which a product with the non-zero ones alone is faster."""
NEARLY = 0.9
"""Of its last multiplier, that a column's next one is guessed not to be below."""


def times(rows: Dense, matrix: Dense) -> Dense:
    """The product, by the non-zero entries of `rows` where these are few."""
    few = np.count_nonzero(rows) <= FEW * rows.size
    return np.asarray(csr_array(rows) @ matrix if few else rows @ matrix)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A matrix, a column of L a row, and its gradient."""

    point: Dense
    slope: Dense


class Descent:
    """What one run of Algorithm 1 remembers from call to call of Algorithm 2."""

    def __init__(self, columns: int, steps: int) -> None:
        """For so many columns of L, and so many steps a call."""
        self.omega, self._steps = 1.0, steps
        self._multipliers, self._few = np.zeros(columns), False

    def least(self, B: Dense, target: Dense, start: Dense, beta: float) -> Dense:
        """Minimise β/2 tr(Lᵀ Bᵀ B L) − tr(targetᵀ B L) with target = β R + π (Formula 10) from a start.

        ω starts at a quarter of the last accepted one: the same powers of two, found sooner.
        """
        H, F = beta * (B.T @ B), target.T @ B
        chi, self.omega = start.size * 1e-12, max(1.0, self.omega / 4)
        L = np.ascontiguousarray(start.T)
        now = before = _Iterate(L, times(L, H) - F)
        older, newer = 0.0, 1.0  # δ(t−2), δ(t−1)
        for _ in range(self._steps):
            after = _Iterate(np.empty_like(L), np.empty_like(L))
            self._few = bool(np.count_nonzero(now.point) <= FEW * L.size)
            while True:
                moved, bent = self._step(now, before, (older - 1) / newer, after, H, F)
                if moved < chi * chi:
                    return after.point.T
                if bent <= self.omega * moved * (1 + 1e-12):  # line 12: ⟨D, β BᵀB D⟩ ≤ ω ‖D‖²
                    break
                self.omega *= 2
            before, now = now, after
            older, newer = newer, (1 + sqrt(1 + 4 * newer * newer)) / 2
        return now.point.T

    def _step(
        self, now: _Iterate, before: _Iterate, momentum: float, after: _Iterate, H: Dense, F: Dense
    ) -> tuple[float, float]:
        """From S = L + momentum (L − before) to `after`, projected; ‖D‖² and ⟨D, H D⟩ with D = after − S."""
        n, r = F.shape
        width = max(16, BLOCK_ENTRIES // r)
        moved = bent = 0.0
        for first in range(0, n, width):
            part = slice(first, first + width)
            S = _combined(now.point[part], before.point[part], momentum)
            slope = _combined(now.slope[part], before.slope[part], momentum)
            X = slope * (-1 / self.omega)
            X += S
            D, rise = after.point[part], after.slope[part]
            np.subtract(self._projected(X, part, D) @ H, F[part], out=rise)
            S -= D
            slope -= rise
            moved += float(np.vdot(S, S))
            bent += float(np.vdot(S, slope))
        return moved, bent

    def _projected(self, X: Dense, part: slice, into: Dense) -> Dense | csr_array:
        """Project columns of L, each a row, and return what the product with H goes by."""
        if not self._few:
            into[...] = project_columns(X.T).T
            return into
        kept, thresholds = projected_rows(X, NEARLY / self.omega * self._multipliers[part])
        self._multipliers[part] = self.omega * thresholds
        kept.toarray(out=into)
        return kept


def _combined(now: Dense, before: Dense, momentum: float) -> Dense:
    """now + momentum (now − before)."""
    S = now - before
    S *= momentum
    S += now
    return S
