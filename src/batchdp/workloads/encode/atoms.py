"""The atoms of every column that a batch of queries needs, and what each condition is on each atom."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from batchdp.domain import Column, Dates, Domain, Integers, Listed
from batchdp.domain.columns import Grid
from batchdp.errors import QueryError
from batchdp.linalg.matrix import Dense
from batchdp.queries.query import (
    All,
    Amount,
    Any,
    Choice,
    Compared,
    Computed,
    Condition,
    Cut,
    Each,
    Missing,
    Negation,
    OneOf,
    Place,
    Query,
    Scaled,
    Term,
    Total,
    Truth,
    Value,
    ValueOf,
    Within,
)

Flags = NDArray[np.bool_]
Groupable = OneOf | Within
"""What groups of values are told by."""


@dataclass(frozen=True)
class ListedAtoms:
    """Groups of declared values, then anything else, then NULL.

    Atom i < len(groups) holds the values of group i, atom len(groups) holds every other value that is not NULL, and
    atom len(groups) + 1 holds NULL.
    """

    column: str
    kind: Literal["text", "integer", "boolean"]
    groups: tuple[tuple[Value, ...], ...]
    declared: tuple[Value, ...] | None
    """Where given, records with any other value, or NULL, are dropped. Always contains every value in `groups`."""

    @property
    def size(self) -> int:
        """How many atoms there are."""
        return len(self.groups) + 2

    @cached_property
    def possible(self) -> Flags:
        """Which atoms a record that is not dropped can have."""
        left = self.declared is None or sum(map(len, self.groups)) < len(self.declared)
        return np.array([True] * len(self.groups) + [left, self.declared is None])

    @cached_property
    def _atom_of(self) -> dict[Value, int]:
        return {value: i for i, group in enumerate(self.groups) for value in group}

    def atoms_in(self, part: Groupable) -> list[int]:
        """The atoms of the part's values, which no atom has only some of."""
        assert isinstance(part, OneOf)
        return [self._atom_of[value] for value in part.values if value in self._atom_of]


@dataclass(frozen=True)
class LineAtoms:
    """The stretches between cuts of a line of numbers or days, then NULL (and NaN).

    Atom i ≤ len(cuts) holds the values after cut i − 1 and before cut i; the first and the last stretch are open-ended.
    Atom len(cuts) + 1 holds NULL.
    """

    column: str
    kind: Literal["number", "date"]
    cuts: tuple[Cut, ...]
    """In ascending order. Those of dates are all before a day."""
    declared: tuple[Place, Place] | None
    """Where given, records outside these two (both included), or NULL, are dropped."""
    whole: bool = False
    """Where records are dropped, those that are not whole numbers are dropped as well."""

    @property
    def size(self) -> int:
        """How many atoms there are."""
        return len(self.cuts) + 2

    @cached_property
    def possible(self) -> Flags:
        """Which atoms a record that is not dropped can have."""
        if self.declared is None:
            return np.ones(self.size, dtype=bool)
        bottom, top = Cut(self.declared[0]), Cut(self.declared[1], after=True)
        starts = [max(cut, bottom) for cut in (bottom, *self.cuts)]
        if self.whole or self.kind == "date":
            starts = [Cut(math.floor(one.value) + 1 if one.after else math.ceil(one.value)) for one in starts]
        return np.array([*(start < min(end, top) for start, end in zip(starts, (*self.cuts, top), strict=True)), False])

    def atoms_in(self, part: Groupable) -> list[int]:
        """The stretches between the part's cuts, which no atom is only in part in."""
        return list(_between(self.cuts, part))

    def numbers(self) -> Iterator[tuple[int, Place]]:
        """The atoms that hold a single number."""
        return ((i, low.value) for i, (low, high) in enumerate(pairwise(self.cuts), 1) if low.value == high.value)

    def days(self) -> Iterator[tuple[int, Place]]:
        """The atoms that hold a single day."""
        return ((i, low.value) for i, (low, high) in enumerate(pairwise(self.cuts), 1) if high.value == low.value + 1)


@dataclass(frozen=True)
class Stretch:
    """Values between two cuts, and the atoms that stand for them; None where there is no such record."""

    first: int
    last: int
    """Steps of the grid; no step where the last is before the first."""
    low: int | None
    high: int | None
    """The atoms of the stretch's two ends; of a single step, both are one."""
    beside: int | None
    """The atom of values that are not on the grid."""

    @property
    def atoms(self) -> list[int]:
        """All of them; an end that is both twice."""
        return [atom for atom in (self.low, self.high, self.beside) if atom is not None]


@dataclass(frozen=True)
class AmountAtoms:
    """A column of amounts on a grid: the two ends of every stretch between cuts, what is not on the grid, then NULL.

    Every COUNT and SUM is affine in a value within a stretch, so that a record there is a mixture of records at its two
    ends. In engines it has the atom of the lower end, and the number of its step.
    """

    column: str
    grid: Grid
    ends: tuple[Place, Place]
    """As declared: values beyond them are not on the grid, unless they are clipped."""
    cuts: tuple[Cut, ...]
    """In ascending order, among them those before the lower end and after the upper one."""
    dropping: bool
    """Whether records that are not on the grid are dropped."""
    whole: bool
    """Whether values between the steps are not on the grid; if not, they are rounded to the nearest step."""
    clip: bool
    """Whether values beyond the ends count as these."""
    summed: bool
    """Whether a query sums the column by the ends of its stretches."""
    kind: Literal["number"] = "number"

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """One for every pair of neighbouring cuts, the outer ones open-ended."""
        found: list[Stretch] = []
        atom = 0
        bottom, top = Cut(self.ends[0]), Cut(self.ends[1], after=True)
        for i in range(len(self.cuts) + 1):
            start = self.cuts[i - 1] if i else None
            end = self.cuts[i] if i < len(self.cuts) else None
            inside = start is not None and end is not None and bottom <= start and end <= top
            first, last = (self._first(start), self._first(end) - 1) if inside and start and end else (0, -1)
            low = high = beside = None
            if first <= last:
                low, high = atom, atom + (first < last)
                atom = high + 1
            # Between the cuts before and after a value there is nothing else.
            wide = start is None or end is None or start.value < end.value
            if not self.dropping and wide and (self.whole if inside else not self.clip):
                beside = atom
                atom += 1
            found.append(Stretch(first, last, low, high, beside))
        return tuple(found)

    def _first(self, cut: Cut) -> int:
        return self.grid.first(cut.value, after=cut.after)

    @cached_property
    def size(self) -> int:
        """How many atoms there are."""
        return max((atom for one in self.stretches for atom in one.atoms), default=-1) + 2

    @cached_property
    def possible(self) -> Flags:
        """Which atoms a record that is not dropped can have."""
        return np.array([True] * (self.size - 1) + [not self.dropping])

    def atoms_in(self, part: Groupable) -> list[int]:
        """The atoms of the stretches between the part's cuts."""
        return [atom for i in _between(self.cuts, part) for atom in self.stretches[i].atoms]

    def numbers(self) -> Iterator[tuple[int, Fraction]]:
        """The atoms of the ends of stretches, each with the number there."""
        for one in self.stretches:
            if one.low is not None and one.high is not None:
                yield one.low, self.grid.value(one.first)
                yield one.high, self.grid.value(one.last)


Atoms = ListedAtoms | LineAtoms | AmountAtoms


def _between(cuts: tuple[Cut, ...], part: Groupable) -> range:
    """The stretches between neighbouring cuts, by number, that a part holds on."""
    assert isinstance(part, Within)
    first = 0 if part.low is None else bisect_left(cuts, part.low) + 1
    return range(first, (len(cuts) if part.high is None else bisect_left(cuts, part.high)) + 1)


MOST_SUMMED = 20_000
"""Whole numbers that a summed column may have where each becomes an atom."""

APART = "write them as two queries and add the answers, which costs no privacy"

Part = OneOf | Within | Missing | ValueOf | Each
"""What looks at a column."""


def parts_of(node: Amount | Condition) -> Iterator[Part]:
    """Everything in an expression that looks at a column."""
    children: tuple[Amount | Condition, ...] = ()
    match node:
        case OneOf() | Within() | Missing() | ValueOf():
            yield node
        case Compared(terms) | Computed(terms):
            yield from (Each(term.column) for term in terms)
        case All(conditions) | Any(conditions):
            children = conditions
        case Choice(condition, then, otherwise):
            children = condition, then, otherwise
        case Negation(inner) | Scaled(_, inner):
            children = (inner,)
        case Total(amounts):
            children = amounts
    for child in children:
        yield from parts_of(child)


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
        if any(isinstance(part, Each) for part in parts):
            chosen = {value: [-1 - i] for i, value in enumerate(column.values)}
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
    each = any(isinstance(part, Each) for part in parts)
    grid = None if isinstance(column, Dates) else column.grid
    rounded = not isinstance(column, (Dates, Integers)) and grid is not None
    clipped = not isinstance(column, Dates) and column.outside is not None
    if grid is not None and (rounded or clipped or (summed and ends)):
        if summed and not ends and not every_step and not each:
            raise QueryError(f"SUM({name}) and the sum of another column in one query: {APART}")
        cuts |= {Cut(low), Cut(high, after=True)}
        if (summed and not ends) or each:
            cuts |= _between_steps(name, grid)
        whole, by_ends = isinstance(column, Integers), summed and ends
        return AmountAtoms(name, grid, (low, high), tuple(sorted(cuts)), dropping, whole, clipped, by_ends)
    if each and isinstance(column, Dates):
        cuts |= {Cut(day) for day in range(int(low), int(high) + 2)}
    elif summed or each:
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


def numbers_of(term: Term, atoms: Atoms) -> Dense:
    """What a term is on every atom, each of which has one number; infinite where there is none."""
    results = np.full(atoms.size, np.inf)
    if isinstance(atoms, ListedAtoms):
        for atom, group in enumerate(atoms.groups):
            if term.values and group[0] in term.values:
                results[atom] = float(term.factor * term.values.index(group[0]))
            elif not term.values and atoms.kind == "integer":
                results[atom] = float(term.factor * int(group[0]))
        return results
    for atom, number in atoms.days() if isinstance(atoms, LineAtoms) and atoms.kind == "date" else atoms.numbers():
        results[atom] = float(term.factor * Fraction(number))
    return results


def outcomes(part: OneOf | Within | Missing | ValueOf, atoms: Atoms) -> Dense:
    """What the part is on every atom: the value of a `Truth`, or the number in the column."""
    results = np.zeros(atoms.size)
    if isinstance(part, Missing):
        results[-1] = Truth.TRUE.value
    elif isinstance(part, ValueOf):
        assert not isinstance(atoms, ListedAtoms)
        for atom, number in atoms.numbers():
            results[atom] = 1.0 if part.counted else float(number)
    else:
        results[atoms.atoms_in(part)] = Truth.TRUE.value
        results[-1] = Truth.UNKNOWN.value
    return results
