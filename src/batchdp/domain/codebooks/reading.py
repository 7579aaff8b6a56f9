"""A codebook from a JSON file. Only that file is read: references to others are refused, and nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from batchdp.domain.codebooks import csvw, frictionless
from batchdp.domain.codebooks.parts import shown
from batchdp.domain.described import Described
from batchdp.domain.names import LONGEST, folded, plain_name
from batchdp.errors import DomainError
from batchdp.regular import opened

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
    """The codebook in a JSON file.

    Args:
        given: the path; `package.json#visits` for one of several tables.
        table: what the table is called otherwise, to choose among several.
    """
    path, asked = (given, None) if "#" not in given or Path(given).exists() else given.rsplit("#", 1)
    content = _content(Path(path).expanduser())
    try:
        name, columns = _chosen(list(_tables(content)), asked, table)
        return Codebook(name, tuple(_distinct(columns())))
    except ValidationError as error:
        raise DomainError(f"{path}: {_explained(error)}") from None
    except ValueError as error:
        raise DomainError(f"{path}: {error}") from None
    except RecursionError:
        raise DomainError(f"{path} is nested too deeply; a codebook is {EXPECTED}") from None


def _content(path: Path) -> Any:
    try:
        with opened(path) as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise DomainError(f"cannot read the codebook {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > LARGEST_FILE:
        raise DomainError(f"{path} is larger than {LARGEST_FILE // 10**6} MB; keep the table that you ask about")
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_refused)
    except UnicodeDecodeError as error:
        raise DomainError(f"{path} is not a text in UTF-8 ({error.reason} at byte {error.start})") from error
    except RecursionError:
        raise DomainError(f"{path} is nested too deeply; a codebook is {EXPECTED}") from None
    except ValueError as error:  # JSONDecodeError, and integers of thousands of digits
        raise DomainError(f"{path} is not JSON: {error}; a codebook is {EXPECTED}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which nothing is said twice: readers differ in which of the two they believe."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(repr(twice))} stands twice in one object")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


Table = tuple[str, Callable[[], list[Described]]]
"""A name, and what reads its columns."""


def _tables(content: Any) -> Iterator[Table]:
    """The tables that a document describes: a schema alone, a table with its schema, or several of these."""
    if not isinstance(content, dict):
        raise ValueError(f"not an object; a codebook is {EXPECTED}")
    several = next((key for key in ("resources", "tables") if isinstance(content.get(key), list)), None)
    for part in [content] if several is None else content[several]:
        if not isinstance(part, dict):
            raise ValueError(f"{several} holds something that is no object; a codebook is {EXPECTED}")
        if "fields" in part:
            yield _name(part), partial(frictionless.columns, part)
        elif "columns" in part:
            yield _name(part), partial(csvw.columns, part, {})
        elif "schema" in part:
            yield _name(part), partial(frictionless.columns, _within(part, "schema"))
        elif "tableSchema" in part:
            yield _name(part), partial(csvw.columns, _within(part, "tableSchema"), part)


def _within(part: dict[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(part[key], dict):
        raise ValueError(
            f"{key} is not an object but perhaps the name of another file; put its content here, or give it"
        )
    return cast(dict[str, Any], part[key])


def _name(part: dict[str, Any]) -> str:
    """An SQL name from what the table, or its file, is called."""
    called = next((part[key] for key in ("name", "path", "url") if isinstance(part.get(key), str)), "")
    return plain_name(re.split(r"[/\\]", called)[-1].split(".")[0][:LONGEST])


def _chosen(tables: list[Table], asked: str | None, table: str | None) -> Table:
    if not tables:
        raise ValueError(f"no columns are described; a codebook is {EXPECTED}")
    named = [one for one in tables if folded(one[0]) == folded(plain_name(asked or table or ""))]
    if len(named) == 1:
        return named[0]
    if len(tables) == 1 and asked is None:
        return tables[0]
    names = ", ".join(name for name, _ in tables[:MOST_LISTED])
    raise ValueError(f"describes the tables {names}; name one of them, like --codebook codebook.json#{tables[0][0]}")


def _distinct(columns: list[Described]) -> list[Described]:
    seen: dict[str, str] = {}
    for column in columns:
        if folded(column.name) in seen:
            raise ValueError(f"describes {shown(repr(column.name))} twice, upper or lower case; keep one of them")
        seen[folded(column.name)] = column.name
    return columns


def _explained(error: ValidationError) -> str:
    """The first complaint, and its place."""
    first = error.errors(include_url=False)[0]
    place = ".".join(shown(part) for part in first["loc"] if not str(part).startswith("function-"))
    more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more)"
    return f"{place or 'file'}: {first['msg'].removeprefix('Value error, ')}{more}"
