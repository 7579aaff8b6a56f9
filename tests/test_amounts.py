"""Amounts by their ends: what SUM means in every engine, what a record changes, and what the plan costs."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchdp
from amount_truth import counted, exact_answers, expected, meant, records, statement, truth
from batchdp.audits.exact import check_arithmetic, rederive
from batchdp.domain import Numbers, as_domain
from batchdp.engines import coding, count, open_table
from batchdp.errors import DomainError, PlanError, QueryError, WorkloadError
from batchdp.linalg.matrix import dense
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import lattice_of
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.plans.planned import Plan
from batchdp.privacy import LAPLACE
from batchdp.sql import read_queries
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.encode.cells import cells_of
from batchdp.workloads.matrix import MatrixWorkload
from engines import ENGINES, every_engine, on_spark
from mechanisms import measured, prepared

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "100"))
GROUPS = [f"g{i}" for i in range(16)]


# ── what SUM means ──


def compare(engine: str, folder: Path, seeds: range, each: int = 20) -> None:
    for seed in seeds:
        table = records(300, seed)
        exact = truth(table)
        statements = [statement(each * seed + i) for i in range(each)]
        (folder / str(seed)).mkdir()
        mine = counted(ENGINES[engine](table, folder / str(seed)), statements)
        theirs = [value for sql in statements for value in expected(exact, sql)]
        known = [(one, other) for one, other in zip(mine, theirs, strict=True) if other is not None]
        assert len(known) > 30
        assert [one for one, _ in known] == pytest.approx([other for _, other in known], rel=1e-9, abs=1e-6)


@every_engine("csv.gz", "tsv", "folder of parquet", "ibis", "duckdb relation", "parquet on spark")
def test_sums_are_duckdbs_on_exact_decimals(engine: str, tmp_path: Path) -> None:
    compare(engine, tmp_path, range(1))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb connection", "pandas", "polars", "postgres"])
def test_two_hundred_statements_are_duckdbs(engine: str, tmp_path: Path) -> None:
    compare(engine, tmp_path, range(10))


@on_spark
def test_two_hundred_statements_on_spark_are_duckdbs(tmp_path: Path) -> None:
    """About one table: Spark takes its time for every query that it is asked."""
    compare("spark", tmp_path, range(1), 200)


STEPS = as_domain({"table": "t", "columns": {"v": {"range": [0, 100], "step": 0.01}}})


def total(values: Any, described: Any = STEPS, sql: str = "SELECT SUM(v) AS s, COUNT(*) AS n FROM t") -> list[float]:
    cells = cells_of(read_queries(sql, described), described)
    with open_table(values, described, columns=[one.column for one in cells.atoms]) as source:
        return exact_answers(cells, cells.counts(count(source, cells.atoms)))


@given(st.lists(st.integers(-1000, 101_000), min_size=1, max_size=40))
@settings(max_examples=EXAMPLES // 5, deadline=None)
def test_thousandths_are_rounded_as_decimals_are(thousandths: list[int]) -> None:
    values = [number / 1000 for number in thousandths]
    column = STEPS.columns["v"]
    assert isinstance(column, Numbers)
    exact = sum(meant(column, value)[1] or 0 for value in values)
    assert total(pd.DataFrame({"v": values}))[0] == pytest.approx(float(exact), abs=1e-9)


def test_an_end_that_float32_rounds_up_is_an_end() -> None:
    """The value 2^53 is at most 2^53 − 1 there, and must not lie beyond the grid."""
    described = as_domain({"table": "t", "columns": {"v": {"integers": [-5, 2**53 - 1]}}})
    assert total(pd.DataFrame({"v": np.array([2**53], dtype=np.float32)}), described) == [2**53 - 1, 1]


def test_odd_values_neither_raise_nor_add() -> None:
    odd = [np.nan, np.inf, -np.inf, 1e300, -1e300, -5e-324, 100.0000001, 5e-324, -0.0, 100.0, None]
    assert total(pd.DataFrame({"v": odd})) == [100.0, 11.0]
    clipped = as_domain({"table": "t", "columns": {"v": {"range": [0, 100], "step": 0.01, "outside": "clip"}}})
    assert total(pd.DataFrame({"v": odd}), clipped) == [400.0, 11.0]
    assert total(pd.DataFrame({"v": ["1.005", "x", "", "1e400", None, "0x10"]}), clipped)[0] in (1.01, 101.01)


def test_dropped_amounts_are_not_counted() -> None:
    described = as_domain({"table": "t", "columns": {"v": {"integers": [2, 10**9], "other": "drop"}}})
    assert total(pd.DataFrame({"v": [2.0, 3.5, 10.0**9, 1.0, np.nan]}), described) == [10.0**9 + 2, 2.0]


def test_sums_do_not_overflow() -> None:
    top = 9007199254740990
    described = as_domain({"table": "t", "columns": {"v": {"range": [-top, top], "step": 0.5}}})
    frame = pd.DataFrame({"v": np.full(3000, top, dtype=np.int64)})
    assert total(frame, described)[0] == pytest.approx(3000 * top, rel=1e-15)


def test_the_lot_covers_the_amount(tmp_path: Path) -> None:
    """Of rows with the same atoms the lot chooses by the amount, whatever the order and the engine."""
    described = as_domain({"table": "patients", "privacy": {"unit": "who"}, "columns": {"v": {"integers": [0, 10**9]}}})
    chance = Random(1)
    rows = pd.DataFrame(
        {"who": [f"p{i % 40}" for i in range(400)], "v": [chance.randint(0, 10**9) for _ in range(400)]}
    )
    cells = cells_of(read_queries("SELECT SUM(v) AS s FROM patients", described), described)
    found = []
    for engine, frame in (("pandas", rows), ("duckdb connection", rows[::-1]), ("postgres", rows.sample(frac=1.0))):
        (tmp_path / engine).mkdir()
        arrow = pa.table({"who": pa.array(frame["who"], pa.string()), "v": pa.array(frame["v"], pa.int64())})
        table = ENGINES[engine](arrow, tmp_path / engine)
        with open_table(table, described) as source:
            counts = cells.counts(count(source, cells.atoms, unit="who", rows_per_unit=1))
            found.append(exact_answers(cells, counts))
    assert found[0] == found[1] == found[2]


# ── what a record changes ──


@st.composite
def lattice_cases(draw: st.DrawFn) -> AmountLattice:
    """Any strategy on the ends of one to three stretches, some with an end that is not counted."""
    stretches = draw(st.integers(1, 3))
    longest = draw(st.sampled_from([1, 2, 9, 1000, 10**9, 2**61]))
    entries = st.floats(-4, 4, allow_subnormal=False).map(lambda x: round(x, 3))
    rows = draw(st.integers(1, 4))
    L = np.array(
        draw(st.lists(st.lists(entries, min_size=2 * stretches, max_size=2 * stretches), min_size=rows, max_size=rows))
    )
    ends = []
    for i in range(stretches):
        steps = draw(st.integers(1, longest))
        kind = draw(st.sampled_from(["both", "both", "low", "high"]))
        ends.append((2 * i if kind != "high" else -1, 2 * i + 1 if kind != "low" else -1, steps))
    privacy: Any = draw(st.sampled_from(["pure", "zcdp"]))
    strategy = PairStrategy(MatrixWorkload(L, ends=ends), L, np.eye(rows), privacy=privacy)
    made = lattice_of(strategy, largest_total=draw(st.sampled_from([10**6, 10**9, 10**12])))
    assert isinstance(made, AmountLattice)
    return made


def table_of(lattice: AmountLattice, cell: int, pair: int | None, along: int) -> np.ndarray:
    counts = np.zeros(lattice.cells, dtype=object)
    if cell >= 0:
        counts[cell] = 1
    if pair is not None:
        counts[len(lattice.levels) + pair] = along
    return counts


def check_lattice(lattice: AmountLattice, chance: Random) -> None:
    """No record, at an end or between two, on whatever table, changes the measurements by more than Δ."""
    fine = 2**lattice.shift
    norm = lattice.noise.norm
    base = table_of(lattice, 0, None, 0) * chance.randint(0, 10**6)
    for pair, (low, _, steps) in enumerate(lattice.workload.ends):
        level, slope = lattice.level(low), lattice.slopes[pair]
        for along in {0, 1, steps // 3, steps - 1, steps}:
            own = table_of(lattice, low, pair, along)
            moved = [Fraction(level.get(i, 0) + along * slope.get(i, 0), fine) for i in range(lattice.measurements)]
            assert sum(ceil(abs(z)) ** norm for z in moved) <= lattice.sensitivity**norm
            pairs = zip(measured(lattice, base + own), measured(lattice, base), strict=True)
            assert sum(abs(a - b) ** norm for a, b in pairs) <= lattice.sensitivity**norm
    (rederived,), _ = rederive(lattice)
    assert rederived <= lattice.sensitivity**norm == lattice.groups[0].moved
    assert check_arithmetic(lattice).held
    # And Δ is no more than that of the ends with a coarse step a measurement.
    rows = range(lattice.measurements)
    ends = [*lattice.levels, *(lattice.upper(pair) for pair in range(len(lattice.slopes)))]
    most = max(sum((Fraction(abs(column.get(i, 0)), fine) + 1) ** norm for i in rows) for column in ends)
    assert lattice.sensitivity**norm <= ceil(most) if norm == 1 else (lattice.sensitivity - 1) ** 2 <= ceil(most)


@given(lattice_cases(), st.integers(0, 10**6))
@settings(max_examples=EXAMPLES, deadline=None)
def test_sensitivities_are_exact_at_and_between_the_ends(lattice: AmountLattice, seed: int) -> None:
    check_lattice(lattice, Random(seed))


def test_what_is_measured_decides_and_not_the_cell_of_the_upper_end() -> None:
    """A record ten steps up adds 3 + 10, whatever stands for the upper end."""
    columns, slopes = ({0: 3 << 4}, {0: 1 << 4}), ({0: 1 << 4},)
    workload = MatrixWorkload(np.eye(2), ends=[(0, 1, 10)])
    lattice = AmountLattice(workload, columns, slopes, np.eye(2), 0, 4, 10**6, LAPLACE)
    assert lattice.upper(0) == {0: 13 << 4}
    assert lattice.sensitivity == 13


def test_a_plan_must_know_its_ends() -> None:
    plan = made("integers = [0, 5000]")
    plain = MatrixWorkload(plan.workload.matrix, plan.names, blocks=plan.workload.blocks)
    with pytest.raises(PlanError, match="between which cells"):
        replace(plan, strategy=noise_on_results(plain))
    for ends in ([(0, 0, 3)], [(0, 1, 0)], [(0, 99, 1)], [(-1, -1, 1)]):
        with pytest.raises(WorkloadError, match="ends"):
            MatrixWorkload(np.eye(2), ends=ends)


# ── what it costs ──


def made(decl: str, sql: str = "SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g", **options: Any) -> Any:
    text = f'table = "t"\n[columns.g]\nvalues = {GROUPS}\nother = "drop"\n[columns.v]\n{decl}\nother = "drop"\n'
    planned = batchdp.plan(sql, text.replace("'", '"'), cache=False, **options)
    assert isinstance(planned, Plan)
    return planned


@pytest.mark.parametrize(
    ("decl", "size"),
    [("integers = [0, 5000]", 5e3), ("integers = [0, 1000000000]", 1e9), ("range = [0, 100000]\nstep = 0.01", 1e5)],
)
def test_counts_and_sums_by_group_cost_six_each(decl: str, size: float) -> None:
    plan = made(decl)
    weights = np.array([1.0 if name.startswith("n") else size**-2 for name in plan.names])
    W = plan.workload
    start = time.process_time()
    strategy = batchdp.optimize(MatrixWorkload(W.matrix, W.names, weights, W.blocks, meetings=W.meetings, ends=W.ends))
    assert time.process_time() - start <= 2
    assert float(strategy.per_query_variance(epsilon=1.0) @ weights) / 16 <= 6.1
    ready = prepared(strategy, Neighbours(), 1.0, None)
    lattice, law = ready.measurement, ready.reader
    assert isinstance(lattice, AmountLattice)
    assert float(law.standard_errors**2 @ weights) / 16 <= 6.1  # as it is released
    assert np.all(lattice.bias_bound <= 0.01 * law.standard_errors)
    assert lattice.largest_total >= 10**9


MIXED = """
SELECT g, COUNT(*) AS n, SUM(a) AS a, SUM(b) AS b FROM t GROUP BY g;
SELECT SUM(a) AS large FROM t WHERE a > 900;
"""


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("objective", ["fair", "sum", "max"])
@pytest.mark.parametrize("top", [1000, 10**9])
@pytest.mark.parametrize("sql", [MIXED, MIXED.replace(", SUM(b) AS b", "")], ids=["two amounts", "one amount"])
def test_plans_are_never_worse_than_noise_on_results(sql: str, top: int, objective: Any, privacy: Any) -> None:
    """By what is minimised; with noise for all alike, and in proportion to what a record can change."""
    columns = {"g": {"values": ["x", "y"]}, "a": {"integers": [0, top]}, "b": {"range": [-5, 5], "step": 0.5}}
    plan: Any = batchdp.plan(
        sql, {"table": "t", "columns": columns}, privacy=privacy, objective=objective, seconds=1, cache=False
    )
    assert len(plan.batch.cells.blocks) == 1 + ("SUM(b)" in sql)
    budget: dict[str, Any] = {"epsilon": 1.0} if privacy == "pure" else {"rho": 0.5}
    W = dense(plan.workload.matrix)
    own = np.abs(W).max(axis=1)
    for sizes in (np.ones_like(own), own):
        simple = PairStrategy(plan.workload, W / sizes[:, None], np.diag(sizes), privacy=privacy)
        if objective == "max":
            assert plan.strategy.largest_variance(**budget) <= simple.largest_variance(**budget) * (1 + 1e-9)
        else:
            assert plan.strategy.expected_squared_error(**budget) <= simple.expected_squared_error(**budget)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_two_amounts_of_thousands_of_values_are_planned_in_seconds(privacy: Any) -> None:
    own = {"integers": [0, 5000], "other": "drop"}
    described = {"table": "t", "columns": {"g": {"values": GROUPS, "other": "drop"}, "v": own, "w": own}}
    start = time.process_time()
    plan = batchdp.plan(
        "SELECT g, COUNT(*) AS n, SUM(v) AS s, SUM(w) AS r FROM t GROUP BY g", described, privacy=privacy, cache=False
    )
    assert time.process_time() - start <= 10
    assert plan.workload.cells == 48


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_two_amounts_pass_the_audit(privacy: Any) -> None:
    text = 'table = "t"\n[columns.a]\nintegers = [0, 1000]\n[columns.b]\nrange = [-5, 5]\nstep = 0.5\n'
    plan = batchdp.plan("SELECT COUNT(*) AS n, SUM(a) AS a, SUM(b) AS b FROM t", text, privacy=privacy, cache=False)
    budget: dict[str, Any] = {"epsilon": 1.0} if privacy == "pure" else {"rho": 0.5}
    assert batchdp.audit(plan, **budget, runs=2000).passed


def test_plans_are_saved_and_audited(tmp_path: Path) -> None:
    plan = made("integers = [0, 50]", "SELECT SUM(v) AS s, COUNT(*) AS n FROM t WHERE v > 7")
    plan.save(tmp_path / "new.plan")
    again: Any = batchdp.load_plan(tmp_path / "new.plan")
    assert again.batch.cells.ends == plan.batch.cells.ends
    assert again.lattice.sensitivity == plan.lattice.sensitivity
    assert batchdp.audit(again, epsilon=1.0, runs=2000).passed


def test_a_release_is_answered_saved_and_found_again(tmp_path: Path) -> None:
    plan = made("range = [0, 1000]\nstep = 0.01\noutside = 'clip'")
    frame = pd.DataFrame({"g": GROUPS * 500, "v": np.linspace(-10, 1010, 8000)})
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=10)
    release = batchdp.answer(plan, frame, epsilon=5.0, ledger=ledger, release_id="one")
    release.save(tmp_path / "one.release")
    assert np.array_equal(batchdp.load_release(tmp_path / "one.release").values, release.values)
    again = batchdp.answer(plan, frame, epsilon=5.0, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, release.values)
    sums = frame.v.clip(0, 1000).round(2).groupby(frame.g).sum()
    for one in release.answers:
        exact = 500 if one.name.startswith("n[") else sums[one.name[4:-1]]
        assert abs(one.value - exact) <= 12 * one.standard_error
    assert release.consistent().values.shape == release.values.shape


# ── refusals ──


@pytest.mark.parametrize(
    ("decl", "problem"),
    [
        ("range = [0, 100]\nstep = 0.03", r"step=0.03 does not divide the range from 0 to 100; end it at 99.99"),
        ("range = [0, 1]\nstep = 0", "step=0 must be above 0"),
        ("range = [0, 1]\nstep = -0.5", "step=-0.5 must be above 0"),
        ("range = [0, 9007199254740992]\nstep = 0.0001", r"more than 2\^62 steps"),
        ("range = [0, 1e-40]\nstep = 1e-40", "below 1e-30"),
        ("values = [1, 2]\nstep = 1", "columns.v.step: only a column with range has a step"),
        ("integers = [0, 2]\nstep = 1", "columns.v.step: only a column with range"),
        ("range = [0, 1]\noutside = 'clip'", "needs a step"),
        ("dates = ['2020-01-01', '2020-02-01']\noutside = 'clip'", "can be clipped"),
        ("range = [0, 1]\nstep = 0.5\noutside = 'keep'", "columns.v.outside"),
    ],
)
def test_domains_that_make_no_sense_are_refused(decl: str, problem: str) -> None:
    with pytest.raises(DomainError, match=problem):
        as_domain(f'table = "t"\n[columns.v]\n{decl}')


def test_new_keys_are_not_written_where_they_are_left_out() -> None:
    described = as_domain({"table": "t", "columns": {"v": {"range": [0, 1]}, "k": {"integers": [0, 1]}}})
    assert all("step" not in one and "outside" not in one for one in described.model_dump()["columns"].values())


def test_sums_that_cannot_be_had_are_refused_with_a_remedy() -> None:
    described = as_domain(
        {
            "table": "t",
            "columns": {"v": {"range": [0, 1]}, "a": {"range": [0, 1], "step": 0.5}, "b": {"integers": [0, 9]}},
        }
    )
    with pytest.raises(QueryError, match="add a step to v"):
        read_queries("SELECT SUM(v) FROM t", described)
    with pytest.raises(QueryError, match="two queries"):
        cells_of(read_queries("SELECT SUM(a) + SUM(b) AS s FROM t", described), described)


# ── mutants ──

Patch = pytest.MonkeyPatch


def forgotten_clip(patch: Patch) -> None:
    """A step beyond the grid, where an end is rounded."""
    patch.setattr(coding, "_clamp", lambda steps, last, first: steps)


def slope_without_offset(patch: Patch) -> None:
    """Steps from the first of the grid, and not of the stretch."""
    module = importlib.import_module("batchdp.workloads.encode.cells")
    original = module.counted

    def from_the_first(block: Any, atoms: Any, codes: Any, numbers: Any) -> Any:
        without = numbers.copy()
        without[:, 0] = 0
        return original(block, atoms, codes, without)

    patch.setattr(module, "counted", from_the_first)


def overflow(patch: Patch) -> None:
    """Totals in 64 bits."""

    def wrapped(flat: Any) -> Any:
        return np.array([(int(z) + 2**63) % 2**64 - 2**63 for z in flat], dtype=np.int64)

    patch.setattr(importlib.import_module("batchdp.mechanism.measure"), "clamp", wrapped)


def narrow_sums(patch: Patch) -> None:
    """Only the lowest piece of a sum."""
    module = importlib.import_module("batchdp.engines.counting")
    patch.setattr(module, "join_limbs", lambda sums: sums[0].astype(object))


def cut_down(patch: Patch) -> None:
    """What cutting the total adds to a record's change is forgotten."""

    def by_cell(self: AmountLattice, power: int) -> list[int]:
        return [sum(abs(q) ** power for q in level.values()) >> power * self.shift for level in self.levels]

    patch.setattr(AmountLattice, "by_cell", by_cell)


def rounded_by_the_engine(patch: Patch) -> None:
    """Half to even, or away from zero, as the engine likes."""
    patch.setattr(coding, "half_step", lambda grid: 0.0)
    patch.setattr(coding, "floor", lambda steps: steps.round())


def on_float32(_: Path) -> None:
    test_an_end_that_float32_rounds_up_is_an_end()


def on_lattices(_: Path) -> None:
    L = np.array([[1.1, 1.3, 0.3], [0.7, -1.9, 0.7], [0.3, 0.9, 0.1]])
    # One stretch goes on to where nothing is counted: below, by its slope alone.
    strategy = PairStrategy(MatrixWorkload(L, ends=[(0, 1, 999), (-1, 2, 7)]), L, np.eye(3))
    lattice = lattice_of(strategy, largest_total=10**9)
    assert isinstance(lattice, AmountLattice)
    for seed in range(20):
        check_lattice(lattice, Random(seed))


def on_one_engine(folder: Path) -> None:
    compare("pyarrow", folder, range(1))


MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[Path], None]]] = {
    "forgotten clip": (forgotten_clip, on_float32),
    "slope without offset": (slope_without_offset, on_one_engine),
    "overflow": (overflow, on_lattices),
    "a total cut down": (cut_down, on_lattices),
    "the lowest piece of a sum": (narrow_sums, on_one_engine),
    "rounding by the engine": (rounded_by_the_engine, on_one_engine),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, tmp_path: Path) -> None:
    mutate, check = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        with pytest.raises(AssertionError):
            check(tmp_path)


def test_what_is_less_than_a_coarse_step_joins_blocks_all_the_same() -> None:
    h = 2.0**-20
    workload = MatrixWorkload(
        [[1, 1, 0, 0], [0, 5, 0, 0], [0, 0, 1, 1], [0, 0, 0, 5]], blocks=[2, 2], ends=[(0, 1, 5), (2, 3, 5)]
    )
    own = [[1, 1, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 0.5]]
    L = np.array([*own, *[[0.5 + 0.5 * h, 0.5 + 0.5 * h, 0.9 * h, 0.9 * h]] * 40])
    strategy = PairStrategy(workload, L, dense(workload.matrix) @ np.linalg.pinv(L), privacy="zcdp")
    lattice = lattice_of(strategy, largest_total=10**12)
    one = np.array([0, 0, 1, 0, 0, 0], dtype=object)
    other = one + np.array([1, 0, 1, 0, 5, 5], dtype=object)  # a record more
    moved = sum((a - b) ** 2 for a, b in zip(measured(lattice, one), measured(lattice, other), strict=True))
    assert moved <= lattice.sensitivity**2
