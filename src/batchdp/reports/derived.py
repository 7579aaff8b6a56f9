"""Derived answers: averages, shares and quantiles, with the intervals that the noise in their parts gives them."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from batchdp.markup import render
from batchdp.release.answers import Answer
from batchdp.release.looking import NOT_DETERMINED
from batchdp.release.records import Release
from batchdp.release.tables import Table
from batchdp.reports.figures import decimals_for, number

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
