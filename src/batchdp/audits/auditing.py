"""`audit`: the exact half, then the attack."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.audits.attack import RUNS, attacked
from batchdp.audits.components import attacked_components, exact_components
from batchdp.audits.exact import bias_finding, exact
from batchdp.audits.finding import Finding
from batchdp.audits.records import records_finding
from batchdp.audits.shaped import attacked_shaped, exact_shaped
from batchdp.measuring.components.preparing import prepare
from batchdp.measuring.neighbours import Relation
from batchdp.measuring.preparing import prepared
from batchdp.measuring.shaping.lattice import ShapedLattice
from batchdp.measuring.shaping.mechanism import ShapedMechanism
from batchdp.plans import Plan, TablePlan
from batchdp.plans.settling import given_neighbours, of_tables, settled
from batchdp.privacy import Budget
from batchdp.strategies.over_tables import OverTables
from batchdp.strategies.strategy import Strategy

MOST_RUNS = 20_000
"""Of component strategies, each of which draws for several components."""


@dataclass(frozen=True)
class Audit:
    """All findings for a strategy at a budget."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return all(finding.held for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join(f"{'ok    ' if f.held else 'BROKEN'} {f.check}: {f.figures}" for f in self.findings)


def audit(
    planned: Plan | TablePlan | Strategy | OverTables,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    runs: int = RUNS,
) -> Audit:
    """Check exactly, then attack, what `answer` would release with the same arguments; no data is read."""
    planned, neighbours, rows_per_unit, max_rows = of_tables(planned, neighbours, rows_per_unit, max_rows)
    if isinstance(planned, OverTables):
        charged = float(Budget.of(planned.noise, epsilon=epsilon, rho=rho))
        whose = given_neighbours(neighbours, rows_per_unit)
        ready = prepare(planned, whose, charged, max_rows)
        return Audit(
            (
                *exact_components(ready, whose, charged),
                *attacked_components(ready, whose, charged, min(runs, MOST_RUNS)),
            )
        )
    strategy, relation, max_rows = settled(planned, neighbours, rows_per_unit, max_rows)
    budget = float(Budget.of(strategy.noise, epsilon=epsilon, rho=rho))
    lattice, noise, law = prepared(strategy, relation, budget, max_rows)
    if isinstance(lattice, ShapedLattice) and isinstance(noise, ShapedMechanism):
        found = [*exact_shaped(lattice, noise, relation, budget), bias_finding(lattice, law)]
        return Audit((*found, *attacked_shaped(lattice, noise, relation, budget, runs)))
    found = [*exact(lattice, noise, law, relation, budget)]
    if isinstance(planned, Plan) and len(lattice.workload.meetings) > 1:
        found.append(records_finding(planned.cells, lattice))
    return Audit((*found, *attacked(lattice, noise, relation, budget, runs)))
