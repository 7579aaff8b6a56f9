"""Comparisons and arithmetic between columns, from SQL to answers, against DuckDB."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.domain import as_domain
from batchdp.engines import open_table, prepare_count
from batchdp.errors import QueryError
from batchdp.sql.script import batch_of, read_selections
from batchdp.workloads.encode import batch as encoding
from batchdp.workloads.encode.cells import cells_of

DOMAIN = """
table = "t"
[columns.a]
integers = [0, 9]
[columns.b]
integers = [-4, 7]
[columns.price]
range = [0, 5]
step = 0.25
[columns.began]
dates = ["2024-02-20", "2024-03-20"]
[columns.ended]
dates = ["2024-02-25", "2024-03-25"]
[columns.origin]
values = ["A", "B", "C"]
[columns.target]
values = ["B", "C", "D"]
[columns.level]
values = [1, 2, 5]
"""


def records(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    first = date(2024, 2, 20)
    frame = {
        "a": rng.integers(0, 10, n),
        "b": rng.integers(-4, 8, n),
        "price": rng.integers(0, 21, n) / 4,
        "began": [first + timedelta(int(k)) for k in rng.integers(0, 30, n)],
        "ended": [first + timedelta(5 + int(k)) for k in rng.integers(0, 30, n)],
        "origin": rng.choice(["A", "B", "C"], n),
        "target": rng.choice(["B", "C", "D"], n),
        "level": rng.choice([1, 2, 5], n),
    }
    found = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in frame.items()})
    for name in found.columns:
        found.loc[rng.random(n) < 0.1, name] = None
    types = {"a": "Int64", "b": "Int64", "level": "Int64", "price": "Float64"}
    return found.astype({**types, "origin": "string", "target": "string"})


TABLE = records(400, 0)


def as_days(frame: pd.DataFrame) -> pd.DataFrame:
    """With days as dates, not as objects."""
    return frame.assign(**{name: pd.to_datetime(frame[name]).dt.date for name in ("began", "ended")})


def truth(sql: str) -> list[float]:
    engine = duckdb.connect()
    engine.register("frame", TABLE)
    engine.execute(
        "CREATE TABLE t AS SELECT a, b, price, CAST(began AS DATE) AS began, CAST(ended AS DATE) AS ended, origin, "
        "target, level FROM frame"
    )
    return [0.0 if value is None else float(value) for row in engine.execute(sql).fetchall() for value in row]


def ours(sql: str, domain: str = DOMAIN) -> list[float]:
    """The exact answers over the cells that the queries tell apart."""
    asked = batch_of(read_selections(sql, as_domain(domain)))
    cells = cells_of(asked.queries, as_domain(domain))
    with open_table(as_days(TABLE), as_domain(domain), columns=[one.column for one in cells.atoms]) as source:
        count = prepare_count(source, cells.atoms, sets=(), unit=None, rows_per_unit=1)
        counts = cells.counts(count(None))
    return [float(value) for value in cells.matrix @ counts]


COMPARISONS = ("<=", "<", ">=", ">", "=", "<>")


def side(chance: random.Random, names: list[str]) -> str:
    found = ""
    for name in names:
        factor = chance.choice(["", "", "", "2 * ", "0.5 * "])
        found += f" {chance.choice('+-')} {factor}{name}" if found else f"{factor}{name}"
    return found


def condition(chance: random.Random) -> str:
    kind, compare = chance.randrange(7), chance.choice(COMPARISONS)
    numbers = ["a", "b", "price", "level"]
    if kind == 0:
        return f"{side(chance, chance.sample(numbers, 2))} {compare} {chance.choice(['3', '4.5', '-1', '10'])}"
    if kind == 1:
        one, other = chance.sample(numbers, 2)
        return f"{one} {compare} {other}"
    if kind == 2:
        return f"ABS({side(chance, chance.sample(numbers, 2))} - 1) {compare} {chance.randrange(-1, 6)}"
    if kind == 3:
        return f"ended - began {compare} {chance.randrange(-3, 20)}"
    if kind == 4:
        return f"began + {chance.randrange(9)} {compare} ended"
    if kind == 5:
        return f"origin {chance.choice(['=', '<>'])} target"
    low, high = chance.randrange(-4, 3), chance.choice(["4", "a"])
    return f"{side(chance, chance.sample(numbers, 3))} BETWEEN {low} AND {high}"


def statement(seed: int) -> str:
    chance = random.Random(seed)
    found = condition(chance)
    if chance.random() < 0.4:
        found = f"NOT ({found})"
    if chance.random() < 0.5:
        extra = chance.choice(["origin = 'A'", "a >= 3", "began < DATE '2024-03-01'", condition(chance)])
        found = f"({found}) {chance.choice(['AND', 'OR'])} {extra}"
    added = chance.choice(["COUNT(*)", "COUNT(*)", "SUM(a + b)", "SUM(b - a + 2)", "SUM(2 * (a - level))"])
    return f"SELECT {added} FILTER (WHERE {found}) AS n FROM t"


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_generated_statements_are_answered_as_duckdb_answers_them(start: int) -> None:
    for seed in range(start, start + 20):
        sql = statement(seed)
        assert ours(sql) == pytest.approx(truth(sql)), sql


def test_generated_statements_tell_records_apart() -> None:
    answers = [truth(statement(seed))[0] for seed in range(100)]
    assert len(set(answers)) > 40


@pytest.mark.parametrize("what", ["b - a", "ended - began", "price + 2 * a - 1"])
def test_averages_between_columns(what: str, tmp_path: Path) -> None:
    sql = f"SELECT AVG({what}) AS mean, SUM({what}) AS total FROM t"
    plan = batchdp.plan(sql, DOMAIN, privacy="zcdp", cache=False)
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=1000.0)
    release = batchdp.answer(plan, as_days(TABLE), rho=1000.0, ledger=ledger)
    errors = np.maximum(release.standard_errors, 1e-6)
    assert np.all(np.abs(release.values - np.array(truth(sql))) < 6 * errors)
    assert errors[0] < 0.1


REFUSED = {
    "a * b <= 3": "product or quotient of columns",
    "began + ended <= 3": "days that are not subtracted",
    "a - a + b <= b": "cancel out",
    "origin < target": "no declared order",
    "origin = a": "of different kinds",
    "a + origin <= 3": "neither a number nor a day",
    "ABS(a - b) <= level": "ABS compared with a column",
    "a + b <= c": "not declared",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_supported_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(QueryError, match=REFUSED[text]):
        read_selections(f"SELECT COUNT(*) FROM t WHERE {text}", as_domain(DOMAIN))


def test_too_many_combinations_and_lines_without_a_step_are_refused() -> None:
    two = "".join(f"[columns.{name}]\nintegers = [0, 2000]\n" for name in "ab")
    wide = f"table = 't'\n{two}[columns.x]\nrange = [0, 1]\n"
    with pytest.raises(QueryError, match="combinations of declared values"):
        read_selections("SELECT COUNT(*) FROM t WHERE a <= b", as_domain(wide))
    with pytest.raises(QueryError, match="add a step to x"):
        read_selections("SELECT COUNT(*) FROM t WHERE a <= x", as_domain(wide))


def affine(columns: int, values: int) -> tuple[str, str]:
    declared = "".join(f"[columns.c{i}]\nintegers = [0, {values - 1}]\nother = 'drop'\n" for i in range(columns))
    items = [f"COUNT(*) FILTER (WHERE c{i} <= {k}) AS p{i}_{k}" for i in range(columns) for k in range(values)]
    items += [
        f"COUNT(*) FILTER (WHERE c{i} + c{j} <= {k}) AS q{i}_{j}_{k}"
        for i in range(columns)
        for j in range(i)
        for k in range(2 * values - 1)
    ]
    return f"SELECT {', '.join(items)} FROM t", f"table = 't'\n{declared}"


def test_columns_that_pairs_tie_are_planned_by_components(monkeypatch: pytest.MonkeyPatch) -> None:
    sql, domain = affine(6, 4)
    together = batchdp.plan(sql, domain, privacy="zcdp", objective="sum", max_cells=300, cache=False)
    monkeypatch.setattr("batchdp.workloads.encode.cells.MOST_LISTED", 1)  # kinds of records are too many
    plan = batchdp.plan(sql, domain, privacy="zcdp", objective="sum", max_cells=300, cache=False)
    assert plan.strategy.method == "components"
    assert plan.strategy.residual < 1e-9
    whole = batchdp.plan(sql, domain, privacy="zcdp", objective="sum", cache=False)  # in one block: the optimum
    least, found, spanning = (one.strategy.expected_squared_error(rho=0.5) for one in (whole, plan, together))
    assert 0.999 * least < found < 1.25 * least
    assert plan.strategy.lower_bound(rho=0.5) < 1.001 * least
    assert len(together.workload.blocks) == 15
    assert spanning < 1.002 * least


def test_a_plan_with_relations_is_answered_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.workloads.encode.cells.MOST_LISTED", 1)
    sql, domain = affine(5, 4)
    plan = batchdp.plan(sql, domain, privacy="zcdp", max_cells=100, cache=False)
    assert plan.strategy.method == "components"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.integers(0, 4, 3000) for i in range(5)})
    plan.save(tmp_path / "plan")
    again = batchdp.load_plan(tmp_path / "plan")
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=100.0)
    release = batchdp.answer(again, frame, rho=1.0, ledger=ledger)
    exact = duckdb.query(sql.replace("FROM t", "FROM frame")).fetchall()[0]
    assert np.all(np.abs(release.values - np.array(exact)) < 6 * release.standard_errors)


SMALL = "table = 't'\n" + "".join(f"[columns.{name}]\nintegers = [0, 3]\n" for name in "abcd")


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_relations_stand_beside_marginals(privacy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MOST_MERGED", 10)  # so that columns are many already
    sql = "SELECT COUNT(*) AS less FROM t WHERE a + b < c; SELECT a, COUNT(*) AS above FROM t WHERE a > b GROUP BY a"
    plan = batchdp.plan(sql, SMALL, marginals=1, privacy=privacy, seconds=2, cache=False)
    assert plan.strategy.residual < 1e-9
    assert bool(plan.workload.joint) == (privacy == "zcdp")
    budget: Any = {"epsilon": 1.0} if privacy == "pure" else {"rho": 1.0}
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", **budget)
    frame = pd.DataFrame({name: np.random.default_rng(i).integers(0, 4, 500) for i, name in enumerate("abcd")})
    release = batchdp.answer(plan, frame, ledger=ledger, **budget)
    answers = {one.name: one for one in release.answers}
    exact = {"less": int((frame.a + frame.b < frame.c).sum())}
    exact |= {f"above[a={k}]": int(((frame.a > frame.b) & (frame.a == k)).sum()) for k in range(4)}
    for name, value in exact.items():
        assert abs(answers[name].value - value) <= 8 * answers[name].standard_error
