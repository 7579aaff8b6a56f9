"""Plans by components: the same queries, over blocks that are tables of some columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchdp
from batchdp.domain import as_domain
from batchdp.optimizer.residual import groups
from batchdp.plans.componentwise import ComponentCells, component_cells, componentwise, query_tables
from cases import every_number, read_batch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
DOMAIN = """
table = "visits"
[columns.ward]
values = ["a", "b", "c"]
[columns.day]
integers = [1, 4]
other = "drop"
[columns.age]
range = [0, 100]
bins = [0, 18, 40, 65]
"""
QUERIES = (
    "SELECT COUNT(*) AS total FROM visits",
    "SELECT ward, COUNT(*) AS by_ward FROM visits GROUP BY ward",
    "SELECT day, COUNT(*) AS by_day FROM visits GROUP BY day",
    "SELECT ward, day, COUNT(*) AS by_both FROM visits GROUP BY ward, day",
    "SELECT age, COUNT(*) AS by_age FROM visits GROUP BY age",
    "SELECT day, COUNT(*) AS old_by_day FROM visits WHERE age >= 40 GROUP BY day",
    "SELECT COUNT(*) AS some FROM visits WHERE ward = 'a' OR day = 2",
    "SELECT SUM(day) AS days FROM visits WHERE age < 18",
)


def visits(count: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "ward": rng.choice(np.array(["a", "b", "c", "elsewhere", None], dtype=object), count),
            "day": rng.choice([1, 2, 3, 4, 5], count),
            "age": rng.choice([5.0, 30.0, 50.0, 80.0, 200.0, np.nan], count),
        }
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(st.sets(st.sampled_from(QUERIES), min_size=1), st.integers(0, 10**6))
def test_components_count_the_same_queries(chosen: set[str], seed: int) -> None:
    domain = as_domain(DOMAIN)
    batch = read_batch(";\n".join(sorted(chosen)), domain)
    queries = batch.queries
    made = componentwise(batch, domain, 8192)
    assert made is not None
    cells, strategy = made
    plain = every_number(queries, domain)
    rng = np.random.default_rng(seed)
    alive = [np.flatnonzero(atoms.possible) for atoms in cells.atoms]
    rows = np.column_stack([rng.choice(own, 50) for own in alive]) if alive else np.zeros((50, 0), dtype=np.int64)
    records = [(rows, rng.integers(1, 9, 50))]
    truth = plain.matrix @ plain.counts(records)
    assert np.allclose(cells.matrix @ cells.counts(records), truth, atol=1e-8 * max(1.0, float(np.abs(truth).max())))
    assert np.allclose(strategy.reconstruct @ strategy.measure, cells.matrix.toarray(), atol=1e-9)
    # Its sensitivity over blocks covers every record.
    moved = [strategy.measure @ cells.counts([(row[None], np.ones(1, dtype=np.int64))]) for row in rows]
    assert max(float(np.linalg.norm(one)) for one in moved) <= strategy.sensitivity * (1 + 1e-12)
    assert strategy.lower_bound(rho=0.5) <= strategy.expected_squared_error(rho=0.5) * (1 + 1e-9)


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return batchdp.plan(
        BENCHMARKS / "dashboard.sql", BENCHMARKS / "dashboard.toml", privacy="zcdp", objective="sum", cache=False
    )


@pytest.mark.slow
def test_the_dashboard_is_near_its_limit(dashboard: Any) -> None:
    assert isinstance(dashboard.batch.cells, ComponentCells)
    assert dashboard.strategy.expected_squared_error(rho=0.5) <= 1045
    assert dashboard.strategy.lower_bound(rho=0.5) >= 1000
    assert dashboard.strategy.largest_variance_bound(rho=0.5) <= dashboard.strategy.largest_variance(rho=0.5)
    simple = batchdp.outlook(dashboard)
    plain = dashboard.asked_workload
    assert plain.queries == dashboard.workload.queries
    assert [one.name for one in simple.tables] == list(plain.names)
    on_results = batchdp.STRATEGIES["noise-on-results"](plain).per_query_variance(epsilon=1.0)
    assert simple.tables[0].noise_on_results == pytest.approx(float(np.sqrt(on_results[0])))


@pytest.mark.slow
def test_a_plan_by_components_is_saved_answered_audited_and_repeated(dashboard: Any, tmp_path: Path) -> None:
    dashboard.save(tmp_path / "dashboard.plan")
    loaded: Any = batchdp.load_plan(tmp_path / "dashboard.plan")
    assert isinstance(loaded.batch.cells, ComponentCells)
    assert loaded.strategy.lower_bound(rho=0.5) == dashboard.strategy.lower_bound(rho=0.5)
    assert np.allclose(loaded.workload.matrix.toarray(), dashboard.workload.matrix.toarray())
    rng = np.random.default_rng(0)
    count = 3000
    frame = pd.DataFrame(
        {
            "month": rng.integers(1, 13, count),
            "carrier": rng.choice(["AA", "DL", "??"], count),
            "origin": rng.choice(["EWR", "JFK", "LGA"], count),
            "hour": rng.integers(0, 30, count),
            "dep_delay": rng.normal(10, 40, count).round(),
            "arr_delay": rng.normal(10, 40, count).round(),
            "air_time": rng.choice([np.nan, 100.0], count),
            "distance": rng.integers(0, 5000, count),
        }
    )
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=200)
    release = batchdp.answer(loaded, frame, rho=100, ledger=ledger, release_id="exact")
    largest = float(np.max(release.standard_errors))
    table = release.table("month", name="by_month").set_index("month")["value"]
    truth = frame.groupby("month").size()
    assert np.abs(table.to_numpy() - truth.loc[table.index.astype(int)].to_numpy()).max() < 6 * largest
    late = release.table("carrier", name="late_by_carrier").set_index("carrier")["value"]
    assert abs(late["AA"] - ((frame.carrier == "AA") & (frame.arr_delay >= 30)).sum()) < 6 * largest
    again = batchdp.answer(loaded, frame, rho=100, ledger=ledger, release_id="exact")
    assert np.array_equal(again.values, release.values)
    assert batchdp.audit(loaded, rho=0.5, runs=2000).passed
    assert batchdp.epsilon_for(loaded, standard_error=5.0) > 0
    batchdp.report(release, tmp_path / "page.html")
    with pytest.raises(batchdp.ReleaseError, match="give name="):
        release.table("carrier")


def test_components_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    domain = as_domain(DOMAIN)
    batch = read_batch(QUERIES[3], domain)
    queries, tables = batch.queries, query_tables(batch, domain)
    made = componentwise(batch, domain, 8192)
    assert made is not None
    cells, _ = made
    with pytest.raises(batchdp.QueryError, match="not the sum of its components"):
        component_cells(queries, tables, cells.sets[1:], cells.averages, 8192)
    with pytest.raises(batchdp.QueryError, match="measures"):
        component_cells(queries, tables, cells.sets, [2 * mu for mu in cells.averages], 8192)
    assert component_cells(queries, tables, cells.sets, cells.averages, 2) is None


# ── Batches of all sizes have a plan ──

PEOPLE = """
table = "people"
[columns.age]
integers = [0, 130]
[columns.income]
integers = [0, 6400]
[columns.hour]
integers = [0, 23]
[columns.region]
values = ["n", "e", "s", "w"]
"""
Privacy = Literal["pure", "zcdp"]
NOISES: tuple[Privacy, ...] = ("pure", "zcdp")


def tied(thresholds: int) -> str:
    """Counts below thresholds of two columns, and two conditions on both: components tie these columns together."""
    conditions = [f"age < {2 * i}" for i in range(1, thresholds + 1)]
    conditions += [f"income < {100 * i}" for i in range(1, thresholds + 1)]
    conditions += ["age < 4 AND income < 300", "age < 8 AND income < 500"]
    counts = [f"SELECT COUNT(*) AS q{q} FROM people WHERE {own}" for q, own in enumerate(conditions)]
    return ";\n".join([*counts, "SELECT hour, COUNT(*) AS by_hour FROM people GROUP BY hour"])


def statements(count: int) -> str:
    rng = random.Random(count)
    made = []
    for q in range(count):
        age, income = f"age < {rng.randrange(1, 131)}", f"income < {100 * rng.randrange(1, 65)}"
        region, hour = f"region = '{rng.choice('nesw')}'", f"hour >= {rng.randrange(24)}"
        where = rng.choice([age, age, income, income, hour, f"{age} AND {income}", f"{region} AND {age}"])
        by = rng.choice(["hour", "region"]) if rng.random() < 0.03 else None
        grouped = f"SELECT {by}, COUNT(*) AS q{q} FROM people GROUP BY {by}"
        made.append(grouped if by else f"SELECT COUNT(*) AS q{q} FROM people WHERE {where}")
    return ";\n".join(made)


def test_columns_that_are_tied_too_closely_keep_the_plan_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_CLASSES", 20)
    made: Any = batchdp.plan(tied(5), PEOPLE, privacy="zcdp", objective="sum", max_cells=64, cache=False)
    assert not isinstance(made.batch.cells, ComponentCells)
    assert len(made.batch.cells.blocks) > 1


@pytest.mark.slow
@pytest.mark.parametrize("privacy", NOISES)
def test_many_thresholds_on_two_columns_have_a_plan(privacy: Privacy) -> None:
    made = batchdp.plan(tied(63), PEOPLE, privacy=privacy, cache=False)
    assert isinstance(made, batchdp.Plan)
    assert made.workload.queries == 2 * 63 + 2 + 24


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 30, 100, 300, 1000, 2000])
@pytest.mark.parametrize("privacy", NOISES)
def test_batches_of_all_sizes_have_a_plan(count: int, privacy: Privacy) -> None:
    made = batchdp.plan(statements(count), PEOPLE, privacy=privacy, seconds=1, cache=False)
    assert isinstance(made, batchdp.Plan)
    assert made.workload.queries >= count
    assert np.all(np.isfinite(made.strategy.per_query_variance(**made.strategy.noise.reference.arguments)))
