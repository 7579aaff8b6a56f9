"""Weighted tables against explicit matrices: everything that is claimed without multiplying out."""

from __future__ import annotations

import tracemalloc
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from batchdp import STRATEGIES, optimize, workloads
from batchdp.errors import StrategyError
from batchdp.optimizer.marginal.problem import (
    column_problem,
    largest_change,
    partitions,
    problem_of,
    sub_batch,
    supersets,
)
from batchdp.optimizer.marginal.search import columns_grams, optimize_products
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual.splits import Batch
from batchdp.strategies.bounds import certify
from batchdp.strategies.marginal.columns import by_strategy, each_value
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy, Results
from batchdp.strategies.marginal.weights import Tables, _candidates, fit, plain, relation, value_of, whole_problem
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors
from test_components import batch_of, structure, weights_of

Dense = NDArray[np.float64]
HALF = {"epsilon": 2**0.5}
"""At ε = √2 the noise on a measurement of sensitivity 1 has variance 1."""


def check(strategy: MarginalStrategy) -> None:
    """B L = W, the sensitivity by brute force, error and variances as with explicit matrices."""
    batch = strategy.workload
    W = batch.matrix.toarray()
    L, B = strategy.measure, strategy.reconstruct
    assert np.allclose(B @ L, W, atol=1e-8 * max(1.0, float(np.abs(W).max())))
    assert np.abs(L).sum(axis=0).max() <= strategy.sensitivity * (1 + 1e-12)
    squares = np.square(B).sum(axis=1) * strategy.sensitivity**2
    assert np.allclose(strategy.per_query_variance(**HALF), squares, rtol=1e-7, atol=1e-10)
    total = float(weights_of(batch) @ squares)
    assert strategy.expected_squared_error(**HALF) == pytest.approx(total, rel=1e-7, abs=1e-12)
    assert len(L) == strategy.measurements
    assert strategy.largest_variance(**HALF) == pytest.approx(float((weights_of(batch) * squares).max()), rel=1e-7)
    assert sum(one.weight for one in strategy.measured) >= strategy.sensitivity * (1 - 1e-12) or "results" in (
        strategy.method
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_what_is_found_answers_the_batch_and_is_never_worse_than_noise_on_data_or_results(seed: int) -> None:
    batch = batch_of(seed)
    W = batch.matrix.toarray()
    if not np.any(W):
        return
    found = optimize_products(batch, Options(seed=seed))
    check(found)
    w = weights_of(batch)
    on_data = float(w @ np.square(W).sum(axis=1))
    on_results = float(w.sum()) * float(np.abs(W).sum(axis=0).max()) ** 2
    assert found.total <= min(on_data, on_results) * (1 + 1e-9)
    bound = certify(batch.workload(), tolerance=1e-4, max_rounds=1000)
    assert found.limit <= bound.upper_bound * (1 + 1e-6)
    assert found.limit <= found.total


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_any_tables_and_any_strategies_inside_give_the_error_in_closed_form(seed: int) -> None:
    workload = batch_of(seed)
    if not np.any(workload.matrix.toarray()):
        return
    rng = np.random.default_rng(seed)
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    grams = columns_grams(batch)
    insides = [each_value(column) for column in batch.columns]
    for i, own in grams.items():
        n = len(own[0])
        made = by_strategy(np.vstack([np.eye(n), rng.random((2, n))]), own)
        assert made is not None
        insides[i] = made
    asked = problem_of(terms, insides)
    d = len(batch.columns)
    difference = (rng.random((3, d)) < 0.4) & asked.two
    tables = Tables((rng.random((3, d)) < 0.5) & ~difference, difference).with_(plain(np.ones((1, d), dtype=bool)))
    theta = rng.random(len(tables)) + 0.1
    group = MarginalGroup(batch.columns, tuple(insides), tables, theta / theta.sum())
    value = value_of(asked, tables, theta)
    strategy = MarginalStrategy(
        workload=workload, groups=(group,), sensitivity=1.0, total=value, limit=0.0, method="given"
    )
    check(strategy)
    fit_column = fit(asked, tables, theta, 100)
    assert fit_column.value <= value * (1 + 1e-9)
    for i, own in grams.items():  # what a column is wanted for is the whole error
        wanted = column_problem(i, own, terms, insides, tables, theta / theta.sum())
        inverse = insides[i].inverse
        assert inverse is not None
        assert wanted.value(inverse)[0] == pytest.approx(value, rel=1e-7)


def test_a_columns_derivative_is_that_of_its_error() -> None:
    workload = in_factors((5, 3), [[np.tril(np.ones((5, 5))), np.eye(3)], [np.eye(5), None], [None, np.eye(3)]])
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    insides = [each_value(column) for column in batch.columns]
    tables = plain(np.array([[True, True], [False, True], [True, False]]))
    wanted = column_problem(0, columns_grams(batch)[0], terms, insides, tables, np.array([0.5, 0.2, 0.3]))
    rng = np.random.default_rng(0)
    X = np.eye(5) + 0.1 * np.ones((5, 5))
    D = rng.standard_normal((5, 5))
    D += D.T
    step = 1e-6
    difference = (wanted.value(X + step * D)[0] - wanted.value(X - step * D)[0]) / (2 * step)
    assert difference == pytest.approx(float(np.vdot(wanted.value(X)[1], D)), rel=1e-5)


def test_ten_columns_of_two_values_want_few_large_tables() -> None:
    batch = structure(workloads.marginals((2,) * 10, 2))
    found = optimize_products(batch)
    assert found.expected_squared_error(epsilon=1.0) / batch.queries <= 240
    assert max(len(one.columns) for one in found.measured) >= 5
    assert optimize(workloads.marginals((2,) * 5, 2)).expected_squared_error(epsilon=1.0) <= 40 * 16 * (1 + 1e-9)


def test_sparse_and_dense_relations_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = structure(workloads.marginals((3, 4, 2, 5, 3), [0, 1, 2]))
    asked = whole_problem(batch)
    rng = np.random.default_rng(0)
    tables = plain(rng.random((20, 5)) < 0.5)
    dense = relation(asked, tables)
    monkeypatch.setattr("batchdp.strategies.marginal.weights.MOST_DENSE", 0)
    assert np.array_equal(relation(asked, tables).toarray(), dense)
    general = problem_of(Batch(batch).terms(batch.weights), [each_value(c) for c in Batch(batch).columns])
    order = {row.tobytes(): k for k, row in enumerate(asked.needed)}
    assert np.allclose(general.amount, asked.amount[[order[row.tobytes()] for row in general.needed]])


def test_only_changes_that_are_priced_are_made() -> None:
    """Of a thousand tables there are millions of entries of changes, of which a few thousand changes are looked at."""
    asked = whole_problem(structure(workloads.marginals((10,) * 50, [0, 1, 2])))
    pairs = np.array([[i in own for i in range(50)] for own in combinations(range(50), 2)])
    tracemalloc.start()
    new, gone = _candidates(asked, plain(pairs), np.random.default_rng(0), 3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(new) == len(gone) == 3000
    assert peak < 100_000_000
    one = gone.sum(axis=1) == 1
    assert one.any()
    assert not np.any(new.apart[~one & gone.any(axis=1)].sum(axis=1) < 3)  # what replaces several contains them


def test_supersets_cover_nearly_every_table_once() -> None:
    asked = np.array([[i in own for i in range(20)] for own in combinations(range(20), 3)])
    found = supersets(asked)
    assert np.all(asked <= found)
    quads = found[found.sum(axis=1) == 4]
    assert len(np.unique(quads, axis=0)) < 0.27 * len(asked)


def test_many_columns_are_weighed_without_being_multiplied_out() -> None:
    batch = structure(workloads.marginals((10,) * 30, [0, 1, 2, 3]))
    found = optimize(batch)
    alike = fit_alike(batch)
    assert found.total < 0.75 * alike
    assert found.variances(-1, epsilon=1.0).shape == (10, 10, 10)
    worst = found.worst_variances()
    assert worst[-1] == pytest.approx(float(found.variances(-1, **HALF).max()), rel=1e-9)
    assert found.total == pytest.approx(float(worst @ batch.table_sizes()), rel=1e-9)


def fit_alike(batch: KroneckerWorkload) -> float:
    """All tables of three columns with the same weight."""
    asked = whole_problem(batch)
    rows = batch.columns[batch.starts[:-1][np.diff(batch.starts) == 3][:, None] + np.arange(3)]
    apart = np.zeros((len(rows), len(batch.sizes)), dtype=bool)
    apart[np.arange(len(rows))[:, None], rows] = True
    return value_of(asked, plain(apart), np.ones(len(rows)))


def test_noise_on_results_knows_which_records_exist() -> None:
    first, second = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]])
    batch = in_factors((3, 4), [[first, np.eye(4)], [second, np.eye(4)]])
    assert largest_change(Batch(batch), Batch(batch).terms(batch.weights)) == 1
    for seed in range(20):
        one = batch_of(seed)
        W = np.abs(one.matrix.toarray())
        change = largest_change(Batch(one), Batch(one).terms(one.weights))
        assert change == pytest.approx(float(W.sum(axis=0).max()))
    strategy = MarginalStrategy(
        workload=batch, groups=(Results(batch, 1.0),), sensitivity=1.0, total=8.0, limit=0.0, method="noise on results"
    )
    check(strategy)


def test_groups_of_tables_that_tell_other_values_apart() -> None:
    fine, coarse = np.eye(40), np.repeat(np.eye(2), 20, axis=1)
    terms: list[list[Dense | None]] = [[fine, coarse], [coarse, fine], [fine, None], [None, fine]]
    batch = in_factors((40, 40), terms)
    splits = list(partitions(Batch(batch)))
    assert splits[-1] in ([[0, 2], [1, 3]], [[1, 3], [0, 2]])
    part = sub_batch(batch, [1, 3])
    assert np.array_equal(
        part.matrix.toarray(), batch.matrix.toarray()[80:160].tolist() + batch.matrix.toarray()[200:].tolist()
    )
    found = optimize_products(batch)
    assert "groups" in found.method
    assert found.total < value_of(
        problem_of(Batch(batch).terms(batch.weights), [each_value(c) for c in Batch(batch).columns]),
        plain(np.ones((1, 2), dtype=bool)),
        np.ones(1),
    )


def test_the_largest_variance_is_sought_and_bounded() -> None:
    batch = structure(workloads.marginals((2, 3, 9), [1, 2]))
    least = optimize_products(batch)
    found = optimize_products(batch, Options(objective="max"))
    check(found)
    assert found.largest_variance(**HALF) <= least.largest_variance(**HALF) * (1 + 1e-9)
    assert found.largest_variance_bound(**HALF) <= found.largest_variance(**HALF)
    assert found.largest_variance(**HALF) == pytest.approx(found.largest[0])  # type: ignore[index]


@pytest.mark.parametrize("objective", ["sum", "max"])
@pytest.mark.parametrize(
    "terms",
    [
        [[np.zeros((1, 2)), None]],
        [[np.eye(2), None], [None, np.zeros((2, 4))]],
        [[np.eye(2), np.tri(4)], [None, np.zeros((2, 4))], [np.ones((1, 2)), np.eye(4)], [None, np.tri(4)[::-1]]],
    ],
)
def test_tables_of_zeros_are_answered_beside_others(terms: list[list[Dense | None]], objective: Any) -> None:
    batch = in_factors((2, 4), terms)
    found = optimize(batch, objective=objective, seconds=0.5)
    assert isinstance(found, MarginalStrategy)
    assert np.allclose(found.reconstruct @ found.measure, batch.matrix.toarray(), atol=1e-12)
    assert optimize(batch.workload(), seconds=0.5).residual <= 1e-9


@pytest.mark.parametrize("more", [1e-5, 1e-6, 1e-8])
def test_queries_that_nearly_add_up_are_not_taken_for_sums(more: float) -> None:
    nearly = np.ones((1, 3))
    nearly[0, -1] += more
    batch = in_factors((3, 2), [[nearly, None]])
    found = optimize(batch, seconds=0.5)
    assert isinstance(found, MarginalStrategy)
    W = batch.matrix.toarray()
    assert np.linalg.norm(found.reconstruct @ found.measure - W) <= 1e-9 * np.linalg.norm(W)
    assert optimize(batch.workload(), seconds=0.5).residual <= 1e-9


def test_a_strategy_inside_a_column_that_rounding_spoils_is_not_taken() -> None:
    L = np.vstack([1e-5 * np.eye(3), np.ones((1, 3))])
    assert by_strategy(L, [np.ones((3, 3)), np.eye(3)]) is None


def test_what_a_small_table_is_needed_for_is_not_drowned_by_a_large_one() -> None:
    some = 1e5 * np.array([[1.0, 0, 0, 1], [1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0]])
    first = np.array([[1.0, 0, 0, 0], [1, 1, 1, 1]])
    terms: list[list[Dense | None]] = [
        [None, None, None],
        [first, None, np.eye(4)[:2]],
        [np.eye(4), None, None],
        [some, None, None],
    ]
    batch = in_factors((4, 3, 4), terms, weights=[170.0, 0.42, 0.005, 7424.0])
    found = optimize(batch, seconds=0.5)
    assert isinstance(found, MarginalStrategy)
    W = batch.matrix.toarray()
    missed = np.linalg.norm(found.reconstruct @ found.measure - W, axis=1) / np.linalg.norm(W, axis=1)
    assert missed.max() <= 1e-9


def test_factors_of_very_different_sizes_leave_the_other_methods() -> None:
    ring = np.eye(5) - np.roll(np.eye(5), 1, axis=1)
    terms: list[list[Dense | None]] = [
        [None, np.array([[1.0, 0], [1, 1]]), None, np.array([[2.0, 1]])],
        [ring, None, np.eye(2), np.array([[1.0, -1], [-1, 1]])],
        [np.array([[0.0, 0, -1, 1, 2], [-1, 0, 0, -2, 1], [-2, -1, 0, -2, -2]]), None, None, np.eye(2)],
        [np.array([[1.0, 0, 0, 0, 0], [1] * 5]), np.array([[-2.0, 1], [-2, 2]]), 1e6 * np.eye(2), -2 * np.ones((1, 2))],
        [None, None, np.array([[0.0, -2], [2, 2]]), np.eye(2)],
    ]
    batch = in_factors((5, 2, 2, 2), terms)
    assert optimize(batch.workload(), seconds=0.5, seed=1041).residual <= 1e-9
    assert optimize(batch, seconds=0.5, seed=1041).total > 0


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_the_largest_error_is_never_above_that_of_noise_on_data_or_results(seed: int) -> None:
    batch = batch_of(seed)
    W, w = batch.matrix.toarray(), weights_of(batch)
    if not np.any(W):
        return
    found = optimize_products(batch, Options(objective="max", seconds=0.2, seed=seed))
    on_data = float((w * np.square(W).sum(axis=1)).max())
    on_results = float(w.max()) * float(np.abs(W).sum(axis=0).max()) ** 2
    assert found.largest_variance(**HALF) <= min(on_data, on_results) * (1 + 1e-9)


def test_seeds_names_and_refusals() -> None:
    batch = structure(workloads.marginals((9,) * 12, [1, 2]))
    first, second = optimize(batch, seed=3), optimize(batch, seed=3)
    assert first.total == second.total
    with pytest.raises(StrategyError, match="is not a table of the batch"):
        first.variances("nobody", epsilon=1.0)
    with pytest.raises(StrategyError, match="is not one of"):
        first.variances(10**6, epsilon=1.0)
    with pytest.raises(StrategyError, match="look at what is measured"):
        _ = first.measure
    assert "loose" in first.certified(epsilon=1.0)
    assert repr(first).startswith("Strategy(")
    both = optimize(batch, "auto", epsilon=1.0, delta=1e-6)
    assert "noise has an expected squared error" in both.reason
    ended = optimize(batch, progress=lambda *_: True)
    assert ended.total >= first.limit


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_never_worse_than_any_registered_mechanism_by_more_than_2_percent(seed: int) -> None:
    batch = batch_of(seed, columns=3, most=4, terms=3)
    workload = batch.workload()
    if not np.any(batch.matrix.toarray()):
        return
    found = optimize(workload).expected_squared_error(epsilon=1.0)
    for name, method in STRATEGIES.items():
        other = method(workload)
        if other.privacy == "pure":
            assert found <= 1.02 * other.expected_squared_error(epsilon=1.0), name
