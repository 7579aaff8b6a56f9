from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from batchdp import STRATEGIES, MatrixWorkload, PairStrategy
from batchdp.errors import LatticeError
from batchdp.linalg.matrix import dense
from batchdp.mechanism.lattice import Lattice, quantise_cells
from batchdp.mechanism.measurement import LARGEST, Neighbours
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise
from cases import small_workloads
from mechanisms import measured, prepared

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "300"))
"""`make audit` runs 10 000."""


def lattice_of(Q: np.ndarray, noise: Noise = LAPLACE, largest_total: int = 10**6) -> Lattice:
    rows, cells = Q.shape
    W = MatrixWorkload(np.ones((1, cells)))
    return Lattice(W, sparse.csr_array(Q), np.zeros((1, rows)), 40, largest_total, noise)


integers = arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(-(2**40), 2**40))


@settings(max_examples=EXAMPLES, deadline=None)
@given(Q=integers, data=st.data())
def test_sensitivities_and_measurements_equal_exact_fractions(Q: np.ndarray, data: st.DataObject) -> None:
    lattice = lattice_of(Q)
    columns = [[Fraction(int(q)) for q in column] for column in Q.T]
    assert lattice.column_sums == max(sum(map(abs, column)) for column in columns)
    squares = max(sum(q * q for q in column) for column in columns)
    assert lattice.column_squares == squares
    delta = lattice_of(Q, GAUSSIAN).sensitivity
    assert (delta - 1) ** 2 < squares <= delta**2 or squares == delta == 0
    for own in (lattice, lattice_of(Q, GAUSSIAN)):
        (group,) = own.groups
        assert (group.moved, group.share, group.bits) == (own.sensitivity**own.noise.norm, Fraction(1), 40)

    counts = data.draw(st.lists(st.integers(0, 2**62), min_size=Q.shape[1], max_size=Q.shape[1]))
    exact = [sum((Fraction(int(q)) * x for q, x in zip(row, counts, strict=True)), Fraction(0)) for row in Q]
    clamped = [max(-LARGEST, min(LARGEST, z)) for z in exact]
    assert measured(lattice, np.array(counts)) == clamped


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    L=arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 3)), elements=st.floats(-1, 1, width=64)),
    cap=st.integers(1, 10**12),
)
def test_rounding_is_toward_zero_so_no_column_grows(L: np.ndarray, cap: int) -> None:
    L = np.where(np.abs(L) < 1e-90, 0.0, L)
    strategy = PairStrategy(MatrixWorkload(L), L, np.eye(len(L)))
    lattice = quantise_cells(strategy, largest_total=cap)
    top = Fraction(float(np.abs(L).max())) or Fraction(1)
    Q = lattice.integers.toarray()
    assert 20 <= lattice.bits <= 40
    assert cap * int(np.abs(Q).max(initial=0)) <= LARGEST
    for q, l in zip(Q.ravel(), (L / float(top)).ravel(), strict=True):
        exact = Fraction(float(l)) * 2**lattice.bits
        assert abs(int(q)) <= abs(exact) < abs(int(q)) + 1
        assert int(q) * exact >= 0


@pytest.mark.parametrize("method", STRATEGIES)
@pytest.mark.parametrize("name", small_workloads())
def test_every_strategy_survives_its_lattice_within_the_bias_bound(method: str, name: str) -> None:
    workload = small_workloads()[name]
    lattice = quantise_cells(STRATEGIES[method](workload), largest_total=10**6)
    L = lattice.integers.toarray() / 2.0**lattice.bits
    if lattice.merging is not None:
        L = L @ lattice.merging
    W = dense(workload.matrix)
    rng = np.random.default_rng(0)
    for x in (rng.multinomial(10**6, np.full(workload.cells, 1 / workload.cells)), np.eye(workload.cells)[0] * 10**6):
        off = np.abs(W @ x - dense(lattice.reconstruct @ L) @ x)
        rounding = 1e-13 * np.abs(W).sum(axis=1) * 10**6  # of this test's own products
        assert np.all(off <= lattice.bias_bound + rounding)
    scale = np.abs(W).max() or 1.0
    assert np.all(lattice.bias_bound <= 1e-2 * scale)


def test_one_record_more_moves_the_measurements_by_the_sensitivity_at_most() -> None:
    lattice = quantise_cells(STRATEGIES["low-rank"](small_workloads()["ranges"]), largest_total=10**6)
    x = np.arange(11)
    here = np.array(measured(lattice, x), dtype=object)
    moves = [np.abs(np.array(measured(lattice, x + e), dtype=object) - here).sum() for e in np.eye(11, dtype=int)]
    assert max(moves) == lattice.sensitivity


def test_clamping_moves_no_two_neighbours_further_apart() -> None:
    lattice = lattice_of(np.array([[2**40, -(2**39)], [2**38, 1]]), largest_total=10)
    for total in (10**5, 2**21, 2**61):
        x = np.array([total, 3])
        here, there = measured(lattice, x), measured(lattice, x + np.array([1, 0]))
        assert all(abs(z) <= LARGEST for z in here)
        assert sum(abs(a - b) for a, b in zip(here, there, strict=True)) <= lattice.sensitivity


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "10", 2**50])
def test_an_impossible_cap_is_refused(cap: Any) -> None:
    with pytest.raises(LatticeError, match="largest_total"):
        quantise_cells(STRATEGIES["noise-on-data"](np.eye(2)), largest_total=cap)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_an_entry_in_many_pieces_counts_as_their_sum(privacy: Any) -> None:
    pieces = sparse.csr_array((np.full(100, 0.01), np.zeros(100, int), np.array([0, 100])), shape=(1, 1))
    strategy = PairStrategy(MatrixWorkload([[1.0]]), pieces, np.eye(1), privacy=privacy)
    lattice = quantise_cells(strategy, largest_total=1000)
    assert lattice.sensitivity == pytest.approx(2.0**lattice.bits)
    with pytest.raises(LatticeError, match="several pieces"):
        replace(
            lattice, integers=sparse.csr_array((np.ones(2, np.int64), np.zeros(2, int), np.array([0, 2])), shape=(1, 1))
        )


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_measurements_that_depend_on_one_another_keep_their_noise(privacy: Any) -> None:
    rng = np.random.default_rng(0)
    M, A, C = rng.normal(size=(4, 2)), rng.normal(size=(2, 6)), rng.normal(size=(5, 2))
    strategy = PairStrategy(MatrixWorkload(C @ A), M @ A, C @ np.linalg.pinv(M), privacy=privacy)
    budget = strategy.noise.reference
    expected = np.sqrt(strategy.per_query_variance(**budget.arguments))
    law = prepared(strategy, Neighbours(), float(budget), None).reader
    assert law.standard_errors == pytest.approx(expected, rel=1e-3)
    exact = prepared(strategy, Neighbours(), float(budget), None, exactly=True).reader
    assert exact.standard_errors.max() > 1.1 * expected.max()  # what rounding makes independent is no information
