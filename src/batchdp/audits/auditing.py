"""`audit`: the exact half, then the attack."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.audits import knorm  # noqa: F401  # which registers what it derives again
from batchdp.audits.attack import RUNS, attack
from batchdp.audits.exact import Finding, exact
from batchdp.audits.tables import records_findings
from batchdp.mechanism.measurement import Relation
from batchdp.mechanism.prepare import prepare
from batchdp.plans import Plan
from batchdp.plans.planned import settle
from batchdp.privacy import Budget
from batchdp.strategies.strategy import Strategy


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
    planned: Plan | Strategy,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    neighbours: Relation | None = None,
    rows_per_unit: int | None = None,
    max_rows: int | None = None,
    runs: int = RUNS,
) -> Audit:
    """Check what `answer` would release with the same arguments, exactly, then attack it. No data is read.

    Args:
        planned: the plan or strategy that would be released.
        epsilon, rho, neighbours, rows_per_unit, max_rows: as in `answer`.
        runs: how often the mechanism runs on each of two neighbours in the attack.
    """
    strategy, whose, cap = settle(planned, neighbours, rows_per_unit, max_rows)
    budget = Budget.of(strategy.noise, epsilon=epsilon, rho=rho)
    made = prepare(strategy, whose, budget, cap)
    return Audit(
        (*exact(made), *records_findings(getattr(planned, "batch", None), made.measurement), *attack(made, runs))
    )
