"""A Spark DataFrame, counted by its own session through a temporary view.

The day of a moment is the one that the session shows: Spark keeps all its timestamps with a time zone.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import ibis  # type: ignore[import-untyped]

from batchdp.engines.source import Columns, Engine, Opened, Query, as_columns, compile_query, shield
from batchdp.errors import TableError

BYTEWISE = "UTF8_BINARY"
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""What Spark tells errors to: those of SQL, and those of columns that the user has computed in Python."""


class SparkEngine(Engine):
    """A session of the user's with our view in it; it counts tasks of stages that it has not planned yet."""

    dialect = "pyspark"

    def __init__(self, session: Any, undo: ExitStack, collates: bool) -> None:
        super().__init__(undo)
        self._session, self.collates = session, collates

    @property
    def place(self) -> Any:
        """The session."""
        return "Spark", id(getattr(self._session, "_jsparkSession", self._session))

    def beside(self, others: Sequence[Engine]) -> Engine:
        """The session, whose texts may have a collation as soon as those of one table may."""
        return SparkEngine(self._session, ExitStack(), self.collates or any(one.collates for one in others))

    def check(self, query: Query) -> None:
        """Have the query analysed, not run."""
        with _silence():
            self._session.sql(compile_query(query, self.dialect)).schema  # noqa: B018

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch."""
        with _silence():
            result = self._session.sql(compile_query(query, self.dialect))
            if hasattr(result, "toArrow"):
                found = [as_columns(batch) for batch in result.toArrow().to_batches()]
            else:  # before Spark 4
                frame = result.toPandas()
                found = [[frame[name].to_numpy() for name in frame.columns]]
        yield from found

    def rows(self, query: Query) -> Iterator[Sequence[Any]]:
        """The rows of a query's result."""
        with _silence():
            yield from self._session.sql(compile_query(query, self.dialect)).collect()


@contextmanager
def _silence() -> Iterator[None]:
    """Spark's own loggers would print an error's message, which may show a record."""
    try:
        # A logger of another class cannot log the errors of the user's own queries, later.
        named = import_module("pyspark.logger").PySparkLogger.getLogger
    except ImportError:  # before Spark 4 there are none
        named = logging.getLogger
    loggers = {named(name): named(name).disabled for name in LOGGERS}
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, before in loggers.items():
            logger.disabled = before


def open_spark(frame: Any) -> Opened:
    """Open the user's frame, in its own session."""
    try:
        schema = ibis.pyspark and _schema(frame)
    except (ImportError, AttributeError):
        raise TableError("a Spark DataFrame needs ibis's part for Spark: pip install 'batchdp[spark]'") from None
    name = f"batchdp_{secrets.token_hex(8)}"
    session = frame.sparkSession
    undo = ExitStack()

    def bind() -> None:
        frame.createTempView(name)
        undo.callback(session.catalog.dropTempView, name)

    with undo:
        shield(bind, "looking at the Spark DataFrame")
        # Whether a text has another collation than by its bytes; before Spark 4 none has.
        collates = any(getattr(field.dataType, "collation", BYTEWISE) != BYTEWISE for field in frame.schema.fields)
        engine = SparkEngine(session, undo.pop_all(), collates)
        return Opened("the Spark DataFrame", ibis.table(schema, name=name), {}, engine)


def _schema(frame: Any) -> Any:
    from ibis.backends.pyspark.datatypes import PySparkType  # type: ignore[import-untyped]

    types = {}
    for field in frame.schema.fields:
        try:
            types[field.name] = PySparkType.to_ibis(field.dataType)
        except Exception:  # types that ibis does not know: fine as long as they are not declared
            types[field.name] = ibis.expr.datatypes.unknown
    return ibis.schema(types)
