"""The tables of a batch: one a statement, found by the queries' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

GROUPED = re.compile(r"(?P<name>.+?)\[(?P<groups>[^=\]]+=.*)\]", re.DOTALL)
"""What plans call a query of a statement with GROUP BY: name[column=group, …]."""
ALL = "all"
"""What a name says of a key that a row adds up over, where SQL engines have NULL."""
QUERY = "query"
"""The group column of queries whose names say no more."""
SINGLE = "answers"
"""What single answers are called together."""


def in_name(title: str) -> str:
    """A group's title as names have it: one that would look like a row that adds up is quoted."""
    return f"'{title}'" if title.strip("'") == ALL else title


def in_column(text: str) -> str | None:
    """What a name says of a group as tables have it: the title, or nothing where the row adds up over the key."""
    if text == ALL:
        return None
    return text[1:-1] if text.startswith("'") and text.strip("'") == ALL else text


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

    @property
    def labels(self) -> list[str]:
        """What tells the answers of this table apart, a text each."""
        return [", ".join(own) or self.name for own in self.groups]


def statements_of(names: Sequence[str], *, alone: bool = False) -> list[Statement]:
    """One for every name before the groups; queries that are none of them grouped are one table together.

    Args:
        names: of the queries.
        alone: a single answer is a table of its own, also where nothing is grouped.
    """
    return _gathered(names, alone=alone or len(names) == 1 or any(GROUPED.fullmatch(name) for name in names))


def tables_of(names: Sequence[str]) -> list[Statement]:
    """The same with all single answers as one table, the first: what people look at."""
    found = _gathered(names, alone=False)
    return sorted(found, key=lambda one: (one.name, one.columns) != (SINGLE, (QUERY,)))


def _gathered(names: Sequence[str], *, alone: bool) -> list[Statement]:
    found: dict[tuple[str, tuple[str, ...]], list[tuple[int, tuple[str, ...]]]] = {}
    for q, name in enumerate(names):
        own, columns, groups = _read(name, alone=alone)
        found.setdefault((own, columns), []).append((q, groups))
    return [
        Statement(name, columns, tuple(groups for _, groups in own), tuple(q for q, _ in own))
        for (name, columns), own in found.items()
    ]


def _read(name: str, *, alone: bool) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    grouped = GROUPED.fullmatch(name)
    if grouped is None:
        return (name, (), ()) if alone else (SINGLE, (QUERY,), (name,))
    # A group's own text may hold ", ": only what looks like the beginning of a column's group parts them.
    parts = re.split(r", (?=\w+=)", grouped["groups"])
    pairs = [part.partition("=") for part in parts]
    columns = tuple(column for column, _, _ in pairs)
    if len(set(columns)) != len(columns):
        return grouped["name"], (QUERY,), (name,)
    return grouped["name"], columns, tuple(group for _, _, group in pairs)
