"""Tables that agree and are not negative, against exact quadratic programs; trees, whole numbers, stops."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls
from scipy.sparse.linalg import lsmr

from batchdp.release.consistency import tables as searching
from batchdp.release.consistency.cells import FAINT, Fit, closest_cells
from batchdp.release.consistency.faces import Columns, closure, join_components, maximal, split_table, subsets
from batchdp.release.consistency.newton import lift
from batchdp.release.consistency.rounding import nested_families, round_controlled, round_margin, round_onto_margins
from batchdp.release.consistency.tables import Settings, closest_tables, hold_margins, project_onto_simplex
from batchdp.text import Outcome

Dense = NDArray[np.float64]

SEEDS = st.integers(0, 10**6)
sometimes = settings(max_examples=25, deadline=None)
BATCHES: list[tuple[tuple[int, ...], list[Columns]]] = [
    ((3, 4), [(0, 1)]),
    ((3, 2, 4), [(0, 1), (0, 2), (1, 2)]),
    ((2, 3, 2), [(0, 1, 2), (0,), ()]),
    ((2, 2, 2, 3), [(0, 1), (2, 3)]),
    ((2, 3, 2, 2), [(0, 1, 2), (1, 2, 3)]),
    ((3, 1, 2), [(0, 1), (2,)]),
    ((4,), [(0,)]),
    ((3, 2), [()]),
]
THREES: tuple[tuple[int, ...], list[Columns]] = ((4, 3, 3, 2), [(0, 1, 2), (0, 1, 3), (1, 2, 3)])


def margin(table: Dense, columns: Columns, own: Columns) -> Dense:
    return np.asarray(table.sum(axis=tuple(a for a, i in enumerate(columns) if i not in own)))


def noisy(
    sizes: tuple[int, ...], tables: list[Columns], seed: int
) -> tuple[dict[Columns, Dense], dict[Columns, float]]:
    """Components of noisy margins of sparse records, and the precision of each."""
    rng = np.random.default_rng(seed)
    joint = rng.poisson(rng.gamma(0.3, 5.0, size=sizes)).astype(float)
    every = tuple(range(len(sizes)))
    exact = split_table(joint, every)
    precision = {own: float(rng.uniform(0.05, 2)) for own in closure(tables)}
    found = {}
    for own in closure(tables):
        noise = rng.normal(size=[sizes[i] for i in own]) / np.sqrt(precision[own])
        found[own] = exact[own] + split_table(noise, own)[own]
    return found, precision


# ── Components ──


@sometimes
@given(SEEDS)
def test_tables_are_the_sums_of_their_components(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 5)))
    table = rng.normal(size=sizes)
    every = tuple(range(len(sizes)))
    parts = split_table(table, every)
    assert set(parts) == set(subsets(every))
    assert np.allclose(join_components(parts, every, sizes), table)
    for own in subsets(every):
        assert np.allclose(join_components(parts, own, sizes), margin(table, every, own))
        for axis in range(len(own)):
            assert np.allclose(parts[own].sum(axis=axis), 0)


def test_maximal_tables_are_those_that_are_no_margin() -> None:
    assert maximal([(0,), (0, 1), (2,), (), (0, 1)]) == [(2,), (0, 1)]
    assert closure([(0, 2)]) == [(), (0,), (2,), (0, 2)]


# ── The closest tables ──


def least_distance(y: dict[Columns, Dense], p: dict[Columns, float], tables: list[Columns], sizes: Any) -> float:
    """½ Σ p ‖z − y‖² of the exact quadratic program, by Lawson and Hanson's problem of least distance.

    Components beyond the held ones, times √p, in coordinates of their own: min ‖w‖² subject to G w ≥ h.
    """
    held = hold_margins(y, closure(tables), sizes)
    free = [own for own in closure(tables) if own not in held]
    rows: list[Dense] = []
    offsets: list[Dense] = []
    start = {**held, **{own: y[own] for own in free}}
    nothing = {own: np.zeros_like(z) for own, z in start.items()}
    for table in maximal(tables):
        offsets.append(-join_components(start, table, sizes).reshape(-1))
        columns = []
        for own in free:
            for k in range(y[own].size):
                one = np.zeros(y[own].size)
                one[k] = 1
                one = split_table(one.reshape(y[own].shape), own)[own] if own else one.reshape(())
                part = {**nothing, own: one / np.sqrt(p[own])}
                there = set(own) <= set(table)
                columns.append(join_components(part, table, sizes).reshape(-1) if there else np.zeros(offsets[-1].size))
        rows.append(np.column_stack(columns) if columns else np.zeros((offsets[-1].size, 0)))
    G, h = np.vstack(rows), np.concatenate(offsets)
    E = np.vstack([G.T, h])
    f = np.zeros(len(E))
    f[-1] = 1
    u, _ = nnls(E, f, maxiter=10_000)
    r = E @ u - f
    w = -r[:-1] / r[-1]
    assert np.all(G @ w >= h - 1e-6)
    return float(w @ w) / 2


@pytest.mark.parametrize(("sizes", "tables"), BATCHES)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_the_closest_tables_are_those_of_the_exact_program(
    sizes: tuple[int, ...], tables: list[Columns], seed: int
) -> None:
    y, p = noisy(sizes, tables, seed)
    found = closest_tables(y, p, tables, sizes)
    assert found.status in (Outcome.CONVERGED, Outcome.CLOSED_FORM)
    made = {own: found.table(own) for own in tables}
    total = max(0.0, float(y[()]))
    for table in made.values():
        assert np.all(table >= 0)
        assert float(table.sum()) == pytest.approx(total, rel=1e-9, abs=1e-9)
    for first, second in combinations(tables, 2):
        shared = tuple(i for i in first if i in second)
        ours, theirs = margin(made[first], first, shared), margin(made[second], second, shared)
        assert np.all(np.abs(ours - theirs) <= 1e-6 * np.maximum(1, theirs))
    if total > 0:
        free = [own for own in closure(tables) if len(own) > 1]
        parts = {own: part for table in maximal(tables) for own, part in split_table(found.table(table), table).items()}
        distance = sum(p[own] * float(np.square(parts[own] - y[own]).sum()) for own in free) / 2
        least = least_distance(y, p, tables, sizes)
        assert distance == pytest.approx(least, rel=1e-4, abs=1e-4 * total)


@pytest.mark.parametrize("seed", [1, 3])
def test_precisions_that_lie_far_apart_have_their_closest_tables_too(seed: int) -> None:
    """Shared components that know little beside their tables have centres that move often: rounding must not grow."""
    sizes, tables = THREES
    y, p = noisy(sizes, tables, seed)
    rng = np.random.default_rng(seed)
    p = {own: one * 10.0 ** float(rng.uniform(-2, 2)) for own, one in p.items()}
    found = closest_tables(y, p, tables, sizes)
    assert found.status is Outcome.CONVERGED
    assert found.lifted <= 1e-9
    parts = {own: part for table in tables for own, part in split_table(found.table(table), table).items()}
    distance = sum(p[own] * float(np.square(parts[own] - y[own]).sum()) for own in closure(tables) if len(own) > 1) / 2
    assert distance == pytest.approx(least_distance(y, p, tables, sizes), rel=2e-4, abs=1e-4)


def test_tables_that_are_fine_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    joint = rng.integers(5, 20, size=(3, 4, 2)).astype(float)
    tables: list[Columns] = [(0, 1), (1, 2)]
    y = {own: split_table(joint, (0, 1, 2))[own] for own in closure(tables)}
    found = closest_tables(y, dict.fromkeys(y, 1.0), tables, (3, 4, 2))
    for own in tables:
        assert np.allclose(found.table(own), margin(joint, (0, 1, 2), own), rtol=1e-6)


def test_nothing_is_nothing() -> None:
    for total in (0.0, -7.0):
        y = {own: np.zeros([(3, 2)[i] for i in own]) for own in closure([(0, 1)])} | {(): np.array(total)}
        found = closest_tables(y, dict.fromkeys(y, 1.0), [(0, 1)], (3, 2))
        assert not np.any(found.table((0, 1)))


@pytest.mark.parametrize("records", [0.5, 1.0, 1000.0])
def test_all_records_in_one_cell_agree_from_the_start(records: float) -> None:
    """No face but those of the one cell has anything on it, and no step has anywhere to go."""
    joint = np.zeros((4, 2))
    joint[2, 1] = records
    y = split_table(joint, (0, 1))
    found = closest_tables(y, dict.fromkeys(y, 1.0), [(0, 1)], (4, 2))
    assert found.status is Outcome.CONVERGED
    assert np.array_equal(found.table((0, 1)), joint)


def check_feasible(found: Any, y: dict[Columns, Dense], p: Any, tables: list[Columns], sizes: Any) -> None:
    """Nothing below 0, shared margins equal, and the one-way margins those that are held, but for the slack."""
    held = hold_margins(y, closure(tables), sizes)
    made = {own: found.table(own) for own in tables}
    assert min(float(table.min()) for table in made.values()) >= 0
    for first, second in combinations(tables, 2):
        shared = tuple(i for i in first if i in second)
        ours, theirs = margin(made[first], first, shared), margin(made[second], second, shared)
        assert np.all(np.abs(ours - theirs) <= 1e-6 * np.maximum(1, theirs))
    for own, table in made.items():
        for i in own:
            moved = np.abs(margin(table, own, (i,)) - join_components(held, (i,), sizes)).sum()
            assert moved <= 2 * searching.SLACK * sizes[i] / p[i,] ** 0.5 + 1e-6


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize(("sizes", "tables"), [BATCHES[1], BATCHES[4], THREES])
def test_a_stop_leaves_tables_that_agree_and_are_not_negative(
    sizes: tuple[int, ...], tables: list[Columns], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, p = noisy(sizes, tables, 5)
    steps = 0
    usual = searching._Search._step

    def interrupted(self: Any) -> float:
        nonlocal steps
        steps += 1
        if steps > after:
            raise KeyboardInterrupt
        return usual(self)

    monkeypatch.setattr(searching._Search, "_step", interrupted)
    found = closest_tables(y, p, tables, sizes)
    assert found.status is Outcome.CANCELLED
    assert 0 <= found.lifted <= 1
    check_feasible(found, y, p, tables, sizes)


def test_few_rounds_say_so() -> None:
    sizes, tables = THREES
    y, p = noisy(sizes, tables, 5)
    told: list[float] = []
    found = closest_tables(
        y, p, tables, sizes, settings=Settings(rounds=2), progress=lambda share, _: told.append(share)
    )
    assert found.status is Outcome.OUT_OF_ROUNDS
    assert found.rounds == len(told) == 2
    assert found.gap > Settings().gap
    check_feasible(found, y, p, tables, sizes)


def test_a_limit_of_time_leaves_tables_that_agree() -> None:
    sizes, tables = THREES
    y, p = noisy(sizes, tables, 5)
    found = closest_tables(y, p, tables, sizes, settings=Settings(seconds=0.0))
    assert (found.status, found.rounds) == (Outcome.OUT_OF_TIME, 1)
    check_feasible(found, y, p, tables, sizes)


@sometimes
@given(SEEDS)
def test_tables_that_nearly_agree_are_lifted_by_little(seed: int) -> None:
    """Tables of one positive joint, each disturbed: exact afterwards, and moved by what they were disturbed by."""
    rng = np.random.default_rng(seed)
    sizes: tuple[int, ...] = tuple(int(n) for n in rng.integers(2, 5, size=4))
    every: Columns = (0, 1, 2, 3)
    tables: list[Columns] = [(0, 1, 2), (1, 2, 3), (0, 3)] if seed % 2 else [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    joint = rng.gamma(1.0, 5.0, size=sizes) + 1
    margins = {i: margin(joint, every, (i,)) for i in every}
    size = 10.0 ** float(rng.uniform(-8, 1))
    given = {own: margin(joint, every, own) for own in tables}
    disturbed = {own: np.maximum(table + size * rng.normal(size=table.shape), 0.0) for own, table in given.items()}
    found, moved = lift(disturbed, margins)
    for own in tables:
        assert float(found[own].min()) >= 0
        for i in own:
            assert np.allclose(margin(found[own], own, (i,)), margins[i])
        if size < 1e-3:
            assert np.abs(found[own] - given[own]).max() <= 1e3 * size
    for first, second in combinations(tables, 2):
        shared = tuple(i for i in first if i in second)
        assert np.allclose(margin(found[first], first, shared), margin(found[second], second, shared))
    assert 0 <= moved <= 1


@sometimes
@given(SEEDS)
def test_components_by_margins_add_up_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, size=3))
    shares = {i: rng.dirichlet(np.ones(n)) for i, n in enumerate(sizes)}
    table, every = rng.normal(size=sizes), (0, 1, 2)
    parts = split_table(table, every, shares)
    for own in subsets(every):
        assert np.allclose(join_components(parts, own, sizes, shares), margin(table, every, own))
        for axis in range(len(own)):
            assert np.allclose(parts[own].sum(axis=axis), 0)


@sometimes
@given(SEEDS)
def test_margins_go_to_the_closest_with_their_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, total = rng.normal(size=rng.integers(1, 9)) * 5, float(rng.uniform(0, 20))
    found = project_onto_simplex(values, total)
    assert np.all(found >= 0)
    assert found.sum() == pytest.approx(total)
    weight = 1e4  # the total as one more equation
    reference, _ = nnls(
        np.vstack([np.eye(len(values)), weight * np.ones(len(values))]), np.append(values, weight * total)
    )
    assert np.allclose(found, reference, atol=1e-4 * (1 + total))


# ── Cells and trees ──


def random_tree(rng: np.random.Generator) -> Dense:
    n = int(rng.integers(1, 12))
    rows: list[NDArray[np.int64]] = [np.arange(n)]

    def grow(cells: NDArray[np.int64]) -> None:
        if rng.random() < 0.7:
            rows.append(cells)
        if len(cells) > 1 and rng.random() < 0.85:
            cut = int(rng.integers(1, len(cells)))
            grow(cells[:cut])
            grow(cells[cut:])

    grow(rng.permutation(n))
    L = np.zeros((len(rows), n))
    for k, own in enumerate(rows):
        L[k, own] = rng.uniform(0.2, 3)
    return L[rng.permutation(len(L))]


def random_measurements(seed: int) -> tuple[Dense, Dense]:
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        L = random_tree(rng)
    else:
        m, n = rng.integers(1, 16, size=2)
        L = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.4)
        L = np.abs(np.rint(L)) if seed % 3 == 1 else L
    return L, 10 * rng.normal(size=len(L))


@sometimes
@given(SEEDS)
def test_without_a_total_cells_fit_as_well_as_the_exact_program(seed: int) -> None:
    L, y = random_measurements(seed)
    found = Fit(sparse.csr_array(L))(y, np.zeros(L.shape[1]))
    assert np.all(found.x >= 0)
    reference, least = nnls(L, y, maxiter=10_000)
    assert np.linalg.norm(L @ found.x - y) <= least + 1e-6 * (1 + least)
    assert np.allclose(L @ found.x, L @ reference, atol=1e-4 * (1 + least))


def test_precisions_that_lie_far_apart_are_fitted_all_the_same() -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        L = rng.random((28, 60)) * (rng.random((28, 60)) < 0.3) * 10.0 ** rng.uniform(-6, -1, size=(28, 1))
        y = 10 * rng.normal(size=28)
        found = Fit(sparse.csr_array(L))(y, np.zeros(60))
        assert found.status in (Outcome.OPTIMAL, Outcome.CLOSED_FORM)
        assert np.linalg.norm(L @ found.x - y) == pytest.approx(nnls(L, y, maxiter=10_000)[1], rel=1e-7)
        assert closest_cells(sparse.csr_array(L), y).status is Outcome.OPTIMAL


def priced(L: Dense, y: Dense, t: Dense, total: float) -> Dense:
    """min ‖L x − y‖² over x ≥ 0 with t·x = total, by a row that weighs so much that it holds."""
    heavy = 1e4
    return np.asarray(nnls(np.vstack([L, heavy * t]), np.append(y, heavy * total), maxiter=100_000)[0])


@sometimes
@given(SEEDS)
def test_the_total_is_its_own_estimate_and_all_else_is_closest(seed: int) -> None:
    L, y = random_measurements(seed)
    n = L.shape[1]
    L, y = np.vstack([L, np.full((1, n), 1e-2)]), np.append(y, 0.1)  # all cells are added up
    found = closest_cells(sparse.csr_array(L), y)
    assert np.all(found.x >= 0)
    damped = FAINT * max(1e-300, float(np.linalg.norm(L, axis=0).max()))
    u = np.linalg.solve(L @ L.T + damped**2 * np.eye(len(L)), L @ np.ones(n))
    t, total = L.T @ u, float(u @ y)
    total = max(0.0, total) if t.min() >= -1e-7 else total
    assert float(t @ found.x) == pytest.approx(total, rel=1e-5, abs=1e-5)
    reference = priced(L, y, t, total)
    assert np.linalg.norm(L @ found.x - y) == pytest.approx(np.linalg.norm(L @ reference - y), rel=1e-4, abs=1e-4)


def test_cells_that_nothing_adds_up_have_no_total_together() -> None:
    y = np.array([5.0, -3.0, -4.0, 2.0])
    apart = closest_cells(sparse.eye_array(4), y)
    assert apart.x == pytest.approx([5, 0, 0, 2])
    L = np.vstack([np.eye(4), [1, 1, 0, 0], [0, 0, 1, 1]])
    assert closest_cells(sparse.csr_array(L), L @ y).x == pytest.approx([2, 0, 0, 0])


def test_a_total_leaves_out_what_has_far_more_noise() -> None:
    # The noise of the last cell would decide the total of all three, which is answered as faintly.
    L = np.vstack([np.diag([1.0, 1.0, 1e-5]), [1e-5, 1e-5, 1e-5]])
    assert closest_cells(sparse.csr_array(L), L @ [-3.0, 1.0, 4.0]).x == pytest.approx([0, 0, 3])
    assert closest_cells(sparse.csr_array(L), L @ [-3.0, 9.0, -2.0]).x == pytest.approx([0, 6, 0], abs=0.01)


def counties() -> sparse.csr_array:
    states = sparse.csr_array((np.ones(3000), (np.arange(3000) // 60, np.arange(3000))))
    return sparse.csr_array(sparse.vstack([sparse.eye_array(3000), states, sparse.csr_array(np.ones((1, 3000)))]))


def test_a_hierarchy_of_three_thousand_counties() -> None:
    rng = np.random.default_rng(0)
    L = counties()
    y = L @ rng.poisson(rng.gamma(0.3, 100, size=3000)) + rng.laplace(scale=20, size=L.shape[0])
    found = closest_cells(L, y)
    assert found.status is Outcome.OPTIMAL
    assert float(found.x.sum()) == pytest.approx(float(lsmr(L, y, atol=1e-12, btol=1e-12)[0].sum()), rel=1e-7)
    gradient = L.T @ (L @ found.x - y)
    price = float(gradient[found.x > 0].mean())
    assert price < -1  # without it the total would be larger
    assert np.all(found.x >= 0)
    assert np.all(gradient >= price - 1e-3)
    assert np.all(np.abs(gradient[found.x > 0] - price) <= 1e-3)
    whole, unkept = round_controlled(found.x, L)
    assert unkept == []
    assert np.abs(L @ whole - L @ found.x).max() < 1


def test_a_stop_leaves_cells_that_are_not_negative_and_have_their_total(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchdp.release.consistency import cells as fitting

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "_step", interrupted)
    L = np.vstack([np.eye(6), np.kron(np.eye(2), np.ones(3))])
    found = closest_cells(sparse.csr_array(L), L @ [2.0, -3, 4, 4, -2, 2])
    assert found.status is Outcome.CANCELLED
    assert found.x == pytest.approx([1, 0, 2, 8 / 3, 0, 4 / 3])


# ── Whole numbers ──


@sometimes
@given(SEEDS)
def test_a_two_way_table_keeps_all_its_totals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 7)), int(rng.integers(1, 7)))
    table = rng.gamma(0.4, 3, size=shape) * (rng.random(shape) < 0.8)
    n = table.size
    rows = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    columns = np.kron(np.ones(shape[0]), np.eye(shape[1]))
    T = sparse.csr_array(np.vstack([np.ones((1, n)), rows, columns]))
    whole, unkept = round_controlled(table.reshape(-1), T)
    assert unkept == []
    assert np.all(whole >= 0)
    assert np.abs(whole - table.reshape(-1)).max() < 1
    assert np.abs(T @ whole - T @ table.reshape(-1)).max() < 1


def test_three_families_are_two_and_a_rest() -> None:
    cells = np.arange(8).reshape(2, 2, 2)
    rows = [np.isin(np.arange(8), np.moveaxis(cells, axis, 0)[k]) for axis in range(3) for k in range(2)]
    first, second, rest = nested_families(sparse.csr_array(np.array(rows, dtype=float)))
    assert sorted(first + second + rest) == list(range(6))
    assert len(first) == len(second) == len(rest) == 2


@sometimes
@given(SEEDS)
def test_tables_of_any_order_get_the_margins_that_are_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 5)))
    table = rng.gamma(0.4, 2, size=shape) * (rng.random(shape) < 0.7)
    total = round(float(table.sum()))
    axes = range(len(shape))
    margins = [round_margin(table.sum(axis=tuple(a for a in axes if a != axis)), total) for axis in axes]
    whole = round_onto_margins(table, margins)
    assert np.all(whole >= 0)
    for axis in axes:
        assert np.array_equal(whole.sum(axis=tuple(a for a in axes if a != axis)), margins[axis])
        assert np.abs(margins[axis] - table.sum(axis=tuple(a for a in axes if a != axis))).max() < 1


def test_cells_that_are_nearly_whole_do_not_exceed_their_margins() -> None:
    table = np.full((30, 30), 1 - 5e-8)
    margins = [np.full(30, 29, dtype=np.int64), np.full(30, 29, dtype=np.int64)]
    whole = round_onto_margins(table, margins)
    assert np.array_equal(whole.sum(axis=0), margins[0])
    assert np.array_equal(whole.sum(axis=1), margins[1])
