"""GROUPING SETS, CUBE, ROLLUP, labels of CASE and groupings of the domain: the same rows as in DuckDB."""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp import DomainError, QueryError, plan
from batchdp.domain import Domain, as_domain, read_domain
from batchdp.sql import read_queries
from sql_truth import DOMAIN, connection, records, rows, worth

GROUPINGS = """
[columns.state.groupings]
coast = { east = ["NY", "NJ"], west = ["WA", "CA"] }
big = { big = ["NY", "CA"] }
[columns.age.groupings]
age_band = [0, 30, 60]
age_half = { young = 0, old = 60 }
[columns.floor.groupings]
storey = { below = -3, ground = 0, above = 1 }
[columns.visited.groupings]
spring = { before = "2020-01-01", after = "2022-03-01" }
"""
ROWS, SEED = 300, 8

KEYS = {
    "state": "CASE WHEN state IN ('NY', 'NJ', 'CA', 'WA') THEN state END",
    "smoker": "CASE WHEN smoker THEN 'true' WHEN NOT smoker THEN 'false' END",
    "coast": "CASE WHEN state IN ('NY', 'NJ') THEN 'east' WHEN state IN ('WA', 'CA') THEN 'west' END",
    "big": "CASE WHEN state IN ('NY', 'CA') THEN 'big' END",
    "age_band": (
        "CASE WHEN age >= 0 AND age < 30 THEN '0 to under 30' WHEN age >= 30 AND age < 60 THEN '30 to under 60' "
        "WHEN age >= 60 AND age <= 120 THEN '60 to 120' END"
    ),
    "age_half": "CASE WHEN age >= 0 AND age < 60 THEN 'young' WHEN age >= 60 AND age <= 120 THEN 'old' END",
    "storey": (
        "CASE WHEN floor >= -3 AND floor < 0 THEN 'below' WHEN floor >= 0 AND floor < 1 THEN 'ground' "
        "WHEN floor >= 1 AND floor <= 40 THEN 'above' END"
    ),
    "spring": (
        "CASE WHEN visited >= DATE '2020-01-01' AND visited < DATE '2022-03-01' THEN 'before' "
        "WHEN visited >= DATE '2022-03-01' AND visited <= DATE '2025-12-31' THEN 'after' END"
    ),
    "band": "CASE WHEN age < 18 THEN 'kid' WHEN smoker THEN 'smoker' WHEN age >= 65 THEN 'kid' ELSE 'rest' END",
    "note": "CASE WHEN age > 50 OR smoker THEN 'a' WHEN state = 'NY' THEN NULL WHEN grade <> 1 THEN 'b' END",
    "mark": "CASE grade WHEN 1 THEN 10 WHEN 2 THEN 20 WHEN 3 THEN 10 END",
}
"""What each key is to an engine that knows no domain; those of the last three are asked for as they stand."""
CASES = ("band", "note", "mark")


@cache
def domain() -> Domain:
    return read_domain(DOMAIN + GROUPINGS)


@cache
def engine() -> duckdb.DuckDBPyConnection:
    return connection(records(ROWS, SEED))


@cache
def table() -> list[dict[str, Any]]:
    return rows(ROWS, SEED)


def drawn_sets(rng: random.Random, keys: list[str]) -> str:
    """A GROUP BY over all of these keys."""
    some = ", ".join(keys)
    forms = [some, f"ROLLUP ({some})", f"CUBE ({some})", f"GROUPING SETS (({some}), ())"]
    if len(keys) > 1:
        first, *others = keys
        rest = ", ".join(others)
        forms += [
            f"{first}, ROLLUP ({rest})",
            f"CUBE ({rest}), {first}",
            f"ROLLUP (({first}, {others[0]}){''.join(f', {key}' for key in others[1:])})",
            f"GROUPING SETS (ROLLUP ({some}), {others[0]})",
            f"ROLLUP ({rest}), CUBE ({first})",
            f"GROUPING SETS ({first}, ({rest}))",
        ]
    return rng.choice(forms)


def statement(seed: int) -> tuple[str, str, list[str]]:
    """A statement to us, the same to DuckDB, and its keys."""
    rng = random.Random(seed)
    keys = rng.sample(list(KEYS), rng.choice([1, 2, 2, 3]))
    item = rng.choice(["COUNT(*)", "SUM(children)", "COUNT(age)", "2 * COUNT(*) FILTER (WHERE age > 40)"])
    where = rng.choice(["", "", " WHERE state <> 'NY'", " WHERE age BETWEEN 10 AND 90"])
    sets = drawn_sets(rng, keys)
    shown = [f"{KEYS[key]} AS {key}" if key in CASES else key for key in keys]
    inner = ", ".join(f"{KEYS[key]} AS {key}_" for key in keys)
    theirs = re.sub(r"[a-z_]+", r"\g<0>_", sets)
    known = ", ".join(f"{key}_, GROUPING({key}_)" for key in keys)
    # A value that is not declared adds nothing to a sum.
    engine_item = item.replace("SUM(children)", "SUM(CASE WHEN children BETWEEN 0 AND 12 THEN children END)")
    return (
        f"SELECT {', '.join(shown)}, {item} AS n FROM patients{where} GROUP BY {sets}",
        f"SELECT {known}, {engine_item} FROM (SELECT *, {inner} FROM patients){where} GROUP BY {theirs}",
        keys,
    )


@pytest.mark.parametrize("seed", range(200))
def test_groups_are_those_of_duckdb(seed: int) -> None:
    sql, theirs, keys = statement(seed)
    queries = read_queries(sql, domain())
    ours = {query.name: sum(worth(query.amount, record) for record in table()) for query in queries}
    expected = dict.fromkeys(ours, 0.0)
    for row in engine().execute(theirs).fetchall():
        *labels, value = row
        titles = []
        for key, title, rolled_up in zip(keys, labels[::2], labels[1::2], strict=True):
            titles.append(f"{key}={'all' if rolled_up else title}")
        if not any(title.endswith("=None") for title in titles):  # records in no declared group
            by_us = [one for one in ours if set(one.removeprefix("n[").removesuffix("]").split(", ")) == set(titles)]
            assert len(by_us) == 1, titles
            expected[by_us[0]] = float(value or 0)
    assert ours == pytest.approx(expected)
    assert any(expected.values())


def test_names_of_totals() -> None:
    names = [
        one.name for one in read_queries("SELECT COUNT(*) AS n FROM patients GROUP BY ROLLUP (coast, smoker)", domain())
    ]
    assert names == [
        *(f"n[coast={a}, smoker={b}]" for a, b in product(("east", "west"), ("true", "false"))),
        "n[coast=east, smoker=all]",
        "n[coast=west, smoker=all]",
        "n[coast=all, smoker=all]",
    ]


REFUSED = {
    "GROUPING SETS (state, state)": "the same set of columns twice",
    "GROUPING SETS ((state), CUBE (state))": "the same set of columns twice",
    "state WITH ROLLUP": "WITH ROLLUP is not supported",
    "ROLLUP ()": "a level without columns",
    "CUBE (" + ", ".join(f"({key})" for key in ["state"] * 14) + ")": "16384 queries in all",
    "CASE WHEN age < 3 THEN 'a' END": "GROUP BY a CASE without a name",
    "ROLLUP (children, floor, state, age, smoker, balance, grade)": "queries in all",
    "nowhere": "a column that is not declared",
}


@pytest.mark.parametrize("group", REFUSED)
def test_groups_that_are_refused(group: str) -> None:
    with pytest.raises(QueryError, match=REFUSED[group]):
        read_queries(f"SELECT COUNT(*) AS n FROM patients GROUP BY {group}", domain())


SELECTED = {
    "CASE WHEN age < 3 THEN 'a' END AS coast, COUNT(*) AS n FROM patients GROUP BY 1": "the name of a declared column",
    "CASE WHEN age < 3 THEN state END AS x, COUNT(*) AS n FROM patients GROUP BY x": "a label that is not a constant",
    "CASE WHEN age < 3 THEN NULL END AS x, COUNT(*) AS n FROM patients GROUP BY x": "a CASE without labels",
    "CASE WHEN age < 3 THEN 'a' END AS x, CASE WHEN age < 4 THEN 'a' END AS x, COUNT(*) AS n FROM patients "
    "GROUP BY 1, 2": "taken by another CASE",
    "CASE WHEN age < 3 THEN 'all' END AS x, COUNT(*) AS n FROM patients GROUP BY ROLLUP (x)": "a group called all",
    "coast, COUNT(*) AS n FROM patients GROUP BY state": "neither counted nor grouped by",
    "COUNT(*) AS n FROM patients WHERE coast = 'east'": "coast is a grouping of state",
    "SUM(coast) AS n FROM patients": "coast is a grouping of state",
    "COUNT(*) AS n FROM patients WHERE (state, grade) IN (('NY', 1))": "a tuple is not supported",
    "CASE WHEN age < 3 THEN 'a' END AS x, COUNT(*) AS n FROM patients": "CASE outside SUM",
}


@pytest.mark.parametrize("selected", SELECTED)
def test_selections_that_are_refused(selected: str) -> None:
    with pytest.raises(QueryError, match=SELECTED[selected]):
        read_queries(f"SELECT {selected}", domain())


LISTED = {"values": ["x", "y"]}
CLASHING: dict[str, tuple[dict[str, Any], str]] = {
    "a column": ({"a": {**LISTED, "groupings": {"B": {"u": ["x"]}}}, "b": LISTED}, "has the name of the column b"),
    "the unit": ({"a": {**LISTED, "groupings": {"who": {"u": ["x"]}}}}, "has the name of the privacy unit"),
    "another": (
        {name: {**LISTED, "groupings": {"g": {"u": ["x"]}}} for name in "ab"},
        "has the name of a grouping of a",
    ),
    "twice": ({"a": {**LISTED, "groupings": {"g": {"u": ["x"], "v": ["x"]}}}}, "'x' is in 'u' and in 'v'"),
    "not declared": ({"a": {**LISTED, "groupings": {"g": {"u": ["z"]}}}}, "'z' is not among the column's values"),
    "a number for true": ({"a": {"values": [True], "groupings": {"g": {"u": [1]}}}}, "1 is not among"),
    "empty": ({"a": {**LISTED, "groupings": {"g": {}}}}, "the grouping g is empty"),
    "an empty list": ({"a": {**LISTED, "groupings": {"g": {"u": []}}}}, "'u' holds no values"),
    "no lower end": ({"a": {"range": [0, 9], "groupings": {"g": [1, 2]}}}, "the grouping g: must start at 0"),
    "a name": ({"a": {"range": [0, 9], "groupings": {" ": [0, 2]}}}, "the grouping ' '"),
}


@pytest.mark.parametrize("case", CLASHING)
def test_groupings_that_are_refused(case: str) -> None:
    columns, message = CLASHING[case]
    with pytest.raises(DomainError, match=message):
        as_domain({"table": "t", "privacy": {"unit": "who"}, "columns": columns})


def test_a_plan_with_groupings_is_saved_and_a_domain_without_has_no_word_of_them(tmp_path: Any) -> None:
    made = plan("SELECT coast, COUNT(*) AS n FROM patients GROUP BY ROLLUP (coast)", domain(), cache=False)
    made.save(tmp_path / "a.plan")
    from batchdp import load_plan

    assert load_plan(tmp_path / "a.plan").names == made.names
    assert "groupings" not in read_domain(DOMAIN).model_dump_json()


def test_tables_have_nothing_where_rows_add_up_and_a_label_called_all_stays_one(tmp_path: Path) -> None:
    domain = {"table": "t", "columns": {"a": {"values": ["x", "all"]}, "b": {"values": [1, 2]}}}
    sql = "SELECT b, COUNT(*) AS n FROM t GROUP BY ROLLUP (b); SELECT a, COUNT(*) AS m FROM t GROUP BY a"
    made = plan(sql, domain, seconds=0.2, cache=False)
    assert made.names == ("n[b=1]", "n[b=2]", "n[b=all]", "m[a=x]", "m[a='all']")
    ledger = batchdp.Ledger.create(tmp_path / "b.db", epsilon=1)
    release = batchdp.answer(made, pd.DataFrame({"a": ["x"], "b": [1]}), epsilon=1, ledger=ledger)
    assert release.table("b")["b"].fillna("NULL").tolist() == ["1", "2", "NULL"]
    assert release.table("a")["a"].tolist() == ["x", "all"]
    formats: tuple[tuple[Any, Any], ...] = (("csv", pd.read_csv), ("parquet", pd.read_parquet))
    for format, read in formats:
        files = batchdp.export(release, tmp_path / format, format=format)
        assert read(files[0])["b"].isna().tolist() == [False, False, True]
        batchdp.dossier(release, tmp_path / f"publication {format}", format=format)
        assert batchdp.verify(tmp_path / f"publication {format}").checked


@pytest.mark.parametrize("options", [{}, {"marginals": 0}])
def test_groups_of_anything_else_and_null_on_request(options: dict[str, Any], tmp_path: Path) -> None:
    columns = {
        "state": {"values": ["NY", "NJ"], "groups": "all"},
        "age": {"integers": [0, 99], "bins": [0, 50], "groups": "all"},
        "smoker": {"values": [True, False], "groups": "all"},
        "kept": {"values": ["(NULL)"], "groups": "all"},
        "sure": {"values": ["a"], "other": "drop", "groups": "all"},
    }
    rows = [("NY", 3, True, "(NULL)", "a"), ("TX", 60, None, None, "a"), (None, None, False, "x", "a")]
    table = pd.DataFrame([*rows, ("NJ", 200, True, "x", "b")], columns=list(columns))
    sql = ";".join(f"SELECT {c}, COUNT(*) AS n_{c} FROM t GROUP BY {c}" for c in columns)
    made = batchdp.plan(sql, {"table": "t", "columns": columns}, seconds=1, cache=False, **options)
    ledger = batchdp.Ledger.create(tmp_path / "b.db", epsilon=1e4)
    release = batchdp.answer(made, table, epsilon=1e4, ledger=ledger)
    found = {name: round(value) for name, value in zip(release.names, release.values, strict=True)}
    assert found == {
        "n_state[state=NY]": 1, "n_state[state=NJ]": 0, "n_state[state=(anything else)]": 1, "n_state[state=(NULL)]": 1,
        "n_age[age=0 to under 50]": 1, "n_age[age=50 to 99]": 1, "n_age[age=(anything else)]": 0,
        "n_age[age=(NULL)]": 1,
        "n_smoker[smoker=true]": 1, "n_smoker[smoker=false]": 1, "n_smoker[smoker=(NULL)]": 1,
        "n_kept[kept=(NULL)]": 1, "n_kept[kept=(anything else)]": 1, "n_kept[kept=((NULL))]": 1, "n_sure[sure=a]": 3,
        **({"total": 3} if options else {}),
    }  # fmt: skip
