"""The exception tree, and the checks of numbers at the door."""

from __future__ import annotations

import math
import operator
from numbers import Real


class BatchDPError(Exception):
    """The root: catch this to catch all of batchdp's own errors."""


class DomainError(BatchDPError, ValueError):
    """The domain cannot be used as it is."""


class QueryError(BatchDPError, ValueError):
    """The SQL cannot be answered as linear queries; nothing was executed.

    `refusals` has a line for everything that is wrong, in the order of the text; the message is the first of them.
    """

    def __init__(self, *refusals: str) -> None:
        more = len(refusals) - 1
        super().__init__(refusals[0] + (f" (and {more} more: see the error's refusals)" if more else ""))
        self.refusals = refusals
        for line in refusals[1:]:
            self.add_note(line)


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


def check_whole(name: str, value: object, least: int, error: type[BatchDPError] = StrategyError) -> int:
    """A whole number of at least `least`."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise error(f"{name}={value!r} must be a whole number of at least {least}")
    return number


def check_finite(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    error: type[BatchDPError] = StrategyError,
) -> float:
    """A finite number of at least `least`, above `above` and below `below`."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not (math.isfinite(number) and number >= least and number > above and number < below):
        bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
        bounds += [f"below {below:g}"] * (below < math.inf)
        raise error(f"{name}={value!r} must be a finite number {' and '.join(bounds)}".rstrip())
    return number
