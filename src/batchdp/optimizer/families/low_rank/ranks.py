"""The search that `optimize` spends work on: several ranks, and the form between low rank and p-Identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from batchdp.linalg.matrix import Dense, dense
from batchdp.optimizer.families.low_rank import fast
from batchdp.optimizer.families.low_rank.fast import Progress, first_measure
from batchdp.optimizer.families.low_rank.mechanism import solve_fast
from batchdp.optimizer.families.low_rank.settings import Settings
from batchdp.strategies.account import PairSearch
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import Reduction

NAME = "low-rank"


def may_pay(R: Dense, settings: Settings) -> bool:
    """Whether low rank can win at all."""
    k, n = R.shape
    return bool(n > settings.few_columns * k * k * (0.5 if k * n <= settings.quick else 1.0))


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


def search_low_rank(search: PairSearch, reduction: Reduction, seed: int, share: float, settings: Settings) -> None:
    """The registered function first, then what is left on other ranks and starts."""
    ranks = _Ranks(search, settings)
    if ranks.registered(reduction.reduced) and share > 0:
        ranks.others(seed)


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
        if not search.thorough or (k * n > settings.small_problem and not may_pay(R, settings)):
            return True
        rank = ceil(1.2 * k)
        # While the residual shrinks ‖B‖² grows, so a long run that is far above the best so far need not end.
        long = k * n > settings.small_problem
        hopeless = settings.hopeless * search.error / search.scale**2 if long else np.inf
        pair = solve_fast(R, rank, 0.0, seed=0, give_up_above=hopeless, settings=settings)
        if pair is not None:
            search.rounds += settings.steps * pair.rounds
            search.offer(NAME, dense(pair.measure), f"{NAME}, {rank} measurements")
        return pair is not None

    def others(self, seed: int) -> None:
        """Spend what is left."""
        settings, (k, n) = self.settings, self.search.R.shape
        tiny = k * n <= settings.tiny
        seed += 1  # another start than the registered function's, which has just run
        hopeless = 0
        for rank, trial, growth in self._plan(k, tiny):
            few = fast.pays(n, k, rank, settings)
            # A working set is solved several times over, from a warm start; the growing set and the checks are in the
            # 1.5.
            price = settings.price(k, 1.5 * settings.working_columns * rank * k if few else n, rank)
            rounds = (170 if growth == settings.slower else 120) * (1.7 if few else 1.0)
            if self.search.account.left < rounds * price and not (tiny and self.search.account.left > 0):
                continue
            rules = fast.Rules(
                (0.1 if tiny else 0.03) * rank,
                growth,
                give_up_above=settings.hopeless * self.search.error,
                settings=settings,
            )
            doing = f"{NAME}, {rank} measurements"
            if few:
                found = self._run_few(rank, rules, price, doing, seed + trial)
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
        slow, slower = self.settings.slow, self.settings.slower
        ranks = sorted({k, k + 1, k + 2, 2 * k}) if tiny else [ceil(1.2 * k), k, 2 * k]
        plan = [(rank, trial, slow) for trial in range(3 if tiny else 1) for rank in ranks]
        return [*plan, (k, 1, slower), (k, 2, slower), (ranks[1], 3, slower), (2 * k, 4, slower)]

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
            self.run(start, rules, price, doing, fast.WithSingles())

    def run(
        self, start: Dense, rules: fast.Rules, price: float, doing: str, form: fast.Form | None = None
    ) -> Dense | None:
        """One run of the augmented Lagrangian, entered in the account; its measure unless it was given up."""
        R = self.search.R
        return self._entered(lambda watch: fast.solve(R, start, rules, form=form, progress=watch), price, doing)

    def _run_few(self, rank: int, rules: fast.Rules, price: float, doing: str, seed: int) -> Dense | None:
        """One run on working sets of columns, as `run`."""
        R = self.search.R
        return self._entered(
            lambda watch: fast.solve_working_set(R, rank, rules, seed=seed, progress=watch), price, doing
        )

    def _entered(self, solve: Callable[[Progress], Pair | None], price: float, doing: str) -> Dense | None:
        rounds = 0

        def watch(round_: int, residual: float, size: float) -> None:
            nonlocal rounds
            rounds = round_

        pair = solve(watch)
        self.search.charge(rounds, price)
        if pair is None:
            self.search.tell(doing)
            return None
        self.search.offer(NAME, dense(pair.measure), doing)
        return dense(pair.measure)
