"""The search that `optimize` spends work on: many starts, a few survivors, hops between valleys, and a last polish.

Which valley a search ends in matters more than how it descends: for ranges, groups of neighbouring columns are the
right beginning; for unordered workloads, random ones; shared queries are changed by hand to go from one to the next.
Independent runs go side by side; what they are and how their results are put together does not depend on how many
do, so neither does the strategy. A point of a run is the packed strategy, rows d and Θ; its value is ‖B‖²_F for the
workload before it was scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal, TypeVar, final, get_args

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, eigh

from batchdp.linalg.descent import Reached
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import in_threads
from batchdp.optimizer.families.p_identity.mechanism import (
    SETTINGS,
    START_SUM,
    Settings,
    fit,
    p_identity,
    several_starts,
)
from batchdp.optimizer.families.p_identity.problem import (
    Products,
    by_entries,
    pack,
    paired,
    polish_dense,
    polish_shared,
    products,
    shared_of,
    unpack,
    wants_more,
    without_zeros,
)
from batchdp.optimizer.family import Family
from batchdp.strategies.account import PairSearch
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import Reduction

WIDE = ((16, 48), (64, 96))
"""Queries with a column in so many or more are tried, the widest first, up to so many."""
WIDE_SUM, WIDE_ROUNDS = 4.0, 60
"""The largest sum of such queries over one column, to begin with; and the rounds of a descent from them."""
MOST_ROUNDS, FEWEST_ROUNDS = 300, 10
"""Of a run of the tournament: more gain nothing to speak of, fewer show nothing."""
MANY_SHARED = 32
"""Shared queries of the best start from which splitting them is tried, because more may pay."""
AT_ONCE = 4
"""Changes by hand that are tried side by side."""


def from_wide_rows(W: sparse.csr_array) -> tuple[float, Callable[[], Pair | None]]:
    """The best of a few descents for a matrix whose columns are merged: ‖B‖²_F, and the pair when it is wanted.

    The pair is None where its diagonal cannot be divided by.
    """
    R, n = by_entries(W), W.shape[1]
    found = [Reached(np.zeros((0, n)), float(R.squares.sum()), 0)]
    for share, most in WIDE:
        rows = _widest(W, n / share, most)
        if len(rows):
            shared = np.abs(W[rows].toarray())
            shared *= WIDE_SUM / float(shared.sum(axis=0).max())
            found.append(fit(R, shared, WIDE_ROUNDS))
    best = min(found, key=lambda one: one.value)
    return best.value, lambda: paired(np.asarray(W.toarray()), pack(without_zeros(best.point)))


def _widest(W: sparse.csr_array, least: float, most: int) -> list[int]:
    """The queries with the most columns, each kind once."""
    sizes = np.diff(W.indptr)
    kinds: dict[bytes, int] = {}
    for i in np.argsort(-sizes, kind="stable"):
        if sizes[i] < least or len(kinds) == most:
            break
        kinds.setdefault(W.indices[W.indptr[i] : W.indptr[i + 1]].tobytes(), int(i))
    return list(kinds.values())


Kind = Literal["random", "tree", "blocks", "singular", "signed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of their use: the last are left out where time is short."""


def shared_start(kind: Kind, rows: int, right_vectors: Dense, rng: np.random.Generator) -> Dense:
    """Θ of a kind, rows × n; `right_vectors` are those of R."""
    n = right_vectors.shape[1]
    noise = rng.random((rows, n))
    match kind:
        case "random":
            return min(1.0, START_SUM / rows) * noise
        case "signed":
            return 0.5 * rng.standard_normal((rows, n)) + 0.3
        case "blocks":
            return _blocks(rows, n) + 0.05 * noise
        case "tree":
            parents = max(1, rows // 5) if rows > 4 else 0  # four children each
            return np.vstack([_blocks(rows - parents, n), _blocks(parents, n)]) + 0.05 * noise
        case "singular":
            V = right_vectors[:rows]
            V = V * np.where(V.sum(axis=1) < 0, -1.0, 1.0)[:, None]
            T = 0.05 * noise
            T[: len(V)] += np.maximum(V / np.abs(V).max(axis=1, keepdims=True), 0.0)
            return T


def _blocks(rows: int, columns: int) -> Dense:
    """Groups of neighbouring columns."""
    T = np.zeros((rows, columns))
    column = np.arange(columns)
    if rows:
        T[column * rows // columns, column] = 1.0
    return T


def split(packed: Dense) -> Dense:
    """The wider half of the shared queries, each split in two."""
    T = without_zeros(shared_of(packed))
    if len(T) == 0:
        return hop(packed, np.random.default_rng(0))
    filled = np.abs(T) > 1e-6 * np.abs(T).max(initial=0.0)
    for i in np.argsort(-filled.sum(axis=1), kind="stable")[: (len(T) + 1) // 2]:
        T = _halved(T, int(i))
    return pack(T + 0.02 * np.random.default_rng(len(T)).random(T.shape))


def hop(packed: Dense, rng: np.random.Generator) -> Dense:
    """One shared query merged into another, split in two, or moved along the columns."""
    T = without_zeros(shared_of(packed))
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
        T = _halved(T, one)
    else:
        T[one] = np.roll(T[one], int(rng.choice([-5, -3, -2, -1, 1, 2, 3, 5])))
    return pack(T + 0.02 * level * rng.random(T.shape))


def _halved(T: Dense, one: int) -> Dense:
    """A shared query's columns given to two, those on the left to one of them."""
    support = np.flatnonzero(np.abs(T[one]) > 1e-6 * np.abs(T[one]).max())
    low = np.arange(T.shape[1]) < support[len(support) // 2]
    T = np.vstack([T, T[one] * ~low])
    T[one] *= low
    return T


Task = TypeVar("Task")
VALUE = attrgetter("value")

NAME = "p-identity"


@dataclass(frozen=True, eq=False)
class Tournament:
    """The problem and the rules; `limit` is what the account may have spent in the end."""

    search: PairSearch
    R: Products
    """The workload before it was scaled."""
    seed: int
    share: float
    settings: Settings
    limit: float

    def run(self) -> None:
        """From starts to the last polish."""
        settings = self.settings
        pool = self._registered() if self.search.thorough else []
        # Runs of different p that end alike: there is but one valley, or nothing to share. Do not insist.
        alike = self._alike(pool, 1e-3)
        pool += self._screened(alike)
        pool.sort(key=VALUE)
        if pool[0].value > 0.9999 * float(self.R.squares.sum()):
            pool = pool[:2]
        near = [one for one in pool if one.value < 1.15 * pool[0].value]
        pool = self._run_on(near[: settings.survivors if not alike else settings.finalists])
        alike = alike or self._alike(pool, 1e-5)
        if len(pool[0].point) > MANY_SHARED:
            pool = self._grown(pool[: settings.finalists])
        self._end(self._polished(pool[: settings.finalists]), alike)

    def _end(self, best: Reached, alike: bool) -> None:
        """Hops from the best, and every entry free where that may gain something."""
        search, settings = self.search, self.settings
        price = settings.dense_price(*self.R.shape, self.R.shape[1] + len(best.point))
        dense_pays = self._left > 10 * price and wants_more(search.R, best.point)
        reserve = min(0.25 * self.share * search.account.budget, 100 * price) if dense_pays else 0.0
        best = self._hops(best, self.limit - reserve, settings.useless_hops if not alike else AT_ONCE)
        self._offer(best)
        rounds = int(min(MOST_ROUNDS, self._left / price))
        if dense_pays and rounds >= FEWEST_ROUNDS:
            ended = polish_dense(search.R, dense(unpack(best.point)), rounds)
            search.charge(ended.evaluations, price)
            search.offer(NAME, without_zeros(ended.point), f"{NAME}, every entry free")

    @property
    def _left(self) -> float:
        return self.limit - self.search.account.spent

    def _alike(self, pool: list[Reached], difference: float) -> bool:
        """Whether several of the runs, best first, ended like the best."""
        return len(pool) > 2 and pool[2].value < (1 + difference) * pool[0].value

    def _registered(self) -> list[Reached]:
        """What STRATEGIES offers: never be worse."""
        ended = several_starts(self.R, settings=self.settings)
        found = [Reached(pack(one.point), one.value, one.evaluations) for one in ended]
        self.search.offer_pair(NAME, paired(self.search.R, found[0].point))
        for one in found:
            self._enter(one)
        return [one for one in found if len(one.point) > 1]

    def _screened(self, alike: bool) -> list[Reached]:
        """A few rounds from every kind of start; small p converge first, so compare within each p only."""
        V = _right_vectors(self.search.R, self.settings.most_shared_at_start)
        budget, n = self._left, self.R.shape[1]
        most = max(1, min(n // 3, 8 if alike else self.settings.most_shared_at_start))
        counts = sorted(p for p in {1, 2, 4, 6, 8, 12, 16, 24, n // 16, n // 12} if 1 <= p <= most)
        kinds = KINDS[1:] if self.search.thorough else KINDS  # random ones came before

        def price() -> float:
            return 20 * len(kinds) * sum(self._price(p) for p in counts)

        for fewest in (5, 1):
            while len(counts) > fewest and price() > 0.4 * budget:
                counts.pop()
            while len(kinds) > 2 and price() > 0.4 * budget:
                kinds = kinds[:-1]
        rounds = int(np.clip(20 * 0.3 * budget / price(), FEWEST_ROUNDS, 20 if alike else 25))
        tasks = [(p, number, kind) for p in counts for number, kind in enumerate(kinds if p > 1 else kinds[:1])]

        def tried(task: tuple[int, int, Kind]) -> Reached:
            p, number, kind = task
            rng = np.random.default_rng([self.seed, p, number])
            return self._descended(pack(shared_start(kind, p, V, rng)), rounds)

        found: dict[int, list[Reached]] = {p: [] for p in counts}
        for (p, *_), one in zip(tasks, self._side_by_side(tried, tasks), strict=True):
            found[p].append(one)
        return [one for of_size in found.values() for one in sorted(of_size, key=VALUE)[:2]]

    def _run_on(self, pool: list[Reached]) -> list[Reached]:
        """The survivors, run to the end and best first."""
        while len(pool) > 1 and FEWEST_ROUNDS * self._price_of(pool) > 0.35 * self._left:
            pool.pop()
        rounds = self._rounds(0.35, pool)
        survivors = list(self._side_by_side(lambda one: self._descended(one.point, rounds), pool))
        survivors.sort(key=VALUE)
        self._offer(survivors[0])
        return survivors

    def _grown(self, pool: list[Reached]) -> list[Reached]:
        """Split the widest shared queries in two for as long as that pays: the way to many of them."""
        growing, rounds = pool, 100
        while growing:
            price = rounds * sum(self._price(len(one.point) * 3 // 2) for one in growing)
            if self.search.account.spent + price > self.limit - 0.3 * self._left:
                break
            grown = self._side_by_side(lambda one: self._descended(split(one.point), rounds), growing)
            better = [new for old, new in zip(growing, grown, strict=True) if new.value < (1 - 1e-3) * old.value]
            pool, growing = pool + better, sorted(better, key=VALUE)[:2]
        return sorted(pool, key=VALUE)

    def _polished(self, finalists: list[Reached]) -> Reached:
        """The best after freeing the diagonal and the signs."""
        rounds = self._rounds(0.5, finalists)
        found = self._side_by_side(lambda one: polish_shared(self.R, one.point, rounds), finalists)
        return min([finalists[0], *found], key=VALUE)

    def _hops(self, best: Reached, limit: float, patience: int) -> Reached:
        """Change one shared query by hand, polish briefly, keep what is better."""
        rng = np.random.default_rng([self.seed, 7])
        rounds, useless = self.settings.hop_rounds, 0
        price = AT_ONCE * rounds * self._price(len(best.point))
        while useless < patience and self.search.account.spent + price < limit:
            changed = [hop(best.point, rng) for _ in range(AT_ONCE)]
            useless += AT_ONCE
            for one in self._side_by_side(partial(self._descended, rounds=rounds), changed):
                if one.value < best.value * (1 - 1e-6):
                    best, useless = one, 0
        return best

    def _descended(self, packed: Dense, rounds: int) -> Reached:
        """Signed strategies by projected gradient, the others by L-BFGS."""
        if packed.min() < 0:
            return polish_shared(self.R, packed, rounds)
        found = fit(self.R, shared_of(packed), rounds)
        return Reached(pack(found.point), found.value, found.evaluations)

    def _side_by_side(self, run: Callable[[Task], Reached], tasks: Iterable[Task]) -> Iterable[Reached]:
        """What the runs of all tasks reached, in their order, each entered in the search."""
        for one in in_threads(run, tasks, entries=self.R.work):
            self._enter(one)
            yield one

    def _offer(self, one: Reached) -> None:
        if one.value * self.search.scale**2 < self.search.error:
            self.search.offer_pair(NAME, paired(self.search.R, one.point))

    def _price(self, p: int) -> float:
        return self.settings.price(*self.R.shape, p, self.R.work)

    def _price_of(self, pool: list[Reached]) -> float:
        return sum(self._price(len(one.point)) for one in pool)

    def _rounds(self, share: float, pool: list[Reached]) -> int:
        """How many a run of each may have if together they take this share of the work that is left."""
        most = share * self._left / self._price_of(pool)
        return int(np.clip(most, FEWEST_ROUNDS, MOST_ROUNDS))

    def _enter(self, one: Reached) -> None:
        p = len(one.point) - 1
        self.search.charge(one.evaluations, self._price(p))
        self.search.tell(f"{NAME} with {p} shared quer{'y' if p == 1 else 'ies'}")


def _right_vectors(R: Dense, count: int) -> Dense:
    """The leading right singular vectors."""
    k = len(R)
    G = R @ R.T
    try:
        U = eigh(G, subset_by_index=[max(0, k - count), k - 1], check_finite=False)[1]
    except LinAlgError:  # some of them at a time is the quicker routine, and on some processors it gives up
        U = np.linalg.eigh(G)[1][:, max(0, k - count) :]
    V = U.T[::-1] @ R
    return np.asarray(V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300))


@final
@dataclass(frozen=True, eq=False)
class _PIdentity(Family):
    settings: Settings = SETTINGS

    def worth(self, reduction: Reduction) -> bool:
        return True

    def on_sparse(self, matrix: sparse.csr_array) -> tuple[float, Callable[[], Pair | None]]:
        return from_wide_rows(matrix)

    def search(self, search: PairSearch, reduction: Reduction, seed: int, share: float) -> None:
        limit = search.account.spent + share * search.account.left
        Tournament(search, products(reduction), seed, share, self.settings, limit).run()

    def part(self, R: Dense) -> float:
        return self.settings.part

    def nominal_seconds(self, R: Dense) -> float:
        return self.settings.nominal_seconds(R.size)


P_IDENTITY = _PIdentity(NAME, p_identity, searches=True, quick=True)
