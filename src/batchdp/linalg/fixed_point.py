"""One accelerated fixed-point loop: weights that grow where a constraint is violated, found from the last few rounds.

Convex problems whose dual has one weight per column (or class, table, query) all end in a fixed point: with u the
logarithm of the weights, u ← u + a log q, where q is 1 at every weight that matters. Every u gives a lower bound.
Anderson extrapolation takes several times fewer rounds; where it overshoots, so that the bound falls, the round is
taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Dense = NDArray[np.float64]

MEMORY = 8
"""How many rounds the extrapolation looks back on."""
MOST_REJECTED = 8
"""How many rounds in a row may be taken back before a worse one is accepted."""
STALLED = 1e-13
"""The largest entry of a step from which on rounding allows no further one."""
SMALLEST_RATIO = 1e-12
"""The least q that is told apart from 0."""


@dataclass(frozen=True)
class Pace:
    """How far a round of the loop goes."""

    exponent: float
    """a of v ← v q^a."""
    first: float
    """The share of a plain step that is taken without a history."""
    safe: float = 1.0
    """a of the one step from the last good point, after a round that was taken back."""
    largest_move: float = 3.0
    """The most that the logarithm of a weight may rise in one round; it may fall by twice that."""


class FixedPoint:
    """The logarithms of weights, `u`: `accept` what was found there, then `move` on.

    A round evaluates its problem at `u` and hands over the bound and q that it found. Where `accept` answers no, the
    extrapolation overshot, and `u` is a safe step from the last good point.
    """

    def __init__(self, start: Dense, pace: Pace) -> None:
        self.u, self._pace = start, pace
        self._last: tuple[float, Dense, Dense] | None = None  # accepted: bound, u, log q
        self._rejected = 0
        self._points: list[Dense] = []
        self._moves: list[Dense] = []

    @property
    def accepted(self) -> Dense:
        """Where the last good round was; where the loop is, if there was none."""
        return self.u if self._last is None else self._last[1]

    def accept(self, bound: float, u: Dense, q: Dense, *, rounding: float = 1e-9) -> bool:
        """Whether a round did not lose any of the bound; `u` is where it was, up to a factor of all weights."""
        if self._last is not None and self._rejected < MOST_REJECTED and bound < self._last[0] * (1 - rounding):
            self._rejected += 1
            self._forget()
            self.u = self._last[1] + self._pace.safe * self._last[2]
            return False
        self._rejected = 0
        self.u, self._last = u, (bound, u, np.log(np.maximum(q, SMALLEST_RATIO)))
        return True

    def move(self, lowest: Dense | float) -> bool:
        """Go on from the point that was accepted, no entry below `lowest`; whether there was anywhere to go."""
        assert self._last is not None
        _, u, log_q = self._last
        step, largest = self._extrapolated(u, self._pace.exponent * log_q), self._pace.largest_move
        self.u = np.maximum(u + np.clip(step, -2 * largest, largest), lowest)
        return bool(np.abs(step).max() >= STALLED)

    def restrict(self, keep: NDArray[np.bool_]) -> None:
        """Go on with some of the entries only."""
        self.u = self.u[keep]
        if self._last is not None:
            bound, u, log_q = self._last
            self._last = bound, u[keep], log_q[keep]
        self._points = [point[keep] for point in self._points]
        self._moves = [move[keep] for move in self._moves]

    def restart(self, u: Dense) -> None:
        """Begin again at another point, which may have more entries."""
        self.u, self._last = u, None
        self._forget()

    def _forget(self) -> None:
        self._points, self._moves = [], []

    def _extrapolated(self, u: Dense, f: Dense) -> Dense:
        """Anderson's step from u, given the plain one; residuals are weighted by e^u: vanishing ones do not count."""
        self._points = [*self._points, u][-MEMORY - 1 :]
        self._moves = [*self._moves, f][-MEMORY - 1 :]
        if len(self._points) < 2:
            return f * self._pace.first
        du, df = np.diff(self._points, axis=0), np.diff(self._moves, axis=0)
        weighted = df * np.exp(u - u.max())
        gram = weighted @ df.T
        gram[np.diag_indices_from(gram)] += 1e-10 * np.trace(gram) + 1e-300
        return np.asarray(f - (du + df).T @ np.linalg.solve(gram, weighted @ f))
