"""Formula (7) for very many columns: solved on few of them, checked on all, until they agree.

Every column of R has to lie in the convex hull of ± the columns of B, so only those on the outside hold B up. The
columns that the best ellipsoid touches are a good first choice. Each round solves on the working set, finds
measurements for all columns with the B of the working set (one pass), and adds the columns whose measurements are too
long. Every pair that is compared or returned reproduces all columns, with its sensitivity taken over all of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from batchdp.bounds import convex
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense, dense
from batchdp.strategies.factors import complete
from batchdp.strategies.families.low_rank import fast
from batchdp.strategies.families.low_rank.least_measure import least_measure
from batchdp.strategies.families.low_rank.program import Progress, first_measure
from batchdp.strategies.families.low_rank.settings import SETTINGS, Settings
from batchdp.workloads.pair import Pair


def pays(columns: int, workload_rank: int, rank: int, settings: Settings = SETTINGS) -> bool:
    """Whether there are so many more columns than entries of B that most of them cannot matter."""
    return columns > max(settings.few, 2 * settings.working_columns * rank * workload_rank)


def solve(R: Dense, rank: int, rules: fast.Rules, *, seed: int, progress: Progress | None = None) -> Pair | None:
    """The best pair found for all columns of R, or None if that is nowhere near `rules.give_up_above`.

    Args:
        R: the reduced workload.
        rank: r.
        rules: as for `fast.solve`, on the first working set; an error there above `give_up_above` ends the search,
            since all columns only add to it.
        seed: of the random rotation of the start.
        progress: told of every round, may cancel.
    """
    settings = rules.settings
    columns = outermost(R, int(settings.working_columns * rank * len(R)))
    start = first_measure(R[:, columns], rank, np.random.default_rng(seed))
    best: Pair | None = None
    rounds, cancelled = 0, False

    def watch(round_: int, residual: float, size: float) -> bool:
        nonlocal rounds, cancelled
        rounds += 1
        cancelled = bool(progress and progress(rounds, residual, size))
        return cancelled

    for attempt in range(settings.working_rounds):
        part = fast.solve(R[:, columns], start, rules, progress=watch)
        if part is None:
            break
        L = least_measure(part.reconstruct, R)
        found = complete(R, L, rounds, part.outcome)
        if found is not None and (best is None or found.error < best.error):
            best = found
        if cancelled or (found is not None and found.error <= part.error * (1 + settings.agreed)):
            break
        joining = np.abs(L).sum(axis=0) > settings.nearly
        joining[columns] = True
        if joining.sum() == len(columns):
            break
        columns = np.flatnonzero(joining)
        start = project_columns(L[:, columns])
        rules = replace(rules, penalty=settings.firm * 2.0**attempt * rank)
    return best


def outermost(R: Dense, count: int) -> NDArray[np.int64]:
    """The columns nearest to the surface of the best ellipsoid around all, and some that span R; in their order."""
    L = dense(convex.solve(R, tolerance=1e-2).pair.measure)
    spanning = qr(L, mode="r", pivoting=True, check_finite=False)[1][: len(R)]
    nearest = np.argsort(-np.square(L).sum(axis=0), kind="stable")[:count]
    return np.union1d(spanning, nearest)
