"""Batches over many columns with the best figure that others publish for each, and some that nobody has one for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import workloads
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors
from batchdp.workloads.matrix import Workload, as_workload
from reproduction.peers import figures
from reproduction.peers.batches import ADULT, BATCHES, census, running_totals

__all__ = ["PUBLISHED", "PURE", "Published", "census"]

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Published:
    """A batch, what is minimised, and the figure of the best other program."""

    name: str
    make: Callable[[], Workload]
    figure: float | None
    source: str
    largest: bool = False


def _best(noise: str) -> tuple[Published, ...]:
    """One a task."""
    known = [figure for figure in figures.published() if figure.task.noise == noise]
    best = {one.task: one for one in sorted(known, key=lambda one: -one.value)}
    return tuple(
        Published(task.batch, BATCHES[task.batch], one.value, one.program, task.measure == figures.LARGEST)
        for task, one in ((task, best[task]) for task in dict.fromkeys(one.task for one in known))
    )


def pairs(kind: str, n: int = 10, d: int = 10) -> KroneckerWorkload:
    """Queries on one column and conditions on two that are no products, over d columns of n values."""
    a, b = np.divmod(np.arange(n * n), n)
    one, two = np.tril(np.ones((n, n))), np.array([a + b <= c for c in range(2 * n - 1)], dtype=float)
    if kind == "abs-diff":
        two = np.array([np.abs(a - b) <= c for c in range(n)], dtype=float)
    if kind == "random":
        state = np.random.RandomState(42 + n)
        one, two = (state.rand(3 * n, n) < 0.3).astype(float), (state.rand(3 * n * n, n * n) < 0.3).astype(float)
    terms: list[Any] = [{i: one} for i in range(d)]
    if kind == "mixed":
        first, last = np.triu_indices(n)
        ranges = (np.arange(n) >= first[:, None]) & (np.arange(n) <= last[:, None])
        terms = [{i: ranges.astype(float)} for i in range(d)]
        terms += [dict.fromkeys(three, np.tril(np.ones((n, n)))) for three in combinations(range(d), 3)]
    terms += [{both: two} for both in combinations(range(d), 2)]
    return in_factors((n,) * d, terms)


CONDITIONS = {"affine": ("{} + {} <= {}", 19), "abs-diff": ("ABS({} - {}) <= {}", 10)}


def pairs_in_sql(kind: str) -> tuple[str, dict[str, Any]]:
    """The same of ten columns as statements, and their domain, which leaves out records with other values."""
    condition, bounds = CONDITIONS[kind]
    asked = [f"c{i} <= {bound}" for i in range(10) for bound in range(10)]
    asked += [condition.format(f"c{i}", f"c{j}", c) for i, j in combinations(range(10), 2) for c in range(bounds)]
    sql = ";\n".join(f"SELECT COUNT(*) AS q{number} FROM t WHERE {one}" for number, one in enumerate(asked))
    return sql, {"table": "t", "columns": {f"c{i}": {"integers": [0, 9], "other": "drop"} for i in range(10)}}


def small_adult() -> KroneckerWorkload:
    """The eight small columns of Adult: each value of one, and a + b <= c for every c of two."""
    sizes = ADULT[6:]
    terms: list[Any] = [{i: np.eye(n)} for i, n in enumerate(sizes)]
    for i, j in combinations(range(len(sizes)), 2):
        a, b = np.divmod(np.arange(sizes[i] * sizes[j]), sizes[j])
        terms.append({(i, j): np.array([a + b <= c for c in range(sizes[i] + sizes[j] - 1)], dtype=float)})
    return in_factors(sizes, terms)


def all_ranges(n: int) -> Rows:
    """Every stretch of neighbouring values."""
    first, last = np.triu_indices(n)
    return ((np.arange(n) >= first[:, None]) & (np.arange(n) <= last[:, None])).astype(float)


def one_and_two(factor: Callable[[int], Rows], n: int, d: int) -> KroneckerWorkload:
    """The same queries on each of d columns, and on every two together."""
    F = factor(n)
    return in_factors((n,) * d, [dict.fromkeys(kept, F) for k in (1, 2) for kept in combinations(range(d), k)])


def zeros_and_ones() -> Workload:
    """100 queries on 200 cells, each cell in half of them."""
    return as_workload((np.random.default_rng(0).random((100, 200)) < 0.5).astype(float))


def permuted_ranges(n: int = 256) -> Workload:
    """All ranges of cells in an order that is drawn."""
    return as_workload(all_ranges(n)[:, np.random.default_rng(0).permutation(n)])


def rectangles(n: int = 32, m: int = 400) -> Workload:
    """Ranges of two columns that are drawn."""
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, n, size=(m, 2, 2)), axis=2)
    inside = (np.arange(n) >= ends[:, :, :1]) & (np.arange(n) <= ends[:, :, 1:])
    return as_workload((inside[:, 0, :, None] & inside[:, 1, None, :]).reshape(m, n * n).astype(float))


def whole(sizes: tuple[int, ...], orders: Any) -> Workload:
    """All tables of so many columns, as a matrix where that is small."""
    return workloads.marginals(sizes, orders)


QUERYSMASHER = {"affine": 8.061, "abs-diff": 8.761, "random": 26.133, "mixed": 20.417}
TIED = tuple(
    Published(f"10^10 pairs, {kind}", partial(pairs, kind), figure, "QuerySmasher")
    for kind, figure in QUERYSMASHER.items()
)
TIED += (Published("Adult, 8 small columns, affine", small_adult, 5.591, "QuerySmasher"),)
SMASHED = {50: 41.40, 100: 79.20, 200: 153.30}
UNPUBLISHED = (
    *(
        Published(f"{n}^10 1- and 2-way {name}", partial(one_and_two, factor, n, 10), None, "")
        for name, factor in (("prefixes", running_totals), ("ranges", all_ranges))
        for n in (10, 20)
    ),
    *(
        Published(f"10^{d} 1- and 2-way prefixes", partial(one_and_two, running_totals, 10, d), figure, "QuerySmasher")
        for d, figure in SMASHED.items()
    ),
)
PUBLISHED = (
    *_best("gaussian"),
    *TIED,
    *UNPUBLISHED,
    Published("10^100 ≤ 3-way", BATCHES["10^100 ≤ 3-way"], None, "", largest=True),
)
SMALL: dict[str, Callable[[], Workload]] = {
    "0/1 100 × 200": zeros_and_ones,
    "(4, 7, 11, 3), 1- and 2-way": partial(whole, (4, 7, 11, 3), (1, 2)),
    "2^8 3-way": partial(whole, (2,) * 8, 3),
    "prefix 64 × identity 16": lambda: workloads.products((64, 16), [[running_totals(64), np.eye(16)]]),
    "all ranges 32 × 32": lambda: workloads.products((32, 32), [[all_ranges(32), all_ranges(32)]]),
    "width 32 over 512": partial(workloads.sliding, 512, 32),
    "permuted ranges 256": permuted_ranges,
    "400 random ranges of 32 × 32": rectangles,
}
PURE = (
    *_best("laplace"),
    *(Published(name, BATCHES[name], None, "") for name in ("10^100 ≤ 3-way", "2^10 2-way")),
    *(Published(f"10^{d} ≤ 2-way", partial(whole, (10,) * d, (0, 1, 2)), None, "") for d in (10, 50)),
    *(Published(name, make, None, "") for name, make in SMALL.items()),
)
