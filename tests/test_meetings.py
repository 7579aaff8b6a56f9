"""Blocks that exclude each other: what is claimed about records, against every record there is."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product
from math import isqrt
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from batchdp import (
    BudgetError,
    Ledger,
    MatrixWorkload,
    PairStrategy,
    PlanError,
    WorkloadError,
    answer,
    audit,
    load_plan,
    optimize,
    plan,
)
from batchdp.audits.exact import rederive
from batchdp.audits.tables import records_finding
from batchdp.domain import Domain
from batchdp.linalg.matrix import dense
from batchdp.mechanism.lattice import quantise_cells
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.privacy import GAUSSIAN, LAPLACE
from batchdp.sql import read_queries
from batchdp.strategies.blocks import best_shares
from batchdp.strategies.bounds import certify
from batchdp.workloads.encode.cells import cells_of, largest
from cases import every_number
from mechanisms import measured
from test_cells import _worth, examples_of, small_batches

CARRIERS = [f"C{i}" for i in range(16)]
FLIGHTS = {"table": "flights", "columns": {"carrier": {"values": CARRIERS}, "distance": {"integers": [0, 5000]}}}
SMALL = {"table": "flights", "columns": {"carrier": {"values": CARRIERS[:4]}, "distance": {"integers": [0, 9]}}}
BY_CARRIER = "SELECT carrier, SUM(distance), COUNT(*) FROM flights GROUP BY carrier"


@settings(max_examples=150, deadline=None)
@given(case=small_batches(), data=st.data())
def test_meetings_are_those_of_all_records(case: tuple[str, Domain], data: st.DataObject) -> None:
    """Every record's own answers say which blocks it is in; no automaton is asked."""
    sql, described = case
    queries = read_queries(sql, described)
    home = [data.draw(st.integers(0, 2)) for _ in queries]
    partition = [[q for q, own in enumerate(home) if own == block] for block in sorted(set(home))]
    by_ends = data.draw(st.booleans())
    cells = (cells_of if by_ends else every_number)(queries, described, partition=partition)
    samples = [examples_of(atoms) for atoms in cells.atoms]
    found, zero = set(), [not np.any(block.classes.matrix.toarray()) for block in cells.blocks]
    for code in product(*(range(len(values)) for values in samples)):
        if any(values[i] is ... for values, i in zip(samples, code, strict=True)):
            continue
        record: dict[str, Any] = dict.fromkeys("abcd")
        record |= {atoms.column: values[i] for atoms, values, i in zip(cells.atoms, samples, code, strict=True)}
        summed = {**record, "c": record["c"] if record["c"] in (0, 1, 2, 3) else 0}
        worth = [_worth(query.amount, record, summed) for query in queries]
        met = tuple(b for b, block in enumerate(cells.blocks) if zero[b] or any(worth[q] != 0 for q in block.queries))
        found.add(met)
    expected = largest(found)
    every = tuple(range(len(cells.blocks)))
    if cells.meetings is None:
        assert expected == (every,) or {block for own in expected for block in own} != set(every)
    elif by_ends:  # between two ends a record is in what either end is in
        assert all(any(set(own) <= set(met) for met in cells.meetings) for own in expected)
    else:
        assert cells.meetings == expected


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("sql", [BY_CARRIER, "SELECT carrier, SUM(distance) FROM flights GROUP BY carrier"])
def test_groups_by_one_column_are_charged_once(sql: str, privacy: Any) -> None:
    planned = plan(sql, SMALL, privacy=privacy, max_cells=2)
    W = planned.workload
    assert len(W.blocks) > 1
    assert len(W.meetings) > 1
    budget: dict[str, Any] = {"epsilon": 1.0} if privacy == "pure" else {"rho": 0.5}
    power = 1 if privacy == "pure" else 2
    sums = (np.abs(dense(W.matrix)) ** power).sum(axis=0)
    change = max(sum(W.largest_by_block(sums)[list(own)]) for own in W.meetings) ** (2 / power)
    on_results = W.queries * change * (2 if privacy == "pure" else 1)
    assert planned.strategy.expected_squared_error(**budget) <= on_results * (1 + 1e-9)
    checked = audit(planned, **budget, runs=2000)
    assert checked.passed, str(checked)
    assert "records that exist" in str(checked)


def test_sums_and_counts_by_16_carriers_are_no_worse_than_noise_on_results() -> None:
    planned = plan(BY_CARRIER, FLIGHTS, seconds=2.0)
    assert planned.workload.blocks == (32,)
    on_results = 2 * 32 * 5001**2
    assert planned.strategy.expected_squared_error(epsilon=1.0) <= on_results


def test_an_audit_does_not_believe_a_plan_that_says_too_much(tmp_path: Any) -> None:
    planned: Any = plan("SELECT SUM(distance) FROM flights; SELECT COUNT(*) FROM flights WHERE distance > 3", SMALL)
    queries = read_queries(planned.sql, planned.domain)
    cells = cells_of(queries, planned.domain, partition=[[0], [1]])
    assert cells.meetings is None
    forged = MatrixWorkload(cells.matrix, cells.names, blocks=cells.sizes, meetings=[[0], [1]])
    lattice = quantise_cells(PairStrategy(forged, forged.matrix, np.eye(2)), largest_total=10**6)
    found = records_finding(cells, lattice)
    assert not found.held
    assert "in other blocks" in found.figures
    honest = MatrixWorkload(cells.matrix, cells.names, blocks=cells.sizes)
    assert records_finding(
        cells, quantise_cells(PairStrategy(honest, honest.matrix, np.eye(2)), largest_total=10**6)
    ).held
    by_carrier = plan(BY_CARRIER, SMALL, max_cells=2)
    wrong = copy(by_carrier)
    object.__setattr__(wrong, "strategy", _forged(by_carrier))  # a plan would refuse it
    checked = audit(wrong, epsilon=1.0, runs=1000)
    assert not next(one for one in checked.findings if one.check == "records that exist").held
    for saved in (by_carrier, wrong):  # a file has no meetings to be believed
        saved.save(tmp_path / "own.plan")
        assert load_plan(tmp_path / "own.plan").workload.meetings == by_carrier.workload.meetings


@pytest.mark.parametrize("blocks", [None, [5, 15], [5, 5, 10]])
def test_a_plan_refuses_a_strategy_that_does_not_know_its_blocks(blocks: Any) -> None:
    columns = {"x": {"integers": [0, 9]}, "y": {"integers": [0, 9]}}
    sql = "SELECT x, COUNT(*) AS n FROM t GROUP BY x; SELECT y, COUNT(*) AS m FROM t GROUP BY y"
    planned: Any = plan(sql, {"table": "t", "columns": columns}, max_cells=10, seconds=0.1)
    W = planned.workload
    assert W.blocks == (10, 10)
    unknowing = replace(planned.strategy, workload=MatrixWorkload(W.matrix, W.names, blocks=blocks), proven=())
    with pytest.raises(PlanError, match=r"the plan counts 2 blocks of 20 cells in all; optimise plan\.workload itself"):
        replace(planned, strategy=unknowing)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_plan_refuses_a_strategy_whose_blocks_meet_less_than_its_own(privacy: Any) -> None:
    """Both groups of a record are charged, or half of the noise is missing."""
    columns = {"x": {"integers": [0, 9]}, "y": {"integers": [0, 9]}}
    sql = "SELECT x, COUNT(*) AS n FROM t GROUP BY x; SELECT y, COUNT(*) AS m FROM t GROUP BY y"
    planned: Any = plan(sql, {"table": "t", "columns": columns}, max_cells=10, seconds=0.1, privacy=privacy)
    W = planned.workload
    assert W.meetings == ((0, 1),)
    for meetings in ([(0,), (1,)], [(1,), (0,)]):
        apart = optimize(MatrixWorkload(W.matrix, W.names, W.weights, W.blocks, meetings=meetings), privacy=privacy)
        with pytest.raises(PlanError, match="no record is in all of some blocks"):
            replace(planned, strategy=apart)
    again = replace(planned, strategy=optimize(W, privacy=privacy))
    assert again.lattice.sensitivity == brute_force(again)


CASES = [(carrier, distance) for carrier in CARRIERS[:4] for distance in (2, 4, 6, 8)]


def test_a_plan_takes_a_strategy_whose_blocks_meet_more_than_its_own() -> None:
    counts = (f"SELECT COUNT(*) AS {c}_{d} FROM flights WHERE carrier = '{c}' AND distance < {d}" for c, d in CASES)
    planned = plan("; ".join(counts), SMALL, max_cells=2)
    W = planned.workload
    assert max(map(len, W.meetings)) > 1 < len(W.meetings)
    for meetings in (None, W.meetings[::-1], [*W.meetings, tuple(range(len(W.blocks)))]):
        careful = noise_on_results(
            MatrixWorkload(W.matrix, W.names, W.weights, W.blocks, meetings=meetings, ends=W.ends)
        )
        found = replace(planned, strategy=careful)
        assert found.lattice.sensitivity >= brute_force(found)
    for left_out in range(len(W.meetings)):
        fewer = [met for i, met in enumerate(W.meetings) if i != left_out]
        fewer += [(block,) for block in W.meetings[left_out]]
        wrong = noise_on_results(MatrixWorkload(W.matrix, W.names, W.weights, W.blocks, meetings=fewer, ends=W.ends))
        if len(W.meetings[left_out]) > 1:
            with pytest.raises(PlanError, match="no record is in all of some blocks"):
                replace(planned, strategy=wrong)


def test_a_plan_refuses_a_strategy_for_other_queries_or_cells_in_another_order() -> None:
    planned = plan("SELECT x, COUNT(*) AS n FROM t GROUP BY x", {"table": "t", "columns": {"x": {"integers": [0, 9]}}})
    names, W = planned.names, dense(planned.workload.matrix)
    for other in (MatrixWorkload(W[:, ::-1], names), MatrixWorkload(2 * W, names), MatrixWorkload(W, names[::-1])):
        with pytest.raises(PlanError, match="other queries, names or cells"):
            replace(planned, strategy=noise_on_results(other))
    assert (
        replace(planned, strategy=noise_on_results(MatrixWorkload(W, names, np.arange(1, len(names) + 1)))).names
        == names
    )


def brute_force(planned: Any) -> int:
    """The most that one record changes all measurements by, added up or squared; of all that there are."""
    lattice, cells = planned.lattice, planned.batch.cells
    sizes = [atoms.size for atoms in cells.atoms]
    found = 0
    for record in np.ndindex(*sizes):
        counts = cells.counts([(np.array([record], dtype=np.int32), np.ones(1, dtype=np.int64))])
        moved = [abs(int(one)) for one in measured(lattice, counts)]
        found = max(found, sum(moved) if planned.privacy == "pure" else sum(one**2 for one in moved))
    return found if planned.privacy == "pure" else isqrt(found - 1) + 1


def _forged(planned: Any) -> Any:
    """The same strategy, for a workload all of whose blocks exclude each other."""
    W = planned.workload
    alone = [[block] for block in range(len(W.blocks))]
    forged = MatrixWorkload(W.matrix, W.names, W.weights, W.blocks, meetings=alone, ends=W.ends)
    return replace(planned.strategy, workload=forged, proven=())


def test_sensitivities_are_the_largest_over_meetings() -> None:
    W = sparse.csr_array(np.array([[3.0, 1, 0, 0, 0], [0, 0, 2, 0, 0], [0, 0, 0, 5, 4]]))
    blocks, met = [2, 1, 2], [[0, 1], [1, 2]]
    for privacy, exact in (("pure", 7.0), ("zcdp", 29.0)):
        own = MatrixWorkload(W, blocks=blocks, meetings=met)
        strategy = PairStrategy(own, W, np.eye(3), privacy=privacy)  # type: ignore[arg-type]
        assert strategy.sensitivity ** (1 if privacy == "pure" else 2) == pytest.approx(exact)
        lattice = quantise_cells(strategy, largest_total=1000)
        found = lattice.column_sums if privacy == "pure" else lattice.column_squares
        unit = 2**lattice.bits / 5
        assert found == pytest.approx(exact * (unit if privacy == "pure" else unit**2))
        assert rederive(lattice)[0] == [found]
    everything = PairStrategy(MatrixWorkload(W, blocks=blocks), W, np.eye(3))
    assert everything.sensitivity == 10


def test_a_measurement_that_spans_blocks_is_charged_by_roots() -> None:
    L = sparse.csr_array(np.array([[1.0, 1.0, 1.0]]))
    own = MatrixWorkload(L, blocks=[1, 1, 1], meetings=[[0, 1], [2]])
    strategy = PairStrategy(own, L, np.eye(1), privacy="zcdp")
    assert strategy.sensitivity == pytest.approx(2)  # not √2: a record in both moves the one measurement twice
    lattice = quantise_cells(strategy, largest_total=1000)
    assert lattice.column_squares == 4 * 4**lattice.bits
    assert rederive(lattice)[0] == [lattice.column_squares]
    # A limit for queries that span blocks holds for those that meet, and not for the sum.
    bound = certify(MatrixWorkload(np.array([[1.0, 1.0, 1.0]]), blocks=[1, 1, 1], meetings=[[0], [1], [2]])).lower_bound
    assert bound == pytest.approx(1)
    apart = certify(MatrixWorkload(np.eye(3), blocks=[1, 1, 1], meetings=[[0], [1], [2]])).lower_bound
    assert apart == pytest.approx(3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_shares_over_meetings_are_feasible_and_the_best(seed: int, laplace: bool) -> None:
    rng = np.random.default_rng(seed)
    noise = LAPLACE if laplace else GAUSSIAN
    blocks = int(rng.integers(2, 6))
    errors = rng.uniform(0.1, 10, blocks) ** 3
    met = [sorted(rng.choice(blocks, int(rng.integers(1, blocks + 1)), replace=False).tolist()) for _ in range(4)]
    met += [[g] for g in range(blocks)]
    p = best_shares(noise, errors, met, of_sum=True)
    q = noise.norm
    assert max(sum(p[own] ** q) for own in met) <= 1 + 1e-9
    total = float((errors / p**2).sum())
    # The dual: Σ_g over prices μ on meetings is below every feasible choice.
    for _ in range(200):
        other = rng.uniform(0.05, 1, blocks)
        other /= max(sum(other[own] ** q) for own in met) ** (1 / q)
        assert total <= float((errors / other**2).sum()) * (1 + 1e-3)
    worst = best_shares(noise, errors, met, of_sum=False)
    assert float((errors / worst**2).max()) <= float((errors / p**2).max()) * (1 + 1e-9)


@pytest.mark.parametrize("meetings", [[[0]], [[0, 5], [1]], 3, [[0.5, 1]], []])
def test_meetings_that_are_none_are_refused(meetings: Any) -> None:
    with pytest.raises(WorkloadError, match="meetings"):
        MatrixWorkload(np.eye(2), blocks=[1, 1], meetings=meetings)


@settings(max_examples=25, deadline=None)
@given(case=small_batches(), most=st.sampled_from([3, 6, 8192]), gaussian=st.booleans())
def test_sql_batches_are_never_worse_than_noise_on_data_or_results(
    case: tuple[str, Domain], most: int, gaussian: bool
) -> None:
    sql, described = case
    queries = read_queries(sql, described)
    most = max(most, max(cells_of([query], described).sizes[0] for query in queries))
    cells = cells_of(queries, described, most=most)
    workload = MatrixWorkload(cells.matrix, cells.names, blocks=cells.sizes, meetings=cells.meetings)
    W = dense(workload.matrix)
    if not np.any(W):
        return
    found = optimize(workload, "zcdp" if gaussian else "pure", seconds=0.3)
    noise, power = (GAUSSIAN, 2) if gaussian else (LAPLACE, 1)
    error = found.expected_squared_error(**noise.reference.arguments) / noise.reference.variance(1.0)
    norms = workload.largest_by_block(np.abs(W**power).sum(axis=0))
    change = max(float(norms[list(own)].sum()) for own in workload.meetings)
    assert error <= workload.queries * change ** (2 / power) * (1 + 2e-3)
    met = max(len(own) for own in workload.meetings)
    assert error <= float(np.square(W).sum()) * met ** (2 / power) * (1 + 2e-3)


@pytest.mark.parametrize("epsilon", [1.0, 1e4])
def test_a_repeat_takes_the_cap_that_was_drawn_for_and_no_other_meetings(
    epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less noise leaves room for less bias, and so for another cap, which the id must not depend on."""
    columns = {"g": {"values": ["a", "b", "c", "d"]}, "y": {"integers": [0, 500]}}
    sql = "SELECT g, SUM(y) AS s FROM t GROUP BY g"
    made = plan(sql, {"table": "t", "columns": columns}, max_cells=1, seconds=0.2, cache=False)
    assert len(made.workload.meetings) > 1
    made.save(tmp_path / "a.plan")
    table = pd.DataFrame({"g": ["a", "b", "a"], "y": [1, 2, 3]})
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=10**5)
    with monkeypatch.context() as before:
        before.setattr("batchdp.workloads.encode.cells.meetings", lambda *_: None)
        unknowing = load_plan(tmp_path / "a.plan")
    assert unknowing.lattice.column_sums > made.lattice.column_sums
    first = answer(unknowing, table, epsilon=epsilon, ledger=ledger, release_id="r")
    with monkeypatch.context() as later:
        later.setattr("batchdp.mechanism.prepare.CAPS", (10**6,))
        later.setattr("batchdp.mechanism.prepare._PREPARED", WeakKeyDictionary())  # what other caps were prepared for
        fresh = answer(unknowing, table, epsilon=1.0, ledger=ledger, release_id="another")
        assert fresh.certificate.largest_total == 10**6 < first.certificate.largest_total
        again = answer(unknowing, table, epsilon=epsilon, ledger=ledger, release_id="r")
    assert np.array_equal(first.values, again.values)
    with pytest.raises(BudgetError, match=r"release_id='r' was used .* plan_digest"):
        answer(made, table, epsilon=epsilon, ledger=ledger, release_id="r")
    assert ledger.spent == epsilon + 1.0
