"""Batches over many columns with published figures, as tables of factors, and what other programs reach on them.

Figures are root mean squared errors a query, or the largest variance: with Gaussian noise at ρ = ½ (`PUBLISHED`), with
Laplace noise at ε = √2, which has the same variance (`PURE`). ResidualPlanner's and
ResidualPlanner+'s are those of their papers, HDMM's those of its journal experiments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp import workloads
from batchdp.workloads.products import in_factors
from batchdp.workloads.structure import Products

Rows = NDArray[np.float64]
Term = list[Rows | None]

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
NUMERIC_OF_ADULT = 5
NUMERIC_OF_LOANS = 4
NUMERIC_OF_CPS = 2
MOST_CELLS_OF_LOANS = 5000
"""Of a table: all of at most so many are asked for."""


@dataclass(frozen=True)
class Published:
    """A batch, what is minimised, and the figure of the best other program."""

    name: str
    make: Callable[[], Products]
    figure: float | None
    source: str
    largest: bool = False


def running_totals(n: int) -> Rows:
    return np.tril(np.ones((n, n)))


def with_total(n: int) -> Rows:
    return np.vstack([np.eye(n), np.ones(n)])


def stretches(edges: Sequence[int], n: int) -> Rows:
    """One row for each stretch from an edge to the next, the last up to n."""
    value = np.arange(n)
    ends = [*edges[1:], n]
    return np.array([(low <= value) & (value < high) for low, high in zip(edges, ends, strict=True)], dtype=float)


def whole(sizes: Sequence[int], orders: int | Iterable[int]) -> Products:
    found: Products = workloads.marginals(sizes, orders).structure
    return found


def mixed(sizes: Sequence[int], numeric: int, asked: Iterable[tuple[int, ...]]) -> Products:
    """Tables of running totals over the first columns, and of single values over the others."""
    factors = [running_totals(n) if i < numeric else np.eye(n) for i, n in enumerate(sizes)]
    return in_factors(sizes, [[F if i in kept else None for i, F in enumerate(factors)] for kept in asked])


def small_tables(sizes: Sequence[int], most: int) -> list[tuple[int, ...]]:
    every = (kept for order in range(len(sizes) + 1) for kept in combinations(range(len(sizes)), order))
    return [kept for kept in every if prod(sizes[i] for i in kept) <= most]


def census(states: bool = False) -> Products:
    """The persons tables P1 to P12I and PCT12 to PCT12O of the 2010 Summary File 1: 4 151 queries.

    Columns: sex 2, Hispanic or not 2, race 64 (a set of six), age 115; with `states`, 51 of these and all together.
    Totals that several tables print are asked as often as they are printed.
    """
    race = np.arange(64)
    members = np.array([r.bit_count() for r in race])
    single = np.array([race == 2**i for i in range(6)], dtype=float)
    seven = np.vstack([single, members != 1])
    seventy = np.vstack([np.eye(64)[1:], [members == k for k in range(1, 7)], members >= 2])
    white, hispanic, other = single[:1], np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    grown = (np.arange(115) >= 18)[None].astype(float)
    starts = [0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85]
    age23, age103 = stretches(starts, 115), stretches([*range(101), 105, 110], 115)
    two, three = np.eye(2), with_total(2)

    def ages(groups: Rows, last: Rows) -> list[Term]:
        """A table by sex and age for everybody, by race, for Hispanics, and for others of some races."""
        found: list[Term] = []
        for who in ([None, None], [None, seven], [hispanic, None], [other, last]):
            found += [[two, *who, groups], [three, *who, None]]
        return found

    everybody: Term = [None] * 4
    terms: list[Term] = [
        *[everybody] * 5,  # P1, and the totals of P3, P4, P8 and P9
        [None, None, seven, None],  # P3
        *[[None, two, None, None]] * 2,  # P4, P9
        *[[None, two, seven, None], [None, three, None, None]],  # P5
        *[[None, None, seventy, None], [None, other, seventy, None]],  # P8, P9
        *[[None, None, None, grown]] * 2,  # totals of P10 and P11
        *[[None, None, seventy, grown], [None, two, None, grown], [None, other, seventy, grown]],  # P10, P11
        *ages(age23, white),  # P12 to P12I
        *ages(age103, seven),  # PCT12 to PCT12O
    ]
    if not states:
        return in_factors((2, 2, 64, 115), terms)
    return in_factors((2, 2, 64, 115, 51), [[*term, with_total(51)] for term in terms])


def cps_all() -> Products:
    return in_factors(CPS, [[with_total(n) for n in CPS]])


def ways(sizes: Sequence[int], numeric: int, orders: Iterable[int]) -> Products:
    """All tables of so many columns, with running totals over the first columns."""
    return mixed(sizes, numeric, [kept for k in orders for kept in combinations(range(len(sizes)), k)])


def _orders(orders: tuple[int, ...]) -> str:
    return f"{'≤ ' if len(orders) > 1 else ''}{orders[-1]}-way"


def adult_prefix() -> Products:
    return ways(ADULT, NUMERIC_OF_ADULT, [2])


def loans(prefixes: bool = True) -> Products:
    return mixed(LOANS, NUMERIC_OF_LOANS if prefixes else 0, small_tables(LOANS, MOST_CELLS_OF_LOANS))


def cps_prefix() -> Products:
    return in_factors(CPS, [[running_totals(50), running_totals(100), *(with_total(n) for n in CPS[2:])]])


RP, RP_PLUS, HDMM = "ResidualPlanner", "ResidualPlanner+", "HDMM"
ORDERS = (0, 1, 2, 3)
PUBLISHED = (
    *(
        Published(f"{name} {k}-way", lambda sizes=sizes, k=k: whole(sizes, k), figure, RP)  # type: ignore[misc]
        for name, sizes, figures in (
            ("Adult", ADULT, (3.047, 6.359, 10.515)),
            ("CPS", CPS, (1.744, 2.035, 2.048)),
            ("Loans", LOANS, (2.875, 5.634, 8.702)),
        )
        for k, figure in enumerate(figures, start=1)
    ),
    Published("Adult ≤ 3-way", lambda: whole(ADULT, ORDERS), 10.665, RP),
    Published("CPS ≤ 3-way", lambda: whole(CPS, ORDERS), 2.276, RP),
    Published("Loans ≤ 3-way", lambda: whole(LOANS, ORDERS), 8.876, RP),
    Published("Adult ≤ 3-way", lambda: whole(ADULT, ORDERS), 253.6, RP, largest=True),
    Published("CPS ≤ 3-way", lambda: whole(CPS, ORDERS), 13.2, RP, largest=True),
    Published("Loans ≤ 3-way", lambda: whole(LOANS, ORDERS), 180.8, RP, largest=True),
    *(
        Published(f"10^{d} ≤ 3-way", lambda d=d: whole((10,) * d, ORDERS), figure, RP)  # type: ignore[misc]
        for d, figure in ((10, 9.348), (15, 17.378), (20, 26.917), (50, 107.258), (100, 303.216), (200, 855.330))
    ),
    Published("10^100 ≤ 3-way", lambda: whole((10,) * 100, ORDERS), None, "", largest=True),
    Published("SF1", census, 2.3519, HDMM),
    Published("SF1, states", lambda: census(states=True), 2.6120, HDMM),
    Published("CPS prefixes", cps_prefix, 6.9755, HDMM),
    Published(
        "Adult 2-way prefixes",
        adult_prefix,
        17.274,
        RP_PLUS,
    ),
    *(
        Published(f"{name} {_orders(k)} prefixes", partial(ways, sizes, numeric, k), figure, RP_PLUS)
        for name, sizes, numeric, figures in (
            ("Adult", ADULT, NUMERIC_OF_ADULT, {(1,): 5.081}),
            ("Loans", LOANS, NUMERIC_OF_LOANS, {(1,): 4.681, (2,): 14.502}),
            ("CPS", CPS, NUMERIC_OF_CPS, {(1,): 3.081, (2,): 5.823, (3,): 7.302, (1, 2, 3): 7.570}),
        )
        for k, figure in figures.items()
    ),
    Published(
        "Loans prefixes",
        loans,
        23.6048,
        HDMM,
    ),
)
PURE = (
    Published("SF1", census, 5.1611, HDMM),
    Published("SF1, states", lambda: census(states=True), 7.2371, HDMM),
    Published("CPS all", cps_all, 3.4214, HDMM),
    Published("CPS prefixes", cps_prefix, 28.7017, HDMM),
    Published("Adult ≤ 3-way", lambda: whole(ADULT, ORDERS), 159.3484, HDMM),
    Published("Adult 2-way prefixes", adult_prefix, 342.2875, HDMM),
    Published("Loans", lambda: loans(prefixes=False), 71.3630, HDMM),
    Published("Loans prefixes", loans, 203.8491, HDMM),
    Published("10^100 ≤ 3-way", lambda: whole((10,) * 100, ORDERS), None, ""),
    Published("2^10 2-way", lambda: whole((2,) * 10, 2), None, ""),
)
