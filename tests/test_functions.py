"""Functions of declared values mean what they mean to DuckDB, and are worked out without it."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, timedelta
from functools import cache
from typing import Any

import duckdb
import pytest

from asked_truth import Questions, different, domain, ours, readable, records
from asked_truth import theirs as theirs_of
from batchdp.domain import read_domain
from batchdp.queries.query import Choice, Constant, Cut, Scaled, Total, ValueOf, Within
from batchdp.sql import functions, read_queries
from engines import ENGINES, ON_SPARK

DUCK = duckdb.connect()


def theirs(expression: str, values: list[Any]) -> list[Any]:
    return [DUCK.execute(f"SELECT {expression}", [value]).fetchone()[0] for value in values]  # type: ignore[index]


LETTERS = [chr(i) for i in (*range(32, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x2000), 0xDF, 0x130, 0x1F600)]


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_cases_of_letters_are_duckdb_s(name: str) -> None:
    text = "|".join(LETTERS)
    assert getattr(functions, name)(text).split("|") == theirs(f"{name.upper()}(?)", [text])[0].split("|")


def test_parts_of_texts_are_duckdb_s() -> None:
    for text in ("", "a", "Zürich", "Aggravated Battery"):
        for start in range(-8, 9):
            assert functions.substring(text, start, None) == theirs(f"SUBSTR(?, {start})", [text])[0]
            for length in range(5):
                assert functions.substring(text, start, length) == theirs(f"SUBSTR(?, {start}, {length})", [text])[0]


@pytest.mark.parametrize("pattern", ["%", "", "a%", "%a", "_", "a_c", "%b%", "a!%c", "!!%", "%%c", "A.C", "%\n%"])
def test_patterns_are_duckdb_s(pattern: str) -> None:
    texts = ["", "a", "abc", "a%c", "b", "!c", "xbx", "a.c", "A.C", "a\nc", "abcbc"]
    told = functions.like(pattern, "!")
    quoted = pattern.replace("'", "''")
    assert [bool(told.fullmatch(text)) for text in texts] == theirs(f"? LIKE '{quoted}' ESCAPE '!'", texts)


DAYS = [date(2019, 12, 28) + timedelta(days=13 * k) for k in range(170)]


@pytest.mark.parametrize("part", list(functions.PARTS_OF_DAYS))
def test_parts_of_days_are_duckdb_s(part: str) -> None:
    assert [functions.PARTS_OF_DAYS[part](day) for day in DAYS] == theirs(f"EXTRACT({part} FROM ?::DATE)", DAYS)


@pytest.mark.parametrize("unit", list(functions.TRUNCATED))
def test_days_are_cut_as_duckdb_cuts_them(unit: str) -> None:
    assert [functions.TRUNCATED[unit](day) for day in DAYS] == theirs(f"DATE_TRUNC('{unit}', ?::DATE)::DATE", DAYS)


def test_statements_are_answered_as_duckdb_answers_them() -> None:
    sqls = readable(16)
    assert [different(sql, found) for sql, found in zip(sqls, ours(sqls), strict=True)] == [[]] * len(sqls)


def amount(item: str, text: str) -> Any:
    return read_queries(f"SELECT {item} FROM t", read_domain(f'table = "t"\n[columns.x]\n{text}'))[0].amount


def test_a_function_that_is_affine_takes_no_cell_for_each_of_a_million_values() -> None:
    found = amount("SUM(2 * x + 3)", "integers = [0, 1000000]")
    assert found == Total((Scaled(2.0, ValueOf("x")), Scaled(3.0, ValueOf("x", counted=True))))
    distance = amount("SUM(ABS(x - 7))", "integers = [0, 1000000]")
    assert isinstance(distance, Total)
    assert len(distance.amounts) == 3


@pytest.mark.parametrize(
    ("condition", "within"),
    [
        ("x / 3 >= 1", Within("x", Cut(3), None)),
        ("3 * x < 10", Within("x", None, Cut(3.3333333333333335))),
        ("3 * x <= 10", Within("x", None, Cut(3.3333333333333335))),
        ("0.1 - x > 0", Within("x", None, Cut(0.1))),
        ("-x <= -5", Within("x", Cut(5), None)),
        ("x + x = 7", Within("x", Cut(3.5), Cut(3.5, after=True))),
    ],
)
def test_conditions_on_a_continuous_range_have_exact_edges(condition: str, within: Within) -> None:
    found = amount(f"COUNT(*) FILTER (WHERE {condition})", "range = [0, 10]")
    assert found == Choice(within, Constant(1.0), Constant(0.0))


def test_halves_are_rounded_away_from_zero_on_a_continuous_range() -> None:
    queries = read_queries(
        "SELECT COUNT(*) AS n FROM t GROUP BY ROUND(x)", read_domain('table = "t"\n[columns.x]\nrange = [-1, 1]')
    )
    assert [query.name for query in queries] == ["n[round_x=-1]", "n[round_x=0]", "n[round_x=1]"]
    assert [query.amount.condition for query in queries] == [  # type: ignore[union-attr]
        Within("x", Cut(-1), Cut(-0.5, after=True)),
        Within("x", Cut(-0.5, after=True), Cut(0.5)),
        Within("x", Cut(0.5), Cut(1, after=True)),
    ]


def test_months_and_decades_need_no_bins() -> None:
    sql = "SELECT DATE_TRUNC('month', filed) AS month, COUNT(*) AS n FROM cases GROUP BY month"
    assert [one.name for one in read_queries(sql, domain())][:2] == ["n[month=2021-01-01]", "n[month=2021-02-01]"]
    sql = "SELECT FLOOR(age / 10) * 10, COUNT(*) AS n FROM cases GROUP BY 1"
    assert next(one.name for one in read_queries(sql, domain())) == "n[floor_age_10_10=10]"


def test_what_is_not_declared_fulfils_neither_a_function_nor_its_negation() -> None:
    sql = """SELECT COUNT(*) AS a FROM cases WHERE charge LIKE '%Battery%';
    SELECT COUNT(*) AS b FROM cases WHERE NOT charge LIKE '%Battery%';
    SELECT COUNT(*) AS c FROM cases WHERE FLOOR(age / 10) > 3; SELECT COUNT(*) AS d FROM cases WHERE age - 1 > 30"""
    import pandas as pd  # type: ignore[import-untyped]

    table = pd.DataFrame({name: [None] * 5 for name in domain().columns})
    table["charge"] = ["Battery", "Arson", None, "Theft", "Battery."]
    table["age"] = [40, 200, 3, 20, None]
    assert [next(iter(one.values())) for one in ours([sql], table)] == [1, 1, 1, 2]


def test_planning_functions_imports_no_engine() -> None:
    code = """
import sys
from batchdp.domain import read_domain
from batchdp.sql import read_queries
domain = read_domain('table = "t"\\n[columns.a]\\nvalues = ["xy"]')
read_queries("SELECT COUNT(*) FROM t WHERE a LIKE 'x%'", domain)
assert not {"duckdb", "ibis", "batchdp.engines"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


TOGETHER = pytest.mark.xdist_group("four hundred statements")
ASKED = (
    *("LIKE", "ILIKE", "SUBSTR", "COALESCE", "FLOOR", "EXTRACT", "DATE_TRUNC", "INTERVAL", "SUM(CASE", "AVG("),
    *("OVER ()", "PARTITION BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "VAR", "STDDEV", "COVAR", "CORR"),
    *("DISTINCT FROM", "BETWEEN SYMMETRIC", "IN (", "FROM (SELECT", "WITH a AS", "venue AS k0", "CASE WHEN", "FILTER"),
)


@cache
def four_hundred() -> Questions:
    return Questions(readable(400))


@pytest.mark.slow
@TOGETHER
def test_four_hundred_statements_ask_everything() -> None:
    sqls = four_hundred().sqls
    assert len(set(sqls)) == 400
    assert [word for word in ASKED if sum(word in sql for sql in sqls) < 5] == []
    held = [value for sql in sqls for value in theirs_of(sql).values()]
    assert sum(value != 0 for value in held) > 0.9 * len(held) > 2000


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=[*(ON_SPARK if name == "spark" else [pytest.mark.slow]), TOGETHER])
        for name in ("duckdb relation", "postgres", "spark", "pandas", "polars")
    ],
)
def test_engines_answer_four_hundred_statements_as_duckdb_answers_them(engine: str, tmp_path: Any) -> None:
    asked = four_hundred()
    found = asked.answers(ENGINES[engine](records(), tmp_path))
    assert [different(sql, own) for sql, own in zip(asked.sqls, found, strict=True)] == [[]] * 400


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (
            "SELECT court, COUNT(*) AS n FROM (SELECT * FROM cases WHERE age > 18) a WHERE priors > 0 GROUP BY court",
            "SELECT court, COUNT(*) AS n FROM cases WHERE (age > 18) AND (priors > 0) GROUP BY court",
        ),
        (
            "WITH a AS (SELECT age AS years, court FROM cases WHERE felony), b AS (SELECT years FROM a "
            "WHERE years > 20) SELECT AVG(b.years) AS n FROM b WHERE years < 60",
            "SELECT AVG(age) AS n FROM cases WHERE ((felony) AND (age > 20)) AND (age < 60)",
        ),
        (
            "SELECT decade, COUNT(*) AS n FROM (SELECT FLOOR(age / 10) * 10 AS decade FROM cases) GROUP BY decade",
            "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM cases GROUP BY 1",
        ),
        (
            "WITH cases AS (SELECT * FROM cases WHERE felony) SELECT COUNT(*) AS n FROM cases",
            "SELECT COUNT(*) AS n FROM cases WHERE felony",
        ),
    ],
)
def test_subqueries_that_filter_and_rename_are_written_into_the_statement(nested: str, flat: str) -> None:
    (one,), (other,) = ours([nested]), ours([flat])
    assert list(one.values()) == list(other.values())
