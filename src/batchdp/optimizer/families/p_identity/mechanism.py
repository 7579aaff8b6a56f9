"""The family's function: random starts of several p, the best of them run to the end.

L = [I; Θ] with every column divided by 1 + Σ|Θ|, so that all columns have L1 norm 1. Here it works on the
merged columns of the reduced workload R, whose signs are aligned, so that a non-negative Θ serves signed
workloads as well. An evaluation costs O(k p n): no n × n matrix appears.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchdp.errors import check_whole
from batchdp.linalg.descent import Reached
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import in_threads, one_thread
from batchdp.optimizer.families.p_identity.problem import (
    Products,
    error,
    minimise,
    pack,
    products,
    reconstruct,
    unpack,
)
from batchdp.optimizer.families.p_identity.settings import SETTINGS, Settings
from batchdp.progress import Outcome
from batchdp.strategies.blocks import block_by_block
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import reduce


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
        min(1.0, settings.start_sum / p) * rng.uniform(-1 if signed else 0, 1, size=(p, n))
        for p in ([shared] if shared else _sizes(n, settings))
    ]
    run = partial(fit, R, signed=signed, settings=settings)
    look = partial(run, max_rounds=settings.screening_rounds)
    screened = list(in_threads(look, starts, entries=R.work))
    screened.sort(key=lambda found: found.value)
    begun = [found.point for found in screened[: settings.polished]]
    found = list(in_threads(partial(run, max_rounds=max_rounds), begun, entries=R.work))
    nothing_shared = Reached(np.zeros((0, n)), float(R.squares.sum()), 0)
    return sorted([*found, *screened[settings.polished :], nothing_shared], key=lambda found: found.value)


def fit(R: Products, start: Dense, max_rounds: int, signed: bool = False, settings: Settings = SETTINGS) -> Reached:
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
        return minimise(of_shared, start, max_rounds, memory=settings.memory)
    ended = minimise(split, np.stack([start, -start]), max_rounds, memory=settings.memory)
    T = ended.point[0] - ended.point[1]
    return Reached(T, error(R, T, 1 + np.abs(T).sum(axis=0))[0], ended.evaluations)


def _sizes(n: int, settings: Settings) -> list[int]:
    most = max(1, min(n // 2, settings.most_shared, settings.most_variables // n))
    return sorted({p for p in (1, 2, 4, 8, 16, 32, n // 16) if 1 <= p <= most})
