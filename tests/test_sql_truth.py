"""SQL means here what it means to DuckDB: the same numbers on a table of awkward values."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings

from batchdp.sql import read_queries
from sql_truth import battery, connection, domain, grouped_battery, records, rows, statements, worth

ROWS, SEED = 400, 5
EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "40"))


@cache
def engine() -> duckdb.DuckDBPyConnection:
    return connection(records(ROWS, SEED))


@cache
def table() -> list[dict[str, Any]]:
    return rows(ROWS, SEED)


def ours(sql: str) -> list[float]:
    return [sum(worth(query.amount, record) for record in table()) for query in read_queries(sql, domain())]


def theirs(sql: str) -> list[float]:
    """A SUM of nothing is NULL to DuckDB; a private answer is a number, 0."""
    row = engine().execute(sql).fetchone()
    assert row is not None
    return [0.0 if value is None else float(value) for value in row]


@pytest.mark.parametrize("sql", battery())
def test_the_battery_is_answered_as_duckdb_answers_it(sql: str) -> None:
    assert ours(sql) == pytest.approx(theirs(sql), rel=1e-12, abs=1e-9)


def test_the_battery_is_large_and_tells_conditions_apart() -> None:
    answers = [tuple(theirs(sql)) for sql in battery()]
    assert len(answers) >= 150
    assert len(set(answers)) >= 100


@pytest.mark.parametrize(("grouped", "split"), grouped_battery())
def test_groups_are_the_conditions_that_say_the_same(grouped: str, split: str) -> None:
    expected = theirs(split)
    assert ours(grouped) == pytest.approx(expected, rel=1e-12)
    assert len([count for count in expected if count > 0]) > len(expected) / 2


def test_the_whole_battery_is_one_batch() -> None:
    named = [sql.replace(" AS n ", f" AS number_{i} ") for i, sql in enumerate(battery()) if " AS n " in sql]
    queries = read_queries(";\n".join(named), domain())
    assert [query.name for query in queries] == [f"number_{i}" for i, sql in enumerate(battery()) if " AS n " in sql]


@settings(max_examples=EXAMPLES, deadline=None)
@given(sql=statements())
def test_generated_statements_are_answered_as_duckdb_answers_them(sql: str) -> None:
    expected = engine().execute(sql).fetchone()
    assert expected is not None
    parts = ours(sql)
    for mine, value in zip(parts, expected, strict=True):
        # DuckDB has NULL for a whole expression of which one SUM is over nothing.
        if value is not None:
            assert mine == pytest.approx(float(value), rel=1e-9, abs=1e-6)
