"""Everything batchdp raises on purpose.

    BatchDPError
    ├── DomainError              a domain file that does not say what is public about the table
    ├── QueryError               SQL that is not a batch of linear queries over the declared columns
    ├── TableError               a table that cannot be opened, or does not have the declared columns
    ├── WorkloadError            the queries are not a matrix of finite numbers
    ├── StrategyError            a pair (measure, reconstruct) that does not answer its workload
    ├── PlanError                a plan file that is missing, damaged or does not fit this version
    ├── AccuracyError            accuracies that cannot be read, or cannot be met
    ├── LatticeError             a strategy that cannot be measured in integers accurately enough
    ├── ReleaseError             a release that cannot be made, written or read
    ├── DossierError             a dossier that cannot be written, or is not what it claims to be
    ├── BudgetError              a spend that the ledger refuses; nothing was charged
    ├── LedgerError              a ledger file that is missing, locked, read-only, full or damaged
    └── PrivacyParameterError    an epsilon, rho or other privacy parameter out of range

Every message names the argument, the value it had and the remedy.
"""

from __future__ import annotations


class BatchDPError(Exception):
    """The root: catch this to catch all of batchdp's own errors."""


class DomainError(BatchDPError, ValueError):
    """The domain cannot be used as it is."""


class QueryError(BatchDPError, ValueError):
    """The SQL cannot be answered as linear queries; nothing was executed."""


class TableError(BatchDPError):
    """The table cannot be opened or counted. Never says anything that depends on its rows."""


class WorkloadError(BatchDPError, ValueError):
    """The workload cannot be used as it is."""


class StrategyError(BatchDPError, ValueError):
    """The strategy is not valid for its workload, or an option of a method is out of range."""


class PrivacyParameterError(BatchDPError, ValueError):
    """A privacy parameter is missing, not finite or out of range."""


class PlanError(BatchDPError):
    """A plan cannot be written or read."""


class AccuracyError(BatchDPError, ValueError):
    """The accuracies that are wanted cannot be read, or cannot be met with the budget that there is."""


class LatticeError(BatchDPError, ValueError):
    """The measurements do not fit an integer lattice that is fine enough."""


class ReleaseError(BatchDPError):
    """A release cannot be made, written or read."""


class DossierError(BatchDPError):
    """A dossier cannot be written or read, or its files are not what they were, or do not follow from its release."""


class BudgetError(BatchDPError, ValueError):
    """The ledger refuses a spend, or an output that no spend has paid for."""


class LedgerError(BatchDPError):
    """The ledger's file cannot be used: missing, locked, read-only, full, damaged, edited or not a ledger."""
