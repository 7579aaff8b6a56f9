"""A release as people look at it first: its tables with their typical errors, and the top rows of some."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from batchdp.excerpt import NOTEBOOK, WHOLE, excerpt, full_title
from batchdp.markup import Excerpt, summary
from batchdp.queries.statements import QUERY, Statement, tables_of
from batchdp.release.components.tables import TableRelease, columns_of
from batchdp.release.records import Release

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


def look_at(release: Release | TableRelease, *, everything: bool = False, whole: int = WHOLE) -> Look:
    """The excerpt of a release that fits on a screen; or everything, made table by table as it is read.

    Args:
        release: whose tables.
        everything: every row of every table.
        whole: answers in all of a release that is shown whole.
    """
    if isinstance(release, TableRelease):
        sizes = [round(size) for size in release.workload.table_sizes().tolist()]
        see: Callable[[int, int], Seen] = lambda t, rows: _table(release, t, rows)  # noqa: E731
    else:
        found, see = _seeing(release)
        sizes = [len(one.answers) for one in found]
    shown = sizes if everything else excerpt(sizes, whole)
    made = (see(t, rows) for t, rows in enumerate(shown))
    return Look(made if everything else list(made), len(sizes) - len(shown))


def in_notebook(release: Release | TableRelease) -> str:
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


def title_of(release: TableRelease, table: int) -> str:
    """A table's title: the name that it was given, else those of its columns."""
    own = release.tables[table]
    columns = [release.column_names[i] for i in own.columns]
    return full_title(own.name, columns) if release.workload.names is not None else " × ".join(columns) or own.name


def _seeing(release: Release) -> tuple[list[Statement], Callable[[int, int], Seen]]:
    """The tables of a release, and how to see so many rows of one."""
    found = tables_of(release.shown_names)
    if release.asked:
        return found, lambda t, rows: _shown(release, found[t], rows)
    errors = release.law.standard_errors
    return found, lambda t, rows: _statement(release, found[t], errors, rows)


def _marked(name: str, derived: bool) -> str:
    return f"{name} (derived)" if derived else name


def _figures(*figures: float) -> tuple[str, ...]:
    """Value, standard error, low and high as texts; words where there is no value."""
    value, error, low, high = figures
    if math.isnan(value):
        return NOT_DETERMINED, "", "", ""
    return f"{value:,.6g}", "" if math.isnan(error) else f"{error:,.3g}", f"{low:,.6g}", f"{high:,.6g}"


def _heading(one: Seen) -> str:
    error = "" if math.isnan(one.standard_error) else f", standard error {one.standard_error:,.3g}"
    return f"{one.title} ({one.answers:,}){', derived' * one.derived}{error}"


def typical_error(errors: NDArray[np.float64]) -> float:
    """The median of those that there are."""
    known = errors[~np.isnan(errors)]
    return float(np.median(known)) if known.size else math.nan


def _shown(release: Release, one: Statement, rows: int) -> Seen:
    """A table of a release with derived answers, whose figures are all computed already."""
    kept, shown = np.array(one.answers), release.shown
    single = one.columns == (QUERY,)
    top = _top(np.nan_to_num(shown.values[kept], nan=-np.inf), rows, as_they_come=single)
    labels, errors = one.labels, shown.standard_errors[kept]
    figures = (shown.values, shown.standard_errors, shown.low, shown.high, shown.derived)
    found = zip([labels[k] for k in top], *(figure[kept[top]].tolist() for figure in figures), strict=True)
    title, derived = full_title(one.name, one.columns), bool(shown.derived[kept].all())
    return Seen(title, len(kept), typical_error(errors), list(found), len(kept) - len(top), single, derived)


def _statement(release: Release, one: Statement, errors: NDArray[np.float64], rows: int) -> Seen:
    kept = np.array(one.answers)
    single = one.columns == (QUERY,)
    top = _top(release.values[kept], rows, as_they_come=single)
    law = replace(release.law, reconstruct=release.law.reconstruct[kept[top]])
    values, labels = release.values[kept[top]], one.labels
    half = law.half_widths(release.confidence)
    found = _rows([labels[k] for k in top], values, errors[kept[top]], values - half, values + half)
    typical = float(np.median(errors[kept]))
    return Seen(full_title(one.name, one.columns), len(kept), typical, list(found), len(kept) - len(top), single)


def _table(release: TableRelease, t: int, rows: int) -> Seen:
    typical = float(np.median(release.standard_errors(t)))
    size = release.tables[t].queries
    return Seen(title_of(release, t), size, typical, _table_rows(release, t, rows) if rows else (), size - rows)


def _table_rows(release: TableRelease, t: int, rows: int) -> Iterator[Row]:
    *groups, value, error, low, high = columns_of(release, t).values()
    top = _top(value, rows)
    labels = [", ".join(str(group[k]) for group in groups) or title_of(release, t) for k in top]
    yield from _rows(labels, value[top], error[top], low[top], high[top])


def _top(values: NDArray[np.float64], rows: int, *, as_they_come: bool = False) -> NDArray[np.int64]:
    """Which answers are shown: all, or the largest of them, largest first."""
    if rows >= len(values) or as_they_come:
        return np.arange(min(rows, len(values)))
    largest = np.argpartition(-values, rows)[:rows]
    return np.asarray(largest[np.argsort(-values[largest], kind="stable")])


def _rows(labels: Sequence[str], *figures: NDArray[np.float64]) -> Iterator[Row]:
    for label, *row in zip(labels, *(part.tolist() for part in figures), strict=True):
        yield label, *row, False
