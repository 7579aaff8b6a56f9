"""Non-negative cells that fit noisy answers best, with their total held at its own estimate.

Answers in units of their noise: the truth is among those of non-negative cells, which are a convex set, so that the
closest of these are never farther from it than the noisy ones, added up over all answers. Yet a total is one answer
among many, and every cell that is nearly empty would push it up. So it is settled first: the total of the cells that
queries connect, as least squares of any sign estimate it, or 0 where that is below 0. Where it is no combination of
answers, the combination that is closest to it is held instead.

With t = Lᵀ u what is held, the cells that are closest to y − λ u minimise ½‖L x − y‖² + λ t·x, and t·x falls as the
price λ grows. Newton steps find the price, and the last one is exact: t·x is linear as long as the same cells are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import nnls
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsmr

from batchdp.linalg.matrix import Dense, Indices
from batchdp.linalg.threads import one_thread
from batchdp.text import Outcome, Progress

# ── Non-negative cells that fit noisy answers best: min ‖L x − y‖² over x ≥ 0, by projected Newton steps.
#
# A step solves least squares over the cells that are above 0 or want to be (Bertsekas 1982) and goes along it as far
# as pays, cutting at 0. Some ten steps settle which cells are 0. A step is a Cholesky factorisation; where cells are
# many, or L is sparse, as that of a hierarchy is, it is LSMR, which multiplies by L alone.

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
SPARSE = 30
"""Coefficients a cell up to which more cells than that are not worth a factorisation."""
SHORTEST = 2.0**-30
"""Of a step."""


@dataclass(frozen=True, eq=False)
class FittedCells:
    """x ≥ 0, and how it was found."""

    x: Dense
    status: Outcome


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
        status = Outcome.OUT_OF_ROUNDS
        try:
            for _ in range(MOST_STEPS):
                gradient = -(L.T @ residual)
                free = (x > 0) | (gradient < 0)
                wanted = np.where(x > 0, gradient, np.minimum(gradient, 0.0))
                if np.abs(wanted).max(initial=0.0) <= TOLERANCE * largest:
                    status = Outcome.OPTIMAL
                    break
                # Cells that are nearly 0 and pushed down stay where a step would cut them at once.
                blocked = free & (gradient > 0) & (x <= min(1e-3, float(np.linalg.norm(wanted))))
                x, residual, moved = _step(L, y, x, residual, gradient, self.along(residual, free & ~blocked), blocked)
                if not moved:
                    status = Outcome.STALLED
                    break
            if status is not Outcome.OPTIMAL and L.shape[1] <= MOST_EXACT:
                x, status = _fit_by_sets(L, y, x, status)
        except KeyboardInterrupt:
            status = Outcome.CANCELLED
        return FittedCells(x, status)


def _fit_by_sets(L: sparse.csr_array, y: Dense, x: Dense, status: Outcome) -> tuple[Dense, Outcome]:
    """Cell after cell (Lawson and Hanson 1974): where precisions lie so far apart that steps are cut at once."""
    try:
        found, left = nnls(L.toarray(), y, maxiter=10 * L.shape[1])
    except RuntimeError:  # it goes round in circles
        return x, status
    return (found, Outcome.OPTIMAL) if left <= np.linalg.norm(L @ x - y) else (x, status)


def _step(
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
    columns, n = sparse.csc_array(L), L.shape[1]
    gram = (L.T @ L).toarray() if n <= MOST_EXACT or (n <= MOST_DENSE and L.nnz > SPARSE * n) else None

    def solve(residual: Dense, free: Mask) -> Dense:
        found, there = np.zeros(n), np.flatnonzero(free)
        if gram is not None:
            H = gram[np.ix_(there, there)]
            H[np.diag_indices_from(H)] += RIDGE * float(np.trace(H))  # at least the largest eigenvalue
            found[there] = linalg.solve(H, (columns[:, there]).T @ residual, assume_a="pos", check_finite=False)
        else:
            found[there] = lsmr(columns[:, there], residual, atol=1e-10, btol=1e-10, maxiter=2000)[0]
        return found

    return solve


FAINT = 1e-3
"""Cells whose answers have so much more noise than others are not in the total: they would decide it."""
NOTHING = 1e-7
"""Of a coefficient of what is held, relative to 1: rounding."""
SLIGHT = 1e-2
"""Of a coefficient, too: the cell is left out of a total of nothing."""
HELD = 1e-7
"""How far off the total may be, relative to the answers that it is made of, before cells are scaled to it."""
MOST_PRICES = 60
MOST_ROUNDS = 2000


@one_thread
def closest_cells(rows: sparse.sparray, answers: Dense, *, progress: Progress | None = None) -> FittedCells:
    """The non-negative cells x whose answers L x are closest, their total held; Ctrl-C gives the best so far.

    Args:
        rows: L, every query in units of the noise in its answer.
        answers: y, in the same units.
        progress: called with (share done, what is being done).
    """
    L = sparse.csc_array(rows)
    squares, along = np.asarray(L.multiply(L).sum(axis=0)).reshape(-1), L.T @ answers
    x = np.divide(np.maximum(along, 0.0), squares, out=np.zeros(L.shape[1]), where=squares > 0)  # of cells alone
    parts = [part for part in _connect_cells(L) if len(part[1]) > 1]
    statuses = [Outcome.CLOSED_FORM]
    for k, (there, columns) in enumerate(parts):
        own = _fit_with_total(sparse.csr_array(L[:, columns][there]), answers[there], cut=Outcome.CANCELLED in statuses)
        x[columns] = own.x
        statuses.append(own.status)
        if progress is not None:
            progress((k + 1) / len(parts), "fitting cells that are not negative")
    return FittedCells(x, Outcome.of_all(statuses))


def _connect_cells(L: sparse.csc_array) -> Iterator[tuple[Indices, Indices]]:
    """Rows and columns of every connected part that has both."""
    m, n = L.shape
    rows, columns = L.tocoo().coords
    graph = sparse.csr_array((np.ones(len(rows)), (rows, m + columns)), shape=(m + n, m + n))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    for part in np.split(order, np.cumsum(np.bincount(label))[:-1]):
        if part[0] < m <= part[-1]:  # in ascending order: rows come first
            yield part[part < m], part[part >= m] - m


def held_totals(rows: sparse.sparray) -> Dense:
    """For every connected part the combination of answers that `closest_cells` holds, one a row."""
    L = sparse.csc_array(rows)
    found = []
    for there, columns in _connect_cells(L):
        if len(columns) > 1:
            found.append(np.zeros(L.shape[0]))
            found[-1][there] = _held(sparse.csr_array(L[:, columns][there]))
    return np.array(found).reshape(-1, L.shape[0])


def _held(L: sparse.csr_array) -> Dense:
    """u with Lᵀ u as close to the total of cells as answers tell it."""
    damp = FAINT * float(np.sqrt(L.multiply(L).sum(axis=0).max()))
    return np.asarray(lsmr(L.T, np.ones(L.shape[1]), damp=damp, atol=1e-13, btol=1e-13, maxiter=MOST_ROUNDS)[0])


def _fit_with_total(L: sparse.csr_array, y: Dense, *, cut: bool) -> FittedCells:
    """One connected part; if `cut`, least squares cut at 0 and scaled to the total, which take no time."""
    n, u = L.shape[1], _held(L)
    t = L.T @ u
    t[np.abs(t) <= NOTHING] = 0.0
    total = float(u @ y) if t.any() else 0.0
    if total <= 0 and t.min() >= 0 and t.any():  # nothing is there but what the total leaves out
        return _fit_left_out(L, y, t < SLIGHT)
    if cut:
        return FittedCells(_scale_cells(_fit_cut(L, y), t, total), Outcome.CANCELLED)
    x, price, bounds, status = np.zeros(n), 0.0, [-np.inf, np.inf], Outcome.OUT_OF_ROUNDS
    try:
        fit = Fit(L)
        for _ in range(MOST_PRICES):
            found = fit(y - price * u, x)
            x = found.x
            over = float(t @ x) - total
            if abs(over) <= HELD * float(np.abs(u) @ np.abs(y)) or found.status is Outcome.CANCELLED:
                status = found.status
                break
            bounds[over < 0] = price
            price = _next_price(price, over, float(t @ fit.along(u, x > 0)), bounds)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
    x = x if x.any() or status is not Outcome.CANCELLED else _fit_cut(L, y)  # before the first step had ended
    return FittedCells(_scale_cells(x, t, total), status)


def _fit_cut(L: sparse.csr_array, y: Dense) -> Dense:
    return np.maximum(lsmr(L, y)[0], 0.0)


def _fit_left_out(L: sparse.csr_array, y: Dense, left: NDArray[np.bool_]) -> FittedCells:
    """The closest cells of which only those that the total leaves out may be above 0."""
    x = np.zeros(L.shape[1])
    found = Fit(sparse.csr_array(L[:, left]))(y, x[left])
    x[left] = found.x
    return FittedCells(x, found.status)


def _next_price(price: float, over: float, slope: float, bounds: list[float]) -> float:
    """A Newton step, or half way between the bounds where it leaves them."""
    tried = price + over / slope if slope > 0 else np.nan
    if bounds[0] < tried < bounds[1]:
        return tried
    middle = (bounds[0] + bounds[1]) / 2
    return middle if np.isfinite(middle) else price + float(np.copysign(1 + 2 * abs(price), over))


def _scale_cells(x: Dense, t: Dense, total: float) -> Dense:
    """Cells with exactly this total, where it is one of cells that are not negative."""
    now = float(t @ x)
    return x * (total / now) if now > 0 and total > 0 and t.min() >= 0 else x
