"""Everything batchdp raises on purpose.

    BatchDPError
    ├── WorkloadError            the queries are not a matrix of finite numbers
    ├── StrategyError            a pair (measure, reconstruct) that does not answer its workload
    ├── LatticeError             a strategy that cannot be measured in integers accurately enough
    ├── ReleaseError             a release that cannot be made, written or read
    ├── BudgetError              a spend that the ledger refuses; nothing was charged
    ├── LedgerError              a ledger file that is missing, locked, read-only, full or damaged
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


class LatticeError(BatchDPError, ValueError):
    """The measurements do not fit an integer lattice that is fine enough."""


class ReleaseError(BatchDPError):
    """A release cannot be made, written or read."""


class BudgetError(BatchDPError, ValueError):
    """The ledger refuses a spend, or an output that no spend has paid for."""


class LedgerError(BatchDPError):
    """The ledger's file cannot be used: missing, locked, read-only, full, damaged, edited or not a ledger."""
