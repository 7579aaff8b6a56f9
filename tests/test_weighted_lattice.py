"""Laplace strategies over many columns in integers, against explicit matrices, and what must be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from batchdp import audit, epsilon_for, optimize, workloads
from batchdp.audits.attack import attack
from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.mechanism import sensitivity
from batchdp.mechanism.law import laplace_quantiles
from batchdp.mechanism.marginal import lattice as integers
from batchdp.mechanism.marginal import law
from batchdp.mechanism.marginal.lattice import (
    IntegerResults,
    IntegerTables,
    WeightedLattice,
    denominator,
    quantise_weighted,
)
from batchdp.mechanism.measure import measure
from batchdp.mechanism.measurement import LARGEST, Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample_independent
from batchdp.mechanism.sensitivity import Change, largest_change
from batchdp.optimizer.marginal.problem import sub_batch
from batchdp.optimizer.marginal.search import columns_grams, optimize_products
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual.splits import Batch
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget
from batchdp.private import Records
from batchdp.strategies.marginal.columns import by_strategy, each_value
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy, Results
from batchdp.strategies.marginal.weights import Tables, plain
from batchdp.workloads.kronecker import Factor, KroneckerWorkload, in_factors
from mechanisms import calibrated, prepared
from test_component_lattice import broken, broken_exactly, cells_of, matrix, measurements, reconstruction
from test_components import batch_of, structure

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]
ONE = Neighbours()


def group_of(
    workload: KroneckerWorkload, rng: np.random.Generator, share: float, serves: frozenset[int] | None
) -> MarginalGroup:
    """Any tables, differences and strategies inside."""
    batch = Batch(workload)
    insides = [each_value(column) for column in batch.columns]
    for i, own in columns_grams(batch).items():
        n = len(own[0])
        rows = [np.diag(rng.random(n) + 0.2), rng.random((2, n))]  # columns of different norms
        made = by_strategy(np.vstack(rows), own) if rng.random() < 0.8 else None
        insides[i] = insides[i] if made is None else made
    d = len(batch.columns)
    two = np.array([own.measure is None and own.tau == 2 for own in insides])
    difference = (rng.random((3, d)) < 0.5) & two
    tables = Tables((rng.random((3, d)) < 0.5) & ~difference, difference).with_(plain(np.ones((1, d), dtype=bool)))
    theta = rng.random(len(tables)) * 10.0 ** rng.integers(-4, 1, len(tables)) + 1e-6
    return MarginalGroup(batch.columns, tuple(insides), tables, theta * (share / theta.sum()), serves)


def of_groups(
    workload: KroneckerWorkload, *groups: MarginalGroup | Results, sensitivity: float = 1.0
) -> MarginalStrategy:
    return MarginalStrategy(
        workload=workload, groups=groups, sensitivity=sensitivity, total=1.0, limit=0.0, method="given"
    )


def strategies_of(seed: int) -> Iterator[MarginalStrategy]:
    """All kinds that `optimize` has, and some that it would not choose."""
    workload = batch_of(seed)
    if not np.any(workload.matrix.toarray()):
        return
    rng = np.random.default_rng(seed)
    yield optimize_products(workload, Options(seed=seed, seconds=0.3))
    yield of_groups(workload, group_of(workload, rng, 1.0, None))
    count = len(workload.tables)
    if count > 1:
        cut = int(rng.integers(1, count))
        parts = [list(range(cut)), list(range(cut, count))]
        share = float(rng.random()) * 0.8 + 0.1
        both = zip(parts, (share, 1 - share), strict=True)
        yield of_groups(
            workload, *(group_of(sub_batch(workload, own), rng, part, frozenset(own)) for own, part in both)
        )
    change = float(np.abs(workload.matrix.toarray()).sum(axis=0).max())
    yield of_groups(workload, Results(workload, 1 / change))


@settings(deadline=None, max_examples=15)
@example(136, 1.0, ONE)  # tables that count nothing, for which nothing is measured
@given(st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 8.0]), st.sampled_from([ONE, Neighbours("replace", 2)]))
def test_integers_sensitivity_answers_and_variances_are_those_of_explicit_matrices(
    seed: int, epsilon: float, neighbours: Neighbours
) -> None:
    for strategy in strategies_of(seed):
        made = prepared(strategy, neighbours, epsilon, 10**6)
        Q, B = matrix(made), reconstruction(made)
        W = strategy.workload.matrix.toarray()
        # The sensitivity: brute force over all records, in whole numbers, of all measurements together.
        largest = max(sum(abs(int(q)) for q in column) for column in Q.T)
        assert lattice_of(made).sensitivity == largest
        (noise,) = made.noises
        assert noise.moved == largest * neighbours.factor
        assert noise.scale >= 64
        assert Fraction(noise.moved) / Fraction(noise.scale) <= Fraction(noise.loss) <= Fraction(epsilon)
        assert noise.loss >= epsilon * (1 - 1e-9)  # no more noise than is needed
        # Answers without noise, and the variance and interval of each.
        assert np.allclose(B @ Q.astype(float), W, atol=1e-8 * max(1.0, float(np.abs(W).max())))
        variances = on_all(made, made.reader.variances)
        assert np.allclose(variances, 2 * np.square(B * noise.scale).sum(axis=1), rtol=1e-9, atol=1e-12)
        expected = strategy.per_query_variance(epsilon=epsilon) * neighbours.factor**2
        assert variances.sum() <= expected.sum() * 1.05
        assert made.bias_share <= 0.01
        for confidence in (0.5, 0.95, 0.999):
            widths = widths_of(made, confidence)
            assert np.allclose(widths, laplace_quantiles(B, confidence) * noise.scale, rtol=1e-3, atol=1e-9)


def widths_of(made: Mechanism, confidence: float = 0.95) -> Dense:
    return on_all(made, lambda t: made.reader.half_widths(t, confidence))


def on_all(made: Mechanism, function: Any) -> Dense:
    shapes = [table.shape for table in lattice_of(made).workload.tables]
    return np.concatenate([np.broadcast_to(function(t), shape).reshape(-1) for t, shape in enumerate(shapes)])


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(0, 2**32))
def test_tables_of_records_are_exact_without_noise(seed: int, drawn: int) -> None:
    for strategy in strategies_of(seed):
        batch = strategy.workload
        made = prepared(strategy, ONE, 1.0, 10**6)
        rng = np.random.default_rng(drawn)
        codes = np.column_stack([rng.integers(0, n, 200) for n in batch.sizes])
        noisy = measurements(made, Records(codes))
        counts = np.bincount(np.ravel_multi_index(codes.T, batch.sizes), minlength=batch.cells)
        answers = np.concatenate([made.reader.values(t, noisy).reshape(-1) for t in range(len(batch.tables))])
        assert np.allclose(answers, batch.matrix @ counts, atol=1e-6)
        there = np.flatnonzero(counts)
        assert np.array_equal(noisy, measurements(made, Records(cells_of(batch)[there], counts[there])))


def whole(sizes: tuple[int, ...] = (3, 4, 2), order: tuple[int, ...] = (0, 1, 2), epsilon: float = 1.0) -> Mechanism:
    strategy = optimize_products(structure(workloads.marginals(sizes, list(order))), Options(seconds=1))
    return prepared(strategy, ONE, epsilon, None)


def lattice_of(made: Mechanism) -> WeightedLattice:
    assert isinstance(made.measurement, WeightedLattice)
    return made.measurement


def tables_apart(epsilon: float = 1.0) -> Mechanism:
    """Three tables by themselves, with weights of 1/2, 1/3 and 1/6."""
    workload = structure(workloads.marginals((3, 4, 2), [1]))
    batch = Batch(workload)
    tables = plain(np.eye(3, dtype=bool))
    insides = tuple(map(each_value, batch.columns))
    group = MarginalGroup(batch.columns, insides, tables, np.array([1 / 2, 1 / 3, 1 / 6]))
    return prepared(of_groups(workload, group), ONE, epsilon, None)


def test_whole_tables_are_charged_by_the_sum_of_their_weights() -> None:
    made = tables_apart()
    (own,) = lattice_of(made).measures
    assert made.noises[0].moved == int(own.weights.sum())
    assert own.weights / own.weights.sum() == pytest.approx([1 / 2, 1 / 3, 1 / 6], rel=1e-6)


def test_the_sensitivity_is_the_largest_over_records_and_not_the_sum_of_the_largest() -> None:
    one, other = np.array([1, 5, 2]), np.array([4, 1, 2])
    changes = [Change(10, (((0,), one),)), Change(3, (((0,), other),)), Change(7, ())]
    assert largest_change(changes) == max(10 * a + 3 * b for a, b in zip(one, other, strict=True)) + 7
    second = np.array([2, 1])
    both = [*changes, Change(5, (((0,), other), ((1,), second)))]
    brute = max(10 * one[v] + 3 * other[v] + 5 * other[v] * second[u] + 7 for v in range(3) for u in range(2))
    assert largest_change(both) == brute
    assert largest_change([Change(2**70, (((0,), one),)), Change(1, (((0,), other),))]) == 5 * 2**70 + 1
    joint = np.array([[1, 9], [4, 2], [3, 3]])
    brute = max(10 * one[v] + 2 * joint[v, u] + other[v] * second[u] for v in range(3) for u in range(2))
    apart = [Change(10, (((0,), one),)), Change(2, (((0, 1), joint),)), Change(1, (((0,), other), ((1,), second)))]
    assert largest_change(apart) == brute


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_the_sensitivity_is_that_of_all_records(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, 3)
    ways = [[rng.integers(0, 6, n) for _ in range(2)] for n in sizes]
    changes = []
    for _ in range(4):
        norms = [((i,), ways[i][int(rng.integers(0, 2))]) for i in range(3) if rng.random() < 0.7]
        changes.append(Change(int(rng.integers(0, 9)), tuple(norms)))
    brute = max(
        sum(c.weight * int(np.prod([norms[v[i]] for (i,), norms in c.norms])) for c in changes)
        for v in np.ndindex(*sizes)
    )
    assert largest_change(changes) == brute


def test_too_many_kinds_of_records_are_charged_by_what_tables_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = np.array([1, 5, 2]), np.array([4, 1, 2])
    changes = [Change(10, (((0,), one),)), Change(3, (((0,), other),))]
    monkeypatch.setattr(sensitivity, "MOST_KINDS", 1)
    assert largest_change(changes) == 62
    assert sum(change.largest for change in changes) == 62


def test_measurements_beyond_the_cap_are_exact_and_clamped() -> None:
    made = whole()
    cells = cells_of(lattice_of(made).workload)
    one = Records(cells[:1], np.array([2**62], dtype=np.int64))
    found = measurements(made, one)
    Q = matrix(made)
    assert [int(z) for z in found] == [max(-LARGEST, min(LARGEST, int(q) * 2**62)) for q in Q[:, 0]]


def test_factors_that_become_whole_are_measured_exactly() -> None:
    assert denominator(Factor(2, np.array([[0.5, 0.25]]))) == 4
    assert denominator(Factor(3, np.array([[1 / 3, 2 / 7, 1.0]]))) == 21
    assert denominator(Factor(2, np.array([[np.sqrt(2), 1.0]]))) is None
    batch = in_factors((3, 3), [[np.array([[1 / 3, 1 / 7, 1.0]]), np.array([[0.1, 0.2, 0.4]])]])
    made = prepared(of_groups(batch, Results(batch, 1.0)), ONE, 1.0, 10**9)
    assert isinstance(lattice_of(made).measures[0], IntegerResults)
    assert made.bias_share < 1e-3


def test_rounded_factors_are_multiplied_out_or_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    batch = in_factors((6, 6, 6), [[rng.random((2, 6)) for _ in range(3)]])
    strategy = of_groups(batch, Results(batch, 1 / float(np.abs(batch.matrix.toarray()).sum(axis=0).max())))
    assert prepared(strategy, ONE, 1.0, 10**6).bias_share <= 0.01
    monkeypatch.setattr(integers, "MOST_JOINT", 0)
    monkeypatch.setattr("batchdp.mechanism.prepare._PREPARED", WeakKeyDictionary())
    with pytest.raises(LatticeError, match=r"max_rows"):
        prepared(strategy, ONE, 1.0, 10**6)


def test_noise_that_is_too_little_or_too_much_is_refused() -> None:
    with pytest.raises(LatticeError, match="too little to hide behind; lower epsilon"):
        calibrated(LAPLACE, 1, 0.5)
    with pytest.raises(LatticeError, match="raise epsilon"):
        calibrated(LAPLACE, 2**61, 1e-12)
    with pytest.raises(LatticeError, match="more than fits"):
        calibrated(LAPLACE, 2**62, 1e9)
    with pytest.raises(PrivacyParameterError, match="moved=0 must be a whole number above 0"):
        calibrated(LAPLACE, 0, 0.5)
    with pytest.raises(PrivacyParameterError, match=r"epsilon=.* above 0"):
        calibrated(LAPLACE, 10**6, 0.0)
    found = calibrated(LAPLACE, 10**6 + 1, 0.1)
    assert LAPLACE.loss(found.moved, found.scale) <= Fraction(found.loss) <= Fraction(0.1)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 10.0, 1e4])
def test_extreme_budgets_have_their_noise_or_are_refused(epsilon: float) -> None:
    made = tables_apart(epsilon)
    assert 64 <= made.scales[0] <= 2.0**55
    assert made.bias_share <= 0.01
    with pytest.raises(LatticeError):
        tables_apart(1e-300)


# How often intervals cover.


def shares_covered(made: Mechanism, confidence: float, runs: int) -> Dense:
    """Of noise alone, drawn by NumPy: nothing is released here."""
    rng = np.random.default_rng(1)
    B = reconstruction(made) * made.scales[0]
    noise = B @ rng.laplace(size=(B.shape[1], runs))
    widths = widths_of(made, confidence)
    return np.asarray((np.abs(noise) <= widths[:, None]).mean(axis=1))


def on_few() -> Mechanism:
    """Answers that rest on one measurement, on two, and on many."""
    workload = in_factors(
        (2, 6), [[np.eye(2), None], [np.ones((1, 2)), None], [None, np.ones((1, 6))], [None, np.eye(6)]]
    )
    batch = Batch(workload)
    tables = plain(np.array([[True, False], [False, True]]))
    group = MarginalGroup(batch.columns, tuple(map(each_value, batch.columns)), tables, np.array([0.5, 0.5]))
    return prepared(of_groups(workload, group), ONE, 1.0, 10**6)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_intervals_cover_as_often_as_they_say(confidence: float) -> None:
    workload = structure(workloads.marginals((2, 3), [2]))  # noise on data: an answer rests on one measurement
    for made in (whole(), on_few(), prepared(of_groups(workload, Results(workload, 1.0)), ONE, 0.3, 10**6)):
        covered = shares_covered(made, confidence, 40_000)
        assert np.abs(covered - confidence).max() < 0.012
        assert abs(covered.mean() - confidence) < 0.004


def test_many_different_answers_have_the_law_of_equal_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = np.tril(np.ones((8, 8)))
    batch = in_factors((8, 5), [[prefix, np.eye(5)], [prefix, None], [np.eye(8), None]])
    made = prepared(optimize_products(batch, Options(seconds=1)), ONE, 1.0, 10**6)
    exact = widths_of(made)
    monkeypatch.setattr(law, "MOST_LISTED", 0)
    matched = widths_of(made)
    assert np.abs(matched / exact - 1).max() < 0.01
    monkeypatch.setattr(law, "MOST_SUMMED", 0)
    wide = widths_of(made)
    assert np.all(wide >= exact * 0.999)
    assert np.all(wide <= exact * 1.09)


# The audit, and what it has to catch.


def test_what_is_right_passes_the_audit() -> None:
    assert broken(whole()) == set()
    assert broken(tables_apart()) == set()
    prefix = np.tril(np.ones((5, 5)))
    batch = structure(workloads.products((5, 3), [[prefix, np.eye(3)], [None, np.eye(3)]]))
    found = audit(optimize(batch, privacy="pure", seconds=1), epsilon=0.5, runs=3000, neighbours="replace")
    assert found.passed, str(found)


def with_noise(made: Mechanism, moved: int) -> Mechanism:
    """As if neighbours changed the measurements by so much: the noise that would be drawn then."""
    return replace(made, noises=(calibrated(LAPLACE, moved, float(made.budget)),))


def test_a_table_that_the_sensitivity_forgets_is_caught() -> None:
    made = tables_apart()
    (own,) = lattice_of(made).measures
    forgotten = with_noise(made, made.noises[0].moved - int(own.weights[2]))
    assert {"sensitivity", "privacy loss"} <= broken_exactly(forgotten)


def test_the_l2_norm_for_the_l1_norm_is_caught() -> None:
    made = tables_apart()
    (own,) = lattice_of(made).measures
    short = int(np.ceil(np.linalg.norm(own.weights.astype(float))))
    assert {"sensitivity", "privacy loss"} <= broken_exactly(with_noise(made, short))
    # By the attack alone, which knows nothing of norms.
    weaker = replace(made, noises=with_noise(made, short).noises)
    first = next(attack(weaker, 30_000))
    assert first.check == "attack on the first record"
    assert not first.held


def test_a_wrong_power_of_two_is_caught() -> None:
    made = tables_apart()
    (own,) = lattice_of(made).measures
    finer = replace(own, weights=own.weights * np.array([1, 1, 2]))
    wrong = replace(made, measurement=replace(lattice_of(made), measures=(finer,)))
    assert {"sensitivity", "privacy loss"} <= broken_exactly(wrong)


def test_a_strategy_inside_that_is_larger_than_was_paid_for_is_caught() -> None:
    prefix = np.tril(np.ones((6, 6)))
    batch = in_factors((6, 3), [[prefix, np.eye(3)], [None, np.eye(3)]])
    rng = np.random.default_rng(0)
    made = prepared(of_groups(batch, group_of(batch, rng, 1.0, None)), ONE, 1.0, None)
    own: Any = lattice_of(made).measures[0]
    assert len(lattice_of(made).measures) == 1
    at = next(i for i, one in enumerate(own.insides) if one.integers is not None)
    K = own.insides[at].integers.copy()
    K[0] *= 2
    insides = tuple(replace(one, integers=K) if i == at else one for i, one in enumerate(own.insides))
    changed = replace(own, insides=insides)
    wrong = replace(made, measurement=replace(lattice_of(made), measures=(changed,)))
    assert "sensitivity" in broken_exactly(wrong)


def test_draws_that_tables_share_are_caught() -> None:
    def shared(scales: Dense, sizes: Integers) -> Integers:
        half = sample_independent(LAPLACE, scales, (sizes + 1) // 2)
        return np.repeat(half, 2)[: int(sizes.sum())]

    assert "independent draws" in broken(tables_apart(), draw=shared)


def test_noise_that_is_too_small_is_caught_by_the_attack() -> None:
    def small(scales: Dense, sizes: Integers) -> Integers:
        return sample_independent(LAPLACE, scales / 3, sizes)

    assert {"noise scale", "attack on the first record"} <= broken(tables_apart(), draw=small, runs=20_000)


def test_gaussian_draws_where_laplace_was_promised_are_caught() -> None:
    def gaussian(scales: Dense, sizes: Integers) -> Integers:
        return sample_independent(GAUSSIAN, scales * np.sqrt(2), sizes)

    assert "noise scale" in broken(tables_apart(), draw=gaussian)


# The budget for an accuracy.


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_budget_for_an_accuracy_reaches_it(neighbours: Any) -> None:
    prefix = np.tril(np.ones((5, 5)))
    batch = in_factors((5, 3), [[prefix, np.eye(3)], [np.eye(5), None]])
    strategy = optimize_products(batch, Options(seconds=1))
    whose = Neighbours(neighbours)
    name = batch.tables[1].name
    asked: list[tuple[dict[str, Any], Callable[[Mechanism], Any]]] = [
        ({"standard_error": 7.0}, lambda p: np.sqrt(on_all(p, p.reader.variances)).max()),
        ({"half_width": 20.0}, lambda p: widths_of(p).max()),
        ({"half_width": 20.0, "query": name}, lambda p: p.reader.half_widths(1, 0.95).max()),
        ({"standard_error": 7.0, "query": name}, lambda p: np.sqrt(p.reader.variances(1)).max()),
    ]
    for options, reached in asked:
        epsilon = epsilon_for(strategy, neighbours=neighbours, **options)
        goal = next(iter(options.values()))
        found = float(reached(prepared(strategy, whose, epsilon, None)))
        assert 0.98 * goal <= found <= goal
    with pytest.raises(PrivacyParameterError, match="is not in the workload"):
        epsilon_for(strategy, standard_error=1.0, query="nothing")


def test_integers_stand_for_exactly_what_is_read() -> None:
    (own,) = lattice_of(tables_apart()).measures
    assert isinstance(own, IntegerTables)
    assert np.array_equal(own.group.theta, own.weights.astype(float))


def test_differences_of_more_records_than_fit_are_clamped_and_never_wrap() -> None:
    D, prefix = np.array([[1.0, -1.0]]), np.tril(np.ones((3, 3)))
    batch = workloads.products((2, 2, 3), [[None, D, prefix], [D, None, None]]).structure
    lattice = quantise_weighted(
        optimize(batch, privacy="pure"), largest_total=10**6, budget=Budget(LAPLACE, 0.01), factor=1
    )
    assert any(own.tables.difference.any() for own in lattice.measures if isinstance(own, IntegerTables))
    codes = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 2]])
    for times in ([2**62, 2**62, 0], [2**62, 2**62, 1]):
        found = measure(lattice, Records(codes, np.array(times)), exact=True)
        assert min(int(values.min()) for _, _, values in found) == -LARGEST
