"""Neighbours of two joined tables: a person added, removed or replaced, in one or both, in every engine.

Units are what is easily taken for somebody else; what a person moves is held against the cap of every relation.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import psycopg
import pyarrow.parquet as pq  # type: ignore[import-untyped]

import batchdp
from batchdp.errors import BatchDPError
from batchdp.release.counts import reading
from boundary.checking import NAMES, overheard
from boundary.fuzzing import Tally
from engines import postgres, spark

WHOLE: list[Any] = [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]
UNITS: dict[str, list[Any]] = {
    "texts": ["Bob", "bob", " bob", "bob ", "1", "01", "1.0", "", "é", "e\u0301", "ß", "ss", "NaN", "NULL", None],
    "whole numbers": WHOLE,
    "texts and numbers": [*WHOLE, "01", " 1", "1.0", "-0", "", "9007199254740992.0", "NaN"],
    "texts and floats": [0, 1, -1, 2**53 - 2, 2**53, 2**53 + 2, 0.5, 0.1, 1e300, "NaN", "inf", "01", "", None],
}
"""By what both tables hold; where they differ, the first texts, and the second what of these is a number."""
TYPES = {
    "texts": ("string", "string"),
    "whole numbers": ("Int64", "Int64"),
    "texts and numbers": ("string", "Int64"),
    "texts and floats": ("string", "float64"),
}
SERVERS = ("duckdb", "postgres", "spark", "parquet on spark")
"""Whose floats are refused by the schema."""
WAYS = ["pandas", "nullable", "polars", "arrow", "csv", "parquet", "mixed", *SERVERS]

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


def sides(kind: str, unit: Any) -> list[Any]:
    """What somebody is called in both tables; nothing where a table cannot hold it."""
    if unit is None or kind in ("texts", "whole numbers"):
        return [(unit,), (unit,)]
    number = not isinstance(unit, str) or (kind == "texts and floats" and unit in ("NaN", "inf"))
    there = (float(unit) if kind == "texts and floats" else unit,) if number else ()
    return [(str(unit),), there]


def database(kind: str, persons: Mapping[Any, Database]) -> dict[str, pd.DataFrame]:
    """Both tables of some persons, as objects."""
    rows: list[list[Any]] = [[], []]
    for who, own in persons.items():
        for place, (called, mine) in enumerate(zip(sides(kind, who), own, strict=True)):
            rows[place] += [(*called, *row) for row in mine if called]
    return frames(*rows)


def written(way: str, kind: str, given: dict[str, pd.DataFrame], folder: Path) -> Any:
    here, there = TYPES[kind]
    typed = {
        "patients": given["patients"].astype({"id": here}),
        "visits": given["visits"].astype({"pid": there, "fee": "Int64"}),
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
            import pyarrow as pa

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
        case "postgres":
            return _in_postgres(kind, given)
    return _in_spark(way, kind, typed, folder)


def _in_postgres(kind: str, given: dict[str, pd.DataFrame]) -> str:
    """Texts of visits have a collation to which Bob and bob are one."""
    address, types = postgres(), {"string": "text", "Int64": "int8", "float64": "float8"}
    here, there = (types[one] for one in TYPES[kind])
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "CREATE COLLATION IF NOT EXISTS blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        blind = " COLLATE blind" if there == "text" else ""
        more = {"part": ", part int4", "told": ", told bool"}
        extra = {name: "".join(more[one] for one in frame.columns if one in more) for name, frame in given.items()}
        connection.execute("DROP TABLE IF EXISTS patients, visits")
        connection.execute(f"CREATE TABLE patients (id {here}, sex text{extra['patients']})".encode())
        connection.execute(
            f"CREATE TABLE visits (pid {there}{blind}, clinic text{blind}, fee int4{extra['visits']})".encode()
        )
        for name, frame in given.items():
            rows = [tuple(None if value is pd.NA else value for value in row) for row in frame.itertuples(index=False)]
            marks = ", ".join(["%s"] * len(frame.columns))
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {name} VALUES ({marks})".encode(), rows)
    return address


def _in_spark(way: str, kind: str, typed: dict[str, pd.DataFrame], folder: Path) -> dict[str, Any]:
    """Frames, in which texts of visits have a collation to which Bob and bob are one, or Parquet files."""
    import pyarrow as pa

    session, found = spark(), {}
    for name, frame in typed.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if way == "parquet on spark":
            pq.write_table(table, folder / f"{name}.parquet")
            found[name] = session.read.parquet(str(folder / f"{name}.parquet"))
        else:
            found[name] = session.createDataFrame(table)
    if way == "spark" and kind == "texts":
        blind = found["visits"]["pid"].cast("string collate UTF8_LCASE")
        found["visits"] = found["visits"].withColumn("pid", blind)
    return found


@cache
def plan() -> batchdp.Plan:
    """What is counted of every pair."""
    return batchdp.plan(SQL, DOMAIN, cache=False, seconds=0.3)


def fuzz(way: str, seed: int, pairs: int) -> Tally:
    """So many pairs of databases that differ in one person."""
    rng, tally = Random(f"{way} {seed}"), Tally()
    kinds = [kind for kind in sorted(UNITS) if not (kind == "texts and floats" and way in SERVERS)]
    with tempfile.TemporaryDirectory() as folder:
        while tally.pairs < pairs:
            if "spark" not in way:
                _try_one(tally, rng, way, rng.choice(kinds), Path(folder), seed)
            if "spark" in way or pairs - tally.pairs >= PARTS:
                _try_stack(tally, rng, way, rng.choice(kinds), Path(folder), seed)
    return tally


def _try_one(tally: Tally, rng: Random, way: str, kind: str, folder: Path, seed: int) -> None:
    """A database with some neighbours, and what is measured of them."""
    units = [one for one in UNITS[kind] if way != "csv" or one != ""]  # which CSV has for NULL
    persons = _persons(rng, units)
    here = _seen(way, kind, database(kind, persons), folder)
    for _ in range(3):
        other, factor, who = _changed(rng, units, persons)
        there = _seen(way, kind, database(kind, other), folder)
        _judge(tally, here, there, factor, f"{way}, {kind}, seed {seed}: {who!r}")


def _persons(rng: Random, units: list[Any]) -> dict[Any, Database]:
    return {who: _person(rng) for who in rng.sample(units, rng.randrange(2, len(units)))}


def _changed(rng: Random, units: list[Any], persons: dict[Any, Database]) -> tuple[dict[Any, Database], int, Any]:
    """A neighbour, how many persons' worth it differs by, and who it is."""
    other, factor, who = dict(persons), 1, rng.choice(units)
    other[who] = _person(rng)
    if who in persons and rng.random() < 0.5:
        del other[who]
    elif who in persons:
        factor = 2
    return other, factor, who


def _person(rng: Random) -> Database:
    patients = [(rng.choice(["f", "m", "x", None]),) for _ in range(rng.randrange(4))]
    clinics, fees = ["c1", "c2", "c3", "c9", None], [0, 1, 2, 3, 7, -1, None]
    visits = [(rng.choice(clinics), rng.choice(fees)) for _ in range(rng.randrange(6))]
    return patients, visits


def _seen(
    way: str, kind: str, given: dict[str, pd.DataFrame], folder: Path, asked: Callable[[], batchdp.Plan] = plan
) -> tuple[str, str, Any]:
    """The refusal or failure, what was heard, and the exact counts."""
    table = written(way, kind, given, folder)
    with overheard() as heard, ExitStack() as opened:
        try:
            counts: Any = reading(asked().batch, asked(), opened, table, None)()
        except BatchDPError as error:
            return f"refused: {NAMES.sub('…', str(error))}", heard(), None
        except Exception as error:
            return f"failed: {type(error).__name__}: {error}", heard(), None
        return "", heard(), counts.counts.astype(object)


# ── many databases at once: what takes time is to make the queries, and on Spark to run them ──

PARTS = 20
STACKED: dict[str, Any] = {
    **DOMAIN,
    "tables": {
        name: {**own, "columns": {**own["columns"], "part": {"integers": [0, PARTS - 1]}}}
        for name, own in DOMAIN["tables"].items()
    },
}
EACH = """
SELECT p.part, sex, clinic, COUNT(*) AS a FROM patients p JOIN visits ON id = pid GROUP BY p.part, sex, clinic;
SELECT p.part, clinic, COUNT(*) AS b FROM patients p LEFT JOIN visits ON id = pid WHERE fee >= 1 OR fee IS NULL
  GROUP BY p.part, clinic;
SELECT part, clinic, COUNT(DISTINCT pid) AS c FROM visits WHERE fee <> 2 GROUP BY GROUPING SETS ((part, clinic), part);
SELECT p.part, sex, COUNT(DISTINCT id) AS d FROM patients p JOIN visits ON id = pid GROUP BY p.part, sex;
SELECT part, n, COUNT(*) AS e FROM (SELECT pid, MIN(part) AS part, COUNT(*) AS n, SUM(fee) AS f, MAX(fee) AS m
  FROM visits WHERE clinic <> 'c3' GROUP BY pid) WHERE f <> 2 OR m = 1 GROUP BY part, n;
SELECT part, sex, COUNT(*) AS g FROM patients GROUP BY part, sex
"""
MOVED = {"a": 6, "b": 6, "c": 3 + 1, "d": 2, "e": 1, "g": 2}
"""By how much one person of a part changes the answers of every statement that are about the part: the caps."""


@cache
def stacked() -> batchdp.Plan:
    """The same statements as `plan`, for every part."""
    return batchdp.plan(EACH, STACKED, cache=False, seconds=0.3)


def _try_stack(tally: Tally, rng: Random, way: str, kind: str, folder: Path, seed: int) -> None:
    """Pairs of databases side by side, with nobody in two of them."""
    units = UNITS[kind]
    bases = [_persons(rng, units) for _ in range(PARTS)]
    others = [_changed(rng, units, persons) for persons in bases]
    if "spark" in way:
        spark().conf.set("spark.sql.ansi.enabled", str(rng.random() < 0.5).lower())
    here, there = (
        _seen(way, kind, _stack(kind, persons), folder, stacked) for persons in (bases, [other for other, *_ in others])
    )
    tally.pairs += PARTS
    if here[:2] != there[:2] or here[0]:
        tally.problems.append(f"{way}, {kind}, seed {seed}: {here[:2]} against {there[:2]}")
        return
    moved = np.abs(np.asarray(stacked().workload.matrix @ (there[2] - here[2]).astype(float)))
    for part, (_, factor, who) in enumerate(others):
        for name, allowed in MOVED.items():
            own = re.compile(rf"{name}\[(.*, )?part={part}(, .*)?\]")
            steps = sum(step for one, step in zip(stacked().asked, moved, strict=True) if own.fullmatch(one.name))
            tally.closest = max(tally.closest, steps / (allowed * factor))
            if steps > allowed * factor:
                tally.problems.append(f"{way}, {kind}, seed {seed}: {who!r} moves {name} by {steps}")


def _stack(kind: str, databases: list[dict[Any, Database]]) -> dict[str, pd.DataFrame]:
    """One database of all; numbers stay where a float takes every other one for its neighbour, if none is a float."""
    whole = [one for one in UNITS[kind] if isinstance(one, int)]
    start = 2**53 if kind != "texts and floats" else 2**53 - 16 * PARTS

    def named(part: int, who: Any) -> Any:
        if who in whole:
            return start + 16 * part + whole.index(who)
        return None if who is None else f"0{start + 16 * part}" if who == "01" else f"{part}:{who}"

    found = [database(kind, {named(part, who): own for who, own in one.items()}) for part, one in enumerate(databases)]
    return {
        name: pd.concat([one[name].assign(part=part) for part, one in enumerate(found)], ignore_index=True)
        for name in found[0]
    }


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
