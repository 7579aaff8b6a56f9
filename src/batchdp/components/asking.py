"""Queries over a table's columns as a union of products over their atoms.

What a query adds for a record is, as a rule, a product of numbers that each depend on one column: conditions joined by
AND, an amount of one more column. Where it is not (an OR across columns, a sum over several), these columns are taken
together as one, whose values are the combinations of theirs. Queries of one statement that are all combinations of
some rows become one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.asking.rows import MOST_TOGETHER, Rows, rows_of
from batchdp.cells.atoms import Atoms
from batchdp.cells.splitting import possible, split
from batchdp.domain import Domain
from batchdp.errors import QueryError
from batchdp.queries import Item, Query
from batchdp.workloads.products import in_factors
from batchdp.workloads.structure import KroneckerWorkload

Dense = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Asked:
    """A batch of queries as tables over columns of atoms."""

    batch: KroneckerWorkload
    atoms: tuple[Atoms, ...]
    columns: tuple[tuple[int, ...], ...]
    """For every column of the batch the columns of atoms that it is made of; the last varies fastest."""
    alive: tuple[NDArray[np.int64], ...]
    """For every column of atoms, those that a record can have: the values, in this order."""
    places: tuple[tuple[int, int], ...]
    """For every query its table, and its place among the table's queries."""
    weights: Dense | None
    """Of the queries, if they have any."""


Weigh = Callable[[Dense], Dense | None]
"""From the most that one record can change every query to the queries' weights."""


def asked(queries: Sequence[Query], domain: Domain, weigh: Weigh = lambda _: None) -> Asked:
    """The tables of a batch of queries; a `QueryError` where columns would be taken together that are too large."""
    atoms = split(queries, domain)
    alive = tuple(np.flatnonzero(possible(column)).astype(np.int64) for column in atoms)
    read = [rows_of(query, atoms, alive) for query in queries]
    columns = _together(read, alive, atoms)
    home = {i: c for c, own in enumerate(columns) for i in own}
    sizes = [prod(len(alive[i]) for i in own) for own in columns]
    factored = [_factored(one, columns, home, alive) for one in read]
    terms: list[list[Dense | None]] = []
    names: list[str] = []
    places: list[tuple[int, int]] = [(-1, -1)] * len(queries)
    own_sizes = np.array([prod(float(np.abs(row).max(initial=0.0)) for row in own.values()) for own in factored])
    weights = weigh(own_sizes)
    each = np.ones(len(queries)) if weights is None else weights
    of_tables: list[float] = []
    for name, members in _statements(queries, factored, each):
        axes, positions = _grid([factored[q] for q in members])
        if positions is not None:
            terms.append([axes.get(c) for c in range(len(columns))])
            names.append(name)
            of_tables.append(float(each[members[0]]))
            for q, place in zip(members, positions, strict=True):
                places[q] = len(terms) - 1, place
            continue
        for q in members:
            own = factored[q]
            terms.append([own[c][None] if c in own else None for c in range(len(columns))])
            names.append(queries[q].name)
            of_tables.append(float(each[q]))
            places[q] = len(terms) - 1, 0
    batch = in_factors(sizes, terms, names=_distinct(names), weights=of_tables)
    return Asked(batch, atoms, columns, alive, tuple(places), weights)


def _together(
    read: Sequence[Rows], alive: Sequence[NDArray[np.int64]], atoms: Sequence[Atoms]
) -> tuple[tuple[int, ...], ...]:
    """The columns, those that some query ties together as one."""
    home = {i: {i} for i in range(len(alive))}
    for one in read:
        if one.rows is None:
            joined = set().union(*(home[i] for i in one.looked))
            for i in joined:
                home[i] = joined
    columns = tuple(sorted({tuple(sorted(own)) for own in home.values()}))
    for own in columns:
        size = prod(len(alive[i]) for i in own)
        if len(own) > 1 and size > MOST_TOGETHER:
            named = ", ".join(atoms[i].column for i in own)
            raise QueryError(f"the columns {named} are tied together by an OR or a sum and have {size:,} combinations")
    return columns


def _factored(
    one: Rows, columns: Sequence[tuple[int, ...]], home: dict[int, int], alive: Sequence[NDArray[np.int64]]
) -> dict[int, Dense]:
    """A query's row on every column that it looks at."""
    found: dict[int, Dense] = {}
    for c in sorted({home[i] for i in one.looked}):
        own = columns[c]
        if one.rows is None and home[one.looked[0]] == c:
            wide = one.whole.reshape([len(alive[i]) if i in one.looked else 1 for i in own])
        else:
            assert one.rows is not None
            wide = np.ones((1,) * len(own))
            for axis, i in enumerate(own):
                if i in one.looked:
                    wide = wide * one.rows[i].reshape([-1 if other == axis else 1 for other in range(len(own))])
        found[c] = np.broadcast_to(wide, [len(alive[i]) for i in own]).reshape(-1)
    if not one.looked and float(one.whole) != 1:  # a constant other than 1 needs a column to stand on
        found[0] = np.full(prod(len(alive[i]) for i in columns[0]), float(one.whole))
    return found


def _statements(
    queries: Sequence[Query], factored: Sequence[dict[int, Dense]], weights: Dense
) -> list[tuple[str, list[int]]]:
    """Queries of the same item of a SELECT, of the same columns and of the same weight: a table has one."""
    found: dict[tuple[Item, tuple[int, ...], float], list[int]] = {}
    for q, (query, own) in enumerate(zip(queries, factored, strict=True)):
        item = query.item or Item(query.name.split("[")[0])
        found.setdefault((item, tuple(own), float(f"{weights[q]:.12g}")), []).append(q)
    return [(item.name, members) for (item, *_), members in found.items()]


def _grid(members: Sequence[dict[int, Dense]]) -> tuple[dict[int, Dense], list[int] | None]:
    """The rows of every column and each query's place, if the queries are all combinations of rows, each once."""
    columns = list(members[0])
    rows: dict[int, dict[bytes, int]] = {c: {} for c in columns}
    at = [tuple(rows[c].setdefault(own[c].tobytes(), len(rows[c])) for c in columns) for own in members]
    shape = [len(rows[c]) for c in columns]
    if len(set(at)) != len(members) or prod(shape) != len(members):
        return {}, None
    axes = {c: np.array([np.frombuffer(row) for row in rows[c]]) for c in columns}
    return axes, [int(np.ravel_multi_index(place, shape)) if shape else 0 for place in at]


def _distinct(names: list[str]) -> list[str]:
    times: dict[str, int] = {}
    made = []
    for name in names:
        times[name] = times.get(name, 0) + 1
        made.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return made
