"""What SQL means, to compare with: a table with every awkward value, queries about it, and a plain evaluator."""

from __future__ import annotations

import random
import re
from datetime import date
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from batchdp.domain import Domain, read_domain
from batchdp.queries.query import (
    All,
    Amount,
    Choice,
    Condition,
    Constant,
    Cut,
    Missing,
    Negation,
    OneOf,
    Scaled,
    Total,
    Truth,
    ValueOf,
    Within,
)
from batchdp.queries.query import Any as AnyOf

DOMAIN = """
table = "patients"

[columns.state]
values = ["NY", "NJ", "CA", "WA"]
[columns."home town"]
values = ["O'Fallon", "Zürich", "a;b--c", "Rome"]
[columns.grade]
values = [1, 2, 3, -4]
[columns.smoker]
values = [true, false]
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
[columns.balance]
range = [-1000.5, 1000.5]
bins = {debt = -1000.5, small = 0, large = 99.75}
[columns.children]
integers = [0, 12]
[columns.floor]
integers = [-3, 40]
bins = [-3, 0, 1, 10]
[columns.visited]
dates = ["2020-01-01", "2025-12-31"]
bins = ["2020-01-01", "2021-01-01", "2024-02-29"]
"""

_SCHEMA = pa.schema(
    [
        ("state", pa.string()),
        ("home town", pa.string()),
        ("grade", pa.int64()),
        ("smoker", pa.bool_()),
        ("age", pa.float64()),
        ("balance", pa.float64()),
        ("children", pa.int32()),
        ("floor", pa.float64()),
        ("visited", pa.date32()),
    ]
)

_AWKWARD: dict[str, list[Any]] = {
    "state": ["NY", "NJ", "CA", "WA", "TX", "ny", "", "NY ", None],
    "home town": ["O'Fallon", "Zürich", "a;b--c", "Rome", "rome", "Zu\u0308rich", None],
    "grade": [1, 2, 3, -4, 0, 4, None],
    "smoker": [True, False, None],
    "age": [-1.0, -0.5, 0.0, 0.5, 17.0, 17.999, 18.0, 18.5, 39.5, 40.0, 64.0, 65.0, 119.9, 120.0, 120.5, 1e9, None],
    "balance": [-1e6, -1000.5, -1000.0, -0.1, 0.0, 0.1, 0.25, 99.5, 99.75, 100.0, 1000.5, 1000.75, None],
    "children": [0, 1, 2, 3, 7, 11, 12, None],
    "floor": [-4.0, -3.0, -2.5, -1.0, 0.0, 0.5, 1.0, 2.0, 9.0, 10.0, 39.5, 40.0, 41.0, None],
    "visited": [
        date(1999, 12, 31),
        date(2019, 12, 31),
        date(2020, 1, 1),
        date(2020, 12, 31),
        date(2021, 1, 1),
        date(2024, 2, 28),
        date(2024, 2, 29),
        date(2024, 3, 1),
        date(2025, 12, 31),
        date(2026, 1, 1),
        None,
    ],
}
"""Every column's declared values, ends, neighbours of ends, values that are not declared, and NULL."""


@cache
def domain() -> Domain:
    return read_domain(DOMAIN)


def rows(n: int, seed: int) -> list[dict[str, Any]]:
    """Records that mix the awkward values."""
    chance = random.Random(seed)
    return [{column: chance.choice(values) for column, values in _AWKWARD.items()} for _ in range(n)]


def records(n: int, seed: int) -> pa.Table:
    """The same records as a table."""
    return pa.Table.from_pylist(rows(n, seed), schema=_SCHEMA)


def connection(table: pa.Table) -> duckdb.DuckDBPyConnection:
    """DuckDB with the table in it."""
    engine = duckdb.connect()
    engine.register("arrow", table)
    engine.execute("CREATE TABLE patients AS SELECT * FROM arrow")
    return engine


def holds(condition: Condition, record: dict[str, Any]) -> Truth:
    """Three-valued logic, word for word as the values describe themselves."""
    match condition:
        case Truth():
            return condition
        case OneOf(column, values):
            value = record[column]
            return Truth.UNKNOWN if value is None else _truth(value in values)
        case Within(column, low, high):
            value = record[column]
            return Truth.UNKNOWN if value is None else _truth(_is_between(value, low, high))
        case Missing(column):
            return _truth(record[column] is None)
        case Negation(inner):
            found = holds(inner, record)
            return found if found is Truth.UNKNOWN else _truth(found is Truth.FALSE)
        case All(parts):
            return _first({holds(part, record) for part in parts}, Truth.FALSE, Truth.UNKNOWN, Truth.TRUE)
        case AnyOf(parts):
            return _first({holds(part, record) for part in parts}, Truth.TRUE, Truth.UNKNOWN, Truth.FALSE)
    raise TypeError(type(condition))


def _truth(fact: bool) -> Truth:
    return Truth.TRUE if fact else Truth.FALSE


def _first(found: set[Truth], *order: Truth) -> Truth:
    return next((truth for truth in order if truth in found), order[-1])


def _is_between(value: Any, low: Cut | None, high: Cut | None) -> bool:
    at = value.toordinal() if isinstance(value, date) else value
    above = low is None or at > low.value or (at == low.value and not low.after)
    below = high is None or at < high.value or (at == high.value and high.after)
    return above and below


def worth(amount: Amount, record: dict[str, Any]) -> float:
    """What a record adds."""
    match amount:
        case Constant(number):
            return number
        case ValueOf(column):
            return float(record[column] or 0)
        case Choice(condition, then, otherwise):
            return worth(then if holds(condition, record) is Truth.TRUE else otherwise, record)
        case Scaled(factor, inner):
            return factor * worth(inner, record)
        case Total(parts):
            return sum(worth(part, record) for part in parts)
    raise TypeError(type(amount))


def battery() -> list[str]:
    """Statements without GROUP BY; the answers are the columns of DuckDB's only row, with NULL for 0."""
    statements = [f"SELECT COUNT(*) AS n FROM patients WHERE {condition}" for condition in _conditions()]
    statements += [f"SELECT {item} AS n FROM patients" for item in _items()]
    statements += [f"SELECT {item} AS n FROM patients WHERE age >= 18 OR state <> 'NY'" for item in _items()[::3]]
    return statements + _WHOLE


def grouped_battery() -> list[tuple[str, str]]:
    """Statements with GROUP BY, and statements without that ask for the same groups in the same order."""
    states = ["state = 'NY'", "state = 'NJ'", "state = 'CA'", "state = 'WA'"]
    ages = ["age >= 0 AND age < 18", "age >= 18 AND age < 40", "age >= 40 AND age < 65", "age >= 65 AND age <= 120"]
    smokers = ["smoker = TRUE", "smoker = FALSE"]
    floors = ["floor < 0 AND floor >= -3", "floor = 0 OR floor > 0 AND floor < 1", "floor >= 1 AND floor < 10"]
    floors += ["floor >= 10 AND floor <= 40"]
    balances = ["balance >= -1000.5 AND balance < 0", "balance >= 0 AND balance < 99.75"]
    balances += ["balance >= 99.75 AND balance <= 1000.5"]
    days = ["visited < DATE '2021-01-01' AND visited >= '2020-01-01'"]
    days += ["visited >= DATE '2021-01-01' AND visited < DATE '2024-02-29'"]
    days += ["visited >= DATE '2024-02-29' AND visited <= '2025-12-31'"]
    return [
        ("SELECT COUNT(*) AS n FROM patients GROUP BY state", _split("COUNT(*)", states)),
        ("SELECT state, COUNT(*) AS n FROM patients GROUP BY 1", _split("COUNT(*)", states)),
        ("SELECT COUNT(*) AS n FROM patients GROUP BY age", _split("COUNT(*)", ages)),
        ("SELECT SUM(children) AS n FROM patients GROUP BY smoker", _split("SUM(children)", smokers)),
        ("SELECT COUNT(*) AS n FROM patients GROUP BY floor", _split("COUNT(*)", floors)),
        ("SELECT COUNT(*) AS n FROM patients GROUP BY balance", _split("COUNT(*)", balances)),
        ("SELECT COUNT(*) AS n FROM patients GROUP BY visited", _split("COUNT(*)", days)),
        (
            "SELECT COUNT(*) AS n FROM patients GROUP BY children",
            _split("COUNT(*)", [f"children = {i}" for i in range(13)]),
        ),
        (
            "SELECT smoker, state, COUNT(age) / 3 AS n FROM patients WHERE grade <> 1 GROUP BY state, smoker",
            _split("COUNT(age) / 3", [f"{s} AND {t} AND grade <> 1" for s in states for t in smokers]),
        ),
    ]


def _split(item: str, conditions: list[str]) -> str:
    """One statement with a column for every condition."""
    items = []
    for i, condition in enumerate(conditions):
        head, _, tail = item.partition(")")
        items.append(f"{head}) FILTER (WHERE {condition}){tail} AS n{i}")
    return f"SELECT {', '.join(items)} FROM patients"


def _conditions() -> list[str]:
    single = [
        "state = 'NY'", "state <> 'NY'", "state != 'NY'", "'NY' = state", "'NY' <> state", "NOT state = 'NY'",
        "NOT NOT state = 'NY'", "state IN ('NY', 'CA')", "state IN ('NY')", "state NOT IN ('NY', 'CA')",
        "NOT state IN ('NY', 'CA')", "NOT state NOT IN ('NY', 'NJ')", "state IS NULL", "state IS NOT NULL",
        "NOT state IS NULL", "(state) = ('NY')", "\"home town\" = 'O''Fallon'", "\"home town\" IN ('Zürich', 'a;b--c')",
        "\"Home Town\" <> 'Rome'", "\"home town\" IS NOT NULL", "STATE = 'NY'", "patients.state = 'NY'",
        "\"state\" = 'NY'", "\"STATE\" = 'NY'", "grade = 1", "grade = -4", "grade <> 2", "grade IN (1, 3, -4)",
        "grade NOT IN (1, -4)", "grade = 1.0", "grade = (2)", "3 = grade", "grade IS NULL", "smoker", "NOT smoker",
        "smoker = TRUE", "smoker = FALSE", "smoker <> TRUE", "smoker <> FALSE", "TRUE = smoker", "smoker IN (TRUE)",
        "smoker IN (TRUE, FALSE)", "smoker NOT IN (FALSE)", "smoker IS NULL", "smoker IS NOT NULL", "(NOT (smoker))",
        "age = 18", "age = 18.5", "age <> 18", "age < 18", "age <= 18", "age > 18", "age >= 18", "18 < age",
        "18 <= age", "18 > age", "18 >= age", "18 = age", "18 <> age", "NOT age < 18", "NOT age >= 18", "age >= 0",
        "age < 0", "age > 120", "age <= 120", "age = 0", "age = 120", "age <> 120", "age BETWEEN 18 AND 40",
        "age NOT BETWEEN 18 AND 40", "NOT age BETWEEN 18 AND 40", "NOT age NOT BETWEEN 18 AND 40",
        "age BETWEEN 18 AND 18", "age BETWEEN 0 AND 120", "age NOT BETWEEN 0 AND 120", "age IN (0, 18, 120)",
        "age NOT IN (0, 18.5, 120)", "age = 1.8e1", "age = 180e-1", "age >= .5", "age = 5e-1", "age < 17.999",
        "age <= 17.999", "age > 1.7999E+1", "age IS NULL", "age IS NOT NULL", "balance = -0.1", "balance < -0.1",
        "balance > - 0.1", "balance >= -1000.5", "balance < -1000.5", "balance > 1000.5", "balance = 0.1",
        "balance <> 0.1", "balance IN (-0.1, 0.1, 0.25)", "balance BETWEEN -1000 AND -0.1", "balance = -0",
        "balance = -(0.1)", "-0.1 <= balance", "balance NOT BETWEEN -1000.5 AND 1000.5", "balance >= +99.75",
        "floor = 0", "floor = -3", "floor < -3", "floor <= 0", "floor > 0", "floor >= 1", "floor BETWEEN -2 AND 1",
        "floor BETWEEN 0 AND 0", "floor <> 0", "floor IN (-1, 0, 40)", "floor NOT IN (-1, 0, 40)", "floor > 40",
        "floor >= 1e1", "floor IS NULL", "NOT floor > 0", "children = 0", "children >= 3", "children < 3",
        "children IN (0, 12)", "children NOT BETWEEN 1 AND 11", "children <> 7", "children IS NULL",
        "visited = DATE '2024-02-29'", "visited = '2024-02-29'", "visited = CAST('2024-02-29' AS DATE)",
        "visited = '2024-02-29'::date", "visited <> DATE '2024-02-29'", "visited < DATE '2024-02-29'",
        "visited <= DATE '2024-02-29'", "visited > DATE '2024-02-29'", "visited >= DATE '2024-02-29'",
        "DATE '2024-02-29' <= visited", "DATE '2024-02-29' > visited", "NOT visited <= DATE '2024-02-29'",
        "visited BETWEEN DATE '2020-12-31' AND '2024-02-29'", "visited NOT BETWEEN '2020-12-31' AND '2024-02-29'",
        "visited IN (DATE '2020-01-01', '2025-12-31')", "visited NOT IN (DATE '2020-01-01', '2025-12-31')",
        "visited < '2020-01-01'", "visited > '2025-12-31'", "visited >= '2020-01-01'", "visited IS NULL",
        "visited IS NOT NULL", "TRUE", "FALSE", "NOT TRUE",
    ]  # fmt: skip
    joined = [
        "state = 'NY' AND age >= 18", "state = 'NY' OR age >= 18", "NOT (state = 'NY' OR age >= 18)",
        "NOT (state = 'NY' AND age >= 18)", "state = 'NY' OR state = 'NJ' AND smoker",
        "(state = 'NY' OR state = 'NJ') AND smoker", "NOT state = 'NY' AND smoker", "NOT (NOT smoker OR NOT age < 40)",
        "NOT smoker OR age IS NULL", "state <> 'NY' OR state IS NULL", "smoker AND NOT smoker", "smoker OR NOT smoker",
        "age BETWEEN 18 AND 40 AND balance BETWEEN -0.1 AND 0.1", "age < 18 OR age > 40 OR age IS NULL",
        "NOT (age BETWEEN 18 AND 40 AND visited >= '2021-01-01')", "age NOT IN (18, 40) AND grade NOT IN (1)",
        "smoker AND state IN ('NY') AND age > 17 AND visited < '2024-03-01' AND floor >= 0 AND children IS NOT NULL",
        "TRUE AND smoker", "FALSE OR smoker", "smoker AND FALSE", "NOT (smoker AND FALSE)", "NOT (smoker OR TRUE)",
        "((((age)) >= (((18)))))", "grade = 1 OR grade = 2 OR grade = 3 OR grade = -4 OR grade IS NULL",
    ]  # fmt: skip
    return single + joined


def _items() -> list[str]:
    return [
        "COUNT(*)", "COUNT(1)", "COUNT('x')", "COUNT(age)", "COUNT(state)", "COUNT(smoker)", "COUNT(visited)",
        "count ( * )", "COUNT(\"home town\")", "COUNT(patients.floor)", "COUNT(*) FILTER (WHERE state = 'NY')",
        "COUNT(*) FILTER (WHERE state <> 'NY')", "COUNT(age) FILTER (WHERE NOT smoker)", "SUM(1)", "SUM(-2.5)",
        "SUM(2 + 3 * 4)", "SUM(CASE WHEN age >= 18 THEN 1 ELSE 0 END)", "SUM(CASE WHEN age >= 18 THEN 1 END)",
        "SUM(CASE WHEN NOT age >= 18 THEN 1 ELSE -1 END)", "SUM(CASE WHEN age < 18 THEN 1 WHEN age < 40 THEN 2 END)",
        "SUM(CASE WHEN age < 18 THEN 0.5 WHEN smoker THEN 2e0 WHEN state = 'NY' THEN -1.25 ELSE 10 END)",
        "SUM(CASE state WHEN 'NY' THEN 1 WHEN 'NJ' THEN 2 ELSE 3 END)", "SUM(CASE grade WHEN 1 THEN 5 END)",
        "SUM(CASE age WHEN 18 THEN 1 WHEN 18.5 THEN 2 ELSE 0 END)", "SUM(CASE smoker WHEN TRUE THEN 1 ELSE -1 END)",
        "SUM(CASE visited WHEN DATE '2024-02-29' THEN 1 WHEN '2020-01-01' THEN 7 END)",
        "SUM(CASE WHEN smoker THEN CASE WHEN age > 40 THEN 3 ELSE 2 END ELSE 1 END)",
        "SUM(CASE WHEN smoker THEN NULL ELSE 1 END)", "SUM(CASE WHEN smoker THEN 1 ELSE NULL END)",
        "SUM(CASE WHEN smoker THEN 1/4 ELSE (1 + 2) * 3 - 1 END)", "SUM(children)", "SUM(2 * children)",
        "SUM(children * 2)", "SUM(children / 2)", "SUM(-children)", "SUM(- (children) * 3 / 4)", "SUM(children) * 2",
        "SUM(children) FILTER (WHERE state = 'NY')", "SUM(CASE WHEN smoker THEN children ELSE 0 END)",
        "SUM(CASE WHEN smoker THEN children * 3 ELSE -children END)", "SUM(CASE WHEN smoker THEN children ELSE 5 END)",
        "SUM(2 * CASE WHEN age > 18 THEN children WHEN age IS NULL THEN 1 END)", "COUNT(*) + COUNT(age)",
        "SUM(CASE WHEN children = 3 THEN children END) / 3", "COUNT(*) - COUNT(age)", "-COUNT(*)", "- - COUNT(*)",
        "2 * COUNT(*)", "COUNT(*) * 2", "COUNT(*) / 8", "COUNT(*) / -8", "COUNT(*) * 2 / 37", "COUNT(*) / 2 / 5",
        "COUNT(*) / (2 / 5)", "2 * (COUNT(*) - COUNT(age))", "-(COUNT(*) - 3 * COUNT(age)) / 2", "1e-3 * COUNT(*)",
        "COUNT(*) FILTER (WHERE state='NY')/19 + COUNT(*) FILTER (WHERE state='NJ')/8 + "
        "COUNT(*) FILTER (WHERE state='CA')/37",
        "COUNT(*) FILTER (WHERE age < 18) - COUNT(*) FILTER (WHERE age >= 18) - COUNT(*) FILTER (WHERE age IS NULL)",
        "COUNT(*) - (COUNT(age) - COUNT(state))", "COUNT(*) + 5 - 5", "COUNT(*) * (1 + 1) - COUNT(*) / (3 - 1)",
        "100.0 * COUNT(*) FILTER (WHERE smoker) / 250", "COUNT(*) * 0", "SUM(CASE WHEN smoker THEN 0 ELSE 0 END)",
    ]  # fmt: skip


_WHOLE = [
    'SELECT COUNT(*) FROM "patients"',
    "select count(*) from PATIENTS where AGE > 18",
    "SELECT COUNT(*) AS n, COUNT(age) AS a, SUM(children) c FROM patients AS p WHERE p.age > 18 AND state = 'NY'",
    'SELECT COUNT(p.age) "how many" FROM patients p WHERE P."age" < 40',
    "-- a comment\nSELECT /* another */ COUNT(*) -- and so on\nFROM patients /* 'quoted; */ WHERE age /**/ < 40",
    "SELECT COUNT(*)\r\nFROM patients\r\nWHERE\tage<40 AND(smoker)OR(age IN(18))AND state='NY'",
    "SELECT COUNT(*) n, SUM(CASE WHEN smoker THEN 1 END) / 3 s, COUNT(*) FILTER (WHERE NOT smoker) FROM patients",
]

NUMBERS = {
    "age": ["0", "17.999", "18", "18.5", "40", "6.5e1", "119.9", "120"],
    "balance": ["-1000.5", "-0.1", "0", "0.1", ".25", "99.75", "+100", "1000.5"],
    "children": ["0", "1", "3", "11", "12"],
    "floor": ["-3", "-1", "0", "1", "10", "39", "40"],
    "visited": ["DATE '2020-01-01'", "'2020-12-31'", "DATE '2024-02-29'", "'2024-03-01'::date", "'2025-12-31'"],
}
"""Constants in ascending order."""
VALUES = {
    "state": ["'NY'", "'NJ'", "'CA'", "'WA'"],
    '"home town"': ["'O''Fallon'", "'Zürich'", "'a;b--c'", "'Rome'"],
    "grade": ["1", "2", "3", "-4"],
    "smoker": ["TRUE", "FALSE"],
}


@st.composite
def comparisons(draw: DrawFn) -> str:
    """A condition on one column."""
    column = draw(st.sampled_from([*VALUES, *NUMBERS]))
    negation = draw(st.sampled_from(["", "NOT "]))
    constants = VALUES.get(column) or NUMBERS[column]
    some = draw(st.lists(st.sampled_from(constants), min_size=1, max_size=3))
    forms = ["equal", "in", "null"] + ["order", "between"] * (column in NUMBERS) + ["bare"] * (column == "smoker")
    match draw(st.sampled_from(forms)):
        case "equal":
            sign = draw(st.sampled_from(["=", "<>", "!="]))
            return draw(st.sampled_from([f"{column} {sign} {some[0]}", f"{some[0]} {sign} {column}"]))
        case "in":
            return f"{column} {negation}IN ({', '.join(some)})"
        case "order":
            sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
            return draw(st.sampled_from([f"{column} {sign} {some[0]}", f"{some[0]}{sign}{column}"]))
        case "between":
            low, high = sorted(draw(st.tuples(*[st.integers(0, len(constants) - 1)] * 2)))
            return f"{column} {negation}BETWEEN {constants[low]} AND {constants[high]}"
        case "bare":
            return f"{negation}{column}"
    return f"{column} IS {negation}NULL"


def conditions() -> SearchStrategy[str]:
    """Trees of AND, OR and NOT, with parentheses and without."""
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(" AND ".join),
            st.lists(inner, min_size=2, max_size=3).map(" OR ".join),
            inner.map(lambda condition: f"NOT ({condition})"),
            inner.map(lambda condition: f"({condition})"),
        ),
        max_leaves=6,
    )


constants = st.sampled_from(["1", "0", "-1", "2.5", "19", "1/8", "(3 - 1)", "1e-2", "-.75"])


@st.composite
def cases(draw: DrawFn) -> str:
    """A CASE whose results are numbers, multiples of children, or CASEs."""
    results = st.one_of(constants, st.sampled_from(["children", "2 * children", "-children", "children / 4", "NULL"]))
    branches = draw(st.lists(st.tuples(conditions(), results), min_size=1, max_size=3))
    otherwise = draw(st.one_of(st.just(""), results.map(lambda result: f" ELSE {result}")))
    if draw(st.booleans()):
        column = draw(st.sampled_from([*VALUES, *NUMBERS]))
        values = draw(st.lists(st.sampled_from(VALUES.get(column) or NUMBERS[column]), min_size=1, max_size=3))
        whens = " ".join(f"WHEN {value} THEN {draw(results)}" for value in values)
        return f"CASE {column} {whens}{otherwise} END"
    return "CASE " + " ".join(f"WHEN {holds} THEN {result}" for holds, result in branches) + f"{otherwise} END"


@st.composite
def aggregates(draw: DrawFn) -> str:
    """A COUNT or SUM, with or without FILTER."""
    inner = draw(
        st.one_of(
            st.sampled_from(
                ["COUNT(*)", "COUNT(1)", "COUNT(age)", 'COUNT("home town")', "SUM(children)", "SUM(3*children)"]
            ),
            cases().map(lambda case: f"SUM({case})"),
        )
    )
    return draw(st.one_of(st.just(inner), conditions().map(lambda condition: f"{inner} FILTER (WHERE {condition})")))


def combinations() -> SearchStrategy[str]:
    """Sums, differences, multiples and quotients of aggregates."""
    multiples = st.one_of(
        aggregates(),
        st.tuples(constants, aggregates()).map(" * ".join),
        st.tuples(aggregates(), st.sampled_from(["19", "8", "-3", "0.5", "(2 + 1)"])).map(" / ".join),
        aggregates().map(lambda aggregate: f"-({aggregate})"),
    )
    return st.recursive(
        multiples,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(" + ".join),
            st.tuples(inner, inner).map(lambda two: f"{two[0]} - ({two[1]})"),
            inner.map(lambda item: f"({item}) / 7"),
        ),
        max_leaves=3,
    )


@st.composite
def statements(draw: DrawFn) -> str:
    """One SELECT without GROUP BY."""
    items = draw(st.lists(combinations(), min_size=1, max_size=2))
    named = ", ".join(f"{item} AS n{i}" for i, item in enumerate(items))
    where = draw(st.one_of(st.just(""), conditions().map(lambda condition: f" WHERE {condition}")))
    return f"SELECT {named} FROM patients{where}"


# ── statements with GROUP BY ──

GROUPED_DOMAIN = (
    DOMAIN
    + """
[columns.state.groupings.coast]
east = ["NY", "NJ"]
west = ["CA", "WA"]
[columns.age.groupings]
age_twenty = [0, 20, 40, 60, 80, 100]
[columns.visited.groupings.period]
early = "2020-01-01"
late = "2023-07-01"
"""
)


def _bands(column: str, edges: list[str], top: str, titles: list[str]) -> str:
    """What the bins of a domain are to DuckDB."""
    ends = [f"{column} < {edge}" for edge in edges[1:]] + [f"{column} <= {top}"]
    whens = [
        f"WHEN {column} >= {low} AND {high} THEN '{title}'"
        for low, high, title in zip(edges, ends, titles, strict=True)
    ]
    return f"CASE {' '.join(whens)} END"


def _listed(column: str, values: list[str]) -> str:
    return f"CASE WHEN {column} IN ({', '.join(values)}) THEN CAST({column} AS VARCHAR) END"


_TWENTIES = ["0", "20", "40", "60", "80", "100"]
KEYS = {
    "state": _listed("state", VALUES["state"]),
    "grade": _listed("grade", VALUES["grade"]),
    "smoker": _listed("smoker", VALUES["smoker"]),
    "children": _listed("children", [str(n) for n in range(13)]),
    "age": _bands(
        "age", ["0", "18", "40", "65"], "120", ["0 to under 18", "18 to under 40", "40 to under 65", "65 to 120"]
    ),
    "balance": _bands("balance", ["-1000.5", "0", "99.75"], "1000.5", ["debt", "small", "large"]),
    "floor": _bands(
        "floor", ["-3", "0", "1", "10"], "40", ["-3 to under 0", "0 to under 1", "1 to under 10", "10 to 40"]
    ),
    "coast": "CASE WHEN state IN ('NY', 'NJ') THEN 'east' WHEN state IN ('CA', 'WA') THEN 'west' END",
    "age_twenty": _bands(
        "age", _TWENTIES, "120", [*(f"{low} to under {high}" for low, high in pairwise(_TWENTIES)), "100 to 120"]
    ),
    "period": _bands("visited", ["DATE '2020-01-01'", "DATE '2023-07-01'"], "DATE '2025-12-31'", ["early", "late"]),
}
"""By the name that GROUP BY uses: the same as an expression of DuckDB, NULL where a record is in no group."""


def grouped_statement(chance: random.Random, number: int) -> tuple[str, str, list[str]]:
    """A statement with GROUP BY, what DuckDB is asked instead, and the names of its keys.

    DuckDB gives the keys, for every key whether the row adds up over it, and the answers.
    """
    names = chance.sample(sorted(KEYS), chance.randint(0, 2))
    keys = {name: KEYS[name] for name in names}
    shown = []
    if not names or chance.random() < 0.5:
        whens = [f"WHEN {chance.choice(_conditions())} THEN '{title}'" for title in chance.sample("abc", 2)]
        case = f"CASE {' '.join(whens)}{chance.choice([' ELSE ' + chr(39) + 'rest' + chr(39), ''])} END"
        keys["label"] = case
        shown.append(f"{case} AS label")
    order = list(keys)
    sets = chance.choice(["{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), {}, ())"])
    each = ", ".join(order)
    shape = sets.format(each, chance.choice(order)) if sets.startswith("GROUPING") else sets.format(each)
    if sets.startswith("GROUPING") and len(order) == 1:
        shape = f"GROUPING SETS (({each}), ())"
    items = [f"{item} AS n{number}_{i}" for i, item in enumerate(chance.sample(_items()[:40], chance.randint(1, 2)))]
    where = f" WHERE {chance.choice(_conditions())}" if chance.random() < 0.5 else ""
    ours = f"SELECT {', '.join([*shown, *items])} FROM patients{where} GROUP BY {shape}"
    inner = ", ".join(f"{expression} AS key_{name}" for name, expression in keys.items())
    theirs_shape = shape
    for name in sorted(order, key=len, reverse=True):
        theirs_shape = re.sub(rf"\b{name}\b(?!_)", f"key_{name}", theirs_shape)
    outer = [*(f"key_{name}" for name in order), *(f"GROUPING(key_{name}) = 1" for name in order), *items]
    theirs = (
        f"SELECT {', '.join(outer)} FROM (SELECT *, {inner} FROM patients) AS patients{where} GROUP BY {theirs_shape}"
    )
    return ours, theirs, order
