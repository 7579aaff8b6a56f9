"""The family's function: random starts of several p, the best of them run to the end.

L = [I; Θ] with every column divided by 1 + Σ|Θ|, so that all columns have L1 norm 1. Here it works on the
merged columns of the reduced workload R, whose signs are aligned, so that a non-negative Θ serves signed
workloads as well. An evaluation costs O(k p n): no n × n matrix appears.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import check_whole
from batchdp.linalg.descent import Reached
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import in_threads, one_thread
from batchdp.optimizer.families.p_identity.problem import Products, error, minimise, pack, products, reconstruct, unpack
from batchdp.strategies.account import FLOPS
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.pair import PairStrategy
from batchdp.text import Outcome
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import reduce


@dataclass(frozen=True)
class Settings:
    """What is tuned and what is measured, by `benchmarks/tuning.py`; counts are of shared queries, runs or rounds."""

    screening_rounds: int = 60
    """Rounds of the registered function's first look at a start: enough to tell a good p from a bad one."""
    polished: int = 2
    """Screened starts that the registered function runs to the end."""
    most_shared_at_start: int = 48
    """Shared queries that a start of the tournament has at the most; splitting leads to more."""
    survivors: int = 8
    """Starts that are run on after the screening."""
    finalists: int = 3
    """Runs that are polished."""
    hop_rounds: int = 50
    """Rounds after a change by hand."""
    useless_hops: int = 24
    """Changes by hand in a row that may lead nowhere before hopping ends."""
    part: float = 0.3
    """Of the work that is left, where low rank (0.7) may win as well."""

    round_seconds: float = 2e-4
    """Nominal seconds of a round whatever its size: the calls themselves. Measured, as the others are."""
    entry_seconds: float = 1.2e-9
    """Nominal seconds for every entry of R and round, beside the products."""
    variable_seconds: float = 8e-8
    """Nominal seconds for every entry of Θ and round: the passes of the quasi-Newton method."""
    dense_round_seconds: float = 3e-4
    """Nominal seconds of a round with every entry of L free, whatever its size."""
    dense_variable_seconds: float = 4e-8
    """Nominal seconds for every entry of L in such a round."""

    def price(self, k: int, n: int, p: int, work: int) -> float:
        """One round with p shared queries: two products with R, p × p systems, passes over p n numbers.

        `work` is how many entries a dense matrix has that is as dear as R.
        """
        products = 4.0 * p * (work + p * (k + n)) / FLOPS
        return self.round_seconds + products + self.entry_seconds * work + self.variable_seconds * n * p

    def dense_price(self, k: int, n: int, r: int) -> float:
        """One evaluation with all r × n entries free: Gram matrix, Cholesky, solve, two products."""
        products = (r * n * n + n**3 / 3 + 2.0 * n * n * k + 4.0 * r * n * k) / FLOPS
        return self.dense_round_seconds + products + self.dense_variable_seconds * r * n

    def nominal_seconds(self, entries: int) -> float:
        """What a search of a problem with so many entries of R asks for: small ones profit early, large ones late."""
        return 0.55 + min(1.4e-5 * entries, 2.0) + min(1e-5 * entries, 55.0)


SETTINGS = Settings()
START_SUM = 8.0
"""Twice the sum of a column of a start with many rows: no strategy that was seen shares more of its budget."""


@one_thread
@block_by_block
def p_identity(
    workload: MatrixWorkload | ArrayLike | Any,
    *,
    shared: int | None = None,
    signed: bool = False,
    seed: int = 0,
    max_rounds: int = 400,
) -> PairStrategy:
    """The best p-Identity strategy from several starts; never worse than merged noise on data.

    Args:
        shared: p, how many shared queries; several are tried if left out.
        signed: whether shared queries may have negative coefficients.
        seed: of the random starts.
        max_rounds: of the quasi-Newton method, for each start that is run to the end.
    """
    workload = as_workload(workload)
    shared = None if shared is None else check_whole("shared", shared, 1)
    seed, max_rounds = check_whole("seed", seed, 0), check_whole("max_rounds", max_rounds, 1)
    reduction = reduce(workload)
    if reduction.rank == 0:
        return PairStrategy.lifted(reduction, Pair(np.zeros((0, 0)), np.zeros((0, 0))), method="p-identity")
    found = several_starts(products(reduction), shared=shared, signed=signed, seed=seed, max_rounds=max_rounds)
    packed, rounds = pack(found[0].point), sum(one.evaluations for one in found)
    L, B = unpack(packed), reconstruct(reduction.reduced, packed)
    if B is None:  # the diagonal is too small to divide by
        B = reduction.reduced @ np.linalg.pinv(dense(L))
    return PairStrategy.lifted(reduction, Pair(L, B, Outcome.BEST_OF_STARTS, rounds), method="p-identity")


def several_starts(
    R: Products,
    *,
    shared: int | None = None,
    signed: bool = False,
    seed: int = 0,
    max_rounds: int = 400,
    settings: Settings = SETTINGS,
) -> list[Reached]:
    """Screen random starts of several p, run the best to the end; best first, sharing nothing among them.

    A point is Θ, p × n, and its value ‖R L⁺‖²_F for L at sensitivity 1.
    """
    n = R.shape[1]
    rng = np.random.default_rng(seed)
    starts = [
        min(1.0, START_SUM / p) * rng.uniform(-1 if signed else 0, 1, size=(p, n))
        for p in ([shared] if shared else _sizes(n))
    ]
    run = partial(fit, R, signed=signed)
    look = partial(run, max_rounds=settings.screening_rounds)
    screened = list(in_threads(look, starts, entries=R.work))
    screened.sort(key=lambda found: found.value)
    begun = [found.point for found in screened[: settings.polished]]
    found = list(in_threads(partial(run, max_rounds=max_rounds), begun, entries=R.work))
    nothing_shared = Reached(np.zeros((0, n)), float(R.squares.sum()), 0)
    return sorted([*found, *screened[settings.polished :], nothing_shared], key=lambda found: found.value)


def fit(R: Products, start: Dense, max_rounds: int, signed: bool = False) -> Reached:
    """Descend from shared queries Θ.

    Signed entries are split, Θ = Θ⁺ − Θ⁻ with both parts non-negative: the column sum stays linear and the
    problem smooth.
    """

    def of_shared(T: Dense) -> tuple[float, Dense]:
        value, by_shared, by_sum = error(R, T, 1 + T.sum(axis=0))
        by_shared += by_sum
        by_shared *= 2
        return value, by_shared

    def split(parts: Dense) -> tuple[float, Dense]:
        positive, negative = parts
        value, by_shared, by_sum = error(R, positive - negative, 1 + (positive + negative).sum(axis=0))
        return value, 2 * np.stack([by_sum + by_shared, by_sum - by_shared])

    if not signed:
        return minimise(of_shared, start, max_rounds)
    ended = minimise(split, np.stack([start, -start]), max_rounds)
    T = ended.point[0] - ended.point[1]
    return Reached(T, error(R, T, 1 + np.abs(T).sum(axis=0))[0], ended.evaluations)


def _sizes(n: int) -> list[int]:
    """At most HDMM's p ≤ n / 16 on 1 024 cells, and as many entries of Θ as a search takes in less than minutes."""
    most = max(1, min(n // 2, 64, 1_000_000 // n))
    return sorted({p for p in (1, 2, 4, 8, 16, 32, n // 16) if 1 <= p <= most})
