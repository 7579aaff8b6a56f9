"""What a plan's batch is: queries over cells, or tables over columns of values; and what plans ask of either.

One function for each thing that plans ask. Everything is told by table: a table is what its workload calls one, which
for cells is a single query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy import sparse

from batchdp.domain import Database, Domain
from batchdp.domain.relations import DeclaredTable, Relation, as_counted
from batchdp.errors import PlanError, QueryError
from batchdp.linalg.matrix import plain
from batchdp.plans.componentwise import ComponentCells
from batchdp.plans.criteria import Statement, statement_of, statements_of
from batchdp.plans.options import Options
from batchdp.queries.expressions import Asked
from batchdp.queries.query import QUERY, Query
from batchdp.queries.query import statements_of as by_name
from batchdp.queries.views import View
from batchdp.sql.script import Batch
from batchdp.text import Progress
from batchdp.workloads.encode import TableBatch
from batchdp.workloads.encode.atoms import Atoms, parts_of
from batchdp.workloads.encode.cells import Cells, cells_of
from batchdp.workloads.encode.several import SeveralCells, several_cells
from batchdp.workloads.matrix import Lazily, MatrixWorkload, Workload

if TYPE_CHECKING:
    from batchdp.sql.selections import Selection

Items = Sequence[tuple[str, Sequence[Asked[int]]]]
"""Derived answers, by the item of the SELECT that asks for them."""


class Encoding(Protocol):
    """A batch as it is counted and answered."""

    @property
    def atoms(self) -> tuple[Atoms, ...]:
        """What is told apart in every column."""

    @property
    def workload(self) -> Any:
        """What is asked, without weights."""

    @property
    def asked(self) -> Sequence[Asked[int]]:
        """All answers in the order in which they are shown: linear ones by their number, and what is computed."""

    @property
    def views(self) -> tuple[View, ...]:
        """What statements show of their answers, where that is not all."""


@dataclass(frozen=True, eq=False)
class CellBatch:
    """Queries over the cells that they tell apart.

    Args:
        cells: what is counted.
        statements: the SQL, as queries and what is computed from them.
    """

    cells: Cells | SeveralCells
    statements: Batch = field(repr=False)

    @property
    def queries(self) -> tuple[Query, ...]:
        """What is added up for each answer."""
        return self.statements.queries

    @property
    def asked(self) -> tuple[Asked[int], ...]:
        """What is shown, in order."""
        return self.statements.asked

    @property
    def views(self) -> tuple[View, ...]:
        """What statements show of their answers, where that is not all."""
        return self.statements.views

    @property
    def atoms(self) -> tuple[Atoms, ...]:
        """What is told apart in every column."""
        return self.cells.atoms

    @cached_property
    def workload(self) -> MatrixWorkload:
        """The batch as a matrix over the cells, without weights."""
        cells = self.cells
        # Blocks of components meet in every record.
        apart = isinstance(cells, ComponentCells)
        met, records = (None, None) if apart else (cells.meetings, cells.records)
        return MatrixWorkload(
            cells.matrix, cells.names, blocks=cells.sizes, meetings=met, ends=cells.ends, records=records
        )


def check_of_one_table(selections: Sequence[Selection], domain: Domain) -> None:
    """Refuse tables of very many answers about anything but the rows of a domain's one table."""
    made = any(not isinstance(one.relation, DeclaredTable) or one.counts_persons for one in selections)
    if isinstance(domain, Database) or made:
        raise QueryError(
            "marginals, and batches of very many answers, are planned over one table; give a domain of one table, with "
            "table = and [columns…], for each, and ask for persons, joins and subqueries in a batch of their own"
        )


def cells_in(
    queries: Sequence[Query],
    domain: Domain,
    *,
    most: int,
    progress: Progress | None = None,
    partition: Sequence[Sequence[int]] | None = None,
    relations: Sequence[Relation] = (),
) -> Cells | SeveralCells:
    """The cells that queries tell apart, in the one table of a domain, or in several and what is made of them."""
    domain = as_counted(domain, relations)
    if isinstance(domain, Database):
        return several_cells(queries, domain, most=most, progress=progress, partition=partition)
    return cells_of(queries, domain, most=most, progress=progress, partition=partition)


def kinds_of(batch: Encoding, domain: Domain) -> sparse.csr_array | None:
    """What a record of every kind adds to every query, where what is counted does not say it; see `Cells.kinds`."""
    if not isinstance(batch, CellBatch):
        return None
    if isinstance(batch.cells, ComponentCells):  # which count every value of a summed column, not the ends of stretches
        try:
            return cells_of(batch.queries, domain).kinds
        except QueryError:
            return sparse.csr_array((len(batch.cells.names), 0))
    return batch.cells.kinds if isinstance(batch.cells, SeveralCells) or len(batch.cells.blocks) > 1 else None


def check_answers(batch: Encoding, workload: Any) -> None:
    """Refuse the workload of a strategy that is not the batch: records would be counted that it does not know."""
    if isinstance(batch, CellBatch):
        _check_cells(batch.cells, workload)
    elif not isinstance(batch, TableBatch):
        raise PlanError(f"batch is a {type(batch).__name__}; give what plan makes of SQL or of marginals")
    # A record is counted by the batch's columns; one with fewer values would fail on a record that has another.
    elif isinstance(workload, MatrixWorkload) or not workload.asks_as(batch.workload):
        raise PlanError(
            "strategy: it answers other tables than the plan asks for, over other columns or by other names; "
            "optimise plan.workload itself"
        )


def _check_cells(cells: Cells | SeveralCells, workload: Any) -> None:
    if not isinstance(workload, MatrixWorkload):
        raise PlanError("strategy: its workload has no cells, the plan has; optimise plan.workload itself")
    # A record has a cell in every block; a strategy that knows of fewer would be given too little noise.
    if workload.blocks != cells.sizes:
        known, counted = (
            f"{len(sizes)} block{'s' * (len(sizes) > 1)} of {sum(sizes):,} cells in all"
            for sizes in (workload.blocks, cells.sizes)
        )
        raise PlanError(
            f"strategy: its workload has {known}, the plan counts {counted}; optimise plan.workload itself, not its "
            "matrix"
        )
    # Nor may it take records for cells that lie between two of them.
    if workload.ends != cells.ends:
        raise PlanError(
            "strategy: its workload does not say between which cells the plan's amounts lie; optimise plan.workload "
            "itself, not its matrix"
        )
    # Nor that blocks exclude each other in which one record has a cell.
    if not _meets_as_counted(cells, workload):
        raise PlanError(
            "strategy: its workload says that no record is in all of some blocks, but some record may be; optimise "
            "plan.workload itself, or leave its meetings as they are"
        )
    # Nor that records have other cells together than they have.
    if workload.records is not None and not _lists_records(cells, workload):
        raise PlanError(
            "strategy: its workload lists other kinds of records than the plan counts; optimise plan.workload itself, "
            "or leave records out"
        )
    given, asked = sparse.csr_array(plain(workload.matrix)), cells.matrix
    if workload.names != cells.names or given.shape != asked.shape or np.any((given - asked).data):
        raise PlanError(
            "strategy: its workload has other queries, names or cells than the plan; optimise plan.workload itself"
        )


def _meets_as_counted(cells: Cells | SeveralCells, workload: MatrixWorkload) -> bool:
    """Whether all blocks that one record can have a cell in meet in the workload too."""
    known = [set(met) for met in workload.meetings]
    every = tuple(range(len(workload.blocks)))
    if any(met.issuperset(every) for met in known):
        return True
    return all(any(met.issuperset(own) for met in known) for own in cells.meetings or (every,))


def _lists_records(cells: Cells | SeveralCells, workload: MatrixWorkload) -> bool:
    """Whether the workload lists every kind of record that is counted."""
    counted = None if isinstance(cells, ComponentCells) else cells.records
    if counted is None or workload.records is None:
        return False
    return not {own.tobytes() for own in counted} - {own.tobytes() for own in workload.records}


def statements_in(batch: Any) -> tuple[Statement, ...]:
    """What counts alike, by the numbers of tables."""
    if isinstance(batch, CellBatch):
        return statements_of(batch.queries)
    items = [statement_of(item, own) for item, own in batch.statements]
    known = {t for one in items for t in one.queries}
    tables = batch.workload.tables
    return (*items, *(Statement(tables[t].name, queries=(t,)) for t in range(len(tables)) if t not in known))


def shown_answers(batch: Any) -> Sequence[Asked[int]]:
    """What is shown of the linear answers, and computed from them; nothing where that is all of them as they are."""
    if isinstance(batch, CellBatch):
        return batch.asked if any(one.derived for one in batch.asked) else ()
    return () if batch.asked.plain else batch.asked


def derived_items(batch: Any) -> Items:
    """The derived answers, by item."""
    asked = batch.asked
    if isinstance(batch, CellBatch):
        derived = [one for one in asked if one.derived]
        named = by_name([one.name for one in derived]) if derived else []
        items = [(one.name, [derived[q] for q in one.answers]) for one in named if one.columns != (QUERY,)]
        alone = [derived[q] for one in named if one.columns == (QUERY,) for q in one.answers]
        return items + [(one.name, [one]) for one in alone]
    starts = [0, *asked.ends.tolist()]
    runs = zip(asked.runs, starts, starts[1:], strict=False)
    return [(run.name, Lazily(range(start, end), asked.__getitem__)) for run, start, end in runs if run.of is not None]


def asked_workload(batch: Any, workload: Workload, domain: Domain, options: Options) -> Workload:
    """The queries over whatever they tell apart, to compare methods on, given the strategy's own workload."""
    if not (isinstance(batch, CellBatch) and isinstance(batch.cells, ComponentCells)):
        return workload
    cells = cells_of(batch.queries, domain, most=options.max_cells)
    return MatrixWorkload(cells.matrix, cells.names, workload.weights, blocks=cells.sizes, ends=cells.ends)


def counted_domain(batch: Any, domain: Domain) -> Domain:
    """The domain as it is counted: with the relations of a batch as tables of their own."""
    if isinstance(batch, CellBatch) and isinstance(batch.cells, SeveralCells):
        return batch.cells.domain
    return domain


def columns_looked_at(batch: Any) -> set[str]:
    """The columns of the table that anything looks at."""
    if isinstance(batch, CellBatch):
        if isinstance(batch.cells, SeveralCells):
            return batch.cells.looked_at(batch.queries)
        return {part.column for query in batch.queries for part in parts_of(query.amount)}
    return {batch.atoms[i].column for column in batch.columns for i in column.atoms}
