"""What a search knows so far, and what it has spent.

Work is counted in nominal seconds, from the sizes of the products it takes, never by the clock: the same workload,
seed and class of budget give the same strategy on every run. The clock is only a far safety limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from batchdp.linalg.matrix import Dense, Plain, column_norms, dense_product
from batchdp.strategies.low_rank.program import EXACT, completed
from batchdp.strategies.p_identity.packed import reconstruct, unpack

Progress = Callable[[float, str, float], object]
"""Called with (share of the budget spent, what is being tried, best total expected squared error at ε = 1).

A true answer ends the search with the best strategy so far.
"""

PATIENCE = 10
"""How many times the nominal budget the clock may run."""
FLOPS = 3e10
"""What one core does in a second."""


class EndedError(Exception):
    """The observer asked to end, or the safety limit has passed; never leaves the portfolio."""


@dataclass(frozen=True, eq=False)
class Found:
    """A strategy for the reduced workload, exact to rounding and of sensitivity 1."""

    method: str
    measure: Plain
    reconstruct: Dense

    @cached_property
    def error(self) -> float:
        """‖B‖²_F, half the expected squared error at ε = 1."""
        return float(np.vdot(self.reconstruct, self.reconstruct))


@dataclass(eq=False)
class Search:
    """The best strategy so far for a reduced workload R, and the account of work done."""

    R: Dense
    budget: float
    progress: Progress | None = None
    scale: float = 1.0
    """R is the workload times this."""
    thorough: bool = True
    """Whether the registered mechanisms are run as they stand, which takes the time it takes."""
    spent: float = 0.0
    rounds: int = 0
    best: Found | None = None
    status: str = "budget spent"
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + PATIENCE * max(self.budget, 2.0)

    @property
    def error(self) -> float:
        """‖B‖²_F of the best strategy so far."""
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
        """Keep a measure of a family if its exact strategy is the best so far."""
        self.keep(self.completed(method, measure), doing or method)

    def completed(self, method: str, measure: Dense) -> Found | None:
        """A measure with its best reconstruction, or None if it has none."""
        pair = completed(self.R, measure)
        return None if pair is None else Found(method, pair.measure, pair.reconstruct)

    def offer_packed(self, method: str, packed: Dense, doing: str = "") -> None:
        """Keep [diag(d); Θ] of sensitivity 1, given as rows d, Θ, if it is the best so far."""
        B = reconstruct(self.R, packed)
        self.offer_pair(method, unpack(packed), B, doing)

    def offer_pair(self, method: str, measure: Plain, reconstruct: Dense | None, doing: str = "") -> None:
        """Keep a pair if it is exact and the best so far."""
        found = None
        if reconstruct is not None:
            sensitivity = float(column_norms(measure, 1).max())
            scaled = measure * (1 / sensitivity)
            found = Found(method, scaled, reconstruct * sensitivity)
            if found.error >= self.error or not _exact(self.R, found):
                found = None
        self.keep(found, doing or method)

    def keep(self, found: Found | None, doing: str) -> None:
        """Keep an exact strategy if it is the best so far."""
        if found is not None and found.error < self.error * (1 - 1e-12):
            self.best = found
        self.tell(doing)

    def tell(self, doing: str) -> None:
        """Report to the observer."""
        share = min(1.0, self.spent / self.budget)
        if self.progress is not None and self.progress(share, doing, 2 * self.error / self.scale**2):
            self.status = "cancelled"
            raise EndedError
        if time.monotonic() > self.deadline:
            self.status = "out of time"
            raise EndedError


def _exact(R: Dense, found: Found) -> bool:
    miss = np.linalg.norm(R - dense_product(found.reconstruct, found.measure))
    return bool(miss <= EXACT * np.linalg.norm(R))


def reduction_price(queries: int, columns: int) -> float:
    """The singular values of the merged workload, and the strategies in closed form for it."""
    return 7e-10 * min(queries, columns) ** 2 * max(queries, columns) + 8e-7 * queries * columns


def shared_price(k: int, n: int, p: int, work: int | None = None) -> float:
    """One round of p-Identity with p shared queries: two products with R, p × p systems, passes over p n numbers.

    `work` is how many entries a dense matrix has that is as dear as R; k n if left out.
    """
    entries = k * n if work is None else work
    return 2e-4 + 4.0 * p * (entries + p * (k + n)) / FLOPS + 1.2e-9 * entries + 8e-8 * n * p


def dense_price(k: int, n: int, r: int) -> float:
    """One evaluation with all r × n entries free: Gram matrix, Cholesky, solve, two products."""
    return 3e-4 + (r * n * n + n**3 / 3 + 2.0 * n * n * k + 4.0 * r * n * k) / FLOPS + 4e-8 * r * n


def low_rank_price(k: int, n: int, r: int) -> float:
    """One ridge regression with its projection."""
    return 3e-4 + (2.0 * r * r * n + 6.0 * r * k * n + r**3) / FLOPS + 3e-8 * r * n
