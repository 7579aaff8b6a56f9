"""The p-Identity family: many starts, a few survivors, hops between valleys, and a last polish."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchdp.matrix import Dense
from batchdp.portfolio.polish import pack, polish_dense, polish_shared, unpack
from batchdp.portfolio.search import Search, dense_price, shared_price
from batchdp.portfolio.starts import KINDS, Kind, shared_start
from batchdp.strategies.p_identity import fit, screen
from batchdp.strategies.p_identity import search as registered_search

MOST_SHARED = 48
"""Beyond this many shared queries nothing was ever gained."""
SURVIVORS = 8
FINALISTS = 4
HOP_ROUNDS = 50
USELESS_HOPS = 25


@dataclass(frozen=True, eq=False)
class Contender:
    """A p-Identity strategy on its way."""

    error: float
    shared: Dense
    kind: Kind


def search_shared(search: Search, R: Dense, seed: int, share: float) -> None:
    """Spend a share of the budget on p-Identity; R is the workload before it was scaled."""
    k, n = search.R.shape
    limit = search.spent + share * search.left
    pool = _screened(search, seed, limit)
    if search.thorough:
        registered = registered_search(R)  # what STRATEGIES offers: never be worse
        search.charge(registered.rounds, shared_price(k, n, max(1, len(registered.shared))))
        search.offer("p-identity", registered.measure)
        if len(registered.shared):
            pool.append(Contender(registered.error * search.scale**2, registered.shared, "random"))
    pool.sort(key=lambda one: one.error)
    if pool[0].error > 0.9999 * float(np.vdot(search.R, search.R)):
        pool = pool[:2]  # sharing gains nothing over noise on data: do not insist
    survivors = _run_on(search, [one for one in pool if one.error < 1.15 * pool[0].error][:SURVIVORS], limit)
    packed, error = _polished(search, survivors[:FINALISTS], limit)
    reserve = min(0.25 * share * search.budget, 100 * dense_price(k, n, n + 8))
    packed, error = _hops(search, packed, error, seed, limit - reserve)
    if error < search.error:
        search.offer("p-identity", unpack(packed))
    measure = unpack(packed)
    rounds = int(min(300, (limit - search.spent) / dense_price(k, n, len(measure))))
    if rounds >= 10:
        ended = polish_dense(search.R, measure, rounds)
        search.charge(ended.evaluations, dense_price(k, n, len(measure)))
        kept = ended.point[np.abs(ended.point).sum(axis=1) > 0]
        search.offer("p-identity", kept, "p-identity, every entry free")


def _counts(n: int) -> list[int]:
    wanted = {1, 2, 4, 6, 8, 12, 16, 24, n // 16, n // 12}
    return sorted(p for p in wanted if 1 <= p <= max(1, min(n // 3, MOST_SHARED)))


def _screened(search: Search, seed: int, limit: float) -> list[Contender]:
    """A few rounds from every kind of start; small p converge first, so compare within each p only."""
    k, n = search.R.shape
    V = np.linalg.svd(search.R, full_matrices=False)[2]
    budget = limit - search.spent
    counts, kinds = _counts(n), KINDS

    def price() -> float:
        return 20 * len(kinds) * sum(shared_price(k, n, p) for p in counts)

    while len(counts) > 5 and price() > 0.4 * budget:
        counts.pop()
    while len(kinds) > 2 and price() > 0.4 * budget:
        kinds = kinds[:-1]
    rounds = int(np.clip(20 * 0.3 * budget / price(), 10, 40))
    found: list[Contender] = []
    for p in counts:
        tried = []
        for number, kind in enumerate(kinds if p > 1 else kinds[:1]):
            start = shared_start(kind, p, V, np.random.default_rng([seed, p, number]))
            tried.append(_descended(search, Contender(np.inf, start, kind), rounds, last=False))
        found += sorted(tried, key=lambda one: one.error)[:2]
        search.tell(f"p-identity with {p} shared queries")
    return found


def _run_on(search: Search, pool: list[Contender], limit: float) -> list[Contender]:
    k, n = search.R.shape
    each = sum(shared_price(k, n, len(one.shared)) for one in pool)
    rounds = int(np.clip(0.35 * (limit - search.spent) / each, 10, 120))
    survivors = []
    for one in pool:
        survivors.append(_descended(search, one, rounds, last=True))
        search.tell(f"p-identity with {len(one.shared)} shared queries")
    survivors.sort(key=lambda one: one.error)
    if survivors[0].error < search.error:
        search.offer("p-identity", unpack(pack(survivors[0].shared)))
    return survivors


def _descended(search: Search, one: Contender, rounds: int, *, last: bool) -> Contender:
    """Signed strategies by projected gradient, the others by L-BFGS, with bounds only in the end."""
    k, n = search.R.shape
    price = shared_price(k, n, len(one.shared))
    if one.kind == "signed":
        ended = polish_shared(search.R, pack(one.shared), rounds)
        search.charge(ended.evaluations, price)
        return Contender(ended.value, ended.point[1:] / ended.point[0], one.kind)
    found = fit(search.R, one.shared, rounds) if last else screen(search.R, one.shared, rounds)
    search.charge(found.rounds, price)
    if last:
        search.spent += 5e-6 * one.shared.size  # SciPy's loop over the bounds
    return Contender(found.error, found.shared, one.kind)


def _polished(search: Search, finalists: list[Contender], limit: float) -> tuple[Dense, float]:
    k, n = search.R.shape
    best: tuple[Dense, float] = (pack(finalists[0].shared), finalists[0].error)
    for one in finalists:
        price = shared_price(k, n, len(one.shared))
        rounds = int(np.clip(0.1 * (limit - search.spent) / price, 10, 150))
        ended = polish_shared(search.R, pack(one.shared), rounds)
        search.charge(ended.evaluations, price)
        if ended.value < best[1]:
            best = (ended.point, ended.value)
    return best


def _hops(search: Search, packed: Dense, error: float, seed: int, limit: float) -> tuple[Dense, float]:
    """Change one shared query by hand, polish briefly, keep what is better."""
    k, n = search.R.shape
    rng = np.random.default_rng([seed, 7])
    useless = 0
    while useless < USELESS_HOPS and search.spent + HOP_ROUNDS * shared_price(k, n, len(packed)) < limit:
        changed = _hop(packed, rng)
        ended = polish_shared(search.R, changed, HOP_ROUNDS)
        search.charge(ended.evaluations, shared_price(k, n, len(changed)))
        useless += 1
        if ended.value < error * (1 - 1e-6):
            packed, error, useless = ended.point, ended.value, 0
        search.tell("p-identity, hopping")
    return packed, error


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
