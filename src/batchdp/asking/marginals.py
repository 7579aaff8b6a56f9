"""All tables of a domain: of up to so many of its columns, every value and everything else included."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb

from batchdp import checks
from batchdp.domain import Column, Dates, Domain, Integers, Listed
from batchdp.domain.columns import MOST_VALUES
from batchdp.errors import QueryError
from batchdp.workloads.structure import MOST_TABLES

MOST_GROUPS = 20_000
"""Of a column: each is a branch of the count."""
SHOWN = 5

Orders = tuple[int, ...]
"""How many columns the tables have, in ascending order."""


def checked_orders(marginals: int | Iterable[int], domain: Domain) -> Orders:
    """How many columns tables have: all numbers up to one that is given, or those in a list."""
    if isinstance(marginals, Iterable) and not isinstance(marginals, str | bytes):
        orders = [checks.check_whole("marginals", k, 0, QueryError) for k in marginals]
        if not orders:
            raise QueryError("marginals is empty; give a number of columns, or several")
        if len(set(orders)) < len(orders):
            raise QueryError(f"marginals={marginals!r} has a number more than once; give every number once")
    else:
        most = checks.check_whole("marginals", marginals, 0, QueryError)
        orders = list(range(min(most, len(domain.columns) + 1) + 1))
    if max(orders) > len(domain.columns):
        raise QueryError(f"marginals are for a domain of {len(domain.columns)} columns; give at most that many")
    tables = sum(comb(len(domain.columns), k) for k in orders)
    if tables > MOST_TABLES:
        raise QueryError(f"marginals={marginals!r} makes {tables:,} tables, more than {MOST_TABLES:,}; lower it")
    if max(orders) > 0:
        _check_groups(domain)
    return tuple(sorted(orders))


def column_sets(orders: Orders, columns: int) -> Iterable[tuple[int, ...]]:
    """The columns of every table, fewest first."""
    return (own for k in orders for own in combinations(range(columns), k))


def _check_groups(domain: Domain) -> None:
    """Refuse columns without groups, by name."""
    without = [name for name, column in domain.columns.items() if not 0 < _groups(column) <= MOST_GROUPS]
    if not without:
        return
    name, column = without[0], domain.columns[without[0]]
    named = ", ".join(without[:SHOWN]) + (f" and {len(without) - SHOWN} more" if len(without) > SHOWN else "")
    if isinstance(column, Listed):
        remedy = f"declare fewer values under [columns.{name}]"
    else:
        first = f'"{column.dates[0]}"' if isinstance(column, Dates) else column.ends()[0]
        remedy = f"declare lower edges, like bins = [{first}, …] under [columns.{name}]"
    raise QueryError(
        f"marginals need every column to have groups, {MOST_GROUPS:,} at most; {named} "
        f"{'has' if len(without) == 1 else 'have'} none, or more: {remedy}, or leave the column out of the domain"
    )


def _groups(column: Column) -> int:
    if isinstance(column, Listed):
        return len(column.values)
    if column.bins is not None:
        return len(column.bins)
    if isinstance(column, Integers) and column.integers[1] - column.integers[0] < MOST_VALUES:
        return column.integers[1] - column.integers[0] + 1
    return 0
