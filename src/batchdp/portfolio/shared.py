"""The p-Identity family: many starts, a few survivors, hops between valleys, and a last polish.

Independent runs go side by side; what they are and how their results are put together does not depend on how many
do, so neither does the strategy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import eigh

from batchdp.matrix import Dense, dense
from batchdp.portfolio.polish import polish_dense, polish_shared, wants_more
from batchdp.portfolio.search import Search, dense_price, shared_price
from batchdp.portfolio.starts import KINDS, Kind, shared_start
from batchdp.strategies.p_identity import fit
from batchdp.strategies.p_identity import search as registered_search
from batchdp.strategies.p_identity.error import Products
from batchdp.strategies.p_identity.packed import pack, unpack
from batchdp.threads import in_threads

MOST_SHARED = 48
"""Beyond this many shared queries nothing was ever gained."""
SURVIVORS = 8
FINALISTS = 4
ALIKE = 3
"""How many runs have to end like the best one."""
THOROUGH, QUICK = 40, 10
"""Rounds of screening."""
HOP_ROUNDS = 50
HOPS_AT_ONCE = 4
USELESS_HOPS = 24


@dataclass(frozen=True, eq=False)
class Contender:
    """A p-Identity strategy on its way."""

    error: float
    packed: Dense
    """Rows d, Θ."""
    evaluations: int = 0

    @property
    def signed(self) -> bool:
        """Whether a shared query has negative coefficients."""
        return bool(self.packed.min() < 0)


def search_shared(search: Search, R: Products, seed: int, share: float) -> None:
    """Spend a share of the budget on p-Identity; R is the workload before it was scaled."""
    limit = search.spent + share * search.left
    pool = _registered(search, R) if search.thorough else []
    # Runs of different p that end alike: there is but one valley, or nothing to share. Do not insist.
    alike = len(pool) > ALIKE and pool[ALIKE].error < (1 + 1e-3) * pool[0].error
    pool += _screened(search, R, seed, limit, THOROUGH if not alike else QUICK)
    pool.sort(key=lambda one: one.error)
    if pool[0].error > 0.9999 * float(R.squares.sum()):
        pool = pool[:2]
    near = [one for one in pool if one.error < 1.15 * pool[0].error]
    pool = _run_on(search, R, near[: SURVIVORS if not alike else FINALISTS], limit)
    best = _polished(search, R, pool[:FINALISTS], limit)
    price = dense_price(*R.shape, R.shape[1] + len(best.packed))
    dense_pays = limit - search.spent > 10 * price and wants_more(search.R, best.packed)
    reserve = min(0.25 * share * search.budget, 100 * price) if dense_pays else 0.0
    best = _hops(search, R, best, seed, limit - reserve, USELESS_HOPS if not alike else HOPS_AT_ONCE)
    if best.error * search.scale**2 < search.error:
        search.offer_packed("p-identity", best.packed)
    rounds = int(min(300, (limit - search.spent) / price))
    if dense_pays and rounds >= 10:
        ended = polish_dense(search.R, dense(unpack(best.packed)), rounds)
        search.charge(ended.evaluations, price)
        kept = ended.point[np.abs(ended.point).sum(axis=1) > 0]
        search.offer("p-identity", kept, "p-identity, every entry free")


def _registered(search: Search, R: Products) -> list[Contender]:
    """What STRATEGIES offers: never be worse."""
    found = registered_search(R)
    search.offer_packed("p-identity", pack(found[0].shared))
    pool = [Contender(one.error, pack(one.shared), one.rounds) for one in found]
    for one in pool:
        _enter(search, R, one)
    return [one for one in pool if len(one.packed) > 1]


def _counts(n: int) -> list[int]:
    wanted = {1, 2, 4, 6, 8, 12, 16, 24, n // 16, n // 12}
    return sorted(p for p in wanted if 1 <= p <= max(1, min(n // 3, MOST_SHARED)))


def _screened(search: Search, R: Products, seed: int, limit: float, rounds: int) -> list[Contender]:
    """A few rounds from every kind of start; small p converge first, so compare within each p only."""
    V = _right_vectors(search.R, MOST_SHARED)
    budget = limit - search.spent
    counts, kinds = _counts(R.shape[1]), KINDS

    def price() -> float:
        return 20 * len(kinds) * sum(shared_price(*R.shape, p) for p in counts)

    while len(counts) > 5 and price() > 0.4 * budget:
        counts.pop()
    while len(kinds) > 2 and price() > 0.4 * budget:
        kinds = kinds[:-1]
    rounds = int(np.clip(20 * 0.3 * budget / price(), 10, rounds))
    tasks = [(p, number, kind) for p in counts for number, kind in enumerate(kinds if p > 1 else kinds[:1])]

    def tried(task: tuple[int, int, Kind]) -> Contender:
        p, number, kind = task
        return _descended(R, pack(shared_start(kind, p, V, np.random.default_rng([seed, p, number]))), rounds)

    found: dict[int, list[Contender]] = {p: [] for p in counts}
    for (p, *_), one in zip(tasks, in_threads(tried, tasks), strict=True):
        _enter(search, R, one)
        found[p].append(one)
    return [one for tried in found.values() for one in sorted(tried, key=lambda one: one.error)[:2]]


def _right_vectors(R: Dense, count: int) -> Dense:
    """The leading right singular vectors."""
    k = len(R)
    U = eigh(R @ R.T, subset_by_index=[max(0, k - count), k - 1], check_finite=False)[1]
    V = U.T[::-1] @ R
    return np.asarray(V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300))


def _run_on(search: Search, R: Products, pool: list[Contender], limit: float) -> list[Contender]:
    each = sum(shared_price(*R.shape, len(one.packed)) for one in pool)
    rounds = int(np.clip(0.35 * (limit - search.spent) / each, 10, 300))
    survivors = []
    for one in in_threads(lambda one: _descended(R, one.packed, rounds), pool):
        _enter(search, R, one)
        survivors.append(one)
    survivors.sort(key=lambda one: one.error)
    if survivors[0].error * search.scale**2 < search.error:
        search.offer_packed("p-identity", survivors[0].packed)
    return survivors


def _polished(search: Search, R: Products, finalists: list[Contender], limit: float) -> Contender:
    price = sum(shared_price(*R.shape, len(one.packed)) for one in finalists)
    rounds = int(np.clip(0.3 * (limit - search.spent) / price, 10, 150))
    best = finalists[0]
    for one in in_threads(lambda one: _freed(R, one.packed, rounds), finalists):
        _enter(search, R, one)
        best = one if one.error < best.error else best
    return best


def _hops(search: Search, R: Products, best: Contender, seed: int, limit: float, patience: int) -> Contender:
    """Change one shared query by hand, polish briefly, keep what is better."""
    rng = np.random.default_rng([seed, 7])
    useless = 0
    price = HOPS_AT_ONCE * HOP_ROUNDS * shared_price(*R.shape, len(best.packed))
    while useless < patience and search.spent + price < limit:
        changed = [_hop(best.packed, rng) for _ in range(HOPS_AT_ONCE)]
        useless += HOPS_AT_ONCE
        for one in in_threads(partial(_descended, R, rounds=HOP_ROUNDS), changed):
            _enter(search, R, one)
            if one.error < best.error * (1 - 1e-6):
                best, useless = one, 0
    return best


def _descended(R: Products, packed: Dense, rounds: int) -> Contender:
    """Signed strategies by projected gradient, the others by L-BFGS."""
    if packed.min() < 0:
        return _freed(R, packed, rounds)
    found = fit(R, packed[1:] / packed[0], rounds)
    return Contender(found.error, pack(found.shared), found.rounds)


def _freed(R: Products, packed: Dense, rounds: int) -> Contender:
    ended = polish_shared(R, packed, rounds)
    return Contender(ended.value, ended.point, ended.evaluations)


def _enter(search: Search, R: Products, one: Contender) -> None:
    p = len(one.packed) - 1
    search.charge(one.evaluations, shared_price(*R.shape, p))
    search.tell(f"p-identity with {p} shared quer{'y' if p == 1 else 'ies'}")


def _hop(packed: Dense, rng: np.random.Generator) -> Dense:
    """One shared query merged into another, split in two, or moved along the columns."""
    T = packed[1:] / packed[0]
    T = T[np.abs(T).sum(axis=1) > 0]
    q, n = T.shape
    if q == 0:
        return pack(rng.random((1, n)))
    level = float(np.abs(T).max())
    move = int(rng.integers(3)) if q > 1 else 1
    one = int(rng.integers(q))
    if move == 0:
        other = (one + 1 + int(rng.integers(q - 1))) % q
        T[one] += T[other]
        T = np.delete(T, other, axis=0)
    elif move == 1:
        support = np.flatnonzero(np.abs(T[one]) > 1e-6 * np.abs(T[one]).max())
        low = np.arange(n) < support[len(support) // 2]
        T = np.vstack([T, T[one] * ~low])
        T[one] *= low
    else:
        T[one] = np.roll(T[one], int(rng.choice([-5, -3, -2, -1, 1, 2, 3, 5])))
    return pack(T + 0.02 * level * rng.random(T.shape))
