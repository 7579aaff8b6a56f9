"""Everything batchdp raises on purpose.

    BatchDPError
    ├── WorkloadError            the queries are not a matrix of finite numbers
    ├── StrategyError            a pair (measure, reconstruct) that does not answer its workload
    └── PrivacyParameterError    an epsilon, rho or other privacy parameter out of range

Every message names the argument, the value it had and the remedy.
"""

from __future__ import annotations


class BatchDPError(Exception):
    """The root: catch this to catch all of batchdp's own errors."""


class WorkloadError(BatchDPError, ValueError):
    """The workload cannot be used as it is."""


class StrategyError(BatchDPError, ValueError):
    """The strategy is not valid for its workload, or an option of a method is out of range."""


class PrivacyParameterError(BatchDPError, ValueError):
    """A privacy parameter is missing, not finite or out of range."""
