"""Answer a whole batch of counting queries under differential privacy, with the least noise to be had.

Names are imported when they are first used: `import batchdp` itself takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchdp import bounds, workloads
    from batchdp.audits import audit
    from batchdp.domain import Domain, load_domain
    from batchdp.errors import (
        BatchDPError,
        BudgetError,
        DomainError,
        LatticeError,
        LedgerError,
        PlanError,
        PrivacyParameterError,
        QueryError,
        ReleaseError,
        ReproductionError,
        StrategyError,
        TableError,
        WorkloadError,
    )
    from batchdp.ledger import Ledger
    from batchdp.plans import Plan, load_plan, plan
    from batchdp.portfolio import optimize
    from batchdp.release import Answer, Release, answer, epsilon_for, load_release
    from batchdp.reports import report
    from batchdp.strategies import STRATEGIES
    from batchdp.strategies.low_rank import low_rank
    from batchdp.strategies.strategy import Strategy
    from batchdp.workloads.workload import Workload

__all__ = [
    "STRATEGIES",
    "Answer",
    "BatchDPError",
    "BudgetError",
    "Domain",
    "DomainError",
    "LatticeError",
    "Ledger",
    "LedgerError",
    "Plan",
    "PlanError",
    "PrivacyParameterError",
    "QueryError",
    "Release",
    "ReleaseError",
    "ReproductionError",
    "Strategy",
    "StrategyError",
    "TableError",
    "Workload",
    "WorkloadError",
    "answer",
    "audit",
    "bounds",
    "epsilon_for",
    "load_domain",
    "load_plan",
    "load_release",
    "low_rank",
    "optimize",
    "plan",
    "report",
    "workloads",
]
__version__ = "0.1.0"

_HOMES = {
    "batchdp.audits": ("audit",),
    "batchdp.domain": ("Domain", "load_domain"),
    "batchdp.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "batchdp.ledger": ("Ledger",),
    "batchdp.plans": ("Plan", "load_plan", "plan"),
    "batchdp.portfolio": ("optimize",),
    "batchdp.release": ("Answer", "Release", "answer", "epsilon_for", "load_release"),
    "batchdp.reports": ("report",),
    "batchdp.strategies": ("STRATEGIES",),
    "batchdp.strategies.low_rank": ("low_rank",),
    "batchdp.strategies.strategy": ("Strategy",),
    "batchdp.workloads.workload": ("Workload",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("bounds", "workloads"):
        return import_module(f"batchdp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'batchdp' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
