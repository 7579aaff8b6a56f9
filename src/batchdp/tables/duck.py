"""DuckDB: a database of our own for files and frames, a database file, or the user's connection or relation."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis  # type: ignore[import-untyped]
from ibis.backends.sql.datatypes import DuckDBType  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.domain.names import folded
from batchdp.errors import TableError
from batchdp.tables.compiling import Query, compiled
from batchdp.tables.kinds import listing
from batchdp.tables.shield import shielded
from batchdp.tables.source import UNKNOWN_PROGRESS, Columns, as_columns

BATCH = 1_000_000
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "temp_directory": "",  # records stay in memory
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "preserve_insertion_order": False,
}
LOCKS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_progress_bar = true",
    "SET enable_progress_bar_print = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
PATTERN = set("*?[")
"""Characters in a path that DuckDB takes for a pattern."""
TABLES = """
    SELECT database_name, schema_name, table_name,
           CASE WHEN database_name = 'temp' THEN 0
                WHEN database_name = current_database() AND schema_name = current_schema() THEN 1
                WHEN database_name = current_database() THEN 2 ELSE 3 END AS distance
    FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal
          UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal)
"""


class DuckEngine:
    """A DuckDB connection. What is changed there, `undo` changes back."""

    dialect = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, undo: ExitStack) -> None:
        self._connection = connection
        self._undo = undo

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        with _interruptible(self._connection.interrupt):
            yield from map(as_columns, _reader(self._connection.execute(compiled(query, self.dialect))))

    def progress(self) -> float:
        """DuckDB counts in per cent and says −1 where it does not know."""
        share = self._connection.query_progress() / 100
        return share if 0 <= share <= 1 else UNKNOWN_PROGRESS

    def close(self) -> None:
        """Close our own connection, or put the user's settings back."""
        self._undo.close()


class RelationEngine:
    """A relation, which alone knows its connection."""

    dialect = "duckdb"

    def __init__(self, relation: duckdb.DuckDBPyRelation, name: str) -> None:
        self._relation = relation
        self._name = name

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch; the view that DuckDB makes for it is dropped."""
        try:
            with _interruptible(lambda: None):  # only the connection could be told to stop
                yield from map(as_columns, _reader(self._relation.query(self._name, compiled(query, self.dialect))))
        finally:
            self._relation.query(self._name, f"DROP VIEW {self._name}")

    def progress(self) -> float:
        """Only the connection would know."""
        return UNKNOWN_PROGRESS

    def close(self) -> None:
        """Nothing is left behind."""


def own_database(path: Path | None = None) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, or a file opened for reading only; nothing is ever written to disk or fetched."""
    if path is None:
        return duckdb.connect(":memory:", config=SETTINGS)
    return duckdb.connect(str(path), read_only=True, config=SETTINGS)


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[Path] = ()) -> None:
    """From here on, the database reads no other files, and no setting can be changed."""
    connection.execute("SET allowed_paths = ?", [[str(file) for file in files]])
    # The folders of names that could be patterns have to be listed.
    folders = {str(path.parent) for file in files for path in (file, *file.parents) if set(path.name) & PATTERN}
    connection.execute("SET allowed_directories = ?", [sorted(folders)])
    for statement in LOCKS:
        connection.execute(statement)


def named_table(connection: duckdb.DuckDBPyConnection, name: str, schema: str | None, description: str) -> Any:
    """The ibis table of this name, found in the catalogue: a temporary one first, then the current schema's."""
    known = connection.execute(TABLES).fetchall()
    same = [row for row in known if folded(row[2]) == folded(name) and schema in (None, row[1])]
    if not same:
        wanted = name if schema is None else f"{schema}.{name}"
        raise TableError(f"{description} has no table {wanted!r}; it has {listing([row[2] for row in known])}")
    nearest = min(row[3] for row in same)
    chosen = [row for row in same if row[3] == nearest]
    if len(chosen) > 1:
        places = ", ".join(f"{row[1]}.{row[2]}" for row in chosen)
        raise TableError(f"{description} has several tables {name!r}: {places}; give an ibis table or a relation")
    database, place, actual, _ = chosen[0]
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (database, place, actual))
    described = connection.execute(f"DESCRIBE {quoted}").fetchall()
    return _table({row[0]: row[1] for row in described}, name=actual, database=place, catalog=database)


def open_relation(relation: duckdb.DuckDBPyRelation) -> tuple[str, Any, RelationEngine]:
    """Description, ibis table and engine of the user's relation."""
    name = f"batchdp_{secrets.token_hex(8)}"
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return "the DuckDB relation", _table(types, name=name), RelationEngine(relation, name)


def open_connection(connection: duckdb.DuckDBPyConnection, domain: Domain) -> tuple[str, Any, DuckEngine]:
    """Description, ibis table and engine of the table that the domain names, in the user's connection."""
    description = "the DuckDB connection"
    undo = ExitStack()
    with undo:

        def bind() -> Any:
            table = named_table(connection, domain.table, None, description)
            if any(dtype.is_timestamp() and dtype.timezone for dtype in table.schema().types):
                _in_utc(connection, undo)
            return table

        table = shielded(bind, f"looking into {description}")
        return description, table, DuckEngine(connection, undo.pop_all())


def open_database(path: Path, name: str | None, domain: Domain) -> tuple[str, Any, DuckEngine]:
    """Description, ibis table and engine of a table in a database file."""
    if not path.is_file():
        raise TableError(f"there is no DuckDB file {path}")
    description = f"the DuckDB file {path}"
    schema, _, table_name = (name or domain.table).rpartition(".")
    with ExitStack() as undo:

        def bind() -> tuple[duckdb.DuckDBPyConnection, Any]:
            connection = own_database(path)
            undo.callback(connection.close)
            lock(connection)
            return connection, named_table(connection, table_name, schema or None, description)

        connection, table = shielded(bind, f"opening {description}")
        return description, table, DuckEngine(connection, undo.pop_all())


def _in_utc(connection: duckdb.DuckDBPyConnection, undo: ExitStack) -> None:
    """Days begin at midnight UTC, until undone."""
    row = connection.execute("SELECT current_setting('TimeZone')").fetchone()
    connection.execute("SET TimeZone = 'UTC'")
    undo.callback(lambda: connection.execute(f"SET TimeZone = '{row[0] if row else 'UTC'}'"))


def _table(types: dict[str, str], **place: Any) -> Any:
    return ibis.table({name: _type(spelled) for name, spelled in types.items()}, **place)


def _type(spelled: str) -> Any:
    if spelled.endswith("HUGEINT"):
        # ibis takes it for a decimal of 38 digits, to which the largest cannot be cast; as integers they compare well.
        return ibis.dtype("int64")
    try:
        return DuckDBType.from_string(spelled)
    except Exception:  # types of extensions: fine as long as they are not declared
        return ibis.expr.datatypes.unknown


@contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """DuckDB turns Ctrl-C into an error of its own, and its threads work on unless they are told to stop."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        stop()
        raise KeyboardInterrupt from None


def _reader(result: Any) -> Any:
    fetch = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # its name before DuckDB 1.4
    return fetch(BATCH)
