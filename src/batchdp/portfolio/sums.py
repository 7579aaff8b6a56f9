"""The portfolio for Laplace noise and the (weighted) sum of squared errors."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import in_threads, one_thread
from batchdp.privacy import LAPLACE
from batchdp.strategies import families_for
from batchdp.strategies.account import Account, EndedError, PairSearch, Progress, reduction_price
from batchdp.strategies.factors import complete
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.pair import Pair
from batchdp.workloads.reduction import Reduction, reduce
from batchdp.workloads.workload import MatrixWorkload

CLASSES = tuple(a * 10.0**b for b in (-1, 0, 1, 2, 3) for a in (1, 2, 3, 5, 7))
"""The classes of budget: `seconds` is rounded down to one of these."""
NOMINAL_SHARE = 0.8
"""The share of the caller's seconds that is planned with: the account is an estimate of the time of one core."""


@one_thread
def optimize_sum(workload: MatrixWorkload, seconds: float | None, seed: int, progress: Progress | None) -> PairStrategy:
    """The best of all families with Laplace noise, for one block of cells."""
    reduction = reduce(workload)
    if reduction.rank == 0:
        nothing = Pair(np.zeros((0, reduction.columns)), np.zeros((0, 0)))
        return PairStrategy.lifted(reduction, nothing, method="nothing to measure")
    scale = np.sqrt(reduction.columns) / float(np.linalg.norm(reduction.reduced))
    R = reduction.reduced * scale
    account = Account(_nominal(R, seconds), progress)
    search = PairSearch(R, account, scale, thorough=seconds is None)
    if seconds is not None:
        account.charge(reduction_price(workload.queries, reduction.columns))
    with suppress(EndedError):
        _run_families(search, reduction, seed)
    try:
        return PairStrategy.lifted(reduction, search.end(), method=search.method)
    except StrategyError:  # queries or weights of so different sizes that rounding drowns some of them
        return _best_that_holds(workload)


def _run_families(search: PairSearch, reduction: Reduction, seed: int) -> None:
    """Closed forms first, then work where an estimate says it can pay."""
    members = families_for(LAPLACE)
    for family in members:
        for pair in family.on_columns(search.R):
            search.offer_pair(family.name, pair)
    best = search.error / search.scale**2
    named = [
        (family.name, measure)
        for family in members
        for measure in family.over_cells(reduction, best, thorough=search.thorough)
    ]
    exact = in_threads(lambda one: complete(search.R, one[1]), named, entries=search.R.size)
    for (name, _), found in zip(named, exact, strict=True):
        search.keep(name, found)
    if reduction.columns == 1:
        return
    for family in members:
        family.refine(search)
    parts = [family.part(search.R) for family in members]
    for i, family in enumerate(members):
        family.search(search, reduction, seed, parts[i] / sum(parts[i:]) if parts[i] else 0.0)


def _best_that_holds(workload: MatrixWorkload) -> PairStrategy:
    """The best of the closed forms that reproduce the workload to its last digit."""
    found = []
    for family in families_for(LAPLACE):
        for variant in () if family.searches else family.variants():
            with suppress(StrategyError):
                found.append(variant(workload))
    if not found:
        raise StrategyError("no closed form reproduces the workload; rescale queries whose coefficients differ in size")
    return min(found, key=lambda one: one.expected_squared_error(epsilon=1.0))


def _nominal(R: Dense, seconds: float | None) -> float:
    """The budget in nominal seconds."""
    if seconds is not None:
        return NOMINAL_SHARE * max((c for c in CLASSES if c <= seconds), default=CLASSES[0])
    return sum(family.nominal_seconds(R) for family in families_for(LAPLACE))
