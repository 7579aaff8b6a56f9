"""What a schema says of a table's columns, to draft a domain from. No record is read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.domain import as_domain
from batchdp.domain.columns import check_name, plain_name
from batchdp.domain.draft import ColumnType, Described
from batchdp.engines.columns import list_names
from batchdp.engines.constraints import describe_said
from batchdp.engines.files import find_files, read_header, read_parquet_schema
from batchdp.engines.frames import frame_types, ibis_type
from batchdp.engines.opening import FRAMES, is_database, open_database_table, split_address
from batchdp.engines.source import Opened, Said, shield
from batchdp.errors import TableError

Schema = list[Described]
"""Names need not be distinct in a CSV file."""


NAME = re.compile(r"[^\W\d].*", re.DOTALL)
"""What the name of a column looks like: it begins with a letter, or a line below."""
VALUES = frozenset(["true", "false", "t", "f", "yes", "no", "y", "n", "na", "n/a", "nan", "nat", "null", "none", "inf"])
"""What begins like a name and hardly is one."""


def read_schema(table: str, *, has_header: bool = False) -> tuple[str, Schema]:
    """A name for the table, and of every column the name, type and constraints; CSV files have names only.

    Args:
        table: a file or folder, or the address of a database.
        has_header: whether somebody says that the first line of a CSV file names its columns. Otherwise a line with a
            number, a date, nothing, or the same twice is refused: it may be a record, which nobody may write down.
    """
    if not is_database(table):
        path = Path(table).expanduser()
        files, kind = find_files(path)
        name = plain_name(path.resolve().name.split(".")[0])
        if kind == "CSV":
            titles, _ = read_header(files[0])
            _check_apart(titles, files[0])
            if not has_header and not _are_names(titles):
                raise TableError(
                    f"the first line of {files[0]} does not look like names of columns, so it may be a record, which "
                    "must not be written down; add a line with names, or say --header if it is one"
                )
            return name, [Described(column, "unknown") for column in titles]
        types = zip((schema := read_parquet_schema(files[0])).names, schema.types, strict=True)
        return name, [_describe(column, ibis_type(dtype)) for column, dtype in types]
    name = _name_table(table)
    opened = open_database_table(table, as_domain({"table": name, "columns": {"any": {"values": [True]}}}))
    try:
        return name, _describe_opened(opened)
    finally:
        opened.engine.close()


def describe_table(table: Any, name: str, *, has_header: bool = False) -> Schema:
    """The names and types of the columns of whatever `answer` takes as a table; `has_header` as in `read_schema`.

    pandas guesses a column's type from all of its values, so that one record can decide it: what it has guessed is as
    unknown as in a CSV file.
    """
    if isinstance(table, os.PathLike) or (isinstance(table, str) and not is_database(table)):
        return read_schema(str(table), has_header=has_header)[1]
    library = type(table).__module__.partition(".")[0].lstrip("_")
    if {kind.__name__ for kind in type(table).__mro__} & FRAMES.get(library, set()):
        types = shield(lambda: frame_types(table, library), f"looking at the {library} frame")
        return [Described(column, "unknown") if dtype is None else _describe(column, dtype) for column, dtype in types]
    opened = open_database_table(table, as_domain({"table": name, "columns": {"any": {"values": [True]}}}))
    try:
        return _describe_opened(opened)
    finally:
        opened.engine.close()


def name_table(table: Any) -> str:
    """What a table is called where nobody says: as its file or its place in a database; records, in memory."""
    if not isinstance(table, str | os.PathLike):
        return "records"
    if is_database(table):
        return _name_table(str(table))
    return plain_name(Path(table).expanduser().resolve().name.split(".")[0])


def is_csv(table: str) -> bool:
    """Whether this names one CSV file, or a folder of them."""
    return not is_database(table) and find_files(Path(table).expanduser())[1] == "CSV"


def _check_apart(titles: list[str], file: Path) -> None:
    """Refuse a header that says the same twice; it is not shown, since it may be a record."""
    words = [title.strip().casefold() for title in titles]
    for word in dict.fromkeys(filter(None, words)):
        places = [place for place, other in enumerate(words, start=1) if other == word]
        if len(places) > 1:
            raise TableError(
                f"the first line of {file} has the same text in columns {list_names(places)} (upper or lower case), so "
                "it may be a record, which must not be written down; add a line with names, or rename all of these but "
                "one"
            )


def _are_names(titles: list[str]) -> bool:
    words = [title.strip().casefold() for title in titles]
    return all(NAME.fullmatch(word) and word not in VALUES for word in words)


def _name_table(address: str) -> str:
    """The table that a database's address names, or the only one of a DuckDB file."""
    scheme, separator, rest = address.rpartition("://")
    table = split_address(rest)[1] if separator else None
    if table is not None:
        name = table.rpartition(".")[2]
    elif scheme.lower() in ("", "duckdb"):
        name = _find_only_table(Path(rest).expanduser(), rest)
    else:
        raise TableError(f"{scheme}://… does not say which table; add it, like {scheme}://user@host/database#visits")
    try:
        return check_name(name)
    except ValueError as error:
        raise TableError(f"the name of the table cannot be declared: {error}; make a view with another name") from None


def _find_only_table(path: Path, shown: str) -> str:
    from batchdp.engines.duck import TABLES, own_database

    if not path.is_file():
        raise TableError(f"there is no DuckDB file {path}")

    def names() -> list[str]:
        with own_database(path) as connection:
            return [row[2] for row in connection.execute(TABLES).fetchall()]

    found = shield(names, f"opening the DuckDB file {path}")
    if len(found) != 1:
        raise TableError(f"{path} holds the tables {list_names(found)}; name one of them, like duckdb://{shown}#visits")
    return found[0]


def _describe_opened(opened: Opened) -> Schema:
    """The columns of a database's table, with what its schema says about their values."""
    types, found = opened.table.schema(), opened.table.op().find(ibis.expr.operations.UnboundTable)
    said = Said()
    if len(found) == 1:
        place = found[0].namespace
        said = shield(
            lambda: opened.engine.said(place.catalog, place.database, found[0].name),
            f"reading the schema of {opened.description}",
        )
    beside = {unit.get_name() for unit in opened.units.values()}  # which the table itself does not have
    columns = [_describe(name, dtype, said.digits.get(name)) for name, dtype in types.items() if name not in beside]
    return describe_said(columns, said, opened.engine.dialect)


def _describe(name: str, dtype: Any, digits: int | None = None) -> Described:
    """A column by its type; `digits` are behind the point of a decimal."""
    digits = dtype.scale if digits is None and dtype.is_decimal() else digits
    kinds: dict[ColumnType, bool] = {
        "unknown": dtype.is_null(),  # which a library makes of a column that happens to hold nothing
        "boolean": dtype.is_boolean(),
        "whole": dtype.is_integer() or (digits is not None and digits <= 0),
        "number": dtype.is_numeric(),
        "date": dtype.is_date() or dtype.is_timestamp(),
        "text": dtype.is_string(),
    }
    kind: ColumnType = next((kind for kind, fits in kinds.items() if fits), "other")
    return Described(name, kind, step=10.0**-digits if digits is not None and digits > 0 else None)
