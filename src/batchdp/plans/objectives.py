"""What a plan minimises, as a figure: of its own strategy, of other errors, and what no strategy is below."""

from __future__ import annotations

import numpy as np

from batchdp.bounds.optimality import OptimalityBound
from batchdp.linalg.matrix import Dense
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.planned import Plan
from batchdp.workloads.workload import MatrixWorkload


def error_of(workload: MatrixWorkload, options: Options, variances: Dense) -> float:
    """The objective for these variances of the queries, each times its weight."""
    weighed = variances if workload.weights is None else workload.weights * variances
    return float(np.max(weighed) if options.objective == LARGEST else np.sum(weighed))


def objective_bound(plan: Plan) -> OptimalityBound:
    """What the search has proven of the objective, or what is proven now; the strategy keeps it."""
    strategy = plan.strategy
    known = any(bound.objective == LARGEST for bound in strategy.proven)
    if plan.options.objective == LARGEST and (known or len(plan.workload.blocks) == 1):
        return strategy.optimality_of_largest
    return strategy.optimality


def lower_bound(plan: Plan) -> float:
    """No strategy of this kind has a smaller objective, at sensitivity 1; in several blocks the largest is no less
    than the mean."""
    if plan.strategy.shape is not None:  # of which nothing is proven
        return 0.0
    bound = objective_bound(plan)
    of_mean = plan.options.objective == LARGEST and bound.objective != LARGEST
    return bound.lower_bound / (plan.workload.queries if of_mean else 1)


def described(options: Options, *, weighted: bool) -> str:
    """What is minimised, in words; whether errors other than those of statements are weighted."""
    if options.objective == LARGEST:
        if options.accuracy is not None:
            return "largest expected squared error, each relative to what is wanted"
        return "largest expected squared error" + _weighted(weighted)
    if options.objective == FAIR:
        whole = "sum over statements of the mean squared error, relative to the most that one record can change"
        return whole + _weighted(bool(options.weights))
    return "total expected squared error" + _weighted(weighted)


def _weighted(given: bool) -> str:
    return " times its weight" if given else ""
