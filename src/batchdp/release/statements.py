"""The tables of an ordinary release: one a statement, found by the queries' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import ReleaseError
from batchdp.queries.statements import QUERY, Statement, in_column, statements_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.records import Release

NAMES_SHOWN = 5
MADE = ("value", "standard_error", "low", "high")
"""The columns that every table has after its group columns."""


def headings(columns: Sequence[str]) -> list[str]:
    """What a table calls its group columns: their names, with a "_" more where a name is taken."""
    found: list[str] = []
    for column in columns:
        name = column
        while name in MADE or name in found or (name != column and name in columns):
            name += "_"
        found.append(name)
    return found


def statements(release: Release) -> Sequence[Statement]:
    """One for every name before the groups; queries that are none of them grouped are one table together."""
    return statements_of(release.shown_names)


def statement_columns(release: Release, one: Statement) -> dict[str, NDArray[Any]]:
    """A statement's answers as columns: groups as texts, None in rows that add up, value, standard_error, low, high."""
    kept = list(one.answers)
    shown = release.shown
    figures = zip(MADE, (shown.values, shown.standard_errors, shown.low, shown.high), strict=True)
    groups = {
        column: np.array([_group(one, own[axis]) for own in one.groups], dtype=object)
        for axis, column in enumerate(headings(one.columns))
    }
    return {**groups, **{name: figure[kept] for name, figure in figures}}


def _group(one: Statement, text: str) -> str | None:
    return text if one.columns == (QUERY,) else in_column(text)


def statement_of(release: Release, columns: Sequence[str], name: str | None) -> Statement:
    """The one statement with these group columns or this name."""
    known = statements(release)
    fitting = [
        one
        for one in known
        if (name is None or one.name == name)
        and (set(one.columns) == set(columns) or (name is not None and not columns))
    ]
    asked = ", ".join(map(repr, columns)) + (f", name={name!r}" if name is not None else "") or "none"
    if len(fitting) != 1:
        names = ", ".join(repr(one.name) for one in (fitting or known)[:NAMES_SHOWN])
        problem = "no table has" if not fitting else f"{len(fitting)} tables have"
        raise ReleaseError(f"{problem} columns {asked}; give name=, for instance {names}")
    return fitting[0]


def statement_frame(release: Release, columns: Sequence[str], name: str | None) -> pd.DataFrame:
    """The same as a frame."""
    import pandas as pd

    one = statement_of(release, columns, name)
    frame = pd.DataFrame(statement_columns(release, one))
    shown = dict(zip(one.columns, headings(one.columns), strict=True))
    return frame[[*(shown[column] for column in columns or one.columns), *MADE]]
