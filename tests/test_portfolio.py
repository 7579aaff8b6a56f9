from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from batchdp import STRATEGIES, MatrixWorkload, PairStrategy, StrategyError, optimize, workloads
from batchdp.linalg.matrix import dense
from batchdp.optimizer.families import families_for
from batchdp.privacy import LAPLACE
from cases import EXAMPLE_1, EXAMPLE_2, contract_workload, small_workloads
from contract import TO_REACH


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case[1] > 64)) for case in TO_REACH], ids=str
)
def test_optimize_reaches_what_no_other_program_does(case: tuple[str, int, int, int]) -> None:
    strategy = optimize(contract_workload(*case))
    assert strategy.residual <= 1e-9
    assert strategy.expected_squared_error(epsilon=1.0) / case[1] <= TO_REACH[case]


def test_the_papers_examples() -> None:
    assert optimize(EXAMPLE_1).expected_squared_error(epsilon=1) == pytest.approx(8)
    assert optimize(EXAMPLE_2).expected_squared_error(epsilon=1) <= 38.001


def assert_best(workload: MatrixWorkload, seed: int = 0) -> None:
    strategy = optimize(workload, seed=seed)
    error = strategy.expected_squared_error(epsilon=1.0)
    assert strategy.residual <= 1e-9
    assert strategy.lower_bound(epsilon=1.0) <= error * (1 + 1e-9)
    for family in families_for(LAPLACE):
        other = family.method(workload).expected_squared_error(epsilon=1.0)
        assert error <= other * (1 + 1e-9), family.name


@pytest.mark.parametrize("name", small_workloads())
def test_no_registered_mechanism_is_better_on_any_kind_of_workload(name: str) -> None:
    assert_best(small_workloads()[name])


@st.composite
def random_workloads(draw: st.DrawFn) -> MatrixWorkload:
    m, n, seed = draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(0, 2**16))
    kind = draw(st.sampled_from(["discrete", "ranges", "related", "prefix", "all_ranges", "sliding", "marginals"]))
    match kind:
        case "prefix" | "all_ranges":
            W = dense(getattr(workloads, kind)(min(n, 6)).matrix)
        case "sliding":
            W = dense(workloads.sliding(n, draw(st.integers(1, n))).matrix)
        case "marginals":
            W = dense(workloads.marginals((2, 2, 3), draw(st.integers(0, 3))).matrix)
        case _:
            W = dense(getattr(workloads, kind)(m, n, seed=seed).matrix)
    rng = np.random.default_rng(seed)
    if draw(st.booleans()):
        W = W[rng.integers(0, len(W), size=len(W) + 2)]  # repeated rows
    if draw(st.booleans()):
        W = W[:, rng.integers(0, W.shape[1], size=W.shape[1] + 2)]  # repeated columns
    if draw(st.booleans()):
        W = np.vstack([W, np.zeros(W.shape[1])])
    weights = rng.uniform(0.1, 10, size=len(W)) if draw(st.booleans()) else None
    return MatrixWorkload(W, weights=weights)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(workload=random_workloads(), seed=st.integers(0, 3))
def test_no_registered_mechanism_is_better_on_random_workloads(workload: MatrixWorkload, seed: int) -> None:
    assert_best(workload, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "s", "seed"), [(32, 300, 4, 1)])
def test_low_rank_alone_is_not_better_where_it_wins(m: int, n: int, s: int, seed: int) -> None:
    assert_best(workloads.related(m, n, s, seed))


def test_a_small_budget_is_kept_to_and_still_beats_closed_forms() -> None:
    W = workloads.related(20, 512, 10, 2)
    started = time.process_time()
    strategy = optimize(W, seconds=0.01)
    assert time.process_time() - started < 5  # the default takes several times as long
    for name in ("noise-on-data", "noise-on-results", "wavelet", "hierarchical"):
        other = STRATEGIES[name](W).expected_squared_error(epsilon=1.0)
        assert strategy.expected_squared_error(epsilon=1.0) <= other * (1 + 1e-9)


def test_a_tiny_query_among_large_ones_is_not_answered_wrongly() -> None:
    for W in (np.array([[1, 1, 1, 1], [1e-14, 2e-14, 3e-14, 0]]), np.array([[1e90, 1e90], [1e-90, 0]])):
        strategy = optimize(W)
        rows = np.linalg.norm(strategy.reconstruct @ strategy.measure - W, axis=1) / np.linalg.norm(W, axis=1)
        assert np.all(rows <= 1e-9)
        with pytest.raises(StrategyError, match=r"query 'q2'.*rescale"):
            PairStrategy(MatrixWorkload(W), W[:1], np.array([[1.0], [0.0]]))


def test_queries_of_very_different_sizes_get_the_better_of_noise_on_data_and_on_results() -> None:
    W = np.zeros((5, 9))
    W[0, 0], W[1, 3:], W[2, 8] = 1, 0.5, 1
    W[3, [0, 2]] = W[4, 1] = 2**24
    W[4, 3:] = 2**24 + np.arange(6)
    errors = [STRATEGIES[name](W).expected_squared_error(epsilon=1.0) for name in ("noise-on-data", "noise-on-results")]
    assert errors[1] < errors[0]
    assert optimize(W).expected_squared_error(epsilon=1.0) <= errors[1] * (1 + 1e-9)


def test_weights_of_very_different_sizes() -> None:
    W = np.random.default_rng(0).standard_normal((5, 8))
    strategy = optimize(MatrixWorkload(W, weights=[1e-15, 1e15, 1, 1, 1]))
    assert np.allclose(strategy.reconstruct @ strategy.measure, W, atol=1e-9)


def test_searches_in_threads_leave_the_linear_algebra_as_it_was() -> None:
    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: optimize(workloads.ranges(6, 9), seconds=0.5), range(2))
    assert np.array_equal(one.measure, other.measure)
    assert threads() == before


@pytest.mark.parametrize("privacy", ["zcdp", "auto"])
@pytest.mark.parametrize("objective", ["sum", "max"])
def test_the_tolerance_reaches_every_convex_search(privacy: Any, objective: Any) -> None:
    """At a generous δ the Gaussian optimum wins, with the gap that was asked for."""
    W = workloads.discrete(10, 20)
    for tolerance in (0.3, 1e-6):
        found = optimize(W, privacy, objective=objective, tolerance=tolerance, epsilon=1.0, delta=0.4, seconds=0.1)
        assert found.privacy == "zcdp"
        (proven,) = found.proven
        assert proven.objective == objective
        assert proven.gap <= tolerance
        assert (proven.gap > 1e-5) == (tolerance > 1e-5)


def test_what_is_proven_survives_a_replacement() -> None:
    for objective in ("sum", "max"):
        strategy = optimize(workloads.prefix(6), "zcdp", objective=objective)
        assert replace(strategy, method="own").proven == strategy.proven
        known = strategy.optimality if objective == "sum" else strategy.optimality_of_largest
        assert known is strategy.proven[0]
    own = STRATEGIES["noise-on-data"](workloads.prefix(6))
    bounds = own.optimality, own.optimality_of_largest  # which no search has proven
    copied = replace(own, method="own")
    assert (copied.optimality, copied.optimality_of_largest) == bounds


def test_progress_under_gaussian_noise() -> None:
    seen: list[float] = []
    optimize(workloads.discrete(20, 40), "zcdp", tolerance=1e-8, progress=lambda share, *_: seen.append(share))
    assert len(seen) > 1
    cancelled = optimize(workloads.discrete(20, 40), "zcdp", tolerance=1e-8, progress=lambda *_: True)
    assert cancelled.status == "cancelled"


@pytest.mark.slow
def test_many_more_queries_than_cells_and_the_other_way_round() -> None:
    rng = np.random.default_rng(0)
    assert_best(MatrixWorkload(rng.integers(0, 2, size=(300, 5))))
    assert_best(MatrixWorkload(rng.standard_normal((2, 60))))


def test_the_same_seed_and_class_of_budget_give_the_same_strategy() -> None:
    W = workloads.ranges(20, 40)
    one, same = optimize(W, seconds=1.0, seed=5), optimize(W, seconds=1.9, seed=5)
    assert np.array_equal(one.measure, same.measure)
    assert np.array_equal(one.reconstruct, same.reconstruct)
    assert (one.method, one.rounds) == (same.method, same.rounds)


@pytest.mark.slow
def test_weights_move_accuracy_to_where_it_counts() -> None:
    W = dense(workloads.ranges(12, 24).matrix)
    weights = np.where(np.arange(12) < 2, 100.0, 1.0)
    heavy, plain = optimize(MatrixWorkload(W, weights=weights)), optimize(W)
    assert heavy.per_query_variance(epsilon=1)[:2].sum() < plain.per_query_variance(epsilon=1)[:2].sum()
    as_weighted = float(weights @ plain.per_query_variance(epsilon=1))
    assert heavy.expected_squared_error(epsilon=1) < as_weighted


def test_progress_is_reported() -> None:
    seen: list[tuple[float, str, float]] = []
    strategy = optimize(workloads.ranges(20, 40), progress=lambda *told: seen.append(told))
    shares, doing, errors = zip(*seen, strict=True)
    assert all(0 <= share <= 1 for share in shares)
    assert list(shares) == sorted(shares)
    assert list(errors) == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(strategy.expected_squared_error(epsilon=1.0))
    assert len(set(doing)) > 3
    assert strategy.rounds > 0


@pytest.mark.parametrize("objective", ["sum", "max"])
@pytest.mark.parametrize("after", [1, 12])
def test_a_search_can_be_cancelled_and_keeps_the_best_so_far(objective: Any, after: int) -> None:
    told = 0

    def enough(*_: object) -> bool:
        nonlocal told
        told += 1
        return told >= after

    strategy = optimize(workloads.ranges(20, 40), objective=objective, progress=enough)
    assert told == after
    assert strategy.residual <= 1e-9
    if objective == "sum":
        assert strategy.status == "cancelled"


@pytest.mark.slow
def test_the_worst_query_is_better_than_with_the_best_sum() -> None:
    W = workloads.ranges(16, 32)
    total, worst = optimize(W), optimize(W, objective="max")
    assert worst.largest_variance(epsilon=1) < total.largest_variance(epsilon=1)
    assert worst.largest_variance(epsilon=1) >= worst.largest_variance_bound(epsilon=1)
    assert worst.residual <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["example 2", "rank one", "zero row", "all zero", "weighted"])
def test_the_worst_query_is_never_worse_than_any_baselines(name: str) -> None:
    workload = small_workloads()[name]
    worst = optimize(workload, objective="max")
    assert worst.largest_variance(epsilon=1) >= worst.largest_variance_bound(epsilon=1) * (1 - 1e-9)
    for other in families_for(LAPLACE):
        largest = other.method(workload).largest_variance(epsilon=1)
        assert worst.largest_variance(epsilon=1) <= largest * (1 + 1e-9), other.name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"privacy": "approximate"}, "privacy"),
        ({"objective": "median"}, "objective"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": np.nan}, "seconds"),
        ({"seconds": "10"}, "seconds"),
        ({"seconds": 10**400}, "seconds"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"tolerance": 2, "privacy": "zcdp"}, "tolerance"),
        ({"tolerance": 2}, "tolerance"),
        ({"tolerance": 0, "objective": "max"}, "tolerance"),
    ],
)
def test_impossible_options_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        optimize(np.eye(2), **arguments)
