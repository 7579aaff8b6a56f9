"""Does the table have the declared columns, and do their types fit? Answered by the schema alone."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Literal

from batchdp.domain import Domain, Listed
from batchdp.domain.columns import Column, Dates
from batchdp.domain.names import folded
from batchdp.errors import TableError

Kind = Literal["text", "integer", "boolean", "number", "date"]

DECLARED: dict[Kind, str] = {
    "text": "text values",
    "integer": "whole numbers",
    "boolean": "true and false",
    "number": "numbers",
    "date": "dates",
}
REMEDY: dict[Kind, str] = {
    "text": "list its values as they are, or cast it to text in a view",
    "integer": "list its values as text, or cast it to an integer in a view",
    "boolean": "list its values as they are, or cast it to boolean in a view",
    "number": "declare it with values = [...], or cast it to a number in a view",
    "date": "declare it with values = [...], or cast it to a date in a view",
}
MOST_NAMES_SHOWN = 20


def kind_of(column: Column) -> Kind:
    """What a declared column holds."""
    if isinstance(column, Listed):
        return column.kind
    return "date" if isinstance(column, Dates) else "number"


def fits(dtype: Any, kind: Kind) -> bool:
    """Whether a column of this ibis type can be read as declared."""
    if dtype.is_null():
        return True
    match kind:
        case "text":
            return bool(dtype.is_string())
        case "integer" | "number":
            return bool(dtype.is_integer() or dtype.is_decimal() or dtype.is_floating())
        case "boolean":
            return bool(dtype.is_boolean())
        case "date":
            return bool(dtype.is_date() or dtype.is_timestamp())


def needed(domain: Domain, columns: Collection[str] | None) -> tuple[str, ...]:
    """The declared columns to be read (all, unless said otherwise), and the unit's, each once."""
    names = list(domain.columns if columns is None else columns)
    if domain.privacy.unit is not None:
        names.append(domain.privacy.unit)
    return tuple({folded(name): name for name in reversed(names)}.values())[::-1]


def find_name(name: str, available: Iterable[str], description: str) -> str:
    """A column as the table spells it: exactly so, or in upper or lower case."""
    names = list(available)
    if names.count(name) == 1:
        return name
    same = [other for other in names if folded(other) == folded(name)]
    if len(same) == 1:
        return same[0]
    if same:
        raise TableError(f"{description} has several columns called {name!r}: {', '.join(same)}; rename all but one")
    close = difflib.get_close_matches(folded(name), [folded(other) for other in names], n=1)
    meant = next((f" (did you mean {other!r}?)" for other in names if [folded(other)] == close), "")
    raise TableError(f"{description} has no column {name!r}{meant}; its columns are {listing(names)}")


def refuse_twins(available: Iterable[str], names: Iterable[str], description: str) -> None:
    """DuckDB renames columns that differ only in case; refuse where one of them is needed."""
    spelled = Counter(folded(name) for name in available)
    for name in names:
        if spelled[folded(name)] > 1:
            raise TableError(f"{description} has several columns {name!r} that differ only in upper and lower case")


def listing(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:MOST_NAMES_SHOWN]) or "none"
    return shown if len(names) <= MOST_NAMES_SHOWN else f"{shown} and {len(names) - MOST_NAMES_SHOWN} more"


def check_schema(schema: Any, domain: Domain, columns: Collection[str] | None, description: str) -> dict[str, str]:
    """Folded declared names with the table's spelling; refused unless every column is there and of a fitting type."""
    found = {}
    for name in needed(domain, columns):
        actual = find_name(name, schema.names, description)
        declared = domain.column(name)
        if declared is not None:
            kind = kind_of(domain.columns[declared])
            if not fits(schema[actual], kind):
                raise TableError(
                    f"column {name!r} is declared to hold {DECLARED[kind]} but {description} has it as "
                    f"{schema[actual]}; {REMEDY[kind]}"
                )
        found[folded(name)] = actual
    return found
