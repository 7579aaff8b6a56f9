"""`report_plan`: the page before anything is spent, on which the budget is a slider.

Errors of counts and sums go with 1/ε or 1/√ρ, so one figure says them all, and margins of derived answers are read off
a curve: the page needs no server and no data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from batchdp.archive import write_atomically
from batchdp.errors import PlanError
from batchdp.ledger import AnyLedger, Ledger, as_ledger
from batchdp.ledger.granting import remaining_for
from batchdp.linalg.matrix import Dense
from batchdp.plans import Plan
from batchdp.plans.accuracy import margins, needed_by_table
from batchdp.plans.baselines import ExpectedStatement, asked_for, beside, explained, tables_alone
from batchdp.plans.criteria import Criteria, Wanted, as_criteria
from batchdp.plans.outlook import USUAL, expected_derived
from batchdp.privacy import Budget, Noise, round_down
from batchdp.reports.answers import box_for
from batchdp.reports.page import join_page
from batchdp.reports.rendering import render, render_part, significant
from batchdp.reports.sections import budget_left, counted_section
from batchdp.sql.script import read_selections

STEPS = 300
"""Of the slider, evenly in the logarithm."""
FEW = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The ε of the table that needs no script."""
MOST_LISTED = 20_000
"""Queries, or tables, that are listed; beyond, the page has statements alone."""
POINTS = 7
"""Of the curve of a derived margin."""
LEAST, MOST = 0.01, 10.0
"""The ε that the slider goes to at the least, both ways."""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A plan, what is wanted of it, and what is left to pay for it."""

    plan: Plan
    criteria: Criteria | None
    ledger: Ledger | None

    @property
    def noise(self) -> Noise:
        """The kind of noise, which says what the slider is in and how errors go with it."""
        return self.plan.strategy.noise

    @property
    def reference(self) -> Budget:
        """ε = 1, or the ρ that it implies: what the page's own figures are for, as those of `batchdp plan`."""
        return self.noise.reference

    @cached_property
    def statements(self) -> tuple[ExpectedStatement, ...]:
        """Every statement at the reference, beside answering it by itself."""
        return beside(self.plan, self.reference)

    @cached_property
    def wanted(self) -> list[tuple[Wanted, Dense]]:
        """What is wanted, and the budget that each of its queries needs."""
        return [] if self.criteria is None else needed_by_table(self.plan, self.criteria)

    @property
    def answers(self) -> int:
        """How many there will be; what they are computed from is not among them."""
        return len(self.plan.asked)

    @cached_property
    def asked_in(self) -> str:
        """What asks for them: the statements as they were written, or tables."""
        if self.plan.sql is None:
            return f"in {asked_for(self.statements):,} tables"
        count = len(read_selections(self.plan.sql, self.plan.domain))
        statements = f"in {count:,} statement{'s' if count != 1 else ''}"
        return statements if self.plan.marginals is None else f"{statements} and tables of columns"

    @property
    def least(self) -> float | None:
        """The least budget that meets all criteria."""
        return max((float(own.max(initial=0.0)) for _, own in self.wanted), default=None)

    @cached_property
    def left(self) -> float | None:
        """What the ledger can still pay, in the plan's unit; 0 where it cannot pay for this kind of noise at all."""
        if self.ledger is None:
            return None
        return round_down(remaining_for(self.ledger.account, self.noise))

    @property
    def start(self) -> float:
        """Where the slider stands at first: what the criteria need, or ε = 1."""
        return _up(self.least) if self.least else float(self.reference)

    def ends(self) -> tuple[float, float]:
        """Where the slider begins and ends."""
        low, high = (float(self.noise.implied_by(epsilon)) for epsilon in (LEAST, MOST))
        reached = [self.start, *([self.left] if self.left else [])]
        return min(low, *(one / 10 for one in reached)), max(high, *(2 * one for one in reached))

    @cached_property
    def curve(self) -> list[float]:
        """Budgets from one end of the slider to the other, between which derived margins are read off."""
        return [float(one) for one in np.geomspace(*self.ends(), POINTS)]

    def times(self, budget: float) -> float:
        """How many times as large as at the reference errors are at this budget."""
        return float((float(self.reference) / budget) ** (1 / self.noise.norm))


def report_plan(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    criteria: Criteria | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    ledger: AnyLedger | None = None,
    title: str | None = None,
) -> Path:
    """Write what a plan promises as one HTML page with a slider for ε or ρ. Nothing is read or spent.

    Args:
        plan: from `plan` or `load_plan`.
        path: where to write the page; a file of that name is replaced at once, never half.
        criteria: the accuracies that are wanted, as in `plan_for`, or the path of a file of them.
        ledger: what the release would be charged to, or the path of its file; the page says what is left.
        title: the title of the page.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"plan is a {type(plan).__name__}; give what plan or load_plan returned")
    books = None if ledger is None else as_ledger(ledger)
    if books is not None:
        books.verify()
    wanted = None if criteria is None else as_criteria(criteria)
    content = plan_page(Prospect(plan, wanted, books), title)
    write_atomically(Path(path), content.encode(), PlanError)
    return Path(path)


def plan_page(prospect: Prospect, title: str | None = None) -> str:
    """The page as text; the same plan always gives the same page."""
    sections = {
        "budget": ("Budget", _dial(prospect)),
        "criteria": ("Criteria", _criteria(prospect) if prospect.wanted else None),
        "statements": ("Statements", _statements(prospect)),
        "queries": ("Queries", _queries(prospect) if len(prospect.plan.tables) <= MOST_LISTED else None),
        "counted": ("Counted", counted_section(_rules(prospect.plan))),
    }
    return join_page(
        sections,
        [render_part("reports/planned.js")],
        kicker="Before anything is spent",
        title=title or f"{prospect.answers:,} planned answers about {prospect.plan.domain.table}",
        lead="How much noise every count and sum will have, at the budget that you choose. No record was read for "
        "this page, and nothing was spent.",
        facts=_facts(prospect),
        folder=None,
    )


def _render(section: str, prospect: Prospect, **values: object) -> Any:
    """A section with what all of them say: the budget at which the slider starts, and how errors are there."""
    start = prospect.start
    at = {"letter": prospect.noise.letter, "start": f"{start:g}", "times": prospect.times(start), "budget": start}
    return render(f"reports/{section}.html", **at, **values)


def _facts(prospect: Prospect) -> list[tuple[str, str, str]]:
    strategy, letter = prospect.plan.strategy, prospect.noise.letter
    facts = [("Answers", f"{prospect.answers:,}", prospect.asked_in)]
    shape = strategy.shape
    name = prospect.noise.name if shape is None else "In the batch’s shape"
    note = f"{strategy.method}, {strategy.measurements:,} measurements"
    facts.append(("Noise", name, note if shape is None else f"{note}, errors simulated; a draw: {shape.seconds:.2g} s"))
    if prospect.least is not None:
        facts.append(("Needed", f"{letter} = {_up(prospect.least):g}", "the least that meets all criteria, rounded up"))
    return facts + budget_left(prospect.ledger)


def _dial(prospect: Prospect) -> Any:
    low, high = prospect.ends()
    options = prospect.plan.options
    said = [] if options.for_estimates is None else [options.for_estimates.sentence()]
    said += [] if options.given is None else options.given.sentences(str(prospect.noise.implied_by(options.epsilon)))
    return _render(
        "dial",
        prospect,
        norm=prospect.noise.norm,
        reference=float(prospect.reference),
        step=round(STEPS * math.log(prospect.start / low) / math.log(high / low)),
        steps=STEPS,
        curve=json.dumps(prospect.curve),
        estimates=" ".join(said),
        low=low,
        high=high,
        left=prospect.left,
        ledger=None if prospect.ledger is None else prospect.ledger.path.name,
        least=prospect.least,
        least_shown="" if prospect.least is None else f"{_up(prospect.least):g}",
    )


def _criteria(prospect: Prospect) -> Any:
    norm, rows = prospect.noise.norm, []
    for wanted, own in prospect.wanted:
        needs = float(own.max(initial=0.0))
        error = wanted.criterion.goal * needs ** (1 / norm)  # at 1; what rounding adds is in it
        rows.append(
            {
                "name": "every other query" if wanted.name == "*" else wanted.name,
                "wanted": str(wanted.criterion),
                "needs": needs,
                "needs_shown": f"{_up(needs):g}",
                "error": error / float(prospect.reference) ** (1 / norm),
                "error_shown": significant(error / prospect.start ** (1 / norm)),
            }
        )
    return _render("criteria", prospect, rows=rows, met=sum(prospect.start >= float(row["needs"]) for row in rows))


def _statements(prospect: Prospect) -> Any:
    plan = prospect.plan
    few = [float(prospect.noise.implied_by(epsilon)) for epsilon in FEW]
    rows = statement_rows(prospect)
    derived = derived_rows(prospect, few) if plan.derived else []
    return _render(
        "statements",
        prospect,
        rows=[own for own in rows if not own[0].part_of],
        parts=[one for one, _ in rows if one.part_of],
        derived=derived,
        size=f"{USUAL:,.0f}",
        few=[(f"{budget:g}", prospect.times(budget)) for budget in few],
        explained=explained(prospect.statements, plan.replaced),
        criteria=_met_at(prospect, few),
        box=box_for(rows),
    )


def statement_rows(prospect: Prospect) -> list[tuple[ExpectedStatement, float]]:
    """Every statement, and half of its widest interval, at the reference."""
    half = margins(prospect.plan) / prospect.times(1.0)
    widest = (float(np.max(half[list(one.queries)], initial=0.0)) for one in prospect.plan.statements)
    return list(zip(prospect.statements, widest, strict=True))


def _met_at(prospect: Prospect, few: list[float]) -> list[str]:
    """How many criteria are met at each of a few budgets."""
    needs = [float(own.max(initial=0.0)) for _, own in prospect.wanted]
    return [f"{sum(budget >= one for one in needs)} of {len(needs)}" for budget in few] if needs else []


def _rules(plan: Plan) -> tuple[str, ...]:
    """What is counted, in words."""
    return plan.counted.sentences(plan.protected.privacy.max_rows)


def derived_rows(prospect: Prospect, few: list[float]) -> list[dict[str, Any]]:
    """The margins of what is computed, which do not go with 1/ε: at points that the slider is read between."""
    budgets = [*few, prospect.start, *prospect.curve]
    found = [expected_derived(prospect.plan, Budget(prospect.noise, one)) for one in budgets]
    made = []
    for own in zip(*found, strict=True):
        halves = [one.half_width for one in own]
        shown = ["–" if math.isnan(one) else significant(one) for one in halves]
        curve = [None if math.isnan(one) else one for one in halves[len(few) + 1 :]]
        first = own[0]
        made.append(
            {
                "name": first.name,
                "answers": first.answers,
                "bins": first.bins,
                "few": shown[: len(few)],
                "half": shown[len(few)],
                "curve": json.dumps(curve),
            }
        )
    return made


def _queries(prospect: Prospect) -> Any:
    plan = prospect.plan
    half = margins(plan) / prospect.times(1.0)
    errors = plan.typical_errors(**prospect.reference.arguments)
    figures = np.column_stack([errors, half, tables_alone(plan, prospect.reference)])
    needs = np.full(len(half), np.nan)
    for wanted, own in prospect.wanted:
        needs[list(wanted.queries)] = own
    names = [one.name if one.queries == 1 else f"{one.name} ({one.queries:,})" for one in plan.tables]
    rows = list(zip(names, figures.tolist(), needs.tolist(), strict=True))
    return _render("queries", prospect, rows=rows, wanted=bool(prospect.wanted), box=box_for(rows))


def _up(value: float) -> float:
    """Three digits, never less: less would not be accurate enough."""
    if value <= 0:
        return value
    digits = 2 - math.floor(math.log10(value))
    found = round(value, digits)
    return found if found >= value else round(found + 10.0**-digits, digits)
