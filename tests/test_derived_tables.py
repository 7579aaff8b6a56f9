"""Averages, ratios and quantiles computed from tables: beside marginals and for tens of thousands of answers."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

from amount_truth import domain as awkward
from amount_truth import ours
from amount_truth import records as awkward_records
from amount_truth import truth as awkward_truth
from batchdp.domain import Domain, as_domain
from batchdp.engines import count, open_table
from batchdp.errors import QueryError, WorkloadError
from batchdp.mechanism.derived import evaluated
from batchdp.plans.options import Options
from batchdp.plans.weighing import weighed
from batchdp.queries.expressions import Combination, Crossing
from batchdp.sql.script import read_selections
from batchdp.workloads.encode import TableBatch, checked_orders, read_runs, tables_of, write_runs
from cases import read_batch
from derived_truth import expected, ratio_statement

DOMAIN: dict[str, Any] = {
    "table": "t",
    "columns": {
        "state": {"values": ["NY", "NJ", "CA", "empty"]},
        "age": {"range": [0, 120], "bins": [0, 18, 40, 65]},
        "children": {"integers": [0, 5]},
        "smoker": {"values": [True, False]},
        "charge": {"range": [-10, 30], "step": 0.25, "bins": [-10, 0]},
        "visits": {"integers": [1, 12], "outside": "clip"},
    },
}
KEYS = ("state", "smoker")
ITEMS = {
    "n": "COUNT(*)",
    "kids": "SUM(children)",
    "mean": "AVG(children)",
    "cost": "AVG(charge)",
    "older": "AVG(charge) FILTER (WHERE age >= 40)",
    "seen": "AVG(visits)",
    "share": "100.0 * COUNT(*) FILTER (WHERE age >= 18) / COUNT(*)",
    "each": "SUM(charge) / NULLIF(COUNT(*), 0)",
    "gap": "AVG(children) - AVG(children) FILTER (WHERE smoker)",
    "more": "COUNT(*) + 5",
    "mixed": "AVG(CASE WHEN age >= 18 THEN children WHEN smoker THEN 7 END)",
}


def people(count: int = 700, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "state": rng.choice(np.array(["NY", "NJ", "CA", "TX", None], dtype=object), count),
            "age": rng.choice([0.0, 17.5, 18.0, 39.0, 40.0, 64.5, 65.0, 120.0, np.nan], count),
            "children": rng.choice([0.0, 1, 2, 3, 4, 5, np.nan], count),
            "smoker": pd.array(rng.choice(np.array([True, False, None], dtype=object), count), dtype="boolean"),
            "charge": rng.integers(-40, 121, count) / 4,
            "visits": rng.integers(1, 13, count),
        }
    )


def asked_of(sql: str, domain: Any, marginals: int | None = None) -> TableBatch:
    known = as_domain(domain)
    orders = None if marginals is None else checked_orders(marginals, known)
    return tables_of(read_selections(sql, known), orders, known, text=sql)


def linear(batch: TableBatch, domain: Domain, table: Any) -> NDArray[np.float64]:
    """All linear answers without noise, from what an engine counts."""
    found = [np.zeros(one.shape) for one in batch.workload.tables]
    with open_table(table, domain, columns=[one.column for one in batch.atoms]) as source:
        for codes, numbers in count(source, batch.atoms):
            values = batch.values(codes)
            for t, into in enumerate(found):
                rows: NDArray[Any] = np.asarray(numbers, dtype=np.float64).reshape(len(codes), *[1] * into.ndim)
                for axis, (c, factor) in enumerate(batch.workload.factors_of(t).items()):
                    along = [-1 if other == axis else 1 for other in range(into.ndim)]
                    rows = rows * factor.matrix[:, values[:, c]].T.reshape(len(codes), *along)
                into += rows.sum(axis=0)
    return np.concatenate([one.reshape(-1) for one in found])


def answers(batch: TableBatch, domain: Any, table: Any) -> dict[str, float]:
    values = evaluated(batch.asked, linear(batch, as_domain(domain), table))
    return dict(zip([one.name for one in batch.asked], values.tolist(), strict=True))


def truth(sql: str, frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    with duckdb.connect() as engine:
        engine.register("t", frame)
        return engine.execute(sql).fetchall()


def test_ratios_beside_marginals_are_those_of_duckdb() -> None:
    frame = people()
    items = ", ".join(f"{item} AS {name}" for name, item in ITEMS.items())
    batch = asked_of(f"SELECT smoker, state, {items} FROM t GROUP BY smoker, state", DOMAIN, 2)
    found = answers(batch, DOMAIN, frame)
    assert len(found) == len(batch.asked)
    own = truth(f"SELECT state, smoker, {items} FROM t GROUP BY state, smoker", frame)
    checked = 0
    for state, smoker, *values in own:
        if state in (None, "TX") or smoker is None:
            continue
        for name, value in zip(ITEMS, values, strict=True):
            ours = found[f"{name}[state={state}, smoker={str(smoker).lower()}]"]
            if value is None or math.isnan(value):
                assert math.isnan(ours)
            else:
                checked += 1
                assert ours == pytest.approx(float(value), abs=1e-9), name
    assert checked > 60
    assert found["n[state=empty, smoker=true]"] == 0
    assert found["more[state=empty, smoker=true]"] == 5
    assert math.isnan(found["mean[state=empty, smoker=true]"])
    assert found["total"] == len(frame)
    assert found["age[age=(NULL)]"] == frame["age"].isna().sum()


def test_quantiles_beside_marginals_cross_where_the_values_do() -> None:
    frame = people()
    quantiles = {
        "middle": ("MEDIAN(children)", "children", 0.5, "TRUE"),
        "high": ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY visits)", "visits", 0.9, "TRUE"),
        "low": ("APPROX_QUANTILE(children, 0.2) FILTER (WHERE age >= 18)", "children", 0.2, "age >= 18"),
    }
    items = ", ".join(f"{item} AS {name}" for name, (item, *_) in quantiles.items())
    batch = asked_of(f"SELECT state, {items}, MEDIAN(children) AS whole FROM t GROUP BY ROLLUP (state)", DOMAIN, 1)
    found = answers(batch, DOMAIN, frame)
    for name, (_, column, share, holds) in quantiles.items():
        for state in ("NY", "NJ", "CA", None):
            group = "TRUE" if state is None else f"state = '{state}'"
            where = f"{group} AND {holds} AND {column} IS NOT NULL"
            values = [float(v) for (v,) in truth(f"SELECT {column} FROM t WHERE {where} ORDER BY 1", frame)]
            near = {values[max(0, math.ceil(share * len(values)) - 1)], values[math.floor(share * len(values))]}
            ours = found[name if state is None else f"{name} by state[state={state}]"]
            assert min(near) - 0.5 <= ours <= max(near) + 0.5, (name, state)
            if len(near) == 1:
                assert ours in near
    assert math.isnan(found["middle by state[state=empty]"])
    assert found["whole"] == found["middle"]
    names = [table.name for table in batch.workload.tables]
    assert "middle.below by state" in names
    assert not any(name.startswith("whole") for name in names)


def test_awkward_amounts_mean_in_tables_what_they_mean_in_cells() -> None:
    """Clipped, beyond the steps, infinite, NULL: statements one by one, as DuckDB has them."""
    table = awkward_records(400, 3)
    engine = awkward_truth(table)
    statements = [ratio_statement(seed) for seed in range(300)]
    small = [one for one in statements if not re.search("charge|income|floor|paid", one)]  # which have too many steps
    assert len(small) > 40
    for statement in small[:40]:
        batch = asked_of(ours(statement.replace("{key}", "")), awkward())
        found = evaluated(batch.asked, linear(batch, awkward(), table))
        for value, truth in zip(found.tolist(), expected(engine, statement), strict=True):
            assert math.isnan(value) if truth is None else value == pytest.approx(truth, rel=1e-9, abs=1e-9), statement


def test_a_quantile_of_the_column_that_it_is_grouped_by() -> None:
    frame = people()
    batch = asked_of("SELECT age, state, MEDIAN(age) AS middle FROM t GROUP BY age, state", DOMAIN, 1)
    found = answers(batch, DOMAIN, frame)
    for title, low, high in (("0 to under 18", 0, 18), ("40 to under 65", 40, 65)):
        assert low <= found[f"middle[state=NY, age={title}]"] <= high
    (run,) = batch.asked.derived
    assert isinstance(batch.asked.numbers(run), Crossing)


def test_twenty_thousand_averages_are_those_of_duckdb() -> None:
    columns = {"a": {"integers": [0, 99]}, "b": {"integers": [0, 199]}, "k": {"integers": [0, 10]}}
    domain = {"table": "t", "columns": columns}
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"a": rng.integers(0, 100, 9000), "b": rng.integers(0, 200, 9000), "k": rng.integers(0, 11, 9000)}
    )
    sql = "SELECT a, b, AVG(k) AS mean, COUNT(k) AS n FROM t GROUP BY a, b"
    batch = asked_of(sql, domain)
    assert len(batch.asked) == 40_000
    assert len(batch.runs) == 2
    found = linear(batch, as_domain(domain), frame)
    mean = batch.asked.numbers(batch.asked.derived[0])
    assert isinstance(mean, Combination)
    (ratio,) = mean.ratios
    ((factor, above),), ((_, below),) = ratio.numerator.terms, ratio.denominator.terms
    with np.errstate(invalid="ignore"):
        ours = mean.plain.constant + factor * found[above] / found[below]
    assert np.isnan(ours).sum() > 0
    a, b, values, counts = np.array(truth(sql, frame), dtype=np.float64).T
    cells = (a * 200 + b).astype(np.int64)
    np.testing.assert_allclose(ours[cells], values, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found[below[cells]], counts, rtol=1e-6, atol=1e-9)
    assert batch.asked[7].name == "mean[a=0, b=7]"
    assert batch.asked[20_007].name == "n[a=0, b=7]"
    assert batch.asked[20_007].of == 7


def test_runs_expand_to_what_they_hold() -> None:
    sql = "SELECT state, AVG(children) AS mean, COUNT(*) AS n, MEDIAN(age) AS middle FROM t GROUP BY state"
    batch = asked_of(sql, DOMAIN, 2)
    asked = batch.asked
    each = list(asked)
    assert each == [asked[i] for i in range(len(asked))] == [asked[i - len(asked)] for i in range(len(asked))]
    assert tuple(each[3:9]) == asked[3:9]
    assert len({one.name for one in each}) == len(each)
    with pytest.raises(IndexError):
        asked[len(asked)]
    assert [one.name for one in each[:5]] == [
        *(f"mean[state={s}]" for s in DOMAIN["columns"]["state"]["values"]),
        "n[state=NY]",
    ]
    shown = {t for own in asked.whole for t in own}
    parts = {t for item, own in batch.statements if item.of for t in own}
    assert not asked.plain
    assert shown | parts == set(range(len(batch.workload.tables)))
    assert shown.isdisjoint(parts)
    assert asked_of("SELECT state, COUNT(*) AS n FROM t GROUP BY state", DOMAIN, 2).asked.plain


def test_parts_that_are_asked_anyway_are_shared() -> None:
    sql = """
    SELECT state, SUM(children) / COUNT(*) AS each, COUNT(*) AS n FROM t GROUP BY state;
    SELECT 1 - COUNT(*) FILTER (WHERE smoker) / COUNT(*) AS rest FROM t
    """
    batch = asked_of(sql, DOMAIN, 1)
    names = [table.name for table in batch.workload.tables]
    assert names == ["n", "total", *DOMAIN["columns"], "each.numerator", "rest.numerator"]
    told = {item.name: (item.of, item.share, own) for item, own in batch.statements}
    assert told["each.denominator"] == ("each", 0.5, (0,))
    assert told["rest.denominator"] == ("rest", 0.5, (1,))
    assert told["total"] == ("", 1.0, (1,))


def test_parts_are_weighed_as_one_statement() -> None:
    """Of two statements with as many groups, one derived, each has half of all weights times squared sensitivities."""
    batch = asked_of("SELECT AVG(children) AS a FROM t; SELECT COUNT(*) AS n FROM t", DOMAIN, 1)
    made = weighed(batch, Options())
    relative = made.weights * made.table_tops() ** 2 * made.table_sizes()
    named = dict(zip([table.name for table in made.tables], relative.tolist(), strict=True))
    assert named == pytest.approx(dict.fromkeys(named, 1.0) | {"a.numerator": 0.5, "a.denominator": 0.5})
    heavy = weighed(batch, Options(weights=(("a", 3.0),)))
    assert np.flatnonzero(heavy.weights != made.weights).tolist() == [8, 9]
    with pytest.raises(QueryError, match="did you mean"):
        weighed(batch, Options(weights=(("b2", 3.0),)))


def test_the_parts_of_tables_are_those_of_cells() -> None:
    """The same expressions over the same parts, by the same names."""
    items = ", ".join(f"{item} AS {name}" for name, item in ITEMS.items() if name != "each")
    sql = f"SELECT state, {items}, MEDIAN(age) AS middle FROM t GROUP BY state"
    cells, batch = read_batch(sql, as_domain(DOMAIN)), asked_of(sql, DOMAIN)
    assert [one.name for one in batch.asked] == [one.name for one in cells.asked]
    assert [one.derived for one in batch.asked] == [one.derived for one in cells.asked]
    by_number = {}
    for t, table in enumerate(batch.workload.tables):
        for place in range(table.queries):
            groups = batch.legend.row(batch.workload, t, place)
            by_number[int(batch.asked.starts[t]) + place] = f"{table.name}[{groups}]"
    for one, other in zip(batch.asked, cells.asked, strict=True):
        if one.derived:
            ours = one.of.mapped(by_number.__getitem__)  # type: ignore[union-attr]
            assert ours == other.of.mapped(lambda q: cells.queries[q].name)  # type: ignore[union-attr]


def test_runs_are_written_and_read_and_nothing_else_is() -> None:
    batch = asked_of("SELECT state, AVG(children) AS mean, MEDIAN(age) AS m FROM t GROUP BY state", DOMAIN, 1)
    content = json.loads(json.dumps(write_runs(batch.runs)))
    assert read_runs(content, batch.workload, batch.legend).runs == batch.runs
    last = batch.workload.queries
    for run, change in (
        (0, {"keys": [99]}),
        (0, {"name": 5}),
        (0, {"keys": []}),
        (0, {"of": content[0]["of"] | {"plain": {"constant": 0.0, "terms": [[1.0, [last, 0]]]}}}),
        (0, {"of": content[0]["of"] | {"plain": {"constant": 0.0, "terms": [[1.0, [last - 1, 1]]]}}}),
        (1, {"of": content[1]["of"] | {"share": 1.5}}),
        (2, {"tables": [0, 99]}),
        (2, {"tables": [1, 1]}),
        (2, {"tables": [0, True]}),
    ):
        changed = [*content[:run], content[run] | change, *content[run + 1 :]]
        with pytest.raises((WorkloadError, ValueError)):
            read_runs(changed, batch.workload, batch.legend)
    with pytest.raises(WorkloadError, match="twice"):
        read_runs([*content, content[2]], batch.workload, batch.legend)


def test_what_tables_cannot_add_up_is_refused_with_a_remedy() -> None:
    wide: dict[str, Any] = {
        "table": "t",
        "columns": {"g": {"values": ["a"]}, "v": {"range": [0, 1000], "step": 0.01, "bins": [0]}},
    }
    with pytest.raises(QueryError, match=r"SUM\(v\): the column has 100,001 values.*coarser steps"):
        asked_of("SELECT AVG(v) AS a FROM t", wide, 1)
    wide["columns"]["v"] = {"integers": [0, 10**6], "bins": [0]}
    with pytest.raises(QueryError, match=r"SUM\(v\): the column has 1,000,001 values.*without marginals"):
        asked_of("SELECT AVG(v) AS a FROM t", wide, 1)
    with pytest.raises(QueryError, match=r"taken by another query of the same groups.*AS"):
        asked_of("SELECT AVG(children) AS a, MEDIAN(age) AS a FROM t", DOMAIN, 1)
    with pytest.raises(QueryError, match="an average of state"):
        asked_of("SELECT AVG(state) AS a FROM t", DOMAIN, 1)
