"""What a search knows so far, and what it has spent.

Work is counted in nominal seconds, from the sizes of the products it takes, never by the clock: the same workload,
seed and class of budget give the same strategy on every run. The clock is only a far safety limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.outcome import Outcome
from batchdp.strategies.completion import completed, is_exact, scaled
from batchdp.workloads.pair import Pair

Progress = Callable[[float, str, float], object]
"""Called with (share of the budget spent, what is being tried, best total expected squared error at ε = 1).

A true answer ends the search with the best strategy so far.
"""

PATIENCE = 10
"""How many times the nominal budget the clock may run."""
_patience: ContextVar[float] = ContextVar("patience")


@contextmanager
def without_clock() -> Iterator[None]:
    """Let the account alone end searches: for experiments, which a busy machine must not change."""
    token = _patience.set(inf)
    try:
        yield
    finally:
        _patience.reset(token)


class EndedError(Exception):
    """The observer asked to end, or the safety limit has passed; never leaves the portfolio."""


@dataclass(eq=False)
class Search:
    """The best pair so far for a reduced workload R, and the account of work done."""

    R: Dense
    budget: float
    progress: Progress | None = None
    scale: float = 1.0
    """R is the workload times this."""
    thorough: bool = True
    """Whether the registered functions are run as they stand, which takes the time it takes."""
    spent: float = 0.0
    rounds: int = 0
    best: Pair | None = None
    """Of sensitivity 1, and exact to rounding."""
    method: str = ""
    """The family that found the best pair."""
    outcome: Outcome = Outcome.BUDGET_SPENT
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + _patience.get(PATIENCE) * max(self.budget, 2.0)

    @property
    def error(self) -> float:
        """‖B‖²_F of the best pair so far."""
        return np.inf if self.best is None else self.best.error

    @property
    def left(self) -> float:
        """Nominal seconds."""
        return self.budget - self.spent

    def charge(self, rounds: int, price: float) -> None:
        """Enter work of so many rounds."""
        self.rounds += rounds
        self.spent += rounds * price

    def offer(self, method: str, measure: Dense, doing: str = "") -> None:
        """Keep a measure of a family if its exact pair is the best so far."""
        self.keep(method, completed(self.R, measure), doing)

    def offer_pair(self, method: str, pair: Pair | None, doing: str = "") -> None:
        """Keep a pair of any sensitivity if it is exact and the best so far."""
        if pair is not None:
            pair = scaled(pair)
            pair = pair if pair.error < self.error and is_exact(self.R, pair) else None
        self.keep(method, pair, doing)

    def keep(self, method: str, pair: Pair | None, doing: str = "") -> None:
        """Keep an exact pair of sensitivity 1 if it is the best so far."""
        if pair is not None and pair.error < self.error * (1 - 1e-12):
            self.best, self.method = pair, method
        self.tell(doing or method)

    def tell(self, doing: str) -> None:
        """Report to the observer."""
        share = min(1.0, self.spent / self.budget)
        if self.progress is not None and self.progress(share, doing, 2 * self.error / self.scale**2):
            self.outcome = Outcome.CANCELLED
            raise EndedError
        if time.monotonic() > self.deadline:
            self.outcome = Outcome.OUT_OF_TIME
            raise EndedError

    def end(self) -> Pair:
        """The best pair, for the workload before it was scaled, and how the search ended."""
        assert self.best is not None  # noise on data is always there
        return replace(
            self.best, reconstruct=self.best.reconstruct / self.scale, outcome=self.outcome, rounds=self.rounds
        )
