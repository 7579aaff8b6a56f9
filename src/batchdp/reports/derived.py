"""Derived answers: averages, shares and quantiles, with the intervals that the noise in their parts gives them."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from batchdp.excerpt import full_title
from batchdp.markup import render
from batchdp.queries.statements import QUERY, Statement, tables_of
from batchdp.release.looking import NOT_DETERMINED
from batchdp.release.records import Answer, Release
from batchdp.reports.figures import decimals_for, number

MOST_ROWS = 2000
"""Answers of a table that the page shows."""


def derived_section(release: Release) -> Markup | None:
    """A table for each statement; None where nothing is derived."""
    derived = [q for q, one in enumerate(release.asked) if one.derived]
    if not derived:
        return None
    tables = [_table(release, one, derived) for one in tables_of([release.asked[q].name for q in derived])]
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


def _table(release: Release, one: Statement, derived: list[int]) -> dict[str, object]:
    answers = [release.answers[derived[q]] for q in one.answers]
    single = one.columns == (QUERY,)
    half = np.array([(a.high - a.low) / 2 for a in answers if a.determined])
    decimals = decimals_for(half) if half.size else 0
    shown = list(zip(one.groups, answers, strict=True))[:MOST_ROWS]
    return {
        "title": "Single answers" if single else full_title(one.name, one.columns),
        "headings": ("Query",) if single or not one.columns else one.columns,
        "rows": [(names or (one.name,), _figures(answer, decimals)) for names, answer in shown],
        "more": len(answers) - len(shown),
    }


def _figures(answer: Answer, decimals: int | None) -> list[str]:
    """Value, standard error, low and high; words where there is no value."""
    if not answer.determined:
        return [NOT_DETERMINED, "", "", ""]
    figures = (answer.value, answer.standard_error, answer.low, answer.high)
    return ["" if math.isnan(one) else number(one, decimals) for one in figures]
