"""A codebook from a JSON file, as a start for a domain file. Only that file is read: references to others are refused,
and nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from batchdp.archive import read_text
from batchdp.domain.codebook_formats import csvw_columns, frictionless_columns
from batchdp.domain.columns import LONGEST, fold, plain_name
from batchdp.domain.draft import ColumnType, Described
from batchdp.domain.snowflake import snowflake_tables
from batchdp.errors import DomainError
from batchdp.text import shorten

LARGEST_FILE = 5_000_000
"""Bytes."""
MOST_LISTED = 10
EXPECTED = (
    'a Frictionless Table Schema ({"fields": [{"name": "age", "type": "integer"}]}) or CSV on the Web metadata '
    '({"tableSchema": {"columns": [{"name": "age", "datatype": "integer"}]}})'
)


@dataclass(frozen=True)
class Codebook:
    """What a codebook says about one table."""

    table: str
    """What the table is called there, as an SQL name."""
    columns: tuple[Described, ...]


def read_codebook(given: str, *, table: str | None = None) -> Codebook:
    """The codebook in a JSON file, or in a .sql file of Snowflake's DDL with PRIVACY DOMAIN.

    Args:
        given: the path; `package.json#visits` for one of several tables.
        table: what the table is called otherwise, to choose among several.
    """
    path, asked = (given, None) if "#" not in given or Path(given).exists() else given.rsplit("#", 1)
    file = Path(path).expanduser()
    try:
        tables = _ddl_tables(file) if file.suffix.lower() == ".sql" else list(_find_tables(_read_json(file)))
        name, columns = _choose_table(tables, asked, table)
        return Codebook(name, tuple(_check_distinct(columns())))
    except ValidationError as error:
        raise DomainError(f"{path}: {_explain(error)}") from None
    except ValueError as error:
        raise DomainError(f"{path}: {error}") from None
    except RecursionError:
        raise DomainError(f"{path} is nested too deeply; a codebook is {EXPECTED}") from None


def _ddl_tables(path: Path) -> list[Table]:
    """The tables of Snowflake's DDL with PRIVACY DOMAIN."""
    text = read_text(path, "the codebook ", LARGEST_FILE, "keep the table that you ask about", DomainError)
    return [(name, lambda own=columns: own) for name, columns in snowflake_tables(text)]  # type: ignore[misc]


def _read_json(path: Path) -> Any:
    content = read_text(path, "the codebook ", LARGEST_FILE, "keep the table that you ask about", DomainError)
    try:
        return json.loads(content, object_pairs_hook=_check_keys, parse_constant=_refuse_constant)
    except RecursionError:
        raise DomainError(f"{path} is nested too deeply; a codebook is {EXPECTED}") from None
    except ValueError as error:  # JSONDecodeError, and integers of thousands of digits
        raise DomainError(f"{path} is not JSON: {error}; a codebook is {EXPECTED}") from None


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which nothing is said twice: readers differ in which of the two they believe."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shorten(repr(twice))} stands twice in one object")
    return found


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


Table = tuple[str, Callable[[], list[Described]]]
"""A name, and what reads its columns."""


def _find_tables(content: Any) -> Iterator[Table]:
    """The tables that a document describes: a schema alone, a table with its schema, or several of these."""
    if not isinstance(content, dict):
        raise ValueError(f"not an object; a codebook is {EXPECTED}")
    several = next((key for key in ("resources", "tables") if isinstance(content.get(key), list)), None)
    for part in [content] if several is None else content[several]:
        if not isinstance(part, dict):
            raise ValueError(f"{several} holds something that is not an object; a codebook is {EXPECTED}")
        if "fields" in part:
            yield _name(part), partial(frictionless_columns, part)
        elif "columns" in part:
            yield _name(part), partial(csvw_columns, part, {})
        elif "schema" in part:
            yield _name(part), partial(frictionless_columns, _schema_in(part, "schema"))
        elif "tableSchema" in part:
            yield _name(part), partial(csvw_columns, _schema_in(part, "tableSchema"), part)


def _schema_in(part: dict[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(part[key], dict):
        raise ValueError(
            f"{key} is not an object but perhaps the name of another file; put its content here, or give it"
        )
    return cast(dict[str, Any], part[key])


def _name(part: dict[str, Any]) -> str:
    """An SQL name from what the table, or its file, is called."""
    called = next((part[key] for key in ("name", "path", "url") if isinstance(part.get(key), str)), "")
    return plain_name(re.split(r"[/\\]", called)[-1].split(".")[0][:LONGEST])


def _choose_table(tables: list[Table], asked: str | None, table: str | None) -> Table:
    if not tables:
        raise ValueError(f"no columns are described; a codebook is {EXPECTED}")
    named = [one for one in tables if fold(one[0]) == fold(plain_name(asked or table or ""))]
    if len(named) == 1:
        return named[0]
    if len(tables) == 1 and asked is None:
        return tables[0]
    names = ", ".join(name for name, _ in tables[:MOST_LISTED])
    raise ValueError(f"describes the tables {names}; name one of them, like --codebook codebook.json#{tables[0][0]}")


def _check_distinct(columns: list[Described]) -> list[Described]:
    seen: set[str] = set()
    for column in columns:
        if fold(column.name) in seen:
            raise ValueError(f"describes {shorten(repr(column.name))} twice, upper or lower case; keep one of them")
        seen.add(fold(column.name))
    return columns


def _explain(error: ValidationError) -> str:
    """The first complaint, and its place."""
    first = error.errors(include_url=False)[0]
    place = ".".join(shorten(part) for part in first["loc"] if not str(part).startswith("function-"))
    more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more)"
    return f"{place or 'file'}: {first['msg'].removeprefix('Value error, ')}{more}"


# ── A table's own columns, with what a codebook says about them.

WORDS: dict[ColumnType, str] = {
    "text": "texts",
    "number": "numbers",
    "whole": "whole numbers",
    "date": "days",
    "boolean": "true and false",
}


def join_codebook(columns: Iterable[Described], codebook: Codebook) -> list[Described]:
    """The columns under their own names: the table decides which there are, the codebook what they hold."""
    known = {fold(other): column for column in codebook.columns for other in column.also}
    known |= {fold(column.name): column for column in codebook.columns}
    return [_join_column(column, known.get(fold(column.name))) for column in columns]


def _join_column(column: Described, entry: Described | None) -> Described:
    if entry is None or column.kind == "other":
        return column
    silent = not entry.values and entry.low is None and entry.high is None
    if silent and entry.kind in ("unknown", "other", column.kind):  # what the schema says is kept
        return replace(column, missing=entry.missing, notes=entry.notes, also=entry.also, documented=True)
    found = replace(entry, name=column.name, step=column.step)
    if column.kind == "boolean" and len(entry.values) == 2:
        return replace(found, kind=column.kind, values=())
    numeric = {column.kind, entry.kind} <= {"number", "whole"}
    if column.kind == "unknown" or column.kind == entry.kind or numeric:
        return found
    clash = f"EDIT: the codebook has {WORDS[entry.kind]} here, the table {WORDS[column.kind]}."
    return replace(found, notes=(*found.notes, clash))
