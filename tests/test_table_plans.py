"""Plans of tables: all tables of a domain and large SQL, from the plan to frames, in every engine."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp import archive
from batchdp.domain import as_domain
from batchdp.errors import DomainError, PlanError, PrivacyParameterError, QueryError, ReleaseError
from batchdp.plans import Plan
from batchdp.plans.encoding import CellBatch
from batchdp.plans.file import FORMAT
from batchdp.plans.planned import declared_neighbours
from batchdp.release import counts
from batchdp.release.counts import reading, sets_counted
from batchdp.workloads.encode import TableBatch, checked_orders, tables_of
from batchdp.workloads.kronecker import Factor
from commands import refused, succeeds
from engines import ALIKE, ENGINES, every_engine
from mechanisms import released
from sql_truth import domain as awkward_domain
from sql_truth import records

DOMAIN: dict[str, Any] = {
    "table": "patients",
    "columns": {
        "state": {"values": ["NY", "NJ", "CA", "(NULL)"]},
        "age": {"range": [0, 120], "bins": [0, 18, 65]},
        "children": {"integers": [0, 3], "other": "drop"},
        "smoker": {"values": [True, False]},
    },
}
SQL = """
SELECT state, COUNT(*) AS adults FROM patients WHERE age >= 18 GROUP BY state;
SELECT age, smoker, SUM(children) AS kids FROM patients GROUP BY CUBE (age, smoker);
SELECT CASE WHEN age < 18 THEN 'young' WHEN smoker THEN 'smokes' ELSE 'rest' END AS kind, COUNT(*) AS kinds
FROM patients GROUP BY kind
"""


def planned(privacy: str = "zcdp", **given: Any) -> Any:
    asked: Any = {"domain": DOMAIN, "marginals": 2, "cache": False, "privacy": privacy} | given
    made = batchdp.plan(**asked)
    assert isinstance(made, Plan)
    assert isinstance(made.batch, TableBatch)
    return made


def people(count: int = 500, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "state": rng.choice(np.array(["NY", "NJ", "CA", "TX", "(NULL)", None], dtype=object), count),
            "age": rng.choice([-1.0, 0.0, 17.5, 18.0, 64.0, 120.0, 121.0, np.nan], count),
            "children": rng.choice([0.0, 1.0, 2.0, 3.0, 4.0, 1.5, np.nan], count),
            "smoker": pd.array(rng.choice(np.array([True, False, None], dtype=object), count), dtype="boolean"),
        }
    )


def titles(frame: pd.DataFrame) -> pd.DataFrame:
    """What the groups of these records are called; those that the domain drops are left out."""
    frame = frame[frame["children"].isin([0, 1, 2, 3])]
    state = [
        "((NULL))" if pd.isna(one) else one if one in ("NY", "NJ", "CA", "(NULL)") else "(anything else)"
        for one in frame["state"]
    ]
    age = [
        "(NULL)"
        if pd.isna(one)
        else "(anything else)"
        if not 0 <= one <= 120
        else "0 to under 18"
        if one < 18
        else "18 to under 65"
        if one < 65
        else "65 to 120"
        for one in frame["age"]
    ]
    smoker = ["(NULL)" if pd.isna(one) else str(bool(one)).lower() for one in frame["smoker"]]
    children = [str(int(one)) for one in frame["children"]]
    return pd.DataFrame({"state": state, "age": age, "children": children, "smoker": smoker})


@pytest.fixture
def ledger(tmp_path: Path) -> batchdp.Ledger:
    return batchdp.Ledger.create(tmp_path / "ledger.db", rho=10_000)


def without_noise(made: Any, table: Any, ledger: batchdp.Ledger, **options: Any) -> batchdp.Release:
    with ExitStack() as opened:
        found: batchdp.Release = released(
            made.strategy,
            reading(made.batch, made, opened, table, None),
            ledger,
            float(made.strategy.noise.reference),
            label="patients",
            neighbours=declared_neighbours(made.domain),
            max_rows=made.domain.privacy.max_rows,
            names=made.workload.column_names,
            legend=made.batch.legend,
            **options,
        )
        return found


def test_every_row_of_every_table_is_that_of_the_records(ledger: batchdp.Ledger) -> None:
    frame = people()
    release = without_noise(planned(), frame, ledger)
    called = titles(frame)
    names = list(DOMAIN["columns"])
    assert len(release.tables) == 1 + 4 + 6
    for own in [(), *combinations(names, 1), *combinations(names, 2)]:
        truth = Counter(zip(*(called[name] for name in own), strict=True)) if own else {(): len(called)}
        table = release.table(*own)
        assert list(table) == [*own, "value", "standard_error", "low", "high"]
        rows = [tuple(row) for row in table[list(own)].itertuples(index=False)] if own else [()]
        assert len(set(rows)) == len(rows)
        assert set(truth) <= set(rows)
        assert table["value"].to_numpy() == pytest.approx([truth.get(row, 0) for row in rows], abs=1e-6)


def test_titles_of_what_is_left_are_none_of_the_declared_values() -> None:
    keys = {key.heading: key.titles for key in planned().batch.legend.keys}
    assert keys["state"] == ("NY", "NJ", "CA", "(NULL)", "(anything else)", "((NULL))")
    assert keys["age"][-2:] == ("(anything else)", "(NULL)")
    assert keys["children"] == ("0", "1", "2", "3")  # everything else is dropped
    assert keys["smoker"] == ("true", "false", "(NULL)")  # nothing else is left


@pytest.mark.parametrize("privacy", ["zcdp", "pure"])
@pytest.mark.parametrize("given", [{}, {"sql": SQL}, {"marginals": [1, 3]}, {"marginals": 0}])
def test_a_saved_plan_is_the_same(privacy: str, given: dict[str, Any], tmp_path: Path) -> None:
    made = planned(privacy, **given)
    made.save(tmp_path / "x.plan")
    again: Any = batchdp.load_plan(tmp_path / "x.plan")
    assert type(again) is type(made)
    assert (again.sql, again.marginals, again.domain, again.options) == (
        made.sql,
        made.marginals,
        made.domain,
        made.options,
    )
    budget = made.strategy.noise.reference.arguments
    assert again.standard_errors(**budget) == pytest.approx(made.standard_errors(**budget), rel=1e-12)
    assert again.strategy.residual < 1e-9
    assert [table.name for table in again.tables] == [table.name for table in made.tables]
    assert again.batch.legend.header() == made.batch.legend.header()


def test_typical_errors_are_those_of_the_answers() -> None:
    made = planned(sql=SQL)
    typical = made.typical_errors(rho=0.5)
    every = made.standard_errors(rho=0.5)
    own = [made.standard_errors(t, rho=0.5).reshape(-1) for t in range(len(made.tables))]
    assert every == pytest.approx(np.concatenate(own))
    for t in range(len(made.tables)):
        assert typical[t] == pytest.approx(np.sqrt(np.square(made.standard_errors(t, rho=0.5)).mean()), rel=1e-9)
    assert f"Plan({len(made.asked):,} answers in {len(made.tables)} tables over 'patients'" in repr(made)
    assert "standard error at ρ = 1" in made._repr_html_()


def test_sql_and_marginals_are_asked_together(ledger: batchdp.Ledger) -> None:
    frame = people()
    made = planned(sql=SQL)
    names = [table.name for table in made.tables]
    assert names[:6] == ["adults", "kids by age, smoker", "kids by age", "kids by smoker", "kids", "kinds"]
    assert names[6:8] == ["total", "state"]
    release = without_noise(made, frame, ledger)
    kept = frame[frame["children"].isin([0, 1, 2, 3])]
    adults = release.table("state", name="adults").set_index("state")["value"]
    for state in ("NY", "NJ", "CA", "(NULL)"):
        assert adults[state] == pytest.approx(((kept["state"] == state) & (kept["age"] >= 18)).sum(), abs=1e-6)
    assert release.table(name="kids")["value"][0] == pytest.approx(kept["children"].sum(), abs=1e-4)
    kinds = release.table("kind").set_index("kind")["value"]
    assert kinds["young"] == pytest.approx((kept["age"] < 18).sum(), abs=1e-6)
    assert kinds.sum() == pytest.approx(len(kept), abs=1e-6)
    with pytest.raises(ReleaseError, match="2 tables have columns 'state'; give name=, one of 'adults', 'state'"):
        release.table("state")


def test_large_statements_are_tables_and_small_ones_are_not(ledger: batchdp.Ledger) -> None:
    columns = {f"c{i}": {"integers": [0, 23], "other": "drop"} for i in range(4)}
    domain = {"table": "t", "columns": columns}
    sql = "SELECT c0, c1, c2, COUNT(*) AS n FROM t WHERE c3 >= 6 GROUP BY c0, c1, c2"
    made: Any = batchdp.plan(sql, domain, privacy="zcdp", cache=False)
    assert isinstance(made.batch, TableBatch)
    assert made.workload.queries == 24**3
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 24, 2000) for name in columns})
    table = without_noise(made, frame, ledger).table("c0", "c1", "c2")
    assert table["value"].sum() == pytest.approx((frame["c3"] >= 6).sum(), abs=1e-3)
    few = batchdp.plan("SELECT c0, COUNT(*) AS n FROM t GROUP BY c0", domain, cache=False)
    assert type(few) is type(made)
    assert isinstance(few.batch, CellBatch)
    tied = sql.replace("c3 >= 6", "c0 = 1 OR c1 = 2 OR c2 = 1 OR c3 = 1")
    with pytest.raises(QueryError, match="tied together"):
        batchdp.plan(tied, domain, cache=False)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"marginals": None}, "sql and marginals are both left out"),
        ({"marginals": -1}, "marginals=-1 must be a whole number"),
        ({"marginals": "3"}, "marginals='3' must be a whole number"),
        ({"marginals": True}, "marginals=True must be a whole number"),
        ({"marginals": 1.5}, "marginals=1.5 must be a whole number"),
        ({"marginals": 10**9}, "for a domain of 4 columns"),
        ({"marginals": [5]}, "for a domain of 4 columns"),
        ({"marginals": []}, "marginals is empty"),
        ({"marginals": [1, 1]}, "more than once"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        planned(**given)


def test_columns_without_groups_are_refused_by_name() -> None:
    columns = DOMAIN["columns"] | {
        "weight": {"range": [0, 500]},
        "born": {"dates": ["1900-01-01", "2025-01-01"]},
        "zip": {"integers": [0, 99_999]},
    }
    with pytest.raises(
        QueryError, match=r"weight, born, zip have none, or more: .*bins = \[0, …\] under \[columns.weight"
    ):
        planned(domain=DOMAIN | {"columns": columns})
    assert len(planned(domain=DOMAIN | {"columns": columns}, marginals=0).tables) == 1
    with pytest.raises(DomainError, match="domain is left out"):
        batchdp.plan(marginals=1)


def test_plans_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path))
    first = planned(cache=True)
    assert len(list(tmp_path.iterdir())) == 1
    again = planned(cache=True)
    assert again.strategy.total == first.strategy.total
    assert len(list(tmp_path.iterdir())) == 1
    assert planned(cache=True, marginals=1).workload.queries < first.workload.queries
    assert len(list(tmp_path.iterdir())) == 2
    for entry in tmp_path.iterdir():
        entry.write_bytes(b"damaged")
    assert planned(cache=True).strategy.total == first.strategy.total


# ── files that somebody edited ──


def edited(path: Path, **changes: Any) -> None:
    """The plan again, with other entries and a digest that fits."""
    header, arrays = archive.load(path, FORMAT, PlanError, "plan")
    for name, value in changes.items():
        if name in arrays:
            arrays[name] = value(arrays[name])
        elif name in header["strategy"]["says"]:
            header["strategy"]["says"][name] = value
        elif name in header["strategy"]:
            header["strategy"][name] = value(header["strategy"][name])
        else:
            header[name] = value
    archive.save(path, header, arrays, PlanError)


@pytest.mark.parametrize(
    ("privacy", "given", "changes"),
    [
        ("zcdp", {}, {"shares": lambda shares: 2 * shares}),
        ("zcdp", {}, {"shares": lambda shares: shares[1:]}),
        ("zcdp", {}, {"shares": lambda shares: -shares}),
        ("zcdp", {}, {"total": 1.0}),
        ("zcdp", {}, {"marginals": [1]}),
        ("zcdp", {}, {"marginals": None}),
        ("zcdp", {}, {"kind": lambda _: "listed"}),
        ("zcdp", {}, {"kind": lambda _: "other"}),
        ("zcdp", {"sql": SQL}, {"sql": "SELECT COUNT(*) AS n FROM patients"}),
        ("zcdp", {"sql": SQL}, {"measure": lambda measure: 2 * measure}),
        ("zcdp", {"sql": SQL}, {"measure": lambda measure: measure[:-1]}),
        ("zcdp", {"sql": SQL}, {"recover": lambda recover: np.append(recover, 0.0)}),
        ("pure", {}, {"theta": lambda theta: theta / 2}),
        ("pure", {}, {"theta": lambda theta: -theta}),
        ("pure", {}, {"apart": lambda apart: apart[::-1] * 0.5}),
        ("pure", {}, {"total": 0.0}),
    ],
)
def test_an_edited_plan_is_refused(
    privacy: str, given: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    planned(privacy, **given).save(tmp_path / "x.plan")
    batchdp.load_plan(tmp_path / "x.plan")
    edited(tmp_path / "x.plan", **changes)
    with pytest.raises(PlanError, match="plan"):
        batchdp.load_plan(tmp_path / "x.plan")


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_plan_refuses_a_strategy_for_other_tables(privacy: Any) -> None:
    """A record whose value the strategy does not know would fail after the charge."""
    made = planned(privacy, marginals=1)
    own = made.workload
    sizes = own.sizes
    assert replace(made, strategy=batchdp.optimize(own, privacy=privacy)).tables[0] == own.tables[0]
    fewer = (*sizes[:-1], sizes[-1] - 1)
    others = [
        batchdp.workloads.marginals(fewer, [0, 1]).structure,
        batchdp.workloads.marginals((*sizes, 2), [0, 1]).structure,
        batchdp.workloads.marginals(sizes, [0, 1]).structure,  # by other names
        replace(own, factors=tuple((Factor(n, 2 * np.eye(n)),) for n in sizes)),
    ]
    for other in others:
        with pytest.raises(PlanError, match=r"optimise plan\.workload itself"):
            replace(made, strategy=batchdp.optimize(other, privacy=privacy))
    weighed = replace(own, weights=np.arange(1.0, len(own.tables) + 1))
    assert replace(made, strategy=batchdp.optimize(weighed, privacy=privacy)).workload is weighed


def test_a_limit_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    made = planned()
    made.save(tmp_path / "x.plan")
    edited(tmp_path / "x.plan", limit=2 * made.strategy.total)
    assert batchdp.load_plan(tmp_path / "x.plan").strategy.limit == 0


# ── releases ──


def test_a_release_is_saved_loaded_exported_and_repeated_with_its_titles(
    ledger: batchdp.Ledger, tmp_path: Path
) -> None:
    made, frame = planned(sql=SQL), people()
    release = batchdp.answer(made, frame, rho=1, ledger=ledger, release_id="one")
    release.save(tmp_path / "x.release")
    again = batchdp.load_release(tmp_path / "x.release")
    for other in (again, batchdp.answer(made, frame, rho=1, ledger=ledger, release_id="one")):
        assert other.table("age", "smoker", name="age × smoker").equals(
            release.table("age", "smoker", name="age × smoker")
        )
        assert [one.name for one in other.answers[:5]] == [one.name for one in release.answers[:5]]
    assert release.answers[0].name == "adults[state=NY]"
    made.save(tmp_path / "x.plan")
    repeated: Any = batchdp.answer(
        batchdp.load_plan(tmp_path / "x.plan"), frame, rho=1, ledger=ledger, release_id="one"
    )
    assert np.array_equal(repeated.noisy, release.noisy)
    files = batchdp.export(release, tmp_path / "tables", format="csv")
    assert len(files) == len(release.tables)
    index = json.loads((tmp_path / "tables" / "tables.json").read_text())
    assert index["tables"][1]["columns"] == ["age", "smoker"]
    written = pd.read_csv(files[0], keep_default_na=False)
    assert list(written["state"]) == ["NY", "NJ", "CA", "(NULL)"]
    changed = planned(sql=SQL.replace("age >= 18", "age >= 19"))
    with pytest.raises(batchdp.BatchDPError, match="one"):
        batchdp.answer(changed, frame, rho=1, ledger=ledger, release_id="one")


def test_the_domain_says_whose_privacy_it_is(ledger: batchdp.Ledger) -> None:
    made = planned(domain=DOMAIN | {"privacy": {"unit": "who", "rows_per_unit": 3, "neighbours": "replace"}})
    assert made.factor == 6
    assert made.standard_errors(rho=1) == pytest.approx(6 * planned().standard_errors(rho=1))
    with pytest.raises(PrivacyParameterError, match="are in its domain"):
        batchdp.answer(made, people(), rho=1, ledger=ledger, rows_per_unit=1)
    release = batchdp.answer(made, people().assign(who=range(500)), rho=1, ledger=ledger)
    assert release.certificate.privacy_unit == "who"
    assert release.table("state")["standard_error"][0] == pytest.approx(made.standard_errors("state", rho=1)[0])


def test_a_wrong_schema_is_refused_before_the_charge(ledger: batchdp.Ledger) -> None:
    with pytest.raises(batchdp.TableError, match="smoker"):
        batchdp.answer(planned(), people().drop(columns="smoker"), rho=1, ledger=ledger)
    assert ledger.spent == 0


def test_outlook_budget_audit_and_comparison(tmp_path: Path) -> None:
    made = planned()
    seen = batchdp.outlook(made, epsilon=1.0)
    assert [row.name for row in seen.tables[:3]] == ["total", "state", "age"]
    assert seen.tables[1].standard_error == pytest.approx(made.typical_errors(rho=0.5)[1])
    cells = 6 * 5 * 4 * 3
    assert seen.tables[1].noise_on_data == pytest.approx(np.sqrt(2 * cells / 6))
    assert seen.tables[1].noise_on_results == pytest.approx(np.sqrt(2) * 11)
    assert [one.by_itself for one in seen.statements] == pytest.approx([np.sqrt(11)] * 11)
    assert [one.gain for one in seen.statements] == pytest.approx(np.sqrt(11) / made.typical_errors(rho=0.5))
    assert "tables over 4 columns" in seen.summary()
    rho = batchdp.epsilon_for(made, standard_error=3.0, query="state × age")
    assert made.standard_errors("state × age", rho=rho).max() == pytest.approx(3.0, rel=0.01)
    assert batchdp.estimate(made, rho=0.5).answers == made.workload.queries
    assert batchdp.audit(made, rho=0.5, runs=2000).passed
    assert made.asked_workload.queries == made.workload.queries
    wide = {f"c{i}": {"integers": [0, 9]} for i in range(12)}
    large = batchdp.compare(planned(domain={"table": "t", "columns": wide}), {})
    assert large.m == planned(domain={"table": "t", "columns": wide}).workload.queries
    assert "too large for a matrix" in large.note


# ── engines ──

WAYS = {"tables": 10**12, "combinations": 1}


@cache
def awkward_plan(noise: str = "zcdp", **privacy: Any) -> Any:
    described = awkward_domain().model_dump(mode="json", exclude_none=True)
    chosen = ("state", "home town", "grade", "smoker", "age", "floor", "visited")
    columns = {name: described["columns"][name] for name in chosen}
    columns["grade"]["other"] = "drop"
    return planned(noise, domain={"table": "patients", "privacy": privacy, "columns": columns})


@cache
def awkward_records() -> pa.Table:
    found = records(300, 3)
    ids = pa.array(np.random.default_rng(0).integers(0, 60, len(found)))
    states = pa.array([one or None for one in found["state"].to_pylist()])  # an empty text is NULL in a CSV file
    return found.set_column(0, "state", states).append_column("who", ids)


@cache
def expected_of(made: Any) -> NDArray[np.int64]:
    """What the measurements without noise are, counted once for all engines."""
    with TemporaryDirectory() as folder:
        ledger = batchdp.Ledger.create(Path(folder) / "ledger.db", rho=10_000)
        return without_noise(made, awkward_records(), ledger).noisy


@every_engine(slow=ALIKE)
def test_all_engines_count_the_same_tables_either_way(
    engine: str, tmp_path: Path, ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ENGINES[engine](awkward_records(), tmp_path)
    for noise, privacy in (("zcdp", {}), ("zcdp", {"unit": "who", "rows_per_unit": 2}), ("pure", {"unit": "who"})):
        made = awkward_plan(noise, **privacy)
        expected = expected_of(made)
        for way, rows in WAYS.items():
            monkeypatch.setattr(counts, "ROWS", rows)
            assert noise == "pure" or (sets_counted(made.strategy, made.batch, None) is not None) == (way == "tables")
            release = without_noise(made, table, ledger)
            assert np.array_equal(release.noisy, expected), (privacy, way)


def test_which_way_is_taken_depends_on_public_sizes_alone() -> None:
    wide = {"table": "t", "columns": {f"c{i}": {"integers": [0, 9], "other": "drop"} for i in range(20)}}
    made = planned(domain=wide)
    sets = sets_counted(made.strategy, made.batch, None)
    assert sets is not None
    assert len(sets) < 100  # of 190 pairs, several in each
    assert all(any({*pair} <= {*own} for own in sets) for pair in combinations(range(20), 2))
    assert sets_counted(made.strategy, made.batch, 1000) is None  # so few rows are quicker moved
    assert sets_counted(planned().strategy, planned().batch, None) is None  # so few combinations too
    many = planned(domain={"table": "t", "columns": {f"c{i}": {"integers": [0, 2]} for i in range(60)}})
    assert sets_counted(many.strategy, many.batch, None) is None  # more tables than one query counts


# ── the command line ──


def test_the_command_line_plans_and_answers_tables(tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text(
        'table = "patients"\n[columns.state]\nvalues = ["NY", "NJ"]\n[columns.age]\nrange = [0, 99]\nbins = [0, 18]\n'
    )
    (tmp_path / "patients.csv").write_text("state,age\nNY,5\nNJ,40\n,70\n")
    plan = ["plan", "--marginals", "2", "-d", tmp_path / "domain.toml", "-o", tmp_path / "x.plan", "--privacy", "zcdp"]
    assert "state × age" in succeeds(*plan)
    assert json.loads(succeeds(*plan, "--json"))["answers"] == 1 + 4 + 4 + 16
    succeeds("budget", tmp_path / "b.db", "--create", "--rho", "10")
    table = ["-t", tmp_path / "patients.csv", "--rho", "9", "-l", tmp_path / "b.db", "-y"]
    shown = succeeds("answer", tmp_path / "x.plan", *table, "-o", tmp_path / "out.csv")
    assert "25 private answers" in shown
    assert "state[state=NY]" in (tmp_path / "out.csv").read_text()
    assert "written" in succeeds("export", tmp_path / "out.release", "-o", tmp_path / "tables")
    assert "ok" in succeeds("audit", tmp_path / "x.plan", "--runs", "1000")
    assert "for a domain of 2 columns" in refused(
        "plan", "-m", "3", "-d", tmp_path / "domain.toml", "-o", tmp_path / "y"
    )


def test_a_hundred_columns_stay_small_and_fast(tmp_path: Path) -> None:
    domain = as_domain({"table": "t", "columns": {f"c{i}": {"integers": [0, 9]} for i in range(40)}})
    batch = tables_of([], checked_orders(3, domain), domain)
    assert batch.workload.queries > 10**7
    assert batch.workload.names is None
    made = planned(domain=domain, marginals=3)
    made.save(tmp_path / "x.plan")
    assert (tmp_path / "x.plan").stat().st_size < 20_000
    assert len(batchdp.load_plan(tmp_path / "x.plan").tables) == len(made.tables)


def test_columns_with_a_step_or_clipped_are_tables_too(tmp_path: Path) -> None:
    columns = {
        "c": {"integers": [0, 9], "bins": [0, 5], "outside": "clip"},
        "s": {"range": [0, 1], "step": 0.5, "bins": [0]},
    }
    made = batchdp.plan(domain={"table": "t", "columns": columns}, marginals=1, privacy="zcdp", cache=False)
    frame = pd.DataFrame({"c": [-3.0, 1, 7, 99, None], "s": [0.1, 0.9, 0.3, 5.0, None]})
    ledger = batchdp.Ledger.create(tmp_path / "b.db", rho=10**6)
    release = batchdp.answer(made, frame, rho=10**5, ledger=ledger)
    assert release.table("c")["value"].round().tolist() == [2, 2, 1]
    assert release.table("s")["value"].round().tolist() == [3, 1, 1]
