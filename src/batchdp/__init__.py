"""Answer a whole batch of counting queries under differential privacy, with the least noise to be had."""

from batchdp import bounds, workloads
from batchdp.audit import audit
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
    StrategyError,
    TableError,
    WorkloadError,
)
from batchdp.ledger import Ledger
from batchdp.plans import Plan, load_plan, plan
from batchdp.portfolio import optimize
from batchdp.release import Answer, Release, answer, epsilon_for, load_release
from batchdp.report import report
from batchdp.strategies import STRATEGIES
from batchdp.strategies.low_rank import low_rank
from batchdp.strategy import Strategy
from batchdp.workload import Workload

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
