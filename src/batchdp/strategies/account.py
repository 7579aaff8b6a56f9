"""The account of a search: work in nominal seconds, by the sizes of what is multiplied, never by the clock.

So the same workload, seed and class of budget give the same strategy on every run, however busy the machine is. Every
search has prices of its own, in its settings or beside its loops; `benchmarks/tuning.py` measures those of families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.strategies.pair import complete, is_exact, scale_to_one
from batchdp.text import Outcome
from batchdp.workloads.matrix import Pair

FLOPS = 3e10
"""Floating-point operations that one core does in a nominal second, inside BLAS."""

Progress = Callable[[float, str, float], object]
"""Called with (share of the budget spent, what is being tried, best total expected squared error at ε = 1).

A true answer ends the search with the best strategy so far.
"""


def reduction_price(queries: int, columns: int) -> float:
    """The singular values of the merged workload, and the strategies in closed form for it."""
    return 7e-10 * min(queries, columns) ** 2 * max(queries, columns) + 8e-7 * queries * columns


@dataclass(eq=False)
class Account:
    """Nominal seconds that may be spent and those that were, and the observer who may end the search."""

    budget: float = np.inf
    progress: Progress | None = None
    within: Account | None = None
    """The account that this one is a share of: what is spent here is spent there too."""
    spent: float = 0.0
    trying: str = ""
    """For the observer, as the next is."""
    best: float = np.inf
    cancelled: bool = False
    """Whether the observer asked to end."""
    lasting: bool = False
    """Whether it is never over: what is begun with it is done to its end."""

    @property
    def left(self) -> float:
        """The nominal seconds that are left."""
        return self.budget - self.spent

    def share(self, seconds: float) -> Account:
        """An account of its own for some part of the work."""
        return Account(seconds, within=self)

    def lasting_share(self) -> Account:
        """An account for work that is done to its end once it is begun, and charged all the same."""
        return Account(within=self, lasting=True)

    def charge(self, seconds: float) -> None:
        """Enter work that was done."""
        self.spent += seconds
        if self.within is not None:
            self.within.charge(seconds)

    def tell(self) -> bool:
        """Report to the observer; whether they ask, or have asked, to end."""
        if self.progress is not None and not self.cancelled:
            share = self.spent / self.budget if self.budget > 0 else 1.0
            self.cancelled = bool(self.progress(min(1.0, share), self.trying, self.best))
        return self.cancelled

    def over(self) -> bool:
        """Whether to stop: the work is done, here or where this is a share of, or the observer asks to end."""
        if self.lasting:
            return False
        return self.left <= 0 or (self.tell() if self.within is None else self.within.over())

    def outcome(self, found: float, proven: float) -> Outcome:
        """How a search ended whose best is this, where what is at most `proven` is optimal."""
        if found <= proven:
            return Outcome.OPTIMAL
        if self.cancelled:
            return Outcome.CANCELLED
        return Outcome.BUDGET_SPENT if self.left <= 0 else Outcome.CONVERGED


UNLIMITED = Account()
"""Nobody's: for work that is not counted."""


class EndedError(Exception):
    """The observer asked to end; never leaves the portfolio."""


@dataclass(eq=False)
class PairSearch:
    """A search for the best pair of a reduced workload R: what it knows so far, and its account."""

    R: Dense
    """The reduced workload, times `scale`."""
    account: Account
    scale: float = 1.0
    thorough: bool = True
    """Whether the registered functions are run as they stand, which takes the time it takes."""
    rounds: int = field(default=0, init=False)
    best: Pair | None = field(default=None, init=False)
    """Of sensitivity 1, and exact to rounding."""
    method: str = field(default="", init=False)
    """The family that found the best pair."""

    @property
    def error(self) -> float:
        """‖B‖²_F of the best pair so far."""
        return np.inf if self.best is None else self.best.error

    def charge(self, rounds: int, price: float) -> None:
        """Enter work of so many rounds at a price each."""
        self.rounds += rounds
        self.account.charge(rounds * price)

    def offer(self, method: str, measure: Dense, doing: str = "") -> None:
        """Keep a measure of a family if its exact pair is the best so far."""
        self.keep(method, complete(self.R, measure), doing)

    def offer_pair(self, method: str, pair: Pair | None) -> None:
        """Keep a pair of any sensitivity if it is exact and the best so far."""
        if pair is not None:
            pair = scale_to_one(pair)
            pair = pair if pair.error < self.error and is_exact(self.R, pair) else None
        self.keep(method, pair)

    def keep(self, method: str, pair: Pair | None, doing: str = "") -> None:
        """Keep an exact pair of sensitivity 1 if it is the best so far."""
        if pair is not None and pair.error < self.error * (1 - 1e-12):
            self.best, self.method = pair, method
        self.tell(doing or method)

    def tell(self, doing: str) -> None:
        """Report to the observer, who may end the search by that."""
        self.account.trying, self.account.best = doing, 2 * self.error / self.scale**2
        if self.account.tell():
            raise EndedError

    def end(self) -> Pair:
        """The best pair, for the workload before it was scaled, and how the search ended."""
        assert self.best is not None  # noise on data is always there
        outcome = Outcome.CANCELLED if self.account.cancelled else Outcome.BUDGET_SPENT
        return replace(self.best, reconstruct=self.best.reconstruct / self.scale, outcome=outcome, rounds=self.rounds)
