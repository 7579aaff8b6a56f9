"""Does the table have the declared columns, and do their types fit? Answered by the schema alone."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any, Literal, NoReturn

from batchdp.domain import Domain, Listed
from batchdp.domain.columns import Column, Dates
from batchdp.domain.names import folded
from batchdp.errors import TableError

Kind = Literal["text", "integer", "boolean", "number", "date"]

Wanted = dict[str | None, str]
"""Declared columns, and under None the privacy unit, with a name for each: a unit may be a column as well."""
DECLARED: dict[Kind, str] = {
    "text": "text values",
    "integer": "whole numbers",
    "boolean": "true and false",
    "number": "numbers",
    "date": "dates",
}
REMEDY: dict[Kind, str] = {
    "text": "list its values as they are, or make it a text in a view",
    "integer": "list its values as text, or give its whole numbers in a view, with TRY_CAST(… AS BIGINT)",
    "boolean": "list its values as they are, or give its truths in a view, with TRY_CAST(… AS BOOLEAN)",
    "number": "declare it with values = [...], or give its numbers in a view, with TRY_CAST(… AS DOUBLE)",
    "date": "declare it with values = [...], or give its days in a view, with TRY_CAST(… AS DATE)",
}
"""TRY, because a cast that fails on one value would let one record decide whether anything is counted."""
MOST_NAMES_SHOWN = 20


def kind_of(column: Column) -> Kind:
    """What a declared column holds."""
    if isinstance(column, Listed):
        return column.kind
    return "date" if isinstance(column, Dates) else "number"


def fits(dtype: Any, kind: Kind, parses: bool) -> bool:
    """Whether a column of this ibis type can be read as declared.

    Where the engine `parses`, texts, numbers, truths and days are read as whatever is declared: their types may have
    been guessed from the values, so a refusal would tell about these.
    """
    number = dtype.is_integer() or dtype.is_decimal() or dtype.is_floating()
    if dtype.is_null():
        return True
    if parses:
        return bool(number or dtype.is_string() or dtype.is_boolean() or dtype.is_date() or dtype.is_timestamp())
    match kind:
        case "text":
            return bool(dtype.is_string())
        case "integer" | "number":
            return bool(number)
        case "boolean":
            return bool(dtype.is_boolean())
        case "date":
            return bool(dtype.is_date() or dtype.is_timestamp())


def wanted(domain: Domain, columns: Collection[str] | None) -> Wanted:
    """The declared columns to be read (all, unless said otherwise), and under None the privacy unit's."""
    names: Wanted = {name: name for name in (domain.columns if columns is None else columns)}
    return names if domain.privacy.unit is None else {**names, None: domain.privacy.unit}


def find_name(name: str, available: Iterable[str], description: str, *, secret: bool = False) -> str:
    """A column as the table spells it: exactly so, or in upper or lower case.

    Names are `secret` where they may be values: the first line of a CSV file without a header is a record.
    """
    names = list(available)
    if names.count(name) == 1:
        return name
    same = [other for other in names if folded(other) == folded(name)]
    if len(same) == 1:
        return same[0]
    if secret:
        raise TableError(
            f"{description} has {'several columns' if same else 'no column'} {name!r} among its {len(names):,}; its "
            "first line must name each column once, and is not shown, since without a header it would be a record"
        )
    if same:
        raise TableError(f"{description} has several columns called {name!r}: {', '.join(same)}; rename all but one")
    close = difflib.get_close_matches(folded(name), [folded(other) for other in names], n=1)
    meant = next((f" (did you mean {other!r}?)" for other in names if [folded(other)] == close), "")
    raise TableError(f"{description} has no column {name!r}{meant}; its columns are {listing(names)}")


def listing(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:MOST_NAMES_SHOWN]) or "none"
    return shown if len(names) <= MOST_NAMES_SHOWN else f"{shown} and {len(names) - MOST_NAMES_SHOWN} more"


def declared_kind(domain: Domain, name: str) -> Kind:
    """What the domain says that a column holds."""
    declared = domain.column(name)
    assert declared is not None
    return kind_of(domain.columns[declared])


def refuse_type(name: str, kind: Kind | None, dtype: Any, description: str) -> NoReturn:
    """A column, or without a kind the privacy unit, that cannot be read because of its type."""
    if kind is None:
        raise TableError(
            f"the privacy unit {name!r} is {dtype} in {description}, by which nobody can be told apart; "
            "give a view in which it is a text or a whole number"
        )
    raise TableError(
        f"column {name!r} is declared to hold {DECLARED[kind]} but {description} has it as {dtype}; {REMEDY[kind]}"
    )


def check_schema(
    schema: Any, domain: Domain, columns: Collection[str] | None, description: str, *, parses: bool
) -> Wanted:
    """What is wanted, in the table's spelling; refused unless every column is there and of a fitting type."""
    found = {}
    for key, name in wanted(domain, columns).items():
        found[key] = actual = find_name(name, schema.names, description)
        if key is not None and not fits(schema[actual], kind := declared_kind(domain, key), parses):
            refuse_type(actual, kind, schema[actual], description)
    return found
