"""Blocks improved together: kinds of records, measurements that span blocks, and what they are charged for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp import Ledger, MatrixWorkload, PairStrategy, PlanError, WorkloadError, answer, audit, load_plan, plan
from batchdp.audits.exact import rederive
from batchdp.domain import Domain
from batchdp.linalg.matrix import rows_span
from batchdp.mechanism.lattice import quantise_cells
from batchdp.optimizer.optimizing import optimize
from batchdp.plans.strategy_file import load_strategy, save_strategy
from batchdp.privacy import GAUSSIAN
from batchdp.sql import read_queries
from batchdp.strategies.blocks import assembled
from batchdp.workloads.encode.cells import cells_of
from test_cells import small_batches
from test_meetings import brute_force

TEN = """
SELECT COUNT(*) AS everybody FROM t;
SELECT state, COUNT(*) AS by_state FROM t GROUP BY state;
SELECT sex, COUNT(*) AS by_sex FROM t GROUP BY sex;
SELECT COUNT(*) AS adults FROM t WHERE age >= 18;
SELECT COUNT(*) AS old FROM t WHERE age >= 65;
SELECT diagnosis, COUNT(*) AS by_diagnosis FROM t GROUP BY diagnosis;
SELECT diagnosis, COUNT(*) AS women FROM t WHERE sex = 'f' GROUP BY diagnosis;
SELECT COUNT(*) AS insured FROM t WHERE insured;
SELECT COUNT(*) AS old_insured FROM t WHERE insured AND age >= 65;
SELECT state, COUNT(*) AS children FROM t WHERE age < 18 GROUP BY state;
"""
STATES, SEXES = ["NY", "NJ", "CA", "WA", "TX", "FL"], ["m", "f"]
DIAGNOSES = ["none", "asthma", "diabetes", "hypertension"]


def described(*, whole: bool) -> dict[str, Any]:
    """With `whole` every record is in a group of each column: blocks then count the same records twice."""
    columns: dict[str, Any] = {
        "state": {"values": STATES},
        "sex": {"values": SEXES},
        "age": {"integers": [0, 99]},
        "diagnosis": {"values": DIAGNOSES},
        "insured": {"values": [True, False]},
    }
    for name, own in columns.items():
        own |= {"groups": "all"} if whole and name != "age" else {}
    return {"table": "t", "columns": columns}


def planned(privacy: str, most: int, *, whole: bool = False, **options: Any) -> Any:
    kind: Any = privacy
    return plan(
        TEN, described(whole=whole), privacy=kind, max_cells=most, cache=False, **{"objective": "sum"} | options
    )


def error(made: Any) -> float:
    return float(made.strategy.expected_squared_error(**made.strategy.noise.reference.arguments))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("objective", ["sum", "max"])
def test_gaussian_blocks_together_reach_what_one_block_reaches(whole: bool, objective: Any) -> None:
    def least(made: Any) -> float:
        return error(made) if objective == "sum" else made.strategy.largest_variance(rho=0.5)

    one = planned("zcdp", 8192, whole=whole, objective=objective)
    assert len(one.workload.blocks) == 1
    for most, blocks in ((100, 2), (40, 3)):
        several = planned("zcdp", most, whole=whole, objective=objective)
        assert len(several.workload.blocks) == blocks
        assert rows_span(several.strategy.measurement, several.workload.blocks)
        assert least(several) <= 1.002 * least(one)
        unlisted = replace(several.workload, records=None)
        found = [optimize(part, "zcdp", objective=objective) for _, _, part in unlisted.parts()]
        apart = assembled(unlisted, found, GAUSSIAN, method="apart", objective=objective)
        assert least(several) <= 0.95 * least(replace(several, strategy=apart))
    if objective == "sum":  # and what is proven of the one is proven of the other
        assert several.strategy.lower_bound(rho=0.5) == pytest.approx(one.strategy.lower_bound(rho=0.5), rel=2e-3)


@pytest.mark.parametrize("whole", [False, True])
def test_laplace_blocks_together_are_better_than_apart(whole: bool) -> None:
    one, several = (planned("pure", most, whole=whole) for most in (8192, 100))
    apart = optimize(replace(several.workload, records=None), "pure")
    assert error(several) <= 0.95 * error(replace(several, strategy=apart))
    assert error(several) <= 1.1 * error(one)


@settings(max_examples=60, deadline=None)
@given(case=small_batches(), data=st.data())
def test_kinds_of_records_are_those_of_all_records(case: tuple[str, Domain], data: st.DataObject) -> None:
    sql, domain = case
    queries = read_queries(sql, domain)
    home = [data.draw(st.integers(0, 2)) for _ in queries]
    partition = [[q for q, own in enumerate(home) if own == block] for block in sorted(set(home))]
    cells = cells_of(queries, domain, partition=partition)
    if cells.records is None:
        return
    alive = (np.flatnonzero(atoms.possible) for atoms in cells.atoms)
    codes = np.array(list(product(*alive)), dtype=np.int64)
    every = np.stack([block.classes.of(codes) for block in cells.blocks], axis=1)
    assert {tuple(own) for own in cells.records.tolist()} == {tuple(own) for own in every.tolist()}


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_record_is_charged_for_what_its_cells_change_together(privacy: Any, tmp_path: Path) -> None:
    sql = "SELECT a, COUNT(*) AS x FROM t GROUP BY a; SELECT b, COUNT(*) AS y FROM t WHERE a = 'p' OR b GROUP BY b"
    columns = {"a": {"values": ["p", "q", "r"]}, "b": {"values": [True, False]}}
    made: Any = plan(
        sql, {"table": "t", "columns": columns}, privacy=privacy, objective="sum", max_cells=3, cache=False
    )
    assert len(made.workload.blocks) == 2
    assert made.lattice.sensitivity == brute_force(made)
    apart = replace(made.workload, records=None)
    alone = replace(made, strategy=optimize(apart, privacy))
    assert alone.lattice.sensitivity >= brute_force(alone)
    for strategy in (made.strategy, replace(alone.strategy, workload=made.workload, proven=())):
        own = replace(made, strategy=strategy)
        assert own.lattice.sensitivity == brute_force(own)
        assert rederive(own.lattice)[0] == [own.lattice.sensitivity] if privacy == "pure" else True
        budget: dict[str, Any] = {"epsilon": 1.0} if privacy == "pure" else {"rho": 0.5}
        checked = audit(own, **budget, runs=2000)
        assert checked.passed, str(checked)
        assert "kinds of records" in str(checked)
    made.save(tmp_path / "own.plan")
    again = load_plan(tmp_path / "own.plan")
    assert np.array_equal(again.workload.records, made.workload.records)
    assert again.strategy.sensitivity == made.strategy.sensitivity
    save_strategy(made.strategy, tmp_path / "own.strategy")
    assert load_strategy(tmp_path / "own.strategy").sensitivity == made.strategy.sensitivity


def test_records_that_are_left_out_are_noticed() -> None:
    made = planned("zcdp", 100)
    W = made.workload
    fewer = replace(W, records=W.records[W.records[:, 0] + W.records[:, 1] != W.records.sum(axis=1).max()])
    strategy = replace(made.strategy, workload=fewer, proven=())
    with pytest.raises(PlanError, match="other kinds of records than the plan counts"):
        replace(made, strategy=strategy)
    object.__setattr__(made, "strategy", strategy)  # which a plan refuses
    checked = audit(made, rho=0.5, runs=1000)
    (found,) = (one for one in checked.findings if one.check == "records that exist")
    assert not found.held
    assert "not listed" in found.figures


def test_answers_of_blocks_together_have_the_noise_that_they_say(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "state": chance.choice(STATES, 500),
            "sex": chance.choice(SEXES, 500),
            "age": chance.integers(0, 100, 500),
            "diagnosis": chance.choice(DIAGNOSES, 500),
            "insured": chance.choice([True, False], 500),
        }
    )
    made, ledger = planned("zcdp", 100, whole=True), Ledger.create(tmp_path / "budget.db", rho=1000)
    exact = answer(made, people, rho=900, ledger=ledger)
    truth = np.rint(exact.values)
    assert float(np.abs(exact.values - truth).max()) < 0.45
    release = answer(made, people, rho=0.5, ledger=ledger)
    errors = np.array([one.standard_error for one in release.answers])
    assert np.sqrt(np.mean(np.square((release.values - truth) / errors))) < 1.8
    assert float(np.square(errors).sum()) == pytest.approx(error(made), rel=2e-3)
    assert len(release.consistent().values) == len(truth)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([[0, 0], [1, 1]], "other cells of block 1"),
        ([[0], [1]], "one row per kind"),
        ([[0.0, 0], [1, 1]], "whole numbers"),
    ],
)
def test_records_that_are_none_are_refused(records: Any, problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        MatrixWorkload(np.eye(5), blocks=[2, 3], records=records)
    with pytest.raises(WorkloadError, match="records and ends"):
        MatrixWorkload(np.eye(2), blocks=[1, 1], records=[[0, 0]], ends=[(-1, 0, 3)])


def test_sums_that_might_not_fit_are_charged_by_blocks() -> None:
    """Where columns of several cells, added up, could leave 64 bits, the larger bound over blocks is taken."""
    own = MatrixWorkload(np.eye(2), blocks=[1, 1], records=[[0, -1], [-1, 0]])
    lattice = quantise_cells(PairStrategy(own, np.eye(2), np.eye(2)), largest_total=1000)
    assert lattice.column_sums == 2**lattice.bits
    large = replace(lattice, integers=lattice.integers * 2)
    assert large.column_sums == 2 * 2 ** (lattice.bits + 1)
