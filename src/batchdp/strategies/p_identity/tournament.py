"""The p-Identity family: many starts, a few survivors, hops between valleys, and a last polish.

Independent runs go side by side; what they are and how their results are put together does not depend on how many
do, so neither does the strategy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import eigh

from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import in_threads
from batchdp.portfolio.search import Search, dense_price, shared_price
from batchdp.strategies.p_identity import fit
from batchdp.strategies.p_identity import search as registered_search
from batchdp.strategies.p_identity.moves import hop, split
from batchdp.strategies.p_identity.packed import pack, unpack
from batchdp.strategies.p_identity.polish import polish_dense, polish_shared, wants_more
from batchdp.strategies.p_identity.products import Products
from batchdp.strategies.p_identity.starts import KINDS, Kind, shared_start

MOST_SHARED = 48
"""Of a start; splitting leads to more."""
FEW_SHARED = 8
"""Of a start where they hardly matter."""
SURVIVORS = 8
FINALISTS = 3
ALIKE = 2
"""How many runs have to end like the best one."""
MANY_SHARED = 32
"""If a start with so many is the best, more may pay."""
GROWTH_ROUNDS = 100
GROWING = 2
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


def search_shared(search: Search, R: Products, seed: int, share: float) -> None:
    """Spend a share of the budget on p-Identity; R is the workload before it was scaled."""
    limit = search.spent + share * search.left
    pool = _registered(search, R) if search.thorough else []
    # Runs of different p that end alike: there is but one valley, or nothing to share. Do not insist.
    alike = len(pool) > ALIKE and pool[ALIKE].error < (1 + 1e-3) * pool[0].error
    pool += _screened(search, R, seed, limit, alike)
    pool.sort(key=lambda one: one.error)
    if pool[0].error > 0.9999 * float(R.squares.sum()):
        pool = pool[:2]
    near = [one for one in pool if one.error < 1.15 * pool[0].error]
    pool = _run_on(search, R, near[: SURVIVORS if not alike else FINALISTS], limit)
    alike = alike or (len(pool) > ALIKE and pool[ALIKE].error < (1 + 1e-5) * pool[0].error)
    if len(pool[0].packed) > MANY_SHARED:
        pool = _grown(search, R, pool[:FINALISTS], limit)
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


def _counts(n: int, alike: bool) -> list[int]:
    wanted = {1, 2, 4, 6, 8, 12, 16, 24, n // 16, n // 12}
    return sorted(p for p in wanted if 1 <= p <= max(1, min(n // 3, FEW_SHARED if alike else MOST_SHARED)))


def _screened(search: Search, R: Products, seed: int, limit: float, alike: bool) -> list[Contender]:
    """A few rounds from every kind of start; small p converge first, so compare within each p only."""
    V = _right_vectors(search.R, MOST_SHARED)
    budget = limit - search.spent
    counts, kinds = _counts(R.shape[1], alike), KINDS[1:] if search.thorough else KINDS  # random ones came before

    def price() -> float:
        return 20 * len(kinds) * sum(_price(R, p) for p in counts)

    for fewest in (5, 1):
        while len(counts) > fewest and price() > 0.4 * budget:
            counts.pop()
        while len(kinds) > 2 and price() > 0.4 * budget:
            kinds = kinds[:-1]
    rounds = int(np.clip(20 * 0.3 * budget / price(), 10, 20 if alike else 25))
    tasks = [(p, number, kind) for p in counts for number, kind in enumerate(kinds if p > 1 else kinds[:1])]

    def tried(task: tuple[int, int, Kind]) -> Contender:
        p, number, kind = task
        return _descended(R, pack(shared_start(kind, p, V, np.random.default_rng([seed, p, number]))), rounds)

    found: dict[int, list[Contender]] = {p: [] for p in counts}
    for (p, *_), one in zip(tasks, in_threads(tried, tasks, entries=R.work), strict=True):
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
    while len(pool) > 1 and 10 * sum(_price(R, len(one.packed)) for one in pool) > 0.35 * (limit - search.spent):
        pool.pop()
    each = sum(_price(R, len(one.packed)) for one in pool)
    rounds = int(np.clip(0.35 * (limit - search.spent) / each, 10, 300))
    survivors = []
    for one in in_threads(lambda one: _descended(R, one.packed, rounds), pool, entries=R.work):
        _enter(search, R, one)
        survivors.append(one)
    survivors.sort(key=lambda one: one.error)
    if survivors[0].error * search.scale**2 < search.error:
        search.offer_packed("p-identity", survivors[0].packed)
    return survivors


def _grown(search: Search, R: Products, pool: list[Contender], limit: float) -> list[Contender]:
    """Split the widest shared queries in two for as long as that pays: the way to many of them."""
    growing = pool
    while growing:
        price = GROWTH_ROUNDS * sum(_price(R, len(one.packed) * 3 // 2) for one in growing)
        if search.spent + price > limit - 0.3 * (limit - search.spent):
            break
        better = []
        for one, grown in zip(
            growing,
            in_threads(lambda one: _descended(R, split(one.packed), GROWTH_ROUNDS), growing, entries=R.work),
            strict=True,
        ):
            _enter(search, R, grown)
            if grown.error < (1 - 1e-3) * one.error:
                better.append(grown)
        pool, growing = pool + better, sorted(better, key=lambda one: one.error)[:GROWING]
    return sorted(pool, key=lambda one: one.error)


def _polished(search: Search, R: Products, finalists: list[Contender], limit: float) -> Contender:
    price = sum(_price(R, len(one.packed)) for one in finalists)
    rounds = int(np.clip(0.5 * (limit - search.spent) / price, 10, 300))
    best = finalists[0]
    for one in in_threads(lambda one: _freed(R, one.packed, rounds), finalists, entries=R.work):
        _enter(search, R, one)
        best = one if one.error < best.error else best
    return best


def _hops(search: Search, R: Products, best: Contender, seed: int, limit: float, patience: int) -> Contender:
    """Change one shared query by hand, polish briefly, keep what is better."""
    rng = np.random.default_rng([seed, 7])
    useless = 0
    price = HOPS_AT_ONCE * HOP_ROUNDS * _price(R, len(best.packed))
    while useless < patience and search.spent + price < limit:
        changed = [hop(best.packed, rng) for _ in range(HOPS_AT_ONCE)]
        useless += HOPS_AT_ONCE
        for one in in_threads(partial(_descended, R, rounds=HOP_ROUNDS), changed, entries=R.work):
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


def _price(R: Products, p: int) -> float:
    return shared_price(*R.shape, p, R.work)


def _enter(search: Search, R: Products, one: Contender) -> None:
    p = len(one.packed) - 1
    search.charge(one.evaluations, _price(R, p))
    search.tell(f"p-identity with {p} shared quer{'y' if p == 1 else 'ies'}")
