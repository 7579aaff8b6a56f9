"""`plan_for`: from the accuracies that are wanted to the plan that has them at the least budget."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchdp.cells import MOST_CELLS, Cells, cells_of
from batchdp.domain import Domain, as_domain
from batchdp.errors import AccuracyError, StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.plans.accuracy import needed
from batchdp.plans.criteria import Criteria, Wanted, as_criteria
from batchdp.plans.making import searched, text_of
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.planned import Plan
from batchdp.plans.weighing import NOT_WANTED, nearly_standard, own_sensitivities, weighing
from batchdp.portfolio import ShapeChoice
from batchdp.privacy import MOST, NOISES, Budget, Privacy
from batchdp.progress import Progress
from batchdp.queries import Query
from batchdp.queries.query import LARGEST_WEIGHT, LEAST_WEIGHT
from batchdp.sql import Batch, read_batch
from batchdp.strategies.shaped import DEFAULT, ShapeLimits

ROUNDS = 3
"""Of weighing anew, where a batch is in several blocks."""
MOST_MOVED = 3.0
"""How many times heavier or lighter a query gets in one of them: what is light now must not be the worst next."""
SHOWN = 5
"""Accuracies that an error names."""


def plan_for(
    sql: str | os.PathLike[str],
    domain: Domain | dict[str, Any] | str | os.PathLike[str],
    accuracy: Criteria | Mapping[str, Any] | str | os.PathLike[str],
    *,
    at_most: float | None = None,
    privacy: Privacy = "pure",
    seconds: float | None = None,
    seed: int = 0,
    max_cells: int = MOST_CELLS,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> Plan:
    """The plan that is as accurate as asked at the least budget; `plan.needed` is that budget. No data is read.

    It is never worse than a plan without these accuracies: that one is among those that are tried.

    Args:
        sql, domain: as in `plan`.
        accuracy: by the name of a statement or query a standard error, or {"margin": 25, "confidence": 0.95} for half
            the width of an interval; "*" stands for all that are not named. Or the path of a file of these. Queries
            that are not named may have any error.
        at_most: the most ε (ρ for zCDP) that there is; if more is needed, an AccuracyError says what cannot be met.
        privacy: "pure" or "zcdp", as in `optimize`.
        seconds: the time to spend on all that is tried; by the batch's size if left out.
        seed, max_cells, shape, limits, progress: as in `plan`.
    """
    text, source = text_of(sql)
    domain, criteria = as_domain(domain), as_criteria(accuracy, at_most=at_most)
    if privacy not in NOISES:
        raise StrategyError(
            f"privacy={privacy!r} must be one of {', '.join(map(repr, NOISES))}: each has its own budget"
        )
    asked = read_batch(text, domain, source=source)
    queries = asked.queries
    options = Options(privacy, FAIR, seconds, seed, max_cells=max_cells, accuracy=criteria, shape=shape, limits=limits)
    criteria.wanted([query.name for query in queries], weighing(queries, options).statements)  # refuses unknown names
    cells = cells_of(queries, domain, most=max_cells, progress=progress)
    best, least = None, math.inf
    for other in _tried(text, domain, asked, cells, options, progress):
        budget = max(own for _, own in needed(other, criteria))
        if best is None or budget < least:
            best, least = other, budget
    assert best is not None
    _check(best, criteria, least)
    return best


def _tried(
    text: str, domain: Domain, asked: Batch, cells: Cells, options: Options, progress: Progress | None
) -> Iterator[Plan]:
    """The plan that would be made anyway, the one with the least largest error relative to what is wanted, and more.

    Where there are several blocks, the least largest error in each is not the least in all. There the weights of a sum
    are moved to whatever is worst, as its dual asks.
    """
    rounds = ROUNDS if len(cells.blocks) > 1 else 0
    each = options if options.seconds is None else replace(options, seconds=options.seconds / (2 + rounds))

    def made(own: Options, number: int) -> Plan:
        def watch(share: float, doing: str) -> object:
            return progress is not None and progress((number + share) / (2 + rounds), doing)

        return Plan(text, domain, *searched(asked, domain, cells, own, watch), own)

    yield made(each, 0)
    yield made(replace(each, objective=LARGEST), 1)
    queries = asked.queries
    fair = weighing(queries, options)(own_sensitivities(cells))
    fair = np.ones(len(queries)) if fair is None else fair
    weights = _first_weights(queries, options)
    for number in range(rounds):
        by_hand = _by_hand(weights / fair)
        found = made(
            replace(each, weights=tuple(zip((q.name for q in queries), by_hand.tolist(), strict=True))), 2 + number
        )
        yield found
        worst = _relative(found, options.accuracy)
        mean = float(weights @ worst) / float(weights.sum()) or 1.0
        weights = weights * np.where(worst > 0, np.clip(worst / mean, 1 / MOST_MOVED, MOST_MOVED), 1.0)


def _first_weights(queries: Sequence[Query], options: Options) -> Dense:
    """One over the square of what is wanted, every statement alike; next to nothing where nothing is."""
    assert options.accuracy is not None
    weigh = weighing(queries, options)
    weights = np.zeros(len(queries))
    for wanted in options.accuracy.wanted(weigh.names, weigh.statements):
        weights[list(wanted.queries)] = 1 / nearly_standard(wanted.criterion) ** 2
    for statement in weigh.statements:
        weights[list(statement.queries)] /= len(statement.queries)
    return np.where(weights > 0, weights, NOT_WANTED * weights[weights > 0].min())


def _relative(plan: Plan, criteria: Criteria | None) -> Dense:
    """Every query's variance over what is wanted of it; 0 where nothing is."""
    assert criteria is not None
    variances = plan.strategy.per_query_variance(**plan.strategy.noise.reference.arguments)
    found = np.zeros(len(variances))
    for wanted in criteria.wanted(plan.names, plan.statements):
        own = list(wanted.queries)
        found[own] = variances[own] / nearly_standard(wanted.criterion) ** 2
    return found


def _by_hand(weights: Dense) -> Dense:
    """Weights within what can be given by hand; only their ratios matter."""
    return np.asarray(np.maximum(weights / weights.max() * LARGEST_WEIGHT, LEAST_WEIGHT))


def _check(plan: Plan, criteria: Criteria, least: float) -> None:
    """Refuse what cannot be met, and say what it would be."""
    noise = plan.strategy.noise
    if least == 0:
        raise AccuracyError(
            "accuracy: the answers asked for need no noise, they are 0 whatever the data; plan is enough"
        )
    most = criteria.at_most if criteria.at_most is not None else float(MOST)
    if least <= most:
        return
    unmet = [(wanted, own) for wanted, own in needed(plan, criteria) if own > most]
    listed = "; ".join(_said(wanted, (own / most) ** (1 / noise.norm)) for wanted, own in unmet[:SHOWN])
    more = f"; and {len(unmet) - SHOWN} more" if len(unmet) > SHOWN else ""
    enough = f"{noise.letter} = {least:.4g} would be enough; ask for less, or more budget"
    remedy = enough if least <= MOST else "no budget is enough; ask for less"
    raise AccuracyError(f"accuracy cannot be met with {Budget(noise, most)}: {listed}{more}; {remedy}")


def _said(wanted: Wanted, times: float) -> str:
    return f"{wanted.name!r} is to have {wanted.criterion} and would have {wanted.criterion.goal * times:.4g}"
