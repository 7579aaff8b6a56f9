"""DuckDB: a database file, the user's connection or relation, and a database of our own for files and frames.

Files and frames are a stream of cleaned Arrow columns. Before the charge a stream is only its columns' types; its
batches are made when it is counted: a file is opened, a lazy frame collected and an object converted only then.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
from ibis.backends.sql.datatypes import DuckDBType  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.domain.columns import fold
from batchdp.engines import cleaning
from batchdp.engines.columns import Wanted, declared_columns, declared_kind, list_names, refuse_type
from batchdp.engines.source import (
    Columns,
    Engine,
    Opened,
    Query,
    Said,
    Source,
    Units,
    as_columns,
    compile_query,
    replace_columns,
    shield,
)
from batchdp.errors import TableError

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

LABELS = "SELECT labels FROM duckdb_types() WHERE database_name = ? AND labels IS NOT NULL AND NOT internal"
ENUMS = """
    SELECT column_name, data_type FROM duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? AND data_type LIKE 'ENUM(%'
"""
CHECKS = """
    SELECT expression FROM duckdb_constraints()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? AND constraint_type = 'CHECK'
"""


class DuckEngine(Engine):
    """A DuckDB connection. What is changed there, `undo` changes back."""

    dialect = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, undo: ExitStack) -> None:
        super().__init__(undo)
        self._connection = connection

    @property
    def place(self) -> Any:
        """The connection."""
        return "DuckDB", id(self._connection)

    def check(self, query: Query) -> None:
        """Have the query bound, not run."""
        self._connection.sql(compile_query(query, self.dialect)).types  # noqa: B018

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        with _allow_interrupt(self._connection.interrupt):
            yield from map(as_columns, _reader(self._connection.execute(compile_query(query, self.dialect))))

    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result."""
        with _allow_interrupt(self._connection.interrupt):
            yield from _each_row(self._connection.execute(compile_query(query, self.dialect)))

    def said(self, catalog: str | None, schema: str | None, name: str) -> Said:
        """What the schema says; a column made of a dictionary has an ENUM type, too, but none with a name."""
        place = [catalog, schema, name]
        labels = [tuple(row[0]) for row in self._connection.execute(LABELS, [catalog]).fetchall()]
        named = {f"ENUM({', '.join(map(_quote, each))})": each for each in labels}
        enums = self._connection.execute(ENUMS, place).fetchall()
        checks = self._connection.execute(CHECKS, place).fetchall()
        return Said(
            labels={column: named[spelled] for column, spelled in enums if spelled in named},
            checks=[(None, row[0]) for row in checks],
        )

    def progress(self) -> float:
        """DuckDB counts in per cent and says −1 where it does not know."""
        share = self._connection.query_progress() / 100
        return share if 0 <= share <= 1 else math.nan


class RelationEngine(Engine):
    """A relation, which alone knows its connection, and how far it is; nothing is left behind there."""

    dialect = "duckdb"

    def __init__(self, relation: duckdb.DuckDBPyRelation, name: str) -> None:
        super().__init__(ExitStack())
        self._relation, self._name = relation, name

    def check(self, query: Query) -> None:
        """Bound, not run; the view that DuckDB makes for it is dropped."""
        with ExitStack() as undo:
            undo.callback(self._run, f"DROP VIEW {self._name}")
            self._run(compile_query(query, self.dialect)).types  # noqa: B018

    def _run(self, sql: str) -> Any:
        return self._relation.query(self._name, sql)

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch; the view that DuckDB makes for it is dropped."""
        with ExitStack() as undo:
            undo.callback(self._run, f"DROP VIEW {self._name}")
            set_session(self._run, undo)
            with _allow_interrupt(lambda: None):  # only the connection could be told to stop
                yield from map(as_columns, _reader(self._run(compile_query(query, self.dialect))))

    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result; the view that DuckDB makes for it is dropped."""
        with ExitStack() as undo:
            undo.callback(self._run, f"DROP VIEW {self._name}")
            set_session(self._run, undo)
            with _allow_interrupt(lambda: None):
                yield from _each_row(self._run(compile_query(query, self.dialect)))


def own_database(path: Path | None = None) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, or a file opened for reading only; nothing is ever written to disk or fetched."""
    if path is None:
        return duckdb.connect(":memory:", config=SETTINGS)
    return duckdb.connect(str(path), read_only=True, config=SETTINGS)


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on, the database reads no file but its own, and no setting can be changed."""
    for statement in LOCKS:
        connection.execute(statement)


def find_table(
    connection: duckdb.DuckDBPyConnection, name: str, schema: str | None, description: str
) -> tuple[Any, Units]:
    """The ibis table of this name and its units: a temporary one first, then the current schema's."""
    known = connection.execute(TABLES).fetchall()
    same = [row for row in known if fold(row[2]) == fold(name) and schema in (None, row[1])]
    if not same:
        wanted = name if schema is None else f"{schema}.{name}"
        raise TableError(f"{description} has no table {wanted!r}; it has {list_names([row[2] for row in known])}")
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
    """Open the user's relation, on its own connection."""
    name = f"batchdp_{secrets.token_hex(8)}"
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return Opened("the DuckDB relation", *_table(types, name=name), RelationEngine(relation, name))


def open_connection(connection: duckdb.DuckDBPyConnection, domain: Domain) -> Opened:
    """The table that the domain names, in the user's connection."""
    description = "the DuckDB connection"
    with ExitStack() as undo:

        def bind() -> tuple[Any, Units]:
            found = find_table(connection, domain.table, None, description)
            set_session(connection.execute, undo)
            return found

        found = shield(bind, f"looking into {description}")
        return Opened(description, *found, DuckEngine(connection, undo.pop_all()))


@dataclass(frozen=True)
class DuckFile:
    """A database file that is open, for several tables in it: DuckDB opens a locked file once in a process."""

    path: Path
    connection: duckdb.DuckDBPyConnection

    def table(self, name: str | None, domain: Domain, undo: ExitStack | None = None) -> Opened:
        """One of them; `undo` is what closes the file, where nobody else does."""
        description = f"the DuckDB file {self.path}"
        schema, _, table_name = (name or domain.table).rpartition(".")
        task = f"looking into {description}"
        found = shield(lambda: find_table(self.connection, table_name, schema or None, description), task)
        return Opened(description, *found, DuckEngine(self.connection, ExitStack() if undo is None else undo.pop_all()))


def open_file(path: Path, undo: ExitStack) -> DuckFile:
    """A database file, for reading only, until undone."""
    if not path.is_file():
        raise TableError(f"there is no DuckDB file {path}")

    def connect() -> duckdb.DuckDBPyConnection:
        connection = own_database(path)
        undo.callback(connection.close)
        lock(connection)
        return connection

    return DuckFile(path, shield(connect, f"opening the DuckDB file {path}"))


def open_database(path: Path, name: str | None, domain: Domain) -> Opened:
    """A table in a database file."""
    with ExitStack() as undo:
        return open_file(path, undo).table(name, domain, undo)


def set_session(run: Callable[[str], Any], undo: ExitStack) -> None:
    """The settings that a count needs, until undone."""
    for name, value in SESSION.items():
        before = run(f"SELECT current_setting('{name}')").fetchone()[0].replace("'", "''")
        run(f"SET {name} = '{value}'")
        undo.callback(run, f"SET {name} = '{before}'")


def _table(types: dict[str, str], **place: Any) -> tuple[Any, Units]:
    """The ibis table, and what tells privacy units apart where that is not the column itself."""
    table = ibis.table({name: _type(spelled) for name, spelled in types.items()}, **place)
    return narrow(table, [name for name, spelled in types.items() if spelled in HUGE])


def narrow(table: Any, huge: Sequence[str]) -> tuple[Any, Units]:
    """The table with columns of 128 bits as floats, for no literal compares with all of their values without a cast
    that the largest would break; a privacy unit stays exact, as a text."""
    return replace_columns(
        table,
        {name: table[name].try_cast("float64") for name in huge},
        {name: table[name].cast("string") for name in huge},
    )


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _type(spelled: str) -> Any:
    if spelled in HUGE:
        return ibis.expr.datatypes.unknown
    try:
        return DuckDBType.from_string(spelled)
    except Exception:  # types of extensions: fine as long as they are not declared
        return ibis.expr.datatypes.unknown


@contextmanager
def _allow_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """DuckDB turns Ctrl-C into an error of its own, and its threads work on unless they are told to stop."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        stop()
        raise KeyboardInterrupt from None


def _each_row(result: Any) -> Iterator[Sequence[Any]]:
    while rows := result.fetchmany(BATCH):
        yield from rows


def _reader(result: Any) -> Any:
    fetch = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # its name before DuckDB 1.4
    return fetch(BATCH)


# ── files and frames ──

UNIT = "unit"


Batches = Iterator[tuple[int, Mapping[str | None, Any]]]
"""How many rows there are, and the values of what is wanted."""


@dataclass(frozen=True)
class Part:
    """A piece of the table with types of its own: a file, or the whole frame."""

    types: Mapping[str | None, Any]
    """The Arrow type of every wanted column."""
    batches: Callable[[], Batches]


def repeat(values: Mapping[str | None, str | None], rows: int) -> dict[str | None, Any]:
    """Columns of one text each."""
    return {key: pa.repeat(pa.scalar(value, pa.string()), rows) for key, value in values.items()}


@dataclass
class Reading:
    """How far the reading is, where that can be told."""

    share: float = math.nan

    def advance(self, share: float) -> None:
        """So much more of the whole has been read."""
        self.share = min(1.0, share if math.isnan(self.share) else self.share + share)


def open_stream(
    description: str, names: Wanted, parts: Sequence[Part], domain: Domain, progress: Reading | None = None
) -> Source:
    """A source that counts these parts, refused unless every column is of a type that can be read."""
    places = {key: UNIT if key is None else f"c{i}" for i, key in enumerate(names)}
    types = {}
    for key, place in places.items():
        one_type = cleaning.unit_type if key is None else cleaning.declared_type
        found = [one_type(part.types[key]) for part in parts]
        if None in found:
            kind = None if key is None else declared_kind(domain, key)
            refuse_type(names[key], kind, parts[found.index(None)].types[key], description)
        types[place] = cleaning.common_type(found, unit=key is None)
        if types[place] is None or (key is None and not cleaning.can_be_one(part.types[key] for part in parts)):
            spelled = sorted({str(part.types[key]) for part in parts})
            raise TableError(
                f"column {names[key]!r} is {' and '.join(spelled)} in the files of {description}; write all of them "
                "with one type, so that no file changes how another's values are compared"
            )
    schema = pa.schema(types or {"row": pa.bool_()})

    def batch(rows: int, values: Mapping[str | None, Any]) -> Any:
        arrays = [
            (cleaning.as_unit if key is None else cleaning.as_declared)(values[key], types[place])
            for key, place in places.items()
        ]
        return pa.RecordBatch.from_arrays(arrays or [pa.nulls(rows, pa.bool_())], schema=schema)

    def reader() -> Any:
        made = (batch(rows, values) for part in parts for rows, values in part.batches())
        return pa.RecordBatchReader.from_batches(schema, made)

    with ExitStack() as undo:
        connection = own_database()
        undo.callback(connection.close)
        lock(connection)
        name = f"records_{secrets.token_hex(8)}"
        engine = StreamEngine(connection, undo.pop_all(), {name: (schema, reader)}, progress or Reading())
    table = ibis.table(ibis.expr.schema.Schema.from_pyarrow(schema), name=name)
    unit = table[UNIT] if None in names else None
    rules = {cleaning.unit_rule(part.types[None]) for part in parts} - {None} if None in names else set()
    rule = next(iter(rules), None)  # one at most, as they can be one
    return Source(description, table, engine, names, places, unit, declared_columns(domain, names), rule)


class StreamEngine(DuckEngine):
    """Our own DuckDB, to which the batches are given anew for every count."""

    collates = False

    def __init__(
        self, connection: Any, undo: ExitStack, streams: Mapping[str, tuple[Any, Callable[[], Any]]], progress: Reading
    ) -> None:
        super().__init__(connection, undo)
        self._streams = streams
        self._progress = progress

    @property
    def place(self) -> Any:
        """Streams can be read in any database of our own."""
        return StreamEngine

    def beside(self, others: Sequence[Engine]) -> Engine:
        """All streams in this one's database."""
        streams = dict(self._streams)
        for one in others:
            assert isinstance(one, StreamEngine)
            streams |= one._streams
        return StreamEngine(self._connection, ExitStack(), streams, self._progress)

    def check(self, query: Query) -> None:
        """Refused by the engine without a record."""
        for name, (schema, _) in self._streams.items():
            self._connection.register(name, schema.empty_table().to_reader())
        super().check(query)

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        for name, (_, reader) in self._streams.items():
            self._connection.register(name, reader())
        yield from super().batches(query)

    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result."""
        for name, (_, reader) in self._streams.items():
            self._connection.register(name, reader())
        yield from super().rows(query)

    def progress(self) -> float:
        """The share of the file that was read."""
        return self._progress.share
