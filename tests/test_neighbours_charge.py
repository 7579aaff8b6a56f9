"""Nothing that depends on a record happens before the ledger is charged.

A release that the ledger refuses is the probe: by then the table is open and its schema accepted, and no record may
have been looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, answer, plan
from batchdp.domain import as_domain
from batchdp.engines import count, open_table
from batchdp.errors import BudgetError
from engines import on_spark, postgres, spark

COLUMNS = {
    "age": {"integers": [0, 120]},
    "state": {"values": ["NY", "NJ"]},
    "smoker": {"values": [True, False]},
    "visited": {"dates": ["2020-01-01", "2025-12-31"]},
}
DOMAIN = as_domain({"table": "visits", "privacy": {"unit": "who"}, "columns": COLUMNS})


@cache
def planned() -> Any:
    sql = (
        "SELECT COUNT(*) AS a FROM visits WHERE age < 18; SELECT COUNT(*) AS b FROM visits WHERE state = 'NY';"
        "SELECT COUNT(*) AS c FROM visits WHERE smoker;"
        "SELECT COUNT(*) AS d FROM visits WHERE visited > DATE '2021-01-01'"
    )
    return plan(sql, DOMAIN, cache=False)


def refused(table: Any, folder: Path) -> None:
    """Ask for more than there is."""
    ledger = Ledger.create(folder / "ledger.db", epsilon=1)
    with pytest.raises(BudgetError):
        answer(planned(), table, epsilon=2, ledger=ledger)


def accepted(table: Any, folder: Path) -> None:
    answer(planned(), table, epsilon=1, ledger=Ledger.create(folder / "enough.db", epsilon=1))


class Spy:
    """An object that notes whoever looks at it."""

    seen = 0

    def _look(self, *arguments: object) -> Any:
        type(self).seen += 1
        raise ValueError("no")

    __str__ = __float__ = __int__ = __bool__ = __repr__ = __iter__ = __len__ = _look
    __eq__ = __ne__ = _look
    __hash__ = object.__hash__


def watched() -> pd.DataFrame:
    column = np.array([Spy()], dtype=object)
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name in (*COLUMNS, "who")})


def test_pandas_objects_are_not_looked_at(tmp_path: Path) -> None:
    frame = watched()
    Spy.seen = 0
    refused(frame, tmp_path)
    assert Spy.seen == 0
    accepted(frame, tmp_path)
    assert Spy.seen > 0


def test_pandas_columns_are_not_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their type: Arrow would be asked to."""
    text = pd.Series(["NY"], dtype="str")
    kinds: dict[str, Callable[[], Any]] = {
        "str": lambda: text,
        "string[python]": lambda: text.astype("string[python]"),
        "category": lambda: text.astype("category"),
        "arrow": lambda: text.astype(pd.ArrowDtype(pa.string())),
    }
    found: list[str] = []
    original = pa.array

    def noted(*arguments: Any, **named: Any) -> Any:
        found.extend("array" for _ in arguments[0])
        return original(*arguments, **named)

    for name, kind in kinds.items():
        frame = pd.DataFrame({"age": [1], "state": kind(), "smoker": [True], "who": kind()})
        frame["visited"] = pd.Series(np.array(["2020-01-01"], "datetime64[s]"))
        with monkeypatch.context() as patched:
            patched.setattr(pa, "array", noted)
            (tmp_path / name).mkdir()
            refused(frame, tmp_path / name)
        assert not found, name


def rows() -> pl.DataFrame:
    return pl.DataFrame({"age": [17], "state": ["NY"], "smoker": [True], "who": [1]}).with_columns(
        visited=pl.date(2022, 2, 2)
    )


def test_a_lazy_frame_is_not_run(tmp_path: Path) -> None:
    ran: list[int] = []

    def note(frame: pl.DataFrame) -> pl.DataFrame:
        ran.append(len(frame))
        return frame

    frame = rows().lazy()
    lazy = frame.map_batches(note, schema=frame.collect_schema())
    refused(lazy, tmp_path)
    assert not ran
    accepted(lazy, tmp_path)
    assert ran


@pytest.mark.parametrize("form", ["connection", "relation"])
def test_a_view_is_not_read(form: str, tmp_path: Path) -> None:
    connection = duckdb.connect()
    ran: list[int] = []

    def note(age: int) -> int:
        ran.append(age)
        return age

    connection.create_function("note", note, ["BIGINT"], "BIGINT", side_effects=True)
    connection.register("arrow", rows().to_arrow())
    connection.execute("CREATE TABLE stored AS SELECT * FROM arrow")
    connection.execute("CREATE VIEW visits AS SELECT * REPLACE (note(age) AS age) FROM stored")
    table = connection if form == "connection" else connection.table("visits")
    refused(table, tmp_path)
    assert not ran
    accepted(table, tmp_path)
    assert ran


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "folder"])
def test_files_are_read_after_the_charge(form: str, tmp_path: Path) -> None:
    """What a file holds when it is counted, not what it held when it was opened."""
    place = tmp_path / ("visits" if form == "folder" else f"visits.{form}")

    def write(table: Any) -> None:
        if form.startswith("csv"):
            table.to_pandas().to_csv(place, index=False)
        elif form == "parquet":
            pq.write_table(table, place)
        else:
            place.mkdir(exist_ok=True)
            pq.write_table(table, place / "0.parquet")

    one = rows().to_arrow()
    write(one)
    with open_table(place, DOMAIN) as source:
        write(pa.concat_tables([one] * 5).set_column(3, "who", pa.array(range(5))))
        assert sum(int(numbers.sum()) for _, numbers in count(source, planned().batch.atoms, unit="who")) == 5


def single(cursor: Any) -> int:
    ((value,),) = cursor.fetchall()
    return int(value)


@pytest.mark.xdist_group("postgres")
def test_a_servers_table_is_not_scanned(tmp_path: Path) -> None:
    with psycopg.connect(postgres(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE charge")
    address = postgres().replace("/postgres?", "/charge?")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE visits (age int, state text, smoker bool, visited date, who int)")
        connection.execute("INSERT INTO visits VALUES (17, 'NY', true, '2022-02-02', 1)")

        def scans() -> int:
            """Sequential scans so far. A session reports its own when it ends, so all others must be gone."""
            others = (
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND datname = current_database() AND pid <> pg_backend_pid()"
            )
            until = time.monotonic() + 30
            while single(connection.execute(others)):
                assert time.monotonic() < until, "a session was left open"
                time.sleep(0.02)
            return single(connection.execute("SELECT seq_scan FROM pg_stat_user_tables"))

        before = scans()
        refused(f"{address}#visits", tmp_path)
        assert scans() == before
        accepted(f"{address}#visits", tmp_path)
        assert scans() > before


@on_spark
def test_spark_runs_no_job(tmp_path: Path) -> None:
    session = spark()
    frame = session.createDataFrame(rows().to_arrow())
    jobs = session.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs())
    refused(frame, tmp_path)
    assert len(jobs()) == before
    accepted(frame, tmp_path)
    assert len(jobs()) > before
