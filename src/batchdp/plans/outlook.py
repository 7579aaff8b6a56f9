"""What a plan promises before anything is spent: every table's expected error, the baselines', and budget advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import singledispatch
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.accounting import LEAST_SCALE
from batchdp.errors import QueryError, ReleaseError, check_finite
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.conversion import budget_of, describe_charges, describe_guarantee
from batchdp.mechanism.derived import Packed, estimates
from batchdp.plans.accuracy import epsilon_for, law_at
from batchdp.plans.baselines import ExpectedStatement, beside, explained, gained_in_all, simple_variances, tables_alone
from batchdp.plans.encoding import derived_items
from batchdp.plans.for_estimates import ForEstimates
from batchdp.plans.options import FAIR, LARGEST, Given
from batchdp.plans.planned import Plan
from batchdp.plans.targets import rounded, rounded_up
from batchdp.privacy import CURRENCIES, UNITS, Budget, Unit
from batchdp.queries.expressions import Affine, Asked, Combination, Crossing, Moments, Ratio, parts_of
from batchdp.queries.query import QUERY, Statement, tables_of
from batchdp.strategies.strategy import TOLERANCE
from batchdp.text import excerpt, full_title, sanitise
from batchdp.workloads.kronecker import KroneckerWorkload


def describe_objective(plan: Plan) -> str:
    """What is minimised, in words."""
    options, weights = plan.options, plan.workload.weights
    weighted = weights is not None and not np.all(weights == 1)
    said = "total expected squared error"
    if options.for_estimates is not None and options.for_estimates.orders:
        return f"{said}, weighed for estimates"
    if options.objective == LARGEST:
        said = "largest expected squared error"
        if options.accuracy is not None:
            return f"{said}, each relative to what is wanted"
    elif options.objective == FAIR:
        said = "sum over statements of the mean squared error, relative to the most that one record can change"
        weighted = bool(options.weights)  # those of statements are no more than fair
    return said + " times its weight" * weighted


USUAL_DELTA = 1e-6
"""Where none is given."""
USUAL = 1000.0
"""Records of a group, where nobody assumes another size."""
CONFIDENCE = 0.95
MOST_LOOKED, MOST_WEIGHED = 500, 5000
"""Of an item: answers whose intervals are looked at, and among how many these are chosen by their parts' errors."""
EVERY = "*"
"""Stands for all derived answers that are not named."""

Assume = Mapping[str, float]
SHOWN = 5
"""Statements that a warning names."""


@dataclass(frozen=True)
class Expected:
    """One table's typical standard error, and what answering its statement by itself and the whole batch by one of the
    two simple mechanisms would give. A query that is in no table is one by itself."""

    name: str
    standard_error: float
    """The root of the mean square of its answers'."""
    by_itself: float
    noise_on_data: float
    noise_on_results: float
    answers: int = 1


@dataclass(frozen=True)
class ShownTable:
    """What is shown together: as many rows as fit, each with what tells it apart."""

    title: str
    rows_in_all: int
    standard_error: float
    """The median of its rows'."""
    rows: tuple[tuple[str, Expected], ...]
    single: bool = False
    """Whether its rows have nothing in common but the batch."""


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


@dataclass(frozen=True)
class Outlook:
    """All tables' expected errors at a budget, and advice."""

    tables: tuple[Expected, ...]
    unit: Unit
    budget: float
    method: str
    answers: int
    """That are shown, derived ones included."""
    measurements: int
    over: str
    """What is measured, in words."""
    objective: str
    """What the plan minimises."""
    minimised: str
    """The same in words."""
    total_squared_error: float
    """Over all queries, in their own units, whatever was minimised."""
    objective_error: float
    """Of what was minimised."""
    lower_bound: float
    """No strategy of this kind has a smaller `objective_error`."""
    residual: float
    accuracy: float
    """A half width at 95 %."""
    advised: float
    """The least budget at which every answer is that accurate; not a number where no answer needs noise."""
    statements: tuple[ExpectedStatement, ...] = ()
    wanted: bool = False
    """Whether the plan was made for accuracies by name: who names them says what may be worse."""
    reason: str = ""
    derived: tuple[ExpectedDerived, ...] = ()
    """What is computed from the queries, for groups of an assumed size."""
    replaced: int = 0
    """How many rows a replaced unit counts as; 0 where units are added and removed."""
    for_estimates: ForEstimates | None = None
    """How tables are weighed where answers will be denoised, and what raw ones lose."""
    given: Given | None = None
    """The releases that the plan is on top of, and what it gains; for the budget of `planned`."""
    planned: str = ""
    """The budget that the plan was made for, where that matters."""
    simulated: float = 0.0
    """The standard error of `objective_error`, relative: 0 unless noise is shaped, whose errors are simulated."""
    delta: float | None = None
    """Beside ε, where the budget is that of (ε, δ)."""
    charged: str = ""
    """What a ledger would charge at the most, in every currency, where the noise is not pure or a δ was given."""

    def __str__(self) -> str:
        return f"{UNITS[self.unit].letter} = {self.budget:g}"

    def caption(self) -> str:
        """What the figures are."""
        simple = "" if UNITS[self.unit].is_pure else f" (Laplace noise at ε = {math.sqrt(2 * self.budget):g})"
        typical = ", the root mean square of every table's answers," * any(row.answers > 1 for row in self.tables)
        return (
            f"Expected standard errors at {self}{typical} beside those of noise on data and of noise on results for "
            f"the whole batch{simple}."
        )

    def explained(self) -> str:
        """What "by itself" and "gain" are."""
        return explained(self.statements, self.replaced)

    def summary(self) -> str:
        """What the table does not say, in sentences: how it is done, and what matters about it."""
        times = f", {self.objective_error / self.lower_bound:.4g} times that" if self.lower_bound > 0 else ""
        lines = [
            f"Method: {self.method}; {self.measurements} measurements {self.over}, which reproduce every query to "
            f"{TOLERANCE:g} or better.",
            f"Minimised: the {self.minimised}. No strategy of this kind is below {self.lower_bound:,.4g} at {self}; "
            f"this one has {self.objective_error:,.4g}{times}."
            if not self.simulated
            else f"Minimised: the {self.minimised}, {self.objective_error:,.4g} at {self}, simulated to "
            f"{100 * self.simulated:.1g} %. No limit is proven for noise in the shape of the batch.",
        ]
        return "\n".join((*lines, *self._told()))

    def matters(self) -> str:
        """The same without how it is done, and what sharing gains in one sentence."""
        return "\n".join((*gained_in_all(self.statements), *self._told()))

    def _told(self) -> list[str]:
        """What is charged and what more accuracy would cost, what was weighed, and what got worse."""
        lines = []
        if self.charged:
            lines.append(f"At {self}, a ledger charges at most {self.charged}.")
        if math.isfinite(self.advised):
            enough = f"{UNITS[self.unit].letter} = {rounded_up(self.advised):g}"
            parts = ", parts of derived answers too," * bool(self.derived)
            lines.append(f"For ±{self.accuracy:g} at 95 % on every query{parts} you need {enough} (rounded up).")
        estimates = "" if self.for_estimates is None else self.for_estimates.sentence()
        known = [] if self.given is None else self.given.sentences(self.planned)
        return [*lines, *filter(None, (self.reason, estimates, *known, self.warning()))]

    @property
    def exact(self) -> Fraction:
        """The budget, as the decimal number that it is written as."""
        return Fraction(str(self.budget))

    def several(self, releases: int) -> list[str]:
        """What so many releases, of as many snapshots, cost together; nothing for a single one."""
        if releases == 1:
            return []
        one, noise = Budget(UNITS[self.unit], self.budget), UNITS[self.unit]
        due = ((unit, one.noise.charge(one.amount, unit, LEAST_SCALE)) for unit in CURRENCIES)
        charges = {unit: None if cost is None else releases * cost for unit, cost in due}
        total = f"{noise.letter} = {float(releases * self.exact):g}"
        return [
            f"{releases} releases, each at {self} and as accurate as above, cost {total} together for somebody who is "
            f"in all of their snapshots: {describe_guarantee(charges, USUAL_DELTA)}."
        ]

    def warning(self) -> str:
        """Which statements sharing one strategy has made worse; nothing if it has none."""
        worse = sorted((one for one in self.statements if one.is_worse), key=lambda one: one.gain)
        if not worse or self.wanted or self.given is not None:
            return ""
        listed = ", ".join(f"{one.name} ({one.standard_error:.3g}, not {one.by_itself:.3g})" for one in worse[:SHOWN])
        more = f" and {len(worse) - SHOWN} more" if len(worse) > SHOWN else ""
        remedy = "" if self.objective == FAIR else ', or objective="fair",'
        return (
            f"Worse than by itself with an equal share of the budget: {listed}{more}; a larger weight{remedy} moves "
            "budget there."
        )

    def excerpt(self, *, everything: bool = False, in_parts: bool = True) -> tuple[list[ShownTable], int]:
        """So much as fits on a screen, or everything, without parts or with them; and how many tables are left out."""
        found = tables_of([row.name for row in self.tables])
        if not in_parts:
            parts = {one.name for one in self.statements if one.part_of}
            found = [kept for one in found if (kept := one.without(parts)).answers]
        sizes = [len(one.answers) for one in found]
        shown = sizes if everything else excerpt(sizes)
        return [self._shown(one, rows) for one, rows in zip(found, shown, strict=False)], len(sizes) - len(shown)

    def _shown(self, one: Statement, rows: int) -> ShownTable:
        own = [self.tables[q] for q in one.answers]
        labelled = zip(one.labels[:rows], own, strict=False)
        shown = tuple((f"{label} ({row.answers:,})" if row.answers > 1 else label, row) for label, row in labelled)
        middle = median(row.standard_error for row in own)
        return ShownTable(full_title(one.name, one.columns), len(own), middle, shown, one.columns == (QUERY,))

    def as_dict(self) -> dict[str, Any]:
        """All figures, for machines to read."""
        return asdict(self)


def outlook(
    plan: Plan,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    accuracy: float | None = None,
    assume: Assume | None = None,
) -> Outlook:
    """The errors to expect of a plan at ε (for Gaussian noise at ρ = ε²/2), beside those of the simple mechanisms.

    Args:
        plan: the plan that would be released.
        epsilon: the budget.
        delta: with it, Gaussian noise is that of (ε, δ), as in `answer`.
        accuracy: half the width of a 95 % interval for which the budget is worked out; a round one near the largest if
            left out.
        assume: how many records the groups of averages, shares and quantiles have: a number, or a dictionary by name in
            which "*" stands for all others; 1000 if left out.
    """
    if not isinstance(plan, Plan):
        raise ReleaseError(
            f"plan is a {type(plan).__name__}; an outlook needs a Plan, from plan(sql, domain): a strategy has "
            "expected_squared_error"
        )
    strategy, options = plan.strategy, plan.options
    noise = strategy.noise
    budget = noise.implied_by(epsilon) if delta is None else budget_of(noise, epsilon=epsilon, delta=delta)
    errors, answers = plan.typical_errors(**budget.arguments), plan.workload.table_sizes()
    simple = (plan.factor * np.sqrt(own) for own in simple_variances(plan.asked_workload, epsilon))
    worst = float(errors.max(initial=0.0))
    goal = accuracy if accuracy is not None else rounded(2 * worst)
    # What the plan minimises, for the domain's neighbours.
    minimised = strategy.expected_squared_error, strategy.lower_bound
    if options.objective == LARGEST:
        minimised = strategy.largest_variance, strategy.largest_variance_bound
    error, bound = (plan.factor**2 * of(**budget.arguments) for of in minimised)
    figures = (part.tolist() for part in (errors, tables_alone(plan, budget), *simple))
    return Outlook(
        tables=tuple(Expected(*row) for row in zip(plan.names, *figures, map(round, answers.tolist()), strict=True)),
        unit=budget.noise.unit,
        budget=float(budget),
        method=strategy.method,
        answers=len(plan.asked),
        measurements=strategy.measurements,
        over=told_over(plan.workload),
        objective=options.objective,
        minimised=describe_objective(plan),
        total_squared_error=float(answers @ errors**2),
        objective_error=error,
        lower_bound=bound,
        residual=strategy.residual,
        accuracy=goal,
        advised=epsilon_for(plan, half_width=goal) if worst > 0 else math.nan,
        statements=beside(plan, budget),
        wanted=options.accuracy is not None,
        reason=strategy.reason,
        derived=expected_derived(plan, budget, assume),
        replaced=plan.replaced,
        for_estimates=options.for_estimates,
        given=options.given,
        planned="" if options.given is None else str(noise.implied_by(options.epsilon)),
        simulated=strategy.simulation_error,
        delta=delta,
        charged="" if noise.is_pure and delta is None else describe_charges(budget, delta or USUAL_DELTA),
    )


def told_over(workload: Any) -> str:
    """What is measured for a batch, in words."""
    if isinstance(workload, KroneckerWorkload):
        tables = f"{len(workload.tables):,} tables over {len(workload.sizes)} columns"
        return f"for {workload.queries:,} counts and sums in {tables}"
    blocks = f" (a record has at most one in each of {len(workload.blocks)} blocks)" * (len(workload.blocks) > 1)
    return f"of {workload.cells} cells{blocks}"


# ── derived answers, for groups of an assumed size: they depend on it, and no data is read ──


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
        halves, packed = [], Packed()
        for highest in (False, True):
            for one in own:
                _assume(one, values, ranges, size, highest=highest)
            made = estimates(own, values, law, CONFIDENCE, packed)
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
    elif isinstance(one.of, Moments):  # of numbers that lie 1 from their mean: nobody knows how far they do
        values[list(one.of.parts)] = 0.0
        values[[one.of.count, *one.of.products[-2:]]] = size
        values[one.of.products[0]] = size if one.of.what != "correlation" else 0.0
    elif isinstance(one.of, Combination):
        for ratio in one.of.ratios:
            least, most, top = ranges(ratio)
            D = size * top if top > 0 else 1.0
            _put(ratio.denominator, D, values)
            _put(ratio.numerator, (most if highest else least) * D, values)


Ranges = Callable[[Ratio[int]], tuple[float, float, float]]
"""From a ratio to the least and the most that it can be, and the most that a record adds to its denominator."""


@singledispatch
def ratio_ranges(workload: Any) -> Ranges:
    """What ratios of a batch's queries can be."""
    W = sparse.csr_array(plain(workload.matrix))

    def row(one: Affine[int]) -> Dense:
        return sum((factor * W[[part]].toarray()[0] for factor, part in one.terms), np.zeros(W.shape[1]))

    return lambda ratio: _range(row(ratio.numerator), row(ratio.denominator))


@ratio_ranges.register
def _(workload: KroneckerWorkload) -> Ranges:
    starts = np.concatenate([[0], np.cumsum(workload.table_sizes())]).astype(np.int64)

    def rows_of(part: int) -> dict[int, Dense]:
        """A query's row on every axis that it looks at."""
        t = int(np.searchsorted(starts, part, side="right")) - 1
        factors = workload.factors_of(t)
        shape = [factor.rows for factor in factors.values()]
        at = np.unravel_index(int(part - starts[t]), shape) if shape else ()
        return {c: factor.row(int(i)) for (c, factor), i in zip(factors.items(), at, strict=True)}

    def of(ratio: Ratio[int]) -> tuple[float, float, float]:
        sides = (ratio.numerator, ratio.denominator)
        rows = [rows_of(part) for side in sides for part in side.parts]
        records = np.ones((len(rows), 1))
        for looked in _tied({workload.looked_at(axis) for own in rows for axis in own}):
            stacked = np.stack([_on_columns(own, looked, workload) for own in rows])
            distinct = np.unique(stacked, axis=1)  # of the values that the ratio tells apart
            records = np.unique((records[:, :, None] * distinct[:, None, :]).reshape(len(rows), -1), axis=1)
        many = len(ratio.numerator.terms)
        above, below = (
            sum((factor * row for (factor, _), row in zip(side.terms, own, strict=True)), np.zeros(records.shape[1]))
            for side, own in zip(sides, (records[:many], records[many:]), strict=True)
        )
        return _range(above, below)

    return of


def _tied(axes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The columns of axes, those together that some axis looks at together."""
    found: list[set[int]] = []
    for looked in axes:
        meeting = [own for own in found if own & set(looked)]
        found = [own for own in found if own not in meeting] + [set(looked).union(*meeting)]
    return sorted(tuple(sorted(own)) for own in found)


def _on_columns(rows: Mapping[int, Dense], looked: tuple[int, ...], workload: KroneckerWorkload) -> Dense:
    """A query, given by its rows on axes, on all combinations of some columns' values."""
    found = np.ones([workload.sizes[c] for c in looked])
    for axis, row in rows.items():
        own = workload.looked_at(axis)
        if set(own) <= set(looked):
            found = found * row.reshape([workload.sizes[c] if c in own else 1 for c in looked])
    return found.reshape(-1)


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
