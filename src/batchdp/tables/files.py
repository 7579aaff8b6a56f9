"""CSV and Parquet files, one or a folder of them, read by an embedded DuckDB that reads nothing else."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from batchdp.domain import Domain
from batchdp.errors import TableError
from batchdp.tables.duck import DuckEngine, lock, named_table, own_database
from batchdp.tables.kinds import find_name, kind_of, needed, refuse_twins
from batchdp.tables.shield import shielded

ENDINGS = {".csv": "CSV", ".tsv": "CSV", ".csv.gz": "CSV", ".tsv.gz": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}
DATABASES = (".duckdb", ".db", ".ddb")
DELIMITERS = ",;\t|"
LONGEST_HEADER = 1_000_000
MOST_FILES = 100_000
PARSED = {"text": "{}", "integer": "TRY_CAST({} AS DOUBLE)", "number": "TRY_CAST({} AS DOUBLE)"}
PARSED |= {"boolean": "TRY_CAST({} AS BOOLEAN)", "date": "TRY_CAST({} AS DATE)"}


def open_files(path: Path, domain: Domain, columns: Collection[str] | None) -> tuple[str, Any, DuckEngine]:
    """Description, ibis table and engine of a file or folder."""
    files, kind = found(path)
    description = str(path)
    select = _csv(files, domain, columns) if kind == "CSV" else _parquet(files, domain, columns)
    undo = ExitStack()
    connection = own_database()
    undo.callback(connection.close)
    with undo:

        def bind() -> Any:
            connection.execute(f"CREATE TEMP VIEW records AS {select}")
            lock(connection, files)
            return named_table(connection, "records", None, description)

        table = shielded(bind, f"reading the schema of {path}")
        return description, table, DuckEngine(connection, undo.pop_all())


def ending(path: Path) -> str | None:
    """The kind of table in a file, by its name."""
    name = path.name.lower()
    return next((kind for end, kind in ENDINGS.items() if name.endswith(end)), None)


def found(path: Path) -> tuple[list[Path], str]:
    """The files of a table, all of one kind and readable, and the kind."""
    if not path.exists():
        raise TableError(f"there is no file or folder {path}")
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if ending(file) and file.is_file() and not _hidden(file, path))
        if not files:
            raise TableError(f"the folder {path} holds no table; it should hold files ending in {', '.join(ENDINGS)}")
        if len(files) > MOST_FILES:
            raise TableError(f"the folder {path} holds more than {MOST_FILES} files; merge them")
    else:
        files = [path]
    kinds = {ending(file) for file in files}
    if len(kinds) > 1:
        raise TableError(f"the folder {path} mixes CSV and Parquet files; keep one kind in it")
    kind = kinds.pop()
    if kind is None:
        raise TableError(f"{path} is not a table that can be read; its name should end in {', '.join(ENDINGS)}")
    for file in files:
        if not os.access(file, os.R_OK):
            raise TableError(f"{file} cannot be read: permission denied")
    return [file.absolute() for file in files], kind


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _parquet(files: list[Path], domain: Domain, columns: Collection[str] | None) -> str:
    from pyarrow import parquet  # type: ignore[import-untyped]

    for file in files:
        names = shielded(lambda file=file: parquet.read_schema(file).names, f"reading the schema of {file}")  # type: ignore[misc]
        refuse_twins(names, needed(domain, columns), str(file))
    # By name, so that the files' types are reconciled from their schemas before any is read.
    return f"SELECT * FROM read_parquet({_literals(files)}, union_by_name = true)"


def _csv(files: list[Path], domain: Domain, columns: Collection[str] | None) -> str:
    """Nothing is guessed from the records: names and delimiter come from the header, types from the domain."""
    names, delimiter = header(files[0])
    for file in files[1:]:
        if header(file) != (names, delimiter):
            raise TableError(f"{file} has another header than {files[0]}; give all files of a folder the same columns")
    chosen = []
    for name in needed(domain, columns):
        actual = find_name(name, names, str(files[0]))
        declared = domain.column(name)
        kind = "text" if declared is None else kind_of(domain.columns[declared])
        chosen.append(f"{PARSED[kind].format(f'c{names.index(actual)}')} AS {_quoted(actual)}")
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(names)))
    return " UNION ALL ".join(
        f"SELECT {', '.join(chosen) or 'c0'} FROM read_csv({_literals(part)}, columns = {{{types}}}, header = true, "
        f"delim = {_literal(delimiter)}, quote = '\"', escape = '\"', nullstr = '', auto_detect = false, "
        f"strict_mode = false, ignore_errors = true, compression = '{compression}')"
        for compression, part in {
            "none": [file for file in files if not _zipped(file)],
            "gzip": [file for file in files if _zipped(file)],
        }.items()
        if part
    )


def header(file: Path) -> tuple[list[str], str]:
    """The names in the first line, and the delimiter: the one that is there most often."""
    try:
        with gzip.open(file, "rb") if _zipped(file) else file.open("rb") as opened:
            line = opened.readline(LONGEST_HEADER + 1)
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
        return next(csv.reader([text], delimiter=delimiter)), delimiter
    except csv.Error:
        raise TableError(f"the header of {file} is not a line of CSV; its first line should name the columns") from None


def _zipped(file: Path) -> bool:
    return file.name.lower().endswith(".gz")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literals(files: list[Path]) -> str:
    # In brackets, what DuckDB takes for a pattern is a plain character.
    plain = [re.sub(r"[*?[]", r"[\g<0>]", str(file)) for file in files]
    return f"[{', '.join(map(_literal, plain))}]"
