"""What a plan minimises, as a figure: of its own strategy, and what no strategy is below; and in words."""

from __future__ import annotations

from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.planned import Plan
from batchdp.privacy import Budget


def objective_error(plan: Plan, budget: Budget) -> float:
    """What the plan minimises, for its strategy at this budget and for the domain's neighbours."""
    strategy = plan.strategy
    of = strategy.largest_variance if plan.options.objective == LARGEST else strategy.expected_squared_error
    return plan.factor**2 * of(**budget.arguments)


def lower_bound(plan: Plan, budget: Budget) -> float:
    """No strategy of this kind has a smaller one; 0 where nothing is proven."""
    strategy = plan.strategy
    of = strategy.largest_variance_bound if plan.options.objective == LARGEST else strategy.lower_bound
    return plan.factor**2 * of(**budget.arguments)


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
