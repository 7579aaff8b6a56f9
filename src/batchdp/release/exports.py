"""Released tables as files, one per table: Parquet or CSV, in a folder that appears whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from batchdp.archive import check_folder, write_folder
from batchdp.errors import ReleaseError
from batchdp.release.beside import Beside, unused
from batchdp.release.release import Release
from batchdp.text import Progress

Format = Literal["parquet", "csv"]
Columns = Mapping[str, Any]

LONGEST_NAME = 100
"""Bytes."""
NUMBER = re.compile(r"[+-]\d+(\.\d*)?")
INDEX = "tables.json"
"""What every file holds: names, columns, rows, and the release's id."""


def export(
    release: Release | Beside,
    folder: str | os.PathLike[str],
    *,
    format: Format = "parquet",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write every table to a file of its own in a new folder; the result is the files, in the order of the tables.

    Args:
        release: a release; or what its `consistent()` or `denoised()` returns, for a column of such values beside the
            noisy ones. The index and every Parquet file say what is counted and what these values are.
        folder: made if it does not exist; refused if it holds anything.
        format: "parquet" or "csv".
        overwrite: replace a folder that holds something.
        progress: called with (share done, what is being done).
    """
    if format not in WRITERS:
        raise ReleaseError(f"format={format!r} must be " + " or ".join(f'"{one}"' for one in WRITERS))
    target = check_folder(folder, "export", INDEX, ReleaseError, overwrite=overwrite)
    more, source = (release, release.release) if isinstance(release, Beside) else (None, release)
    count = len(source.tables)
    notes = (*source.notes, *(() if more is None else more.notes))
    index, written = [], []
    with write_folder(target, ReleaseError, overwrite=overwrite) as beside:
        for t, (name, columns) in enumerate(tables_of(source)):
            entry = index_entry(t, count, name, columns, format, derived_in(source, t))
            if more is not None:
                columns = {**columns, unused(more.heading, columns): more.array(t).reshape(-1)}
            WRITERS[format](beside / entry["file"], columns, entry["columns"], notes)
            index.append(entry)
            written.append(target / entry["file"])
            if progress is not None:
                progress((t + 1) / count, "writing tables")
        (beside / INDEX).write_text(index_text(source, index, notes), encoding="utf-8")
    return written


def index_text(release: Release, tables: list[dict[str, Any]], notes: Sequence[str]) -> str:
    """The index of a folder of tables, with what is counted and what else must be said."""
    content = {"release_id": release.certificate.release_id, "tables": tables, **({"notes": notes} if notes else {})}
    return json.dumps(content, ensure_ascii=False, indent=1)


def index_entry(
    number: int, count: int, name: str, columns: Columns, format: str, derived: list[str]
) -> dict[str, Any]:
    """What the index says about one of so many tables, its derived answers among them where it has any."""
    file = f"{number + 1:0{len(str(count))}d}-{_plain(name)}.{format}"
    found = {"file": file, "name": name, "columns": list(columns)[:-4], "rows": len(columns["value"])}
    return {**found, "derived": derived} if derived else found


def derived_in(release: Release, table: int) -> list[str]:
    """The names of a table's derived answers."""
    one = release.tables[table]
    return [release.asked[one.answers[k]].name for k in np.flatnonzero(release.derived_in(one)).tolist()]


def tables_of(release: Release) -> Iterator[tuple[str, Columns]]:
    """The name and columns of every table; the last four are value, standard_error, low, high."""
    for t, table in enumerate(release.tables):
        yield table.name, release.columns(t)


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


def _csv(path: Path, columns: Columns, _groups: list[str], _said: tuple[str, ...]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(no_formula, columns))
        cells = ([no_formula(one) for one in c] if c.dtype == object else _known(c) for c in columns.values())
        writer.writerows(zip(*cells, strict=True))


WRITERS: dict[str, Callable[[Path, Columns, list[str], tuple[str, ...]], None]] = {"parquet": _parquet, "csv": _csv}
"""How a table is written, by the ending of its file: where, its columns, which of them are groups, and the notes."""


def _known(figures: NDArray[Any]) -> list[Any]:
    return ["" if one != one else one for one in figures.tolist()]


def no_formula(text: str | None) -> str:
    """Spreadsheets take a text that starts like a formula for one; numbers stay numbers, and nothing is nothing."""
    if text is None:
        return ""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not NUMBER.fullmatch(text) else text
