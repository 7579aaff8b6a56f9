"""What remains of an expression once one column of a record is known.

Taking the columns one after the other, every expression ends as a number. Records that leave the same remainder of all
queries need not be told apart any longer, which is what keeps the number of classes small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import fsum
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
from batchdp.workloads.encode.atoms import Atoms, Part, outcomes, parts_of

Known = Mapping[Part, float]
"""What the parts that look at the known column are: the value of a `Truth`, or a number."""


def terms_of(amount: Amount) -> Iterator[Amount]:
    """Amounts that add up to this one, each as small as can be without looking at a column."""
    match amount:
        case Total(amounts):
            for part in amounts:
                yield from terms_of(part)
        case Scaled(factor, inner):
            yield from (Scaled(factor, term) for term in terms_of(inner))
        case Choice(condition, then, Constant(0.0)):
            yield from (Choice(condition, term, Constant(0.0)) for term in terms_of(then))
        case _:
            yield amount


def restricted(amount: Amount, known: Known) -> Amount:
    """The amount with what is known put in, simplified."""
    match amount:
        case Constant():
            return amount
        case ValueOf():
            return Constant(known[amount]) if amount in known else amount
        case Choice(condition, then, otherwise):
            decided = restricted_condition(condition, known)
            if decided is Truth.TRUE:
                return restricted(then, known)
            if decided is Truth.FALSE:
                return restricted(otherwise, known)
            yes, no = restricted(then, known), restricted(otherwise, known)
            return yes if yes == no else Choice(decided, yes, no)
        case Scaled(factor, inner):
            rest = restricted(inner, known)
            return Constant(factor * rest.number) if isinstance(rest, Constant) else Scaled(factor, rest)
        case Total(amounts):
            rests = [restricted(part, known) for part in amounts]
            open_parts = tuple(rest for rest in rests if not isinstance(rest, Constant))
            number = fsum(rest.number for rest in rests if isinstance(rest, Constant))
            if not open_parts:
                return Constant(number)
            parts = open_parts if number == 0 else (*open_parts, Constant(number))
            return parts[0] if len(parts) == 1 else Total(parts)


def restricted_condition(condition: Condition, known: Known, unknown: Truth = Truth.FALSE) -> Condition:
    """The condition with what is known put in, simplified without changing whether it is true.

    What is unknown counts as false; under a NOT, which leaves it unknown, it counts as true. So remainders that differ
    only in what is false and what is unknown are one.
    """
    match condition:
        case OneOf() | Within() | Missing():
            return _settled(Truth(int(known[condition])), unknown) if condition in known else condition
        case Negation(inner):
            return _negated(restricted_condition(inner, known, Truth.TRUE if unknown is Truth.FALSE else Truth.FALSE))
        case All(conditions):
            rests = (restricted_condition(part, known, unknown) for part in conditions)
            return _joined(All, rests, stops=Truth.FALSE, passes=Truth.TRUE)
        case AnyOf(conditions):
            rests = (restricted_condition(part, known, unknown) for part in conditions)
            return _joined(AnyOf, rests, stops=Truth.TRUE, passes=Truth.FALSE)
        case Truth():
            return _settled(condition, unknown)


def _settled(truth: Truth, unknown: Truth) -> Truth:
    return unknown if truth is Truth.UNKNOWN else truth


def _joined(kind: type[All] | type[AnyOf], rests: Iterable[Condition], *, stops: Truth, passes: Truth) -> Condition:
    left: dict[Condition, None] = {}
    for rest in rests:
        if rest is stops:
            return stops
        if rest is not passes:
            left[rest] = None
    if not left:
        return passes
    return next(iter(left)) if len(left) == 1 else kind(tuple(left))


def _negated(condition: Condition) -> Condition:
    if isinstance(condition, Truth):
        return Truth.FALSE if condition is Truth.TRUE else Truth.TRUE
    return condition.condition if isinstance(condition, Negation) else Negation(condition)


States = NDArray[np.integer]

MOST_STATES = 65_536
"""On the way: there may be more than classes in the end, since later columns merge states again."""
MOST_STATES_OF_ONE = 16_384
"""The same for a single query, whose states are found one by one."""


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
    """For every column, state × atom → next state; None where the column changes nothing."""
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
    return _few_enough(_summed([_term(term, atoms, most) for term in terms_of(query.amount)], atoms, most), most)


def counting(classes: Classes) -> Classes:
    """The classes of records by nothing but whether they are counted: one row, 1 where they are."""
    return _fewest(list(classes.transitions), classes.counted[None].astype(float))


def _summed(terms: list[Classes], atoms: Sequence[Atoms], most: int) -> Classes:
    """The classes of a sum: only the sum tells records apart, not its terms."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    one, other = (_summed(half, atoms, most) for half in (terms[:middle], terms[middle:]))
    transitions, pairs = _paired(one, other, atoms, most)
    amounts = one.amounts.toarray()[:, pairs[:, 0]] + other.amounts.toarray()[:, pairs[:, 1]]
    return _fewest(transitions, amounts)


def _term(amount: Amount, atoms: Sequence[Atoms], most: int) -> Classes:
    remainders: list[Amount] = [restricted(amount, {})]
    transitions: list[States | None] = []
    for column in atoms:
        parts = [dict.fromkeys(part for part in parts_of(rest) if part.column == column.column) for rest in remainders]
        if not any(parts):
            transitions.append(None)
            continue
        known = {part: outcomes(part, column) for group in parts for part in group}
        alike: dict[tuple[Part, ...], tuple[list[list[float]], NDArray[np.intp]]] = {}
        numbers: dict[Amount, int] = {}
        alive = np.flatnonzero(column.possible)
        table = np.zeros((len(remainders), column.size), dtype=np.int32)  # impossible atoms lead anywhere
        for state, (rest, here) in enumerate(zip(remainders, parts, strict=True)):
            if not here:
                table[state] = numbers.setdefault(rest, len(numbers))
                continue
            looks = tuple(here)
            if looks not in alike:
                different, place = np.unique([known[part][alive] for part in looks], axis=1, return_inverse=True)
                alike[looks] = different.T.tolist(), place.reshape(-1)
            signatures, inverse = alike[looks]
            rests = [restricted(rest, dict(zip(looks, signature, strict=True))) for signature in signatures]
            table[state, alive] = np.array([numbers.setdefault(rest, len(numbers)) for rest in rests])[inverse]
            if len(numbers) > max(MOST_STATES_OF_ONE, most):
                raise TooManyClassesError
        remainders = list(numbers)
        transitions.append(table)
    return _fewest(transitions, np.array([[rest.number for rest in remainders if isinstance(rest, Constant)]]))


def joined(one: Classes, other: Classes, atoms: Sequence[Atoms], most: int) -> Classes:
    """The classes of two batches together; `TooManyClassesError` if there are more than `most`."""
    transitions, pairs = _paired(one, other, atoms, most)
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


def _paired(one: Classes, other: Classes, atoms: Sequence[Atoms], most: int) -> tuple[list[States | None], Indices]:
    """The pairs of states that records reach: how they get there, and the last ones."""
    pairs = np.zeros((1, 2), dtype=np.int64)
    transitions: list[States | None] = []
    entries = 0
    for column, first, second in zip(atoms, one.transitions, other.transitions, strict=True):
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
            """Where these pairs lead, as one number a pair."""
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


def _fewest(transitions: list[States | None], amounts: Dense) -> Classes:
    """The same classes with as few states as there can be: from the end backwards, equal futures are one state."""
    columns, future = _distinct_rows(np.ascontiguousarray(amounts.T) + 0.0)  # turns −0 into 0
    return Classes(_backwards(transitions, future), sparse.csc_array(np.ascontiguousarray(columns.T)))


def _backwards(transitions: list[States | None], future: States) -> tuple[States | None, ...]:
    """The transitions between as few states as there can be, given which of the last states are one."""
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
    # Sorting one random product a row is much quicker than sorting rows; whether it told them apart is then checked.
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
