"""Frames in memory: pandas, Polars and PyArrow. Only names and types are looked at before they are counted.

Python objects in a pandas column are texts that are read like any other; what one becomes depends on it alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.engines import cleaning
from batchdp.engines.cleaning import MARK, decode, spell_decimal
from batchdp.engines.columns import Wanted, find_name, wanted_columns
from batchdp.engines.duck import Batches, Part, open_stream, repeat
from batchdp.engines.source import Source, shield
from batchdp.errors import TableError

# ── Python objects ──

LONGEST_NUMBER = 300
"""Digits up to which a whole number is spelled out."""
MOST_DIGITS = 4000
"""Before and after the point, up to which a decimal is; Python refuses to read more."""


def as_text(value: Any) -> str | None:
    """A text, number, truth or day as it would stand in a CSV file; a mark for any other object."""
    try:
        return None if _is_missing(value) else _text(value)
    except Exception:  # whatever an object does when it is looked at
        return MARK


def unit_text(value: Any) -> str | None:
    """A text that is equal for equal units: whole numbers are spelled as such, whatever their type.

    A number and its text are one unit, as in a CSV file; objects of other types have their type before them.
    """
    try:
        if _is_missing(value):
            return None
        if isinstance(value, (str, int, float, Decimal, np.integer, np.floating)) and not isinstance(value, bool):
            return _text(value)
        return _encode_text(f"{MARK}{_kind(value)} {_moment(value)}")
    except Exception:  # nobody, then
        return None


def _kind(value: Any) -> str:
    if isinstance(value, bytes):
        return bytes.__name__
    return "moment" if isinstance(value, (datetime, np.datetime64)) else type(value).__name__


def _moment(value: Any) -> str:
    """A moment as it is in UTC; anything else as it spells itself."""
    import pandas as pd  # type: ignore[import-untyped]

    if isinstance(value, np.datetime64):
        try:
            value = pd.Timestamp(value)
        except Exception:  # beyond what pandas has
            return str(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return _whole(int(value))
    if isinstance(value, (float, np.floating)):
        real = float(value)
        return _whole(int(real)) if isfinite(real) and real == int(real) else repr(real)
    if isinstance(value, Decimal):
        if not value.is_finite() or (value and abs(value.adjusted()) > MOST_DIGITS):
            return str(value)
        text = spell_decimal(value)
        return text if "." in text else _whole(int(text))
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[D]"))
    return MARK


def _whole(number: int) -> str:
    return str(number) if abs(number) < 10**LONGEST_NUMBER else f"{MARK}{number:x}"


def _is_missing(value: Any) -> bool:
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _encode_text(text: str) -> str:
    return decode(text.encode("utf-8", "surrogatepass"))


# ── frames ──

ROWS = 2**15
"""That are converted at a time."""
TYPED_FILES = ("parquet", "feather", "arrow", "orc")
"""Endings of files in a dataset whose types do not have to be guessed from records."""


def open_frame(frame: Any, domain: Domain, columns: Collection[str] | None) -> Source:
    """A frame; only the columns that are needed are looked at."""
    library = type(frame).__module__.partition(".")[0]
    description = f"the {({'pandas': 'pandas', 'polars': 'Polars'}).get(library, 'PyArrow')} {type(frame).__name__}"
    parts_of = {"pandas": _pandas_parts, "polars": _polars_parts, "pyarrow": _arrow_parts}[library]
    return open_stream(
        description,
        *shield(lambda: parts_of(frame, wanted_columns(domain, columns), description), f"looking at {description}"),
        domain,
    )


def frame_types(frame: Any, library: str) -> list[tuple[str, Any]]:
    """Names and ibis types of a frame's columns; None for what pandas has guessed from the values."""
    if library == "pandas":
        columns = [(name, dtype) for name, dtype in zip(frame.columns, frame.dtypes, strict=True)]
        fixed = {name: _pandas_type(dtype) if _is_fixed(dtype) else None for name, dtype in columns}
        return [
            (name, None if fixed[name] is None else ibis_type(fixed[name]))
            for name, _ in columns
            if isinstance(name, str)
        ]
    if library == "polars":
        import polars as pl

        schema = frame.collect_schema()
        arrow = pl.DataFrame(schema={name: dtype for name, dtype in schema.items() if dtype != pl.Object}).to_arrow()
        return [(field.name, ibis_type(field.type)) for field in arrow.schema]
    return [(field.name, ibis_type(field.type)) for field in frame.schema]


def _is_fixed(dtype: Any) -> bool:
    """Whether a pandas type is one that somebody chose: a missing number makes floats of NumPy's whole ones."""
    import pandas as pd

    return isinstance(dtype, pd.ArrowDtype | pd.DatetimeTZDtype) or getattr(dtype, "kind", "O") == "M"


def ibis_type(dtype: Any) -> Any:
    """Of an Arrow type; what is in a dictionary is data, and so of the type of its values."""
    import ibis  # type: ignore[import-untyped]

    while pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    try:
        return ibis.expr.datatypes.DataType.from_pyarrow(dtype)
    except Exception:  # types that ibis does not know
        return ibis.expr.datatypes.unknown


def _find_names(names: Wanted, available: Sequence[str], description: str) -> Wanted:
    return {key: find_name(name, available, description) for key, name in names.items()}


# ── pandas ──


def _pandas_parts(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    names = _find_names(names, [name for name in frame.columns if isinstance(name, str)], description)
    types = {key: _pandas_type(frame.dtypes[name]) for key, name in names.items()}

    def batches() -> Batches:
        for start in range(0, len(frame), ROWS):
            rows = frame.iloc[start : start + ROWS]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they would be about values
                # Objects are read by a rule for columns and one for units.
                values = {
                    key: convert_pandas(rows[name], unit_text if key is None else as_text)
                    for key, name in names.items()
                }
            yield len(rows), values

    return names, [Part({key: pa.string() if dtype is None else dtype for key, dtype in types.items()}, batches)]


def convert_pandas(column: Any, spell: Callable[[Any], str | None]) -> Any:
    """A pandas Series as Arrow has it; objects of Python as texts."""
    dtype = _pandas_type(column.dtype)
    return _spell_series(column, spell) if dtype is None else pa.array(column, type=dtype)


def _pandas_type(dtype: Any) -> Any:
    """The Arrow type of a pandas column; None for objects of Python, which are converted one by one."""
    import pandas as pd

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


def _spell_series(series: Any, spell: Callable[[Any], str | None]) -> Any:
    categories = getattr(series, "cat", None)
    if categories is None:
        return pa.array([spell(value) for value in series.astype(object)], cleaning.TEXT)
    texts = pa.array([spell(value) for value in categories.categories.astype(object)], cleaning.TEXT)
    codes = categories.codes.to_numpy()
    return texts.take(pa.array(codes, mask=codes < 0))


# ── Polars ──


def _polars_parts(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    import polars as pl

    schema = frame.collect_schema()
    names = _find_names(names, schema.names(), description)
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


def _arrow_parts(frame: Any, names: Wanted, description: str) -> tuple[Wanted, list[Part]]:
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    names = _find_names(names, frame.schema.names, description)
    if not isinstance(frame, pa.Table):
        return names, [_fragment_part(one, names) for one in _list_fragments(frame)]

    def batches() -> Batches:
        for batch in frame.to_batches(ROWS):
            yield batch.num_rows, {key: batch.column(name) for key, name in names.items()}

    return names, [Part({key: frame.schema.field(name).type for key, name in names.items()}, batches)]


def _list_fragments(dataset: Any) -> Iterator[Any]:
    """The pieces of a dataset, each with its own types: joining them would convert values, and can fail on one."""
    for fragment in dataset.get_fragments():
        kind = getattr(getattr(fragment, "format", None), "default_extname", "arrow")
        if kind not in TYPED_FILES:
            raise TableError(
                f"the PyArrow dataset holds files of type {kind}, whose types are guessed from records; give the path"
            )
        yield fragment


def _fragment_part(fragment: Any, names: Wanted) -> Part:
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
            yield batch.num_rows, values | repeat(apart, batch.num_rows)

    types = {key: schema.field(name).type for key, name in inside.items()} | dict.fromkeys(apart, pa.string())
    return Part(types, batches)
