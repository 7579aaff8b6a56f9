"""CSV and Parquet files, written as programs write them."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from boundary.adapters import Adapter
from boundary.neighbours import Row, Storages
from boundary.storages import (
    ALL_TEXTS,
    ARROW,
    ARROW_UNITS,
    BIG_IDS,
    FLOATS,
    IDS,
    NUL_TEXTS,
    SKIP,
    TEXTS,
    WHOLE,
    Storage,
    as_day,
    as_float,
    as_text,
    as_truth,
    encoded,
)

OFFSETS = ("2020-01-01T00:00:00+05:00", "2019-12-31T23:30:00-01:00", "2020-01-01 00:00:00Z", "2020-01-01T24:00:00")
ODD_DAYS = (
    "0000-01-01",
    "10000-01-01",
    "294247-01-10",
    "9999999-01-01",
    "2020-02-30",
    "2020-1-1",
    "01/02/2020",
    "epoch",
)
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
ODD_NUMBERS = ("1e400", "-1e400", "1_000", "0x1f", "1,5", " 5 ", "+5", "5.", "٣", "1e-400", "true", "--5")


def _csv_text(fit: Any, hostile: Sequence[Any]) -> tuple[Storage, ...]:
    def fitted(value: Any) -> Any:
        found = fit(value)
        return found if found is SKIP else as_text(found)

    # An empty field is NULL: nobody's.
    return (Storage("field", fitted, tuple(map(as_text, hostile)), person=lambda value: value or None),)


CSV: dict[str, tuple[Storage, ...]] = {
    "text": _csv_text(as_text, ALL_TEXTS),
    "integer": _csv_text(as_float, (*WHOLE, *FLOATS, *TEXTS, *ODD_NUMBERS)) + _csv_text(as_text, WHOLE),
    "number": _csv_text(as_float, (*WHOLE, *FLOATS, *ALL_TEXTS, *ODD_NUMBERS)),
    "boolean": _csv_text(as_truth, ("t", "f", "yes", "1", "0", "TRUE", *TEXTS)),
    "date": _csv_text(as_day, (*OFFSETS, *ODD_DAYS, *TEXTS)),
}
CSV_UNITS = _csv_text(as_text, (*IDS, *BIG_IDS, *NUL_TEXTS))


class Csv(Adapter):
    """One file by Python's csv module, with line ends and quotes of any kind."""

    kinds = CSV
    units = CSV_UNITS

    def __init__(self, name: str, ending: str, parts: int = 1) -> None:
        super().__init__(name)
        self.ending, self.parts = ending, parts

    def manner(self, rng: Random) -> Any:
        quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        return {"lineterminator": rng.choice(["\n", "\r\n"]), "quoting": quoting, "delimiter": rng.choice(",,;|")}

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        if self.parts == 1:
            return self._written(rows, storages, folder / f"visits{self.ending}", manner)
        for i in range(self.parts):
            part = rows[len(rows) * i // self.parts : len(rows) * (i + 1) // self.parts]
            self._written(part, storages, folder / "visits" / f"{i}{self.ending}", manner)
        return folder / "visits"

    def _written(self, rows: list[Row], storages: Storages, path: Path, manner: Any) -> Path:
        text = io.StringIO(newline="")
        writer = csv.writer(text, **manner)
        writer.writerow(storages)
        writer.writerows([row[name] for name in storages] for row in rows)
        content = b"".join(encoded(line) for line in text.getvalue().splitlines(keepends=True))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, 1) if self.ending.endswith(".gz") else content)
        return path


def arrow_table(rows: list[Row], storages: Storages) -> Any:
    """The rows as an Arrow table."""
    columns = {name: storage.build([row[name] for row in rows]) for name, storage in storages.items()}
    return pa.table(columns)


PARQUET = {**ARROW, "date": tuple(storage for storage in ARROW["date"] if storage.name != "timestamp[s]")}
"""Parquet has no seconds, and what cannot be written as milliseconds PyArrow refuses."""


class Parquet(Adapter):
    """Files by PyArrow: one with row groups, a folder, or a folder with a column in its folders' names."""

    kinds = PARQUET
    units = ARROW_UNITS

    def __init__(self, name: str, layout: str) -> None:
        super().__init__(name)
        self.layout = layout

    def manner(self, rng: Random) -> Any:
        return {"row_group_size": rng.choice([1, 3, 1000]), "use_dictionary": rng.random() < 0.5}

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        if self.layout == "file":
            pq.write_table(arrow_table(rows, storages), folder / "visits.parquet", **manner)
            return folder / "visits.parquet"
        place = folder / "visits"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for i in range(2):
            part = rows[len(rows) * i // 2 : len(rows) * (i + 1) // 2]
            pq.write_table(arrow_table(part, storages), place / f"{i}.parquet", **manner)
        if self.layout == "hive":
            self._partitioned(rows, storages, place)
        return place

    def _partitioned(self, rows: list[Row], storages: Storages, place: Path) -> None:
        """As Spark and pandas write it: the last column is in the folders' names and not in the files.

        Two folders are always there, as public as the columns; others come with the records that need them.
        """
        *inside, last = storages
        shutil.rmtree(place)
        keys: dict[str, list[Row]] = {"1": [], "2": []}
        for row in rows:
            # Only what can be in a name; the rest is what Hive calls the default partition.
            text = str(row[last]) if row[last] is not None else ""
            keys.setdefault(text[:50] if text.isascii() and text.isalnum() else HIVE_NULL, []).append(row)
        for key, part in keys.items():
            (place / f"{last}={key}").mkdir(parents=True)
            table = arrow_table(part, {name: storages[name] for name in inside})
            pq.write_table(table, place / f"{last}={key}" / "0.parquet")


class PandasParquet(Adapter):
    """A folder whose files have the types that pandas found for them: floats where something is missing, text, ...

    Whatever the records, the folder is accepted or refused for all. The distance is not asked for, so that one file's
    types leave the others alone is for `test_neighbours_files.py` to show.
    """

    kinds = CSV
    units = CSV_UNITS
    measured = False

    def manner(self, rng: Random) -> Any:
        return rng.randint(1, 3)

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        import pandas as pd  # type: ignore[import-untyped]

        place = folder / "visits"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for i in range(manner):
            part = rows[len(rows) * i // manner : len(rows) * (i + 1) // manner]
            text = io.BytesIO(csv_bytes(part, storages))
            pd.read_csv(text, keep_default_na=True, encoding_errors="replace", low_memory=False).to_parquet(
                place / f"{i}.parquet"
            )
        return place


def csv_bytes(rows: list[Row], storages: Storages) -> bytes:
    """A plain CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(storages)
    writer.writerows([row[name] for name in storages] for row in rows)
    return text.getvalue().replace("\x00", "").encode("utf-8", "replace")


FILES: tuple[Adapter, ...] = (
    Csv("csv", ".csv"),
    Csv("csv.gz", ".csv.gz"),
    Csv("folder of csv", ".csv", parts=3),
    Parquet("parquet", "file"),
    Parquet("folder of parquet", "folder"),
    Parquet("hive folder of parquet", "hive"),
    PandasParquet("folder of parquet by pandas"),
)
