"""SQL becomes linear queries, and what does not is refused with its place and a remedy."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchdp.domain import read_domain
from batchdp.errors import QueryError
from batchdp.queries.query import (
    All,
    Choice,
    Condition,
    Constant,
    Cut,
    Missing,
    Negation,
    OneOf,
    Query,
    Scaled,
    Total,
    Truth,
    ValueOf,
    Within,
)
from batchdp.queries.query import Any as AnyOf
from batchdp.sql import read_queries
from cases import load_queries

DOMAIN = read_domain("""
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA", "WA"]
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
[columns.weight]
range = [0, 300.5]
[columns.children]
integers = [0, 12]
[columns.income]
integers = [0, 1_000_000]
[columns.grade]
values = [1, 2, 3]
[columns.smoker]
values = [true, false]
[columns.consent]
values = [false]
[columns.visited]
dates = ["2020-01-01", "2025-12-31"]
[columns.born]
dates = ["1900-01-01", "2025-12-31"]
bins = {old = "1900-01-01", young = "2000-01-01"}
""")

ONE, NOTHING = Constant(1.0), Constant(0.0)
NY = OneOf("state", frozenset(["NY"]))
ADULT = Within("age", Cut(18), None)


def only(sql: str) -> Query:
    (query,) = read_queries(sql, DOMAIN)
    return query


def where(condition: str) -> Condition:
    amount = only(f"SELECT COUNT(*) FROM patients WHERE {condition}").amount
    assert isinstance(amount, Choice)
    assert (amount.then, amount.otherwise) == (ONE, NOTHING)
    return amount.condition


def names(sql: str) -> list[str]:
    return [query.name for query in read_queries(sql, DOMAIN)]


# What is understood; that it means what it means to DuckDB is checked in test_sql_truth.py.


def test_a_count_of_everything_adds_one_a_record() -> None:
    assert only("SELECT COUNT(*) AS everyone FROM patients") == Query("everyone", ONE)


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("state = 'NY'", NY),
        ("state <> 'NY'", Negation(NY)),
        ("state NOT IN ('NY', 'NJ')", Negation(OneOf("state", frozenset(["NY", "NJ"])))),
        ("age >= 18", ADULT),
        ("18 <= age", ADULT),
        ("age < 18", Within("age", None, Cut(18))),
        ("age <= 18", Within("age", None, Cut(18, after=True))),
        ("age > 18", Within("age", Cut(18, after=True), None)),
        ("age = 18", Within("age", Cut(18), Cut(18, after=True))),
        ("age BETWEEN 18 AND 39.5", Within("age", Cut(18), Cut(39.5, after=True))),
        ("NOT age BETWEEN 18 AND 39.5", Negation(Within("age", Cut(18), Cut(39.5, after=True)))),
        (
            "age IN (1, 2, 1.0)",
            AnyOf((Within("age", Cut(1), Cut(1, after=True)), Within("age", Cut(2), Cut(2, after=True)))),
        ),
        ("state IS NULL", Missing("state")),
        ("state IS NOT NULL", Negation(Missing("state"))),
        ("smoker", OneOf("smoker", frozenset([True]))),
        ("NOT smoker", Negation(OneOf("smoker", frozenset([True])))),
        ("smoker = FALSE", OneOf("smoker", frozenset([False]))),
        ("state = 'NY' AND age >= 18 AND (smoker IS NULL)", All((NY, ADULT, Missing("smoker")))),
        ("state = 'NY' OR age >= 18", AnyOf((NY, ADULT))),
        ("TRUE", Truth.TRUE),
    ],
)
def test_conditions(sql: str, condition: Condition) -> None:
    assert where(sql) == condition


def test_whole_numbers_stay_whole() -> None:
    found = where("age = 1.8e1")
    assert isinstance(found, Within)
    assert found.low is not None
    assert type(found.low.value) is int


@pytest.mark.parametrize(
    "day", ["DATE '2024-02-28'", "'2024-02-28'", "CAST('2024-02-28' AS DATE)", "'2024-02-28'::date", "date'2024-02-28'"]
)
def test_days_are_cut_before_the_day(day: str) -> None:
    at = 738944
    assert where(f"visited <= {day}") == Within("visited", None, Cut(at + 1))
    assert where(f"visited > {day}") == Within("visited", Cut(at + 1), None)
    assert where(f"{day} = visited") == Within("visited", Cut(at), Cut(at + 1))
    assert where(f"visited IN ({day})") == Within("visited", Cut(at), Cut(at + 1))


@pytest.mark.parametrize(
    ("item", "amount"),
    [
        ("COUNT(1)", ONE),
        ("COUNT(age)", Choice(Negation(Missing("age")), ONE, NOTHING)),
        ("COUNT(*) FILTER (WHERE state = 'NY')", Choice(NY, ONE, NOTHING)),
        ("SUM(CASE WHEN state = 'NY' THEN 2 END)", Choice(NY, Constant(2.0), NOTHING)),
        (
            "SUM(CASE WHEN state = 'NY' THEN 2 WHEN age >= 18 THEN children ELSE -1 END)",
            Choice(NY, Constant(2.0), Choice(ADULT, ValueOf("children"), Constant(-1.0))),
        ),
        ("SUM(CASE state WHEN 'NY' THEN 2 END)", Choice(NY, Constant(2.0), NOTHING)),
        ("SUM(children)", ValueOf("children")),
        ("SUM(children * 2) / 4", Scaled(0.5, ValueOf("children"))),
        ("-COUNT(*) / 4", Constant(-0.25)),
        ("COUNT(*) / 3 * 3", ONE),
        ("3 * SUM(CASE WHEN state = 'NY' THEN 1/3 END)", Choice(NY, ONE, NOTHING)),
        (
            "COUNT(*) FILTER (WHERE state='NY')/19 - COUNT(*)/8",
            Total((Choice(NY, Constant(1 / 19), NOTHING), Constant(-1 / 8))),
        ),
    ],
)
def test_amounts(item: str, amount: object) -> None:
    assert only(f"SELECT {item} FROM patients").amount == amount


def test_several_statements_with_comments() -> None:
    sql = "-- first; a comment\nSELECT COUNT(*) a FROM patients;;\n/* SELECT x; */ SELECT COUNT(*) b FROM patients; --"
    assert names(sql) == ["a", "b"]


@pytest.mark.parametrize(
    "sql",
    [
        "select Count(*) from PATIENTS where AGE >= 18",
        'SELECT COUNT(*) FROM "patients" WHERE "age" >= 18',
        'SELECT COUNT(*) FROM patients p WHERE P."Age" >= 18',
        "SELECT COUNT(*) FROM patients AS p WHERE age >= 18",
        "SELECT COUNT(*) FROM patients WHERE patients.age >= 18",
        "SELECT COUNT(*) FROM patients WHERE (((age))) >= (18)",
        "SELECT(COUNT(*))FROM patients\nWHERE\t18<=age",
    ],
)
def test_names_match_in_upper_and_lower_case_quoted_and_qualified(sql: str) -> None:
    assert only(sql).amount == Choice(ADULT, ONE, NOTHING)


def test_names_of_queries() -> None:
    sql = "SELECT COUNT(*), COUNT(age) AS ages, COUNT(state) FROM patients; SELECT COUNT(*) FROM patients"
    assert names(sql) == ["query_1", "ages", "query_1_2", "query_2"]


def test_group_by_gives_every_declared_group_in_order() -> None:
    queries = read_queries("SELECT COUNT(*) AS n FROM patients WHERE age >= 18 GROUP BY state", DOMAIN)
    assert [query.name for query in queries] == ["n[state=NY]", "n[state=NJ]", "n[state=CA]", "n[state=WA]"]
    assert queries[0].amount == Choice(All((NY, ADULT)), ONE, NOTHING)


def test_group_by_several_columns() -> None:
    found = names("SELECT smoker, age, COUNT(*) AS n FROM patients GROUP BY smoker, age")
    assert found[:2] == ["n[smoker=true, age=0 to under 18]", "n[smoker=true, age=18 to under 40]"]
    assert found[-1] == "n[smoker=false, age=65 to 120]"
    assert len(found) == 8
    assert names("SELECT COUNT(*) n FROM patients GROUP BY born") == ["n[born=old]", "n[born=young]"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT state, COUNT(*) AS n FROM patients GROUP BY 1",
        "SELECT state AS s, COUNT(*) AS n FROM patients GROUP BY s",
        "SELECT state AS s, COUNT(*) AS n FROM patients p GROUP BY p.STATE",
        "SELECT COUNT(*) AS n, state FROM patients GROUP BY 2, (state)",
    ],
)
def test_group_by_name_alias_or_position(sql: str) -> None:
    assert names(sql) == ["n[state=NY]", "n[state=NJ]", "n[state=CA]", "n[state=WA]"]


def test_a_column_goes_before_an_alias() -> None:
    sql = "SELECT grade, COUNT(*) AS age FROM patients GROUP BY age, grade"
    assert names(sql)[0] == "age[age=0 to under 18, grade=1]"


def test_several_items_share_the_groups() -> None:
    assert names("SELECT COUNT(*) a, SUM(children) FROM patients GROUP BY smoker") == [
        "a[smoker=true]",
        "a[smoker=false]",
        "query_1[smoker=true]",
        "query_1[smoker=false]",
    ]


# What is refused: «…» marks the place and the snippet that the message must show.

REFUSED = [
    # statements
    ("«DROP TABLE patients»", "only SELECT is supported", "a query looks like SELECT COUNT(*)"),
    ("SELECT COUNT(*) FROM patients;\n «DELETE FROM patients»;", "only SELECT is supported", "a query looks like"),
    ("«PRAGMA database_list»", "only SELECT", "looks like"),
    ("«ATTACH 'x.db'»", "only SELECT", "looks like"),
    ("«COPY patients TO 'x'»", "only SELECT", "looks like"),
    ("«SET x = 1»", "only SELECT", "looks like"),
    ("«INSERT INTO patients VALUES (1)»", "only SELECT", "looks like"),
    ("«VALUES (1)»", "only SELECT", "looks like"),
    ("«EXPLAIN SELECT COUNT(*) FROM patients»", "EXPLAIN is not supported", "begin with SELECT"),
    ("«FROM patients SELECT COUNT(*)»", "FROM before SELECT", "looks like"),
    ("«(SELECT COUNT(*) FROM patients)»", "a statement in parentheses", "begin with SELECT"),
    ("WITH x AS (SELECT «age + 1» FROM patients) SELECT COUNT(*) FROM x", "without a name", "with AS"),
    ("WITH x AS (SELECT age FROM patients) SELECT COUNT(*) FROM x WHERE «state» = 'NY'", "does not select", "or *"),
    (
        "WITH x AS «(SELECT state, COUNT(*) n FROM patients GROUP BY state)» SELECT SUM(n) FROM x",
        "not grouped by the unit",
        "GROUP BY the unit, once the domain declares one",
    ),
    ("SELECT COUNT(*) FROM patients «UNION ALL SELECT COUNT(*) FROM patients»", "UNION is not", "separated by ;"),
    ("SELECT COUNT(*) FROM patients «EXCEPT SELECT 1»", "EXCEPT is not", "separated by ;"),
    # tables
    ("«SELECT COUNT(*)»", "a query without a table", "add FROM patients"),
    ("SELECT COUNT(*) FROM «doctors»", "a table that is not declared", "write FROM patients"),
    ("SELECT COUNT(*) FROM «main.patients»", "a table of another schema", "name alone"),
    ("SELECT COUNT(*) FROM patients, «doctors»", "a table that is not declared", "declare it"),
    ("SELECT COUNT(*) FROM patients JOIN «d» ON TRUE", "a table that is not declared", "declare it"),
    ("SELECT COUNT(*) FROM patients NATURAL JOIN «d»", "a table that is not declared", "declare it"),
    ("SELECT COUNT(*) FROM «(SELECT DISTINCT * FROM patients)»", "a subquery that does more", "filters and renames"),
    ("SELECT COUNT(*) FROM patients «TABLESAMPLE (10)»", "a sample", "count all rows"),
    ("SELECT COUNT(*) FROM patients «PIVOT (COUNT(*) FOR state IN ('NY'))»", "PIVOT", "one count per group"),
    ("SELECT COUNT(*) FROM patients p WHERE «patients».age > 1", "not the table of this query", "write p.age"),
    ("SELECT COUNT(*) FROM patients AS «p(a, b)»", "columns are renamed", "in SELECT, with AS"),
    # clauses
    ("SELECT «DISTINCT COUNT(*) FROM patients»", "DISTINCT is not supported", "COUNT(*) counts rows"),
    ("SELECT COUNT(*) FROM patients HAVING «SUM(children)» > 5", "not among the items", "add it to the SELECT"),
    ("SELECT COUNT(*) FROM patients ORDER BY «age»", "that the statement does not show", "by its name, its position"),
    ("SELECT COUNT(*) FROM patients LIMIT «1.5»", "not a number of rows", "like LIMIT 5"),
    ("SELECT COUNT(*) FROM patients OFFSET «1.5»", "not a number of rows", "like LIMIT 5"),
    ("SELECT COUNT(*) FROM patients «QUALIFY TRUE»", "QUALIFY is not supported", "HAVING"),
    ("SELECT COUNT(*) FROM patients «WINDOW w AS (PARTITION BY age)»", "WINDOW is not supported", "GROUP BY"),
    ("SELECT COUNT(*) «INTO x FROM patients»", "INTO is not supported", "only read"),
    ("SELECT COUNT(*) FROM patients «FOR UPDATE»", "a lock", "leave it out"),
    # items
    ("SELECT «*» FROM patients", "rows cannot be shown", "COUNT(*)"),
    ("SELECT COUNT(*), «state» FROM patients", "neither counted nor grouped", "add GROUP BY state"),
    ("SELECT AVG(«age») FROM patients", "an average of age, which is not declared", "add a step to age"),
    ("SELECT «MIN(age)» FROM patients", "MIN is not supported", "near it is PERCENTILE_CONT"),
    ("SELECT «MAX(age)» FROM patients", "MAX is not supported", "near it is PERCENTILE_CONT"),
    ("SELECT «MEDIAN(state)» FROM patients", "a quantile of state", "declare it as integers"),
    ("SELECT COUNT(«DISTINCT age») FROM patients", "DISTINCT is not supported", "COUNT(*) counts rows"),
    ("SELECT «SUM(children)» OVER (PARTITION BY state) FROM patients", "a window function of", "SUM(COUNT(*)) OVER ()"),
    ("SELECT «COUNT(age, state)» FROM patients", "COUNT of several columns", "FILTER"),
    ("SELECT «COUNT()» FROM patients", "COUNT of anything but * or a column", "FILTER"),
    ("SELECT «COUNT(CASE WHEN age > 1 THEN 1 END)» FROM patients", "COUNT of anything but", "FILTER"),
    ("SELECT «COUNT_IF(age > 1)» FROM patients", "COUNT_IF is not supported", "COUNT(*) FILTER (WHERE …)"),
    ("SELECT SUM(«IF(age > 1, 1, 0)») FROM patients", "IF is not supported", "CASE WHEN"),
    ("SELECT «COUNT(*) * COUNT(age)» FROM patients", "a product of two things", "combine the answers"),
    ("SELECT COUNT(*) / «AVG(children)» FROM patients", "a ratio inside a ratio", "combine the answers"),
    ("SELECT «COUNT(*) / 0» FROM patients", "a division by zero", "another number"),
    ("SELECT COUNT(*) * («1 / (2 - 2)») FROM patients", "a division by zero", "another number"),
    ("SELECT «5» FROM patients", "no count or sum", "COUNT(*)"),
    ("«SELECT state FROM patients GROUP BY state»", "no count or sum", "add COUNT(*)"),
    ("SELECT SUM(«age») FROM patients", "a sum of age, which is not declared as integers", "integers = [lowest"),
    ("SELECT SUM(«state») FROM patients", "a sum of state", "integers"),
    ("SELECT SUM(«age > 1») FROM patients", "not a number for every record", "CASE WHEN"),
    ("SELECT «CASE WHEN age > 1 THEN 1 END» FROM patients", "CASE outside SUM", "SUM(CASE"),
    ("SELECT SUM(CASE «age + 1» WHEN 1 THEN 1 END) FROM patients", "CASE of anything but a column", "CASE WHEN"),
    ("SELECT SUM(CASE WHEN age > 1 THEN «'x'» END) FROM patients", "not a number", "like 1000"),
    ("SELECT «ABS(children)» FROM patients", "neither a count nor a sum", "SUM(…)"),
    ("SELECT SUM(«age * age») FROM patients", "any number may be one of its values", "add a step to age"),
    ("SELECT SUM(«income * income») FROM patients", "of 1,000,001 values", "at most 4,096"),
    ("SELECT SUM(«children * income») FROM patients", "a function of 2 columns, children and income", "of its own"),
    ("SELECT SUM(«LOWER(state)») FROM patients", "not a number for every record", "CASE WHEN"),
    ("SELECT SUM(«children / 0») FROM patients", "a division by zero", "another number"),
    ("SELECT «nonsense(children)» FROM patients", "a function is not supported", "COUNT, SUM, AVG"),
    ("SELECT «COUNT(*)»::int FROM patients", "a CAST of an answer", "leave it out"),
    ("SELECT «COUNT(*)» * 1e200 * 1e200 FROM patients", "too large or too small", "1e-100 to 1e100"),
    # conditions
    ("SELECT COUNT(*) FROM patients WHERE «stat» = 'NY'", "a column that is not declared", "did you mean state?"),
    ("SELECT COUNT(*) FROM patients WHERE state = «\"NY\"»", "a column that is not declared", "single quotes"),
    ("SELECT COUNT(*) FROM patients WHERE «state < 'NY'»", "an order comparison of state", "declare state as range"),
    ("SELECT COUNT(*) FROM patients WHERE «grade BETWEEN 1 AND 2»", "an order comparison", "as integers or range"),
    ("SELECT COUNT(*) FROM patients WHERE «age = NULL»", "a comparison with NULL", "write IS NULL"),
    ("SELECT COUNT(*) FROM patients WHERE «state IN ('NY', NULL)»", "a comparison with NULL", "write IS NULL"),
    ("SELECT COUNT(*) FROM patients WHERE «age < weight»", "which has no step", "add a step to age"),
    (
        "SELECT COUNT(*) FROM patients WHERE «children BETWEEN SYMMETRIC income AND 3»",
        "SYMMETRIC of several columns",
        "write two comparisons",
    ),
    ("SELECT COUNT(*) FROM patients WHERE «1 = 1»", "a comparison without a column", "with a constant"),
    ("SELECT COUNT(*) FROM patients WHERE «state LIKE 'Q%'»", "no declared value of state fulfils", "NY, NJ, CA, WA"),
    ("SELECT COUNT(*) FROM patients WHERE «UPPER(state) = 'ny'»", "no declared value of state", "one of NY, NJ"),
    ("SELECT COUNT(*) FROM patients WHERE «MONTH(visited) IN (13)»", "no declared value", "it is one of 1, 2"),
    ("SELECT COUNT(*) FROM patients WHERE LOWER(«age») = 'x'", "not a text but a number", "give it a text"),
    ("SELECT COUNT(*) FROM patients WHERE «LOWER(state) = 5»", "a comparison of a text with a number", "of one kind"),
    ("SELECT COUNT(*) FROM patients WHERE state LIKE «5»", "not a text but a number", "give it a text"),
    ("SELECT COUNT(*) FROM patients WHERE state LIKE «state»", "not a constant", "write a text as it is"),
    ("SELECT COUNT(*) FROM patients WHERE «state LIKE 'N%' ESCAPE '!!'»", "an ESCAPE", "ESCAPE '!'"),
    ("SELECT COUNT(*) FROM patients WHERE «EXTRACT(HOUR FROM visited)» = 2", "EXTRACT of HOUR", "YEAR, QUARTER"),
    ("SELECT COUNT(*) FROM patients WHERE «DATE_TRUNC('hour', visited)» = '2024-01-01'", "DATE_TRUNC to HOUR", "'day'"),
    ("SELECT COUNT(*) FROM patients WHERE visited + «INTERVAL '3'» HOUR > '2024-01-01'", "an interval", "'3' MONTH"),
    ("SELECT COUNT(*) FROM patients WHERE «visited * 2» > 5", "arithmetic with a day", "INTERVAL"),
    ("SELECT COUNT(*) FROM patients WHERE SUBSTR(state, «1.5») = 'x'", "not a whole number", "from -1000 to 1000"),
    ("SELECT COUNT(*) FROM patients WHERE «COALESCE(state, 5)» = 'x'", "different kinds of values", "of one kind"),
    ("SELECT COUNT(*) FROM patients WHERE «age»", "a column by itself is not a condition", "compare age with"),
    ("SELECT COUNT(*) FROM patients WHERE «consent»", "a column by itself is not a condition", "compare consent"),
    ("SELECT COUNT(*) FROM patients WHERE «smoker IS TRUE»", "IS is only for NULL", "column = TRUE"),
    ("SELECT COUNT(*) FROM patients WHERE «COUNT(*)»", "an aggregate in a condition", "single records"),
    ("SELECT COUNT(*) FROM patients WHERE «state IN (SELECT 'NY')»", "a subquery", "declared table"),
    ("SELECT COUNT(*) FROM patients WHERE «EXISTS (SELECT 1)»", "EXISTS is not supported", "declared table"),
    ("SELECT COUNT(*) FROM patients WHERE «(age, grade)» = (1, 2)", "a tuple", "one column at a time"),
    ("SELECT COUNT(*) FROM patients WHERE «age BETWEEN 40 AND 18»", "the higher end first", "the lower end first"),
    ("SELECT COUNT(*) FROM patients WHERE visited < «CURRENT_DATE»", "CURRENT_DATE", "the day itself"),
    ("SELECT COUNT(*) FROM patients WHERE «state» IN ()", "IN without constants", "list the values"),
    ("SELECT COUNT(*) FROM patients WHERE age IN (1, «weight»)", "not a constant", "a column with a constant"),
    ("SELECT COUNT(*) FROM patients WHERE «CAST(visited AS DATE)» = DATE '2024-01-31'", "not a column", "a constant"),
    ("SELECT COUNT(*) FROM patients WHERE age = «?»", "a parameter", "the constant itself"),
    ("SELECT COUNT(*) FROM patients WHERE age = «:x»", "a parameter", "the constant itself"),
    ("SELECT COUNT(*) FROM patients WHERE age = «$1»", "a parameter", "the constant itself"),
    ("SELECT COUNT(*) FROM patients WHERE age = «@x»", "a parameter", "the constant itself"),
    # constants
    ("SELECT COUNT(*) FROM patients WHERE state = «'NZ'»", "not a declared value of state", "are NY, NJ, CA, WA"),
    ("SELECT COUNT(*) FROM patients WHERE state = «'ny'»", "not a declared value of state", "did you mean NY?"),
    ("SELECT COUNT(*) FROM patients WHERE grade = «7»", "not a declared value of grade", "are 1, 2, 3"),
    ("SELECT COUNT(*) FROM patients WHERE grade = «1.5»", "not a whole number", "are 1, 2, 3"),
    ("SELECT COUNT(*) FROM patients WHERE consent = «TRUE»", "not a declared value of consent", "are false"),
    ("SELECT COUNT(*) FROM patients WHERE state = «5»", "not a text, which state holds", "write state = 'NY'"),
    ("SELECT COUNT(*) FROM patients WHERE smoker = «1»", "not TRUE or FALSE", "write smoker = TRUE"),
    ("SELECT COUNT(*) FROM patients WHERE age > «-1»", "beyond the declared range of age", "from 0 to 120"),
    ("SELECT COUNT(*) FROM patients WHERE age <= «120.5»", "beyond the declared range of age", "from 0 to 120"),
    ("SELECT COUNT(*) FROM patients WHERE age = «'18'»", "not a number, which age holds", "without quotes"),
    ("SELECT COUNT(*) FROM patients WHERE age = «DATE '2024-01-31'»", "not a number, which age holds", ""),
    ("SELECT COUNT(*) FROM patients WHERE age = «CAST(5 AS INT)»", "a CAST to anything but DATE", "as they are"),
    ("SELECT COUNT(*) FROM patients WHERE age = «1e400»", "a number that is too large", "like 1000"),
    ("SELECT COUNT(*) FROM patients WHERE age = «1e-99999999999999»", "a number that is too large", "like 1000"),
    ("SELECT COUNT(*) FROM patients WHERE age = «NaN»", "a column that is not declared", "declared are"),
    ("SELECT COUNT(*) FROM patients WHERE age = «'NaN'»", "not a number", "without quotes"),
    ("SELECT COUNT(*) FROM patients WHERE age = «'infinity'»::float", "a CAST to anything but DATE", ""),
    ("SELECT COUNT(*) FROM patients WHERE children < «2.5»", "not a whole number", "write 2 or 3"),
    ("SELECT COUNT(*) FROM patients WHERE children = «13»", "beyond the declared range", "from 0 to 12"),
    ("SELECT COUNT(*) FROM patients WHERE visited = «'2024-1-31'»", "not a day", "DATE '2024-01-31'"),
    ("SELECT COUNT(*) FROM patients WHERE visited = «'2024-02-30'»", "not a day", "DATE '2024-01-31'"),
    ("SELECT COUNT(*) FROM patients WHERE visited = «20240131»", "not a day", "DATE '2024-01-31'"),
    ("SELECT COUNT(*) FROM patients WHERE visited < «'2026-01-01'»", "beyond", "from 2020-01-01 to 2025-12-31"),
    ("SELECT COUNT(*) FROM patients WHERE state = «'N'» 'Y'", "a text in pieces", "one text"),
    # how it is written
    ("SELECT COUNT(*) / «1_000» FROM patients", "a number that runs into a word", "like 1000"),
    ("SELECT COUNT(*) FROM patients WHERE age = «0x1F»", "a number that runs into a word", "like 1000"),
    ("SELECT COUNT(*) FROM patients WHERE state = «E'NY'»", "a text with a prefix", "plain quotes"),
    ("SELECT COUNT(*) FROM patients WHERE age «==» 1", "the operator ==", "compare with ="),
    ("SELECT COUNT(*) FROM patients WHERE age «% 2 = 1»", "the operator %", "declare a column"),
    ("SELECT COUNT(*) «//» 2 FROM patients", "the operator //", "compare with ="),
    ("SELECT «/*+ x */» COUNT(*) FROM patients", "a hint", "weight(3)"),
    ("SELECT COUNT(*) FROM patients WHERE state = «'NY»", "a text that is not closed", "end it with '"),
    ("SELECT COUNT(*) FROM «\"patients»", "a quoted name that is not closed", ""),
    ("SELECT COUNT(*) FROM patients «/* x»", "a comment that is not closed", "end it with */"),
    ("SELECT COUNT(*) FROM patients «/* /* x */ */»", "a comment that is not closed, or nested", "no /* inside"),
    ("«{# x #} SELECT COUNT»(*) FROM patients", "a brace", "looks like"),
    ("SELECT COUNT(*) FROM patients WHERE age =«\u00a01»", "the character U+00A0", "leave it out"),
    ("SELECT COUNT(*) FROM patients WHERE state = «‘NY’»", "a typographic quote", "plain '…'"),
    ("SELECT COUNT(*)«, FROM» patients", "a comma with nothing behind it", "leave it out"),
    ("SELECT COUNT(*) FROM patients «WHERE»", "not SQL that can be read", "looks like"),
    ("SELECT COUNT(*) FROM patients WHERE age > (18", "not SQL: expecting )", "looks like"),
    ("SELECT COUNT(*) FROM patients«) WHERE age > 18»", "not SQL that can be read", "looks like"),
    # groups and names
    ("SELECT COUNT(*) FROM patients GROUP BY «weight»", "weight has no groups", "bins = [0, …] under [columns.weight]"),
    ("SELECT COUNT(*) FROM patients GROUP BY «visited»", "visited has no groups", 'bins = ["2020-01-01", …]'),
    ("SELECT COUNT(*) FROM patients GROUP BY «income»", "income has no groups", "bins = [0, …]"),
    ("SELECT age, COUNT(*) FROM patients GROUP BY «3»", "not the position of an item", "from 1 to 2"),
    ("SELECT age, COUNT(*) FROM patients GROUP BY «2»", "an item that is not a column", "a declared column"),
    ("SELECT COUNT(*) AS n FROM patients GROUP BY «n»", "an alias of something that is not a column", "declared"),
    ("SELECT COUNT(*) AS n FROM patients GROUP BY «age > 18»", "GROUP BY something that is not a column", "declared"),
    ("SELECT COUNT(*) FROM patients «GROUP BY ALL»", "GROUP BY ALL", "name the columns"),
    ("SELECT COUNT(*) FROM patients GROUP BY state WITH «ROLLUP»", "WITH ROLLUP is not supported", "GROUP BY ROLLUP"),
    ("SELECT COUNT(*) FROM patients GROUP BY state WITH «CUBE»", "WITH CUBE is not supported", "GROUP BY CUBE"),
    ("SELECT «age», COUNT(*) FROM patients GROUP BY state", "neither counted nor grouped", "add age to GROUP BY"),
    ("SELECT COUNT(*) n FROM patients; SELECT «COUNT(*) N» FROM patients", "the name N is taken", "its own name"),
    ('SELECT COUNT(*) AS «"\u0430ge"» FROM patients', "looks like 'age'", "plain letters"),
    ('SELECT COUNT(*) AS «" "» FROM patients', "is blank", "plain letters"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "problem", "remedy"), REFUSED)
def test_refusals_show_the_place_the_snippet_and_a_remedy(marked: str, problem: str, remedy: str) -> None:
    sql = marked.replace("«", "").replace("»", "")
    with pytest.raises(QueryError) as refused:
        read_queries(sql, DOMAIN, source="batch.sql")
    message = str(refused.value)
    place, _, said = message.partition(": ")
    assert problem in said
    assert remedy in said.rpartition("; ")[2] or remedy in said
    if "«" in marked:
        start = marked.index("«")
        line, column = marked.count("\n", 0, start) + 1, start - marked.rfind("\n", 0, start)
        assert place == f"batch.sql line {line}, column {column}"
        snippet = marked[start + 1 : marked.index("»")].replace("\u00a0", "")
        assert f"({snippet[:59]}" in said.replace("\\xa0", "")


@pytest.mark.parametrize("sql", ["", "  \n", "-- nothing", "/* nothing */", ";", ";;\n;"])
def test_a_text_without_queries_is_refused(sql: str) -> None:
    with pytest.raises(QueryError, match=r"^queries holds no query; a query looks like SELECT"):
        read_queries(sql, DOMAIN)


def test_an_alias_cannot_pass_for_a_group() -> None:
    sql = 'SELECT COUNT(*) AS "n[smoker=true]" FROM patients; SELECT COUNT(*) AS n FROM patients GROUP BY smoker'
    with pytest.raises(QueryError, match=r"the name n\[smoker=true\] is taken by another query"):
        read_queries(sql, DOMAIN)


def test_values_that_differ_in_case_only_are_different_groups() -> None:
    domain = read_domain('table = "t"\n[columns.c]\nvalues = ["a", "A"]')
    assert [q.name for q in read_queries("SELECT COUNT(*) n FROM t GROUP BY c", domain)] == ["n[c=a]", "n[c=A]"]


def test_many_declared_values_are_not_all_shown() -> None:
    domain = read_domain(f'table = "t"\n[columns.c]\nvalues = {[f"value {i}" for i in range(1000)]!r}')
    with pytest.raises(QueryError) as refused:
        read_queries("SELECT COUNT(*) FROM t WHERE c = 'walue 77'", domain)
    assert str(refused.value).endswith("value 6, value 7 and 992 more; did you mean value 77?")


def test_lines_and_columns_count_characters_as_editors_do() -> None:
    sql = "-- ü\r\nSELECT COUNT(*) AS ü\r\n\tFROM patients WHERE\n  state = 'x'"
    with pytest.raises(QueryError, match=r"^queries line 4, column 11: "):
        read_queries(sql, DOMAIN)


def test_messages_are_one_short_printable_line() -> None:
    sql = "SELECT COUNT(*) FROM patients WHERE state = '\x1b[31m\n\u202e" + "x" * 10_000 + "'"
    with pytest.raises(QueryError) as refused:
        read_queries(sql, DOMAIN)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert "\\x1b[31m \\u202e" in str(refused.value)


def test_too_many_groups_are_refused_before_they_are_made() -> None:
    domain = read_domain("table = 't'\n" + "\n".join(f"[columns.c{i}]\nintegers = [1, 90000]" for i in range(9)))
    with pytest.raises(
        QueryError, match=r"column 24: 8100000000 queries in all \(GROUP BY c0, c1\); at most 10000 are"
    ):
        read_queries("SELECT COUNT(*) FROM t GROUP BY c0, c1", domain)


def test_queries_are_counted_over_all_statements() -> None:
    sql = "SELECT COUNT(*) AS n{} FROM patients GROUP BY age, grade, smoker, state, children, born"
    with pytest.raises(QueryError, match=r"12480 queries in all \(GROUP BY age, .*group by fewer columns"):
        read_queries(";".join(sql.format(i) for i in range(5)), DOMAIN)


def test_a_huge_text_is_refused_at_once() -> None:
    with pytest.raises(QueryError, match="queries holds 1000001 characters, more than 1000000; split it"):
        read_queries(" " * 1_000_001, DOMAIN)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM patients WHERE " + "(" * 5000 + "smoker" + ")" * 5000,
        "SELECT COUNT(*) FROM patients WHERE " + "NOT (" * 30 + "smoker" + ")" * 30,
        "SELECT COUNT(*) FROM patients WHERE " + "NOT " * 5000 + "smoker",
        "SELECT " + "- " * 5000 + "COUNT(*) FROM patients",
        "SELECT SUM(" + "CASE WHEN smoker THEN " * 30 + "1" + " END" * 30 + ") FROM patients",
        "SELECT " + "(" * 5000,
    ],
    ids=["parentheses", "not-parentheses", "not", "minus", "case", "open"],
)
def test_deep_nesting_is_refused(sql: str) -> None:
    with pytest.raises(QueryError, match=r"nested too deeply .*; at most 20 parentheses and CASEs"):
        read_queries(sql, DOMAIN)


def test_what_may_be_nested_can_be_read() -> None:
    assert where("NOT NOT (" * 20 + "smoker" + ")" * 20)
    assert only("SELECT " + "-(" * 19 + "COUNT(*)" + ")" * 19 + " FROM patients").amount == Constant(-1.0)


def test_long_chains_need_no_recursion() -> None:
    long = where(" AND ".join(f"income <> {i}" for i in range(3000)))
    assert isinstance(long, All)
    assert len(long.conditions) == 3000
    amount = only("SELECT " + " + ".join(f"COUNT(*) / {i + 1} * 2 * 3" for i in range(1500)) + " FROM patients").amount
    assert isinstance(amount, Total)
    assert amount.amounts[1] == Constant(3.0)


@pytest.mark.parametrize(
    "item",
    [
        "1e300" + " * 1e300" * 20_000,
        "COUNT(*)" + " * 1e300" * 20_000,
        "COUNT(*)" + "".join(f" + 1/{i}" for i in range(1, 9000)),
    ],
    ids=["constant", "factor", "fractions"],
)
def test_arithmetic_that_would_take_forever_is_refused(item: str) -> None:
    begin = time.process_time()
    with pytest.raises(QueryError, match="too long"):
        read_queries(f"SELECT {item} FROM patients", DOMAIN)
    assert time.process_time() - begin < 10


def test_case_with_very_many_branches_is_refused() -> None:
    branches = " ".join(f"WHEN {i} THEN 1" for i in range(201))
    with pytest.raises(QueryError, match=r"CASE with 201 branches .* at most 200"):
        read_queries(f"SELECT SUM(CASE income {branches} END) FROM patients", DOMAIN)
    nested = "CASE WHEN smoker THEN 1 WHEN age > 5 THEN 2 ELSE " * 18 + "0" + " END" * 18
    assert only(f"SELECT SUM({nested}) FROM patients")
    nested = nested.replace("WHEN smoker THEN 1", "WHEN smoker THEN 1 " * 12)
    with pytest.raises(QueryError, match=r"CASE with 234 branches"):
        read_queries(f"SELECT SUM({nested}) FROM patients", DOMAIN)


def test_three_hundred_queries_are_read_in_no_time() -> None:
    sql = "\n".join(f"SELECT COUNT(*) AS q{i} FROM patients WHERE state = 'NY' AND age < {i % 99};" for i in range(300))
    read_queries("SELECT COUNT(*) FROM patients", DOMAIN)
    begin = time.process_time()  # its own: other work may run beside
    assert len(read_queries(sql, DOMAIN)) == 300
    assert time.process_time() - begin < 2


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(QueryError):
        read_queries("SELECT COUNT(*) FROM patients USE INDEX x; SHOW secrets", DOMAIN)
    assert caplog.records == []
    assert logging.getLogger("sqlglot").filters == []


def test_importing_batchdp_does_not_import_the_parser() -> None:
    code = "import sys, batchdp, batchdp.sql; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_queries_are_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    path.write_bytes(b"\xef\xbb\xbfSELECT COUNT(*) AS n FROM patients")
    assert load_queries(path, DOMAIN) == (Query("n", ONE),)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"cannot read the queries .*no\.sql: No such file"):
        load_queries(tmp_path / "no.sql", DOMAIN)
    with pytest.raises(QueryError, match="cannot read the queries"):
        load_queries(tmp_path, DOMAIN)
    with pytest.raises(QueryError, match="cannot read the queries"):
        load_queries("a\0b", DOMAIN)
    (tmp_path / "latin.sql").write_bytes(b"SELECT \xff")
    with pytest.raises(QueryError, match="not a text in UTF-8"):
        load_queries(tmp_path / "latin.sql", DOMAIN)
    (tmp_path / "huge.sql").write_bytes(b" " * 4_000_001)
    with pytest.raises(QueryError, match="larger than 4 MB"):
        load_queries(tmp_path / "huge.sql", DOMAIN)
    (tmp_path / "bad.sql").write_text("SELECT 1")
    with pytest.raises(QueryError, match=r"bad\.sql line 1, column 1: a query without a table"):
        load_queries(tmp_path / "bad.sql", DOMAIN)


def test_something_else_than_text_is_refused() -> None:
    with pytest.raises(QueryError, match="sql is a list; give a text"):
        read_queries(["SELECT"], DOMAIN)  # type: ignore[arg-type]
