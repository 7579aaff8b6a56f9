"""Answer a whole batch of counting queries under differential privacy, with the least noise to be had."""

from batchdp import bounds, workloads
from batchdp.errors import BatchDPError, PrivacyParameterError, StrategyError, WorkloadError
from batchdp.portfolio import optimize
from batchdp.strategies import STRATEGIES
from batchdp.strategies.low_rank import low_rank
from batchdp.strategy import Strategy
from batchdp.workload import Workload

__all__ = [
    "STRATEGIES",
    "BatchDPError",
    "PrivacyParameterError",
    "Strategy",
    "StrategyError",
    "Workload",
    "WorkloadError",
    "bounds",
    "low_rank",
    "optimize",
    "workloads",
]
__version__ = "0.1.0"
