"""K-norm noise of records in several blocks, and of amounts: every record of small batches, one by one, in fractions.

The loss between two tables is Σ_g ε_g ‖d_g‖ exactly, with d the difference of what is measured of them: it is what the
density of the noise changes by far out in the direction of d, and nowhere more. Here d is measured, its norm bounded by
weights of the vertices of the body that is drawn from, and the weights are checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from scipy.stats import chi2

import batchdp
from batchdp import LatticeError, Ledger, MatrixWorkload, ShapeLimits, StrategyError
from batchdp.audits.exact import exact
from batchdp.linalg.matrix import dense
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import ShapedAmounts, ShapedLattice
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.optimizer.shapes import shaped_noise
from batchdp.privacy import KNORM
from batchdp.strategies.shape import joint_columns
from mechanisms import measured, prepared
from shaped_truth import epsilons_of, facets, noise_of, norm_by

QUICK = ShapeLimits(directions=300)
APART = ShapeLimits(directions=300, columns=4)
"""Few columns: every block has its own body."""
OVERLAP = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])

BATCHES: dict[str, tuple[MatrixWorkload, ShapeLimits]] = {
    "two blocks": (MatrixWorkload(np.kron(np.eye(2), OVERLAP), blocks=(3, 3)), QUICK),
    "two blocks apart": (MatrixWorkload(np.kron(np.eye(2), OVERLAP), blocks=(3, 3)), APART),
    "blocks that exclude each other": (
        MatrixWorkload(np.kron(np.eye(3), np.ones((1, 2)) - [[0, 3]]), blocks=(2, 2, 2), meetings=[[0, 1], [1, 2]]),
        QUICK,
    ),
    "a query over both": (MatrixWorkload([[1, -1, 0, 2, 1], [0, 1, 1, 0, -1], [1, 0, 0, 0, 3]], blocks=(3, 2)), QUICK),
    "opposite columns": (MatrixWorkload([[1, -1, 1, -1], [0, 0, 1, -1], [0, 0, 2, 1]], blocks=(2, 2)), QUICK),
    "amounts": (MatrixWorkload([[1, 1, 0, 1], [0, 10, 0, -7]], ends=[(0, 1, 10), (2, 3, 7), (-1, 3, 3)]), QUICK),
    "amounts in blocks": (
        MatrixWorkload(
            [[1, 1, 0, 0, 0], [0, 9, 0, 0, 0], [0, 0, 1, 1, 0], [0, 3, 0, 5, 1]],
            blocks=(2, 3),
            ends=[(0, 1, 3), (2, 3, 7), (4, -1, 2)],
        ),
        QUICK,
    ),
    "amounts in blocks apart": (
        MatrixWorkload(
            [[1, 1, 0, 0], [0, 9, 0, 0], [0, 0, 1, 1], [0, 0, 0, 5]], blocks=(2, 2), ends=[(0, 1, 3), (2, 3, 7)]
        ),
        APART,
    ),
}
WHO = [Neighbours(), Neighbours("add-remove", 3), Neighbours("replace"), Neighbours("replace", 2)]


@pytest.fixture(scope="module", params=BATCHES)
def strategy(request: pytest.FixtureRequest) -> Any:
    return shaped_noise(*BATCHES[request.param])


def records(workload: MatrixWorkload) -> Iterator[list[int]]:
    """Counts of all cells and sums of all stretches, of every record alone: one cell, or none, or a place between two
    in each of the blocks that meet."""
    starts = np.cumsum((0, *workload.blocks)).tolist()
    width = workload.cells + len(workload.ends)
    places: list[list[dict[int, int]]] = []
    for first, last in pairwise(starts):
        own: list[dict[int, int]] = [{}, *({cell: 1} for cell in range(first, last))]
        for pair, (low, high, steps) in enumerate(workload.ends):
            if first <= max(low, high) < last:
                at = {low: 1} if low >= 0 else {}
                own += [{**at, workload.cells + pair: u} for u in range(steps + 1)]
        places.append(own)
    seen = set()
    for met in workload.meetings:
        for chosen in product(*(places[block] for block in met)):
            record = [0] * width
            for one in chosen:
                for place, value in one.items():
                    record[place] += value
            if tuple(record) not in seen:
                seen.add(tuple(record))
                yield record


def loss(made: Mechanism, difference: list[int]) -> Fraction:
    """At least what two tables are told apart by whose measurements differ by this: by weights that are checked."""
    lattice: Any = made.measurement
    total, start = Fraction(0), 0
    for group, epsilon in zip(lattice.groups, epsilons_of(made), strict=True):
        own = difference[start : start + group.body.rank]
        start += group.body.rank
        weights = group.body.combination(own) if any(own) else {}
        for i, d in enumerate(own):
            assert sum((w * int(group.body.vertices[i, j]) for j, w in weights.items()), Fraction(0)) == d
        total += epsilon * sum(map(abs, weights.values()), Fraction(0))
    return total


def changes(made: Mechanism) -> list[list[int]]:
    lattice: Any = made.measurement
    nothing = measured(lattice, np.zeros(lattice.cells, dtype=np.int64))
    assert not any(nothing)
    return [measured(lattice, np.array(record, dtype=np.int64)) for record in records(lattice.workload)]


@pytest.mark.parametrize("cap", [None, 1000])
def test_no_record_loses_more_than_epsilon(strategy: Any, cap: int | None) -> None:
    made = prepared(strategy, Neighbours(), 0.5, cap)
    assert made.noise is KNORM
    assert isinstance(made.measurement, ShapedAmounts if strategy.workload.ends else ShapedLattice)
    losses = [loss(made, change) for change in changes(made)]
    assert max(losses) <= Fraction(1, 2)
    assert max(losses) > Fraction(49, 100)  # and nothing is given away


@pytest.mark.parametrize("whose", WHO, ids=str)
def test_no_neighbours_lose_more_than_epsilon(strategy: Any, whose: Neighbours) -> None:
    made = prepared(strategy, whose, 1.0, None)
    moved, chance = changes(made), random.Random(0)
    rows, sides = whose.rows_per_unit, whose.factor // whose.rows_per_unit
    worst = Fraction(0)
    for _ in range(60):
        tables = [[chance.choice(moved) for _ in range(rows)] for _ in range(sides)]
        sums = [[sum(one) for one in zip(*table, strict=True)] for table in tables]
        difference = sums[0] if sides == 1 else [a - b for a, b in zip(*sums, strict=True)]
        worst = max(worst, loss(made, difference))
    most = max((loss(made, [rows * d for d in change]) for change in moved), default=Fraction(0))
    assert 0 < max(worst, most) <= 1


def test_norms_are_those_of_all_facets() -> None:
    made = prepared(shaped_noise(*BATCHES["a query over both"]), Neighbours(), 1.0, 2**21)
    lattice: Any = made.measurement
    (group,) = lattice.groups
    known = facets(group.body.vertices)
    for change in changes(made):
        assert norm_by(known, change) == group.body.norm(change) <= 1


def test_tables_far_beyond_the_cap_are_as_private(strategy: Any) -> None:
    """Nothing is cut or clamped, whatever the counts."""
    made = prepared(strategy, Neighbours(), 1.0, 10**6)
    lattice: Any = made.measurement
    for record in records(lattice.workload):
        crowd = np.array([2**61] * lattice.workload.cells + [5] * len(lattice.workload.ends), dtype=np.int64)
        one, other = measured(lattice, crowd), measured(lattice, crowd + np.array(record, dtype=np.int64))
        assert loss(made, [a - b for a, b in zip(other, one, strict=True)]) <= 1
        break_at = max(map(abs, one), default=0)
        assert break_at == 0 or break_at > 2**60


def test_what_a_record_can_add_is_every_sum() -> None:
    columns = [np.array([[1, 2], [0, 0]]), np.array([[0, 0, 0], [3, 0, 4]]), np.array([[5], [5]])]
    found = set(map(tuple, joint_columns(columns, [(0, 1), (2,)]).T.tolist()))
    assert found == {(1, 0), (2, 0), (0, 3), (0, 4), *product((1, 2), (3, 4)), (5, 5)}
    whole = [np.array(one, dtype=object) * 2**100 for one in columns]
    assert set(map(tuple, joint_columns(whole, [(0, 1), (2,)]).T.tolist())) == {
        (a * 2**100, b * 2**100) for a, b in found
    }
    many = [np.arange(1, 1001)[None]] * 2
    with pytest.raises(StrategyError, match="sums"):
        joint_columns(many, [(0, 1)])


# --- Each mutant forgets one thing that a record can do, and each is caught.


def broken(made: Mechanism) -> set[str]:
    return {finding.check for finding in exact(made) if not finding.held}


def with_columns(made: Mechanism, columns: Any) -> Mechanism:
    cheating: Any = replace(made.measurement)  # type: ignore[type-var]
    cheating.__dict__["bodies"] = tuple(Body(np.array(own, dtype=object)) for own in columns)
    return replace(made, measurement=cheating)


def refused(made: Mechanism) -> bool:
    try:
        calibrate(made.measurement, 1, made.budget)
    except LatticeError as problem:
        return "outside" in str(problem)
    return False


def test_a_record_in_two_blocks_that_is_forgotten_is_noticed() -> None:
    made = prepared(shaped_noise(*BATCHES["two blocks"]), Neighbours(), 1.0, None)
    lattice: Any = made.measurement
    assert broken(made) == set()
    assert not refused(made)
    apart = [joint_columns(lattice.cells_of(own), [(0,), (1,)]) for own, _ in lattice.shape.parts]
    assert "sensitivity" in broken(with_columns(made, apart))
    assert refused(with_columns(made, apart))


def test_a_record_in_one_block_alone_that_is_forgotten_is_noticed() -> None:
    made = prepared(shaped_noise(*BATCHES["opposite columns"]), Neighbours(), 1.0, None)
    lattice: Any = made.measurement
    first, second = lattice.cells_of(slice(0, lattice.measurements))
    both = [a + b for a, b in product(first.T, second.T)]  # a cell in each block, never in one alone
    body = Body(np.array(both, dtype=object).T)
    outside = [c for c in joint_columns([first, second], [(0, 1)]).T.tolist() if not body.contains(c)]
    cheating = with_columns(made, [np.array(both).T])
    assert refused(cheating) == bool(outside)
    assert ("sensitivity" in broken(cheating)) == bool(outside)


def test_the_upper_end_of_a_stretch_that_is_forgotten_is_noticed() -> None:
    made = prepared(shaped_noise(*BATCHES["amounts"]), Neighbours(), 1.0, None)
    lattice: Any = made.measurement
    assert broken(made) == set()
    # The upper cells too: records between have a column that no cell has any more.
    columns = list(lattice.record_columns[0].T.tolist())
    shorter = [c for c in columns if Body(np.array([o for o in columns if o != c]).T).contains(c)]
    for left_out in (c for c in columns if c not in shorter):
        cheating = with_columns(made, [np.array([c for c in columns if c != left_out], dtype=object).T])
        assert refused(cheating)
        assert "sensitivity" in broken(cheating)


def test_totals_that_are_cut_have_no_body() -> None:
    made = prepared(shaped_noise(*BATCHES["amounts"]), Neighbours(), 1.0, None)
    lattice: Any = made.measurement
    with pytest.raises(LatticeError, match="cut"):
        replace(lattice, bits=lattice.bits - 1)


def test_blocks_that_meet_are_those_of_the_workload() -> None:
    found = shaped_noise(*BATCHES["two blocks"])
    assert found.shape is not None
    for wrong in (((0,), (1,)), ()):
        with pytest.raises(StrategyError, match="meet"):
            replace(found, shape=replace(found.shape, meetings=wrong))


# --- What it brings, and what is said of it.


def test_noise_of_joint_blocks_lies_where_it_should() -> None:
    """Of two blocks of one cell each, K is a hexagon of three pairs of equal triangles: a chi-square over these."""
    made = prepared(shaped_noise(MatrixWorkload(np.eye(2), blocks=(1, 1)), QUICK), Neighbours(), 1.0, None)
    lattice: Any = made.measurement
    assert sorted(map(tuple, np.sign(lattice.record_columns[0]).T.tolist())) == [(0, 1), (1, 0), (1, 1)]
    z = noise_of(made, 3000)
    x, y = np.where(z[:, :1] + z[:, 1:] < 0, -z, z).T
    counts = [int(np.sum(one)) for one in ((x > y) & (y > 0), (y > x) & (x > 0))]
    counts.append(3000 - sum(counts))
    expected = np.full(3, 1000.0)  # the third pair of triangles lies between (1, 0) and (0, −1)
    assert chi2.sf(float(np.sum((counts - expected) ** 2 / expected)), 2) > 1e-6


@pytest.mark.parametrize("name", ["two blocks", "amounts in blocks"])
def test_exact_draws_have_the_law_that_is_said(name: str) -> None:
    workload, _ = BATCHES[name]
    found = shaped_noise(workload, ShapeLimits(directions=2000))
    made = prepared(found, Neighbours(), 0.5, None)
    lattice: Any = made.measurement
    answers = noise_of(made, 1500) / 2.0**lattice.bits @ dense(lattice.reconstruct).T
    assert np.square(answers).sum(axis=1).mean() == pytest.approx(found.expected_squared_error(epsilon=0.5), rel=0.3)
    assert np.mean(np.abs(answers) <= made.reader.noise_law.half_widths(0.9)) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("objective", ["sum", "max"])
@pytest.mark.parametrize("name", BATCHES)
def test_it_is_never_worse_than_laplace_noise(name: str, objective: Any) -> None:
    workload, limits = BATCHES[name]
    pair = batchdp.optimize(workload, objective=objective, seconds=0.3)
    found = batchdp.optimize(workload, objective=objective, shape="any", limits=limits, seconds=0.3)
    errors = [
        one.expected_squared_error(epsilon=1.0) if objective == "sum" else one.largest_variance(epsilon=1.0)
        for one in (found, pair)
    ]
    assert errors[0] <= errors[1] * (1 + 1e-9)
    assert "pair" in found.reason or "Laplace noise" in found.reason
    if name == "two blocks":
        assert found.noise is KNORM
        assert errors[0] < 0.7 * errors[1]


def test_shares_for_the_largest_error_leave_less_of_it() -> None:
    W = np.kron(np.diag([1.0, 8.0]), OVERLAP)
    workload = MatrixWorkload(W, blocks=(3, 3))
    found = {objective: shaped_noise(workload, APART, objective=objective) for objective in ("sum", "max")}
    assert all(one.shape is not None and len(one.shape.groups) == 2 for one in found.values())
    assert all(sum(group.share for group in one.shape.groups) == 1 for one in found.values() if one.shape)
    assert found["max"].largest_variance(epsilon=1.0) < found["sum"].largest_variance(epsilon=1.0)
    assert found["sum"].expected_squared_error(epsilon=1.0) < found["max"].expected_squared_error(epsilon=1.0)


def test_many_blocks_and_large_ones_have_a_reason() -> None:
    workload = MatrixWorkload(np.eye(60), blocks=(55, 5))
    found = batchdp.optimize(workload, shape="any", seconds=0.2)
    assert found.shape is None
    assert "rank 55 is above 3 groups of 16" in found.reason
    many = batchdp.optimize(MatrixWorkload(np.eye(40), blocks=(2,) * 20), shape="any", seconds=0.2, limits=APART)
    assert "20 blocks of cells are more than 12 bodies" in many.reason


DOMAIN = """
table = "people"
[privacy]
unit = "person"
rows_per_unit = 2
neighbours = "replace"
max_rows = 100000
[columns.a]
values = ["x", "y", "z"]
other = "drop"
[columns.b]
values = ["u", "v"]
other = "drop"
[columns.pay]
integers = [0, 1000]
"""
ASKED = {
    "averages": "SELECT AVG(pay) AS pay FROM people GROUP BY a; SELECT COUNT(*) AS n FROM people GROUP BY b",
    "sums": "SELECT SUM(pay) AS pay FROM people WHERE a = 'x'; SELECT COUNT(*) AS n FROM people GROUP BY a, b",
    "blocks": "SELECT COUNT(*) AS a FROM people GROUP BY a; SELECT AVG(pay) AS pay FROM people GROUP BY b",
}


@pytest.mark.parametrize("name", ASKED)
def test_a_plan_is_saved_loaded_answered_verified_and_audited(name: str, tmp_path: Path) -> None:
    cells = 8 if name == "blocks" else 10_000
    plan = batchdp.plan(
        ASKED[name], DOMAIN, shape="any", limits=ShapeLimits(directions=1000), seconds=0.5, cache=False, max_cells=cells
    )
    assert plan.strategy.noise is KNORM
    assert len(plan.workload.blocks) == (2 if name == "blocks" else 1)
    plan.save(tmp_path / "a.plan")
    plan = batchdp.load_plan(tmp_path / "a.plan")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.choice(list("xyz"), 400), "b": rng.choice(list("uv"), 400)})
    table["pay"], table["person"] = rng.integers(0, 1001, 400), np.arange(400) // 2
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=30.0)
    done = batchdp.answer(plan, table, epsilon=20.0, ledger=ledger, release_id="one")
    again = batchdp.answer(plan, table, epsilon=20.0, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, done.values)
    assert done.certificate.distribution == KNORM.name
    done.save(tmp_path / "one.release")
    loaded = batchdp.load_release(tmp_path / "one.release")
    assert [str(one) for one in loaded.answers] == [str(one) for one in done.answers]
    for one in done.answers:
        if one.name.startswith("pay[a=x") or (name == "sums" and one.name == "pay"):
            own = table.pay[table.a == "x"]
            assert abs(one.value - (own.sum() if name == "sums" else own.mean())) < 6 * one.standard_error
        if one.name.startswith("n["):
            assert one.standard_error < 10
    found = batchdp.audit(plan, epsilon=20.0, runs=200)
    assert found.passed, str(found)


def hostile(seed: int) -> Fraction:
    """The largest loss between neighbours of a random small batch, over random tables and neighbours."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    blocks = tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 3)))
    n, m = sum(blocks), chance.randint(2, 4)
    W = rng.integers(-3, 4, (m, n)).astype(float)
    starts = np.cumsum((0, *blocks)).tolist()
    ends = []
    for first, last in pairwise(starts):
        if chance.random() < 0.5:
            low = chance.randrange(first, last)
            high = chance.choice([-1, *range(first, last)])
            if low != high:
                ends.append((low, high, chance.randint(1, 9)) if chance.random() < 0.5 else (high, low, 5))
    sets = [list(range(len(blocks)))] if chance.random() < 0.5 else [[b] for b in range(len(blocks))]
    workload = MatrixWorkload(W, blocks=blocks, ends=ends, meetings=sets)
    try:
        found = shaped_noise(workload, chance.choice([QUICK, APART, ShapeLimits(rank=2, directions=100)]), seed)
    except StrategyError:
        return Fraction(0)
    whose = chance.choice(WHO)
    made = prepared(found, whose, 1.0, chance.choice([None, 5000]))
    lattice: Any = made.measurement
    every = list(records(workload))
    worst = Fraction(0)
    for _ in range(25):
        crowd = np.array([chance.choice([0, 1, 2**40, 2**62]) for _ in range(lattice.cells)], dtype=np.int64)
        here = there = crowd
        for _ in range(whose.rows_per_unit):
            here = here + np.array(chance.choice(every), dtype=np.int64)
            if whose.relation == "replace":
                there = there + np.array(chance.choice(every), dtype=np.int64)
        apart = [a - b for a, b in zip(measured(lattice, here), measured(lattice, there), strict=True)]
        worst = max(worst, loss(made, apart))
    for one, other in combinations_with_replacement(chance.sample(every, min(4, len(every))), 2):
        # The same record as often as one person may have it, against another as often.
        times = whose.rows_per_unit
        ours, theirs = (measured(lattice, times * np.array(record, dtype=np.int64)) for record in (one, other))
        worst = max(worst, loss(made, ours))
        if whose.relation == "replace":
            worst = max(worst, loss(made, [a - b for a, b in zip(ours, theirs, strict=True)]))
    return worst


@pytest.mark.parametrize("seed", range(12))
def test_no_hostile_neighbours_are_told_apart(seed: int) -> None:
    assert hostile(seed) <= 1
