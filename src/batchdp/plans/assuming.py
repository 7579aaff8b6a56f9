"""How accurate derived answers will be, for groups of an assumed size: they depend on it, and no data is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from batchdp.checks import check_finite
from batchdp.derived.expressions import Affine, Asked, Combination, Crossing
from batchdp.errors import QueryError
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.derived import estimates
from batchdp.plans.accuracy import law_at
from batchdp.plans.planned import Plan
from batchdp.privacy import Budget
from batchdp.queries.statements import statements_of
from batchdp.terminal import sanitise

USUAL = 1000.0
"""Records of a group, where nobody assumes another size."""
CONFIDENCE = 0.95
EVERY = "*"
"""Stands for all derived answers that are not named."""

Assume = Mapping[str, float]


@dataclass(frozen=True)
class ExpectedDerived:
    """The derived answers of one item of a SELECT."""

    name: str
    answers: int
    size: float
    """Records that each group is assumed to have."""
    half_width: float
    """Of the widest interval at 95 %; not a number where it would not be determined."""
    bins: str = ""
    """What the running totals of a quantile are over."""


def expected_derived(plan: Plan, budget: Budget, assume: Assume | None = None) -> tuple[ExpectedDerived, ...]:
    """All derived answers of a plan at this budget.

    An average or share may lie anywhere in its range: the interval is the widest that there can be. A quantile's is
    that of values of which every bin holds as many.
    """
    derived = plan.derived
    named = statements_of([one.name for one in derived]) if derived else []
    items = [(one.name, [derived[q] for q in one.answers]) for one in named if one.columns != ("query",)]
    items += [(derived[q].name, [derived[q]]) for one in named if one.columns == ("query",) for q in one.answers]
    sizes = _sizes(assume or {}, [name for name, _ in items])
    if not items:
        return ()
    law, W = law_at(plan, budget), sparse.csr_array(plain(plan.asked_workload.matrix))
    found = []
    for (name, own), size in zip(items, sizes, strict=True):
        halves = []
        for highest in (False, True):
            values = np.zeros(len(plan.names))
            for one in own:
                _assume(one, values, W, size, highest=highest)
            made = estimates(own, values, law, CONFIDENCE)
            halves.append(float(np.max((made.high - made.low) / 2)))
        bins = next((_bins(one.of) for one in own if isinstance(one.of, Crossing)), "")
        found.append(ExpectedDerived(name, len(own), size, float(np.max(halves)), bins))
    return tuple(found)


def _sizes(assume: Assume, names: Sequence[str]) -> list[float]:
    """The size of each item's groups; a name that no derived answer has is refused."""
    for name, size in assume.items():
        if name != EVERY and name not in names:
            known = ", ".join(map(sanitise, names[:5]))
            remedy = f"derived are {known}" if known else "the batch has no derived answers"
            raise QueryError(f"assume: {sanitise(name)!r} is not the name of a derived answer; {remedy}")
        check_finite("assume", size, above=0)
    return [float(assume.get(name, assume.get(EVERY, USUAL))) for name in names]


def _assume(one: Asked[int], values: Dense, W: sparse.csr_array, size: float, *, highest: bool) -> None:
    """Put answers to the parts as a group of this size may have them, with every ratio at an end of its range."""
    if isinstance(one.of, Crossing):
        bins = len(one.of.edges) - 1
        values[list(one.of.below)] = size * np.arange(1, bins) / bins
        values[one.of.total] = size
    elif isinstance(one.of, Combination):
        for ratio in one.of.ratios:
            above, below = _row(ratio.numerator, W), _row(ratio.denominator, W)
            top = float(np.abs(below).max())
            D = size * top if top > 0 else 1.0
            here = below != 0
            # Records that add to the denominator decide what a ratio can be; those of another block may all be there.
            seen = above[here] / below[here] if np.any(above[here]) else np.append(above, 0.0) / (top or 1.0)
            _put(ratio.denominator, D, values)
            _put(ratio.numerator, float(seen.max() if highest else seen.min()) * D, values)


def _row(one: Affine[int], W: sparse.csr_array) -> Dense:
    """What a record of every cell adds."""
    found = np.zeros(W.shape[1])
    for factor, part in one.terms:
        found += factor * W[[part]].toarray()[0]
    return found


def _put(one: Affine[int], total: float, values: Dense) -> None:
    """Answers with this sum: all of it in the first part."""
    for place, (factor, part) in enumerate(one.terms):
        values[part] = (total - one.constant) / factor if place == 0 and factor else 0.0


def _bins(one: Crossing[int]) -> str:
    widths = [high - low for low, high in pairwise(one.edges)]
    even = all(math.isclose(width, widths[0], rel_tol=1e-9) for width in widths[:-1])
    if one.step is not None and even and math.isclose(widths[0], one.step) and math.isclose(widths[-1], one.step):
        return f"each of {len(widths)} values"
    return f"{len(widths)} bins of {widths[0]:g}" if even and len(widths) > 1 else f"{len(widths)} bins"
