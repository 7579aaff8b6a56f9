"""Answer a whole batch of counting queries under differential privacy, with the least noise to be had."""

from batchdp import bounds, workloads
from batchdp.audit import audit
from batchdp.errors import (
    BatchDPError,
    BudgetError,
    DomainError,
    LatticeError,
    LedgerError,
    PrivacyParameterError,
    QueryError,
    ReleaseError,
    StrategyError,
    TableError,
    WorkloadError,
)
from batchdp.ledger import Ledger
from batchdp.portfolio import optimize
from batchdp.release import Answer, Release, answer, epsilon_for, load_release
from batchdp.strategies import STRATEGIES
from batchdp.strategies.low_rank import low_rank
from batchdp.strategy import Strategy
from batchdp.workload import Workload

__all__ = [
    "STRATEGIES",
    "Answer",
    "BatchDPError",
    "BudgetError",
    "DomainError",
    "LatticeError",
    "Ledger",
    "LedgerError",
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
    "load_release",
    "low_rank",
    "optimize",
    "workloads",
]
__version__ = "0.1.0"
