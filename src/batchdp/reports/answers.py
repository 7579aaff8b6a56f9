"""The answers: a plot that shows sizes and margins side by side, and a table of the figures."""

from __future__ import annotations

import math
from collections.abc import Sized

import numpy as np
from markupsafe import Markup

from batchdp.release.answers import Answer
from batchdp.release.beside import Beside
from batchdp.release.release import Release
from batchdp.release.tables import Table
from batchdp.reports.matrices import single_answers
from batchdp.reports.notebook import NOT_DETERMINED
from batchdp.reports.plots import Scale, scale_for, symmetric
from batchdp.reports.rendering import decimals_for, number, percent, render

MOST_ROWS = 2000
"""Answers of a table that the page shows."""


def derived_section(release: Release) -> Markup | None:
    """A table for each statement; None where nothing is derived."""
    derived = [q for q, one in zip(*release.layout.listed, strict=True) if one.derived]
    if not derived:
        return None
    found = (_table(release, one) for one in release.layout.tables(together=True) if one.linear is None)
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
    )


def _table(release: Release, one: Table) -> dict[str, object] | None:
    """The derived answers of a table; None where it has none."""
    own = np.flatnonzero(release.derived_in(one)).tolist()
    if not own:
        return None
    answers = [release.answers[one.answers[k]] for k in own]
    half = np.array([(a.high - a.low) / 2 for a in answers if a.determined])
    decimals = decimals_for(half) if half.size else 0
    texts = one.groups.texts()
    groups = [tuple(axis[k] for axis in texts) for k in own[:MOST_ROWS]]
    shown = zip(groups, answers[:MOST_ROWS], strict=True)
    return {
        "title": "Single answers" if one.single else one.title,
        "headings": ("Query",) if one.single or not one.columns else one.columns,
        "rows": [(names or (one.name,), _figures(answer, decimals)) for names, answer in shown],
        "more": len(answers) - min(len(answers), MOST_ROWS),
    }


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
    figures: list[tuple[float, ...]] = [(one.value, one.standard_error, one.low, one.high) for one in answers]
    if beside is not None:
        figures = [(*own, value) for own, value in zip(figures, beside.values[shown].tolist(), strict=True)]
    return render(
        "reports/answers.html",
        confidence=f"{100 * release.confidence:g} %",
        count=len(answers),
        missed=f"{(1 - release.confidence) * len(answers):.2g}",
        plot=_plot(answers[:MOST_PLOTTED]),
        box=box_for(answers),
        columns=COLUMNS if beside is None else (*COLUMNS, beside.heading.capitalize()),
        rows=list(zip([one.name for one in answers], figures, strict=True)),
        decimals=decimals_for(np.array([one.standard_error for one in answers])),
        beside=beside,
        counted=bool(release.notes),
    )


def _plot(answers: tuple[Answer, ...]) -> dict[str, object]:
    values = np.array([one.value for one in answers])
    half = np.array([one.high - one.value for one in answers])
    sizes, margins = scale_for(values, half), symmetric(half)
    rows = [
        {
            "name": one.name,
            "size": _interval(one.low, one.high, sizes, dot=one.value),
            "margin": _interval(one.low - one.value, one.high - one.value, margins),
        }
        for one in answers
    ]
    return {
        "box": box_for(answers),
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
