from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from batchdp import (
    STRATEGIES,
    LatticeError,
    Ledger,
    MatrixWorkload,
    PairStrategy,
    StrategyError,
    WorkloadError,
    answer,
    audit,
    compare,
    optimize,
    workloads,
)
from batchdp.linalg.matrix import Plain, column_norms, dense, plain, row_maxima, row_residuals, row_squares, scale_rows
from batchdp.linalg.product import CellMap, Product
from batchdp.mechanism.lattice import quantise_cells
from batchdp.mechanism.measure import MOST_COUNT, merge
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.p_identity import p_identity
from batchdp.workloads import ready
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import reduce
from mechanisms import measured


def _merging(classes: np.ndarray, factors: np.ndarray, rows: int) -> sparse.csc_array:
    return CellMap(classes, factors, rows).matrix()


def test_cells_merged_alike_are_known_by_what_they_say_and_not_by_who_made_them() -> None:
    """A strategy read from a file, or replaced, has factors of its own."""
    one, same = (CellMap(np.array([0, 1, 1]), np.ones(3), 2) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    for classes, factors, count in (([0, 1, 0], [1, 1, 1], 2), ([0, 1, 1], [1, 1, 2], 2), ([0, 1, 1], [1, 1, 1], 3)):
        assert one != CellMap(np.array(classes), np.array(factors, dtype=float), count)
    W = MatrixWorkload(Product(np.eye(2), one.matrix()))
    strategy = PairStrategy(W, Product(np.eye(2), same.matrix()), np.eye(2))
    assert quantise_cells(strategy, largest_total=1000).merging is not None


def chosen(rng: np.random.Generator, rows: int, distinct: int, cells: int, *, scaled: bool, as_sparse: bool) -> Product:
    """Random distinct columns, and a random one for every cell."""
    left: Plain = rng.integers(-2, 3, size=(rows, distinct)).astype(float)
    factors = rng.choice([1.0, -0.5, 0.0, 1 / 3], size=cells) if scaled else np.ones(cells)
    right = _merging(rng.integers(0, distinct, size=cells), factors, distinct)
    return Product(sparse.csr_array(left) if as_sparse else left, right)


def of_factors(rng: np.random.Generator, rows: int, rank: int, columns: int) -> Product:
    return Product(rng.standard_normal((rows, rank)), rng.standard_normal((rank, columns)))


@given(seed=st.integers(0, 2**20), scaled=st.booleans(), as_sparse=st.booleans(), low_rank=st.booleans())
def test_operations_on_a_product_are_those_on_its_entries(
    seed: int, scaled: bool, as_sparse: bool, low_rank: bool
) -> None:
    rng = np.random.default_rng(seed)
    m, p, n = rng.integers(1, 6, size=3)
    M = of_factors(rng, m, p, n) if low_rank else chosen(rng, m, p, n, scaled=scaled, as_sparse=as_sparse)
    D = dense(M.left) @ dense(M.right)
    assert M.shape == D.shape
    assert dense(M) == pytest.approx(D)
    assert dense(plain(M)) == pytest.approx(D)
    assert column_norms(M, 1) == pytest.approx(column_norms(D, 1))
    assert column_norms(M, 2) == pytest.approx(column_norms(D, 2))
    assert row_squares(M) == pytest.approx(row_squares(D))
    assert row_maxima(M) == pytest.approx(row_maxima(D))
    factors = rng.standard_normal(m)
    assert dense(scale_rows(M, factors)) == pytest.approx(D * factors[:, None])
    x, y = rng.standard_normal(n), rng.standard_normal((2, m))
    assert M @ x == pytest.approx(D @ x)
    assert y @ M == pytest.approx(y @ D)


@given(seed=st.integers(0, 2**20), same=st.booleans(), as_sparse=st.booleans(), spoiled=st.booleans())
def test_residuals_are_the_same_by_every_route(seed: int, same: bool, as_sparse: bool, spoiled: bool) -> None:
    rng = np.random.default_rng(seed)
    m, p, n, r = rng.integers(1, 7, size=4)
    L = chosen(rng, r, p, n, scaled=not same, as_sparse=False)
    B = rng.integers(-1, 2, size=(m, r)).astype(float)
    W: Any = Product(B @ L.left, L.right) if same else B @ dense(L)
    if as_sparse:
        W = sparse.csr_array(W) if not same else Product(sparse.csr_array(W.left), W.right)
    if spoiled:
        B = B + rng.standard_normal(B.shape)
    direct = np.linalg.norm(dense(W) - B @ dense(L), axis=1)
    found = row_residuals(W, B, L)
    if as_sparse and not same and spoiled:
        assert np.all(found >= direct * (1 - 1e-12))  # may say too much of a row that is wrong anyway
        assert np.all((found > 1e-9) == (direct > 1e-9))
    else:
        assert found == pytest.approx(direct, abs=1e-12)


def test_an_entry_too_much_or_too_little_in_a_sparse_workload_is_noticed() -> None:
    rng = np.random.default_rng(1)
    L = Product(np.eye(3), _merging(np.repeat(np.arange(3), 50), rng.uniform(0.1, 1, 150), 3))
    W = sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]]) @ dense(L))
    B = np.array([[1.0, 0, 2], [0, 3, 0]])
    assert row_residuals(W, B, L) == pytest.approx([0, 0], abs=1e-14)
    less, more = W.tolil(), W.tolil()
    less[0, 7] = 0.0
    more[1, 7] = 1e-5
    assert row_residuals(sparse.csr_array(less), B, L)[0] > 0.05
    assert row_residuals(sparse.csr_array(more), B, L)[1] >= 1e-5


@pytest.fixture
def lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything were large."""
    monkeypatch.setattr(ready, "MANY_ENTRIES", 0)
    monkeypatch.setattr("batchdp.workloads.reduction.MOST_ENTRIES", 0)


def ranges(cells: int = 500) -> MatrixWorkload:
    rng = np.random.default_rng(4)
    first, last = np.sort(rng.integers(0, cells, size=(20, 2)), axis=1).T
    return workloads.intervals(first, last, cells)


def test_intervals_with_few_ends_keep_distinct_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = ranges()
    monkeypatch.setattr(ready, "MANY_ENTRIES", 0)
    factored = ranges()
    assert isinstance(entries.matrix, np.ndarray)
    assert isinstance(factored.matrix, Product)
    assert factored.matrix.left.shape[1] <= 41
    assert np.array_equal(dense(factored.matrix), entries.matrix)
    assert factored.cells == entries.cells == 500
    assert "distinct cells" in repr(factored)
    assert workloads.prefix(10).cells == 10  # all columns differ: nothing to gain
    assert factored.norm == pytest.approx(entries.norm)


@pytest.mark.parametrize(
    ("first", "last"), [([0], [5]), ([-1], [2]), ([3], [2]), ([0.5], [2]), ([0, 1], [2]), ([[0]], [[2]]), ([], [])]
)
def test_what_is_not_an_interval_is_refused(first: Any, last: Any) -> None:
    with pytest.raises(WorkloadError):
        workloads.intervals(first, last, 5)


@pytest.mark.slow
@pytest.mark.usefixtures("lazily")
def test_a_factored_workload_gets_the_strategy_of_its_entries() -> None:
    factored = ranges()
    entries = MatrixWorkload(dense(factored.matrix))
    methods: list[Callable[[MatrixWorkload], PairStrategy]] = [
        p_identity,
        optimize,
        partial(noise_on_data, merged=True),
    ]
    for method in methods:
        lazy, full = method(factored), method(entries)
        assert isinstance(lazy.measurement, Product)
        assert lazy.residual < 1e-12
        assert lazy.sensitivity == pytest.approx(full.sensitivity)
        assert lazy.expected_squared_error(epsilon=1) == pytest.approx(full.expected_squared_error(epsilon=1), rel=1e-6)
        assert lazy.reconstruct @ lazy.measure == pytest.approx(dense(entries.matrix), abs=1e-9)


@pytest.mark.usefixtures("lazily")
def test_a_wide_sparse_workload_keeps_its_strategy_in_factors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = sparse.csc_array(sparse.random_array((30, 12), density=0.3, rng=rng))
    W = columns[:, rng.integers(0, 12, size=2000)] @ sparse.diags_array(rng.choice([1, 0.5, -0.25], size=2000))
    strategy = optimize(MatrixWorkload(W), seconds=0.5)
    assert isinstance(strategy.measurement, Product)
    assert strategy.residual < 1e-12
    assert strategy.reconstruct @ strategy.measure == pytest.approx(W.toarray(), abs=1e-9)
    release = answer(
        strategy, rng.integers(0, 9, size=2000), epsilon=1, ledger=Ledger.create(tmp_path / "budget.db", epsilon=1)
    )
    assert len(release.values) == 30


def many_queries() -> tuple[MatrixWorkload, np.ndarray]:
    rng = np.random.default_rng(5)
    W = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40))
    return MatrixWorkload(W, weights=rng.uniform(0.5, 2, 200)), W


@pytest.mark.usefixtures("lazily")
def test_queries_that_far_outnumber_their_rank_are_reconstructed_in_factors() -> None:
    workload, W = many_queries()
    reduction = reduce(workload)
    strategy = PairStrategy.lifted(reduction, Pair(np.eye(40), reduction.reduced), method="noise on data")
    assert isinstance(strategy.reconstruction, Product)
    assert strategy.reconstruct == pytest.approx(W * reduction.scales)
    assert strategy.per_query_variance(epsilon=1) == pytest.approx(2 * np.sum(W**2, axis=1))


@pytest.mark.usefixtures("lazily")
def test_a_factored_strategy_measures_what_its_entries_would() -> None:
    rng = np.random.default_rng(2)
    strategy = p_identity(ranges())
    lattice = quantise_cells(strategy, largest_total=10**6)
    assert lattice.merging is not None
    assert lattice.cells == 500
    x = rng.integers(0, 1000, size=500)
    full = PairStrategy(MatrixWorkload(dense(strategy.workload.matrix)), strategy.measure, strategy.reconstruct)
    same = quantise_cells(full, largest_total=10**6)
    assert measured(lattice, x) == measured(same, x)
    assert lattice.column_sums == same.column_sums
    assert lattice.bias_bound == pytest.approx(same.bias_bound, rel=1e-3)
    far = np.full(500, MOST_COUNT)
    assert max(merge(lattice, far)) == MOST_COUNT  # never beyond 63 bits, whatever the table holds
    assert audit(strategy, epsilon=1, runs=2000).passed


@pytest.mark.usefixtures("lazily")
def test_a_factored_strategy_answers(tmp_path: Path) -> None:
    strategy = p_identity(ranges())
    x = np.random.default_rng(3).integers(0, 1000, size=500)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1)
    release = answer(strategy, x, epsilon=1, ledger=ledger)
    truth = dense(strategy.workload.matrix) @ x
    assert np.all(np.abs(release.values - truth) < 12 * release.standard_errors)
    with pytest.raises(Exception, match="500"):
        answer(strategy, x[:40], epsilon=1, ledger=ledger)


def test_a_product_must_choose_one_column_a_cell() -> None:
    for right in (np.ones((2, 3)), sparse.csc_array(np.ones((2, 3))), 2 * _merging(np.zeros(3, int), np.ones(3), 2)):
        with pytest.raises(WorkloadError, match="choose one column"):
            MatrixWorkload(Product(np.ones((4, 2)), right))
    good = Product(np.ones((4, 2)), _merging(np.array([0, 1, 1]), np.ones(3), 2))
    assert MatrixWorkload(good).cells == 3
    with pytest.raises(WorkloadError, match="one block"):
        MatrixWorkload(good, blocks=(1, 2))
    with pytest.raises(WorkloadError, match="do not fit"):
        MatrixWorkload(Product(np.ones((4, 5)), good.right))
    with pytest.raises(WorkloadError, match="NaN"):
        MatrixWorkload(Product(np.full((4, 2), np.nan), good.right))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_mechanisms_on_a_factored_workload_are_right_or_refuse(name: str, lazily: None) -> None:
    workload = ranges(60)
    strategy = STRATEGIES[name](workload)
    assert isinstance(workload.matrix, Product)
    assert strategy.reconstruct @ strategy.measure == pytest.approx(dense(workload.matrix), abs=1e-8)
    if name in ("wavelet", "hierarchical", "matrix-mechanism"):
        many = workloads.ranges(600, 1_000_000)
        with pytest.raises(WorkloadError, match="GiB"):
            STRATEGIES[name](many)


def test_what_does_not_fit_into_memory_is_said() -> None:
    wide = MatrixWorkload(sparse.csr_array((np.ones(2), ([0, 999], [5, 7])), shape=(1000, 1_000_000)))
    with pytest.raises(WorkloadError, match="7 GiB as an array"):
        dense(wide.matrix)
    with pytest.raises(StrategyError, match="GiB as an array"):
        _ = noise_on_data(MatrixWorkload(wide.matrix[:2])).measure  # type: ignore[index]


@pytest.mark.parametrize("ask", [optimize, lambda W: optimize(W, "zcdp"), compare])
def test_matrices_that_nothing_can_work_on_are_refused_at_once(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkloadError, match=r"30,000 × 30,000 is 7 GiB as an array.*scipy\.sparse"):
        ask(np.broadcast_to(np.ones(1), (30_000, 30_000)))

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("batchdp.workloads.reduction.merge_parallel", full)
    with pytest.raises(WorkloadError, match=r"does not fit into the memory of this machine; ask fewer queries"):
        ask(np.tri(4))


def test_factors_of_small_integers_do_not_overflow(tmp_path: Path) -> None:
    right = _merging(np.array([0, 0, 1, 1]), np.ones(4), 2)
    workload = MatrixWorkload(Product(np.array([[-128.0, 0], [0, -128.0]]), right))
    assert isinstance(workload.matrix, Product)
    small = np.array([[-128, 0], [0, -128]], dtype=np.int8)
    lefts: list[Any] = [small, sparse.csr_array(small), sparse.coo_array(small)]
    for left in lefts:
        strategy = PairStrategy(workload, Product(left, workload.matrix.right), np.eye(2))
        assert strategy.sensitivity == 128
        lattice = quantise_cells(strategy, largest_total=10**6)
        assert np.abs(lattice.integers.data).max() <= 2**lattice.bits
        one, other = (measured(lattice, np.array([count, 0, 0, 0]))[0] for count in (65536, 65537))
        assert abs(one - other) == lattice.sensitivity
    tens: Any = np.full((1, 1), 100, dtype=np.int8)
    doubled = PairStrategy(MatrixWorkload([[200.0]]), Product(tens, np.full((1, 1), 2, dtype=np.int8)), np.eye(1))
    assert doubled.sensitivity == 200


def test_products_that_do_not_fit_are_refused() -> None:
    workload = MatrixWorkload(Product(np.eye(2), _merging(np.array([0, 1, 1]), np.ones(3), 2)))
    assert isinstance(workload.matrix, Product)
    right = workload.matrix.right
    for left in (np.ones((2, 3)), np.ones((2, 0)), np.eye(2) * 1j, "text", Product(np.eye(2), np.eye(2))):
        with pytest.raises((StrategyError, np.exceptions.ComplexWarning)):
            PairStrategy(workload, Product(left, right), np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="more than two"):
        MatrixWorkload(Product(Product(np.eye(2), np.eye(2)), right))  # type: ignore[arg-type]


def test_a_column_that_no_cell_has_does_not_count() -> None:
    left = np.array([[1.0, 0, 100], [0, 1, 100]])
    workload = MatrixWorkload(Product(left, _merging(np.array([0, 1]), np.ones(2), 3)))
    strategy = optimize(workload, "zcdp")
    assert strategy.expected_squared_error(rho=0.5) == pytest.approx(2.0)
    assert strategy.lower_bound(rho=0.5) <= 2.0 * (1 + 1e-9)
    assert quantise_cells(strategy, largest_total=1000).integers.shape[1] == 2


@pytest.mark.usefixtures("lazily")
def test_every_kind_of_search_keeps_the_workloads_own_merging() -> None:
    workload = ranges(60)
    assert isinstance(workload.matrix, Product)
    again = MatrixWorkload(workload.matrix)
    assert isinstance(again.matrix, Product)
    assert again.matrix.right is workload.matrix.right
    for options in ({}, {"objective": "max"}, {"privacy": "zcdp"}, {"privacy": "zcdp", "objective": "max"}):
        found = optimize(workload, seconds=0.5, **options)  # type: ignore[call-overload]
        assert quantise_cells(found, largest_total=1000).merging is not None


def test_a_merging_that_was_tampered_with_is_refused() -> None:
    workload = MatrixWorkload(Product(np.eye(2), _merging(np.array([0, 0, 0, 1, 1, 1]), np.ones(6), 2)))
    assert isinstance(workload.matrix, Product)
    strategy = copy.deepcopy(PairStrategy(workload, Product(np.eye(2), workload.matrix.right), np.eye(2)))
    assert isinstance(strategy.workload.matrix, Product)
    sparse.csc_array(strategy.workload.matrix.right).data[:] = 1000
    with pytest.raises(LatticeError, match="merging"):
        quantise_cells(strategy, largest_total=10**6)
    data, index, ends = np.ones(3), np.zeros(3, dtype=np.int32), np.arange(4, dtype=np.int32)
    views = sparse.csc_array((data[:], index[:], ends[:]), shape=(1, 3))
    for part in (views.data, views.indices, views.indptr):
        part.flags.writeable = False
    frozen_twice = MatrixWorkload(Product(np.ones((1, 1)), views))
    data[:] = 7
    assert np.array_equal(dense(frozen_twice.matrix), np.ones((1, 3)))


def test_a_chain_of_nearly_parallel_columns_is_not_one_class() -> None:
    W = np.vstack([np.ones(2000), 1 + np.arange(2000) * 3e-12])
    assert 100 < reduce(MatrixWorkload(W)).columns < 2000
    for privacy in ("pure", "zcdp"):
        assert optimize(W, privacy, seconds=0.3).residual < 1e-9


def test_different_columns_that_look_alike_end_in_noise_on_data() -> None:
    """The mixtures are known beforehand, so somebody can make columns that they do not tell apart."""
    rng = np.random.default_rng(1)
    W = rng.uniform(0.6, 0.9, size=(8, 7))
    mixtures = np.random.default_rng(0).standard_normal((8, 4))
    blind = rng.standard_normal(8)
    blind -= mixtures @ np.linalg.lstsq(mixtures, blind, rcond=None)[0]
    W[:, 6] = 0.8 * W[:, 0] + 0.02 * blind
    strategy = optimize(W, seconds=0.5)
    assert strategy.residual < 1e-9
    assert strategy.reconstruct @ strategy.measure == pytest.approx(W)
