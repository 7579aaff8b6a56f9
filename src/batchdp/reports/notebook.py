"""A release as people look at it first: its tables with their typical errors, and the top rows of some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchdp.release.answers import Figures
from batchdp.release.release import Release
from batchdp.release.tables import Table
from batchdp.text import NOTEBOOK, WHOLE, Excerpt, excerpt, summary

Row = tuple[str, float, float, float, float, bool]
"""What tells the answer apart, then its value, standard error, low and high, and whether it is derived."""
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


def in_notebook(release: Release) -> str:
    """The release as HTML: what is promised, and its tables with their typical errors and top rows."""
    c, look = release.certificate, look_at(release, whole=NOTEBOOK)
    facts = {
        "budget": c.strength,
        "neighbours": c.neighbours,
        "privacy unit": c.privacy_unit,
        "table": c.table,
        "release": c.release_id,
        "intervals": f"{100 * release.confidence:g} %, of the noise",
        **({"what is counted": " ".join(release.notes)} if release.notes else {}),
    }
    tables = [
        Excerpt(
            ("query", "value", "standard error", "low", "high"),
            [
                (_marked(name, derived), *_figures(v, error, low, high))
                for name, v, error, low, high, derived in one.rows
            ],
            "" if one.single else _heading(one),
            one.more,
        )
        for one in look.tables
    ]
    title = f"Release of {len(release.answers):,} private answers"
    title += f" in {len(release.tables):,} tables" if len(release.tables) > 1 else ""
    return summary(title, facts, tables=tables, more_tables=look.more)


def _marked(name: str, derived: bool) -> str:
    return f"{name} (derived)" if derived else name


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
