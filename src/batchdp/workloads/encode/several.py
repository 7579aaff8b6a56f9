"""The cells of several tables with rows of the same persons, as blocks that a person is in all at once.

With C the least number that the caps of all tables divide, a row of a table with cap c is counted t = ⌊C / c⌋ times,
and adds 1 / t to its queries each time. So the rows of one person are C records, each of a row of every table at most:
what holds for C records with a cell in every block holds for one person in all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Database, Domain
from batchdp.domain.relations import DeclaredTable, Joined, PerPerson, Persons, Relation
from batchdp.errors import QueryError
from batchdp.queries.query import Amount, Query
from batchdp.workloads.encode.atoms import Atoms, parts_of, split
from batchdp.workloads.encode.cells import MOST_CELLS, Block, Cells, blocks, cells_of

Batches = Iterable[tuple[NDArray[np.integer], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class TableCells:
    """The cells of one table, the numbers of the queries about it, and how many times its rows are counted."""

    table: str
    cells: Cells
    queries: tuple[int, ...]
    times: int


@dataclass(frozen=True, eq=False)
class SeveralCells:
    """How the records of several tables are counted: what `Cells` says of one, block after block and table after table.

    Args:
        names: of all queries.
        parts: the tables and relations that are asked about.
        domain: all tables and relations.
    """

    names: tuple[str, ...]
    parts: tuple[TableCells, ...]
    domain: Database

    atoms = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Of all tables, with the numbers of their queries among all."""
        return tuple(
            replace(block, queries=tuple(part.queries[q] for q in block.queries))
            for part in self.parts
            for block in part.cells.blocks
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells every block has."""
        return tuple(size for part in self.parts for size in part.cells.sizes)

    @property
    def matrix(self) -> sparse.csr_array:
        """W: what a record adds to every query each time that it is counted."""
        return self._placed([sparse.csr_array(part.cells.matrix / part.times) for part in self.parts])

    def looked_at(self, queries: Sequence[Query]) -> set[str]:
        """The declared columns that anything looks at, each behind its table's name."""
        relations = {one.name: one for one in self.domain.relations}
        first = next(iter(self.domain.tables))
        found = {column for one in relations.values() for column in _deciding(one)}
        for query in queries:
            own = relations.get(query.table) or DeclaredTable(self.domain, query.table or first)
            found |= {column for part in parts_of(query.amount) for column in _origins(own, part.column)}
        return found

    @property
    def kinds(self) -> sparse.csr_array:
        """What a row of every table and kind adds to every query, without columns where kinds are too many.

        Which rows are of one person is not said.
        """
        each = [part.cells.kinds for part in self.parts]
        if not all(own.shape[1] for own in each):
            return sparse.csr_array((len(self.names), 0))
        return self._placed(each)

    def _placed(self, each: Sequence[sparse.csr_array]) -> sparse.csr_array:
        """What is said of every table's queries, table beside table, at the numbers of these among all."""
        placed = []
        for part, own in zip(self.parts, each, strict=True):
            many = len(part.queries)
            rows = sparse.csr_array((np.ones(many), (part.queries, np.arange(many))), (len(self.names), many))
            placed.append(rows @ own)
        return sparse.csr_array(sparse.hstack(placed, format="csr"))

    @property
    def meetings(self) -> None:
        """Nothing is said to exclude anything: a person may have rows of every kind."""
        return

    @property
    def records(self) -> None:
        """Nor are kinds of persons listed."""
        return

    @cached_property
    def ends(self) -> tuple[tuple[int, int, int], ...]:
        """Pairs of cells between which a record can lie, as `Cells.ends`."""
        found, start = [], 0
        for part in self.parts:
            for low, high, steps in part.cells.ends:
                found.append((low + start if low >= 0 else -1, high + start if high >= 0 else -1, steps))
            start += sum(part.cells.sizes)
        return tuple(found)

    def counts(self, batches: Mapping[str, Callable[[], Batches]]) -> NDArray[Any]:
        """Each table's counts as often as its rows count; behind them the sums of all `ends`, as `Cells.counts`."""
        counted, along = [], []
        for part in self.parts:
            found = part.cells.counts(batches[part.table]()).astype(object) * part.times
            many = sum(part.cells.sizes)
            counted.append(found[:many])
            along.append(found[many:])
        every = np.concatenate([*counted, *along])
        # More than 2^62 is far above any cap; the measurements are clamped there too.
        return every if self.ends else np.minimum(every, 2**62).astype(np.int64)


def _origins(relation: Relation, column: str) -> Iterator[str]:
    """The declared columns that a relation's column is made of, each behind its table's name."""
    match relation:
        case DeclaredTable(table=table):
            yield f"{table}.{column}"
        case Joined(left=left, right=right, right_columns=columns):
            there = dict(columns).get(column)
            yield from _origins(left, column) if there is None else _origins(right, there)
        case PerPerson(of=of, columns=columns):
            own = dict(columns)[column].column
            yield from () if own is None else _origins(of, own)


def _deciding(relation: Relation) -> Iterator[str]:
    """The declared columns that decide which rows a relation has."""
    for one in relation.parts:
        yield from _deciding(one)
    for amount in _conditions(relation):
        for part in parts_of(amount):
            yield from _origins(relation.parts[0], part.column)


def _conditions(relation: Relation) -> Sequence[Amount]:
    """What rows are told apart by where a relation is made."""
    match relation:
        case Persons(groups=groups):
            return groups
        case PerPerson(where=where) if where is not None:
            return (where,)
    return ()


def _check(relation: Relation) -> None:
    """Refuse what no engine could tell apart."""
    for part in relation.parts:
        _check(part)
    if conditions := _conditions(relation):
        disjoint(relation.parts[0].domain, conditions)


MOST_STEPS = 100_000
"""Entries of a table by which an engine tells which group a row is in."""


@dataclass(frozen=True, eq=False)
class Disjoint:
    """How the one group that a row is in is found, column after column.

    Args:
        atoms: of the columns that are looked at.
        steps: by the place of a column what its atoms lead to: state × atom → next state; behind the last column the
            number of the group, or −1.
        first: where every row begins.
    """

    atoms: tuple[Atoms, ...]
    steps: tuple[tuple[int, NDArray[np.int64]], ...]
    first: int


def disjoint(domain: Domain, groups: Sequence[Amount]) -> Disjoint:
    """Which group a row of a table is in; refused where a row could be in two, which nobody can be counted once by."""
    queries = [Query(str(i), amount) for i, amount in enumerate(groups)]
    atoms = split(queries, domain)
    classes = blocks(queries, atoms, len(queries), partition=[range(len(queries))])[0].classes
    amounts = classes.amounts.tocsc()
    many = np.diff(amounts.indptr)
    if np.any(many > 1) or np.any(amounts.data != 1):
        raise QueryError("groups of persons overlap; ask for them in queries of their own")
    numbers = np.full(len(many), -1, dtype=np.int64)
    numbers[many == 1] = amounts.indices
    steps = [(i, np.asarray(one, dtype=np.int64)) for i, one in enumerate(classes.transitions) if one is not None]
    if sum(one.size for _, one in steps) > MOST_STEPS:
        raise QueryError(
            "persons are counted by groups that tell too many kinds of rows apart; group by fewer columns, or coarser"
        )
    if steps:
        steps[-1] = steps[-1][0], numbers[steps[-1][1]]
    return Disjoint(atoms, tuple(steps), 0 if steps else int(numbers[0]))


def several_cells(
    queries: Sequence[Query],
    domain: Database,
    *,
    most: int = MOST_CELLS,
    progress: Callable[[float, str], object] | None = None,
    partition: Sequence[Sequence[int]] | None = None,
) -> SeveralCells:
    """The cells that the queries tell apart in every table; `partition` as in `cells_of`, by numbers among all."""
    parts, first = [], next(iter(domain.tables))
    for relation in domain.relations:
        _check(relation)
    for table, own in domain.tables.items():
        numbers = [q for q, query in enumerate(queries) if (query.table or first) == table]
        if not numbers:
            continue
        place = {q: i for i, q in enumerate(numbers)}
        known = (
            None
            if partition is None
            else [[place[q] for q in group] for group in partition if group and all(q in place for q in group)]
        )
        cells = cells_of([queries[q] for q in numbers], own, most=most, progress=progress, partition=known)
        parts.append(TableCells(table, cells, tuple(numbers), domain.times[table]))
    return SeveralCells(tuple(query.name for query in queries), tuple(parts), domain)
