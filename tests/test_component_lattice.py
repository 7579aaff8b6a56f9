"""Component strategies in integers against explicit matrices: what is measured, what it costs, what is read from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from batchdp import audit, optimize, workloads
from batchdp.audits.attack import attack
from batchdp.audits.exact import exact
from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.mechanism.calibrate import root_above
from batchdp.mechanism.measurement import LARGEST, NOTHING, Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.residual.integers import integer_basis
from batchdp.mechanism.residual.lattice import ComponentLattice, IntegerGroup, WholeGroups, _quantise_group
from batchdp.mechanism.sample import sample_independent
from batchdp.mechanism.sensitivity import exact_squares
from batchdp.optimizer.residual.optimizing import _strategy, optimize_products
from batchdp.optimizer.residual.search import one_product, split_by, tables_apart
from batchdp.optimizer.residual.splits import Batch
from batchdp.privacy import GAUSSIAN
from batchdp.private import Records
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.workloads.kronecker import KroneckerWorkload
from mechanisms import calibrated, measured, prepared
from test_components import batch_of, structure

Integers = NDArray[np.int64]
ONE = Neighbours()


def strategies_of(seed: int) -> Iterator[ResidualStrategy]:
    """All ways that `optimize` has to answer a batch."""
    workload = batch_of(seed)
    if not np.any(workload.matrix.toarray()):
        return
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    rng = np.random.default_rng(seed)
    measures = {i: batch.uniform(i) for i in batch.wide() if rng.random() < 0.7}
    yield optimize_products(workload)
    yield _strategy(batch, split_by(batch, terms, measures), 1.0)
    yield _strategy(batch, one_product(batch, terms), 1.0)
    yield _strategy(batch, tables_apart(batch, terms), 1.0)


def cells_of(batch: KroneckerWorkload) -> Integers:
    return np.indices(batch.sizes).reshape(len(batch.sizes), -1).T.astype(np.int64)


def measurements(made: Mechanism, records: Records) -> Integers:
    return np.array(measured(made.measurement, records), dtype=np.int64)


def matrix(made: Mechanism) -> NDArray[np.object_]:
    """Q, measurement × cell, by measuring every cell alone; Python's whole numbers."""
    lattice: Any = made.measurement
    columns = [measurements(made, Records(cell[None])) for cell in cells_of(lattice.workload)]
    return np.stack(columns, axis=1).astype(object)


def reconstruction(made: Mechanism) -> NDArray[np.float64]:
    lattice: Any = made.measurement
    tables, rows = range(len(lattice.workload.tables)), np.eye(lattice.measurements, dtype=np.int64)
    return np.stack([np.concatenate([made.reader.values(t, y).reshape(-1) for t in tables]) for y in rows], axis=1)


@settings(deadline=None, max_examples=40)
@example(335, 0.5, ONE)  # no table looks at any column
@example(298941, 0.5, ONE)  # centred, and of lower rank than that
@example(668, 0.01, ONE)  # of lower rank, with sevenths in the basis
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.5, 4.0]), st.sampled_from([ONE, Neighbours("replace", 2)]))
def test_integers_sensitivity_answers_and_variances_are_those_of_explicit_matrices(
    seed: int, rho: float, neighbours: Neighbours
) -> None:
    for strategy in strategies_of(seed):
        made = prepared(strategy, neighbours, rho, 10**6)
        Q, B = matrix(made), reconstruction(made)
        W = strategy.workload.matrix.toarray()
        # The sensitivity: brute force over all records, group by group, in whole numbers.
        total = Fraction(0)
        ends = np.concatenate([[0], np.cumsum(made.measurement.sizes)])
        groups = zip(made.measurement.groups, made.noises, pairwise(ends), strict=True)
        for group, noise, (start, end) in groups:
            squares = max(int(sum(int(q) ** 2 for q in column)) for column in Q[start:end].T)
            assert squares == group.moved
            assert noise.moved == squares * neighbours.factor**2
            if squares:
                assert Fraction(noise.loss) >= Fraction(noise.moved) / (2 * Fraction(noise.scale) ** 2)
                assert noise.scale >= 64
            total += Fraction(noise.loss)
        assert total == made.loss <= Fraction(rho)
        # Answers without noise, and the variance of each.
        assert np.allclose(B @ Q.astype(float), W, atol=1e-8 * max(1.0, float(np.abs(W).max())))
        scales = np.repeat(made.scales, made.measurement.sizes)
        shapes = [table.shape for table in strategy.workload.tables]
        found = [np.broadcast_to(made.reader.variances(t), shape) for t, shape in enumerate(shapes)]
        variances = np.concatenate([one.reshape(-1) for one in found])
        assert np.allclose(variances, np.square(B * scales).sum(axis=1), rtol=1e-9, atol=1e-12)
        expected = strategy.per_query_variance(rho=rho) * neighbours.factor**2
        assert variances.sum() <= expected.sum() * 1.05
        assert made.bias_share <= 0.01


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 2**32))
def test_tables_of_records_are_exact_without_noise(seed: int, drawn: int) -> None:
    batch = batch_of(seed, columns=4, most=5)
    if not np.any(batch.matrix.toarray()):
        return
    made = prepared(optimize_products(batch), ONE, 0.5, 10**6)
    rng = np.random.default_rng(drawn)
    codes = np.column_stack([rng.integers(0, n, 200) for n in batch.sizes])
    noisy = measurements(made, Records(codes))
    counts = np.bincount(np.ravel_multi_index(codes.T, batch.sizes), minlength=batch.cells)
    tables = range(len(batch.tables))
    answers = np.concatenate([made.reader.values(t, noisy).reshape(-1) for t in tables])
    assert np.allclose(answers, batch.matrix @ counts, atol=1e-6)
    there = np.flatnonzero(counts)
    same = Records(cells_of(batch)[there], counts[there])
    assert np.array_equal(noisy, measurements(made, same))


def whole(sizes: tuple[int, ...] = (3, 4, 2), order: tuple[int, ...] = (0, 1, 2), rho: float = 0.5) -> Mechanism:
    return prepared(optimize_products(structure(workloads.marginals(sizes, list(order)))), ONE, rho, None)


def test_a_whole_table_component_has_the_norm_of_the_closed_form() -> None:
    made = whole()
    assert isinstance(made.measurement, ComponentLattice)
    assert isinstance(made.measurement.groups, WholeGroups)
    for group in made.measurement.groups:
        n = [made.measurement.workload.sizes[i] for i in group.columns]
        assert group.moved == int(np.prod([k * (k - 1) for k in n])) * 4**group.bits


def test_measurements_beyond_the_cap_are_exact_and_clamped() -> None:
    made = whole()
    lattice: Any = made.measurement
    cells = cells_of(lattice.workload)
    many = Records(cells, np.full(len(cells), 2**62, dtype=np.int64))
    total = measurements(made, many)
    assert total[0] == LARGEST
    assert np.all(total[1:] == 0)  # uniform counts have no other component
    one = Records(cells[:1], np.array([2**62], dtype=np.int64))
    found = measurements(made, one)
    Q = matrix(made)
    assert [int(z) for z in found] == [max(-LARGEST, min(LARGEST, int(q) * 2**62)) for q in Q[:, 0]]


def test_the_root_of_a_sensitivity_is_never_below_it() -> None:
    for squares in (1, 2, 3, 10**6, 10**6 + 1, 2**106 - 1, 7**80):
        found = root_above(squares)
        assert Fraction(found) ** 2 >= squares
        assert Fraction(float(np.nextafter(found, 0))) ** 2 < squares * (1 + Fraction(1, 2**50))


def test_squares_are_summed_exactly() -> None:
    K = np.array([[2**39 + 1, -(2**39) - 3], [5, 2**40 - 1]], dtype=np.int64)
    assert exact_squares(K) == [sum(int(k) ** 2 for k in column) for column in K.T]
    with pytest.raises(LatticeError, match="too large"):
        exact_squares(np.array([[2**40]]))


def test_a_basis_of_whole_numbers_spans_the_same() -> None:
    rows = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 2.0]])
    J = np.array([[0.3, 0.7], [-1.1, 0.2]]) @ rows
    H = integer_basis(J)
    assert H is not None
    assert np.linalg.matrix_rank(np.vstack([H, rows])) == 2
    assert integer_basis(np.array([[1.0, np.sqrt(2)]])) is None


def test_noise_that_is_too_little_or_too_much_is_refused() -> None:
    with pytest.raises(LatticeError, match="too little to hide behind"):
        calibrated(GAUSSIAN, 1, 0.5)
    with pytest.raises(LatticeError, match="more than fits"):
        calibrated(GAUSSIAN, 2**100, 1e-12)
    with pytest.raises(PrivacyParameterError, match="above 0"):
        calibrated(GAUSSIAN, 0, 0.5)
    with pytest.raises(PrivacyParameterError, match=r"rho=.* above 0"):
        calibrated(GAUSSIAN, 10**6, 0.0)


def test_lists_that_share_a_column_are_refused() -> None:
    prefix = np.tril(np.ones((4, 4)))
    batch = structure(workloads.products((4, 4), [[prefix, prefix]]))
    strategy = optimize_products(batch)
    group = strategy.parts.groups[0]  # type: ignore[attr-defined]
    twice = replace(group, lists=(group.lists[0], group.lists[0]))
    with pytest.raises(LatticeError, match="same column"):
        _quantise_group(twice, strategy.columns, {}, 40)


def test_a_cap_that_leaves_no_bits_is_refused_with_the_remedy() -> None:
    strategy = optimize_products(structure(workloads.marginals((3, 4), [2])))
    with pytest.raises(LatticeError, match="max_rows"):
        prepared(strategy, ONE, 0.5, 2**62)
    with pytest.raises(LatticeError, match="largest_total"):
        prepared(strategy, ONE, 0.5, 0)


def test_draws_have_their_scales_and_fill_every_measurement() -> None:
    scales, sizes = np.array([100.0, 5000.0]), np.array([3000, 40], dtype=np.int64)
    told: list[float] = []
    noise = sample_independent(GAUSSIAN, scales, sizes, lambda share, _: told.append(share))
    assert noise.shape == (3040,)
    assert 80 < noise[:3000].std() < 120
    assert 2000 < noise[3000:].std() < 8000
    assert not np.array_equal(noise, sample_independent(GAUSSIAN, scales, sizes))


def broken_exactly(made: Mechanism) -> set[str]:
    return {finding.check for finding in exact(made) if not finding.held}


def broken(made: Mechanism, draw: Any = None, runs: int = 4000) -> set[str]:
    return broken_exactly(made) | {finding.check for finding in attack(made, runs, draw) if not finding.held}


def test_what_is_right_passes_the_audit() -> None:
    assert broken(whole()) == set()
    prefix = np.tril(np.ones((5, 5)))
    batch = structure(workloads.products((5, 3), [[prefix, np.eye(3)], [None, np.eye(3)]]))
    assert audit(optimize(batch, privacy="zcdp"), rho=0.5, runs=3000, neighbours="replace").passed


def test_a_component_that_is_forgotten_is_caught() -> None:
    made = whole()
    forgotten = replace(made, noises=(*made.noises[:-1], NOTHING))
    assert {"sensitivity", "privacy loss"} <= broken_exactly(forgotten)


def test_a_component_that_is_not_paid_for_is_caught() -> None:
    made = whole()
    last = made.noises[-1]
    free = replace(made, noises=(*made.noises[:-1], replace(last, loss=0.0)))
    assert "privacy loss" in broken_exactly(free)


def test_a_wrong_power_of_two_is_caught() -> None:
    made = whole()
    assert isinstance(made.measurement, ComponentLattice)
    groups = made.measurement.groups
    assert isinstance(groups, WholeGroups)
    finer = replace(groups, bits=groups.bits + (np.arange(len(groups.bits)) == 2))
    wrong = replace(made, measurement=replace(made.measurement, groups=finer))
    assert {"sensitivity", "privacy loss"} <= broken_exactly(wrong)


def test_a_sensitivity_that_is_too_small_is_caught() -> None:
    prefix = np.tril(np.ones((4, 4)))
    batch = structure(workloads.products((4, 3), [[prefix, np.eye(3)], [None, np.eye(3)]]))
    made = prepared(optimize_products(batch), ONE, 0.5, None)
    groups = made.measurement.groups
    assert isinstance(groups[0], IntegerGroup)
    noise = made.noises[0]
    less = replace(made, noises=(replace(noise, moved=noise.moved * 9 // 10), *made.noises[1:]))
    assert "sensitivity" in broken_exactly(less)


def test_draws_that_components_share_are_caught() -> None:
    def shared(scales: NDArray[np.float64], sizes: Integers) -> Integers:
        unit = sample_independent(GAUSSIAN, np.array([1e6]), np.array([sizes.max()])) / 1e6
        return np.concatenate([np.rint(unit[:n] * s).astype(np.int64) for s, n in zip(scales, sizes, strict=True)])

    assert "independent draws" in broken(whole(), draw=shared)


def test_noise_that_is_too_small_is_caught_by_the_attack() -> None:
    def small(scales: NDArray[np.float64], sizes: Integers) -> Integers:
        return sample_independent(GAUSSIAN, scales / 3, sizes)

    made = prepared(optimize_products(structure(workloads.marginals((2, 2), [2]))), ONE, 0.5, None)
    assert {"noise scale", "attack on the first record"} <= broken(made, draw=small)
