"""The family's function, Formula (7) or (8) for one number of measurements, and the search over several of them.

`optimize` spends work on that search, which also has the form between low rank and p-Identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import StrategyError, check_finite, check_whole
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.families.low_rank import fast, paper
from batchdp.optimizer.families.low_rank.fast import SETTINGS, Full, Progress, Settings, first_measure
from batchdp.optimizer.family import Family
from batchdp.strategies.account import PairSearch
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.pair import PairStrategy, complete
from batchdp.text import Outcome
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import Reduction, reduce

ALGORITHMS = ("fast", "paper")


@one_thread
def low_rank(
    workload: MatrixWorkload | ArrayLike | Any,
    rank: int | None = None,
    relaxation: float = 0.0,
    algorithm: Literal["fast", "paper"] = "fast",
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> PairStrategy:
    """Minimise ‖B‖²_F subject to W = B L and columns of L of L1 norm at most 1 (Formula 7).

    Args:
        workload: W.
        rank: r, the number of measurements; if left out, ceil(1.2 rank(W)). It is at least rank(W) unless relaxed.
        relaxation: γ. Above 0, ‖W − B L‖_F may be up to γ (Formula 8); the strategy then carries the structural error,
            and asks for a bound on Σ x² when it reports an expected error.
        algorithm: "fast", or "paper" for Algorithms 1 and 2 as printed, without merging columns.
        seed: decides the random rotation at the start.
        progress: called with (round, relative residual, ‖B‖²_F). If it returns something true, the search ends early.
    """
    workload = as_workload(workload)
    if len(workload.blocks) > 1 and rank is None and relaxation == 0:
        # A rank or a relaxation of the caller's is one for the whole matrix.
        return block_by_block(low_rank)(workload, algorithm=algorithm, seed=seed, progress=progress)
    if algorithm not in ALGORITHMS:
        raise StrategyError(f'algorithm={algorithm!r} must be "fast" or "paper"')
    relaxation = check_finite("relaxation", relaxation, least=0)
    seed = check_whole("seed", seed, 0)
    # ‖W − B L‖_F counts every cell, so a relaxed problem keeps them all.
    reduction = reduce(workload, merge=algorithm == "fast" and relaxation == 0)
    R, k = reduction.reduced, reduction.rank
    r = _checked_rank(rank, k, relaxation)
    if k == 0:
        nothing = Pair(np.zeros((0, reduction.columns)), np.zeros((0, 0)))
        return PairStrategy.lifted(reduction, nothing, method="low-rank")
    # The lightest query's residual counts least in the weighted problem, and as much as any in ‖W − B L‖_F.
    gamma = relaxation if workload.weights is None else relaxation * float(np.sqrt(workload.weights.min()))
    solve = paper.solve if algorithm == "paper" else solve_fast
    pair = solve(R, r, gamma, seed, progress)
    if relaxation > 0 and r >= k:
        exact = solve(R, r, 0.0, seed, progress)  # within γ too, and sometimes better
        pair = exact if pair is None or (exact is not None and exact.error < pair.error) else pair
    if pair is None and relaxation > 0 and r < k:
        raise StrategyError(f"relaxation={relaxation!r} was not reached with rank={r}; raise one of the two")
    if pair is None or (algorithm == "fast" and relaxation == 0 and pair.outcome is not Outcome.CONVERGED):
        pair = fallback(reduction, r, seed, pair)
    return PairStrategy.lifted(reduction, pair, method="low-rank", relaxation=relaxation)


def fallback(reduction: Reduction, rank: int, seed: int, found: Pair | None) -> Pair:
    """What is left of a run that was cancelled early or lost a direction for good: the best pair that is at hand.

    The start is exact (Lemma 3), and so are the queries themselves where there are measurements enough for them.
    """
    R = reduction.reduced
    start = complete(R, first_measure(R, rank, np.random.default_rng(seed)), outcome=Outcome.START)
    queries = None
    if reduction.workload.queries <= rank:
        queries = complete(R, reduction.merged_workload(), outcome=Outcome.QUERIES)
    return min((pair for pair in (found, start, queries) if pair is not None), key=lambda pair: pair.error)


def solve_fast(
    R: Dense,
    rank: int,
    relaxation: float,
    seed: int,
    progress: Progress | None = None,
    give_up_above: float = np.inf,
    settings: Settings = SETTINGS,
) -> Pair | None:
    """By a careful schedule; by a quick one too where that costs little or the careful one fails.

    None if neither can come below `give_up_above` in ‖B‖²_F.
    """
    best: Pair | None = None
    cancelled = False

    def watch(round_: int, residual: float, size: float) -> bool:
        nonlocal cancelled
        cancelled = bool(progress and progress(round_, residual, size))
        return cancelled

    for penalty in (0.03, 0.3):  # the low one is nearly always better, the other quicker
        bar = give_up_above if best is None else best.error
        beta = penalty * rank
        rules = fast.Rules(beta, settings.slow, relaxation=relaxation, give_up_above=bar, settings=settings)
        if relaxation == 0 and fast.pays(R.shape[1], len(R), rank):
            pair = fast.solve_working_set(R, rank, rules, seed=seed, progress=watch)
        else:
            start = first_measure(R, rank, np.random.default_rng(seed))
            pair = fast.solve(R, start, rules, progress=watch)
        best = pair if pair is not None and pair.error < bar else best
        done = best is not None and best.outcome is Outcome.CONVERGED
        if cancelled or (done and R.size > settings.small):
            break
    return best


def _checked_rank(rank: int | None, rank_of_workload: int, relaxation: float) -> int:
    if rank is None:
        return max(1, ceil(1.2 * rank_of_workload))
    rank = check_whole("rank", rank, 1)
    if rank < rank_of_workload and relaxation == 0:
        raise StrategyError(
            f"rank={rank} is below the workload's rank {rank_of_workload}: no such pair reproduces it; "
            "raise it, or allow a relaxation"
        )
    return rank


NAME = "low-rank"
SLOWER = 1.06
"""Growth of β for those who have time: better, and slower."""
TINY, SMALL_PROBLEM = 400, 4000
"""Entries of R up to which every rank is tried with several seeds; and up to which the registered function is run even
where it can hardly win."""
MOST_CELLS = 64
"""Cells up to which the same holds for the largest error."""
HOPELESS = 1.3
"""Multiple of the best ‖B‖²_F so far above which a run is given up."""


def may_pay(R: Dense) -> bool:
    """Whether low rank can win at all: with fewer columns it is several times worse than noise on data.

    From 0.7 k² columns on it usually wins. Where it costs little it is tried from half as many.
    """
    k, n = R.shape
    return bool(n > 0.1 * k * k * (0.5 if k * n <= 50_000 else 1.0))


def improve_best(search: PairSearch, settings: Settings) -> None:
    """Start the low-rank program at the best measure so far, if that has fewer rows than columns."""
    k, n = search.R.shape
    if search.best is None or search.best.measure.shape[0] >= n:
        return
    start, rank = dense(search.best.measure), search.best.measure.shape[0]
    price = settings.price(k, n, rank)
    if 80 * price <= 0.5 * search.account.budget:
        rules = fast.Rules(float(rank), settings.slow, give_up_above=search.error, settings=settings)
        _Ranks(search, settings).run(start, rules, price, f"{NAME} from {search.method}")


@dataclass(frozen=True, eq=False)
class _Ranks:
    search: PairSearch
    settings: Settings

    def registered(self, R: Dense) -> bool:
        """What STRATEGIES offers for the workload as it stands: never be worse. Not charged: it takes what it takes.

        False if it was hopeless.
        """
        k, n = R.shape
        search, settings = self.search, self.settings
        if not search.thorough or (k * n > SMALL_PROBLEM and not may_pay(R)):
            return True
        rank = ceil(1.2 * k)
        # While the residual shrinks ‖B‖² grows, so a long run that is far above the best so far need not end.
        long = k * n > SMALL_PROBLEM
        hopeless = HOPELESS * search.error / search.scale**2 if long else np.inf
        pair = solve_fast(R, rank, 0.0, seed=0, give_up_above=hopeless, settings=settings)
        if pair is not None:
            search.rounds += settings.steps * pair.rounds
            search.offer(NAME, dense(pair.measure), f"{NAME}, {rank} measurements")
        return pair is not None

    def others(self, seed: int) -> None:
        """Spend what is left."""
        settings, (k, n) = self.settings, self.search.R.shape
        tiny = k * n <= TINY
        seed += 1  # another start than the registered function's, which has just run
        hopeless = 0
        for rank, trial, growth in self._plan(k, tiny):
            few = fast.pays(n, k, rank)
            # A working set is solved several times over, from a warm start; the growing set and the checks are in the
            # 1.5.
            price = settings.price(k, 1.5 * fast.WORKING_COLUMNS * rank * k if few else n, rank)
            rounds = (170 if growth == SLOWER else 120) * (1.7 if few else 1.0)
            if self.search.account.left < rounds * price and not (tiny and self.search.account.left > 0):
                continue
            bar, first = HOPELESS * self.search.error, (0.1 if tiny else 0.03) * rank
            rules = fast.Rules(first, growth, give_up_above=bar, settings=settings)
            doing = f"{NAME}, {rank} measurements"
            if few:
                found = self._entered(
                    partial(fast.solve_working_set, self.search.R, rank, rules, seed=seed + trial), price, doing
                )
            else:
                start = first_measure(self.search.R, rank, np.random.default_rng(seed + trial))
                found = self.run(start, rules, price, doing)
            if found is None:
                hopeless += 1
                if hopeless >= 2:
                    return
            elif k > 1 and not few and not (tiny and trial > 0):
                self._with_singles(found, (0.4, 0.1, 0.5) if trial == 0 else (0.1,))

    def _plan(self, k: int, tiny: bool) -> list[tuple[int, int, float]]:
        """Ranks, trials and growths of β, in the order in which they are tried."""
        slow = self.settings.slow
        ranks = sorted({k, k + 1, k + 2, 2 * k}) if tiny else [ceil(1.2 * k), k, 2 * k]
        plan = [(rank, trial, slow) for trial in range(3 if tiny else 1) for rank in ranks]
        return [*plan, (k, 1, SLOWER), (k, 2, SLOWER), (ranks[1], 3, SLOWER), (2 * k, 4, SLOWER)]

    def _with_singles(self, measure: Dense, diagonals: tuple[float, ...]) -> None:
        """Give single columns a measurement of their own: the farther low rank is from the best, the more need one."""
        search, settings, (k, n) = self.search, self.settings, self.search.R.shape
        rank = len(measure)
        price = settings.singles_price(k, n, rank)
        for diagonal in diagonals:
            if search.account.left < 45 * price:
                return
            start = np.vstack([np.full(n, diagonal), (1 - diagonal) * measure])
            doing = f"{NAME}, {rank} shared measurements and single columns"
            rules = fast.Rules(0.3 * rank, settings.slow, give_up_above=search.error, settings=settings)
            self.run(start, rules, price, doing, fast.WITH_SINGLES)

    def run(self, start: Dense, rules: fast.Rules, price: float, doing: str, form: Full = fast.FULL) -> Dense | None:
        """One run of the augmented Lagrangian, entered in the account; its measure unless it was given up."""
        return self._entered(partial(fast.solve, self.search.R, start, rules, form=form), price, doing)

    def _entered(self, solve: Callable[..., Pair | None], price: float, doing: str) -> Dense | None:
        rounds = 0

        def watch(round_: int, residual: float, size: float) -> None:
            nonlocal rounds
            rounds = round_

        pair = solve(progress=watch)
        self.search.charge(rounds, price)
        if pair is None:
            self.search.tell(doing)
            return None
        self.search.offer(NAME, dense(pair.measure), doing)
        return dense(pair.measure)


@final
@dataclass(frozen=True, eq=False)
class _LowRank(Family):
    settings: Settings = SETTINGS

    def worth(self, reduction: Reduction) -> bool:
        return may_pay(reduction.reduced) or reduction.workload.cells <= MOST_CELLS

    def refine(self, search: PairSearch) -> None:
        improve_best(search, self.settings)

    def search(self, search: PairSearch, reduction: Reduction, seed: int, share: float) -> None:
        """The registered function first, then what is left on other ranks and starts."""
        ranks = _Ranks(search, self.settings)
        if ranks.registered(reduction.reduced) and share > 0:
            ranks.others(seed)

    def part(self, R: Dense) -> float:
        return self.settings.part if may_pay(R) else 0.0

    def nominal_seconds(self, R: Dense) -> float:
        return min(0.3 + 2e-4 * R.size, 20.0) if may_pay(R) else 0.0


LOW_RANK = _LowRank(NAME, low_rank, searches=True, mixes=True)
