"""`plan_for`: from the accuracies that are wanted to the plan that has them at the least budget."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from batchdp.domain import Domain
from batchdp.errors import AccuracyError, StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.optimizer import ShapeChoice
from batchdp.plans.accuracy import needed
from batchdp.plans.criteria import Criteria, as_criteria
from batchdp.plans.encoding import Encoding
from batchdp.plans.making import asked_of, encode, search
from batchdp.plans.options import FAIR, LARGEST, Options
from batchdp.plans.planned import Plan
from batchdp.plans.weighing import Weighing, or_little, weighed, weighing
from batchdp.privacy import MOST, NOISES, Budget, Privacy
from batchdp.queries.query import LARGEST_WEIGHT, LEAST_WEIGHT
from batchdp.strategies.shaped import DEFAULT, ShapeLimits
from batchdp.strategies.strategy import Strategy
from batchdp.text import Progress
from batchdp.workloads.encode.cells import MOST_CELLS

NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def rounded_up(value: float) -> float:
    """Two digits, never less: less would not be accurate enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / step * (1 - 1e-12)) * step


def rounded(value: float) -> float:
    """A round number near this one."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return min((nice * power for nice in NICE), key=lambda nice: abs(nice - value))


ROUNDS = 3
"""Of weighing anew, where a batch is in several blocks."""
MOST_MOVED = 3.0
"""How many times heavier or lighter a query gets in one of them: what is light now must not be the worst next."""
SHOWN = 5
"""Accuracies that an error names."""


def plan_for(
    sql: str | os.PathLike[str] | None,
    domain: Domain | dict[str, Any] | str | os.PathLike[str],
    accuracy: Criteria | Mapping[str, Any] | str | os.PathLike[str],
    *,
    marginals: int | Iterable[int] | None = None,
    at_most: float | None = None,
    privacy: Privacy = "pure",
    seconds: float | None = None,
    seed: int = 0,
    max_cells: int = MOST_CELLS,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    progress: Progress | None = None,
) -> Plan:
    """Find the plan that is as accurate as asked at the least budget; `plan.needed` is that budget. No data is read.

    It is never worse than a plan without these accuracies, because that plan is among those that are tried.

    Args:
        sql, domain, marginals: as in `plan`.
        accuracy: what is wanted, by the name of a statement, table or query: a standard error, or {"margin": 25,
            "confidence": 0.95} for half the width of an interval. "*" stands for every name that is not given; without
            it, those may have any error. Or the path of a TOML file of these.
        at_most: the most ε (ρ for zCDP) that you will spend; if that is not enough, an AccuracyError names what cannot
            be met.
        privacy: "pure" or "zcdp", as in `optimize`.
        seconds: the time for all that is tried, in nominal seconds; it follows from the batch's size if left out.
        seed, max_cells, shape, limits, progress: as in `plan`.
    """
    (text, source), domain, orders = asked_of(sql, domain, marginals)
    criteria = as_criteria(accuracy, at_most=at_most)
    if privacy not in NOISES:
        raise StrategyError(
            f"privacy={privacy!r} must be one of {', '.join(map(repr, NOISES))}: each has its own budget"
        )
    options = Options(privacy, FAIR, seconds, seed, max_cells=max_cells, accuracy=criteria, shape=shape, limits=limits)
    batch = encode(text, orders, domain, options, source=source, progress=progress)  # which refuses unknown names
    best, least = None, math.inf
    for batch_of_plan, strategy, own in _tried(batch, domain, options, progress):
        found = Plan(text, orders, domain, batch_of_plan, strategy, own)
        budget = max(each for _, each in needed(found, criteria))
        if best is None or budget < least:
            best, least = found, budget
    assert best is not None
    _check(best, criteria, least)
    return best


def _tried(
    batch: Encoding, domain: Domain, options: Options, progress: Progress | None
) -> Iterator[tuple[Encoding, Strategy, Options]]:
    """The plan that would be made anyway, the one with the least largest error relative to what is wanted, and more.

    Where there are several blocks, the least largest error in each is not the least in all. There the weights of a sum
    are moved to whatever is worst, as its dual asks.
    """
    plain = weighed(batch, replace(options, objective=FAIR))
    rounds = ROUNDS if len(getattr(plain, "blocks", ())) > 1 else 0
    each = options if options.seconds is None else replace(options, seconds=options.seconds / (2 + rounds))

    def made(own: Options, number: int) -> tuple[Encoding, Strategy, Options]:
        def watch(share: float, doing: str) -> object:
            return progress is not None and progress((number + share) / (2 + rounds), doing)

        return *search(batch, domain, own, watch), own

    yield made(each, 0)
    yield made(replace(each, objective=LARGEST), 1)
    by = weighing(batch, options)
    fair = np.ones(len(by.names)) if plain.weights is None else plain.weights
    weights = _first_weights(by, plain.table_sizes())
    for number in range(rounds):
        by_hand = weights / fair  # within what can be given by hand; only their ratios matter
        by_hand = np.maximum(by_hand / by_hand.max() * LARGEST_WEIGHT, LEAST_WEIGHT)
        found = made(replace(each, weights=tuple(zip(by.names, by_hand.tolist(), strict=True))), 2 + number)
        yield found
        # Every table's largest variance over what is wanted of it; 0 where nothing is.
        worst = by.relative(found[1].noise.reference.variance(1.0) * found[1].worst_variances())
        mean = float(weights @ worst) / float(weights.sum()) or 1.0
        weights = weights * np.where(worst > 0, np.clip(worst / mean, 1 / MOST_MOVED, MOST_MOVED), 1.0)


def _first_weights(by: Weighing, answers: Dense) -> Dense:
    """One over the square of what is wanted, every statement alike; next to nothing where nothing is."""
    weights = by.relative(np.ones(len(by.names)))
    for statement in by.statements:
        own = list(statement.queries)
        weights[own] /= answers[own].sum()
    return or_little(weights)


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
    listed = "; ".join(
        f"{wanted.name!r} is to have {wanted.criterion} and would have "
        f"{wanted.criterion.goal * (own / most) ** (1 / noise.norm):.4g}"
        for wanted, own in unmet[:SHOWN]
    )
    more = f"; and {len(unmet) - SHOWN} more" if len(unmet) > SHOWN else ""
    enough = f"{noise.letter} = {least:.4g} would be enough; ask for less, or more budget"
    remedy = enough if least <= MOST else "no budget is enough; ask for less"
    raise AccuracyError(f"accuracy cannot be met with {Budget(noise, most)}: {listed}{more}; {remedy}")
