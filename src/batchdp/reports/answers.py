"""The answers: a plot that shows sizes and margins side by side, and a table of the figures."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized

import numpy as np
from markupsafe import Markup

from batchdp.release.answers import Answer
from batchdp.release.beside import Beside
from batchdp.release.release import Release
from batchdp.release.shown import seen
from batchdp.release.tables import Table
from batchdp.reports.matrices import single_answers
from batchdp.reports.notebook import NOT_DETERMINED
from batchdp.reports.plots import Scale, alike, scale_for, symmetric
from batchdp.reports.rendering import decimals_for, number, percent, render

MOST_ROWS = 2000
"""Answers of a table that the page shows."""


def shown_section(release: Release) -> Markup | None:
    """What ORDER BY, LIMIT, OFFSET and HAVING show, with the ranks that rows can have; None where nothing is asked."""
    found = []
    for title, columns, own, note in seen(release):
        decimals = _decimals([a for _, a, _ in own])
        rows = [(names or (title,), [*_figures(a, decimals), ranks]) for names, a, ranks in own[:MOST_ROWS]]
        found.append({"title": title, "headings": columns or ("Query",), "rows": rows, "note": note})
    return render("reports/shown.html", tables=found) if found else None


def derived_section(release: Release, beside: Beside | None = None) -> Markup | None:
    """A plot and a table for each statement, with other values beside if there are; None where nothing is derived."""
    derived = [q for q, one in zip(*release.layout.listed, strict=True) if one.derived]
    if not derived:
        return None
    if release.layout.is_lazy:
        beside = None  # whose values are made table by table, for linear answers alone
    found = (_table(release, one, beside) for one in release.layout.tables(together=True) if one.linear is None)
    tables = [one for one in found if one is not None]
    missing = sum(not release.answers[q].determined for q in derived)
    return render(
        "reports/derived.html",
        confidence=f"{100 * release.confidence:g} %",
        count=len(derived),
        missing=missing,
        not_determined=NOT_DETERMINED,
        tables=tables,
        counted=bool(release.notes),
        beside=beside,
    )


def _table(release: Release, one: Table, beside: Beside | None) -> dict[str, object] | None:
    """The derived answers of a table; None where it has none."""
    own = np.flatnonzero(release.derived_in(one)).tolist()
    if not own:
        return None
    answers = [release.answers[one.answers[k]] for k in own]
    texts, shared = one.groups.texts(), None if one.single else _decimals(answers)
    rows = []
    for k, answer in zip(own[:MOST_ROWS], answers, strict=False):
        decimals = _decimals([answer]) if one.single else shared
        figures = _figures(answer, decimals)
        if beside is not None:
            value = float(beside.of_table(one)[k])
            figures.append("" if math.isnan(value) else number(value, decimals))
        rows.append((tuple(axis[k] for axis in texts) or (one.name,), figures))
    plotted = [
        (", ".join(names), answer) for (names, _), answer in zip(rows, answers, strict=False) if answer.determined
    ]
    return {
        "title": "Single answers" if one.single else one.title,
        "headings": ("Query",) if one.single or not one.columns else one.columns,
        "rows": rows,
        "plots": _plots(plotted[:MOST_PLOTTED]) if len(plotted) > 1 else [],
        "more": len(answers) - len(rows),
    }


def _decimals(answers: Sequence[Answer]) -> int | None:
    """Two significant digits of the smallest margin; none where answers and ends are whole, as medians of ages are."""
    known = [one for one in answers if one.determined]
    if all(float(end).is_integer() for one in known for end in (one.value, one.low, one.high)):
        return 0
    return decimals_for(np.array([(one.high - one.low) / 2 for one in known]))


def _figures(answer: Answer, decimals: int | None) -> list[str]:
    """Value, standard error, low and high; words where there is no value."""
    if not answer.determined:
        return [NOT_DETERMINED, "", "", ""]
    figures = (answer.value, answer.standard_error, answer.low, answer.high)
    return ["" if math.isnan(one) else number(one, decimals) for one in figures]


MOST_PLOTTED = 1000
MOST_UNBOXED = 60
"""Rows that stand on the page; more scroll within a box."""
COLUMNS = ("Query", "Answer", "Standard error", "Low", "High")


def answers_section(release: Release, beside: Beside | None = None) -> Markup | None:
    """Filter, plot and table of the single answers, with other values beside them if there are; both follow the
    filter and the order that the reader chooses."""
    shown = single_answers(release)
    answers = tuple(release.answers[q] for q in shown)
    if not answers:
        return None
    others = [()] * len(answers) if beside is None else [(value,) for value in beside.values[shown].tolist()]
    rows = []
    for one, other in zip(answers, others, strict=True):
        decimals = _decimals([one])
        figures = (one.value, one.standard_error, one.low, one.high, *other)
        rows.append((one.name, [(value, number(value, decimals)) for value in figures]))
    return render(
        "reports/answers.html",
        confidence=f"{100 * release.confidence:g} %",
        count=len(answers),
        missed=f"{(1 - release.confidence) * len(answers):.2g}",
        plots=_plots([(one.name, one) for one in answers[:MOST_PLOTTED]]),
        plotted=min(len(answers), MOST_PLOTTED),
        box=box_for(answers),
        columns=COLUMNS if beside is None else (*COLUMNS, beside.heading.capitalize()),
        rows=rows,
        beside=beside,
        counted=bool(release.notes),
    )


def _plots(named: Sequence[tuple[str, Answer]]) -> list[dict[str, object]]:
    """A plot for all answers whose margins are alike, so that counts, amounts and shares have axes of their own."""
    half = np.array([(one.high - one.low) / 2 for _, one in named])
    return [_plot([(k, *named[k]) for k in own]) for own in alike(half)]


def _plot(numbered: Sequence[tuple[int, str, Answer]]) -> dict[str, object]:
    values = np.array([one.value for _, _, one in numbered])
    half = np.array([max(one.high - one.value, one.value - one.low) for _, _, one in numbered])
    sizes, margins = scale_for(values, half), symmetric(half)
    rows = [
        {
            "number": k,
            "name": name,
            "size": _interval(one.low, one.high, sizes, dot=one.value),
            "margin": _interval(one.low - one.value, one.high - one.value, margins),
        }
        for k, name, one in numbered
    ]
    return {
        "box": box_for(numbered),
        "sizes": _marks(sizes),
        "margins": _marks(margins),
        "rows": rows,
        "logarithmic": sizes.unit is not None,
    }


def _interval(low: float, high: float, scale: Scale, dot: float | None = None) -> dict[str, str]:
    ends = {"low": low, "high": high, "dot": dot}
    return {name: "" if value is None else percent(scale.position(value)) for name, value in ends.items()}


def _marks(scale: Scale) -> list[dict[str, str]]:
    ticks = scale.ticks(4 if -scale.low != scale.high else 3)
    return [{"x": percent(at := scale.position(tick)), "anchor": _anchor(at), "text": _short(tick)} for tick in ticks]


def _anchor(at: float) -> str:
    return "start" if at < 0.08 else "end" if at > 0.92 else "middle"


def _short(tick: float) -> str:
    """A tick that fits: 100k for 100,000."""
    size = abs(tick)
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if power <= size < 1000 * power:
            return f"{tick / power:g}{letter}".replace("-", "−")
    return f"{tick:.3g}".replace("-", "−")


def box_for(rows: Sized) -> str:
    """The class of what holds so many rows: beyond some they scroll."""
    return "box tall" if len(rows) > MOST_UNBOXED else "box"
