"""Released tables as files, one a table: Parquet or CSV, in a folder that appears whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import ReleaseError
from batchdp.release.components.tables import TableRelease, columns_of
from batchdp.release.consistent.notes import unused
from batchdp.release.consistent.records import Consistent
from batchdp.release.consistent.tables import ConsistentTables
from batchdp.release.records import Release
from batchdp.release.statements import statement_columns, statements

Format = Literal["parquet", "csv"]
Progress = Callable[[float, str], object]
Columns = Mapping[str, Any]

LONGEST_NAME = 100
"""Bytes."""
NUMBER = re.compile(r"[+-]\d+(\.\d*)?")
INDEX = "tables.json"
"""What every file holds: names, columns, rows, and the release's id."""


def export(
    release: Release | TableRelease | Consistent | ConsistentTables,
    folder: str | os.PathLike[str],
    *,
    format: Format = "parquet",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write every table to a file of its own in a new folder; the files, in the order of the tables.

    Args:
        release: what was released; or what its `consistent()` gives, for a column of consistent values beside the
            noisy ones, and the notes on them in the index.
        folder: made if it does not exist; one that holds anything is refused.
        format: "parquet" or "csv".
        overwrite: replace a folder that holds something.
        progress: called with (share, what is being done).
    """
    if format not in ("parquet", "csv"):
        raise ReleaseError(f'format={format!r} must be "parquet" or "csv"')
    target = _checked(folder, overwrite)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    agreeing, source = (
        (release, release.release) if isinstance(release, Consistent | ConsistentTables) else (None, release)
    )
    count = len(source.tables)
    index, written = [], []
    try:
        beside.mkdir()
        for t, (name, columns) in enumerate(_tables(source)):
            groups = list(columns)[:-4]
            if agreeing is not None:
                columns = {**columns, unused("consistent", columns): _consistent(agreeing, t)}
            file = f"{t + 1:0{len(str(count))}d}-{_plain(name)}.{format}"
            if format == "parquet":
                _parquet(beside / file, columns, groups, () if agreeing is None else agreeing.notes)
            else:
                _csv(beside / file, columns)
            rows = len(next(iter(columns.values())))
            index.append({"file": file, "name": name, "columns": groups, "rows": rows})
            written.append(target / file)
            if progress is not None:
                progress((t + 1) / count, "writing tables")
        about: dict[str, Any] = {"release_id": source.certificate.release_id, "tables": index}
        if agreeing is not None:
            about["notes"] = agreeing.notes
        text = json.dumps(about, ensure_ascii=False, indent=1)
        (beside / INDEX).write_text(text, encoding="utf-8")
        _moved(beside, target)
    except OSError as error:
        raise ReleaseError(f"cannot write {target}: {error.strerror or error}") from error
    except UnicodeEncodeError as error:
        raise ReleaseError(f"cannot write {target}: {error.object[:50]!r} is not a text that files can hold") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return written


def _tables(release: Release | TableRelease) -> Iterator[tuple[str, Columns]]:
    """The name and columns of every table; the last four are value, standard_error, low, high."""
    if isinstance(release, TableRelease):
        for t, table in enumerate(release.tables):
            yield table.name, columns_of(release, t)
        return
    for one in statements(release):
        yield one.name, statement_columns(release, one)


def _consistent(agreeing: Consistent | ConsistentTables, table: int) -> NDArray[np.float64]:
    """The consistent values of a table, in the order of its rows."""
    if isinstance(agreeing, ConsistentTables):
        return agreeing.values(table).reshape(-1)
    return agreeing.values[list(agreeing.tables[table].answers)]


def _checked(folder: str | os.PathLike[str], overwrite: bool) -> Path:
    try:
        target = Path(folder)
    except TypeError as error:
        raise ReleaseError(f"folder={folder!r} is not the name of a folder") from error
    if target.name in ("", "..") or "\0" in str(target):
        raise ReleaseError(f"folder={str(folder)!r} is not the name of a new folder")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ReleaseError(f"{target} is not a folder; name a new one")
    if not target.parent.is_dir():
        raise ReleaseError(f"the folder of {target} does not exist; create {target.parent} first")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise ReleaseError(f"{target} holds files already; name a new folder, or say that it is to be replaced")
    if target.is_dir() and overwrite and any(target.iterdir()) and not (target / INDEX).is_file():
        raise ReleaseError(f"{target} holds files that no export wrote; name a new folder")
    return target


def _moved(beside: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.{secrets.token_hex(8)}.old")
    if target.exists():
        target.rename(old)
    try:
        beside.rename(target)
    except OSError:
        with suppress(OSError):
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _plain(name: str) -> str:
    """A name that every file system takes."""
    plain = re.sub(r"[^\w.+-]+", "_", name.replace(" × ", "_")).strip("._")
    return plain.encode()[:LONGEST_NAME].decode(errors="ignore") or "table"


def _parquet(path: Path, columns: Columns, groups: list[str], said: tuple[str, ...]) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    table = pa.table(dict(columns))
    if said:
        table = table.replace_schema_metadata({"notes": " ".join(said)})
    pq.write_table(table, path, use_dictionary=[*groups, "standard_error"])


def _csv(path: Path, columns: Columns) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(no_formula, columns))
        cells = ([no_formula(one) for one in c] if c.dtype == object else c.tolist() for c in columns.values())
        writer.writerows(zip(*cells, strict=True))


def no_formula(text: str) -> str:
    """Spreadsheets take a text that starts like a formula for one; numbers stay numbers."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not NUMBER.fullmatch(text) else text
