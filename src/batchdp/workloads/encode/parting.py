"""What tables are grouped by, over the atoms: a parting gives every record one of its groups, or none."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import QueryError
from batchdp.queries.query import (
    Amount,
    Choice,
    Condition,
    Constant,
    OneOf,
    Query,
    Value,
    Within,
)
from batchdp.workloads.encode.atoms import Atoms, LineAtoms, ListedAtoms, possible
from batchdp.workloads.encode.tables import MOST_TOGETHER, Dense, rows_of

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parting:
    """The group of every combination of atoms of some columns, the last column fastest; −1 for none."""

    looked: tuple[int, ...]
    """Columns of atoms."""
    group: Indices
    running: bool = False
    """Whether a record is in all rows from its group on: those of running totals, which end before the last group."""

    def spread(self, groups: Indices, rows: int) -> NDArray[np.bool_]:
        """Which rows records of these groups are in: row × record."""
        own = np.arange(rows)[:, None]
        return (groups >= 0) & (groups <= own) if self.running else groups == own


def alive_of(atoms: Atoms) -> Indices:
    """The atoms that a record can have; of true and false, nothing else is left."""
    alive = possible(atoms)
    if isinstance(atoms, ListedAtoms) and atoms.kind == "boolean" and sum(map(len, atoms.groups)) == 2:
        alive[len(atoms.groups)] = False
    return np.flatnonzero(alive).astype(np.int64)


def of_column(
    number: int, column: Atoms, alive: Indices, groups: Sequence[OneOf | Within], *, every: bool
) -> tuple[Parting, int, bool, bool]:
    """By groups of one column, no two of which share a value.

    Returns: the parting and how many groups it has; if `every` atom has one, whether anything else and NULL do.
    """
    group = np.full(column.size, -1, dtype=np.int64)
    if isinstance(column, ListedAtoms):
        home: dict[Value, int] = {v: g for g, one in enumerate(groups) if isinstance(one, OneOf) for v in one.values}
        for i, values in enumerate(column.groups):
            group[i] = home.get(values[0], -1)
    else:
        for g, one in enumerate(groups):
            assert isinstance(one, Within)
            first = 0 if one.low is None else bisect_left(column.cuts, one.low) + 1
            last = len(column.cuts) if one.high is None else bisect_left(column.cuts, one.high)
            if isinstance(column, LineAtoms):
                group[first : last + 1] = g
                continue
            for stretch in column.stretches[first : last + 1]:
                own = (stretch.low, stretch.high, stretch.beside)
                group[[atom for atom in own if atom is not None]] = g
        group[-1] = -1
    found, count = group[alive], len(groups)
    if not every:
        return Parting((number,), found), count, False, False
    missing = alive == column.size - 1
    other = bool(np.any((found < 0) & ~missing))
    found = np.where((found < 0) & ~missing, count, found)
    count += other
    found = np.where(missing, count, found)
    return Parting((number,), found), count + bool(missing.any()), other, bool(missing.any())


def of_cases(
    cases: Sequence[tuple[Condition, int]], rest: int, atoms: Sequence[Atoms], alive: Sequence[Indices]
) -> Parting:
    """By the first of the conditions that is true, each with the number of its group; `rest` where none is."""
    amount: Amount = Constant(float(rest + 1))
    for holds, group in reversed(cases):
        amount = Choice(holds, Constant(float(group + 1)), amount)
    one = rows_of(Query("CASE", amount), atoms, alive)
    whole: Dense = one.whole
    if one.rows is not None and one.looked:
        if prod(len(alive[i]) for i in one.looked) > MOST_TOGETHER:
            raise QueryError(
                f"a CASE looks at {len(one.looked)} columns with more than {MOST_TOGETHER:,} combinations; "
                "use fewer columns in it"
            )
        whole = np.ones(())
        for i in one.looked:
            whole = np.multiply.outer(whole, one.rows[i])
    return Parting(one.looked, np.rint(whole).astype(np.int64).reshape(-1) - 1)
