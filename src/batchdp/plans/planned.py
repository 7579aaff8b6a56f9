"""What is measured, and whose privacy it is: given with a strategy, in its domain with a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from importlib.metadata import version
from typing import Any

import numpy as np

from batchdp.domain import Counted, Database, Domain
from batchdp.domain.counted import what_is_counted
from batchdp.errors import PrivacyParameterError, ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import EVERY_ROW, Neighbours, Relation
from batchdp.mechanism.prepare import can_be_measured, caps_of, quantise
from batchdp.plans.criteria import Statement
from batchdp.plans.encoding import (
    Encoding,
    asked_workload,
    check_answers,
    columns_looked_at,
    counted_domain,
    derived_items,
    statements_in,
)
from batchdp.plans.options import Options
from batchdp.privacy import Budget, Privacy
from batchdp.queries.expressions import Asked
from batchdp.strategies.strategy import Strategy
from batchdp.text import Live, sanitise, shorten
from batchdp.workloads.encode.demands import Orders
from batchdp.workloads.matrix import Table, Workload

PLANNER = version("batchdp")


@dataclass(frozen=True, eq=False)
class Plan(Live):
    """A batch over a declared table, what is counted for it, and the strategy that answers it.

    Args:
        sql: the statements as they were written, None where there are none.
        marginals: how many columns the domain's own tables have, None where none are asked.
        domain: what is public about the table.
        batch: what is counted, and what is asked.
        strategy: how the counts become answers.
        options: how the strategy was looked for.
        planner: the version of batchdp that looked for it.
    """

    sql: str | None = field(repr=False)
    marginals: Orders | None
    domain: Domain
    batch: Encoding = field(repr=False)
    strategy: Strategy
    options: Options = Options()  # noqa: RUF009  # which is frozen
    planner: str = field(default=PLANNER, repr=False)

    def __post_init__(self) -> None:
        check_answers(self.batch, self.strategy.workload)

    @property
    def workload(self) -> Any:
        """The batch that the strategy answers, with its weights: a `Workload`, over cells a `MatrixWorkload`."""
        return self.strategy.workload

    @property
    def tables(self) -> Sequence[Table]:
        """The tables that are measured for, each with its name and shape; over cells every query is one."""
        return self.strategy.workload.tables

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(table.name for table in self.tables)

    @cached_property
    def asked_workload(self) -> Any:
        """The queries over what they tell apart, whatever the strategy's cells are: to compare methods on."""
        return asked_workload(self.batch, self.workload, self.domain, self.options)

    @property
    def asked(self) -> Sequence[Asked[int]]:
        """What was asked for, in order: queries as they are, and what is computed from several of them."""
        return self.batch.asked

    @cached_property
    def derived(self) -> tuple[Asked[int], ...]:
        """What is computed from several queries, at no cost of privacy."""
        return tuple(one for _, own in derived_items(self.batch) for one in own)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The items that are counted, each with the tables of all its groups: what counts alike in a fair plan."""
        return statements_in(self.batch)

    @cached_property
    def counted(self) -> Counted:
        """What is counted: which rows will be left out, and which values will count as others."""
        looked = columns_looked_at(self.batch)
        columns = self.protected.columns
        every = self.marginals is not None or any(columns[name].groups is not None for name in looked)
        return what_is_counted(self.protected, looked, own_rows=every)

    @property
    def privacy(self) -> Privacy:
        """The kind of noise: "pure" takes an epsilon, "zcdp" a rho."""
        return self.strategy.privacy

    @cached_property
    def lattice(self) -> Any:
        """What is measured, as integers with their exact sensitivity, at the domain's cap or the default one."""
        return self._on_lattice(0)

    @cached_property
    def finest_lattice(self) -> Any:
        """The same at the lowest of the caps that `answer` may take: what errors are estimated on."""
        return self._on_lattice(-1)

    def _on_lattice(self, which: int) -> Any:
        strategy = self.strategy
        cap = caps_of(strategy, self.protected.privacy.max_rows)[which]
        return quantise(strategy, largest_total=cap, budget=strategy.noise.reference, factor=self.factor)

    @property
    def protected(self) -> Domain:
        """The domain with the caps of everything that the batch counts: of joins, persons and subqueries too."""
        return counted_domain(self.batch, self.domain)

    @property
    def factor(self) -> int:
        """How many times a single row's sensitivity two neighbouring tables differ by."""
        return declared_neighbours(self.protected).factor

    @property
    def replaced(self) -> int:
        """How many rows a replaced unit counts as; 0 where units are added and removed."""
        return self.factor * (self.domain.privacy.neighbours == "replace")

    def standard_errors(
        self, table: int | str | None = None, *, epsilon: float | None = None, rho: float | None = None
    ) -> Dense:
        """The standard errors of counts and sums at this budget, for the domain's neighbours.

        Args:
            table: its number or name, for its own in its shape; if left out, those of all tables, one after the other.
            epsilon, rho: the budget, whichever the strategy's kind of noise takes.
        """
        if table is None:
            variances = self.strategy.per_query_variance(epsilon=epsilon, rho=rho)
        else:
            variances = self.strategy.variances(table, epsilon=epsilon, rho=rho)
        return np.asarray(self.factor * np.sqrt(variances))

    def typical_errors(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """For every table, the root of the mean squared error at this budget, for the domain's neighbours."""
        unit = Budget.of(self.strategy.noise, epsilon=epsilon, rho=rho).variance(1.0)
        return np.asarray(self.factor * np.sqrt(unit * self._mean_variances))

    _mean_variances = cached_property(lambda self: self.strategy.mean_variances())

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
        table = sanitise(repr(self.domain.table))
        return f"Plan({describe_size(self)} over {table}, {self.strategy.method}, {self.privacy})"


def describe_size(plan: Plan) -> str:
    """How much is asked, in words."""
    answers, tables = len(plan.asked), len(plan.tables)
    return f"{answers:,} answer{'s' * (answers != 1)}" + (
        "" if plan.workload.queries == tables else f" in {tables:,} table{'s' * (tables != 1)}"
    )


@singledispatch
def settle(
    planned: Any, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Any, Neighbours, int | None]:
    """The strategy, whose privacy is protected, and the cap: as given for a strategy, from the domain for a plan."""
    if isinstance(planned, Workload):
        raise ReleaseError(
            "planned is a Workload, a batch of queries; give the strategy that optimize(planned) finds for it"
        )
    if not can_be_measured(planned):
        raise PrivacyParameterError(f"a {type(planned).__name__} is neither a plan nor a strategy; see plan, optimize")
    # Nobody but the caller knows whose privacy is protected: one record per person, unless they say otherwise.
    return planned, Neighbours(neighbours or "add-remove", 1 if rows_per_unit is None else rows_per_unit), max_rows


@settle.register
def _(
    planned: Plan, neighbours: Relation | None, rows_per_unit: int | None, max_rows: int | None
) -> tuple[Any, Neighbours, int | None]:
    if (neighbours, rows_per_unit, max_rows) != (None, None, None):
        raise PrivacyParameterError(
            "neighbours, rows_per_unit and max_rows of a plan are in its domain; change them there and plan again"
        )
    protected = planned.protected
    return planned.strategy, declared_neighbours(protected), protected.privacy.max_rows


MOST_CALLED = 300
"""Characters of the names of several tables, and of what is made of them."""


def called(domain: Domain) -> str:
    """The table; of several, and of what is made of them, each with its cap."""
    apart = " + ".join(f"{name} (cap {cap:,})" for name, cap in declared_neighbours(domain).tables)
    return shorten(apart, MOST_CALLED) if apart else domain.table


def declared_neighbours(domain: Domain) -> Neighbours:
    """Whose privacy is protected, by the domain."""
    privacy = domain.privacy
    several = domain.tables.items() if isinstance(domain, Database) else ()
    caps = tuple((name, own.privacy.rows_per_unit) for name, own in several)
    whose = EVERY_ROW if privacy.unit is None else privacy.unit
    return Neighbours(privacy.neighbours, privacy.rows_per_unit, whose, caps)
