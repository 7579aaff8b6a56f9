"""Statements as people write them, to compare with DuckDB: court cases without an undeclared value, and a generator."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import cache
from itertools import count
from math import inf, isnan, nan
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain, read_domain
from batchdp.engines import count as counted
from batchdp.engines import open_table
from batchdp.errors import QueryError
from batchdp.mechanism.derived import evaluated
from batchdp.release.shown import Rows
from batchdp.release.tables import Layout
from batchdp.workloads.encode.cells import cells_of
from cases import read_batch

DOMAIN = """
table = "cases"
[columns.charge]
values = ["Battery", "Aggravated Battery", "Theft", "Retail theft", "DUI", "Straße 5%_x"]
[columns.court]
values = [1, 2, 3, 4]
[columns.venue]
values = ["North", "South", "Lake, East"]
groups = "all"
[columns.felony]
values = [true, false]
[columns.age]
integers = [14, 90]
[columns.priors]
integers = [0, 12]
[columns.fine]
range = [0, 50]
step = 0.25
[columns.score]
range = [-10, 10]
[columns.filed]
dates = ["2021-01-01", "2023-12-31"]
"""
CHARGES = ["Battery", "Aggravated Battery", "Theft", "Retail theft", "DUI", "Straße 5%_x"]
VENUES = ["North", "South", "Lake, East"]


@cache
def domain() -> Domain:
    return read_domain(DOMAIN)


@cache
def records(n: int = 3000, seed: int = 0) -> pa.Table:
    """Court cases that nobody had; every column but `court` lacks some values."""
    chance = random.Random(seed)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.05 else value

    rows = [
        {
            "charge": some(chance.choice(CHARGES)),
            "court": chance.randint(1, 4),
            "venue": some(chance.choice(VENUES)),
            "felony": some(chance.random() < 0.4),
            "age": some(chance.randint(14, 90)),
            "priors": some(min(12, int(chance.expovariate(0.5)))),
            "fine": some(chance.randint(0, 200) / 4),
            "score": some(round(chance.uniform(-10, 10), chance.randint(0, 2))),
            "filed": some(date(2021, 1, 1) + timedelta(days=chance.randint(0, 1094))),
        }
        for _ in range(n)
    ]
    kinds = [
        ("charge", pa.string()), ("court", pa.int64()), ("venue", pa.string()), ("felony", pa.bool_()),
        ("age", pa.int32()),
        ("priors", pa.int64()), ("fine", pa.float64()), ("score", pa.float64()), ("filed", pa.date32()),
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


@cache
def engine() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("arrow", records())
    connection.execute("CREATE TABLE cases AS SELECT * FROM arrow")
    return connection


TEXTS = [
    "LOWER(charge)", "UPPER(charge)", "SUBSTR(charge, 1, 4)", "SUBSTR(charge, -3)", "SUBSTRING(charge FROM 2 FOR 3)",
    "charge || '!'", "LOWER(SUBSTR(charge, 1, 1)) || 'x'", "COALESCE(charge, 'none')",
]  # fmt: skip
NUMBERS = [
    "age + 1", "2 * age - 7", "age / 10", "FLOOR(age / 10) * 10", "CEIL(age / 7)", "ROUND(age / 4)", "-age",
    "ABS(age - 50)", "ABS(2 * priors - 5)", "priors * priors", "COALESCE(priors, 3)", "10 - priors", "fine / 2",
    "FLOOR(fine)", "CEIL(fine)", "ROUND(fine, -1)", "ABS(fine - 20.5) + 1", "FLOOR(score)", "CEIL(score / 3)",
    "ROUND(score)", "FLOOR(ABS(score) / 2)", "court * 10", "EXTRACT(YEAR FROM filed)", "EXTRACT(QUARTER FROM filed)",
    "MONTH(filed)", "EXTRACT(DOW FROM filed)", "YEAR(filed) * 100 + MONTH(filed)", "LENGTH(charge)",
    "filed - DATE '2021-06-30'",     "EXTRACT(DAY FROM filed)", "EXTRACT(WEEK FROM filed)", "QUARTER(filed)",
]  # fmt: skip
DATES = [
    "DATE_TRUNC('month', filed)", "DATE_TRUNC('quarter', filed)", "DATE_TRUNC('week', filed)",
    "DATE_TRUNC('year', filed)", "filed + INTERVAL '1' MONTH", "filed - INTERVAL 10 DAY", "filed + INTERVAL '2 years'",
]  # fmt: skip
PATTERNS = ["%Battery%", "battery", "%heft", "B%", "D_I", "%!%!_x", "Aggr%B%y", "%t%"]
CONTINUOUS = ("score + 1", "2 * score")


def condition(chance: random.Random, depth: int = 0) -> str:
    """One that some declared value fulfils, mostly; others are refused, and drawn again."""
    kind = chance.randrange(12)
    sign = chance.choice(["=", "<>", "<", "<=", ">", ">="])
    days = [date(2021, 1, 1) + timedelta(days=31 * k) for k in range(1, 34)]
    if kind == 0:
        pattern = chance.choice(PATTERNS)
        escape = " ESCAPE '!'" if "!" in pattern else ""
        return f"charge {chance.choice(['', 'NOT '])}{chance.choice(['LIKE', 'ILIKE'])} '{pattern}'{escape}"
    if kind == 1:
        text = chance.choice(["theft", "DUI", "Batt", "sx", "none", "C"])
        return f"{chance.choice(TEXTS)} {chance.choice(['=', '<>', '<', '>='])} '{text}'"
    if kind in (2, 3, 4):
        number = chance.choice([0, 1, 2, 3, 5, 10, 12.5, 20, 50, 2022, -3])
        return f"{chance.choice([*NUMBERS, *CONTINUOUS])} {sign} {number}"
    if kind == 5:
        return f"{chance.choice(DATES)} {sign} DATE '{chance.choice(days)}'"
    if kind == 6:
        low, high = sorted(chance.sample([0, 3, 5, 10, 20, 40, 45], 2))
        ends = f"SYMMETRIC {high} AND {low}" if chance.random() < 0.3 else f"{low} AND {high}"
        return f"{chance.choice(['fine', *NUMBERS])} {chance.choice(['', 'NOT '])}BETWEEN {ends}"
    if kind == 7:
        own = chance.choice(["priors", "MONTH(filed)", "FLOOR(fine)"])
        return f"{own} IN ({chance.choice(['1 + 1', '2 * 5'])}, 12)"
    if kind == 8:
        column, value = chance.choice([("charge", "'DUI'"), ("age", "20"), ("felony", "TRUE"), ("priors", "1 + 1")])
        return f"{column} IS {chance.choice(['', 'NOT '])}DISTINCT FROM {chance.choice([value, 'NULL'])}"
    if kind == 9:
        own = chance.choice(["age", "charge", "MONTH(filed)", "COALESCE(age, 3)"])
        return f"{own} IS {chance.choice(['', 'NOT '])}NULL"
    if depth > 1:
        return "felony"
    joined = f"{condition(chance, depth + 1)} {chance.choice(['AND', 'OR'])} {condition(chance, depth + 1)}"
    return f"NOT ({joined})" if chance.random() < 0.4 else f"({joined})"


def item(chance: random.Random) -> str:
    summed = chance.choice([one for one in NUMBERS if one not in CONTINUOUS])
    other = chance.choice(NUMBERS)
    return chance.choice(
        [
            "COUNT(*)", f"SUM({summed})", f"AVG({summed})", f"COUNT(*) FILTER (WHERE {condition(chance)})",
            f"SUM(CASE WHEN {condition(chance)} THEN {summed} ELSE 1 END)", f"SUM({summed}) / COUNT(*)",
            f"AVG({summed}) FILTER (WHERE {condition(chance)})", f"AVG(CASE WHEN {condition(chance)} THEN {other} END)",
        ]
    )  # fmt: skip


KEYS = [
    *TEXTS,
    *(one for one in NUMBERS if "fine / 2" not in one and "filed -" not in one),
    *DATES[:4],
    "charge",
    "court",
    "venue",
]
FULL = [
    ("charge", "charge"), ("charge", "LOWER(charge)"), ("court", "court"), ("felony", "felony"),
    ("filed", "MONTH(filed)"), ("filed", "DATE_TRUNC('quarter', filed)"), ("age", "FLOOR(age / 20) * 20"),
    ("age", "CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END"),
]  # fmt: skip
"""What is grouped by where every group has records, with its column."""
SMALL = ["priors", "court", "2 * priors + 1", "MONTH(filed)", "LENGTH(charge)", "ROUND(fine, -1)", "ABS(priors - 3)"]
"""Numbers of few values, to multiply."""


def plainly(chance: random.Random, name: str) -> str:
    many = chance.choice([0, 0, 1, 1, 1, 2])
    keys = chance.sample(KEYS if many < 2 else [*TEXTS, "court", "venue", "QUARTER(filed)"], many)
    shown = "".join(f"{key} AS k{i}, " for i, key in enumerate(keys))
    where = f" WHERE {condition(chance)}" if chance.random() < 0.6 else ""
    group = f" GROUP BY {', '.join(chance.choice([str(i + 1), f'k{i}']) for i in range(len(keys)))}" if keys else ""
    return f"SELECT {shown}{item(chance)} AS {name} FROM cases{where}{group}"


def by_cases(chance: random.Random, name: str) -> str:
    rest = chance.choice(["", "ELSE 'a' "])
    label = f"CASE WHEN {condition(chance)} THEN 'a' WHEN {condition(chance)} THEN 'b' {rest}END"
    return f"SELECT {label} AS k0, {item(chance)} AS {name} FROM cases GROUP BY k0"


def beside(chance: random.Random, name: str) -> str:
    """Groups with a row for NULL."""
    key = chance.choice(["court", "MONTH(filed)", "felony"])
    return f"SELECT venue AS k0, {key} AS k1, {item(chance)} AS {name} FROM cases GROUP BY 1, k1"


def moment(chance: random.Random, name: str) -> str:
    one = chance.choice(["VARIANCE", "VAR_SAMP", "VAR_POP", "STDDEV", "STDDEV_SAMP", "STDDEV_POP"])
    two = chance.choice(["COVAR_POP", "COVAR_SAMP", "CORR"])
    first, second = chance.sample([own for own in SMALL if "priors" not in own], 2)
    second = chance.choice([second, *(own for own in SMALL if "priors" in own)])
    asked = chance.choice([f"{one}({chance.choice([*SMALL, 'age', 'fine'])})", f"{two}({first}, {second})"])
    asked += f" FILTER (WHERE {condition(chance)})" if chance.random() < 0.3 else ""
    key, group = chance.choice(
        [("", ""), ("", ""), ("court AS k0, ", " GROUP BY 1"), ("felony AS k0, ", " GROUP BY k0")]
    )
    where = f" WHERE {condition(chance)}" if chance.random() < 0.4 else ""
    return f"SELECT {key}{asked} AS {name} FROM cases{where}{group}"


def share(chance: random.Random, name: str) -> str:
    """Of records that are in some group; DuckDB has those of NULL in the whole."""
    (column, key), (other, more) = chance.sample(FULL, 2)
    own = chance.choice(["COUNT(*)", "SUM(priors)", f"COUNT(*) FILTER (WHERE {condition(chance)})"])
    there = f"{column} IS NOT NULL AND {other} IS NOT NULL"
    where = f" WHERE {there} AND {condition(chance)}" if chance.random() < 0.3 else f" WHERE {there}"
    if column == other or chance.random() < 0.5:
        return f"SELECT {key} AS k0, {own} * 1.0 / SUM({own}) OVER () AS {name} FROM cases{where} GROUP BY k0"
    by = chance.choice(["", "PARTITION BY 0"]).replace("0", key)
    return (
        f"SELECT {key} AS k0, {more} AS k1, 100.0 * {own} / SUM({own}) OVER ({by}) AS {name} FROM cases{where} "
        "GROUP BY k0, k1"
    )


def some_rows(chance: random.Random, name: str) -> str:
    """ORDER BY, LIMIT, OFFSET and HAVING; keys tell rows of one answer apart, and every group has records."""
    (column, key), (other, more) = chance.sample(FULL, 2)
    two = column != other and chance.random() < 0.4
    keys = f"{key} AS k0, {more} AS k1" if two else f"{key} AS k0"
    own = chance.choice(["COUNT(*)", "AVG(age)", "AVG(fine)", "SUM(priors)", "STDDEV(priors)"])
    order = chance.choice([f"{name} DESC, k0", f"{name}, 1 DESC", "k0 DESC", "1", f"{key}"]) + (", k1" if two else "")
    having = {"COUNT(*)": 150.5, "AVG(age)": 51.23, "AVG(fine)": 24.87, "SUM(priors)": 333.3, "STDDEV(priors)": 1.93}
    test = f" HAVING {chance.choice([name, own])} {chance.choice(['>=', '<', '>'])} {having[own]}"
    limit = chance.choice(["", f" LIMIT {chance.randint(1, 8)}", f" LIMIT {chance.randint(1, 8)} OFFSET 2"])
    there = f"{column} IS NOT NULL AND {other} IS NOT NULL"
    group = "k0, k1" if two else "k0"
    rest = f"{test if chance.random() < 0.5 else ''} ORDER BY {order}{limit}"
    return f"SELECT {keys}, {own} AS {name} FROM cases WHERE {there} GROUP BY {group}{rest}"


def nested(chance: random.Random, name: str) -> str:
    """Subqueries and WITH, which filter and rename."""
    inner = (
        f"SELECT *, {chance.choice(NUMBERS[:8])} AS x, {chance.choice(TEXTS)} AS t FROM cases WHERE {condition(chance)}"
    )
    own = chance.choice(["COUNT(*)", "SUM(x)", "AVG(x)", "SUM(priors)", "COUNT(*) FILTER (WHERE x > 20)"])
    where = f" WHERE {condition(chance)}" if chance.random() < 0.5 else ""
    key, group = chance.choice([("", ""), ("t AS k0, ", " GROUP BY t"), ("t AS k0, felony AS k1, ", " GROUP BY k0, 2")])
    if chance.random() < 0.5:
        return f"SELECT {key}{own} AS {name} FROM ({inner}) AS a{where}{group}"
    known = f"WITH a AS ({inner}), b AS (SELECT * FROM a WHERE {condition(chance)})"
    return f"{known} SELECT {key}{own} AS {name} FROM b{where}{group}"


KINDS = (plainly, plainly, by_cases, beside, moment, share, some_rows, nested)


def statement(seed: int) -> str:
    """A statement that DuckDB and batchdp both read; those of eight seeds in a row are of all kinds."""
    return KINDS[seed % len(KINDS)](random.Random(f"asked {seed}"), f"n{seed}")


def readable(many: int, first: int = 0) -> list[str]:
    """So many statements, without those that are refused because nothing could fulfil a condition."""
    found: list[str] = []
    for sql in map(statement, count(first)):
        if len(found) == many:
            break
        try:
            read_batch(sql, domain())
            found.append(sql)
        except QueryError as error:
            assert all("that no declared value of" in one for one in error.refusals), (sql, error)  # noqa: PT017
    return found


def plain(value: Any) -> str:
    """A key as a group's title has it."""
    if value is None:
        return "(NULL)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (datetime, date)):
        return str(value)[:10]
    if isinstance(value, (int, float)):
        return repr(float(value) + 0.0)
    return str(value)


def titled(name: str) -> tuple[str, ...]:
    """The groups in a name of ours, as `plain` has them."""
    found = []
    for part in re.split(r", (?=\w+=)", name.partition("[")[2].removesuffix("]")):
        title = part.partition("=")[2]
        if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", title):
            title = repr(float(title))
        found.append(title)
    return tuple(found)


@cache
def theirs(sql: str) -> dict[tuple[str, ...], float]:
    """DuckDB's answers by group, in its order; those of NULL only where there is a group for it."""
    # Which has no SYMMETRIC; the generator gives the higher end first.
    asked = re.sub(r"BETWEEN SYMMETRIC (\S+) AND (\d+)", r"BETWEEN \2 AND \1", sql)
    keys = len(re.findall(r" AS k\d", sql))
    beside = [f"venue AS k{i}" in sql for i in range(keys)]
    return {
        tuple(map(plain, row[:keys])) if keys else ("",): nan if row[keys] is None else float(row[keys])
        for row in engine().execute(asked).fetchall()
        if all(key is not None or kept for key, kept in zip(row, beside, strict=False))
    }


def different(sql: str, found: dict[tuple[str, ...], float]) -> list[Any]:
    """Where answers without noise are not DuckDB's. To us a sum of nothing is 0, and so is a group of nobody."""
    asked = theirs(sql)

    def same(own: float, value: float) -> bool:
        return isnan(own) or own == 0 if isnan(value) else abs(own - value) <= 1e-9 * max(1, abs(value))

    wrong: list[Any] = [
        (key, value, found.get(key)) for key, value in asked.items() if not same(found.get(key, inf), value)
    ]
    wrong += [(key, None, value) for key, value in found.items() if key not in asked and abs(value) > 1e-9]
    if "ORDER BY" in sql and list(asked) != list(found):
        wrong.append((list(asked), list(found)))
    return wrong


class Questions:
    """Statements as they are counted, whatever the engine."""

    def __init__(self, sqls: Sequence[str]) -> None:
        self.sqls = tuple(sqls)
        self.batch = read_batch(";\n".join(sqls), domain())
        alone = [[q] for q in range(len(self.batch.queries))]
        self.cells = cells_of(self.batch.queries, domain(), partition=alone)

    def answers(self, table: Any) -> list[dict[tuple[str, ...], float]]:
        """Without noise, from what an engine counts: what every statement shows, in its order."""
        with open_table(table, domain()) as source:
            exact = self.cells.answers(self.cells.counts(counted(source, self.cells.atoms)))
        values = evaluated(self.batch.asked, np.asarray(exact, dtype=np.float64))
        tables: Any = Layout(None, None, self.batch.asked).tables()  # type: ignore[arg-type]
        figures = {id(one): SimpleNamespace(values=values[list(one.answers)]) for one in tables}
        release: Any = SimpleNamespace(tables=tables, figures=lambda one: figures[id(one)])
        places = {one.name: list(one.answers) for one in tables}
        for view in self.batch.views:
            rows = Rows(release, view)
            places |= {one.name: [one.answers[k] for k in rows.places(one).tolist()] for one in rows.tables}
        names = dict.fromkeys(one.name.partition("[")[0] for one in self.batch.asked)
        found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in names}
        for own in places.values():
            for k in own:
                one = self.batch.asked[k]
                found[one.name.partition("[")[0]][titled(one.name)] = float(values[k])
        return list(found.values())


def ours(sqls: Sequence[str], table: Any = None) -> list[dict[tuple[str, ...], float]]:
    """The answers without noise; one dictionary a statement."""
    return Questions(sqls).answers(records() if table is None else table)
