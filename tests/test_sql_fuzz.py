"""Whatever the text is: queries that mean what DuckDB says, or a QueryError, and soon. The same for domain files."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from batchdp.domain import as_domain, read_domain
from batchdp.errors import DomainError, QueryError
from batchdp.queries.query import Query
from batchdp.sql import read_queries
from sql_truth import DOMAIN, battery, connection, domain, grouped_battery, records, rows, statements, worth

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "100"))
ROWS, SEED = 100, 8
LONGEST = 60
"""Seconds. Ordinary texts take milliseconds; this is to notice what never ends."""

WORDS = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT UNION ALL DISTINCT AND OR NOT IN IS NULL TRUE FALSE BETWEEN CASE WHEN THEN
ELSE END FILTER OVER AS COUNT SUM AVG CAST DATE LIKE JOIN ON USING WITH VALUES INTO patients state age children smoker
visited floor balance grade 'NY' 'Rome' '2024-02-29' 0 1 18 2.5 .5 1e3 -1 ( ) (*) , ; . * + - / =
<> != < <= > >= :: % ^ ? $1 @x :y [ ] { } | & ! ~ ` " ' -- /* */ /*+ n p q1 E'x' x'1F' 1_000 0x1 {# #} {{ }} ILIKE
SIMILAR EXCEPT INTERSECT LATERAL PIVOT UNPIVOT QUALIFY WINDOW PARTITION ROWS RANGE INTERVAL EXTRACT COALESCE NULLIF IF
IIF DECODE ANY SOME EXISTS ARRAY STRUCT MAP LAMBDA -> => := ESCAPE COLLATE AT TIME ZONE FOR UPDATE TABLESAMPLE OFFSET
FETCH TOP PRAGMA SET SHOW COPY ATTACH EXPLAIN CREATE DROP INSERT DELETE CALL USE DESCRIBE BEGIN COMMIT IF RETURNING
"""
ODD = ["\n", "\t", "\x00", "\u00a0", "ß", "İ", "\ud800", "\r", "😀", "'é'", '"home town"']
words = st.sampled_from([*WORDS.split(), *ODD])


@cache
def engine() -> duckdb.DuckDBPyConnection:
    return connection(records(ROWS, SEED))


@cache
def table() -> list[dict[str, Any]]:
    return rows(ROWS, SEED)


def read(sql: str) -> tuple[Query, ...] | None:
    """The queries, or None if they are refused as they should be."""
    begin = time.process_time()
    message = ""
    queries = None
    try:
        queries = read_queries(sql, domain())
    except QueryError as error:
        message = str(error)
    assert time.process_time() - begin < LONGEST
    assert message.isprintable()
    assert len(message) < 2000
    return queries


@st.composite
def changed_statements(draw: DrawFn) -> str:
    """A statement that was right, with a few words or characters taken out, put in or exchanged."""
    right = st.one_of(
        st.sampled_from(battery()), st.sampled_from([pair[0] for pair in grouped_battery()]), statements()
    )
    sql = draw(right)
    by_word = draw(st.booleans())
    parts = sql.split(" ") if by_word else list(sql)
    others = words if by_word else st.one_of(st.sampled_from("()'\",;.*+-/=<>!:%_ \n0123456789eEnN"), st.characters())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(parts) - 1))
        match draw(st.sampled_from(["out", "in", "other", "twice", "swap"])):
            case "out" if len(parts) > 1:
                del parts[at]
            case "in":
                parts.insert(at, draw(others))
            case "twice":
                parts.insert(at, parts[at])
            case "swap":
                other = draw(st.integers(0, len(parts) - 1))
                parts[at], parts[other] = parts[other], parts[at]
            case _:
                parts[at] = draw(others)
    return (" " if by_word else "").join(parts)


@settings(max_examples=EXAMPLES, deadline=None)
@given(sql=st.one_of(st.text(max_size=200), st.text("SELECT()*'\";-/ \nfromage<>=.0", max_size=200)))
def test_any_text(sql: str) -> None:
    read(sql)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    soup=st.lists(words, max_size=30), head=st.sampled_from(["", "SELECT COUNT(*) ", "SELECT COUNT(*) FROM patients "])
)
def test_soups_of_words(soup: list[str], head: str) -> None:
    read(head + " ".join(soup))


@settings(max_examples=EXAMPLES, deadline=None)
@given(sql=changed_statements())
def test_changed_statements_are_refused_or_mean_what_duckdb_says(sql: str) -> None:
    queries = read(sql)
    if queries is None or ";" in sql or "GROUP" in sql.upper():
        return
    try:
        row = engine().execute(sql).fetchone()
    except duckdb.Error:
        return
    assert row is not None
    for query, value in zip(queries, row, strict=True):
        if value is not None:
            ours = sum(worth(query.amount, record) for record in table())
            assert ours == pytest.approx(float(value), rel=1e-9, abs=1e-6), query


@settings(max_examples=max(EXAMPLES // 4, 20), deadline=None)
@given(
    opening=st.sampled_from(
        ["(", "NOT ", "NOT (", "-", "- ", "CASE WHEN ", "COUNT(", "SUM(CASE WHEN age > ", "/*", "'", "[", "((SELECT "]
    ),
    times=st.sampled_from([1, 5, 19, 20, 21, 33, 50, 100, 1000, 20_000]),
    head=st.sampled_from(["", "SELECT ", "SELECT COUNT(*) FROM patients WHERE ", "SELECT COUNT(*) FROM "]),
    tail=st.sampled_from(["", "age", "1", ")", "COUNT(*) FROM patients"]),
)  # fmt: skip
def test_deep_nesting(opening: str, times: int, head: str, tail: str) -> None:
    read(head + opening * times + tail)
    closing = {"(": ")", "NOT (": ")", "CASE WHEN ": " END", "COUNT(": ")"}.get(opening, "")
    read(head + opening * times + tail + closing * times + " FROM patients")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "COUNT(*)," * 100_000,
        "SELECT " + "COUNT(*)+" * 100_000,
        "SELECT COUNT(*) FROM patients WHERE " + "age<1 or " * 100_000,
        "SELECT COUNT(*) FROM patients WHERE grade IN (" + "1," * 400_000 + "1)",
        ";" * 1_000_000,
        "'" * 999_999,
        '"' * 999_999,
        "-" * 1_000_000,
        "/*" * 500_000,
        "*/" * 500_000,
        "1." * 500_000,
        "a." * 500_000,
        "x" * 1_000_000,
        "9" * 1_000_000,
        "\n" * 1_000_000,
        "SELECT " + "9" * 900_000 + " FROM patients",
        "SELECT COUNT(*) AS " + "x" * 900_000 + " FROM patients",
        "SELECT COUNT(*) FROM patients WHERE state = '" + "x" * 900_000 + "'",
        "SELECT COUNT(*) FROM patients WHERE " + "a" * 900_000 + " = 1",
    ],
    ids=lambda sql: f"{sql[:30]}…",
)
@pytest.mark.slow
def test_a_megabyte_is_read_or_refused_soon(sql: str) -> None:
    read(sql)


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_changed_domain_files(data: st.DataObject) -> None:
    parts = list(DOMAIN) if data.draw(st.booleans()) else DOMAIN.split(" ")
    values = [
        "nan",
        "inf",
        "1e400",
        "true",
        '""',
        "[]",
        "{}",
        "[[",
        "]]",
        "=",
        ".",
        '"',
        "0x1F",
        "1_0",
        "-0.0",
        "07:32:00",
    ]
    values += ["1979-05-27T07:32:00Z", "2020-01-01", "0001-01-01", "9999-12-31", '"2020-01-01"', "9007199254740993"]
    odd = st.one_of(st.sampled_from([*values, "9" * 400, "9" * 5000, "\n"]), st.characters())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(parts) - 1))
        parts[at : at + data.draw(st.integers(0, 2))] = [data.draw(odd)]
        parts = parts or [""]
    text = ("" if len(parts) > len(DOMAIN) // 2 else " ").join(parts)
    try:
        changed = read_domain(text)
    except DomainError:
        return
    for name, column in changed.columns.items():
        column.grouped(name)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.dates(), st.datetimes(), st.binary()
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner)),
    max_leaves=6,
)
keys = st.sampled_from(["values", "range", "integers", "dates", "bins", "other", "unknown"])
columns = st.one_of(trees, st.dictionaries(keys, trees, max_size=3))
numbers = st.one_of(st.integers(-5, 5), st.floats(), st.integers())
lines = st.fixed_dictionaries(
    {}, optional={"range": st.lists(numbers, max_size=3), "bins": st.lists(numbers, max_size=3)}
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    given_domain=st.fixed_dictionaries(
        {"table": st.one_of(st.just("t"), trees)},
        optional={
            "privacy": st.one_of(
                trees, st.dictionaries(st.sampled_from(["unit", "rows_per_unit", "neighbours", "max_rows"]), trees)
            ),
            "columns": st.one_of(trees, st.dictionaries(st.text(max_size=3), st.one_of(columns, lines), max_size=3)),
        },
    )
)
def test_any_dictionary_as_a_domain(given_domain: dict[str, Any]) -> None:
    try:
        made = as_domain(given_domain)
    except DomainError:
        return
    for name, column in made.columns.items():
        column.grouped(name)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.text(max_size=100))
def test_any_text_as_a_domain_file(text: str) -> None:
    try:
        read_domain(text)
    except DomainError:
        return


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 5000,
        "[" * 5000 + "a",
        "a." * 50_000 + "a = 1",
        "table = 't'\n[columns.c]\nintegers = [0, " + "9" * 5000 + "]",
        "table = 't'\n[columns.c]\nrange = [0, " + "9" * 400 + "]",
        "table = 't'\n[columns.c]\nvalues = " + str([*range(60_000), 59_999]),
    ],
    ids=["lists", "tables", "headers", "dots", "digits", "large", "twice"],
)
def test_domain_files_that_take_long_to_read_are_refused_soon(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(DomainError):
        read_domain(text)
    assert time.process_time() - begin < 10
