"""The names and types of a table's columns, to draft a domain from. No record is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from batchdp.domain import as_domain
from batchdp.domain.columns import check_name, plain_name
from batchdp.domain.draft import ColumnType, Described
from batchdp.engines.columns import list_names
from batchdp.engines.files import find_files, read_header, read_parquet_schema
from batchdp.engines.opening import is_database, open_database_table, split_address
from batchdp.errors import TableError

Schema = list[Described]
"""Names need not be distinct in a CSV file."""


NAME = re.compile(r"[^\W\d].*", re.DOTALL)
"""What the name of a column looks like: it begins with a letter, or a line below."""
VALUES = frozenset(["true", "false", "t", "f", "yes", "no", "y", "n", "na", "n/a", "nan", "nat", "null", "none", "inf"])
"""What begins like a name and hardly is one."""


def read_schema(table: str, *, has_header: bool = False) -> tuple[str, Schema]:
    """A name for the table, and the name and type of every column; CSV files have names only.

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
            if not has_header and not _are_names(titles):
                raise TableError(
                    f"the first line of {files[0]} does not look like names of columns, so it may be a record, which "
                    "must not be written down; add a line with names, or say --header if it is one"
                )
            return name, [Described(column, "unknown") for column in titles]
        types = zip((schema := read_parquet_schema(files[0])).names, schema.types, strict=True)
        return name, [_describe(column, _ibis_type(dtype)) for column, dtype in types]
    name = _name_table(table)
    opened = open_database_table(table, as_domain({"table": name, "columns": {"any": {"values": [True]}}}))
    try:
        return name, [_describe(column, dtype) for column, dtype in opened.table.schema().items()]
    finally:
        opened.engine.close()


def is_csv(table: str) -> bool:
    """Whether this names one CSV file, or a folder of them."""
    return not is_database(table) and find_files(Path(table).expanduser())[1] == "CSV"


def _are_names(titles: list[str]) -> bool:
    words = [title.strip().casefold() for title in titles]
    return len(set(words)) == len(words) and all(NAME.fullmatch(word) and word not in VALUES for word in words)


def _ibis_type(dtype: Any) -> Any:
    import ibis  # type: ignore[import-untyped]

    try:
        return ibis.expr.datatypes.DataType.from_pyarrow(dtype)
    except Exception:  # types that ibis does not know
        return ibis.expr.datatypes.unknown


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
    from batchdp.engines.source import shield

    if not path.is_file():
        raise TableError(f"there is no DuckDB file {path}")

    def names() -> list[str]:
        with own_database(path) as connection:
            return [row[2] for row in connection.execute(TABLES).fetchall()]

    found = shield(names, f"opening the DuckDB file {path}")
    if len(found) != 1:
        raise TableError(f"{path} holds the tables {list_names(found)}; name one of them, like duckdb://{shown}#visits")
    return found[0]


def _describe(name: str, dtype: Any) -> Described:
    kinds: dict[ColumnType, bool] = {
        "boolean": dtype.is_boolean(),
        "whole": dtype.is_integer(),
        "number": dtype.is_numeric(),
        "date": dtype.is_date() or dtype.is_timestamp(),
        "text": dtype.is_string(),
    }
    digits = dtype.scale if dtype.is_decimal() else None
    kind: ColumnType = next((kind for kind, fits in kinds.items() if fits), "other")
    return Described(name, kind, step=10.0**-digits if digits else None)
