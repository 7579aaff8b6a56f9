"""DuckDB: a database of our own for files and frames, a database file, or the user's connection or relation."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
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
from batchdp.tables.source import UNKNOWN_PROGRESS, Columns, Opened, Units, as_columns, mended

BATCH = 1_000_000
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "temp_directory": "",  # records stay in memory
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "preserve_insertion_order": False,
}
UNWANTED = ("statistics_propagation", "join_order", "build_side_probe_side")
"""Optimisers that are switched off. The first tries casts on the least and greatest value while it plans, where even
TRY does not help; the others would hold a stream of records in memory, whose length they cannot know, and not the
lookup."""
SESSION = {"TimeZone": "UTC", "disabled_optimizers": ",".join(UNWANTED)}
"""What a count needs of a connection: days begin at midnight UTC."""
LOCKS = (
    *(f"SET {name} = '{value}'" for name, value in SESSION.items()),
    "SET python_enable_replacements = false",
    "SET enable_progress_bar = true",
    "SET enable_progress_bar_print = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
HUGE = ("HUGEINT", "UHUGEINT")
"""Whole numbers of 128 bits. BIGNUM is refused: it reaches further than any cast that could be tried."""
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
    collates = True

    def __init__(self, connection: duckdb.DuckDBPyConnection, undo: ExitStack) -> None:
        self._connection = connection
        self._undo = undo

    def check(self, query: Query) -> None:
        """Bound, not run."""
        self._connection.sql(compiled(query, self.dialect)).types  # noqa: B018

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
    collates = True

    def __init__(self, relation: duckdb.DuckDBPyRelation, name: str) -> None:
        self._relation = relation
        self._name = name

    def check(self, query: Query) -> None:
        """Bound, not run; the view that DuckDB makes for it is dropped."""
        with ExitStack() as undo:
            undo.callback(self._run, f"DROP VIEW {self._name}")
            self._run(compiled(query, self.dialect)).types  # noqa: B018

    def _run(self, sql: str) -> Any:
        return self._relation.query(self._name, sql)

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch; the view that DuckDB makes for it is dropped."""
        with ExitStack() as undo:
            undo.callback(self._run, f"DROP VIEW {self._name}")
            set_session(self._run, undo)
            with _interruptible(lambda: None):  # only the connection could be told to stop
                yield from map(as_columns, _reader(self._run(compiled(query, self.dialect))))

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


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on, the database reads no file but its own, and no setting can be changed."""
    for statement in LOCKS:
        connection.execute(statement)


def named_table(
    connection: duckdb.DuckDBPyConnection, name: str, schema: str | None, description: str
) -> tuple[Any, Units]:
    """The ibis table of this name and its units: a temporary one first, then the current schema's."""
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


def open_relation(relation: duckdb.DuckDBPyRelation) -> Opened:
    """The user's relation."""
    name = f"batchdp_{secrets.token_hex(8)}"
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return Opened("the DuckDB relation", *_table(types, name=name), RelationEngine(relation, name))


def open_connection(connection: duckdb.DuckDBPyConnection, domain: Domain) -> Opened:
    """The table that the domain names, in the user's connection."""
    description = "the DuckDB connection"
    undo = ExitStack()
    with undo:

        def bind() -> tuple[Any, Units]:
            found = named_table(connection, domain.table, None, description)
            set_session(connection.execute, undo)
            return found

        found = shielded(bind, f"looking into {description}")
        return Opened(description, *found, DuckEngine(connection, undo.pop_all()))


def open_database(path: Path, name: str | None, domain: Domain) -> Opened:
    """A table in a database file."""
    if not path.is_file():
        raise TableError(f"there is no DuckDB file {path}")
    description = f"the DuckDB file {path}"
    schema, _, table_name = (name or domain.table).rpartition(".")
    with ExitStack() as undo:

        def bind() -> tuple[duckdb.DuckDBPyConnection, tuple[Any, Units]]:
            connection = own_database(path)
            undo.callback(connection.close)
            lock(connection)
            return connection, named_table(connection, table_name, schema or None, description)

        connection, found = shielded(bind, f"opening {description}")
        return Opened(description, *found, DuckEngine(connection, undo.pop_all()))


def set_session(run: Callable[[str], Any], undo: ExitStack) -> None:
    """The settings that a count needs, until undone."""
    for name, value in SESSION.items():
        before = run(f"SELECT current_setting('{name}')").fetchone()[0].replace("'", "''")
        run(f"SET {name} = '{value}'")
        undo.callback(run, f"SET {name} = '{before}'")


def _table(types: dict[str, str], **place: Any) -> tuple[Any, Units]:
    """The ibis table, and what tells privacy units apart where that is not the column itself."""
    table = ibis.table({name: _type(spelled) for name, spelled in types.items()}, **place)
    # No literal compares with all of these without a cast that the largest would break; a unit stays exact, as a text.
    huge = [name for name, spelled in types.items() if spelled in HUGE]
    return mended(
        table,
        {name: table[name].try_cast("float64") for name in huge},
        {name: table[name].cast("string") for name in huge},
    )


def _type(spelled: str) -> Any:
    if spelled in HUGE:
        return ibis.expr.datatypes.unknown
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
