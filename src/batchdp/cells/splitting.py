"""The atoms of every column that a batch of queries needs, and what each condition is on each atom."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from batchdp.cells.atoms import AmountAtoms, Atoms, LineAtoms, ListedAtoms
from batchdp.domain import Column, Dates, Domain, Integers, Listed
from batchdp.domain.columns import Grid
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
"""Whole numbers that a summed column may have where each becomes an atom."""

APART = "write them as two queries and add the answers, which costs no privacy"

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


def split(queries: Iterable[Query], domain: Domain, *, ends: bool = False) -> tuple[Atoms, ...]:
    """The atoms of every column that a query looks at, or that decides which records are dropped.

    Summed columns have one atom for every whole number; with `ends`, two for every stretch, its ends. Columns that one
    query sums together keep an atom for every number.
    """
    parts = [list(parts_of(query.amount)) for query in queries]
    summed = [{part.column for part in own if isinstance(part, ValueOf)} for own in parts]
    by_ends = set().union(*summed).difference(*(own for own in summed if len(own) > 1)) if ends else set()
    return split_by((part for own in parts for part in own), domain, by_ends)


def split_by(
    parts: Iterable[Part], domain: Domain, by_ends: Collection[str] = (), *, every_step: bool = False
) -> tuple[Atoms, ...]:
    """The same for whatever looks at the columns, of which some are summed by ends.

    With `every_step`, columns with a step have an atom for every step, as those of whole numbers have for every number.
    """
    looking: dict[str, dict[Part, None]] = {}
    for part in parts:
        looking.setdefault(part.column, {})[part] = None
    return tuple(
        _split_column(name, column, tuple(looking.get(name, ())), ends=name in by_ends, every_step=every_step)
        for name, column in domain.columns.items()
        if name in looking or column.other == "drop"
    )


def _split_column(name: str, column: Column, parts: tuple[Part, ...], *, ends: bool, every_step: bool) -> Atoms:
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
    summed = any(isinstance(part, ValueOf) for part in parts)
    grid = None if isinstance(column, Dates) else column.grid
    rounded = not isinstance(column, (Dates, Integers)) and grid is not None
    clipped = not isinstance(column, Dates) and column.outside is not None
    if grid is not None and (rounded or clipped or (summed and ends)):
        if summed and not ends and not every_step:
            raise QueryError(f"SUM({name}) and the sum of another column in one query: {APART}")
        cuts |= {Cut(low), Cut(high, after=True)}
        if summed and not ends:
            cuts |= _between_steps(name, grid)
        whole, by_ends = isinstance(column, Integers), summed and ends
        return AmountAtoms(name, grid, (low, high), tuple(sorted(cuts)), dropping, whole, clipped, by_ends)
    if summed:
        if high - low >= MOST_SUMMED:
            raise QueryError(_too_many_to_sum(name, int(high - low) + 1, every_step=every_step))
        cuts.update(Cut(value, after) for value in range(int(low), int(high) + 1) for after in (False, True))
    return LineAtoms(
        name,
        "date" if isinstance(column, Dates) else "number",
        tuple(sorted(cuts)),
        (low, high) if dropping else None,
        whole=isinstance(column, Integers),
    )


def _between_steps(name: str, grid: Grid) -> set[Cut]:
    """Cuts that leave every step of a summed column by itself."""
    if grid.steps >= MOST_SUMMED:
        raise QueryError(_too_many_to_sum(name, grid.steps + 1, every_step=True))
    cuts = {Cut(float(grid.value(place) - grid.step / 2)) for place in range(1, grid.steps + 1)}
    if sorted(grid.first(cut.value, after=False) for cut in cuts) != list(range(1, grid.steps + 1)):
        raise QueryError(
            f"SUM({name}): its steps are too narrow to be told apart as floats; declare a coarser step, or a range "
            "nearer to 0"
        )
    return cuts


def _too_many_to_sum(name: str, values: int, *, every_step: bool) -> str:
    if not every_step:
        problem = f"more than {MOST_SUMMED}, and is summed together with another column: {APART}"
        return f"SUM({name}): the column has {values} whole numbers, {problem}"
    return (
        f"SUM({name}): the column has {values:,} values, more than {MOST_SUMMED:,}, and a batch of tables tells every "
        f"one of them apart; declare coarser steps, or plan SUM({name}) by itself, without marginals and for at most "
        "10,000 answers"
    )


def possible(atoms: Atoms) -> NDArray[np.bool_]:
    """Which atoms a record that is not dropped can have."""
    alive = np.ones(atoms.size, dtype=bool)
    if isinstance(atoms, AmountAtoms):
        alive[-1] = not atoms.dropping
        return alive
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
    elif isinstance(atoms, AmountAtoms):
        _amount_outcomes(part, atoms, results)
    else:
        assert isinstance(atoms, LineAtoms)
        if isinstance(part, ValueOf):
            for i, (start, end) in enumerate(zip(atoms.cuts, atoms.cuts[1:], strict=False), start=1):
                if start.value == end.value:
                    results[i] = 1.0 if part.counted else start.value
            return results
        first = 0 if part.low is None else bisect_left(atoms.cuts, part.low) + 1
        last = len(atoms.cuts) if part.high is None else bisect_left(atoms.cuts, part.high)
        results[first : last + 1] = Truth.TRUE.value
        results[-1] = Truth.UNKNOWN.value
    return results


def _amount_outcomes(part: Within | ValueOf, atoms: AmountAtoms, results: NDArray[np.float64]) -> None:
    if isinstance(part, ValueOf):
        for stretch in atoms.stretches:
            if stretch.low is not None and stretch.high is not None:
                results[stretch.low] = 1.0 if part.counted else float(atoms.grid.value(stretch.first))
                results[stretch.high] = 1.0 if part.counted else float(atoms.grid.value(stretch.last))
        return
    first = 0 if part.low is None else bisect_left(atoms.cuts, part.low) + 1
    last = len(atoms.cuts) if part.high is None else bisect_left(atoms.cuts, part.high)
    for stretch in atoms.stretches[first : last + 1]:
        for atom in (stretch.low, stretch.high, stretch.beside):
            if atom is not None:
                results[atom] = Truth.TRUE.value
    results[-1] = Truth.UNKNOWN.value
