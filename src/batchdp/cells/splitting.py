"""The atoms of every column that a batch of queries needs, and what each condition is on each atom."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from batchdp.cells.atoms import Atoms, LineAtoms, ListedAtoms
from batchdp.domain import Column, Dates, Domain, Integers, Listed
from batchdp.errors import QueryError
from batchdp.queries import (
    All,
    Amount,
    Any,
    Choice,
    Condition,
    Cut,
    Missing,
    Negation,
    OneOf,
    Query,
    Scaled,
    Total,
    Truth,
    ValueOf,
    Within,
)
from batchdp.queries.conditions import Value

MOST_SUMMED = 20_000
"""Whole numbers that a summed column may have: each becomes an atom."""

Part = OneOf | Within | Missing | ValueOf
"""What looks at a column."""


def parts_of(node: Amount | Condition) -> Iterator[Part]:
    """Everything in an expression that looks at a column."""
    if isinstance(node, (OneOf, Within, Missing, ValueOf)):
        yield node
    elif isinstance(node, (All, Any)):
        for condition in node.conditions:
            yield from parts_of(condition)
    elif isinstance(node, Negation):
        yield from parts_of(node.condition)
    elif isinstance(node, Choice):
        for child in (node.condition, node.then, node.otherwise):
            yield from parts_of(child)
    elif isinstance(node, Scaled):
        yield from parts_of(node.amount)
    elif isinstance(node, Total):
        for amount in node.amounts:
            yield from parts_of(amount)


def split(queries: Iterable[Query], domain: Domain) -> tuple[Atoms, ...]:
    """The atoms of every column that a query looks at, or that decides which records are dropped."""
    return split_by((part for query in queries for part in parts_of(query.amount)), domain)


def split_by(parts: Iterable[Part], domain: Domain) -> tuple[Atoms, ...]:
    """The same for whatever looks at the columns."""
    looking: dict[str, dict[Part, None]] = {}
    for part in parts:
        looking.setdefault(part.column, {})[part] = None
    return tuple(
        _split_column(name, column, tuple(looking.get(name, ())))
        for name, column in domain.columns.items()
        if name in looking or column.other == "drop"
    )


def _split_column(name: str, column: Column, parts: tuple[Part, ...]) -> Atoms:
    dropping = column.other == "drop"
    if isinstance(column, Listed):
        chosen: dict[Value, list[int]] = {}  # in which of the lists every value is
        for i, part in enumerate(part for part in parts if isinstance(part, OneOf)):
            for value in part.values:
                chosen.setdefault(value, []).append(i)
        groups: dict[tuple[int, ...], list[Value]] = {}
        for value in column.values:
            if value in chosen:
                groups.setdefault(tuple(chosen[value]), []).append(value)
        return ListedAtoms(name, column.kind, tuple(map(tuple, groups.values())), column.values if dropping else None)
    low, high = column.ends()
    cuts = {cut for part in parts if isinstance(part, Within) for cut in (part.low, part.high) if cut is not None}
    if any(isinstance(part, ValueOf) for part in parts):
        if high - low >= MOST_SUMMED:
            raise QueryError(
                f"SUM({name}): the column has {high - low + 1} whole numbers, more than {MOST_SUMMED}; declare fewer, "
                "or sum a CASE over ranges of it"
            )
        cuts.update(Cut(value, after) for value in range(int(low), int(high) + 1) for after in (False, True))
    return LineAtoms(
        name,
        "date" if isinstance(column, Dates) else "number",
        tuple(sorted(cuts)),
        (low, high) if dropping else None,
        whole=isinstance(column, Integers),
    )


def possible(atoms: Atoms) -> NDArray[np.bool_]:
    """Which atoms a record that is not dropped can have."""
    alive = np.ones(atoms.size, dtype=bool)
    if atoms.declared is None:
        return alive
    alive[-1] = False
    if isinstance(atoms, ListedAtoms):
        alive[-2] = sum(map(len, atoms.groups)) < len(atoms.declared)
        return alive
    low, high = atoms.declared
    starts = (Cut(low), *(max(cut, Cut(low)) for cut in atoms.cuts))
    ends = (*(min(cut, Cut(high, after=True)) for cut in atoms.cuts), Cut(high, after=True))
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        alive[i] = start < end
        if atoms.whole or atoms.kind == "date":
            first = math.floor(start.value) + 1 if start.after else math.ceil(start.value)
            alive[i] = Cut(first) < end
    return alive


def outcomes(part: Part, atoms: Atoms) -> NDArray[np.float64]:
    """What the part is on every atom: the value of a `Truth`, or the number in the column."""
    results = np.zeros(atoms.size)
    if isinstance(part, Missing):
        results[-1] = Truth.TRUE.value
    elif isinstance(part, OneOf):
        assert isinstance(atoms, ListedAtoms)
        for i, group in enumerate(atoms.groups):
            results[i] = group[0] in part.values
        results[-1] = Truth.UNKNOWN.value
    else:
        assert isinstance(atoms, LineAtoms)
        if isinstance(part, ValueOf):
            for i, (start, end) in enumerate(zip(atoms.cuts, atoms.cuts[1:], strict=False), start=1):
                if start.value == end.value:
                    results[i] = start.value
            return results
        first = 0 if part.low is None else bisect_left(atoms.cuts, part.low) + 1
        last = len(atoms.cuts) if part.high is None else bisect_left(atoms.cuts, part.high)
        results[first : last + 1] = Truth.TRUE.value
        results[-1] = Truth.UNKNOWN.value
    return results
