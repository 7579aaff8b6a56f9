"""What a release answers, as it was asked: enough to find out later what else follows from its measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from batchdp.domain import Database, Domain, as_domain
from batchdp.errors import PlanError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.plans.componentwise import ComponentCells, QueryTables, component_cells, query_tables
from batchdp.plans.encoding import CellBatch, Encoding, cells_in
from batchdp.plans.planned import Plan
from batchdp.privacy import GAUSSIAN
from batchdp.sql.script import Batch, batch_of, read_selections
from batchdp.workloads.encode import TableBatch, checked_orders, tables_of
from batchdp.workloads.encode.cells import MOST_CELLS
from batchdp.workloads.encode.demands import Orders

KEYS = ("sql", "marginals", "domain", "joint", "blocks", "components", "averages", "max_cells")


@dataclass(frozen=True, eq=False)
class Source:
    """The statements and the tables that were asked of a domain, and the blocks that their cells lie in.

    Args:
        sql: the statements as they were written, None where there are none.
        marginals: how many columns the domain's own tables have, None where none are asked.
        domain: what is public about the table.
        joint: whether a factor of a table may look at several columns.
        blocks: the queries of every block of cells; None for tables, and where blocks count something else than cells.
        components: where blocks are tables of components: the columns of each.
        averages: for every column the measure that components are averaged by.
        max_cells: in one block.
    """

    sql: str | None
    marginals: Orders | None
    domain: Domain
    joint: bool
    blocks: tuple[tuple[int, ...], ...] | None
    components: tuple[tuple[int, ...], ...] | None = None
    averages: tuple[tuple[float, ...], ...] = ()
    max_cells: int = MOST_CELLS

    @classmethod
    def of(cls, plan: Plan) -> Source:
        """Of a plan that is answered."""
        cells = plan.batch.cells if isinstance(plan.batch, CellBatch) else None
        joint, most = plan.privacy == GAUSSIAN.privacy, plan.options.max_cells
        asked = plan.sql, plan.marginals, plan.domain, joint
        if isinstance(cells, ComponentCells):
            averages = tuple(tuple(mu.tolist()) for mu in cells.averages)
            return cls(*asked, None, cells.sets, averages, most)
        blocks = None if cells is None else tuple(block.queries for block in cells.blocks)
        return cls(*asked, blocks, max_cells=most)

    def header(self) -> dict[str, Any]:
        """For files and digests."""
        blocks = None if self.blocks is None else [list(own) for own in self.blocks]
        orders = None if self.marginals is None else list(self.marginals)
        return {
            "sql": self.sql,
            "marginals": orders,
            "domain": self.domain.model_dump(mode="json", exclude_none=True),
            "joint": self.joint,
            "blocks": blocks,
            "max_cells": self.max_cells,
            "components": None if self.components is None else [list(own) for own in self.components],
            "averages": [list(own) for own in self.averages],
        }

    @classmethod
    def read(cls, content: Any) -> Source:
        """From a file, where anything can stand; what it means is looked at when something is asked."""
        if not isinstance(content, Mapping) or set(content) != set(KEYS):
            raise ReleaseError("source does not hold what it should")
        sql, orders, domain, joint, blocks, sets, averages, most = (content[name] for name in KEYS)
        lists = [own for own in (orders, *(blocks or ()), *(sets or ())) if own is not None]
        if not (
            isinstance(sql, str | None)
            and isinstance(domain, Mapping)
            and isinstance(joint, bool)
            and isinstance(blocks, list | None)
            and isinstance(sets, list | None)
            and type(most) is int
            and most > 0
            and all(isinstance(own, list) and all(isinstance(one, int | float) for one in own) for own in averages)
            and all(isinstance(own, list) and all(type(one) is int for one in own) for own in lists)
        ):
            raise ReleaseError("source does not hold what it should")
        found = None if blocks is None else tuple(map(tuple, blocks))
        declared = as_domain(dict(domain), source="the release's domain")
        parts = None if sets is None else tuple(map(tuple, sets))
        measures = tuple(map(tuple, averages))
        return cls(sql, None if orders is None else tuple(orders), declared, joint, found, parts, measures, most)

    @cached_property
    def batch(self) -> Encoding:
        """The batch, as it was counted."""
        if self.components is None:
            return self.tables() if self.blocks is None else self.cells()
        found = batch_of(self.selections)
        tables, averages = query_tables(found, self.domain), [np.array(mu, dtype=np.float64) for mu in self.averages]
        sets = self.components
        return CellBatch(cells_by_components(found, self.domain, tables, sets, averages, self.max_cells), found)

    @cached_property
    def selections(self) -> Any:
        """What the statements ask for."""
        return () if self.sql is None else read_selections(self.sql, self.domain, source="the release's queries")

    def tables(self) -> TableBatch:
        """The tables that were measured for."""
        orders = None if self.marginals is None else checked_orders(self.marginals, self.domain)
        return tables_of(self.selections, orders, self.domain, text=self.sql, joint=self.joint)

    def cells(self) -> Encoding:
        """The queries with the cells that were counted for them."""
        batch = batch_of(self.selections)
        most, relations = self.max_cells, batch.relations
        found = cells_in(batch.queries, self.domain, most=most, partition=self.blocks, relations=relations)
        return CellBatch(found, batch)


def cells_by_components(
    found: Batch,
    domain: Domain,
    tables: QueryTables,
    sets: Sequence[Sequence[int]],
    averages: Sequence[Dense],
    most: int,
) -> ComponentCells:
    """The blocks of these sets of columns; refused where a batch or a block is not one that has such."""
    if isinstance(domain, Database) or found.relations:
        raise PlanError("its blocks are components of one table, and it counts several")
    cells = component_cells(found.queries, tables, tuple(map(tuple, sets)), averages, most)
    if cells is None:
        raise PlanError("its blocks are larger than max_cells")
    return cells
