"""The boundary to the engines: no record decides how, or whether, another is counted; none is read before the charge.

The neighbour fuzzer looks for what nobody thought of; here stands what was once wrong.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.engines import open_table, prepare_count
from batchdp.errors import BudgetError, TableError
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import LineAtoms, ListedAtoms
from boundary_cases import AGES, counted, domain, quiet
from engines import ibis_backend, postgres

__all__ = ["quiet"]


def test_one_missing_id_merges_nobody(tmp_path: Path) -> None:
    ids = [2**53 + i for i in range(100)]
    pq.write_table(pa.table({"id": ids, "age": [1] * 100}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1.0, None, 2.0], "age": [1] * 3}), tmp_path / "b.parquet")
    assert counted(tmp_path, domain("id", age={"range": [0, 120]}), AGES) == {(0,): 102}
    dataset = pa_dataset.dataset([pa_dataset.dataset(tmp_path / name) for name in ("a.parquet",)])
    assert counted(dataset, domain("id", age={"range": [0, 120]}), AGES) == {(0,): 100}


def test_a_unit_is_never_read_as_a_column(tmp_path: Path) -> None:
    ids = [2**53, 2**53 + 1, 2**53 + 2]
    line = LineAtoms("id", "number", (Cut(10),), None)
    frame = pd.DataFrame({"id": ids})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for one in (frame, frame.astype(object), tmp_path / "a.csv", pl.DataFrame({"id": ids})):
        assert counted(one, domain("id", id={"range": [0, 10]}), line) == {(1,): 3}
    text = ListedAtoms("id", "text", (("a",),), None)
    frame = pd.DataFrame({"id": pd.Series([(1, 2), (3, 4), "a"], dtype=object)})
    assert counted(frame, domain("id", id={"values": ["a"]}), text) == {(0,): 1, (1,): 2}


def test_persons_under_a_collation() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, state VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES ('bob', 'NY'), ('Bob', 'ny'), ('BOB', 'NY')")
    short = ListedAtoms("state", "text", (("NY",),), None)
    assert counted(connection, domain("who", state={"values": ["NY"]}), short) == {(0,): 2, (1,): 1}


def test_citext_knows_who_is_one_person() -> None:
    with psycopg.connect(postgres(), autocommit=True) as server:
        server.execute("CREATE EXTENSION IF NOT EXISTS citext")
        server.execute("DROP DOMAIN IF EXISTS login CASCADE; CREATE DOMAIN login AS citext")
        server.execute("DROP TABLE IF EXISTS t; CREATE TABLE t (who login, what json, state text, tag citext)")
        server.execute(
            "INSERT INTO t VALUES ('Bob', '{}', 'NY', 'NY'), ('bob', '{}', 'NY', 'ny'), ('BOB', '{}', 'NY', 'x')"
        )
    state = ListedAtoms("state", "text", (("NY",),), None)
    assert counted(f"{postgres()}#t", domain("who", state={"values": ["NY"]}), state) == {(0,): 1}
    by_ibis = ibis_backend().table("t")
    assert counted(by_ibis, domain("who", state={"values": ["NY"]}), state) == {(0,): 1}
    tag = ListedAtoms("tag", "text", (("NY",),), None)
    assert counted(f"{postgres()}#t", domain(tag={"values": ["NY"]}), tag) == {(0,): 1, (1,): 2}
    with (
        open_table(f"{postgres()}#t", domain("what", state={"values": ["NY"]})) as source,
        pytest.raises(TableError, match="preparing the count"),
    ):
        prepare_count(source, [state], unit="what")


def test_nothing_is_collected_before_the_charge(tmp_path: Path) -> None:
    seen = []

    class Watched:
        def __str__(self) -> str:
            seen.append("object")
            return "x"

    def collected(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append("lazy")
        return frame

    lazy = pl.LazyFrame({"who": [1, 2], "age": [10, 20]}).map_batches(
        collected, schema={"who": pl.Int64, "age": pl.Int64}
    )
    objects = pd.DataFrame({"who": pd.Series([Watched(), Watched()], dtype=object), "age": [10, 20]})
    declared = domain("who", age={"range": [0, 120]})
    plan = batchdp.plan("SELECT COUNT(*) AS n FROM t WHERE age < 15", declared)
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    for table in (lazy, objects):
        with pytest.raises(BudgetError):
            batchdp.answer(plan, table, epsilon=2.0, ledger=ledger)
        assert seen == []
    for table in (lazy, objects):
        batchdp.answer(plan, table, epsilon=0.25, ledger=ledger)
    assert {"lazy", "object"} <= set(seen)


@pytest.mark.parametrize("rows_per_unit", [1, 2])
def test_equal_lots_are_decided_by_the_cell_not_by_the_order(
    rows_per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchdp.engines.counting.DIGITS", 0)
    ages = LineAtoms("age", "number", tuple(Cut(k) for k in range(1, 9)), None)
    found = [
        counted(
            pa.table({"who": ["u"] * 4, "age": order}),
            domain("who", age={"range": [0, 9]}),
            ages,
            rows_per_unit=rows_per_unit,
        )
        for order in ([3, 7, 1, 5], [7, 5, 3, 1], [1, 3, 5, 7])
    ]
    assert found[0] == found[1] == found[2]
    assert sum(found[0].values()) == rows_per_unit


def test_units_of_objects_are_one_person_only_if_they_are_equal() -> None:
    berlin = timezone(timedelta(hours=1))
    groups: list[list[Any]] = [
        [np.datetime64("2020-01-01T10:00"), datetime(2020, 1, 1, 10), np.datetime64("2020-01-01T10:00:00.000")],
        [np.datetime64("2020-01-01T11:00")],
        [datetime(2020, 1, 1, 10, tzinfo=UTC), datetime(2020, 1, 1, 11, tzinfo=berlin)],
        [date(2020, 1, 1)],
        ["2020-01-01"],
        [b"a"],
        ["b'a'"],
        [(1, 2)],
        ["(1, 2)"],
        [True],
        ["true"],
        [7, 7.0, "7", np.int8(7)],
    ]
    people = [who for group in groups for who in group]
    frame = pd.DataFrame({"who": pd.Series(people, dtype=object), "age": [1] * len(people)})
    assert counted(frame, domain("who", age={"range": [0, 120]}), AGES) == {(0,): len(groups)}


def test_an_interval_is_no_unit() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT INTERVAL '1 month' AS who, 1 AS age")
    with pytest.raises(TableError, match="privacy unit 'who' is interval"):
        open_table(connection, domain("who", age={"range": [0, 120]}))
