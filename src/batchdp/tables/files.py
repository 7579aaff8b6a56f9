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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain
from batchdp.domain.names import fold
from batchdp.errors import TableError
from batchdp.regular import open_regular
from batchdp.tables.columns import Wanted, find_name, wanted_columns
from batchdp.tables.duck import Batches, Part, Reading, open_stream, repeat
from batchdp.tables.separated import Layout, read_records
from batchdp.tables.source import Source, shield

ENDINGS = {".csv": "CSV", ".tsv": "CSV", ".csv.gz": "CSV", ".tsv.gz": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}
DELIMITERS = ",;\t|"
LONGEST_HEADER = 1_000_000
MOST_FILES = 100_000
ROWS = 2**17
"""Of Parquet that are read at a time."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What folders are called where the value is missing."""


def open_files(path: Path, domain: Domain, columns: Collection[str] | None) -> Source:
    """A file or folder."""
    files, kind = find_files(path)
    keys = [_folder_keys(file, path.absolute()) for file in files]
    progress = Reading()
    names, parts = (_csv_parts if kind == "CSV" else _parquet_parts)(
        files, keys, wanted_columns(domain, columns), progress
    )
    return open_stream(str(path), names, parts, domain, progress)


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
        files = sorted(
            file for file in path.rglob("*") if kind_of_file(file) and file.is_file() and not _is_hidden(file, path)
        )
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


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


# ── Parquet ──


def read_parquet_schema(file: Path) -> Any:
    """The names and types of the columns."""
    from pyarrow import parquet

    return shield(lambda: parquet.read_schema(file), f"reading the schema of {file}")


def _parquet_parts(
    files: list[Path], keys: list[dict[str, str | None]], names: Wanted, progress: Reading
) -> tuple[Wanted, list[Part]]:
    parts = []
    for file, beside in zip(files, keys, strict=True):
        schema = read_parquet_schema(file)
        types = {**dict.fromkeys(beside, pa.string()), **dict(zip(schema.names, schema.types, strict=True))}
        chosen = _choose_columns(names, schema.names, beside, file)
        inside = {key: name for key, name in chosen.items() if name in schema.names}
        apart = {key: beside[name] for key, name in chosen.items() if key not in inside}
        batches = _ParquetFile(file, inside, apart, progress, len(files))
        parts.append(Part({key: types[name] for key, name in chosen.items()}, batches))
    return chosen, parts


@dataclass(frozen=True)
class _ParquetFile:
    """The batches of a file: the columns inside it, and those that its folders' names stand for."""

    file: Path
    inside: Wanted
    apart: Mapping[str | None, str | None]
    progress: Reading
    files: int

    def __call__(self) -> Batches:
        from pyarrow import parquet

        with parquet.ParquetFile(self.file) as opened:
            share = 1 / max(1, opened.metadata.num_rows) / self.files
            for batch in opened.iter_batches(ROWS, columns=list(dict.fromkeys(self.inside.values()))):
                values = {key: batch.column(name) for key, name in self.inside.items()}
                yield batch.num_rows, values | repeat(self.apart, batch.num_rows)
                self.progress.advance(batch.num_rows * share)


def _choose_columns(
    names: Wanted, inside: list[str], beside: Mapping[str, str | None], file: Path, *, secret: bool = False
) -> Wanted:
    """What is wanted, in the spelling of the file, or else of its folders."""
    held = {fold(name) for name in inside}
    available = [*inside, *(key for key in beside if fold(key) not in held)]
    return {key: find_name(name, available, str(file), secret=secret) for key, name in names.items()}


# ── CSV ──


def _csv_parts(
    files: list[Path], keys: list[dict[str, str | None]], names: Wanted, progress: Reading
) -> tuple[Wanted, list[Part]]:
    titles, layout = read_header(files[0])
    for file in files[1:]:
        if read_header(file) != (titles, layout):
            raise TableError(f"{file} has another header than {files[0]}; give all files of a folder the same columns")
    parts = []
    for file, beside in zip(files, keys, strict=True):
        chosen = _choose_columns(names, titles, beside, file, secret=True)
        inside = {key: titles.index(name) for key, name in chosen.items() if name in titles}
        apart = {key: beside[name] for key, name in chosen.items() if key not in inside}
        batches = _CSVFile(file, layout, inside, apart, progress, len(files))
        parts.append(Part(dict.fromkeys(chosen, pa.string()), batches))
    return chosen, parts


@dataclass(frozen=True)
class _CSVFile:
    """The batches of a file, as texts."""

    file: Path
    layout: Layout
    inside: Mapping[str | None, int]
    apart: Mapping[str | None, str | None]
    progress: Reading
    files: int

    def __call__(self) -> Batches:
        size = max(1, self.file.stat().st_size) * self.files
        places = list(self.inside.values()) or [0]
        with _open_unzipped(self.file) as (opened, raw):
            opened.readline(LONGEST_HEADER + 1)
            done = 0
            for arrays in read_records(opened, self.layout, places):
                texts = [array.view(pa.string()) for array in arrays]  # as yet unchecked
                rows = len(texts[0])
                yield rows, dict(zip(self.inside, texts, strict=False)) | repeat(self.apart, rows)
                self.progress.advance((raw.tell() - done) / size)
                done = raw.tell()


@contextmanager
def _open_unzipped(file: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file's bytes, unzipped, and the file itself."""
    with open_regular(file) as raw:
        if _is_zipped(file):
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


def _is_zipped(file: Path) -> bool:
    return file.name.lower().endswith(".gz")
