"""Anderson extrapolation: a fixed point found from the last few steps instead of from one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense


class Anderson:
    """Extrapolates u ← u + f(u); residuals are weighted by e^u, so that vanishing entries do not count."""

    def __init__(self, memory: int, first: float) -> None:
        self._memory, self._first = memory, first
        self._points: list[Dense] = []
        self._moves: list[Dense] = []

    def forget(self) -> None:
        """Start over from the next point."""
        self._points, self._moves = [], []

    def restrict(self, keep: NDArray[np.bool_]) -> None:
        """Go on with some of the entries only."""
        self._points = [point[keep] for point in self._points]
        self._moves = [move[keep] for move in self._moves]

    def step(self, u: Dense, f: Dense) -> Dense:
        """The extrapolated step from u, given the plain one; only a share `first` of it without a history."""
        self._points = [*self._points, u][-self._memory - 1 :]
        self._moves = [*self._moves, f][-self._memory - 1 :]
        if len(self._points) < 2:
            return f * self._first
        du, df = np.diff(self._points, axis=0), np.diff(self._moves, axis=0)
        weighted = df * np.exp(u - u.max())
        gram = weighted @ df.T
        gram[np.diag_indices_from(gram)] += 1e-10 * np.trace(gram) + 1e-300
        return np.asarray(f - (du + df).T @ np.linalg.solve(gram, weighted @ f))
