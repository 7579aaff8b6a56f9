"""What both solvers of Formula (7) share: where they start, and how their end is made exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.outcome import Outcome
from batchdp.strategies.factors import complete, is_exact
from batchdp.workloads.pair import Pair

Progress = Callable[[int, float, float], object]
"""Called with (round, relative residual, ‖B‖²_F); a true answer ends the run."""


def first_measure(R: Dense, rank: int, rng: np.random.Generator) -> Dense:
    """The right singular vectors in a random orientation, so that every row takes part; sensitivity 1."""
    k = len(R)
    V = np.linalg.svd(R, full_matrices=False)[2]
    Q = np.linalg.qr(rng.standard_normal((max(rank, k), max(rank, k))))[0][:rank, :k]
    L = Q @ V
    return np.asarray(L / np.abs(L).sum(axis=0).max())


def revived(L: Dense, residual: Dense, height: float) -> Dense:
    """L with zero rows re-seeded from the residual's leading right singular vectors; L itself if none is zero.

    Once a row of L and its column of B are zero, no gradient brings them back. The new row must be tall, `height`
    times 1/r: a short one dies again and again, and leaves the others where they are.
    """
    dead = np.flatnonzero(np.abs(L).max(axis=1) < 1e-9)
    if dead.size == 0:
        return L
    V = np.linalg.svd(residual, full_matrices=False)[2][: dead.size]
    L = L.copy()
    L[dead[: len(V)]] = height / len(L) * V / np.abs(V).max(axis=1, keepdims=True)
    return np.asarray(L / np.maximum(1.0, np.abs(L).sum(axis=0)))


def repaired(R: Dense, L: Dense, B: Dense, rounds: int, outcome: Outcome) -> Pair | None:
    """The nearby pair with R = B L to rounding: L + B⁺ (R − B L), scaled to sensitivity 1, and B = R L⁺.

    R L⁺ is the least B for this L. Where L has nearly dependent rows the pseudo-inverse may cut directions that R
    needs; B then stays as it is, which is exact too. None if the pair has lost a direction of R for good.
    """
    for _ in range(2):  # the second pass removes the rounding of the first
        L = L + np.linalg.lstsq(B, R - B @ L, rcond=1e-13)[0]
    least = complete(R, L, rounds, outcome)
    if least is not None:
        return least
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0)) or 1.0
    pair = Pair(L / sensitivity, B * sensitivity, outcome, rounds)
    return pair if is_exact(R, pair) else None
