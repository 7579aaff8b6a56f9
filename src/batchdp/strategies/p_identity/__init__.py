"""p-Identity (McKenna, Miklau, Hay, Machanavajjhala: OPT₀): every cell once, and p shared queries.

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

from batchdp.checks import whole
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import in_threads, one_thread
from batchdp.strategies.p_identity.error import error
from batchdp.strategies.p_identity.packed import pack, reconstruct, unpack
from batchdp.strategies.p_identity.products import Products, products
from batchdp.strategies.p_identity.quasi_newton import minimise
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload, as_workload

SCREENING_ROUNDS = 60
"""Enough to tell a good p from a bad one."""
SUM = 8.0
"""Twice the sum of a column of a start with many rows: more of the budget than that is never shared in the end."""
MOST_SHARED = 64
POLISHED = 2
"""How many of the screened starts are run to the end."""
MOST_VARIABLES = 1_000_000
"""Entries of Θ: with more the search takes minutes, on columns so many that low rank does better anyway."""


@dataclass(frozen=True, eq=False)
class Fit:
    """One run of the search for Θ."""

    shared: Dense
    """Θ, p × n."""
    error: float
    """‖R L⁺‖²_F of the strategy, whose sensitivity is 1."""
    rounds: int


@one_thread
def p_identity(
    workload: Workload | ArrayLike | Any,
    *,
    shared: int | None = None,
    signed: bool = False,
    seed: int = 0,
    max_rounds: int = 400,
) -> Strategy:
    """The best p-Identity strategy from several starts; never worse than merged noise on data.

    Args:
        shared: p, how many shared queries; several are tried if left out.
        signed: whether shared queries may have negative coefficients.
        seed: of the random starts.
        max_rounds: of the quasi-Newton method, for each start that is run to the end.
    """
    workload = as_workload(workload)
    shared = None if shared is None else whole("shared", shared, 1)
    seed, max_rounds = whole("seed", seed, 0), whole("max_rounds", max_rounds, 1)
    reduction = reduce(workload)
    if reduction.rank == 0:
        return Strategy.lifted(reduction, np.zeros((0, 0)), method="p-identity")
    found = search(products(reduction), shared=shared, signed=signed, seed=seed, max_rounds=max_rounds)
    packed = pack(found[0].shared)
    return Strategy.lifted(
        reduction,
        unpack(packed),
        reconstruct(reduction.reduced, packed),
        method="p-identity",
        rounds=sum(fit.rounds for fit in found),
        status="best of several starts",
    )


def search(
    R: Products, *, shared: int | None = None, signed: bool = False, seed: int = 0, max_rounds: int = 400
) -> list[Fit]:
    """Screen random starts of several p, run the best to the end; best first, sharing nothing among them."""
    n = R.shape[1]
    rng = np.random.default_rng(seed)
    starts = [
        min(1.0, SUM / p) * rng.uniform(-1 if signed else 0, 1, size=(p, n))
        for p in ([shared] if shared else _sizes(n))
    ]
    screened = list(in_threads(partial(fit, R, max_rounds=SCREENING_ROUNDS, signed=signed), starts, entries=R.work))
    screened.sort(key=lambda found: found.error)
    begun = [found.shared for found in screened[:POLISHED]]
    found = list(in_threads(partial(fit, R, max_rounds=max_rounds, signed=signed), begun, entries=R.work))
    nothing_shared = Fit(np.zeros((0, n)), float(R.squares.sum()), 0)
    return sorted([*found, *screened[POLISHED:], nothing_shared], key=lambda found: found.error)


def fit(R: Products, start: Dense, max_rounds: int, signed: bool = False) -> Fit:
    """Descend from a start.

    Signed entries are split, Θ = Θ⁺ − Θ⁻ with both parts non-negative: the column sum stays linear and the
    problem smooth.
    """

    def whole(T: Dense) -> tuple[float, Dense]:
        value, by_shared, by_sum = error(R, T, 1 + T.sum(axis=0))
        by_shared += by_sum
        by_shared *= 2
        return value, by_shared

    def split(parts: Dense) -> tuple[float, Dense]:
        positive, negative = parts
        value, by_shared, by_sum = error(R, positive - negative, 1 + (positive + negative).sum(axis=0))
        return value, 2 * np.stack([by_sum + by_shared, by_sum - by_shared])

    if not signed:
        ended = minimise(whole, start, max_rounds)
        return Fit(ended.point, ended.value, ended.evaluations)
    ended = minimise(split, np.stack([start, -start]), max_rounds)
    T = ended.point[0] - ended.point[1]
    return Fit(T, error(R, T, 1 + np.abs(T).sum(axis=0))[0], ended.evaluations)


def _sizes(n: int) -> list[int]:
    most = max(1, min(n // 2, MOST_SHARED, MOST_VARIABLES // n))
    return sorted({p for p in (1, 2, 4, 8, 16, 32, n // 16) if 1 <= p <= most})
