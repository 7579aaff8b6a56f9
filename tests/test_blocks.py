"""Workloads in blocks: a record has a cell in every block, so what it moves adds up over the blocks."""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from batchdp import STRATEGIES, LatticeError, MatrixWorkload, PairStrategy, WorkloadError, audit, optimize, workloads
from batchdp.audits.attack import attack
from batchdp.audits.exact import exact, rederive
from batchdp.linalg.matrix import dense
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.lattice import Lattice, quantise_cells
from batchdp.mechanism.measurement import LARGEST, Neighbours
from batchdp.optimizer.blocks import optimize_blocks
from batchdp.optimizer.options import Options
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise, noise_of
from batchdp.strategies.blocks import assembled, block_by_block, error_of
from mechanisms import drawn, measured, prepared

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "60"))
KINDS: tuple[Any, ...] = ("pure", "zcdp")
BUDGETS: dict[str, dict[str, Any]] = {"pure": {"epsilon": 1.0}, "zcdp": {"rho": 0.5}}


def diagonal(*parts: np.ndarray) -> MatrixWorkload:
    """One block for every matrix; no query sees two of them."""
    return MatrixWorkload(sparse.block_diag(parts, format="csr"), blocks=[part.shape[1] for part in parts])


THREE = diagonal(dense(workloads.prefix(5).matrix), np.eye(2), np.array([[3.0, 1.0, 0.5], [0.0, 1.0, -1.0]]))


@cache
def best(privacy: Any) -> PairStrategy:
    return optimize(THREE, privacy=privacy, seconds=0.5)


# ── the value ──


@pytest.mark.parametrize("blocks", [[2], [2, 2], [3, 0], [4, -1], [1.5, 1.5], ["3"], 3, [True, 2], [3, 3]])
def test_blocks_that_do_not_fit_are_refused(blocks: Any) -> None:
    with pytest.raises(WorkloadError, match="blocks"):
        MatrixWorkload(np.eye(3), blocks=blocks)


def test_parts_are_the_blocks_with_their_queries() -> None:
    W = MatrixWorkload([[1, 0, 2], [0, 0, 3], [0, 0, 0]], names=["a", "b", "c"], weights=[1, 2, 3], blocks=[2, 1])
    parts = list(W.parts())
    assert [rows.tolist() for rows, _, _ in parts] == [[0], [0, 1]]
    assert [part.names for _, _, part in parts] == [("a",), ("a", "b")]
    assert [dense(part.matrix).tolist() for _, _, part in parts] == [[[1, 0]], [[2], [3]]]
    assert [np.asarray(part.weights).tolist() for _, _, part in parts] == [[1], [1, 2]]
    assert repr(W) == "Workload(3 queries × 3 cells in 2 blocks, dense, weighted)"


def test_a_block_without_queries_is_measured_by_nothing() -> None:
    W = MatrixWorkload([[1.0, 0.0, 0.0]], blocks=[1, 2])
    strategy = optimize(W)
    assert strategy.expected_squared_error(epsilon=1.0) == pytest.approx(2)
    nothing = optimize(MatrixWorkload(np.zeros((2, 4)), blocks=[2, 2]))
    assert nothing.measurements == 0
    assert nothing.sensitivity == 0


def test_blocks_take_one_thread_of_linear_algebra() -> None:
    """Dozens of small ones in two threads took ten times as long beside other work."""

    def of_block(part: MatrixWorkload, _: Options) -> PairStrategy:
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
        return STRATEGIES["noise-on-data"](part)

    with threadpool_limits(2, "blas"):
        assert len(optimize_blocks(THREE, LAPLACE, Options(), of_block).workload.blocks) == 3


# ── sensitivities ──


@st.composite
def measured_blocks(draw: st.DrawFn, spanning: bool | None = None) -> tuple[np.ndarray, tuple[int, ...]]:
    """Integer measurements, and blocks of their columns."""
    blocks = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    spans = draw(st.booleans()) if spanning is None else spanning
    entries = st.integers(-(2**40), 2**40) | st.integers(-2, 2)
    if spans:
        rows = draw(st.integers(1, 3))
        Q = [[draw(entries) for _ in range(sum(blocks))] for _ in range(rows)]
        return np.array(Q, dtype=np.int64), blocks
    parts = [np.array([[draw(entries) for _ in range(size)] for _ in range(2)], dtype=np.int64) for size in blocks]
    return sparse.block_diag(parts).toarray().astype(np.int64), blocks


def moves(Q: np.ndarray, blocks: tuple[int, ...]) -> list[list[Fraction]]:
    """How Q x changes with one record, for all combinations of a cell, or none, in every block."""
    ends = np.cumsum(blocks).tolist()
    cells = [[None, *range(end - size, end)] for end, size in zip(ends, blocks, strict=True)]
    return [
        [sum((Fraction(int(row[j])) for j in chosen if j is not None), Fraction(0)) for row in Q]
        for chosen in product(*cells)
    ]


def lattice_of(Q: np.ndarray, blocks: tuple[int, ...], noise: Noise) -> Lattice:
    W = MatrixWorkload(np.ones((1, Q.shape[1])), blocks=blocks)
    return Lattice(W, sparse.csr_array(Q), np.zeros((1, len(Q))), 40, 10**6, noise)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=measured_blocks())
@example(case=(np.array([[0, 1, -1]]), (1, 1, 1)))  # a block that nothing measures
def test_no_record_moves_the_measurements_by_more_than_the_sensitivity(
    case: tuple[np.ndarray, tuple[int, ...]],
) -> None:
    Q, blocks = case
    changes = moves(Q, blocks)
    pure, gauss = lattice_of(Q, blocks, LAPLACE), lattice_of(Q, blocks, GAUSSIAN)
    assert pure.sensitivity >= max(sum(map(abs, change)) for change in changes)
    squares = max(sum(z * z for z in change) for change in changes)
    assert gauss.column_squares == squares  # whether or not a measurement sees several blocks
    assert gauss.sensitivity**2 >= squares
    for lattice in (pure, gauss):
        (used,), _ = rederive(lattice)
        assert used == (lattice.column_sums if lattice is pure else lattice.column_squares)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=measured_blocks(spanning=False))
def test_where_no_measurement_spans_blocks_the_sensitivity_is_exact(case: tuple[np.ndarray, tuple[int, ...]]) -> None:
    Q, blocks = case
    changes = moves(Q, blocks)
    assert lattice_of(Q, blocks, LAPLACE).sensitivity == max(sum(map(abs, change)) for change in changes)
    squares = int(max(sum(z * z for z in change) for change in changes))
    gauss = lattice_of(Q, blocks, GAUSSIAN)
    assert gauss.column_squares == squares
    assert gauss.sensitivity == (isqrt(squares - 1) + 1 if squares else 0)


@pytest.mark.parametrize("privacy", KINDS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(case=measured_blocks())
def test_the_sensitivity_of_a_strategy_is_that_of_its_lattice(
    privacy: Any, case: tuple[np.ndarray, tuple[int, ...]]
) -> None:
    Q, blocks = case
    L = Q / 2.0**40
    strategy = PairStrategy(MatrixWorkload(L, blocks=blocks), L, np.eye(len(L)), privacy=privacy)
    norm = 1 if privacy == "pure" else 2
    largest = max(float(np.linalg.norm([float(z) for z in change], norm)) for change in moves(Q, blocks)) / 2.0**40
    assert strategy.sensitivity >= largest * (1 - 1e-12)
    on_lattice = quantise_cells(strategy, largest_total=10**3)
    top = float(np.abs(L).max()) or 1.0
    assert on_lattice.sensitivity * top / 2.0**on_lattice.bits <= strategy.sensitivity * (1 + 1e-9) + 1e-9


def test_the_sum_over_blocks_is_what_two_blocks_cost() -> None:
    W = diagonal(np.eye(3), np.eye(2))
    assert STRATEGIES["noise-on-data"](W).sensitivity == 2
    assert PairStrategy(W, np.eye(5), np.eye(5), privacy="zcdp").sensitivity == pytest.approx(np.sqrt(2))
    across = MatrixWorkload(np.ones((1, 5)), blocks=[3, 2])
    assert PairStrategy(across, np.ones((1, 5)), np.eye(1), privacy="zcdp").sensitivity == 2


@pytest.mark.parametrize("method", STRATEGIES)
def test_every_method_knows_blocks(method: str) -> None:
    """Whatever L a method makes, noise is made for a record in every block."""
    strategy = STRATEGIES[method](THREE)
    norm = 1 if strategy.privacy == "pure" else 2
    L = strategy.measure
    starts = np.cumsum((0, *THREE.blocks[:-1]))
    cells = [range(start, start + size) for start, size in zip(starts, THREE.blocks, strict=True)]
    worst = max(float(np.linalg.norm(L[:, list(chosen)].sum(axis=1), norm)) for chosen in product(*cells))
    assert strategy.sensitivity >= worst * (1 - 1e-12)
    budget = BUDGETS[strategy.privacy]
    assert strategy.lower_bound(**budget) <= strategy.expected_squared_error(**budget) * (1 + 1e-9)
    assert strategy.largest_variance_bound(**budget) <= strategy.largest_variance(**budget) * (1 + 1e-9)


# ── the lattice ──


@pytest.mark.parametrize("blocks", [1, 2, 7, 100])
def test_measurements_do_not_overflow_at_the_cap(blocks: int) -> None:
    """One measurement of all blocks, each with every record in one cell."""
    n = 2 * blocks
    strategy = PairStrategy(MatrixWorkload(np.ones((1, n)), blocks=[2] * blocks), np.ones((1, n)), np.eye(1))
    for cap in (10**6, 10**9, 10**10):
        lattice = quantise_cells(strategy, largest_total=cap)
        counts = np.tile([cap, 0], blocks)
        exactly = sum(int(q) * int(x) for q, x in zip(lattice.integers.toarray()[0], counts, strict=True))
        assert measured(lattice, counts) == [exactly]
        assert exactly <= LARGEST


def test_more_blocks_leave_fewer_bits_until_none_are_left() -> None:
    def bits(blocks: int) -> int:
        workload = MatrixWorkload(sparse.eye_array(blocks, format="csr"), blocks=[1] * blocks)
        return quantise_cells(STRATEGIES["noise-on-data"](workload), largest_total=10**10).bits

    assert bits(1) > bits(16) > bits(100) >= 20
    with pytest.raises(LatticeError, match="lower the public cap to at most"):
        bits(300)


@pytest.mark.parametrize("spanning", [False, True])
def test_the_bias_bound_holds_with_every_record_in_every_block(spanning: bool) -> None:
    rng = np.random.default_rng(0)
    blocks = [4, 3, 5]
    W = MatrixWorkload(rng.standard_normal((6, 12)), blocks=blocks) if spanning else THREE
    strategy = STRATEGIES["low-rank"](W) if spanning else best("pure")
    total = 10**6
    lattice = quantise_cells(strategy, largest_total=total)
    E = dense(W.matrix) - dense(lattice.reconstruct) @ lattice.measure.toarray()
    starts = np.cumsum((0, *W.blocks[:-1]))
    worst = sum(np.abs(E[:, start : start + size]).max(axis=1) for start, size in zip(starts, W.blocks, strict=True))
    assert np.all(total * worst <= lattice.bias_bound)
    assert np.all(lattice.bias_bound <= 1e-3)


# ── the audit ──


@pytest.mark.parametrize("privacy", KINDS)
def test_the_audit_of_a_strategy_in_blocks_passes(privacy: Any) -> None:
    found = audit(best(privacy), **BUDGETS[privacy], runs=2_000)
    assert found.passed, str(found)
    across = PairStrategy(
        MatrixWorkload(np.ones((2, 4)), blocks=[2, 2]), np.ones((1, 4)), np.ones((2, 1)), privacy=privacy
    )
    assert audit(across, **BUDGETS[privacy], runs=2_000).passed


class Largest(Lattice):
    """Takes the largest block where all add up."""

    @property
    def column_sums(self) -> int:
        return int(abs(self.integers).sum(axis=0).max())

    @property
    def column_squares(self) -> int:
        columns = self.integers.toarray().T.tolist()
        return max(sum(int(q) ** 2 for q in column) for column in columns)


@pytest.mark.parametrize("privacy", KINDS)
@pytest.mark.parametrize("spanning", [False, True])
def test_noise_for_the_largest_block_alone_is_caught(privacy: Any, spanning: bool) -> None:
    W = MatrixWorkload(np.ones((1, 4)), blocks=[2, 2]) if spanning else diagonal(np.eye(2), np.eye(2))
    L = dense(W.matrix)
    strategy = PairStrategy(W, L, np.eye(len(L)), privacy=privacy)
    made = prepared(strategy, Neighbours(), 1.0, 10**6)
    names = ("workload", "integers", "reconstruct", "bits", "largest_total", "noise")
    mutant = Largest(**{name: getattr(made.measurement, name) for name in names})
    wrong = replace(made, measurement=mutant, noises=calibrate(mutant, 1, made.budget))
    assert wrong.noises[0].moved < made.noises[0].moved
    exactly = {f.check for f in exact(wrong) if not f.held}
    assert {"sensitivity", "privacy loss"} <= exactly
    attacks = [f for f in attack(wrong, 4_000) if f.check.startswith("attack")]
    assert attacks
    assert not all(f.held for f in attacks)
    honest = [f for f in attack(made, 4_000) if f.check.startswith("attack")]
    assert honest
    assert all(f.held for f in honest)


# ── the optimum ──


@pytest.mark.parametrize("privacy", KINDS)
@pytest.mark.parametrize("objective", ["sum", "max"])
def test_no_other_shares_of_the_budget_are_better(privacy: Any, objective: Any) -> None:
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 100, size=5)

    def total(shares: np.ndarray) -> float:
        used = shares.sum() if privacy == "pure" else np.sqrt(np.square(shares).sum())
        each = errors / np.square(shares / used)
        return float(each.sum() if objective == "sum" else each.max())

    best = noise_of(privacy).shares(errors, of_sum=objective == "sum")
    assert total(best) == pytest.approx(total(3 * best))
    for _ in range(300):
        other = best * np.exp(rng.normal(0, rng.choice([1e-3, 0.1, 1.0]), size=5))
        assert total(other) >= total(best) * (1 - 1e-9)


@pytest.mark.parametrize("privacy", KINDS)
@pytest.mark.parametrize("objective", ["sum", pytest.param("max", marks=pytest.mark.slow)])
def test_optimised_blocks_use_the_whole_budget_as_the_formula_says(privacy: Any, objective: Any) -> None:
    """Blocks measured apart; under Gaussian noise measurements of several at once are better."""
    found = [optimize(part, privacy=privacy, objective=objective, seconds=0.5) for _, _, part in THREE.parts()]
    strategy = assembled(THREE, found, noise_of(privacy), method="apart", objective=objective)
    budget = BUDGETS[privacy]
    assert strategy.sensitivity == pytest.approx(1)
    if objective == "sum":
        errors = np.array([part.expected_squared_error(**budget) for part in found])
        expected = np.cbrt(errors).sum() ** 3 if privacy == "pure" else np.sqrt(errors).sum() ** 2
    else:
        errors = np.array([part.largest_variance(**budget) for part in found])
        expected = np.sqrt(errors).sum() ** 2 if privacy == "pure" else errors.sum()
    assert error_of(strategy, objective) == pytest.approx(float(expected), rel=1e-6)
    for scale in (0.9, 1.1):  # of the first block's share
        L, B = strategy.measure.copy(), strategy.reconstruct.copy()
        first = np.flatnonzero(np.abs(L[:, : THREE.blocks[0]]).sum(axis=1))
        L[first] *= scale
        B[:, first] /= scale
        assert error_of(PairStrategy(THREE, L, B, privacy=privacy), objective) > error_of(strategy, objective)
    best = error_of(optimize(THREE, privacy=privacy, objective=objective, seconds=1.5), objective)
    assert best < 0.99 * expected if privacy == "zcdp" else best <= expected * (1 + 1e-3)


# ── measurements of several blocks at once ──


def test_two_counts_are_measured_together() -> None:
    """Of one count each, whose Gram matrix [[1, −½], [−½, 1]] is known to be the best."""
    two = MatrixWorkload(np.eye(2), blocks=[1, 1])
    found = optimize(two, privacy="zcdp", tolerance=1e-6)
    assert found.expected_squared_error(rho=0.5) == pytest.approx(8 / 3, rel=1e-5)
    assert found.measure.T @ found.measure == pytest.approx(np.array([[1, -0.5], [-0.5, 1]]), abs=1e-3)
    assert STRATEGIES["gaussian"](two).expected_squared_error(rho=0.5) == pytest.approx(4)
    assert audit(found, rho=0.5, runs=4_000).passed
    assert MatrixWorkload(np.eye(2), blocks=[1, 1], meetings=[[0], [1]]).kinds is None


@pytest.mark.parametrize("privacy", KINDS)
def test_the_error_formula_is_the_simulated_error(privacy: Any) -> None:
    strategy = best(privacy)
    budget = BUDGETS[privacy]
    made = prepared(strategy, Neighbours(), 1.0 if privacy == "pure" else 0.5, 10**6)
    lattice: Any = made.measurement
    runs = 3_000
    noise = drawn(made.noise, made.noises[0].scale, runs * strategy.measurements)
    draws = np.array(noise, dtype=float).reshape(runs, -1)
    answers = draws / 2.0**lattice.bits @ dense(lattice.reconstruct).T
    simulated = float(np.square(answers).sum(axis=1).mean())
    assert simulated == pytest.approx(strategy.expected_squared_error(**budget), rel=0.12)
    assert np.square(answers).mean(axis=0) == pytest.approx(strategy.per_query_variance(**budget), rel=0.3)


def test_parts_of_any_sensitivity_are_scaled_to_their_shares() -> None:
    @block_by_block
    def twice(part: MatrixWorkload) -> PairStrategy:
        return PairStrategy(part, 2 * np.eye(part.cells), dense(part.matrix) / 2)

    strategy = twice(THREE)
    assert strategy.sensitivity == pytest.approx(1)
    assert strategy.reconstruct @ strategy.measure == pytest.approx(dense(THREE.matrix))


def test_weights_decide_the_shares() -> None:
    W = diagonal(np.eye(1), np.eye(1))
    heavy = MatrixWorkload(W.matrix, weights=[8.0, 1.0], blocks=W.blocks)
    apart = assembled(heavy, [optimize(part) for _, _, part in heavy.parts()], LAPLACE, method="apart")
    first, second = apart.per_query_variance(epsilon=1.0)
    assert first == pytest.approx(2 * (3 / 2) ** 2)  # shares 2 : 1, the cube roots
    assert second == pytest.approx(2 * 3**2)


def test_a_sum_and_a_difference_of_two_counts_cost_no_more_than_one_of_them() -> None:
    """A record in both changes the sum by 2 and the difference by nothing; in one, each by 1."""
    both = optimize(diagonal(np.eye(1), np.eye(1)))
    assert both.per_query_variance(epsilon=1.0) == pytest.approx([4, 4])  # with a share each it would be 8
    assert both.sensitivity == pytest.approx(float(np.abs(both.measure @ [[1, 0, 1], [0, 1, 1]]).sum(axis=0).max()))
    assert audit(both, epsilon=1.0, runs=4_000).passed


def test_auto_chooses_for_all_blocks_at_once() -> None:
    few = optimize(diagonal(np.eye(1), np.eye(1)), privacy="auto", epsilon=1.0, delta=1e-9)
    many = optimize(diagonal(*[np.eye(1)] * 20), privacy="auto", epsilon=1.0, delta=1e-3)
    assert (few.privacy, many.privacy) == ("pure", "zcdp")
    assert "Gaussian noise has" in many.reason


@pytest.mark.parametrize("privacy", KINDS)
@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(data=st.data())
def test_the_lower_bound_is_below_every_strategy(privacy: Any, data: st.DataObject) -> None:
    """Also where queries or measurements span blocks."""
    blocks = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    n = sum(blocks)
    entries = st.integers(-2, 2)
    rows = data.draw(st.lists(st.lists(entries, min_size=n, max_size=n), min_size=1, max_size=4))
    W = MatrixWorkload(np.array(rows, float), weights=range(1, len(rows) + 1), blocks=blocks)
    others = data.draw(st.lists(st.lists(entries, min_size=n, max_size=n), max_size=3))
    L = np.vstack([np.eye(n), np.array(others, float).reshape(-1, n)])
    B = dense(W.matrix) @ np.linalg.pinv(L)
    found = [
        PairStrategy(W, L, B, privacy=privacy),
        PairStrategy(W, dense(W.matrix), np.eye(len(rows)), privacy=privacy),
        PairStrategy(W, np.eye(n), W.matrix, privacy=privacy),
    ]
    budget = BUDGETS[privacy]
    bound = found[0].lower_bound(**budget)
    worst = found[0].largest_variance_bound(**budget)
    for strategy in found:
        assert bound <= strategy.expected_squared_error(**budget) * (1 + 1e-9)
        assert worst <= strategy.largest_variance(**budget) * (1 + 1e-9)


def test_progress_goes_up_and_can_end_the_search() -> None:
    seen: list[tuple[float, str]] = []
    optimize(THREE, seconds=0.5, progress=lambda share, what, _: seen.append((share, what)))
    assert all(0 <= share <= 1 for share, _ in seen)
    assert [what.partition(":")[0] for _, what in seen] == sorted(what.partition(":")[0] for _, what in seen)
    assert seen[-1][1].startswith("block 3 of 3")
    assert optimize(THREE, progress=lambda *_: True).sensitivity == pytest.approx(1)


def test_many_wide_blocks_are_put_on_a_lattice_without_dense_matrices() -> None:
    """60 blocks of 4000 cells and a sum each: W and L would be 115 MB each as arrays."""
    rng = np.random.default_rng(0)
    blocks = 60
    W = diagonal(*(rng.uniform(0, 1, (1, 4000)) for _ in range(blocks)))
    strategy = PairStrategy(W, W.matrix, sparse.eye_array(blocks, format="csr"))
    tracemalloc.start()
    lattice = quantise_cells(strategy, largest_total=10**6)
    assert np.all(lattice.bias_bound < 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


@pytest.mark.parametrize("spanning", [False, True])
def test_a_query_over_several_blocks_is_reconstructed_from_all_of_them(spanning: bool) -> None:
    W = MatrixWorkload([[0.1, 0.7, 0.3], [0.2, 0.0, 0.9]], blocks=[2, 1])
    L = dense(W.matrix) if spanning else np.diag([0.3, 0.7, 0.11])
    B = dense(W.matrix) @ np.linalg.pinv(L)
    lattice = quantise_cells(PairStrategy(W, L, B), largest_total=10**6)
    assert dense(lattice.reconstruct) @ lattice.measure.toarray() == pytest.approx(dense(W.matrix), abs=1e-11)
