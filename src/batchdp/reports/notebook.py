"""Values as notebooks show them; a release by its tables with their typical errors, and the top rows of some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import LedgerError
from batchdp.ledger import Ledger
from batchdp.ledger.chain import as_text
from batchdp.plans.comparison import Comparison
from batchdp.plans.criteria import describe_parts
from batchdp.plans.planned import Plan, describe_size
from batchdp.privacy import Budget
from batchdp.queries.query import QUERY, tables_of
from batchdp.release.answers import Figures
from batchdp.release.beside import Beside
from batchdp.release.release import Release
from batchdp.release.tables import Table
from batchdp.reports.rendering import render
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import TOLERANCE
from batchdp.text import NOTEBOOK, WHOLE, excerpt, full_title
from batchdp.workloads.matrix import MatrixWorkload

Row = tuple[str, float, float, float, float, bool]
"""What tells the answer apart, then its value, standard error, low and high, and whether it is derived."""
SPENDS = 8
"""Of a ledger that are shown, the latest."""
NOT_DETERMINED = "not determined"
"""What stands in the place of a derived answer that there is not."""


@dataclass(frozen=True)
class Seen:
    """A table with as many of its rows as are shown; of more than these, the largest answers."""

    title: str
    answers: int
    standard_error: float
    """The median of its answers'."""
    rows: Iterable[Row]
    more: int = 0
    """Rows that are not shown."""
    single: bool = False
    """Whether its answers have nothing in common but the batch."""
    derived: bool = False
    """Whether they are computed from others."""


@dataclass(frozen=True)
class Look:
    """What is shown of a release, and how many tables are not."""

    tables: Iterable[Seen]
    more: int = 0


def look_at(release: Release, *, everything: bool = False, whole: int = WHOLE) -> Look:
    """The excerpt of a release that fits on a screen; or everything, made table by table as it is read.

    Args:
        release: whose tables.
        everything: every row of every table.
        whole: answers in all of a release that is shown whole.
    """
    tables = release.layout.tables(together=True)
    sizes = release.reader.sizes.tolist() if release.layout.is_lazy else [one.queries for one in tables]
    shown = sizes if everything else excerpt(sizes, whole)
    made = (_seen(release, tables[t], rows) for t, rows in enumerate(shown))
    return Look(made if everything else list(made), len(sizes) - len(shown))


@singledispatch
def show(value: Any) -> str:
    """A value as HTML for a notebook; each kind is registered with what it says of itself."""
    raise NotImplementedError(f"a {type(value).__name__} has no page in a notebook")


@show.register
def _(workload: MatrixWorkload) -> str:
    shown = workload.names[:5]
    facts = {
        "queries": f"{workload.queries:,}",
        "cells": f"{workload.cells:,}",
        "matrix": workload._kind,
        "weights": "1 each" if workload.weights is None else "given",
        "names": "; ".join(shown) + ("; …" if workload.queries > len(shown) else ""),
    }
    return summary("Workload", facts)


@show.register
def _(strategy: PairStrategy) -> str:
    facts = {
        "method": strategy.method,
        "noise": strategy.noise.described if strategy.shape is None else f"shaped (pure ε): {strategy.shape}",
        "queries": f"{strategy.workload.queries:,}",
        "measurements": f"{strategy.measurements:,}",
        "cells": f"{strategy.workload.cells:,}",
        "sensitivity": f"{strategy.sensitivity:.6g}",
        "residual": f"{strategy.residual:.1e}",
    }
    if strategy.residual <= TOLERANCE:
        one = Budget(strategy.noise, 1)
        facts[f"expected squared error at {one}"] = f"{strategy.expected_squared_error(**one.arguments):,.6g}"
    return summary("Strategy", facts)


@show.register
def _(plan: Plan) -> str:
    budget = Budget(plan.strategy.noise, 1)
    errors, found = plan.typical_errors(**budget.arguments), tables_of(plan.names)
    shown = excerpt([len(one.answers) for one in found], NOTEBOOK)
    tables = []
    for one, rows in zip(found, shown, strict=False):
        own = errors[list(one.answers)]
        title = f"{full_title(one.name, one.columns)} ({len(own):,}), median standard error {np.median(own):,.4g}"
        listed = [(label, f"{error:,.4g}") for label, error in zip(one.labels[:rows], own, strict=False)]
        headings = ("query", f"standard error at {budget}")
        tables.append(Excerpt(headings, listed, "" if one.columns == (QUERY,) else title, len(own) - rows))
    return summary("Plan", facts_of_plan(plan), tables, more_tables=len(found) - len(shown))


@show.register
def _(comparison: Comparison) -> str:
    facts = {
        "queries": f"{comparison.m:,}",
        "cells": f"{comparison.n:,}",
        "no pair is below": f"{comparison.lower_bound:,.6g}",
        "with Gaussian noise at ρ = 1/2": f"{comparison.gaussian.expected_squared_error:,.6g}, a weaker promise",
        "note": comparison.note,
    }
    methods = [*comparison.methods, *([] if comparison.shaped is None else [comparison.shaped])]
    rows = [
        (one.name, f"{one.expected_squared_error:,.6g}", f"{one.residual:.1e}", f"{one.seconds:.2g}")
        for one in sorted(methods, key=lambda one: one.expected_squared_error)
    ]
    listed = Excerpt(("method", "expected squared error at ε = 1", "residual", "seconds"), rows)
    return summary("Comparison", facts, [listed])


@show.register
def _(ledger: Ledger) -> str:
    try:
        account, head, spends = ledger.account, ledger.head, ledger.history()
    except LedgerError:
        return summary("Ledger", {"file": ledger.path.name, "state": "cannot be read"})
    unit = account.leading
    total, spent = account.filters[unit].total, account.sum(unit) or Fraction(0)
    facts = {
        "file": ledger.path.name,
        **({} if account.delta is None else {"keeps": account.promise}),
        "total": f"{unit} {as_text(total)}",
        "spent": as_text(spent),
        "left": as_text(total - spent),
        "head": f"{head[:12]}…",
    }
    rows = [
        (f"{one.time[:16]} {one.table}", one.release_id[:12], f"{one.charged:g}", one.state)
        for one in spends[: -SPENDS - 1 : -1]
    ]
    listed = Excerpt(("latest spends", "release", "charged", "state"), rows, more=max(0, len(spends) - SPENDS))
    return summary("Ledger", facts, [listed] if spends else [])


@show.register
def _(release: Release) -> str:
    look = look_at(release, whole=NOTEBOOK)
    headings = ("query", "value", "standard error", "low", "high")
    tables = [
        Excerpt(
            headings,
            [(f"{name}{' (derived)' * derived}", *_figures(*figures)) for name, *figures, derived in one.rows],
            "" if one.single else _heading(one),
            one.more,
        )
        for one in look.tables
    ]
    return summary(release_title(release), facts_of_release(release), tables, more_tables=look.more)


@show.register
def _(beside: Beside) -> str:
    """Some of the values with the raw ones, and what must be said of them."""
    release, facts = beside.release, {"release": beside.release.certificate.release_id, "values": beside.meaning}
    found, tables = release.layout.tables(together=True), []
    shown = excerpt(release.reader.sizes.tolist() if release.layout.is_lazy else [t.queries for t in found], NOTEBOOK)
    for t, rows in enumerate(shown):
        one = found[t]
        values, raw = beside.of_table(one), release.figures(one).values
        top = _top(np.nan_to_num(raw, nan=-np.inf), rows, as_they_come=one.single)
        figures = zip(one.labels(top.tolist()), values[top].tolist(), raw[top].tolist(), strict=True)
        listed = [(label, *(NOT_DETERMINED if math.isnan(v) else f"{v:,.6g}" for v in own)) for label, *own in figures]
        title = "" if one.single else f"{one.title} ({one.queries:,})"
        tables.append(Excerpt(("query", beside.heading, "raw"), listed, title, one.queries - rows))
    facts["notes"] = " ".join(beside.notes)
    title = f"{beside.heading.capitalize()} values of {len(release.answers):,} private answers"
    return summary(title, facts, tables, more_tables=len(found) - len(shown))


def facts_of_plan(plan: Plan) -> dict[str, str]:
    """What is known of a plan, a label and a text each."""
    strategy = plan.strategy
    return {
        "table": plan.domain.table,
        "batch": describe_size(plan),
        "method": strategy.method,
        "measurements": f"{strategy.measurements:,}",
        "residual": f"{strategy.residual:.1e}",
        "what is counted": " ".join(plan.counted.sentences(plan.protected.privacy.max_rows)),
        "parts": describe_parts((one.name, one.adds) for one in plan.statements),
    }


def facts_of_release(release: Release) -> dict[str, str]:
    """What its certificate says of a release, and what is counted."""
    c = release.certificate
    return {
        "budget": c.strength,
        "neighbours": c.neighbours,
        "privacy unit": c.privacy_unit,
        "table": c.table,
        **({"snapshot": c.snapshot} if c.snapshot else {}),
        "release": c.release_id,
        "intervals": f"{100 * release.confidence:g} %, of the noise",
        "what is counted": " ".join(release.notes),
    }


def release_title(release: Release) -> str:
    """How many answers there are, in how many tables."""
    tables = f" in {len(release.tables):,} tables" if len(release.tables) > 1 else ""
    return f"Release of {len(release.answers):,} private answers{tables}"


@dataclass(frozen=True)
class Excerpt:
    """Some rows of a table: the first column is text, the others are numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    more: int = 0
    """How many rows were left out."""


def summary(title: str, facts: Mapping[str, object], tables: Sequence[Excerpt] = (), *, more_tables: int = 0) -> str:
    """A value in a notebook: a title, what is known of it, perhaps some tables; in the notebook's own colours.

    Args:
        title: what it is.
        facts: a label and a value a line; what is empty is left out.
        tables: what is shown of them.
        more_tables: how many of these were left out.
    """
    known = {label: value for label, value in facts.items() if value != ""}
    return str(render("reports/summary.html", title=title, facts=known, tables=tables, more_tables=more_tables))


def _figures(*figures: float) -> tuple[str, ...]:
    """Value, standard error, low and high as texts; words where there is no value."""
    value, error, low, high = figures
    if math.isnan(value):
        return NOT_DETERMINED, "", "", ""
    return f"{value:,.6g}", "" if math.isnan(error) else f"{error:,.3g}", f"{low:,.6g}", f"{high:,.6g}"


def _heading(one: Seen) -> str:
    error = "" if math.isnan(one.standard_error) else f", median standard error {one.standard_error:,.3g}"
    return f"{one.title} ({one.answers:,}){', derived' * one.derived}{error}"


def typical_error(errors: NDArray[np.float64]) -> float:
    """The median of those that there are."""
    known = errors[~np.isnan(errors)]
    return float(np.median(known)) if known.size else math.nan


def _seen(release: Release, one: Table, rows: int) -> Seen:
    """A table with so many of its rows."""
    figures = release.figures(one)
    derived = bool(release.derived_in(one).all())
    typical = typical_error(figures.standard_errors)
    found = _rows(release, one, rows) if rows else iter(())
    return Seen(one.title, one.queries, typical, found, one.queries - rows, one.single, derived)


def _rows(release: Release, one: Table, rows: int) -> Iterator[Row]:
    """All answers of a table, or the largest; intervals of no others are computed."""
    figures = release.figures(one)
    top = _top(np.nan_to_num(figures.values, nan=-np.inf), rows, as_they_come=one.single)
    if release.layout.is_lazy or release.asked or rows >= one.queries:
        parts = [own[top] for own in (figures.values, figures.standard_errors, figures.low, figures.high)]
    else:
        places = np.asarray(one.answers, dtype=np.int64)[top]
        some = Figures(release, 0, places)
        parts = [some.values, some.standard_errors, some.low, some.high]
    labels = one.labels(top.tolist())
    marks = release.derived_in(one)[top].tolist()
    for label, *row, derived in zip(labels, *(part.tolist() for part in parts), marks, strict=True):
        yield label, *row, derived


def _top(values: NDArray[np.float64], rows: int, *, as_they_come: bool = False) -> NDArray[np.int64]:
    """Which answers are shown: all, or the largest of them, largest first."""
    if rows >= len(values) or as_they_come:
        return np.arange(min(rows, len(values)))
    largest = np.argpartition(-values, rows)[:rows]
    return np.asarray(largest[np.argsort(-values[largest], kind="stable")])
