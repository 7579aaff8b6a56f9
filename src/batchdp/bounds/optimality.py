"""What is proven about all strategies for a workload, and the pair that comes nearest to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.outcome import Outcome
from batchdp.workloads.pair import Pair

Objective = Literal["sum", "max"]
"""What a strategy minimises: the sum of all queries' squared errors, or the largest."""


@dataclass(frozen=True, eq=False)
class OptimalityBound:
    """How good a strategy can be at all; both bounds are at sensitivity 1, weighted by the queries' importance."""

    objective: Objective
    """The bounds are on ‖B‖²_F ("sum"), or on the largest ‖B_i‖² ("max")."""
    lower_bound: float
    """No factorisation is below."""
    upper_bound: float
    """Some factorisation with column L2 norms of at most 1 reaches this."""
    weights: Dense
    """v: how much each class of cells matters; with the queries' weights, all that the lower bound follows from."""
    query_weights: Dense | None = None
    """w: how much each query matters to the largest error; they sum to 1. None for the sum."""
    rounds: int = 0
    outcome: Outcome = Outcome.OPTIMAL

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        if self.lower_bound > 0:
            return max(0.0, self.upper_bound / self.lower_bound - 1)
        return 0.0 if self.upper_bound == 0 else np.inf


@dataclass(frozen=True, eq=False)
class Optimum:
    """The end of a convex search: what it proved, and the pair that reaches the upper bound."""

    bound: OptimalityBound
    pair: Pair


def of_blocks(found: Sequence[OptimalityBound], together: Sequence[Sequence[int]] | None = None) -> OptimalityBound:
    """From the bounds on the sums of all blocks.

    Below: a strategy for all queries answers those of every block. Where no query spans blocks, its error is the sum of
    theirs. Where some do, its squared sensitivity is at least the sum of the blocks' that a record can be in at once:
    `together` has these sets. Both add up to less than can be reached. Above: the blocks' pairs with the best
    shares of the budget, (Σ √E_g)².
    """
    if not found:
        return OptimalityBound("sum", 0.0, 0.0, np.zeros(1))
    worst = Outcome.of_all(one.outcome for one in found)
    return OptimalityBound(
        "sum",
        lower_bound=max(
            sum(found[g].lower_bound for g in own) for own in (together if together else [range(len(found))])
        ),
        upper_bound=sum(np.sqrt(one.upper_bound) for one in found) ** 2,
        weights=np.concatenate([one.weights * (one.lower_bound / one.weights.sum()) for one in found]),
        rounds=sum(one.rounds for one in found),
        outcome=Outcome.OPTIMAL_BY_BLOCK if len(found) > 1 and worst is Outcome.OPTIMAL else worst,
    )
