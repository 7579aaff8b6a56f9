"""Files and frames: batches of cleaned Arrow columns, counted by a DuckDB of our own that reads nothing else.

Before the charge a stream is only its columns' types. Its batches are made when it is counted: a file is opened, a lazy
frame collected and an object converted only then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ibis  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.errors import TableError
from batchdp.tables import cleaning
from batchdp.tables.compiling import Query
from batchdp.tables.duck import DuckEngine, lock, own_database
from batchdp.tables.kinds import Wanted, declared_kind, refuse_type
from batchdp.tables.source import Columns, Source

PLACE = "records"
UNIT = "unit"


Batches = Iterator[tuple[int, Mapping[str | None, Any]]]
"""How many rows there are, and the values of what is wanted."""


@dataclass(frozen=True)
class Part:
    """A piece of the table with types of its own: a file, or the whole frame."""

    types: Mapping[str | None, Any]
    """The Arrow type of every wanted column."""
    batches: Callable[[], Batches]


def repeated(values: Mapping[str | None, str | None], rows: int) -> dict[str | None, Any]:
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
        types[place] = cleaning.common(found, unit=key is None)
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
        engine = StreamEngine(connection, undo.pop_all(), schema, reader, progress or Reading())
    table = ibis.table(ibis.expr.schema.Schema.from_pyarrow(schema), name=PLACE)
    return Source(description, table, engine, names, places, table[UNIT] if None in names else None)


class StreamEngine(DuckEngine):
    """Our own DuckDB, to which the batches are given anew for every count."""

    collates = False

    def __init__(
        self, connection: Any, undo: ExitStack, schema: Any, reader: Callable[[], Any], progress: Reading
    ) -> None:
        super().__init__(connection, undo)
        self._schema = schema
        self._reader = reader
        self._progress = progress

    def check(self, query: Query) -> None:
        """Refused by the engine without a record."""
        self._connection.register(PLACE, self._schema.empty_table().to_reader())
        super().check(query)

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        self._connection.register(PLACE, self._reader())
        yield from super().batches(query)

    def progress(self) -> float:
        """The share of the file that was read."""
        return self._progress.share
