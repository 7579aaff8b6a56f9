"""Non-negative cells that fit noisy measurements best: min ‖L x − y‖² over x ≥ 0, by projected Newton steps.

A step solves least squares over the cells that are above 0 or want to be (Bertsekas 1982) and goes along it as far as
pays, cutting at 0. Some ten steps settle which cells are 0. Where the measurements are nested a step is two passes over
their tree; where few cells are left it is a Cholesky factorisation, else LSMR, which multiplies by L alone. Cells that
no measurement connects are fitted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import nnls
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsmr

from batchdp.consistency.trees import tree_of, two_passes
from batchdp.linalg.threads import one_thread
from batchdp.outcome import Outcome
from batchdp.progress import Progress

Dense = NDArray[np.float64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-9
"""Of the gradient, relative to that at 0: beyond it rounding decides."""
MOST_STEPS = 200
MOST_DENSE = 3000
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


@one_thread
def closest_cells(measure: sparse.sparray, measurements: Dense, *, progress: Progress | None = None) -> FittedCells:
    """The non-negative cells whose measurements are closest; Ctrl-C gives the best so far."""
    L = sparse.csc_array(measure)
    x = np.zeros(L.shape[1])
    blocks = list(_blocks(L))
    statuses, steps = [Outcome.CLOSED_FORM], 0
    for k, (rows, columns) in enumerate(blocks):
        own = _fitted(sparse.csr_array(L[:, columns][rows]), measurements[rows])
        x[columns] = own.x
        steps += own.steps
        statuses.append(own.status)
        if progress is not None:
            progress((k + 1) / len(blocks), "fitting cells that are not negative")
        if own.status is Outcome.CANCELLED:  # later blocks: least squares cut at 0
            for rest, others in blocks[k + 1 :]:
                x[others] = np.maximum(lsmr(L[:, others][rest], measurements[rest])[0], 0.0)
            break
    return FittedCells(x, Outcome.of_all(statuses), steps)


def _blocks(L: sparse.csc_array) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows and columns of every connected part."""
    m, n = L.shape
    entries = L.tocoo()
    rows, columns = entries.coords
    graph = sparse.csr_array((np.ones(len(rows)), (rows, m + columns)), shape=(m + n, m + n))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(label))[:-1])
    found = [(part[part < m], part[part >= m] - m) for part in parts]
    return [part for part in found if len(part[0]) and len(part[1])]


def _fitted(L: sparse.csr_array, y: Dense) -> FittedCells:
    """One connected part."""
    x = np.zeros(L.shape[1])
    solve = _solver(L)
    residual = y.copy()
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
            x, residual, moved = _stepped(L, y, x, residual, gradient, solve(residual, free & ~blocked), blocked)
            if not moved:
                status = Outcome.STALLED
                break
        if status is not Outcome.OPTIMAL and L.shape[1] <= MOST_EXACT:
            x, status = _by_sets(L, y, x, status)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
        if not np.any(x):  # before the first step had ended
            x = np.maximum(lsmr(L, y)[0], 0.0)
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
            H[np.diag_indices_from(H)] += 1e-12 * float(np.trace(H)) / max(1, len(H))
            found[there] = linalg.solve(H, (columns[:, there]).T @ residual, assume_a="pos", check_finite=False)
        else:
            found[there] = lsmr(columns[:, there], residual, atol=1e-10, btol=1e-10, maxiter=2000)[0]
        return found

    return solve
