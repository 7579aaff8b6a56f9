"""The boundary to the engines: no record decides how, or whether, another is counted; none is read before the charge.

The neighbour fuzzer looks for what nobody thought of; here stands what was once wrong.
"""

from __future__ import annotations

from collections import Counter
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
def test_equal_lots_are_decided_by_the_value_not_by_the_order(rows_per_unit: int) -> None:
    ages = LineAtoms("age", "number", tuple(Cut(k) for k in range(11, 19)), None)
    found = [
        counted(
            pa.table({"who": ["u"] * 4, "age": order}),
            domain("who", age={"range": [0, 9]}),  # beyond which all have the same lot
            ages,
            rows_per_unit=rows_per_unit,
        )
        for order in ([13, 17, 11, 15], [17, 15, 13, 11], [11, 13, 15, 17])
    ]
    assert found[0] == found[1] == found[2] == {(k,): 1 for k in (1, 3)[:rows_per_unit]}


@pytest.mark.parametrize("ends", [[0, 1e-320], [0, 1e-300], [0.1, 0.1], [-3, -3], [2**53 - 1, 2**53]])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_no_range_lets_a_value_decide_whether_rows_are_counted(ends: list[float], kind: Any) -> None:
    inside = pa.array([float(ends[0]), float(ends[1]), None, 1e30], kind)
    table = pa.table({"who": [1, 2, 3, 4], "age": [10, 10, 20, 20], "x": inside})
    found = counted(table, domain("who", age={"range": [0, 99]}, x={"range": ends}), AGES)
    assert found == {(0,): 2, (1,): 2}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.date32()])
def test_atoms_of_single_numbers_or_days_in_a_row_are_counted_as_they_are_searched_for(kind: Any) -> None:
    starts = [3, 5, *range(9, 30), 40, *range(50, 53), *range(60, 80)]
    base = date(2020, 1, 1).toordinal() if kind == pa.date32() else 0
    cuts = tuple(Cut(base + k) if k % 2 or base else Cut(k - 1, after=True) for k in starts)
    values = [*range(100), None]
    own = [None if k is None else date.fromordinal(base + k) if base else k for k in values]
    found = counted(
        pa.table({"x": pa.array(own, kind)}),
        domain(None, x={"dates": ["2020-01-01", "2020-12-31"]} if base else {"range": [0, 120]}),
        LineAtoms("x", "date" if base else "number", cuts, None),
    )
    wanted = Counter((len(cuts) + 1 if k is None else sum(k >= one for one in starts),) for k in values)
    assert found == wanted


def test_a_column_without_cuts_has_one_atom_and_one_for_what_is_missing() -> None:
    table = pa.table({"x": pa.array([1, 2, None], pa.int64())})
    found = counted(table, domain(None, x={"range": [0, 9]}), LineAtoms("x", "number", (), None))
    assert found == {(0,): 2, (1,): 1}


@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_all_plans_of_a_domain_count_the_same_rows(rows_per_unit: int) -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {"who": rng.integers(50, size=400), "age": rng.integers(-2, 12, 400), "tall": rng.normal(size=400)}
    )
    declared = domain("who", age={"integers": [0, 9]}, tall={"range": [-2, 2]})
    ages = LineAtoms("age", "number", tuple(Cut(k) for k in range(10)), None)
    tall = LineAtoms("tall", "number", (Cut(0),), None)
    both = counted(table, declared, ages, tall, rows_per_unit=rows_per_unit)
    for place, alone in enumerate((ages, tall)):
        added: Counter[tuple[int, ...]] = Counter()
        for row, number in both.items():
            added[row[place : place + 1]] += number
        assert counted(table, declared, alone, rows_per_unit=rows_per_unit) == added


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
