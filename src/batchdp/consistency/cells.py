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

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsmr

from batchdp.consistency.fitting import Fit, FittedCells
from batchdp.linalg.threads import one_thread
from batchdp.outcome import Outcome
from batchdp.progress import Progress

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]

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
        progress: called with (share, what is being done).
    """
    L = sparse.csc_array(rows)
    squares, along = np.asarray(L.multiply(L).sum(axis=0)).reshape(-1), L.T @ answers
    x = np.divide(np.maximum(along, 0.0), squares, out=np.zeros(L.shape[1]), where=squares > 0)  # of cells alone
    parts = [part for part in _connected(L) if len(part[1]) > 1]
    statuses, steps = [Outcome.CLOSED_FORM], 0
    for k, (there, columns) in enumerate(parts):
        own = _with_total(sparse.csr_array(L[:, columns][there]), answers[there], cut=Outcome.CANCELLED in statuses)
        x[columns] = own.x
        steps += own.steps
        statuses.append(own.status)
        if progress is not None:
            progress((k + 1) / len(parts), "fitting cells that are not negative")
    return FittedCells(x, Outcome.of_all(statuses), steps)


def _connected(L: sparse.csc_array) -> Iterator[tuple[Indices, Indices]]:
    """Rows and columns of every connected part that has both."""
    m, n = L.shape
    rows, columns = L.tocoo().coords
    graph = sparse.csr_array((np.ones(len(rows)), (rows, m + columns)), shape=(m + n, m + n))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    for part in np.split(order, np.cumsum(np.bincount(label))[:-1]):
        if part[0] < m <= part[-1]:  # in ascending order: rows come first
            yield part[part < m], part[part >= m] - m


def _with_total(L: sparse.csr_array, y: Dense, *, cut: bool) -> FittedCells:
    """One connected part; if `cut`, least squares cut at 0 and scaled to the total, which take no time."""
    n = L.shape[1]
    damp = FAINT * float(np.sqrt(L.multiply(L).sum(axis=0).max()))
    u = lsmr(L.T, np.ones(n), damp=damp, atol=1e-13, btol=1e-13, maxiter=MOST_ROUNDS)[0]
    t = L.T @ u
    t[np.abs(t) <= NOTHING] = 0.0
    total = float(u @ y) if t.any() else 0.0
    if total <= 0 and t.min() >= 0 and t.any():  # nothing is there but what the total leaves out
        return _left_out(L, y, t < SLIGHT)
    if cut:
        return FittedCells(_scaled(_cut(L, y), t, total), Outcome.CANCELLED, 0)
    x, price, bounds, steps, status = np.zeros(n), 0.0, [-np.inf, np.inf], 0, Outcome.OUT_OF_ROUNDS
    try:
        fit = Fit(L)
        for _ in range(MOST_PRICES):
            found = fit(y - price * u, x)
            x, steps = found.x, steps + found.steps
            over = float(t @ x) - total
            if abs(over) <= HELD * float(np.abs(u) @ np.abs(y)) or found.status is Outcome.CANCELLED:
                status = found.status
                break
            bounds[over < 0] = price
            price = _next_price(price, over, float(t @ fit.along(u, x > 0)), bounds)
    except KeyboardInterrupt:
        status = Outcome.CANCELLED
    x = x if x.any() or status is not Outcome.CANCELLED else _cut(L, y)  # before the first step had ended
    return FittedCells(_scaled(x, t, total), status, steps)


def _cut(L: sparse.csr_array, y: Dense) -> Dense:
    """Least squares, cut at 0."""
    return np.maximum(lsmr(L, y)[0], 0.0)


def _left_out(L: sparse.csr_array, y: Dense, left: NDArray[np.bool_]) -> FittedCells:
    """The closest cells of which only those that the total leaves out may be above 0."""
    x = np.zeros(L.shape[1])
    own = sparse.csr_array(L[:, left])
    found = Fit(own)(y, x[left])
    x[left] = found.x
    return FittedCells(x, found.status, found.steps)


def _next_price(price: float, over: float, slope: float, bounds: list[float]) -> float:
    """A Newton step, or half way between the bounds where it leaves them."""
    tried = price + over / slope if slope > 0 else np.nan
    if bounds[0] < tried < bounds[1]:
        return tried
    middle = (bounds[0] + bounds[1]) / 2
    return middle if np.isfinite(middle) else price + float(np.copysign(1 + 2 * abs(price), over))


def _scaled(x: Dense, t: Dense, total: float) -> Dense:
    """Cells with exactly this total, where it is one of cells that are not negative."""
    now = float(t @ x)
    return x * (total / now) if now > 0 and total > 0 and t.min() >= 0 else x
