"""Frames in memory: pandas, Polars and PyArrow. Only names and types are looked at before they are counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.errors import TableError
from batchdp.tables import cleaning
from batchdp.tables.kinds import Wanted, find_name, wanted
from batchdp.tables.objects import as_text, as_unit
from batchdp.tables.shield import shielded
from batchdp.tables.source import Source
from batchdp.tables.stream import Batches, Part, open_stream, repeated

ROWS = 2**15
"""That are converted at a time."""
TYPED_FILES = ("parquet", "feather", "arrow", "orc")
"""Endings of files in a dataset whose types do not have to be guessed from records."""


def open_frame(frame: Any, domain: Domain, columns: Collection[str] | None) -> Source:
    """A frame; only the columns that are needed are looked at."""
    library = type(frame).__module__.partition(".")[0]
    description = f"the {({'pandas': 'pandas', 'polars': 'Polars'}).get(library, 'PyArrow')} {type(frame).__name__}"
    parts_of = {"pandas": _pandas, "polars": _polars, "pyarrow": _arrow}[library]
    return open_stream(
        description,
        *shielded(lambda: parts_of(frame, wanted(domain, columns), description), f"looking at {description}"),
        domain,
    )


def _found(names: Wanted, available: Sequence[str], description: str) -> Wanted:
    return {key: find_name(name, available, description) for key, name in names.items()}


# ── pandas ──


def _pandas(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    names = _found(names, [name for name in frame.columns if isinstance(name, str)], description)
    types = {key: _pandas_type(frame.dtypes[name]) for key, name in names.items()}

    def batches() -> Batches:
        for start in range(0, len(frame), ROWS):
            rows = frame.iloc[start : start + ROWS]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they would be about values
                # Objects are read by a rule for columns and one for units.
                values = {
                    key: convert_pandas(rows[name], as_unit if key is None else as_text) for key, name in names.items()
                }
            yield len(rows), values

    return names, [Part({key: pa.string() if dtype is None else dtype for key, dtype in types.items()}, batches)]


def convert_pandas(column: Any, spell: Callable[[Any], str | None]) -> Any:
    """A pandas Series as Arrow has it; objects of Python as texts."""
    dtype = _pandas_type(column.dtype)
    return _spelled(column, spell) if dtype is None else pa.array(column, type=dtype)


def _pandas_type(dtype: Any) -> Any:
    """The Arrow type of a pandas column; None for objects of Python, which are converted one by one."""
    import pandas as pd  # type: ignore[import-untyped]

    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    if isinstance(dtype, pd.StringDtype):
        return pa.large_string() if dtype.storage == "pyarrow" else None
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pa.timestamp(dtype.unit, "UTC")
    plain = getattr(dtype, "numpy_dtype", dtype)  # numbers that may be missing
    if not isinstance(plain, np.dtype) or plain.kind in "OSUV":
        return None
    if plain.kind == "c":
        return pa.struct([("real", pa.float64()), ("imaginary", pa.float64())])
    return pa.float64() if plain == np.longdouble else pa.from_numpy_dtype(plain)


def _spelled(series: Any, spell: Callable[[Any], str | None]) -> Any:
    categories = getattr(series, "cat", None)
    if categories is None:
        return pa.array([spell(value) for value in series.astype(object)], cleaning.TEXT)
    texts = pa.array([spell(value) for value in categories.categories.astype(object)], cleaning.TEXT)
    codes = categories.codes.to_numpy()
    return texts.take(pa.array(codes, mask=codes < 0))


# ── Polars ──


def _polars(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    import polars as pl

    schema = frame.collect_schema()
    names = _found(names, schema.names(), description)
    chosen = list(dict.fromkeys(names.values()))
    for name in chosen:
        if schema[name] == pl.Object:  # which Arrow would tell apart by their addresses
            raise TableError(
                f"column {name!r} of {description} holds Python objects; cast it, for instance to pl.String"
            )
    arrow = pl.DataFrame(schema={name: schema[name] for name in chosen}).to_arrow().schema

    def batches() -> Batches:
        rows = frame.select(chosen) if chosen else frame.select(pl.len())
        rows = rows.collect() if isinstance(rows, pl.LazyFrame) else rows
        if not chosen:
            yield int(rows.item()), {}
            return
        for part in rows.iter_slices(ROWS):
            table = part.to_arrow()
            yield part.height, {key: table.column(name) for key, name in names.items()}

    return names, [Part({key: arrow.field(name).type for key, name in names.items()}, batches)]


# ── PyArrow ──


def _arrow(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    names = _found(names, frame.schema.names, description)
    if not isinstance(frame, pa.Table):
        return names, [_fragment(one, names) for one in _fragments(frame)]

    def batches() -> Batches:
        for batch in frame.to_batches(ROWS):
            yield batch.num_rows, {key: batch.column(name) for key, name in names.items()}

    return names, [Part({key: frame.schema.field(name).type for key, name in names.items()}, batches)]


def _fragments(dataset: Any) -> Iterator[Any]:
    """The pieces of a dataset, each with its own types: joining them would convert values, and can fail on one."""
    for fragment in dataset.get_fragments():
        kind = getattr(getattr(fragment, "format", None), "default_extname", "arrow")
        if kind not in TYPED_FILES:
            raise TableError(
                f"the PyArrow dataset holds files of type {kind}, whose types are guessed from records; give the path"
            )
        yield fragment


def _fragment(fragment: Any, names: Wanted) -> Part:
    from pyarrow.dataset import get_partition_keys  # type: ignore[import-untyped]

    schema = fragment.physical_schema
    keys = {
        key: None if value is None else str(value)
        for key, value in get_partition_keys(fragment.partition_expression).items()
    }
    inside = {key: name for key, name in names.items() if name in schema.names}
    apart = {key: keys.get(name) for key, name in names.items() if key not in inside}

    def batches() -> Batches:
        for batch in fragment.to_batches(schema, columns=list(dict.fromkeys(inside.values())), batch_size=ROWS):
            values = {key: batch.column(name) for key, name in inside.items()}
            yield batch.num_rows, values | repeated(apart, batch.num_rows)

    types = {key: schema.field(name).type for key, name in inside.items()} | dict.fromkeys(apart, pa.string())
    return Part(types, batches)
