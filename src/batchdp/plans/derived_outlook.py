"""How accurate derived answers will be, for groups of an assumed size: they depend on it, and no data is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise

import numpy as np
from scipy import sparse

from batchdp.errors import QueryError, check_finite
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.derived import estimates
from batchdp.plans.accuracy import law_at
from batchdp.plans.encoding import derived_items
from batchdp.plans.planned import Plan
from batchdp.privacy import Budget
from batchdp.queries.expressions import Affine, Asked, Combination, Crossing, Ratio, parts_of
from batchdp.text import sanitise
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, Workload

USUAL = 1000.0
"""Records of a group, where nobody assumes another size."""
CONFIDENCE = 0.95
MOST_LOOKED, MOST_WEIGHED = 500, 5000
"""Of an item: answers whose intervals are looked at, and among how many these are chosen by their parts' errors."""
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
    that of values of which every bin holds as many. Of an item with very many groups, those whose parts have the
    largest errors are looked at.
    """
    items = derived_items(plan.batch)
    sizes = _sizes(assume or {}, [name for name, _ in items])
    if not items:
        return ()
    law, ranges = law_at(plan, budget), ratio_ranges(plan.asked_workload)
    values = np.zeros(plan.workload.queries)
    found = []
    for (name, every), size in zip(items, sizes, strict=True):
        own = _worst(every, plan)
        halves = []
        for highest in (False, True):
            for one in own:
                _assume(one, values, ranges, size, highest=highest)
            made = estimates(own, values, law, CONFIDENCE)
            halves.append(float(np.max((made.high - made.low) / 2)))
        bins = next((_bins(one.of) for one in own if isinstance(one.of, Crossing)), "")
        found.append(ExpectedDerived(name, len(every), size, float(np.max(halves)), bins))
    return tuple(found)


def _worst(own: Sequence[Asked[int]], plan: Plan) -> Sequence[Asked[int]]:
    """All of an item's answers, or those whose parts have the largest errors."""
    if len(own) <= MOST_LOOKED:
        return own
    some = own[:: -(-len(own) // MOST_WEIGHED)]
    starts = np.concatenate([[0], np.cumsum(plan.workload.table_sizes())]).astype(np.int64)
    known: dict[int, Dense] = {}

    def variance(part: int) -> float:
        t = int(np.searchsorted(starts, part, side="right")) - 1
        if t not in known:
            shape = plan.tables[t].shape
            known[t] = np.broadcast_to(plan.strategy.distinct_variances(t), shape).reshape(-1)
        return float(known[t][part - starts[t]])

    order = np.argsort([-max(map(variance, parts_of(one.of)), default=0.0) for one in some], kind="stable")
    return [some[k] for k in order[:MOST_LOOKED].tolist()]


def _sizes(assume: Assume, names: Sequence[str]) -> list[float]:
    """The size of each item's groups; a name that no derived answer has is refused."""
    for name, size in assume.items():
        if name != EVERY and name not in names:
            known = ", ".join(map(sanitise, names[:5]))
            remedy = f"derived are {known}" if known else "the batch has no derived answers"
            raise QueryError(f"assume: {sanitise(name)!r} is not the name of a derived answer; {remedy}")
        check_finite("assume", size, above=0)
    return [float(assume.get(name, assume.get(EVERY, USUAL))) for name in names]


def _assume(one: Asked[int], values: Dense, ranges: Ranges, size: float, *, highest: bool) -> None:
    """Put answers to the parts as a group of this size may have them, with every ratio at an end of its range."""
    if isinstance(one.of, Crossing):
        bins = len(one.of.edges) - 1
        values[list(one.of.below)] = size * np.arange(1, bins) / bins
        values[one.of.total] = size
    elif isinstance(one.of, Combination):
        for ratio in one.of.ratios:
            least, most, top = ranges(ratio)
            D = size * top if top > 0 else 1.0
            _put(ratio.denominator, D, values)
            _put(ratio.numerator, (most if highest else least) * D, values)


Ranges = Callable[[Ratio[int]], tuple[float, float, float]]
"""From a ratio to the least and the most that it can be, and the most that a record adds to its denominator."""


@singledispatch
def ratio_ranges(workload: Workload) -> Ranges:
    """What ratios of a batch's queries can be."""
    raise TypeError(f"nothing says what records of a {type(workload).__name__} add")


@ratio_ranges.register
def _(workload: MatrixWorkload) -> Ranges:
    W = sparse.csr_array(plain(workload.matrix))

    def row(one: Affine[int]) -> Dense:
        found = np.zeros(W.shape[1])
        for factor, part in one.terms:
            found += factor * W[[part]].toarray()[0]
        return found

    return lambda ratio: _range(row(ratio.numerator), row(ratio.denominator))


@ratio_ranges.register
def _(workload: KroneckerWorkload) -> Ranges:
    starts = np.concatenate([[0], np.cumsum(workload.table_sizes())]).astype(np.int64)

    def rows_of(part: int) -> dict[int, Dense]:
        """A query's row on every column that it looks at."""
        t = int(np.searchsorted(starts, part, side="right")) - 1
        factors = workload.factors_of(t)
        shape = [factor.rows for factor in factors.values()]
        at = np.unravel_index(int(part - starts[t]), shape) if shape else ()
        return {c: factor.row(int(i)) for (c, factor), i in zip(factors.items(), at, strict=True)}

    def of(ratio: Ratio[int]) -> tuple[float, float, float]:
        sides = (ratio.numerator, ratio.denominator)
        rows = [rows_of(part) for side in sides for part in side.parts]
        records = np.ones((len(rows), 1))
        for c in sorted({c for own in rows for c in own}):
            stacked = np.stack([own.get(c, np.ones(workload.sizes[c])) for own in rows])
            distinct = np.unique(stacked, axis=1)  # of the values that the ratio tells apart
            records = np.unique((records[:, :, None] * distinct[:, None, :]).reshape(len(rows), -1), axis=1)
        many = len(ratio.numerator.terms)
        above, below = (
            sum((factor * row for (factor, _), row in zip(side.terms, own, strict=True)), np.zeros(records.shape[1]))
            for side, own in zip(sides, (records[:many], records[many:]), strict=True)
        )
        return _range(above, below)

    return of


def _range(above: Dense, below: Dense) -> tuple[float, float, float]:
    """From what a record of every kind adds to both sides of a ratio."""
    top, here = float(np.abs(below).max()), below != 0
    # Records that add to the denominator decide what a ratio can be; those of another block may all be there.
    seen = above[here] / below[here] if np.any(above[here]) else np.append(above, 0.0) / (top or 1.0)
    return float(seen.min()), float(seen.max()), top


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
