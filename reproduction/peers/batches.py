"""Batches over many columns that others publish figures of, as tables of factors; no code of theirs is used.

Adult, CPS and Loans are columns of so many values; SF1 are the persons tables of the 2010 Census.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp import workloads
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors

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


def running_totals(n: int) -> Rows:
    """Of the first values, up to each."""
    return np.tril(np.ones((n, n)))


def with_total(n: int) -> Rows:
    """Each value, and all together."""
    return np.vstack([np.eye(n), np.ones(n)])


def stretches(edges: Sequence[int], n: int) -> Rows:
    """One row for each stretch from an edge to the next, the last up to n."""
    value = np.arange(n)
    ends = [*edges[1:], n]
    return np.array([(low <= value) & (value < high) for low, high in zip(edges, ends, strict=True)], dtype=float)


def whole(sizes: Sequence[int], orders: int | Iterable[int]) -> KroneckerWorkload:
    """All tables of so many columns, value by value."""
    found: KroneckerWorkload = workloads.marginals(sizes, orders).structure
    return found


def mixed(sizes: Sequence[int], numeric: int, asked: Iterable[tuple[int, ...]]) -> KroneckerWorkload:
    """Tables of running totals over the first columns, and of single values over the others."""
    factors = [running_totals(n) if i < numeric else np.eye(n) for i, n in enumerate(sizes)]
    return in_factors(sizes, [[F if i in kept else None for i, F in enumerate(factors)] for kept in asked])


def small_tables(sizes: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Sets of columns whose table has at most so many cells."""
    every = (kept for order in range(len(sizes) + 1) for kept in combinations(range(len(sizes)), order))
    return [kept for kept in every if prod(sizes[i] for i in kept) <= most]


def census(states: bool = False) -> KroneckerWorkload:
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


def cps_all() -> KroneckerWorkload:
    """Every value and all together, of every column at once."""
    return in_factors(CPS, [[with_total(n) for n in CPS]])


def ways(sizes: Sequence[int], numeric: int, orders: Iterable[int]) -> KroneckerWorkload:
    """All tables of so many columns, with running totals over the first columns."""
    return mixed(sizes, numeric, [kept for k in orders for kept in combinations(range(len(sizes)), k)])


def loans(prefixes: bool = True) -> KroneckerWorkload:
    """All small tables, with running totals over the amounts or without."""
    return mixed(LOANS, NUMERIC_OF_LOANS if prefixes else 0, small_tables(LOANS, MOST_CELLS_OF_LOANS))


def cps_prefix() -> KroneckerWorkload:
    """Running totals of income and age, by all other columns and their totals."""
    return in_factors(CPS, [[running_totals(50), running_totals(100), *(with_total(n) for n in CPS[2:])]])


def _all_batches() -> Iterator[tuple[str, Callable[[], KroneckerWorkload]]]:
    columns = {"Adult": (ADULT, NUMERIC_OF_ADULT), "CPS": (CPS, NUMERIC_OF_CPS), "Loans": (LOANS, NUMERIC_OF_LOANS)}
    for name, (sizes, numeric) in columns.items():
        for words, orders in {**{f"{k}-way": (k,) for k in (1, 2, 3)}, "≤ 3-way": (0, 1, 2, 3)}.items():
            yield f"{name} {words}", partial(whole, sizes, orders)
            # Running totals are asked without the one query of no column.
            yield f"{name} {words} prefixes", partial(ways, sizes, numeric, [k for k in orders if k])
    for d in (10, 15, 20, 50, 100, 200):
        yield f"10^{d} ≤ 3-way", partial(whole, (10,) * d, (0, 1, 2, 3))
    yield "2^10 2-way", partial(whole, (2,) * 10, 2)
    yield "SF1", census
    yield "SF1, states", partial(census, states=True)
    yield "CPS all", cps_all
    yield "CPS prefixes", cps_prefix
    yield "Loans", partial(loans, prefixes=False)
    yield "Loans prefixes", loans


BATCHES = dict(_all_batches())
"""By the names that the figures go by."""
