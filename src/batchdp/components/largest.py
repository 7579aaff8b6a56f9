"""Whole tables with the least largest variance: shares of the budget for which no table's cells are worse than needed.

All cells of a table have one variance, linear in 1 / p_A, and the shares p_A add up to 1. For any weights y on the
tables, adding up to 1, the least weighted mean variance is (Σ_A √h_A)², h_A = Σ_C y_C (Π_{C∖A} 1/n_j)² (D_A / N_A)²,
and no strategy has a smaller largest variance. Tables above that mean get more weight until the two meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchdp.components.whole import Closure, cell_variances
from batchdp.linalg.fixed_point import FixedPoint, Pace
from batchdp.strategies.account import UNLIMITED, Account

Dense = NDArray[np.float64]

TOLERANCE = 1e-5
"""Found over limit, less 1."""
MOST_ROUNDS = 3000
PACE = Pace(exponent=1.5, first=2 / 3, safe=0.5, largest_move=2.0)
ROUND_SECONDS, ENTRY_SECONDS = 3e-4, 2e-8
"""Nominal seconds of a round whatever its size, and for every component of every table; measured."""
LOWEST = -40.0
"""log of a table's weight relative to the mean: one that does not matter."""


def least_largest(found: Closure, weights: Dense, account: Account = UNLIMITED) -> tuple[Dense, float, float]:
    """Shares of the budget, the largest variance (times its table's weight) at ρ = ½, and what none is below."""
    tables = len(weights)
    price = ROUND_SECONDS + ENTRY_SECONDS * sum(len(one.tables) for one in found.below)
    loop = FixedPoint(np.full(tables, -np.log(tables)), PACE)
    best, lower, upper = np.full(found.size, 1 / found.size), 0.0, np.inf
    for _ in range(MOST_ROUNDS):
        account.charge(price)
        u = loop.u - np.logaddexp.reduce(loop.u)
        h = found.up(np.exp(u) * weights, 2) * found.freedom**2
        roots = np.sqrt(np.maximum(h, h.max() * 1e-30))
        mean = float(roots.sum()) ** 2
        shares = roots / roots.sum()
        variances = weights * cell_variances(found, shares, tables)
        largest = float(variances.max())
        if largest < upper:
            best, upper = shares, largest
        if not loop.accept(mean, u, variances / mean):
            continue
        lower = max(lower, mean)
        account.best = upper
        if upper <= lower * (1 + TOLERANCE) or account.over():
            break
        loop.move(LOWEST - np.log(tables))
    return best, upper, lower
