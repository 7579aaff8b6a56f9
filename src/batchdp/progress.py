"""How long work tells how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

Progress = Callable[[float, str], object]
"""Called with the share of the work that is done, not a number where nobody knows, and with what is being done."""


class Outcome(StrEnum):
    """A text for people, which files keep too; `advice` says what to try next. From the best to the worst."""

    CLOSED_FORM = "closed form"
    OPTIMAL = "optimal"
    OPTIMAL_BY_BLOCK = "optimal in every block"
    CONVERGED = "converged"
    BEST_OF_STARTS = "best of several starts"
    BUDGET_SPENT = "budget spent"
    UNKNOWN = "not recorded"
    STALLED = "stalled"
    OUT_OF_ROUNDS = "out of rounds"
    PENALTY_AT_LIMIT = "penalty at its limit"
    OUT_OF_TIME = "out of time"
    CANCELLED = "cancelled"
    START = "fell back to its start"
    QUERIES = "fell back to the queries"

    @property
    def advice(self) -> str:
        """What to try next; empty where there is nothing to try."""
        return _ADVICE.get(self, "")

    @property
    def fell_back(self) -> bool:
        """Whether the search found nothing better than what it began with."""
        return self in (Outcome.START, Outcome.QUERIES)

    @classmethod
    def read(cls, text: str) -> Outcome:
        """From a file, where anything can stand."""
        try:
            return cls(text)
        except ValueError:
            return cls.UNKNOWN

    @classmethod
    def of_all(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """The worst: what can be said of several searches together."""
        order = list(cls)
        return max(outcomes, key=order.index, default=cls.CLOSED_FORM)


_ADVICE = {
    Outcome.OPTIMAL_BY_BLOCK: "measurements that span blocks were not tried, and the limit is not tight over blocks",
    Outcome.BEST_OF_STARTS: "another seed may find a better valley",
    Outcome.BUDGET_SPENT: "give more seconds, or another seed, for a better strategy",
    Outcome.UNKNOWN: "plan again to know how the search ended",
    Outcome.STALLED: "rounding allows no smaller gap; ask for a larger tolerance",
    Outcome.OUT_OF_ROUNDS: "give more max_rounds, or ask for a larger tolerance",
    Outcome.PENALTY_AT_LIMIT: "the pair is exact but may be far from the best; try another seed or a larger rank",
    Outcome.OUT_OF_TIME: "the work that was planned with is done, and more of it would have come closer",
    Outcome.CANCELLED: "the best so far; let the search end for a better one",
    Outcome.START: "nothing better than the start was found; try another seed, a larger rank or optimize",
    Outcome.QUERIES: "nothing better than the queries was found; try another seed, a larger rank or optimize",
}
