"""The low-rank family: several ranks, and the form between low rank and p-Identity."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from batchdp.linalg.matrix import Dense, dense
from batchdp.portfolio.search import Search, low_rank_price, shared_price
from batchdp.strategies.low_rank import fast, solve_fast, working_set
from batchdp.strategies.low_rank.program import Pair, Progress, first_measure

FEW_COLUMNS = 0.1
"""Below this many k² columns low rank is several times worse than noise on data; above 0.7 it usually wins."""
QUICK = 50_000
"""Entries of R up to which it is tried from half as many columns."""
TINY = 400
"""Entries of R up to which every rank is tried with several seeds."""
SMALL = 4000
"""Entries of R up to which the registered mechanism is run even where it can hardly win."""
SLOWER = 1.06
"""Growth of β for those who have time: better, and slower."""


def may_pay(R: Dense) -> bool:
    """Whether low rank can win at all."""
    k, n = R.shape
    return bool(n > FEW_COLUMNS * k * k * (0.5 if k * n <= QUICK else 1.0))


def search_low_rank(search: Search, seed: int) -> None:
    """Spend what is left on low rank."""
    k, n = search.R.shape
    tiny = k * n <= TINY
    seed += 1  # another start than the registered mechanism's, which has just run
    ranks = sorted({k, k + 1, k + 2, 2 * k}) if tiny else [ceil(1.2 * k), k, 2 * k]
    plan = [(rank, trial, fast.SLOW) for trial in range(3 if tiny else 1) for rank in ranks]
    plan += [(k, 1, SLOWER), (k, 2, SLOWER), (ranks[1], 3, SLOWER), (2 * k, 4, SLOWER)]
    hopeless = 0
    for rank, trial, growth in plan:
        few = working_set.pays(n, k, rank)
        # A working set is solved several times over, from a warm start; the growing set and the checks are in the 1.5.
        price = _price(k, 1.5 * working_set.SHARE * rank * k if few else n, rank)
        rounds = (170 if growth == SLOWER else 120) * (1.7 if few else 1.0)
        if search.left < rounds * price and not (tiny and search.left > 0):
            continue
        penalty = (0.1 if tiny else 0.03) * rank
        doing = f"low-rank, {rank} measurements"
        if few:
            found = _run_few(search, rank, penalty, growth, price, doing, seed + trial)
        else:
            start = first_measure(search.R, rank, np.random.default_rng(seed + trial))
            found = _run(search, start, penalty, growth, 1.3 * search.error, price, doing)
        if found is None:
            hopeless += 1
            if hopeless >= 2:
                return
            continue
        if k > 1 and not few and not (tiny and trial > 0):
            _with_singles(search, found, (0.4, 0.1, 0.5) if trial == 0 else (0.1,))


def search_registered(search: Search, R: Dense) -> bool:
    """What STRATEGIES offers for the workload as it stands: never be worse. Not charged: it takes what it takes.

    False if it was hopeless.
    """
    k, n = R.shape
    if not search.thorough or (k * n > SMALL and not may_pay(R)):
        return True
    rank = ceil(1.2 * k)
    # While the residual shrinks ‖B‖² grows, so a long run that is far above the best so far need not end.
    hopeless = np.inf if k * n <= SMALL else 1.3 * search.error / search.scale**2
    pair = solve_fast(R, rank, 0.0, seed=0, give_up_above=hopeless)
    if pair is not None:
        search.rounds += fast.STEPS * pair.rounds
        search.offer("low-rank", pair.measure, f"low-rank, {rank} measurements")
    return pair is not None


def improve_baseline(search: Search) -> None:
    """Start the low-rank program at the best measure so far, if that is not noise on data."""
    k, n = search.R.shape
    if search.best is None or search.best.method == "noise-on-data" or search.best.measure.shape[0] >= n:
        return
    start, rank = dense(search.best.measure), search.best.measure.shape[0]
    price = _price(k, n, rank)
    if 80 * price <= 0.5 * search.budget:
        _run(search, start, float(rank), fast.SLOW, search.error, price, f"low-rank from {search.best.method}")


def _with_singles(search: Search, measure: Dense, diagonals: tuple[float, ...]) -> None:
    """Give single columns a measurement of their own: the farther low rank is from the best, the more need one."""
    k, n = search.R.shape
    rank = len(measure)
    price = 1.5 * fast.STEPS * shared_price(k, n, rank)
    for diagonal in diagonals:
        if search.left < 45 * price:
            return
        start = np.vstack([np.full(n, diagonal), (1 - diagonal) * measure])
        doing = f"low-rank, {rank} shared measurements and single columns"
        _run(search, start, 0.3 * rank, fast.SLOW, search.error, price, doing, fast.WithSingles())


def _price(k: int, n: float, rank: int) -> float:
    """One round: 1.2 evaluations a step, half of them in single precision."""
    return 0.9 * fast.STEPS * low_rank_price(k, int(n), rank)


def _run_few(
    search: Search, rank: int, penalty: float, growth: float, price: float, doing: str, seed: int
) -> Dense | None:
    """One run on working sets of columns, as `_run`."""

    def solve(watch: Progress) -> Pair | None:
        return working_set.solve(
            search.R,
            rank,
            penalty=penalty,
            seed=seed,
            growth=growth,
            give_up_above=1.3 * search.error,
            progress=watch,
        )

    return _entered(search, solve, price, doing)


def _run(
    search: Search,
    start: Dense,
    penalty: float,
    growth: float,
    give_up_above: float,
    price: float,
    doing: str,
    form: fast.Form | None = None,
) -> Dense | None:
    """One run of the augmented Lagrangian, entered in the account; its measure unless it was given up."""

    def solve(watch: Progress) -> Pair | None:
        return fast.solve(
            search.R,
            start,
            form=form,
            penalty=penalty,
            growth=growth,
            give_up_above=give_up_above,
            progress=watch,
        )

    return _entered(search, solve, price, doing)


def _entered(search: Search, solve: Callable[[Progress], Pair | None], price: float, doing: str) -> Dense | None:
    rounds = 0

    def watch(round_: int, residual: float, size: float) -> None:
        nonlocal rounds
        rounds = round_

    pair = solve(watch)
    search.charge(rounds, price)
    if pair is None:
        search.tell(doing)
        return None
    search.offer("low-rank", pair.measure, doing)
    return pair.measure
