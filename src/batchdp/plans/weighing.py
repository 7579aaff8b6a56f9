"""How much every table's squared errors count in a plan: by its objective, by hand, by the accuracy that is wanted.

A table is what a workload calls one: for a batch over cells a single query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erfinv

from batchdp.linalg.matrix import Dense
from batchdp.plans.criteria import Criterion, Statement, Wanted, named
from batchdp.plans.encoding import Encoding, statements_in
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.workloads import matrix

NOT_WANTED = 1e-6
"""The weight of a query of which no accuracy is wanted, relative to the least of those of which one is."""
SPREAD = 1e18
"""Between the least and the largest weight: beyond it, rounding would drown the lighter queries."""


@dataclass(frozen=True)
class Weighing:
    """From the most that one record can change an answer of every table to their weights; None where all are 1.

    Weights and accuracies by names that the batch has not are refused.
    """

    names: Sequence[str]
    statements: Sequence[Statement]
    options: Options

    def __call__(self, tops: Dense, answers: Dense | None = None) -> Dense | None:
        """The weights; a query that no record can change has no error, whatever its weight.

        Args:
            tops: the most that one record can change.
            answers: how many every table has; 1 if left out.
        """
        sizes = np.where(tops > 0, tops, 1.0)
        many = np.ones(len(sizes)) if answers is None else answers
        if self.options.objective == LARGEST and self.options.accuracy is not None:
            return within(or_little(self.relative(np.square(sizes))) / np.square(sizes))
        weights = self.by_hand()
        if self.options.objective == FAIR:
            fair = np.zeros(len(sizes))
            for statement in self.statements:  # what several need counts for each of them
                own = list(statement.queries)
                fair[own] += statement.share / (many[own].sum() * np.square(sizes[own]))
            weights *= fair
        return None if np.all(weights == 1) else within(weights)

    def __post_init__(self) -> None:
        self.by_hand()
        self.wanted()

    def by_hand(self) -> Dense:
        """The product of what the SQL's hints and the options say of every query."""
        weights = np.ones(len(self.names))
        for statement in self.statements:
            weights[list(statement.queries)] *= statement.weight
        for name, weight in self.options.weights:
            own = named(name, self.names, self.statements, argument="weights", with_parts=True)
            weights[list(own)] *= weight
        return weights

    def wanted(self) -> tuple[Wanted, ...]:
        """The accuracies that are wanted, if any, with their tables; unknown names are refused."""
        criteria = self.options.accuracy
        return () if criteria is None else criteria.wanted(self.names, self.statements)

    def relative(self, squares: Dense) -> Dense:
        """Squares over that of the standard error that is wanted of each table; 0 where none is."""
        found = np.zeros(len(self.names))
        for wanted in self.wanted():
            own = list(wanted.queries)
            found[own] = squares[own] / nearly_standard(wanted.criterion) ** 2
        return found


def weighing(batch: Encoding, options: Options) -> Weighing:
    """How the tables of a batch are weighed; names that no table has are refused."""
    return Weighing([table.name for table in batch.workload.tables], statements_in(batch), options)


def weighed(batch: Encoding, options: Options) -> Any:
    """The workload of a batch, with the weights that its options give it."""
    plain, by = batch.workload, weighing(batch, options)
    chosen = None if options.for_estimates is None else options.for_estimates.weights(plain)
    weights = by(plain.table_tops(), plain.table_sizes()) if chosen is None else within(by.by_hand() * chosen)
    return plain if weights is None else replace(plain, weights=weights)


def or_little(weights: Dense) -> Dense:
    """The weights by the accuracy that is wanted, with next to nothing where none is."""
    return np.where(weights > 0, weights, NOT_WANTED * weights[weights > 0].min())


def within(weights: Dense) -> Dense:
    """Weights that a workload takes, the lightest no lighter than rounding allows."""
    kept = np.maximum(weights, weights.max() / SPREAD)
    return np.asarray(np.clip(kept, matrix.SMALLEST, matrix.LARGEST))


def nearly_standard(criterion: Criterion) -> float:
    """The standard error that a criterion asks for, as if the noise were Gaussian: to look for a strategy by."""
    if criterion.margin is None:
        return criterion.goal
    return criterion.goal / (math.sqrt(2) * float(erfinv(criterion.confidence)))
