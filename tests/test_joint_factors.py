"""Factors that look at several columns together: as products, planned, answered, stored."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp.errors import StrategyError, WorkloadError
from batchdp.optimizer.residual import groups
from batchdp.optimizer.residual.limits import in_full, limit_of
from batchdp.optimizer.residual.search import fewest_split, split_by, tables_apart
from batchdp.optimizer.residual.solver import solve
from batchdp.optimizer.residual.splits import Batch
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors

Dense = NDArray[np.float64]
RHO = 0.5


def affine(n: int, m: int) -> Dense:
    a, b = np.divmod(np.arange(n * m), m)
    return np.array([a + b <= c for c in range(n + m - 1)], dtype=float)


def prefix(n: int) -> Dense:
    return np.tril(np.ones((n, n)))


def drawn(seed: int) -> KroneckerWorkload:
    """A batch with joint factors that overlap, of two and three columns, beside single ones."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(2, 5, size=4))
    every = [*combinations(range(4), 1), *combinations(range(4), 2), *combinations(range(4), 3)]
    terms = []
    for _ in range(int(rng.integers(2, 6))):
        left, term = list(range(4)), {}
        for looked in (every[k] for k in rng.permutation(len(every))):
            if set(looked) <= set(left) and rng.random() < 0.6:
                rows = int(rng.integers(1, 5))
                cells = int(np.prod([sizes[c] for c in looked]))
                order = tuple(int(c) for c in rng.permutation(looked))
                term[order if len(order) > 1 else order[0]] = rng.integers(0, 3, size=(rows, cells)).astype(float)
                left = [c for c in left if c not in looked]
        terms.append(term)
    terms.append({(0, 1): affine(sizes[0], sizes[1]), 2: prefix(sizes[2])})
    weights = rng.uniform(0.5, 2, size=len(terms))
    return in_factors(sizes, terms, weights=weights)


def brute(workload: KroneckerWorkload) -> Dense:
    """W by going through all records."""
    cells = np.indices(workload.sizes).reshape(len(workload.sizes), -1).T
    tables = range(len(workload.tables))
    return np.concatenate(
        [np.stack([workload.answers_of(t, cell).reshape(-1) for cell in cells], axis=1) for t in tables]
    )


def test_a_joint_factor_asks_what_its_rows_say() -> None:
    F, G = np.arange(24.0).reshape(2, 12), np.array([[1.0, 0.0]])
    W = batchdp.workloads.products((3, 2, 4), [{(2, 0): F, 1: G}, {(0, 1): np.kron(prefix(3), np.ones((1, 2)))}])
    x = np.random.default_rng(0).integers(0, 9, size=(3, 2, 4)).astype(float)
    first = np.einsum("rca,ab,abc->r", F.reshape(2, 4, 3), np.ones((3, 2)) * G, x)
    second = np.cumsum(x.sum(axis=(1, 2)))  # which does not look at column 1, and is a factor of one column
    assert np.allclose(W.matrix @ x.reshape(-1), np.concatenate([first, second]))
    assert W.structure.joint == ((0, 2),)
    assert [table.columns for table in W.structure.tables] == [(0, 1, 2), (0,)]


@pytest.mark.parametrize("seed", range(8))
def test_matrices_cells_and_records_agree(seed: int) -> None:
    workload = drawn(seed)
    W = brute(workload)
    assert np.array_equal(workload.matrix.toarray(), W)
    x = np.random.default_rng(seed).integers(0, 5, size=workload.sizes).astype(float)
    for t, table in enumerate(workload.tables):
        others = tuple(c for c in range(4) if c not in table.columns)
        assert np.allclose(workload.ask(t, x.sum(axis=others)).reshape(-1), workload.matrix_of(t) @ x.reshape(-1))
    assert workload._filled == np.count_nonzero(W)


def dense_error(strategy: ResidualStrategy) -> float:
    """The weighted error from L and B as matrices, which must reproduce W."""
    L, B, W = strategy.measure, strategy.reconstruct, brute(strategy.workload)
    assert np.abs(B @ L - W).max() <= 1e-9 * np.abs(W).max()
    assert np.square(L).sum(axis=0).max() <= 1 + 1e-9
    sizes = [table.queries for table in strategy.workload.tables]
    return float(np.repeat(strategy.workload.weights, sizes) @ np.square(B).sum(axis=1))


@pytest.mark.parametrize("seed", range(8))
def test_nothing_split_is_the_optimum_of_the_matrix(seed: int) -> None:
    workload = drawn(seed)
    found = batchdp.optimize(workload, "zcdp", tolerance=1e-3)
    assert dense_error(found) == pytest.approx(found.total, rel=1e-6)
    weights = np.repeat(workload.weights, [table.queries for table in workload.tables])
    whole = batchdp.optimize(batchdp.MatrixWorkload(workload.matrix, weights=weights), "zcdp", tolerance=1e-4)
    assert found.total <= whole.expected_squared_error(rho=RHO) * 1.01
    assert found.limit <= whole.expected_squared_error(rho=RHO) * (1 + 1e-6)


@pytest.mark.parametrize("which", range(1, 16))
def test_any_columns_can_be_split_by_any_measures(which: int) -> None:
    workload = drawn(which)
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    rng = np.random.default_rng(which)
    measures = {i: rng.dirichlet(np.ones(batch.columns[i].orbits)) for i in batch.wide() if which >> i & 1}
    from batchdp.optimizer.residual.optimizing import _strategy

    for found in (split_by(batch, terms, measures), tables_apart(batch, terms)):
        strategy = _strategy(batch, found, 0.0)
        assert dense_error(strategy) == pytest.approx(found.total, rel=1e-6)
        wide = [np.broadcast_to(strategy.distinct_variances(t), own.shape) for t, own in enumerate(workload.tables)]
        at_once = np.concatenate([own.reshape(-1) for own in wide])
        assert np.allclose(at_once, np.square(strategy.reconstruct).sum(axis=1))


@pytest.mark.parametrize("seed", range(6))
def test_limits_are_below_the_optimum_and_the_full_one_is_that_of_the_matrix(seed: int) -> None:
    workload = drawn(seed)
    batch = Batch(workload)
    terms = batch.terms(workload.weights)
    rng = np.random.default_rng(seed)
    measures = {i: rng.dirichlet(np.ones(batch.columns[i].orbits)) for i in batch.wide()}
    upper = split_by(batch, terms, {}, tolerance=1e-5).total
    assert limit_of(batch, terms, [measures]) <= upper * (1 + 1e-9)
    weights = np.sqrt(np.repeat(workload.weights, [table.queries for table in workload.tables]))
    mass: Any = np.ones(1)
    for i, column in enumerate(batch.columns):
        own = measures.get(i, batch.uniform(i))[column.orbit] / column.counts[column.orbit]
        mass = np.kron(mass, own[column.value] / column.times[column.value])
    scaled = weights[:, None] * brute(workload) * np.sqrt(mass)
    nuclear = np.linalg.svd(scaled, compute_uv=False).sum()
    assert in_full(batch, terms, measures) == pytest.approx(nuclear**2, rel=1e-6)


@pytest.mark.parametrize("most", [10, 30, 100, 1000])
@pytest.mark.parametrize("kind", ["pairs", "same", "joint"])
def test_splits_that_cannot_fit_are_not_tried_and_no_others_are_left_out(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("groups", "search"):
        monkeypatch.setattr(f"batchdp.optimizer.residual.{module}.MOST_CLASSES", most)
    prefix = np.tril(np.ones((4, 4)))
    terms: list[Any] = [{i: prefix, j: prefix} for i, j in combinations(range(4), 2)]
    if kind == "same":  # one column has the same factor in all tables
        terms = [{**own, 4: prefix} for own in terms]
    if kind == "joint":
        terms.append({(0, 4): np.random.default_rng(0).random((5, 16))})
    batch = Batch(in_factors((4,) * 5, terms))
    asked, wide = batch.terms(batch.workload.weights), batch.wide()
    fits = []
    for count in range(len(wide) + 1):
        try:
            split_by(batch, asked, {i: batch.uniform(i) for i in wide[:count]})
            fits.append(count)
        except groups.TooManyClassesError:
            pass
    assert fewest_split(batch, asked) <= min(fits, default=len(wide))
    if kind == "pairs":
        assert fewest_split(batch, asked) == min(count for count in range(5) if count >= 3 or 4 ** (4 - count) <= most)


def test_ten_columns_whose_pairs_overlap_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (4,) * 6
    terms: list[Any] = [{i: prefix(4)} for i in range(6)]
    terms += [{own: affine(4, 4)} for own in combinations(range(6), 2)]
    workload = in_factors(sizes, terms)
    calls = []

    def counted(*given: Any, **options: Any) -> Any:
        calls.append(1)
        return solve(*given, **options)

    monkeypatch.setattr(groups, "MOST_CLASSES", 100)
    monkeypatch.setattr(groups, "solve", counted)
    found = batchdp.optimize(workload, "zcdp")
    assert found.residual < 1e-12
    assert max(len(part.columns) for part in found.parts) < 6
    assert len(calls) < 60  # what repeats is solved once
    apart = found.expected_squared_error(rho=RHO)
    assert found.lower_bound(rho=RHO) <= apart <= 1.3 * found.lower_bound(rho=RHO)


def test_a_release_of_joint_factors_is_stored_read_made_consistent_and_audited(tmp_path: Path) -> None:
    sizes = (3, 4, 2, 3)
    terms: list[Any] = [{(0, 1): affine(3, 4), 2: np.eye(2)}, {(1, 3): affine(4, 3)}, {0: prefix(3)}]
    workload = in_factors(sizes, terms, names=["both", "other", "single"])
    strategy = batchdp.optimize(workload, "zcdp")
    codes = np.random.default_rng(1).integers(0, sizes, size=(5000, 4))
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=1000.0)
    release = batchdp.answer(strategy, codes, rho=RHO, ledger=ledger)
    x = np.zeros(sizes)
    np.add.at(x, tuple(codes.T), 1)
    truth = workload.matrix @ x.reshape(-1)
    assert np.all(np.abs(release.values - truth) < 6 * release.standard_errors + 1e-9)
    assert list(release.table("both").columns[:2]) == ["a1 & a2", "a3"]
    release.save(tmp_path / "release")
    again = batchdp.load_release(tmp_path / "release")
    assert np.array_equal(again.values, release.values)
    assert np.allclose(again.standard_errors, release.standard_errors)
    assert cast(Any, again.reader).workload.joint == workload.joint
    assert np.all(release.consistent().values >= -1e-6)
    assert len(release.denoised().values) == len(truth)
    assert all(finding.held for finding in batchdp.audit(strategy, rho=RHO).findings)


def test_what_joint_factors_cannot_do_is_refused_with_a_remedy() -> None:
    products = batchdp.workloads.products
    with pytest.raises(WorkloadError, match="once more; give one factor for all columns together"):
        products((2, 2), [{(0, 1): np.eye(4), 1: np.eye(2)}])
    with pytest.raises(WorkloadError, match="is not a column"):
        products((2, 2), [{(0, 2): np.eye(4)}])
    with pytest.raises(WorkloadError, match="names no column"):
        products((2, 2), [{(): np.eye(1)}])
    with pytest.raises(WorkloadError, match="more than 1,000,000; group them"):
        products((2000, 2000), [{(0, 1): np.ones((1, 4))}])
    with pytest.raises(WorkloadError, match="columns 0, 1 have 4 values"):
        products((2, 2), [{(0, 1): np.eye(3)}])
    with pytest.raises(StrategyError, match='privacy="zcdp"'):
        batchdp.optimize(in_factors((2, 2, 2), [{(0, 1): affine(2, 2)}]))


def test_laplace_noise_plans_what_fits_into_a_matrix() -> None:
    W = batchdp.workloads.products((3, 3, 2), [{(0, 1): affine(3, 3)}, {(1, 2): affine(3, 2)}])
    found = batchdp.optimize(W)
    assert found.residual < 1e-9
