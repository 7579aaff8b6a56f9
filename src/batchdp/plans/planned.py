"""A plan: everything about a release that does not need the data, the budget or the ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version

import numpy as np
from scipy import sparse

from batchdp.cells import Cells, cells_of
from batchdp.cells.splitting import parts_of
from batchdp.derived.expressions import Asked
from batchdp.domain import Counted, Domain
from batchdp.domain.counted import what_is_counted
from batchdp.errors import PlanError
from batchdp.excerpt import NOTEBOOK, excerpt, full_title
from batchdp.linalg.matrix import Dense, plain
from batchdp.markup import Excerpt, summary
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.quantise import caps_for, lattice_of
from batchdp.plans.componentwise import ComponentCells
from batchdp.plans.options import Options
from batchdp.plans.statements import Statement, statements_of
from batchdp.privacy import Budget, Privacy
from batchdp.queries import Query
from batchdp.queries.statements import QUERY, tables_of
from batchdp.sql import Batch, read_batch
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.workload import MatrixWorkload

PLANNER = version("batchdp")


@dataclass(frozen=True, eq=False)
class Plan:
    """Queries over a declared table, the cells that they tell apart, and the strategy that answers them.

    Args:
        sql: the batch as it was written.
        domain: what is public about the table.
        cells: what is counted.
        strategy: how the counts become answers.
        options: how the strategy was looked for.
        planner: the version of batchdp that looked for it.
    """

    sql: str = field(repr=False)
    domain: Domain
    cells: Cells = field(repr=False)
    strategy: PairStrategy
    options: Options = Options()  # noqa: RUF009  # which is frozen
    planner: str = field(default=PLANNER, repr=False)

    def __post_init__(self) -> None:
        # A record has a cell in every block; a strategy that knows of fewer would be given too little noise.
        if self.workload.blocks != self.cells.sizes:
            raise PlanError(
                f"strategy: its workload has {_blocks(self.workload.blocks)}, the plan counts "
                f"{_blocks(self.cells.sizes)}; optimise plan.workload itself, not its matrix"
            )
        # Nor may it take records for cells that lie between two of them.
        if self.workload.ends != self.cells.ends:
            raise PlanError(
                "strategy: its workload does not say between which cells the plan's amounts lie; optimise "
                "plan.workload itself, not its matrix"
            )
        # Nor that blocks exclude each other in which one record has a cell.
        if not self._meets_as_counted:
            raise PlanError(
                "strategy: its workload says of blocks that no record is in all of them, and some record may be; "
                "optimise plan.workload itself, or leave its meetings as they are"
            )
        if not self._answers_what_is_asked:
            raise PlanError(
                "strategy: its workload has other queries, names or cells than the plan; optimise plan.workload itself"
            )

    @property
    def _meets_as_counted(self) -> bool:
        """Whether all blocks that one record can have a cell in meet in the strategy's workload too."""
        known = [set(met) for met in self.workload.meetings]
        every = tuple(range(len(self.workload.blocks)))
        if any(met.issuperset(every) for met in known):
            return True
        return all(any(met.issuperset(own) for met in known) for own in self.cells.meetings or (every,))

    @property
    def _answers_what_is_asked(self) -> bool:
        """Whether the strategy's workload is the batch over the cells; its weights are its own."""
        if self.workload.names != self.cells.names:
            return False
        given, asked = sparse.csr_array(plain(self.workload.matrix)), self.cells.matrix
        return given.shape == asked.shape and not np.any((given - asked).data)

    @property
    def workload(self) -> MatrixWorkload:
        """The batch as a matrix over the cells."""
        return self.strategy.workload

    @cached_property
    def asked_workload(self) -> MatrixWorkload:
        """The queries over the cells that they tell apart, whatever the strategy's cells are: to compare methods on."""
        if not isinstance(self.cells, ComponentCells):
            return self.workload
        cells = cells_of(self._queries, self.domain, most=self.options.max_cells)
        return MatrixWorkload(cells.matrix, cells.names, self.workload.weights, blocks=cells.sizes, ends=cells.ends)

    @cached_property
    def _batch(self) -> Batch:
        return read_batch(self.sql, self.domain)

    @property
    def _queries(self) -> tuple[Query, ...]:
        return self._batch.queries

    @property
    def asked(self) -> tuple[Asked[int], ...]:
        """What was asked for, in order: queries as they are, and what is computed from several of them."""
        return self._batch.asked

    @property
    def derived(self) -> tuple[Asked[int], ...]:
        """Those that are computed from several queries, at no cost of privacy."""
        return tuple(one for one in self.asked if one.derived)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The items that are counted, each with all of its groups: what counts alike in a fair plan."""
        return statements_of(self._queries)

    @cached_property
    def counted(self) -> Counted:
        """What is counted: which rows will be left out, and which values will count as others."""
        parts = {part for query in self._queries for part in parts_of(query.amount)}
        return what_is_counted(self.domain, {part.column for part in parts})

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries."""
        return self.workload.names

    @property
    def privacy(self) -> Privacy:
        """The kind of noise: "pure" takes an epsilon, "zcdp" a rho."""
        return self.strategy.privacy

    @cached_property
    def lattice(self) -> Lattice | AmountLattice:
        """The measurements as integers with their exact sensitivity, at the domain's cap or the default one."""
        return lattice_of(self.strategy, largest_total=caps_for(self.workload, self.domain.privacy.max_rows)[0])

    @property
    def factor(self) -> int:
        """How many times a single row's sensitivity two neighbouring tables differ by."""
        privacy = self.domain.privacy
        return privacy.rows_per_unit * (2 if privacy.neighbours == "replace" else 1)

    def standard_errors(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """Of every answer at this budget, for the domain's neighbours."""
        variances = self.strategy.per_query_variance(epsilon=epsilon, rho=rho)
        return np.asarray(self.factor * np.sqrt(variances))

    @property
    def needed(self) -> Budget | None:
        """The least budget at which answers are as accurate as `plan_for` was asked; None for other plans."""
        from batchdp.plans.accuracy import needed

        if self.options.accuracy is None:
            return None
        return Budget(self.strategy.noise, max(budget for _, budget in needed(self, self.options.accuracy)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without data and without pickle, under a digest; readable by `load_plan`."""
        from batchdp.plans.file import save_plan

        save_plan(self, path)

    def __repr__(self) -> str:
        m, n = self.workload.queries, self.workload.cells
        return f"Plan({m} queries over {self.domain.table!r}, {n} cells, {self.strategy.method}, {self.privacy})"

    def _repr_html_(self) -> str:
        budget = Budget(self.strategy.noise, 1)
        errors = self.standard_errors(**budget.arguments)
        facts = {
            "table": self.domain.table,
            "queries": f"{len(self.names):,}",
            "cells": f"{self.workload.cells:,}",
            "method": self.strategy.method,
            "measurements": f"{self.strategy.measurements:,}",
            "residual": f"{self.strategy.residual:.1e}",
        }
        said = self.counted.sentences(self.domain.privacy.max_rows)
        facts |= {"what is counted": " ".join(said)} if said else {}
        found = tables_of(self.names)
        shown = excerpt([len(one.answers) for one in found], NOTEBOOK)
        tables = []
        for one, rows in zip(found, shown, strict=False):
            own = errors[list(one.answers)]
            single = one.columns == (QUERY,)
            title = f"{full_title(one.name, one.columns)} ({len(own):,}), standard error {np.median(own):,.4g}"
            listed = [(label, f"{error:,.4g}") for label, error in zip(one.labels[:rows], own, strict=False)]
            headings = ("query", f"standard error at {budget}")
            tables.append(Excerpt(headings, listed, "" if single else title, len(own) - rows))
        return summary("Plan", facts, tables=tables, more_tables=len(found) - len(shown))


def _blocks(sizes: tuple[int, ...]) -> str:
    return f"{len(sizes)} block{'s' * (len(sizes) > 1)} of {sum(sizes):,} cells in all"
