"""A plan: everything about a release that does not need the data, the budget or the ledger."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from batchdp.cells import MOST_CELLS, Cells
from batchdp.checks import finite, whole
from batchdp.domain import Domain
from batchdp.errors import PlanError, StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.markup import summary
from batchdp.measuring.lattice import Lattice, quantise
from batchdp.strategies.strategy import Privacy, Strategy
from batchdp.workloads.workload import Workload

PLANNER = version("batchdp")
ROWS_SHOWN = 8
"""Queries in a notebook."""


@dataclass(frozen=True)
class Options:
    """How the strategy was looked for."""

    privacy: Privacy | Literal["auto"] = "pure"
    objective: Literal["sum", "max"] = "sum"
    seconds: float | None = None
    seed: int = 0
    epsilon: float = 1.0
    delta: float | None = None
    max_cells: int = MOST_CELLS

    def __post_init__(self) -> None:
        if self.privacy not in ("pure", "zcdp", "auto"):
            raise StrategyError(f'privacy={self.privacy!r} must be "pure" (Laplace), "zcdp" (Gaussian) or "auto"')
        if self.objective not in ("sum", "max"):
            raise StrategyError(f'objective={self.objective!r} must be "sum" or "max"')
        checked = {
            "seconds": None if self.seconds is None else finite("seconds", self.seconds, above=0),
            "seed": whole("seed", self.seed, 0),
            "epsilon": finite("epsilon", self.epsilon, above=0),
            "delta": None if self.delta is None else finite("delta", self.delta, above=0, below=1),
            "max_cells": whole("max_cells", self.max_cells, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """For files and digests."""
        return asdict(self)


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
    strategy: Strategy
    options: Options = Options()
    planner: str = field(default=PLANNER, repr=False)

    def __post_init__(self) -> None:
        # A record has a cell in every block; a strategy that knows of fewer would be given too little noise.
        if self.workload.blocks != self.cells.sizes:
            raise PlanError(
                f"strategy: its workload has {_blocks(self.workload.blocks)}, the plan counts "
                f"{_blocks(self.cells.sizes)}; optimise plan.workload itself, not its matrix"
            )

    @property
    def workload(self) -> Workload:
        """The batch as a matrix over the cells."""
        return self.strategy.workload

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries."""
        return self.workload.names

    @property
    def privacy(self) -> Privacy:
        """The kind of noise: "pure" takes an epsilon, "zcdp" a rho."""
        return self.strategy.privacy

    @cached_property
    def lattice(self) -> Lattice:
        """The measurements as integers with their exact sensitivity, at the domain's cap (10^9 if it has none)."""
        return quantise(self.strategy, largest_total=self.domain.privacy.max_rows or 10**9)

    @property
    def factor(self) -> int:
        """How many times a single row's sensitivity two neighbouring tables differ by."""
        privacy = self.domain.privacy
        return privacy.rows_per_unit * (2 if privacy.neighbours == "replace" else 1)

    def standard_errors(self, *, epsilon: float | None = None, rho: float | None = None) -> Dense:
        """Of every answer at this budget, for the domain's neighbours."""
        variances = self.strategy.per_query_variance(epsilon=epsilon, rho=rho)
        return np.asarray(self.factor * np.sqrt(variances))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file without data and without pickle, under a digest; readable by `load_plan`."""
        from batchdp.plans.file import save_plan

        save_plan(self, path)

    def __repr__(self) -> str:
        m, n = self.workload.queries, self.workload.cells
        return f"Plan({m} queries over {self.domain.table!r}, {n} cells, {self.strategy.method}, {self.privacy})"

    def _repr_html_(self) -> str:
        unit, budget = ("ε", {"epsilon": 1.0}) if self.privacy == "pure" else ("ρ", {"rho": 1.0})
        errors = self.standard_errors(**budget)
        facts = {
            "table": self.domain.table,
            "queries": f"{len(self.names):,}",
            "cells": f"{self.workload.cells:,}",
            "method": self.strategy.method,
            "measurements": f"{self.strategy.measurements:,}",
            "residual": f"{self.strategy.residual:.1e}",
        }
        return summary(
            "Plan",
            facts,
            headings=("query", f"standard error at {unit} = 1"),
            rows=[(name, f"{error:,.4g}") for name, error in zip(self.names[:ROWS_SHOWN], errors, strict=False)],
            more=max(0, len(self.names) - ROWS_SHOWN),
        )


def _blocks(sizes: tuple[int, ...]) -> str:
    return f"{len(sizes)} block{'s' * (len(sizes) > 1)} of {sum(sizes):,} cells in all"
