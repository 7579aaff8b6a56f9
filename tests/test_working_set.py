"""The low-rank program on working sets of columns: exact on all of them, and as good as with all of them."""

from __future__ import annotations

import numpy as np
import pytest

from batchdp import low_rank, optimize, workloads
from batchdp.linalg.matrix import Dense, dense
from batchdp.optimizer.families.low_rank import fast
from batchdp.optimizer.families.low_rank.fast import first_measure, least_measure
from batchdp.workloads.matrix import Pair


def gaussian_columns(rows: int, columns: int) -> Dense:
    return np.random.default_rng(0).standard_normal((rows, columns))


def solved(R: Dense, rank: int) -> Pair:
    pair = fast.solve_working_set(R, rank, fast.Rules(0.03 * rank), seed=0)
    assert pair is not None
    L, B = dense(pair.measure), pair.reconstruct
    assert np.linalg.norm(R - B @ L) <= 1e-11 * np.linalg.norm(R)
    assert np.abs(L).sum(axis=0).max() <= 1 + 1e-12
    return pair


@pytest.mark.parametrize("extra", [0, 2])
def test_few_columns_do_for_all(extra: int) -> None:
    R = gaussian_columns(6, 4000)
    rank = 6 + extra
    assert fast.pays(4000, 6, rank)
    pair = solved(R, rank)
    everything = fast.solve(R, first_measure(R, rank, np.random.default_rng(0)), fast.Rules(0.03 * rank))
    assert everything is not None
    assert pair.error <= 1.05 * everything.error


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_the_scale_of_the_workload_is_no_matter(scale: float) -> None:
    R = gaussian_columns(4, 3000)
    assert solved(scale * R, 4).error / scale / scale == pytest.approx(solved(R, 4).error, rel=0.02)


def test_hostile_columns() -> None:
    R = gaussian_columns(4, 1000)
    on_a_sphere = R / np.linalg.norm(R, axis=0)
    twice = np.hstack([R, R])
    # All the long columns lie in a plane: the outermost ones alone would not span.
    flat = np.hstack([np.vstack([R[:2], np.zeros((2, 1000))]), 1e-6 * R[:, :4]])
    for columns in (on_a_sphere, twice, flat):
        solved(columns, 4)
        solved(columns, 5)


@pytest.mark.parametrize("columns", [3, 6, 9])
def test_a_working_set_smaller_than_the_rank(columns: int) -> None:
    rank = 8
    R = gaussian_columns(3, columns)
    solved(R, rank)


def test_least_measure_is_exact_and_finds_the_shortest() -> None:
    from scipy.optimize import linprog

    B, R = gaussian_columns(4, 7), gaussian_columns(4, 40)
    L = least_measure(B, R, enough=0.0)
    np.testing.assert_allclose(B @ L, R, atol=1e-11)
    shortest = [linprog(np.ones(14), A_eq=np.hstack([B, -B]), b_eq=column).fun for column in R.T]
    norms = np.abs(L).sum(axis=0)
    assert np.all(norms >= np.array(shortest) * (1 - 1e-9))
    assert np.max(norms / shortest) <= 1.02


def test_the_registered_mechanism_uses_it() -> None:
    strategy = low_rank(workloads.related(12, 4096, 6))
    assert strategy.residual <= 1e-9
    assert strategy.sensitivity == pytest.approx(1.0)


@pytest.mark.slow
def test_tens_of_thousands_of_columns() -> None:
    workload = workloads.related(256, 65536, 25)
    strategy = optimize(workload)
    assert strategy.expected_squared_error(epsilon=1) <= 2 * workload.norm**2 / 60
