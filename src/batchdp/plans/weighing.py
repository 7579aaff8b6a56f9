"""How much every query's squared error counts in a plan: by its objective, by hand, by the accuracy that is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv

from batchdp.cells import Cells
from batchdp.linalg.matrix import Dense
from batchdp.plans.criteria import Criteria, Criterion
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.statements import Statement, named, statements_of
from batchdp.queries import Query
from batchdp.workloads import workload

NOT_WANTED = 1e-6
"""The weight of a query of which no accuracy is wanted, relative to the least of those of which one is."""
SPREAD = 1e18
"""Between the least and the largest weight: beyond it, rounding would drown the lighter queries."""


@dataclass(frozen=True)
class Weighing:
    """From the most that one record can change every query to the queries' weights; None where all are 1."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    options: Options

    def __call__(self, own_sensitivities: Dense) -> Dense | None:
        """The weights; a query that no record can change has no error, whatever its weight."""
        sizes = np.where(own_sensitivities > 0, own_sensitivities, 1.0)
        if self.options.objective == LARGEST and self.options.accuracy is not None:
            return within(self._by_accuracy(self.options.accuracy, sizes))
        weights = self.by_hand()
        if self.options.objective == FAIR:
            fair = np.zeros(len(self.names))
            for statement in self.statements:  # a query that several need counts for each of them
                own = list(statement.queries)
                fair[own] += statement.share / (len(own) * np.square(sizes[own]))
            weights *= fair
        return None if np.all(weights == 1) else within(weights)

    def by_hand(self) -> Dense:
        """The product of what the SQL's hints and the options say of every query."""
        weights = np.ones(len(self.names))
        for statement in self.statements:
            weights[list(statement.queries)] *= statement.weight
        for name, weight in self.options.weights:
            own = named(name, self.names, self.statements, argument="weights", with_parts=True)
            weights[list(own)] *= weight
        return weights

    def _by_accuracy(self, criteria: Criteria, sizes: Dense) -> Dense:
        """One over the square of the standard error that is wanted; next to nothing for all other queries."""
        relative = np.zeros(len(self.names))
        for wanted in criteria.wanted(self.names, self.statements):
            own = list(wanted.queries)
            relative[own] = np.square(sizes[own] / nearly_standard(wanted.criterion))
        least = float(relative[relative > 0].min())
        return np.where(relative > 0, relative, NOT_WANTED * least) / np.square(sizes)


def weighing(queries: Sequence[Query], options: Options) -> Weighing:
    """How these queries are weighed; names that no query has are refused."""
    made = Weighing(tuple(query.name for query in queries), statements_of(queries), options)
    made.by_hand()
    return made


def within(weights: Dense) -> Dense:
    """Weights that a workload takes, the lightest no lighter than rounding allows."""
    kept = np.maximum(weights, weights.max() / SPREAD)
    return np.asarray(np.clip(kept, workload.SMALLEST, workload.LARGEST))


def own_sensitivities(cells: Cells) -> Dense:
    """The most that one record can change every query by itself: a query is in one block."""
    return np.asarray(abs(cells.matrix).max(axis=1).toarray(), dtype=np.float64).reshape(-1)


def nearly_standard(criterion: Criterion) -> float:
    """The standard error that a criterion asks for, as if the noise were Gaussian: to look for a strategy by."""
    if criterion.margin is None:
        return criterion.goal
    return criterion.goal / (math.sqrt(2) * float(erfinv(criterion.confidence)))
