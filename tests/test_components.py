"""Strategies over components against explicit matrices: everything that is claimed without multiplying out."""

from __future__ import annotations

from math import prod
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import batchdp
from batchdp import Workload, workloads
from batchdp.errors import StrategyError
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual import groups, limits
from batchdp.optimizer.residual.limits import by_products, by_sample, limit_of
from batchdp.optimizer.residual.optimizing import _strategy, optimize_products
from batchdp.optimizer.residual.search import one_product, split_by, tables_apart
from batchdp.optimizer.residual.splits import Batch
from batchdp.strategies.bounds import certify, certify_worst
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.strategies.residual.terms import measured
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors

Dense = NDArray[np.float64]


def structure(workload: Workload) -> KroneckerWorkload:
    batch = workload.structure
    assert isinstance(batch, KroneckerWorkload)
    return batch


def factor(rng: np.random.Generator, n: int) -> Dense | None:
    """Of all kinds that symmetries, merging and rank look at."""
    match rng.integers(0, 8):
        case 0:
            return None
        case 1:
            return np.eye(n)
        case 2:
            return np.tril(np.ones((n, n)))
        case 3:
            return np.vstack([np.eye(n), np.ones((1, n))])
        case 4:
            return (np.arange(n) < max(1, n // 2))[None].astype(float)
        case 5:
            return np.repeat(
                np.eye(max(1, n // 2)), [2] * (max(1, n // 2) - 1) + [n - 2 * (max(1, n // 2) - 1)], axis=1
            )
        case 6:
            return rng.integers(-2, 3, (int(rng.integers(1, 4)), n)).astype(float)
        case _:
            return np.eye(n)[: max(1, n - 1)]


def batch_of(seed: int, *, columns: int = 3, most: int = 4, terms: int = 4) -> KroneckerWorkload:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, size=int(rng.integers(1, columns + 1)))
    known = [[factor(rng, int(n)) for _ in range(2)] for n in sizes]
    listed = [
        [own[int(rng.integers(0, 2))] if rng.random() < 0.8 else None for own in known]
        for _ in range(int(rng.integers(1, terms + 1)))
    ]
    weights = rng.uniform(0.5, 2, len(listed)) if rng.random() < 0.5 else None
    return structure(workloads.products([int(n) for n in sizes], listed, weights=weights))


def weights_of(batch: KroneckerWorkload) -> Dense:
    return np.repeat(batch.weights, [table.queries for table in batch.tables])


def check(strategy: ResidualStrategy) -> None:
    """B L = W, sensitivity at most 1 by brute force, error and variances as with explicit matrices."""
    batch = strategy.workload
    W = batch.matrix.toarray()
    L, B = strategy.measure, strategy.reconstruct
    assert np.allclose(B @ L, W, atol=1e-8 * max(1.0, float(np.abs(W).max())))
    assert np.square(L).sum(axis=0).max() <= 1 + 1e-9
    assert np.linalg.norm(L, axis=0).max() <= strategy.sensitivity + 1e-9
    squares = np.square(B).sum(axis=1)
    assert np.allclose(strategy.per_query_variance(rho=0.5), squares, rtol=1e-8, atol=1e-10)
    assert strategy.expected_squared_error(rho=0.5) == pytest.approx(float(weights_of(batch) @ squares), rel=1e-7)
    cells = np.indices(batch.sizes).reshape(len(batch.sizes), -1).T
    used = sum(np.square(measured(part, strategy.columns, cells)).sum(axis=0) for part in strategy.parts)
    assert np.allclose(used, np.square(L).sum(axis=0), atol=1e-12)
    assert strategy.shares.sum() == pytest.approx(1)
    for group, share in enumerate(strategy.shares):
        own = [measured(part, strategy.columns, cells) for part in strategy.parts if part.group == group]
        assert sum(np.square(one).sum(axis=0) for one in own).max() <= share * (1 + 1e-9) if own else share == 0
    assert len(L) == strategy.measurements


def optimum(batch: KroneckerWorkload) -> tuple[float, float]:
    """By the certified solver on the matrix: what none is below, and what it reaches."""
    found = certify(batch.workload(), tolerance=1e-5, max_rounds=2000)
    return found.lower_bound, found.upper_bound


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_nothing_split_is_the_optimum(seed: int) -> None:
    batch = batch_of(seed)
    found = optimize_products(batch, Options(tolerance=1e-4))
    if not np.any(batch.matrix.toarray()):
        assert found.total == 0
        return
    check(found)
    lower, upper = optimum(batch)
    assert found.limit <= upper * (1 + 1e-7)
    assert found.total >= lower * (1 - 1e-7)
    assert found.total <= upper * (1 + 3e-3)


@settings(deadline=None, max_examples=60)
@example(278263, 1, False)  # columns of a block, one split and one not
@given(st.integers(0, 10**6), st.integers(0, 7), st.booleans())
def test_split_columns_answer_the_batch_by_any_measure(seed: int, which: int, uniform: bool) -> None:
    workload = batch_of(seed)
    if not np.any(workload.matrix.toarray()):
        return
    batch = Batch(workload)
    rng = np.random.default_rng(seed)
    measures = {i: batch.uniform(i) for i in batch.wide() if which >> i & 1}
    if not uniform:
        measures = {i: rng.dirichlet(np.ones(len(mu))) for i, mu in measures.items()}
    terms = batch.terms(workload.weights)
    found = split_by(batch, terms, measures, tolerance=1e-4)
    check(_strategy(batch, found, 1.0))
    assert found.total >= optimum(workload)[0] * (1 - 1e-7)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_one_product_and_tables_apart_are_never_worse_than_the_baselines(seed: int) -> None:
    workload = batch_of(seed)
    W = workload.matrix.toarray()
    if not np.any(W):
        return
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    w = weights_of(workload)
    product = one_product(batch, terms, tolerance=1e-5)
    check(_strategy(batch, product, 1.0))
    assert product.total <= float(w @ np.square(W).sum(axis=1)) * (1 + 1e-4)
    apart = tables_apart(batch, terms, tolerance=1e-5)
    check(_strategy(batch, apart, 1.0))
    results = 0.0
    for t, table in enumerate(workload.tables):
        own = workload.matrix_of(t).toarray()
        results += np.sqrt(workload.weights[t] * table.queries * np.square(own).sum(axis=0).max())
    assert apart.total <= results**2 * (1 + 1e-4)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.floats(0, 1.57))
@example(524288, 0.0)  # a factor of which the average leaves rounding only
def test_limits_hold(seed: int, angle: float) -> None:
    workload = batch_of(seed)
    if not np.any(workload.matrix.toarray()):
        return
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    rng = np.random.default_rng(seed)
    measures = {i: rng.dirichlet(np.ones(c.orbits)) for i, c in enumerate(batch.columns)}
    _, upper = optimum(workload)
    assert by_products(batch, terms, measures, angle) <= upper * (1 + 1e-6)
    assert by_sample(batch, terms, measures, seed) <= upper * (1 + 1e-6)
    if prod(len(c.orbit) for c in batch.columns) <= 20:  # all of them are drawn
        uniform = {i: batch.uniform(i) for i in range(len(batch.columns))}
        assert by_sample(batch, terms, uniform, seed) >= 0.95 * upper
    assert 0 <= limit_of(batch, terms, [measures]) <= upper * (1 + 1e-6)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_whole_tables_reach_the_optimum_and_the_least_largest_variance(sizes: list[int], data: st.DataObject) -> None:
    orders = data.draw(st.lists(st.integers(0, len(sizes)), min_size=1, max_size=3, unique=True))
    batch = structure(workloads.marginals(sizes, orders))
    found = optimize_products(batch)
    check(found)
    lower, upper = optimum(batch)
    assert lower * (1 - 1e-6) <= found.total <= upper * (1 + 1e-6)
    largest = optimize_products(batch, Options(objective="max"))
    check(largest)
    assert largest.largest_variance(rho=0.5) == pytest.approx(float(largest.per_query_variance(rho=0.5).max()))
    assert largest.largest_variance(rho=0.5) <= largest.largest_variance_bound(rho=0.5) * (1 + 1e-4)
    assert largest.largest_variance(rho=0.5) <= found.largest_variance(rho=0.5) * (1 + 1e-4)
    worst = certify_worst(batch.workload(), tolerance=1e-4, max_rounds=3000)
    assert largest.largest_variance_bound(rho=0.5) <= worst.upper_bound * (1 + 1e-6)
    assert largest.largest_variance(rho=0.5) >= worst.lower_bound * (1 - 1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_the_largest_variance_of_other_tables_lies_between_its_bounds(seed: int) -> None:
    batch = batch_of(seed, columns=2)
    if not np.any(batch.matrix.toarray()):
        return
    found = optimize_products(batch, Options(objective="max"))
    check(found)
    weighted = weights_of(batch) * found.per_query_variance(rho=0.5)
    assert found.largest_variance(rho=0.5) == pytest.approx(float(weighted.max()))
    assert found.largest_variance_bound(rho=0.5) <= found.largest_variance(rho=0.5) * (1 + 1e-9)
    worst = certify_worst(batch.workload(), tolerance=1e-3, max_rounds=3000)
    assert found.largest_variance_bound(rho=0.5) <= worst.upper_bound * (1 + 1e-6)


def test_a_table_that_weighs_next_to_nothing_is_answered_or_refused() -> None:
    rng = np.random.default_rng(0)
    F, G = rng.standard_normal((2, 5)), rng.standard_normal((2, 5))
    for weight in (1e-6, 1e-12, 1e-18):
        batch = in_factors((5, 3), [[F, np.eye(3)], [G, None]], weights=[1.0, weight])
        check(optimize_products(batch))
    with pytest.raises(StrategyError, match="lost in rounding"):
        optimize_products(in_factors((5, 3), [[F, np.eye(3)], [G, None]], weights=[1.0, 1e-40]))


def test_a_constant_leaves_nothing_to_be_lost_in_rounding() -> None:
    batch = Batch(in_factors((3, 2), [[np.tril(np.ones((3, 3))), None], [np.full((1, 3), 7.0), np.eye(2)]]))
    measures = {0: np.random.default_rng(5).dirichlet(np.ones(batch.columns[0].orbits))}
    found = split_by(batch, batch.terms(batch.workload.weights), measures, tolerance=1e-5)
    check(_strategy(batch, found, 1.0))


def test_a_query_whose_average_is_nothing_is_not_lost() -> None:
    each, prefix = np.vstack([np.eye(3), [[1.0, 0.0, 0.0]]]), np.tril(np.ones((3, 3)))
    batch = Batch(in_factors((3, 3), [[np.array([[1.0, 0.0, -1.0]]), prefix], [each, np.array([[1.0, 2.0, 0.0]])]]))
    for average in ([0.25, 0.5, 0.25], [0.3, 0.4, 0.3 + 1e-17]):
        measures = {0: np.array(average)}
        found = split_by(batch, batch.terms(batch.workload.weights), measures, tolerance=1e-5)
        check(_strategy(batch, found, 1.0))


def test_weights_that_vanish_as_numbers_are_refused() -> None:
    tiny, prefix = np.array([[1e-90, 0.0, 3e-90]]), np.tril(np.ones((3, 3)))
    batch = Batch(in_factors((3, 3), [[tiny, tiny], [prefix, prefix]], weights=[1e-90, 1.0]))
    measures = {i: batch.uniform(i) for i in range(2)}
    with pytest.raises(StrategyError, match="lost in rounding"):
        split_by(batch, batch.terms(batch.workload.weights), measures)


def test_a_query_that_no_record_is_in_changes_no_product() -> None:
    prefix, nobody = np.tril(np.ones((3, 3))), np.zeros((1, 3))
    tables = [[prefix, prefix], [prefix, None], [nobody, prefix], [None, nobody]]
    found = [one_product(own := Batch(in_factors((3, 3), tables[:some])), own.terms(np.ones(some))) for some in (2, 4)]
    assert found[1].total == found[0].total > 0
    batch = Batch(in_factors((3, 3), tables))
    check(_strategy(batch, found[1], found[1].total))
    nothing = Batch(in_factors((3, 3), tables[2:]))
    assert one_product(nothing, nothing.terms(np.ones(2))).total == 0


@pytest.mark.slow
def test_a_column_of_many_values_goes_to_the_solver_for_one_matrix() -> None:
    n = 1000
    batch = in_factors((n,), [[np.tril(np.ones((n, n)))[::5]], [np.tril(np.ones((n, n)))]])
    found = optimize_products(batch, Options(tolerance=1e-2))
    check(found)
    assert found.total <= found.limit * 1.01


@pytest.mark.parametrize("objective", ["sum", "max"])
def test_a_column_with_too_many_groups_of_values_is_refused_with_gaussian_noise_alone(
    objective: Literal["sum", "max"],
) -> None:
    n = 1000  # every value, and 500 ranges of pairs: no limit is lowered
    pairs = np.repeat(np.tril(np.ones((n // 2, n // 2))), 2, axis=1)
    batch = structure(workloads.products((n, 2), [(np.eye(n), None), (pairs, np.eye(2)), (None, np.eye(2))]))
    with pytest.raises(StrategyError, match=r"has 500 groups of values.*Laplace"):
        batchdp.optimize(batch, privacy="zcdp", objective=objective, seconds=1)


def test_where_nothing_can_be_solved_together_laplace_noise_has_its_strategy_and_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((groups, "MOST_CLASSES"), (limits, "MOST_CLASSES"), (groups, "MOST_WORK")):
        monkeypatch.setattr(module, name, 1)
    values, some = np.eye(7), np.array([[1.0, 1, 0, 0, 0, 0, 0], [0, 0, 2, 2, 0, 0, 0]])
    batch = structure(workloads.products((7, 7), [(values, some), (some, values), (values, None)]))
    found = batchdp.optimize(batch, privacy="pure", seconds=5)
    assert isinstance(found, batchdp.MarginalStrategy)
    assert 0 < found.limit <= found.total
