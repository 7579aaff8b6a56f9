"""Formula (7) for very many columns: solved on few of them, checked on all, until they agree.

Every column of R has to lie in the convex hull of ± the columns of B, so only those on the outside hold B up. The
columns that the best ellipsoid touches are a good first choice. Each round solves on the working set, finds
measurements for all columns with the B of the working set (one pass), and adds the columns whose measurements are too
long. Every pair that is compared or returned reproduces all columns, with its sensitivity taken over all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from batchdp.bounds import convex
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense
from batchdp.strategies.low_rank import fast
from batchdp.strategies.low_rank.least_measure import least_measure
from batchdp.strategies.low_rank.program import Pair, Progress, completed, first_measure

FEW = 2048
"""Columns up to which all of them are taken at once."""
SHARE = 2.0
"""Columns in the first working set, as a multiple of the r k entries of B."""
MOST_ROUNDS = 8
FIRM = 3.0
"""β of a warm start as a multiple of r; times 2 each round, so that less and less moves."""
NEARLY = 0.99
"""Columns whose measurements have at least this norm join the working set."""
AGREED = 1e-3
"""The relative difference between the errors on all columns and on the working set that ends the search."""


def pays(columns: int, workload_rank: int, rank: int) -> bool:
    """Whether there are so many more columns than entries of B that most of them cannot matter."""
    return columns > max(FEW, 2 * SHARE * rank * workload_rank)


def solve(
    R: Dense,
    rank: int,
    *,
    penalty: float,
    seed: int,
    growth: float = fast.SLOW,
    give_up_above: float = np.inf,
    progress: Progress | None = None,
) -> Pair | None:
    """The best pair found for all columns of R, or None if that is nowhere near `give_up_above`.

    Args:
        R: the reduced workload.
        rank: r.
        penalty: the first β of the first working set, as for `fast.solve`.
        seed: of the random rotation of the start.
        growth: of β.
        give_up_above: an error on the working set above this ends the search, since all columns only add to it.
        progress: told of every round, may cancel.
    """
    columns = outermost(R, int(SHARE * rank * len(R)))
    start = first_measure(R[:, columns], rank, np.random.default_rng(seed))
    best: Pair | None = None
    rounds, cancelled = 0, False

    def watch(round_: int, residual: float, size: float) -> bool:
        nonlocal rounds, cancelled
        rounds += 1
        cancelled = bool(progress and progress(rounds, residual, size))
        return cancelled

    for attempt in range(MOST_ROUNDS):
        part = fast.solve(
            R[:, columns], start, penalty=penalty, growth=growth, give_up_above=give_up_above, progress=watch
        )
        if part is None:
            break
        L = least_measure(part.reconstruct, R)
        found = completed(R, L, rounds, part.status)
        if found is not None and (best is None or found.error < best.error):
            best = found
        if cancelled or (found is not None and found.error <= part.error * (1 + AGREED)):
            break
        joining = np.abs(L).sum(axis=0) > NEARLY
        joining[columns] = True
        if joining.sum() == len(columns):
            break
        columns = np.flatnonzero(joining)
        start, penalty = project_columns(L[:, columns]), FIRM * 2.0**attempt * rank
    return best


def outermost(R: Dense, count: int) -> NDArray[np.int64]:
    """The columns nearest to the surface of the best ellipsoid around all, and some that span R; in their order."""
    L = convex.solve(R, tolerance=1e-2).measure
    spanning = qr(L, mode="r", pivoting=True, check_finite=False)[1][: len(R)]
    nearest = np.argsort(-np.square(L).sum(axis=0), kind="stable")[:count]
    return np.union1d(spanning, nearest)
