"""The tables of an ordinary release: one a statement, found by the queries' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import ReleaseError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.records import Release

GROUPED = re.compile(r"(?P<name>.+?)\[(?P<groups>[^=\]]+=.*)\]", re.DOTALL)
"""What plans call a query of a statement with GROUP BY: name[column=group, …]."""
NAMES_SHOWN = 5
MADE = ("value", "standard_error", "low", "high")
"""The columns that every table has after its group columns."""
QUERY = "query"
"""The group column of queries whose names say no more."""


@dataclass(frozen=True)
class Statement:
    """Some of the answers, by position: those of one statement."""

    name: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    """For every answer the text of its group in each column."""
    answers: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis: the answers as they come."""
        return (len(self.answers),) if self.columns else ()


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
    found: dict[tuple[str, tuple[str, ...]], list[tuple[int, tuple[str, ...]]]] = {}
    grouped = any(GROUPED.fullmatch(name) for name in release.names) or len(release.names) == 1
    for q, name in enumerate(release.names):
        own, columns, groups = _read(name, alone=grouped)
        found.setdefault((own, columns), []).append((q, groups))
    return [
        Statement(name, columns, tuple(groups for _, groups in own), tuple(q for q, _ in own))
        for (name, columns), own in found.items()
    ]


def _read(name: str, *, alone: bool) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    grouped = GROUPED.fullmatch(name)
    if grouped is None:
        return (name, (), ()) if alone else ("answers", (QUERY,), (name,))
    # A group's own text may hold ", ": only what looks like the beginning of a column's group parts them.
    parts = re.split(r", (?=\w+=)", grouped["groups"])
    pairs = [part.partition("=") for part in parts]
    columns = tuple(column for column, _, _ in pairs)
    if len(set(columns)) != len(columns):
        return grouped["name"], (QUERY,), (name,)
    return grouped["name"], columns, tuple(group for _, _, group in pairs)


def statement_columns(release: Release, one: Statement) -> dict[str, NDArray[Any]]:
    """A statement's answers as columns: groups as texts, value, standard_error, low, high."""
    kept = list(one.answers)
    values = release.values[kept]
    errors = release.law.standard_errors[kept]
    half = release.law.half_widths(release.confidence)[kept]
    groups = {
        column: np.array([own[axis] for own in one.groups], dtype=object)
        for axis, column in enumerate(headings(one.columns))
    }
    return {**groups, "value": values, "standard_error": errors, "low": values - half, "high": values + half}


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
