"""CSV and Parquet files, one or a folder of them: what they are, and their records as a stream.

Types come from the domain (CSV) or from each file's own schema (Parquet), never from records. A folder `key=value` is a
column of texts where the files have none of that name; it never replaces one.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from batchdp.archive import open_regular
from batchdp.domain import Domain
from batchdp.domain.columns import fold
from batchdp.engines.columns import find_name, wanted_columns
from batchdp.engines.duck import Batches, Part, Reading, open_stream, repeat
from batchdp.engines.source import Source, shield
from batchdp.errors import TableError

BLOCK = 2**22
"""Bytes that are read at a time."""
MOST = 2**31 - 1
"""Beyond every position in a block."""
LONGEST_RECORD = 2**24
"""A record of more bytes is left out; it is the only one that this touches."""

QUOTE, LINE_FEED, RETURN = b'"'[0], b"\n"[0], b"\r"[0]
Marks = npt.NDArray[np.int64]
"""Positions of the delimiters and line feeds outside quotes."""


@dataclass(frozen=True)
class Layout:
    """What the header says about all lines."""

    delimiter: str
    width: int
    """How many fields a record has."""
    returns: bool
    """Whether lines end with a carriage return before the line feed."""


def read_records(file: BinaryIO, layout: Layout, wanted: Sequence[int]) -> Iterator[list[Any]]:
    """The wanted fields of all records as Arrow arrays of bytes, block by block; an empty field is NULL.

    The file stands behind its header. Records of fewer fields than the header are left out; more are ignored.
    """
    rest, block = b"", b"?"
    while block:
        block = file.read(BLOCK)
        if not block and not rest:
            return
        rest += block or (b"\r\n" if layout.returns else b"\n")  # the last line may lack its end
        marks = _find_marks(rest, layout)
        lines = marks[_bytes(rest)[marks] == LINE_FEED]
        if len(lines):  # at the end, what an open quotation mark swallows stands behind them
            end = int(lines[-1]) + 1
            yield _cut_fields(rest[:end], marks[: np.searchsorted(marks, end)], layout, wanted)
            rest = rest[end:]
        elif block and len(rest) > LONGEST_RECORD:
            rest = _skip_record(rest, file, layout)


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


# ── where fields end ──


def _find_marks(data: bytes, layout: Layout) -> Marks:
    a = _bytes(data)
    marks = np.flatnonzero((a == ord(layout.delimiter)) | (a == LINE_FEED))
    if b'"' not in data:
        return marks
    quotes = np.flatnonzero(a == QUOTE)
    outside = marks[np.searchsorted(quotes, marks) % 2 == 0]
    lines = outside[a[outside] == LINE_FEED]
    if len(lines) and _is_well_formed(a, quotes[: np.searchsorted(quotes, lines[-1])], layout):
        complete: Marks = outside[outside <= lines[-1]]
        return complete
    return _find_marks_slowly(data, layout)


def _is_well_formed(a: npt.NDArray[np.uint8], quotes: Marks, layout: Layout) -> bool:
    """Whether every other quotation mark opens a field at its start, and the ones between end it, or are doubled."""
    opening, closing = quotes[::2], quotes[1::2]
    ends = [ord(layout.delimiter), LINE_FEED]
    before = a[np.maximum(opening - 1, 0)]
    doubled = np.zeros(len(opening), bool)
    doubled[1:] = opening[1:] == closing[:-1] + 1
    opens = np.isin(before, ends) | doubled | (opening == 0)
    behind = a[closing + 1]
    closes = np.isin(behind, [*ends, QUOTE])
    if layout.returns:  # a record ends behind the last of these, so that there are two more bytes
        closes |= (behind == RETURN) & (a[np.minimum(closing + 2, len(a) - 1)] == LINE_FEED)
    return bool(opens.all() and closes.all())


def _find_marks_slowly(data: bytes, layout: Layout) -> Marks:
    delimiter = re.escape(layout.delimiter.encode())
    field = re.compile(rb'(?>"[^"]*(?:""[^"]*)*+(?:"|\Z))?+[^' + delimiter + rb"\n]*[" + delimiter + rb"\n]")
    found, place = [], 0
    while one := field.match(data, place):
        place = one.end()
        found.append(place - 1)
    return np.array(found, np.int64)


def _skip_record(data: bytes, file: BinaryIO, layout: Layout) -> bytes:
    """What follows the record that `data` is the beginning of."""
    delimiter = re.escape(layout.delimiter.encode())
    closing = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
    turning = re.compile(rb"\n|" + delimiter + rb'"')
    quoted, place = data.startswith(b'"'), int(data.startswith(b'"'))
    while True:
        one = closing.match(data, place) if quoted else turning.search(data, place)
        if one is not None and not (quoted and one.end() == len(data)):
            place = one.end()
            if data[place - 1] == LINE_FEED and not quoted:
                return data[place:]
            quoted = not quoted
            continue
        # A quotation mark or delimiter at the end may be half of what is looked for.
        behind = data[place:]
        held = (
            (len(behind) - len(behind.rstrip(b'"'))) % 2 if quoted else int(behind.endswith(layout.delimiter.encode()))
        )
        block = file.read(BLOCK)
        if not block:
            return b""
        data, place = behind[len(behind) - held :] + block, 0


# ── cutting them out ──


def _cut_fields(data: bytes, marks: Marks, layout: Layout, wanted: Sequence[int]) -> list[Any]:
    """Whole records, from their marks."""
    last = np.flatnonzero(_bytes(data)[marks] == LINE_FEED)
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = marks[last] - np.concatenate([[0], marks[last[:-1]] + 1])
    complete = (last - first + 1 >= layout.width) & (lengths <= LONGEST_RECORD)
    if layout.width == 1:
        complete &= lengths > int(layout.returns)  # an empty line is no record
    first, last = first[complete], last[complete]
    # Everything between two marks, with the mark before it (the very first gets one).
    offsets = np.concatenate([[0], marks + 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"\n" + data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(marks), buffers)
    found = []
    for place in wanted:
        field = pc.binary_slice(pieces.take(pa.array(first + place)), 1, MOST)
        if layout.returns and place == layout.width - 1:
            ending = pc.and_(pa.array(first + place == last), pc.ends_with(field, b"\r"))
            field = pc.if_else(ending, pc.binary_slice(field, 0, -1), field)
        if b'"' in data:
            quoted = pc.and_(pc.ends_with(field, b'"'), pc.greater(pc.binary_length(field), 1))
            quoted = pc.and_(pc.starts_with(field, b'"'), quoted)
            inner = pc.replace_substring(pc.binary_slice(field, 1, -1), b'""', b'"')
            field = pc.if_else(quoted, inner, field)
        found.append(pc.if_else(pc.equal(pc.binary_length(field), 0), pa.scalar(None, pa.binary()), field))
    return found


ENDINGS = {".csv": "CSV", ".tsv": "CSV", ".csv.gz": "CSV", ".tsv.gz": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}
DELIMITERS = ",;\t|"
LONGEST_HEADER = 1_000_000
MOST_FILES = 100_000
ROWS = 2**17
"""Of Parquet that are read at a time."""
TEXT = pa.string()
Places = Mapping[str | None, int]
"""Where the wanted columns are in a file."""
Apart = Mapping[str | None, str | None]
"""The values of those that the names of its folders stand for."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What folders are called where the value is missing."""


def open_files(path: Path, domain: Domain, columns: Collection[str] | None) -> Source:
    """A file or folder."""
    files, kind = find_files(path)
    names, progress, parts = wanted_columns(domain, columns), Reading(), []
    headers = [read_header(file) for file in files] if kind == "CSV" else []
    for file, header in zip(files, headers, strict=False):
        if header != headers[0]:
            raise TableError(
                f"{file} has a different header from {files[0]}; give all files of a folder the same columns"
            )
    for file in files:
        beside = _folder_keys(file, path.absolute())
        if headers:
            titles, layout = headers[0]
            types, read = [TEXT] * len(titles), partial(_read_csv, layout)
        else:
            schema = read_parquet_schema(file)
            titles, types, read = schema.names, schema.types, partial(_read_parquet, schema.names)
        # What is wanted, in the spelling of the file, or else of its folders.
        held = {fold(name) for name in titles}
        available = [*titles, *(key for key in beside if fold(key) not in held)]
        chosen = {key: find_name(name, available, str(file), secret=bool(headers)) for key, name in names.items()}
        inside = {key: titles.index(name) for key, name in chosen.items() if name in titles}
        apart = {key: beside[name] for key, name in chosen.items() if key not in inside}
        batches = partial(read, file, inside, apart, progress, len(files))
        parts.append(Part({key: types[place] for key, place in inside.items()} | dict.fromkeys(apart, TEXT), batches))
    return open_stream(str(path), chosen, parts, domain, progress)


def _folder_keys(file: Path, folder: Path) -> dict[str, str | None]:
    """The columns that the names of folders stand for."""
    if file == folder:
        return {}
    parts = [part.partition("=") for part in file.relative_to(folder).parts[:-1] if "=" in part]
    return {unquote(key): None if value == NO_VALUE else unquote(value) for key, _, value in parts}


def kind_of_file(path: Path) -> str | None:
    """The kind of table in a file, by its name."""
    name = path.name.lower()
    return next((kind for end, kind in ENDINGS.items() if name.endswith(end)), None)


def find_files(path: Path) -> tuple[list[Path], str]:
    """The files of a table, all of one kind and readable, and the kind."""
    if not path.exists():
        raise TableError(f"there is no file or folder {path}")
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if kind_of_file(file) and file.is_file())
        hidden = (".", "_")
        files = [one for one in files if not any(p.startswith(hidden) for p in one.relative_to(path).parts)]
        if not files:
            raise TableError(f"the folder {path} holds no table; it should hold files ending in {', '.join(ENDINGS)}")
        if len(files) > MOST_FILES:
            raise TableError(f"the folder {path} holds more than {MOST_FILES} files; merge them")
    elif not path.is_file():
        raise TableError(f"{path} is a device, a pipe or a socket; give a regular file or a folder")
    else:
        files = [path]
    kinds = {kind_of_file(file) for file in files}
    if len(kinds) > 1:
        raise TableError(f"the folder {path} mixes CSV and Parquet files; keep one kind in it")
    kind = kinds.pop()
    if kind is None:
        raise TableError(f"{path} is not a table that can be read; its name should end in {', '.join(ENDINGS)}")
    for file in files:
        if not os.access(file, os.R_OK):
            raise TableError(f"{file} cannot be read: permission denied")
    return [file.absolute() for file in files], kind


# ── Parquet ──


def read_parquet_schema(file: Path) -> Any:
    """The names and types of the columns."""
    from pyarrow import parquet

    return shield(lambda: parquet.read_schema(file), f"reading the schema of {file}")


def _read_parquet(
    names: Sequence[str], file: Path, inside: Places, apart: Apart, progress: Reading, files: int
) -> Batches:
    """The columns inside a file, and those that its folders' names stand for."""
    from pyarrow import parquet

    with parquet.ParquetFile(file) as opened:
        share = 1 / max(1, opened.metadata.num_rows) / files
        for batch in opened.iter_batches(ROWS, columns=list(dict.fromkeys(names[i] for i in inside.values()))):
            values = {key: batch.column(names[place]) for key, place in inside.items()}
            yield batch.num_rows, values | repeat(apart, batch.num_rows)
            progress.advance(batch.num_rows * share)


def _read_csv(layout: Layout, file: Path, inside: Places, apart: Apart, progress: Reading, files: int) -> Batches:
    """The same as texts."""
    size = max(1, file.stat().st_size) * files
    with _open_unzipped(file) as (opened, raw):
        opened.readline(LONGEST_HEADER + 1)
        done = 0
        for arrays in read_records(opened, layout, list(inside.values()) or [0]):
            texts = [array.view(TEXT) for array in arrays]  # as yet unchecked
            rows = len(texts[0])
            yield rows, dict(zip(inside, texts, strict=False)) | repeat(apart, rows)
            progress.advance((raw.tell() - done) / size)
            done = raw.tell()


@contextmanager
def _open_unzipped(file: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file's bytes, unzipped, and the file itself."""
    with open_regular(file) as raw:
        if file.name.lower().endswith(".gz"):
            with gzip.open(raw, "rb") as unzipped:
                yield unzipped, raw  # type: ignore[misc]
        else:
            yield raw, raw


def read_header(file: Path) -> tuple[list[str], Layout]:
    """The names in the first line, and what it says about all lines: its delimiter is the one that is there most."""
    try:
        with _open_unzipped(file) as (opened, _):
            line = opened.readline(LONGEST_HEADER + 1)
        if re.search(rb"\r(?!\n)", line):  # before anything that stands behind it is looked at
            raise TableError(f"the header of {file} ends with a carriage return alone; save the file with line feeds")
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise TableError(f"the header of {file} is not text in UTF-8; save the file as UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'not a gzip file'}") from None
    if len(line) > LONGEST_HEADER:
        raise TableError(f"the header of {file} is longer than {LONGEST_HEADER} bytes; is it a CSV file?")
    if not text:
        raise TableError(f"{file} has no header; its first line should name the columns")
    delimiter = "\t" if ".tsv" in "".join(file.suffixes).lower() else max(DELIMITERS, key=text.count)
    try:
        names = next(csv.reader([text], delimiter=delimiter))
    except csv.Error:
        raise TableError(f"the header of {file} is not a line of CSV; its first line should name the columns") from None
    return names, Layout(delimiter, len(names), line.endswith(b"\r\n"))
