"""Frames in memory: pandas, Polars and PyArrow, scanned by an embedded DuckDB without a copy where it can be had."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.tables.duck import DuckEngine, lock, named_table, own_database
from batchdp.tables.kinds import Kind, find_name, kind_of, needed, refuse_twins
from batchdp.tables.shield import shielded

ARROW = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "date": pa.date32()}
NOT_TEXT = "\x00"
"""Stands for an object among texts that is none; no declared value holds this character."""


def open_frame(frame: Any, domain: Domain, columns: Collection[str] | None) -> tuple[str, Any, DuckEngine]:
    """Description, ibis table and engine of a frame; only the columns that are needed are looked at."""
    library = type(frame).__module__.partition(".")[0]
    description = f"the {({'pandas': 'pandas', 'polars': 'Polars'}).get(library, 'PyArrow')} {type(frame).__name__}"
    available = _names(frame, library)
    names = {find_name(name, available, description): _kind(name, domain) for name in needed(domain, columns)}
    undo = ExitStack()
    connection = own_database()
    undo.callback(connection.close)
    with undo:

        def bind() -> Any:
            scanned = {"pandas": _from_pandas, "polars": _from_polars, "pyarrow": _from_arrow}[library](frame, names)
            connection.register("records", scanned)
            lock(connection)
            return named_table(connection, "records", None, description)

        table = shielded(bind, f"looking at {description}")
        return description, table, DuckEngine(connection, undo.pop_all())


def _names(frame: Any, library: str) -> list[str]:
    if library == "polars":
        return list(frame.collect_schema().names())
    if library == "pandas":
        return [name for name in frame.columns if isinstance(name, str)]
    return list(frame.schema.names)


def _kind(name: str, domain: Domain) -> Kind | None:
    declared = domain.column(name)
    return None if declared is None else kind_of(domain.columns[declared])


def _from_pandas(frame: Any, names: dict[str, Kind | None]) -> Any:
    if not names:
        return pa.table({"rows": pa.nulls(len(frame), pa.bool_())})
    return _tidy(pa.table({name: _series(frame[name], kind) for name, kind in names.items()}), names)


def _series(series: Any, kind: Kind | None) -> Any:
    """A pandas column in Arrow. One of Python objects gets the declared type, whatever objects it holds.

    What an object becomes depends on it alone: no other record changes it, and none raises an error.
    """
    import pandas as pd  # type: ignore[import-untyped]

    if series.dtype != object and not isinstance(series.dtype, pd.CategoricalDtype):
        return pa.array(series, from_pandas=True)
    objects = series.astype(object)
    match kind:
        case None:
            return pa.array([_unit(value) for value in objects], pa.string())
        case "text":
            return pa.array([_text(value) for value in objects], pa.string())
        case "boolean":
            truths = [bool(value) if isinstance(value, (bool, np.bool_)) else None for value in objects]
            return pa.array(truths, pa.bool_())
        case "date":
            return pa.array([_converted(value, _day) for value in objects], pa.date32())
        case _:
            return pa.array([_converted(value, float) for value in objects], pa.float64(), from_pandas=True)


def _converted(value: Any, convert: Any) -> Any:
    """The value converted, or NULL where it cannot be."""
    try:
        return None if _is_missing(value) else convert(value)
    except Exception:  # whatever an object makes of it
        return None


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, (float, np.floating)) and value != value)
    )


def _day(value: Any) -> Any:
    import pandas as pd

    moment = pd.to_datetime(value, utc=True, **({"format": "ISO8601"} if isinstance(value, str) else {}))
    return moment.date()


def _text(value: Any) -> str | None:
    if _is_missing(value):
        return None
    return value if isinstance(value, str) and _encodable(value) else NOT_TEXT


def _unit(value: Any) -> str | None:
    """A text that is equal for equal units: whole numbers are spelled as such, whatever their type."""
    if _is_missing(value):
        return None
    whole = _converted(value, int) if isinstance(value, (int, float, np.integer, np.floating)) else None
    text = (
        value
        if isinstance(value, str)
        else str(whole)
        if whole is not None and whole == value
        else _converted(value, str)
    )
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_polars(frame: Any, names: dict[str, Kind | None]) -> Any:
    lazy = type(frame).__name__ == "LazyFrame"
    if names:
        frame = frame.select(list(names))
    return _tidy((frame.collect() if lazy else frame).to_arrow(), names)


def _from_arrow(frame: Any, names: dict[str, Kind | None]) -> Any:
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return _tidy(frame.select(list(names)) if names else frame, names)
    refuse_twins(frame.schema.names, names, "the PyArrow Dataset")
    return frame


def _tidy(table: Any, names: dict[str, Kind | None]) -> Any:
    """The types that DuckDB does not know, or takes for others, as ones that it does."""
    for i, field in enumerate(table.schema):
        kind = names.get(field.name)
        if pa.types.is_null(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(ARROW[kind or "integer"]))
        elif pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
        elif pa.types.is_float16(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.float32()))
    return table
