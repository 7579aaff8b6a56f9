"""Classes of records that queries tell apart, found by taking the columns of a record one after the other.

Records for which everything that is still to come adds the same to all queries need not be told apart any longer, which
is what keeps the number of classes small. An expression on one column is worked out on each of its atoms; from there on
two expressions, or the queries of two batches, are joined by going through both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import QueryError
from batchdp.linalg.matrix import Dense, Indices
from batchdp.queries.query import (
    All,
    Amount,
    Choice,
    Compared,
    Computed,
    Condition,
    Constant,
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
from batchdp.queries.query import Any as AnyOf
from batchdp.workloads.encode.atoms import Atoms, numbers_of, outcomes, parts_of

States = NDArray[np.integer]
Transitions = Sequence[States | None]
"""For every column, state × atom → next state; None where the column changes nothing."""

MOST_STATES = 65_536
"""On the way: there may be more than classes in the end, since later columns merge states again."""

MOST_ENTRIES = 32_000_000
"""Of the tables of transitions that are made at a time: some hundred million bytes."""
MOST_AMOUNTS: ContextVar[int] = ContextVar("most_amounts", default=10**9)
"""Entries of W that are not 0; fewer where somebody else's file is read."""
CHUNK = 2_000_000
"""Entries that are worked on at a time."""


class TooManyClassesError(Exception):
    """Caught where the batch is then split."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Which class every combination of atoms belongs to, and what a record of each class adds to every query."""

    transitions: tuple[States | None, ...]
    amounts: sparse.csc_array
    """Query × last state; no two states add the same."""

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which of the last states add to a query at all: these are the cells."""
        counted = np.diff(self.amounts.indptr) > 0
        return counted if counted.any() else np.ones_like(counted)  # a workload has at least one cell

    @property
    def size(self) -> int:
        """How many cells there are."""
        return int(self.counted.sum())

    @property
    def cells(self) -> States:
        """For every last state its cell, −1 where it is none."""
        return np.where(self.counted, np.cumsum(self.counted, dtype=np.int32) - np.int32(1), np.int32(-1))

    @property
    def matrix(self) -> sparse.csr_array:
        """W: query × cell."""
        return sparse.csr_array(self.amounts[:, np.flatnonzero(self.counted)])

    def in_order(self, queries: NDArray[np.intp]) -> Classes:
        """The same classes with the queries in this order and the last states sorted by what they add."""
        amounts = sparse.csr_array(self.amounts)[queries]
        order = _lexicographic(amounts)
        tables = list(self.transitions)
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        for column in reversed(range(len(tables))):
            table = tables[column]
            if table is not None:
                tables[column] = place[table]
                break
        return Classes(tuple(tables), sparse.csc_array(amounts)[:, order])

    def of(self, codes: NDArray[np.integer]) -> States:
        """The cell of every row of atoms, one column of `codes` for every column of the table; −1 if not counted."""
        states: States = np.zeros(len(codes), dtype=np.int32)
        for column, table in enumerate(self.transitions):
            if table is not None:
                states = table[states, codes[:, column]]
        return np.asarray(self.cells[states], dtype=np.int32)


def classes_of(query: Query, atoms: Sequence[Atoms], most: int) -> Classes:
    """The classes that one query tells apart; `TooManyClassesError` if there are more than `most`."""
    transitions, amounts = _classes(query.amount, atoms, most)
    return _few_enough(Classes(tuple(transitions), sparse.csc_array(amounts[None])), most)


def counting(classes: Classes) -> Classes:
    """The classes of records by nothing but whether they are counted: one row, 1 where they are."""
    transitions, counted = _fewest(classes.transitions, classes.counted.astype(float))
    return Classes(transitions, sparse.csc_array(counted[None]))


def numbered(classes: Classes) -> Classes:
    """The same classes by nothing but their cells: one row, which has the cell of each from 1, and 0 for none."""
    return Classes(classes.transitions, sparse.csc_array(classes.cells[None] + 1.0))


LOGIC = np.array([0.0, 1.0, 0.5])
"""By the value of a `Truth`: then AND is the least, OR the largest, and NOT what is missing to 1."""
Expression = Amount | Condition
Operation = Callable[[Any, Any], Any]
"""On what two expressions are for some records."""


def _classes(node: Expression, atoms: Sequence[Atoms], most: int) -> tuple[Transitions, Dense]:
    """How records get to the classes that an expression tells apart, and what it is for a record of each."""
    if isinstance(node, Compared | Computed):
        return _of_terms(node, atoms)
    columns = {part.column for part in parts_of(node)}
    if len(columns) <= 1:
        return _of_column(node, next((i for i, one in enumerate(atoms) if one.column in columns), None), atoms)
    operation, *sides = _halves(node)
    (one, amounts), (other, more) = (_classes(side, atoms, most) for side in sides)
    if len(amounts) == 1 or len(more) == 1:
        return _fewest(other if len(amounts) == 1 else one, operation(amounts, more))
    transitions, pairs = _paired(one, other, atoms, most)
    return _fewest(transitions, operation(amounts[pairs[:, 0]], more[pairs[:, 1]]))


def _of_terms(node: Compared | Computed, atoms: Sequence[Atoms]) -> tuple[Transitions, Dense]:
    """The same for a sum over columns: records whose sums are the same so far are one."""
    transitions: list[States | None] = [None] * len(atoms)
    places = [i for i, one in enumerate(atoms) if one.column in {term.column for term in node.terms}]
    sums: Dense = np.zeros(1)
    for place in places:
        column = atoms[place]
        (term,) = (term for term in node.terms if term.column == column.column)
        own = numbers_of(term, column)
        alive = np.flatnonzero(column.possible)
        reached = sums[:, None] + own[alive]
        reached = _judged(node, reached) if place == places[-1] else reached
        if reached.size > MOST_ENTRIES:
            raise TooManyClassesError
        sums, states = np.unique(reached + 0.0, return_inverse=True)
        table = np.zeros((len(reached), column.size), dtype=np.int32)
        table[:, alive] = states.reshape(reached.shape)
        transitions[place] = table
    return _fewest(transitions, sums)


def _judged(node: Compared | Computed, sums: Dense) -> Dense:
    """What a sum makes of the node; an infinite one is no number."""
    known = np.isfinite(sums)
    if isinstance(node, Computed):
        return np.where(known, 1.0 if node.counted else sums / node.divisor, 0.0)
    holds = np.ones(sums.shape, dtype=bool)
    holds &= True if node.low is None else sums >= node.low
    holds &= True if node.high is None else sums <= node.high
    return np.where(known, holds.astype(np.float64), LOGIC[Truth.UNKNOWN.value])


def _of_column(node: Expression, place: int | None, atoms: Sequence[Atoms]) -> tuple[Transitions, Dense]:
    """The same for what looks at one column, or at none."""
    transitions: list[States | None] = [None] * len(atoms)
    if place is None:
        return transitions, np.array([_on_atoms(node, None)])
    alive = np.flatnonzero(atoms[place].possible)
    amounts, states = np.unique(_on_atoms(node, atoms[place])[alive] + 0.0, return_inverse=True)
    if len(amounts) > 1:
        table = np.zeros((1, atoms[place].size), dtype=np.int32)  # impossible atoms lead anywhere
        table[0, alive] = states
        transitions[place] = table
    return transitions, amounts


def _on_atoms(node: Expression, column: Any) -> Any:
    """What an expression that looks at no other column is on each of its atoms."""
    match node:
        case Constant(number):
            return number
        case Truth():
            return LOGIC[node.value]
        case ValueOf():
            return outcomes(node, column)
        case OneOf() | Within() | Missing():
            return LOGIC[outcomes(node, column).astype(np.int64)]
    operation, one, other = _halves(node)
    return operation(_on_atoms(one, column), _on_atoms(other, column))


def _halves(node: Any) -> tuple[Operation, Expression, Expression]:
    """An expression as an operation on two smaller ones. What is unknown is no reason to choose."""
    match node:
        case Negation(inner):
            return np.subtract, Constant(1.0), inner
        case Scaled(factor, inner):
            return np.multiply, Constant(factor), inner
        case Choice(condition, then, Constant(number)):
            return lambda holds, own: np.where(holds == 1, own, number), condition, then
        case Choice(condition, then, otherwise):
            chosen = Choice(condition, then, Constant(np.inf))
            return lambda own, rest: np.where(np.isinf(own), rest, own), chosen, otherwise
        case All(parts) | AnyOf(parts) | Total(parts):
            kind: Any = type(node)
            middle = len(parts) // 2
            one, other = (half[0] if len(half) == 1 else kind(half) for half in (parts[:middle], parts[middle:]))
            return {All: np.minimum, AnyOf: np.maximum, Total: np.add}[kind], one, other
    raise TypeError(type(node))


def joined(one: Classes, other: Classes, atoms: Sequence[Atoms], most: int) -> Classes:
    """The classes of two batches together; `TooManyClassesError` if there are more than `most`."""
    transitions, pairs = _paired(one.transitions, other.transitions, atoms, most)
    sizes = (np.diff(part.amounts.indptr)[place].sum() for part, place in ((one, pairs[:, 0]), (other, pairs[:, 1])))
    if int(sum(sizes)) > MOST_AMOUNTS.get():
        raise QueryError(
            f"the queries have more than {MOST_AMOUNTS.get():,} entries that are not 0, more than is read "
            "from a plan of its size; load it in Python with a larger most_bytes"
        )
    amounts = sparse.csc_array(sparse.vstack([one.amounts[:, pairs[:, 0]], other.amounts[:, pairs[:, 1]]]))
    # States that add the same to one batch are one there, so no two pairs add the same to both.
    fewest = _backwards(transitions, np.arange(len(pairs), dtype=np.int32))
    return _few_enough(Classes(fewest, amounts), most)


def _paired(
    one: Transitions, other: Transitions, atoms: Sequence[Atoms], most: int
) -> tuple[list[States | None], Indices]:
    """The pairs of states that records reach: how they get there, and the last ones."""
    pairs = np.zeros((1, 2), dtype=np.int64)
    transitions: list[States | None] = []
    entries = 0
    for column, first, second in zip(atoms, one, other, strict=True):
        if first is None and second is None:
            transitions.append(None)
            continue
        entries += len(pairs) * column.size
        if entries > MOST_ENTRIES:
            raise TooManyClassesError
        alive = np.flatnonzero(column.possible)
        width = int(pairs[:, 1].max() if second is None else second.max()) + 1

        def reached(
            rows: Indices, first: Any = first, second: Any = second, alive: Any = alive, width: int = width
        ) -> Indices:
            """Where these pairs lead, as one number per pair."""
            ahead = rows[:, 0, None] if first is None else first[rows[:, 0]][:, alive].astype(np.int64)
            beside = rows[:, 1, None] if second is None else second[rows[:, 1]][:, alive]
            return np.asarray(ahead * width + beside, dtype=np.int64)

        step = max(1, CHUNK // max(1, len(alive)))
        parts = [pairs[start : start + step] for start in range(0, len(pairs), step)]
        highest = int(pairs[:, 0].max() if first is None else first.max())
        few = (highest + 1) * width <= min(MOST_ENTRIES, 8 * len(pairs) * len(alive) + 1_000_000)
        keys, places_of = _numbered((reached(part) for part in parts), (highest + 1) * width if few else None)
        if len(keys) > max(MOST_STATES, most):
            raise TooManyClassesError
        table = np.zeros((len(pairs), column.size), dtype=_least(len(keys)))
        for i, part in enumerate(parts):
            places = places_of(reached(part))
            table[i * step : i * step + len(part), alive] = np.broadcast_to(places, (len(part), len(alive)))
        transitions.append(table)
        pairs = np.stack([keys // width, keys % width], axis=1)
    return transitions, pairs


def _few_enough(classes: Classes, most: int) -> Classes:
    if classes.size > most:
        raise TooManyClassesError
    return classes


def _fewest(transitions: Transitions, amounts: Dense) -> tuple[tuple[States | None, ...], Dense]:
    """The transitions between as few states as there can be, and the amounts of the last ones, each of them once."""
    distinct, future = np.unique(amounts + 0.0, return_inverse=True)  # turns −0 into 0
    return _backwards(transitions, future), distinct


def _backwards(transitions: Transitions, future: States) -> tuple[States | None, ...]:
    """The same, given which of the last states are one: from the end backwards, equal futures are one state."""
    fewest: list[States | None] = []
    for table in reversed(transitions):
        if table is None:
            fewest.append(None)
            continue
        small = future.astype(_least(int(future.max(initial=0)) + 1))
        distinct, future = _distinct_rows(small[table])
        fewest.append(distinct)
    return tuple(reversed(fewest))


def _numbered(parts: Iterable[Indices], below: int | None) -> tuple[Indices, Callable[[Indices], NDArray[np.integer]]]:
    """The different keys in ascending order, and how to find the places of some among them."""
    if below is None:
        keys = np.unique(np.concatenate([np.unique(part) for part in parts]))
        return keys, lambda some: np.searchsorted(keys, some)
    # Few possible keys, all below a bound: a list of all of them is quicker than sorting.
    seen = np.zeros(below, dtype=bool)
    for part in parts:
        seen[part] = True
    places = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(seen), lambda some: places[some]


def _least(states: int) -> type[np.integer]:
    """The smallest integers that number so many states."""
    return np.uint8 if states <= 2**8 else np.uint16 if states <= 2**16 else np.int32


def _lexicographic(rows: sparse.csr_array) -> NDArray[np.intp]:
    """The order of the columns by their first entries, then the second ones, and so on."""
    order = np.arange(rows.shape[1])
    step = max(1, CHUNK // max(1, rows.shape[1]))
    for start in reversed(range(0, rows.shape[0], step)):
        part = rows[start : start + step].toarray()[:, order]
        order = order[np.lexsort(part[::-1])]  # which leaves in place what is equal here
    return order


def _distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[Any], States]:
    """The different rows, the first row first, and for every row its place among them."""
    if len(rows) == 1:  # as of every first column
        return rows, np.zeros(1, dtype=np.int32)
    # Sorting one random product per row is much quicker than sorting rows; whether it told them apart is then checked.
    salt = np.random.default_rng(0).integers(0, 2**64, size=rows.shape[1], dtype=np.uint64) | np.uint64(1)
    step = max(1, CHUNK // max(1, rows.shape[1]))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    words = (part.view(np.uint64) if rows.dtype == np.float64 else part.astype(np.uint64) for part in parts)
    products = np.concatenate([part @ salt for part in words])
    _, first, inverse = np.unique(products, return_index=True, return_inverse=True)
    places = (first[inverse[start : start + step]] for start in range(0, len(rows), step))
    if not all(np.array_equal(rows[place], part) for place, part in zip(places, parts, strict=True)):
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return rows[first[order]], place[inverse.reshape(-1)]
