"""What SUM of amounts means, to compare with: awkward amounts, statements about them, and DuckDB on exact decimals."""

from __future__ import annotations

import math
import random
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from batchdp.domain import Domain, Integers, Numbers, read_domain
from batchdp.engines import count, open_table
from batchdp.sql import read_queries
from batchdp.workloads.encode.cells import Cells, cells_of

DOMAIN = """
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA"]
[columns.charge]
range = [0, 1000]
step = 0.01
bins = [0, 9.995, 500]
[columns.debt]
range = [-50.5, 50]
step = 0.25
outside = "clip"
[columns.income]
integers = [0, 1_000_000_000]
[columns.visits]
integers = [1, 12]
outside = "clip"
[columns.floor]
integers = [-3, 400_000]
[columns.paid]
range = [0, 9007199254740990]
step = 0.5
"""
SCHEMA = pa.schema(
    [
        ("state", pa.string()),
        ("charge", pa.float64()),
        ("debt", pa.decimal128(10, 2)),
        ("income", pa.int64()),
        ("visits", pa.int32()),
        ("floor", pa.float64()),
        ("paid", pa.int64()),
    ]
)
CUTS = {
    "charge": ["0", "0.005", "9.995", "10", "250.25", "1000"],
    "debt": ["-50.5", "-0.1", "0", "10.125", "50"],
    "income": ["0", "1", "999", "50000", "1000000000"],
    "visits": ["1", "2", "6", "12"],
    "floor": ["-3", "0", "10", "399999"],
    "paid": ["0", "1", "1000000", "9007199254740990"],
}


@cache
def domain() -> Domain:
    return read_domain(DOMAIN)


def records(n: int, seed: int) -> pa.Table:
    """Amounts on, between and beyond the steps; many lie halfway between two."""
    chance = random.Random(seed)

    def pick(*values: Any) -> Any:
        return None if chance.random() < 0.08 else chance.choice(values)

    rows = [
        {
            "state": pick("NY", "NJ", "CA", "TX"),
            "charge": pick(
                chance.randint(-200, 1_000_200) / 1000, chance.randint(0, 999) + 0.005, 0.1 + 0.2, 0.285, 1.005, -1e300,
                1e300, 5e-324, -0.0, math.inf, -math.inf, 999.995, 1000.0, 1000.0049,
            ),
            "debt": pick(Decimal(chance.randint(-6000, 6000)) / 100, Decimal("0.13"), Decimal("-99999999.99")),
            "income": pick(chance.randint(-5, 1_000_000_005), 0, 1, 10**9, 2**63 - 1, -(2**63)),
            "visits": pick(chance.randint(-1, 14), 2**31 - 1, 1),
            "floor": pick(chance.randint(-4, 400_001), 0.5, 2.5, 1e300, -2.0, math.inf),
            "paid": pick(chance.randint(-1, 9007199254740992), 9007199254740990, 0, 2**62),
        }
        for _ in range(n)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def meant(column: Numbers | Integers, value: Any) -> tuple[Any, Decimal | None]:
    """A value as conditions see it, and as SUM does; by decimals as they are written, half a step up."""
    if value is None:
        return None, None
    grid = column.grid
    assert grid is not None
    low, high = (Decimal(repr(end)) for end in column.ends())
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not low <= exact <= high:
        if column.outside is None:
            return value, None
        exact = min(max(exact, low), high)
    step = Decimal(grid.step.numerator) / Decimal(grid.step.denominator)
    if isinstance(column, Integers):
        return (exact, exact) if exact == exact.to_integral_value() else (exact, None)
    steps = ((exact - low) / step + Decimal("0.5")).to_integral_value(ROUND_FLOOR)
    rounded = low + min(steps, Decimal(grid.steps)) * step
    return rounded, rounded


def truth(table: pa.Table) -> duckdb.DuckDBPyConnection:
    """DuckDB with the records as they are meant: what is summed stands in columns of its own."""
    columns: dict[str, Any] = {"state": table.column("state")}
    for name, column in domain().columns.items():
        if isinstance(column, (Numbers, Integers)):
            pairs = [meant(column, value) for value in table.column(name).to_pylist()]
            seen = [None if one is None else float(one) for one, _ in pairs]
            columns[name] = pa.array(seen, pa.float64())
            columns[f"{name}_summed"] = pa.array([amount for _, amount in pairs], pa.decimal128(30, 2))
    engine = duckdb.connect()
    engine.register("arrow", pa.table(columns))
    engine.execute("CREATE TABLE patients AS SELECT * FROM arrow")
    return engine


def statement(seed: int) -> str:
    """A SELECT of sums and counts with conditions, some of them on the amounts themselves."""
    chance = random.Random(f"statement {seed}")

    def condition() -> str:
        if chance.random() < 0.3:
            return chance.choice(["state = 'NY'", "state <> 'NJ'", "state IS NULL", "NOT state IN ('NY', 'CA')"])
        name = chance.choice(list(CUTS))
        some = sorted(chance.sample(range(len(CUTS[name])), 2))
        low, high = (CUTS[name][i] for i in some)
        return chance.choice(
            [f"{name} > {low}", f"{name} <= {low}", f"{name} = {low}", f"NOT {name} < {high}", f"{name} IS NOT NULL",
             f"{name} BETWEEN {low} AND {high}"]
        )  # fmt: skip

    name = chance.choice(list(CUTS))
    inner = chance.choice(
        ["SUM({x})", "SUM(-3 * {x})", "SUM({x}) * 0.5", "SUM(CASE WHEN {c} THEN {x} ELSE 7 END)",
         "SUM(CASE WHEN {c} THEN {x} / 4 WHEN {d} THEN -{x} END)", "SUM({x}) FILTER (WHERE {c})",
         "SUM({x}) - 5 * COUNT(*)", "SUM({x}) FILTER (WHERE {c}) + COUNT(*) FILTER (WHERE {d})"]
    )  # fmt: skip
    item = inner.replace("{x}", f"<{name}>").replace("{c}", condition()).replace("{d}", condition())
    where = "" if chance.random() < 0.3 else f" WHERE {condition()}" + chance.choice(["", f" AND {condition()}"])
    return f"SELECT {item} AS s{seed}, COUNT(*) AS n{seed} FROM patients{where}"


def ours(sql: str) -> str:
    """As users write it."""
    return _named(sql, "")


def theirs(sql: str) -> str:
    """With what is summed in columns of its own."""
    return _named(sql, "_summed")


def _named(sql: str, ending: str) -> str:
    for name in CUTS:
        sql = sql.replace(f"<{name}>", f"{name}{ending}")
    return sql


def counted(table: Any, statements: list[str]) -> list[float]:
    """The statements' answers without noise, from what an engine counts; every statement is a block of its own."""
    queries = read_queries(";\n".join(ours(sql) for sql in statements), domain())
    cells = cells_of(queries, domain(), partition=[[q] for q in range(len(queries))])
    with open_table(table, domain(), columns=[one.column for one in cells.atoms]) as source:
        return exact_answers(cells, cells.counts(count(source, cells.atoms)))


def exact_answers(cells: Cells, counts: np.ndarray[Any, Any]) -> list[float]:
    """W on the mixture that the counts and sums of steps stand for, in fractions."""
    W = cells.matrix.toarray()
    answers = [Fraction(0)] * W.shape[0]
    for j, number in enumerate(counts[: W.shape[1]].tolist()):
        for i in np.flatnonzero(W[:, j]):
            answers[i] += Fraction(float(W[i, j])) * number
    for (low, high, steps), along in zip(cells.ends, counts[W.shape[1] :].tolist(), strict=True):
        for q in range(W.shape[0]):
            ends = (Fraction(float(W[q, cell])) if cell >= 0 else Fraction(0) for cell in (low, high))
            below, above = ends
            answers[q] += (above - below) * along / steps
    return [float(answer) for answer in answers]


def expected(engine: duckdb.DuckDBPyConnection, sql: str) -> list[float | None]:
    """DuckDB's answers; None where one of several sums is over nothing."""
    row = engine.execute(theirs(sql)).fetchone()
    assert row is not None
    return [None if value is None else float(value) for value in row]
