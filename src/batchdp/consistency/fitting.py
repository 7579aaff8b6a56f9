"""Non-negative cells that fit noisy answers best: min ‖L x − y‖² over x ≥ 0, by projected Newton steps.

A step solves least squares over the cells that are above 0 or want to be (Bertsekas 1982) and goes along it as far as
pays, cutting at 0. Some ten steps settle which cells are 0. Where the rows of L are nested a step is two passes over
their tree; where few cells are left it is a Cholesky factorisation, else LSMR, which multiplies by L alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import nnls
from scipy.sparse.linalg import lsmr

from batchdp.consistency.trees import tree_of, two_passes
from batchdp.outcome import Outcome

Dense = NDArray[np.float64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-9
"""Of the gradient, relative to that at 0: beyond it rounding decides."""
MOST_STEPS = 200
RIDGE = 1e-13
"""On the diagonal of normal equations, which are singular where queries do not tell all cells apart."""
MOST_DENSE = 5000
"""Cells whose normal equations are factorised."""
MOST_EXACT = 1000
"""Cells that are fitted one after the other where steps do not get on."""
SHORTEST = 2.0**-30
"""Of a step."""


@dataclass(frozen=True, eq=False)
class FittedCells:
    """x ≥ 0, and how it was found."""

    x: Dense
    status: Outcome
    steps: int


class Fit:
    """The closest cells to any y: the solver is made once."""

    def __init__(self, rows: sparse.csr_array) -> None:
        self._rows = rows
        self.along = _solver(rows)
        """Least squares of any sign over some of the cells, by the residual and which cells these are."""

    def __call__(self, answers: Dense, start: Dense) -> FittedCells:
        """From non-negative cells to begin with; Ctrl-C gives the best so far."""
        L, y, x = self._rows, answers, start
        residual = y - L @ x
        largest = float(np.abs(L.T @ y).max(initial=0.0))
        status, steps = Outcome.OUT_OF_ROUNDS, 0
        try:
            while steps < MOST_STEPS:
                steps += 1
                gradient = -(L.T @ residual)
                free = (x > 0) | (gradient < 0)
                wanted = np.where(x > 0, gradient, np.minimum(gradient, 0.0))
                if np.abs(wanted).max(initial=0.0) <= TOLERANCE * largest:
                    status = Outcome.OPTIMAL
                    break
                # Cells that are nearly 0 and pushed down stay where a step would cut them at once.
                blocked = free & (gradient > 0) & (x <= min(1e-3, float(np.linalg.norm(wanted))))
                x, residual, moved = _stepped(
                    L, y, x, residual, gradient, self.along(residual, free & ~blocked), blocked
                )
                if not moved:
                    status = Outcome.STALLED
                    break
            if status is not Outcome.OPTIMAL and L.shape[1] <= MOST_EXACT:
                x, status = _by_sets(L, y, x, status)
        except KeyboardInterrupt:
            status = Outcome.CANCELLED
        return FittedCells(x, status, steps)


def _by_sets(L: sparse.csr_array, y: Dense, x: Dense, status: Outcome) -> tuple[Dense, Outcome]:
    """Cell after cell (Lawson and Hanson 1974): where precisions lie so far apart that steps are cut at once."""
    try:
        found, left = nnls(L.toarray(), y, maxiter=10 * L.shape[1])
    except RuntimeError:  # it goes round in circles
        return x, status
    return (found, Outcome.OPTIMAL) if left <= np.linalg.norm(L @ x - y) else (x, status)


def _stepped(
    L: sparse.csr_array, y: Dense, x: Dense, residual: Dense, gradient: Dense, direction: Dense, blocked: Mask
) -> tuple[Dense, Dense, bool]:
    """Along the direction as far as the fit gets better by enough, cut at 0."""
    direction = np.where(blocked, -x, direction)
    before = float(residual @ residual)
    length = 1.0
    while length >= SHORTEST:
        tried = np.maximum(x + length * direction, 0.0)
        left = y - L @ tried
        if before - float(left @ left) > -1e-4 * float(gradient @ (tried - x)):
            return tried, left, True
        length /= 2
    return x, residual, False


def _solver(L: sparse.csr_array) -> Callable[[Dense, Mask], Dense]:
    """How the least squares over some of the cells are solved."""
    tree = tree_of(L)
    if tree is not None:
        return lambda residual, free: two_passes(tree, residual, free)
    columns = sparse.csc_array(L)
    gram = (L.T @ L).toarray() if L.shape[1] <= MOST_DENSE else None

    def solve(residual: Dense, free: Mask) -> Dense:
        found, there = np.zeros(L.shape[1]), np.flatnonzero(free)
        if gram is not None:
            H = gram[np.ix_(there, there)]
            H[np.diag_indices_from(H)] += RIDGE * float(np.trace(H))  # at least the largest eigenvalue
            found[there] = linalg.solve(H, (columns[:, there]).T @ residual, assume_a="pos", check_finite=False)
        else:
            found[there] = lsmr(columns[:, there], residual, atol=1e-10, btol=1e-10, maxiter=2000)[0]
        return found

    return solve
