"""The parts of p-Identity: its error, its products, its descent and its exact end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from scipy import sparse

from batchdp import MatrixWorkload, optimize, workloads
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import in_threads
from batchdp.optimizer.families.p_identity import p_identity, tournament
from batchdp.optimizer.families.p_identity.problem import (
    SPARSE_COLUMNS,
    error,
    minimise,
    pack,
    polish_shared,
    products,
    reconstruct,
    unpack,
    whole,
)
from batchdp.optimizer.families.p_identity.tournament import hop, split
from batchdp.workloads.reduction import reduce


def some(rows: int, columns: int, seed: int = 0) -> Dense:
    return np.random.default_rng(seed).random((rows, columns))


def test_the_error_is_that_of_the_pseudo_inverse_and_its_derivatives_are_right() -> None:
    R, P, e = some(4, 9), some(3, 9, 1) - 0.3, 1 + some(1, 9, 2)[0]
    value, by_P, by_e = error(whole(R), P, e)
    L = np.vstack([np.eye(9), P]) / e
    assert value == pytest.approx(np.linalg.norm(R @ np.linalg.pinv(L)) ** 2)
    step = 1e-6
    for i, j in ((0, 0), (2, 5)):
        moved = P.copy()
        moved[i, j] += step
        assert 2 * by_P[i, j] == pytest.approx((error(whole(R), moved, e)[0] - value) / step, rel=1e-4)
    moved = e.copy()
    moved[3] += step
    assert 2 * by_e[3] == pytest.approx((error(whole(R), P, moved)[0] - value) / step, rel=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_differences_of_ranges_are_the_same_workload(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, 5000, size=(900, 2)), axis=1)
    W = ((ends[:, :1] <= np.arange(5000)) & (np.arange(5000) <= ends[:, 1:])).astype(float)
    reduction = reduce(MatrixWorkload(W, weights=rng.uniform(0.5, 2, size=900) if weighted else None))
    found = products(reduction)
    assert 4 * found.work < reduction.reduced.size  # in differences
    T, e = some(3, reduction.columns), 1 + some(1, reduction.columns, 1)[0]
    ours, theirs = error(found, T, e), error(whole(reduction.reduced), T, e)
    assert ours[0] == pytest.approx(theirs[0])
    for slope, same in zip(ours[1:], theirs[1:], strict=True):
        assert np.allclose(slope, same, atol=1e-9 * np.abs(same).max())


def test_small_and_unordered_workloads_stay_arrays() -> None:
    for workload in (workloads.ranges(40, 80), MatrixWorkload(some(300, 4000))):
        reduction = reduce(workload)
        assert products(reduction).work == reduction.reduced.size  # as it is


def test_the_descent_stops_at_the_bounds() -> None:
    target = some(4, 5) - 0.5

    def distance(x: Dense) -> tuple[float, Dense]:
        return float(np.sum((x - target) ** 2)) + 1, 2 * (x - target)

    ended = minimise(distance, some(4, 5, 1), 50, tolerance=1e-15)
    assert np.allclose(ended.point, np.maximum(target, 0), atol=1e-6)


@pytest.mark.parametrize("shared", [0, 3])
def test_the_reconstruction_is_the_pseudo_inverse(shared: int) -> None:
    R, packed = some(4, 9), pack(some(shared, 9, 1) - 0.2)
    B, L = reconstruct(R, packed), dense(unpack(packed))
    assert B is not None
    assert np.allclose(B, R @ np.linalg.pinv(L))
    assert np.linalg.norm(R - B @ L) <= 1e-14 * np.linalg.norm(R)
    assert np.abs(L).sum(axis=0).max() == pytest.approx(1)


def test_a_vanished_diagonal_has_no_reconstruction() -> None:
    packed = pack(some(2, 5))
    packed[0, 0] = 0.0
    assert reconstruct(some(3, 5), packed) is None


def test_freeing_the_signs_never_loses() -> None:
    R, packed = whole(some(6, 12) - 0.5), pack(some(2, 12, 1))
    before = error(R, packed[1:] / packed[0], 1 / packed[0])[0]
    assert polish_shared(R, packed, 30).value <= before


def test_splitting_keeps_every_column_within_its_budget() -> None:
    packed = split(pack(some(5, 20)))
    assert packed.shape == (1 + 8, 20)
    assert np.abs(packed).sum(axis=0) == pytest.approx(np.ones(20))


def test_many_columns_are_measured_sparsely() -> None:
    cells = SPARSE_COLUMNS + 500
    W = np.zeros((3, cells))
    W[0], W[1, ::2], W[2] = 1.0, 1.0, np.arange(cells) / 7
    for strategy in (p_identity(W, shared=1, max_rounds=5), optimize(W, seconds=0.5)):
        assert strategy.residual <= 1e-9
        assert sparse.issparse(strategy.measurement) or strategy.method == "low-rank"


def test_the_number_of_cores_does_not_change_the_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (1, 3):
        monkeypatch.setattr("batchdp.linalg.threads._cores", lambda cores=cores: cores)
        found.append(optimize(workloads.ranges(30, 60), seconds=1.0, seed=1))
    assert np.array_equal(found[0].measure, found[1].measure)
    assert found[0].rounds == found[1].rounds


def test_threads_keep_the_order_and_drop_what_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.linalg.threads._cores", lambda: 2)
    begun = threading.Semaphore(0)

    def slow(item: int) -> int:
        begun.release()
        time.sleep(0.02 / item)
        return item

    assert list(in_threads(slow, range(1, 9), entries=10**6)) == list(range(1, 9))
    results = in_threads(slow, [1] * 1000, entries=10**6)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    assert begun._value < 100


@pytest.mark.slow
def test_thousands_of_ranges_over_a_million_cells() -> None:
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, 10**6, size=(1200, 2)), axis=1)
    cuts = np.unique(np.concatenate([ends[:, 0], ends[:, 1] + 1]))
    W = ((ends[:, :1] <= cuts[:-1]) & (cuts[:-1] <= ends[:, 1:])).astype(float)
    strategy = optimize(W, seconds=20)
    assert strategy.residual <= 1e-9
    assert strategy.expected_squared_error(epsilon=1.0) / 1200 < 300  # the wavelet on a million cells: about 2900


def test_a_strategy_that_shares_nothing_can_be_measured_moved_and_split() -> None:
    matrix = np.random.default_rng(0).standard_normal((4, 9))
    R = whole(matrix)
    packed = pack(np.zeros((3, 9)))
    value, by_shared, by_diagonal = error(R, np.zeros((0, 9)), np.ones(9))
    assert value == pytest.approx(float(np.sum(matrix**2)))
    assert by_shared.shape == (0, 9)
    assert by_diagonal == pytest.approx(R.squares)
    for moved in (split(packed), hop(packed, np.random.default_rng(0))):
        assert np.abs(moved).sum(axis=0) == pytest.approx(np.ones(9))
        assert len(moved) == 2


def test_a_workload_that_gains_nothing_by_sharing_is_searched_to_the_end() -> None:
    workload = workloads.related(64, 1024, 32)
    assert optimize(workload, seconds=3).expected_squared_error(epsilon=1) <= 2 * workload.norm**2


def test_leading_vectors_are_found_where_the_quick_routine_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    R = some(6, 9)
    quick = tournament._right_vectors(R, 3)

    def gives_up(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("Internal Error.")

    monkeypatch.setattr(tournament, "eigh", gives_up)
    slow = tournament._right_vectors(R, 3)
    assert np.abs(np.abs(np.sum(quick * slow, axis=1)) - 1).max() < 1e-9
