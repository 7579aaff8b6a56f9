"""Neighbours of two joined tables: a person added, removed or replaced, in one or both, in every engine.

Units are what is easily taken for somebody else; what a person moves is held against the cap of every relation.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import psycopg

import batchdp
from batchdp.errors import BatchDPError
from batchdp.release.counts import reading
from boundary.checking import NAMES, overheard
from boundary.fuzzing import Tally
from engines import postgres

UNITS: dict[str, list[Any]] = {
    "texts": ["Bob", "bob", " bob", "bob ", "1", "01", "1.0", "", "é", "e\u0301", "ß", "ss", "NaN", "NULL", None],
    "whole numbers": [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None],
}
WAYS = ["pandas", "nullable", "polars", "arrow", "csv", "parquet", "mixed", "duckdb", "postgres"]

DOMAIN: dict[str, Any] = {
    "privacy": {"unit": "id"},
    "tables": {
        "patients": {"rows_per_unit": 2, "columns": {"sex": {"values": ["f", "m"]}}},
        "visits": {
            "unit": "pid",
            "rows_per_unit": 3,
            "columns": {"clinic": {"values": ["c1", "c2", "c3"], "other": "drop"}, "fee": {"integers": [0, 3]}},
        },
    },
}
SQL = """
SELECT sex, clinic, COUNT(*) AS a FROM patients JOIN visits ON id = pid GROUP BY sex, clinic;
SELECT clinic, COUNT(*) AS b FROM patients LEFT JOIN visits ON id = pid WHERE fee >= 1 OR fee IS NULL GROUP BY clinic;
SELECT clinic, COUNT(DISTINCT pid) AS c FROM visits WHERE fee <> 2 GROUP BY ROLLUP (clinic);
SELECT sex, COUNT(DISTINCT id) AS d FROM patients JOIN visits ON id = pid GROUP BY sex;
SELECT n, COUNT(*) AS e FROM (SELECT pid, COUNT(*) AS n, SUM(fee) AS f, MAX(fee) AS m FROM visits WHERE clinic <> 'c3'
  GROUP BY pid) WHERE f <> 2 OR m = 1 GROUP BY n;
SELECT sex, COUNT(*) AS g FROM patients GROUP BY sex
"""
Database = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]


def frames(patients: list[tuple[Any, ...]], visits: list[tuple[Any, ...]]) -> dict[str, pd.DataFrame]:
    return {
        "patients": pd.DataFrame(patients, columns=["id", "sex"], dtype=object),
        "visits": pd.DataFrame(visits, columns=["pid", "clinic", "fee"], dtype=object),
    }


def written(way: str, kind: str, given: dict[str, pd.DataFrame], folder: Path) -> Any:
    type_ = {"texts": "string", "whole numbers": "Int64"}[kind]
    typed = {
        name: frame.astype(
            {"id" if name == "patients" else "pid": type_} | ({"fee": "Int64"} if name == "visits" else {})
        )
        for name, frame in given.items()
    }
    match way:
        case "pandas":
            return given
        case "nullable":
            return typed
        case "polars":
            import polars as pl

            return {name: pl.from_pandas(frame) for name, frame in typed.items()}
        case "arrow":
            import pyarrow as pa  # type: ignore[import-untyped]

            return {name: pa.Table.from_pandas(frame) for name, frame in typed.items()}
        case "csv":
            for name, frame in typed.items():
                frame.to_csv(folder / f"{name}.csv", index=False)
            return {name: folder / f"{name}.csv" for name in typed}
        case "parquet" | "mixed":
            for name, frame in typed.items():
                frame.to_parquet(folder / f"{name}.parquet")
            files = {name: folder / f"{name}.parquet" for name in typed}
            return files if way == "parquet" else files | {"patients": given["patients"]}
        case "duckdb":
            with duckdb.connect(str(folder / "care.duckdb")) as connection:
                for name, frame in typed.items():
                    connection.register("given", frame)
                    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
            return folder / "care.duckdb"
    address, held = postgres(), {"texts": "text", "whole numbers": "int8"}[kind]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "CREATE COLLATION IF NOT EXISTS blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        blind = " COLLATE blind" if kind == "texts" else ""
        connection.execute("DROP TABLE IF EXISTS patients, visits")
        connection.execute(f"CREATE TABLE patients (id {held}, sex text)")
        connection.execute(f"CREATE TABLE visits (pid {held}{blind}, clinic text, fee int4)")
        for name, frame in given.items():
            rows = [tuple(None if value is pd.NA else value for value in row) for row in frame.itertuples(index=False)]
            marks = ", ".join(["%s"] * len(frame.columns))
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return address


@cache
def plan() -> batchdp.Plan:
    """What is counted of every pair."""
    return batchdp.plan(SQL, DOMAIN, cache=False, seconds=0.3)


def fuzz(way: str, seed: int, pairs: int) -> Tally:
    """So many pairs of databases that differ in one person."""
    rng, tally = Random(f"{way} {seed}"), Tally()
    with tempfile.TemporaryDirectory() as folder:
        while tally.pairs < pairs:
            kind = rng.choice(sorted(UNITS))
            units = [one for one in UNITS[kind] if way != "csv" or one != ""]  # which CSV has for NULL
            persons = {who: _person(rng) for who in rng.sample(units, rng.randrange(2, len(units)))}
            here = _seen(way, kind, persons, Path(folder))
            for _ in range(3):
                other, factor = dict(persons), 1
                who = rng.choice(units)
                other[who] = _person(rng)
                if who in persons and rng.random() < 0.5:
                    del other[who]
                elif who in persons:
                    factor = 2
                _judge(tally, here, _seen(way, kind, other, Path(folder)), factor, f"{way}, seed {seed}: {who!r}")
    return tally


def _person(rng: Random) -> Database:
    patients = [(rng.choice(["f", "m", "x", None]),) for _ in range(rng.randrange(4))]
    clinics, fees = ["c1", "c2", "c3", "c9", None], [0, 1, 2, 3, 7, -1, None]
    visits = [(rng.choice(clinics), rng.choice(fees)) for _ in range(rng.randrange(6))]
    return patients, visits


def _seen(way: str, kind: str, persons: dict[Any, Database], folder: Path) -> tuple[str, str, Any]:
    """The refusal or failure, what was heard, and the exact counts."""
    given = frames(
        [(who, *row) for who, (own, _) in persons.items() for row in own],
        [(who, *row) for who, (_, own) in persons.items() for row in own],
    )
    table = written(way, kind, given, folder)
    with overheard() as heard, ExitStack() as opened:
        try:
            counts: Any = reading(plan().batch, plan(), opened, table, None)()
        except BatchDPError as error:
            return f"refused: {NAMES.sub('…', str(error))}", heard(), None
        except Exception as error:
            return f"failed: {type(error).__name__}: {error}", heard(), None
        return "", heard(), counts.counts.astype(object)


def _judge(tally: Tally, one: tuple[str, str, Any], other: tuple[str, str, Any], factor: int, what: str) -> None:
    """Alike but for counts, and these no further apart than every relation's cap says."""
    tally.pairs += 1
    if one[:2] != other[:2] or one[0]:
        tally.problems.append(f"{what}: {one[:2]} against {other[:2]}")
        return
    cells: Any = plan().batch.cells  # type: ignore[attr-defined]
    start, difference = 0, np.abs(other[2] - one[2])
    for part in cells.parts:
        size, cap = sum(part.cells.sizes), cells.domain.tables[part.table].privacy.rows_per_unit
        moved, start = int(difference[start : start + size].sum()), start + size
        allowed = cap * part.times * factor
        tally.closest = max(tally.closest, moved / allowed)
        if moved > allowed:
            tally.problems.append(f"{what}: {part.table} moves by {moved}, allowed {allowed}")
    moved = sum(abs(int(step)) for step in plan().lattice.integers.toarray().astype(object) @ (other[2] - one[2]))
    if moved > plan().lattice.groups[0].moved * plan().factor * factor:
        tally.problems.append(f"{what}: the measurements move by {moved}")
