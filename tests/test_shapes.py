"""Noise in the shape of a batch: norms against linear programs, plans, files, releases, and mutants of its privacy."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

import batchdp
from batchdp import (
    BatchDPError,
    LatticeError,
    Ledger,
    MatrixWorkload,
    ReleaseError,
    ShapeLimits,
    StrategyError,
    archive,
)
from batchdp.audits.attack import attack
from batchdp.audits.exact import exact
from batchdp.audits.knorm import telling_shift
from batchdp.linalg.l1_ball import gauges
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.measure import add
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample
from batchdp.optimizer.shapes import shaped_noise, with_shape
from batchdp.plans.file import FORMAT
from batchdp.privacy import KNORM, LAPLACE
from batchdp.private import CellCounts
from batchdp.queries.expressions import Affine, Asked, Combination, Ratio
from batchdp.release.answering import Request, release
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Group, Shape
from batchdp.strategies.shaped import shaped
from batchdp.workloads.kronecker import in_factors
from commands import refused, succeeds
from mechanisms import measured, prepared, reread
from shaped_truth import epsilons_of, noise_of

FLAGS = np.array([one for one in product((0, 1), repeat=3) if any(one)], dtype=float).T
"""Three overlapping counts."""
QUICK = ShapeLimits(directions=1000)
FLAGGED = shaped_noise(MatrixWorkload(FLAGS), QUICK)

DOMAIN = """
table = "people"
[privacy]
unit = "person"
rows_per_unit = 2
[columns.a]
values = ["x", "y", "z"]
other = "drop"
[columns.b]
values = ["u", "v"]
other = "drop"
"""
SQL = "SELECT COUNT(*) AS by_a FROM people GROUP BY a; SELECT COUNT(*) AS by_b FROM people GROUP BY b;"


def ready(
    strategy: PairStrategy = FLAGGED, factor: int = 1, budget: float = 1.0
) -> tuple[ShapedLattice, Mechanism, ShapedLaw]:
    made = prepared(strategy, Neighbours("add-remove", factor), budget, 10**6)
    lattice, law = made.measurement, made.reader.noise_law
    assert isinstance(lattice, ShapedLattice)
    assert made.noise is KNORM
    assert isinstance(law, ShapedLaw)
    return lattice, made, law


def norm(columns: np.ndarray, point: np.ndarray) -> float:
    both = np.hstack([columns, -columns])
    found: Any = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=point, bounds=(0, None))
    return float(found.fun)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_norms_are_those_of_linear_programs(rank: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.integers(-3, 4, (rank, rank + more)).astype(float)
    columns[:, :rank] += 7 * np.eye(rank)
    points = np.vstack([rng.standard_normal((3, rank)), columns.T[:2], np.zeros((1, rank))])
    expected = [norm(columns, point) for point in points]
    assert gauges(columns, points) == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_a_cross_polytope_is_laplace_noise() -> None:
    # Three measurements of one cell each: the noise of each is Laplace, of variance 2.
    found = shaped(MatrixWorkload(np.eye(3)), ShapeLimits(directions=20_000))
    assert found.shape is not None
    variances = found.per_query_variance(epsilon=1.0)
    assert variances == pytest.approx([2.0, 2.0, 2.0], rel=0.06)
    law = ready(found)[2]
    assert law.half_widths(0.95) == pytest.approx(np.log(20), rel=0.03)
    assert law.covariance == pytest.approx(2 * np.eye(3), abs=0.12)


def test_a_cube_has_the_variance_of_a_cube() -> None:
    # K = [−1, 1]²: (k + 1)(k + 2) E U² = 12 / 3.
    cube = np.array([[1.0, 1.0], [1.0, -1.0]]).T
    found = shaped(MatrixWorkload(cube), ShapeLimits(directions=20_000))
    assert found.per_query_variance(epsilon=2.0) == pytest.approx([1.0, 1.0], rel=0.03)
    assert found.expected_squared_error(epsilon=2.0) == pytest.approx(2.0, rel=4 * found.simulation_error)


def test_the_standard_error_of_the_simulation_is_its_spread() -> None:
    found = [shaped(MatrixWorkload(FLAGS), ShapeLimits(directions=400), seed=seed) for seed in range(24)]
    errors = [one.expected_squared_error(epsilon=1.0) for one in found]
    said = float(np.mean([one.simulation_error for one in found]) * np.mean(errors))
    assert 0.6 * said < float(np.std(errors, ddof=1)) < 1.6 * said


def test_it_is_taken_only_where_it_is_clearly_better() -> None:
    better = batchdp.optimize(FLAGS, shape="any", limits=QUICK, seconds=0.5)
    assert better.shape is not None
    assert better.method in better.reason or "best pair" in better.reason
    pair = batchdp.optimize(FLAGS, seconds=0.5)
    assert pair.shape is None
    unsure = with_shape(MatrixWorkload(FLAGS), pair, "sum", ShapeLimits(directions=1000, clearly=1e6), 0)
    assert unsure.shape is None
    assert "this pair has" in unsure.reason
    auto = batchdp.optimize(FLAGS, "auto", delta=1e-6, shape="any", limits=QUICK, seconds=0.5)
    assert auto.noise is KNORM
    assert "K-norm noise has an expected squared error of" in auto.reason
    prefix = batchdp.optimize(batchdp.workloads.prefix(6), shape="any", limits=QUICK, seconds=0.5)
    assert prefix.shape is None
    worst = batchdp.optimize(FLAGS, shape="any", objective="max", limits=QUICK, seconds=0.5)
    assert worst.shape is not None


@pytest.mark.parametrize(
    ("matrix", "limits", "said"),
    [
        (np.zeros((2, 3)), QUICK, "rank 0"),
        (np.ones((2, 4)), QUICK, "rank 1"),
        (np.eye(7), ShapeLimits(rank=3, groups=2), "above 2 groups of 3"),
        (FLAGS, ShapeLimits(columns=5), "7 different columns are more than 5"),
        (FLAGS, ShapeLimits(seconds=1e-9), "seconds"),
    ],
    ids=["zeros", "rank 1", "rank", "columns", "seconds"],
)
def test_beyond_its_limits_a_batch_has_a_pair_and_the_reason(matrix: Any, limits: ShapeLimits, said: str) -> None:
    found = batchdp.optimize(matrix, shape="any", limits=limits, seconds=0.2)
    assert found.shape is None
    assert said in found.reason


def test_columns_of_very_different_size_and_equal_ones_are_no_matter() -> None:
    sizes = np.array([1e-6, 1.0, 1e3, 1.0, 1.0, 1e-3, 1.0])
    found = shaped_noise(MatrixWorkload(np.hstack([FLAGS * sizes, FLAGS * sizes, np.zeros((3, 2))])), QUICK)
    assert found.residual <= 1e-9
    alone = shaped_noise(MatrixWorkload(FLAGS * sizes), QUICK)
    assert found.expected_squared_error(epsilon=1.0) == pytest.approx(alone.expected_squared_error(epsilon=1.0))
    lattice, _, _ = ready(found)
    assert all(len(columns.T) <= 7 for columns in lattice.record_columns)


def test_queries_of_nothing_have_no_noise_and_groups_of_any_size_are_measured() -> None:
    W = np.vstack([np.zeros(7), FLAGS, 1e-4 * np.roll(FLAGS, 3, axis=1), np.zeros(7)])
    found = shaped_noise(MatrixWorkload(W), ShapeLimits(rank=4, directions=200))
    lattice, made, law = ready(found, budget=50.0)
    assert law.standard_errors[[0, -1]].tolist() == [0.0, 0.0]
    assert law.half_widths()[[0, -1]].tolist() == [0.0, 0.0]
    assert all(np.abs(columns).max() > 2**19 for columns in lattice.record_columns)
    assert len(sample(lattice, made.noises)) == found.measurements


def test_groups_become_smaller_where_a_draw_would_take_too_long() -> None:
    W = np.random.default_rng(0).standard_normal((6, 20))
    limits = ShapeLimits(directions=100, seconds=1.0)
    found = shaped(MatrixWorkload(W), limits, price=lambda measure: 0.9 if len(measure) > 4 else 0.1)
    assert found.shape is not None
    assert found.shape.ranks == (6,)
    found = shaped(MatrixWorkload(W), limits, price=lambda measure: 2.0 if len(measure) > 4 else 0.1)
    assert found.shape is not None
    assert max(found.shape.ranks) <= 4
    assert found.shape.seconds == 0.2
    with pytest.raises(StrategyError, match="4 seconds"):
        shaped(MatrixWorkload(W), limits, price=lambda measure: 2.0 / 3 * len(measure))


def test_other_kinds_of_noise_and_batches_have_no_shape() -> None:
    with pytest.raises(StrategyError, match="pure"):
        batchdp.optimize(FLAGS, "zcdp", shape="any")
    with pytest.raises(StrategyError, match="'any'"):
        batchdp.optimize(FLAGS, shape="round")  # type: ignore[call-overload]
    with pytest.raises(StrategyError, match="pure ε alone"):
        replace(FLAGGED, privacy="zcdp")
    with pytest.raises(StrategyError, match="blocks"):
        replace(FLAGGED, workload=MatrixWorkload(FLAGS, blocks=(3, 4)))
    tables = batchdp.optimize(in_factors((2, 2), [[np.eye(2), None], [None, np.eye(2)]]), shape="any", seconds=0.2)
    assert "tables" in tables.reason
    for wrong in ({"rank": 0}, {"groups": 0}, {"seconds": float("nan")}, {"directions": 5}, {"columns": True}):
        with pytest.raises(BatchDPError):
            ShapeLimits(**wrong)


def test_no_limit_of_pairs_is_claimed() -> None:
    assert FLAGGED.lower_bound(epsilon=1.0) == 0.0
    assert FLAGGED.largest_variance_bound(epsilon=1.0) == 0.0
    assert "No limit is proven" in FLAGGED.certified(epsilon=1.0)
    with pytest.raises(StrategyError, match="per_query_variance"):
        FLAGGED.noise_variance(epsilon=1.0)


def test_groups_share_epsilon() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((8, 30))
    found = shaped_noise(MatrixWorkload(W), ShapeLimits(rank=4, directions=1000))
    assert found.shape is not None
    assert found.shape.ranks == (4, 4)
    assert sum(group.share for group in found.shape.groups) == 1
    one = shaped_noise(MatrixWorkload(W), ShapeLimits(rank=8, directions=1000))
    assert one.expected_squared_error(epsilon=1.0) < found.expected_squared_error(epsilon=1.0)
    lattice, made, law = ready(found, budget=0.5)
    z = noise_of(made, 400) / 2.0**lattice.bits
    answers = z @ np.asarray(lattice.reconstruct).T
    assert np.square(answers).sum(axis=1).mean() == pytest.approx(found.expected_squared_error(epsilon=0.5), rel=0.2)
    assert np.mean(np.abs(answers) <= law.half_widths(0.9)) == pytest.approx(0.9, abs=0.02)
    assert np.mean((np.abs(answers) <= law.simultaneous_half_widths(0.9)).all(axis=1)) == pytest.approx(0.9, abs=0.06)


def test_exact_draws_have_the_law_that_is_said() -> None:
    lattice, made, law = ready(budget=0.5)
    z = noise_of(made, 4000)
    (columns,) = lattice.record_columns
    norms = gauges(columns.astype(float), z) * float(epsilons_of(made)[0])  # Gamma(3)
    assert norms.mean() == pytest.approx(3.0, abs=5 * np.sqrt(3 / 4000))
    assert norms.var() == pytest.approx(3.0, rel=0.25)
    answers = z @ np.asarray(lattice.reconstruct).T / 2.0**lattice.bits
    assert np.mean(np.abs(answers) <= law.half_widths(0.95)) == pytest.approx(0.95, abs=0.012)
    assert np.cov(answers.T) == pytest.approx(law.covariance, rel=0.25, abs=0.15 * law.covariance.max())


def test_a_release_repeats_loads_and_says_its_shape(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    counts = np.arange(7) * 100
    done = batchdp.answer(FLAGGED, counts, epsilon=1.0, ledger=ledger, release_id="one")
    assert "3 measurements with 1 of ε" in done.certificate.shape
    assert np.abs(done.values - FLAGS @ counts).max() < 60
    again = batchdp.answer(FLAGGED, counts, epsilon=1.0, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, done.values)
    assert ledger.spent == 1.0
    done.save(tmp_path / "one.release")
    loaded = batchdp.load_release(tmp_path / "one.release")
    assert loaded.answers == done.answers
    assert np.array_equal(loaded.covariance, done.covariance)
    assert batchdp.epsilon_for(FLAGGED, standard_error=10.0) == pytest.approx(
        np.sqrt(FLAGGED.largest_variance(epsilon=1.0)) / 10, rel=1e-4
    )


def forged_scale(release: Any) -> Any:
    return reread(release, {"scale": release.reader.noise_law.scale / 2})


def forged_sample(release: Any) -> Any:
    return reread(release, {"shape": release.reader.noise_law.shape.scaled(0.5)})


def forged_kind(release: Any) -> Any:
    return replace(release, certificate=replace(release.certificate, shape=""))


def forged_distribution(release: Any) -> Any:
    return replace(release, certificate=replace(release.certificate, distribution=LAPLACE.name))


def forged_group(release: Any) -> Any:
    """As if one unit could have fewer columns, and the noise had lost less."""
    (group,) = release.certificate.groups
    return replace(release, certificate=replace(release.certificate, groups=(replace(group, moved=0, loss=0.0),)))


def forged_sensitivity(release: Any) -> Any:
    certificate = replace(release.certificate, neighbours="replacing one unit of at most 1 row")
    return replace(release, certificate=certificate)


def forged_both(release: Any) -> Any:
    made = forged_sample(release)
    return replace(made, certificate=replace(release.certificate, shape=made.reader.shape_text))


def claimed(release: Any, group: Any) -> Any:
    """A release with this sample, and a certificate that agrees."""
    made = reread(release, {"shape": replace(release.reader.noise_law.shape, groups=(group,))})
    return replace(made, certificate=replace(release.certificate, shape=made.reader.shape_text))


def forged_places(release: Any) -> Any:
    """Points that look right at even distances."""
    (group,) = release.reader.noise_law.shape.groups
    points, weights = 1e-3 * group.points, group.weights.copy()
    kept = np.linspace(0, len(points) - 1, 16).astype(int)
    points[kept], weights[kept] = group.points[kept], 0.0
    return claimed(release, replace(group, points=points, weights=weights / weights.sum()))


def forged_weights(release: Any) -> Any:
    """Only the points next to the middle."""
    (group,) = release.reader.noise_law.shape.groups
    weights = np.zeros_like(group.weights)
    weights[np.argsort(np.linalg.norm(group.points, axis=1))[:200]] = 1 / 200
    return claimed(release, replace(group, weights=weights))


FORGED = [
    forged_scale, forged_sample, forged_kind, forged_distribution, forged_group, forged_sensitivity, forged_both,
    forged_places, forged_weights,
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_release_is_refused(tmp_path: Path, forge: Any) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    done = batchdp.answer(FLAGGED, np.arange(7), epsilon=1.0, ledger=ledger)
    forge(done).save(tmp_path / "forged.release")
    with pytest.raises(ReleaseError, match="cannot be used"):
        batchdp.load_release(tmp_path / "forged.release")


def test_noise_without_a_shape_does_not_pass_for_such(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    done = batchdp.answer(batchdp.optimize(FLAGS, seconds=0.2), np.arange(7), epsilon=1.0, ledger=ledger)
    forged = replace(done, certificate=replace(done.certificate, distribution=KNORM.name))
    forged.save(tmp_path / "forged.release")
    with pytest.raises(ReleaseError, match="cannot be used"):
        batchdp.load_release(tmp_path / "forged.release")


def test_a_plan_keeps_its_shape(tmp_path: Path) -> None:
    plan: Any = batchdp.plan(SQL, DOMAIN, shape="any", limits=QUICK, seconds=0.5, cache=False)
    assert plan.strategy.shape is not None
    plan.save(tmp_path / "a.plan")
    loaded = batchdp.load_plan(tmp_path / "a.plan")
    assert loaded.options == plan.options
    assert str(loaded.strategy.shape) == str(plan.strategy.shape)
    said = batchdp.outlook(loaded)
    assert said.lower_bound == 0.0
    assert "simulated" in said.summary()
    assert "No strategy of this kind" not in said.summary()
    assert batchdp.plan(SQL, DOMAIN, seconds=0.5, cache=False).strategy.shape is None
    wrong = replace(plan.strategy, shape=plan.strategy.shape.scaled(2.0))
    replace(plan, strategy=wrong).save(tmp_path / "b.plan")
    with pytest.raises(batchdp.PlanError, match="sample"):
        batchdp.load_plan(tmp_path / "b.plan")


# --- What the guarantee rests on: each mutant breaks one thing, and each is caught.


def broken(made: Mechanism) -> set[str]:
    return {finding.check for finding in exact(made) if not finding.held}


def with_body(lattice: ShapedLattice, body: Body) -> ShapedLattice:
    """The same measurements, with noise in the shape of another body."""
    cheating = replace(lattice)
    cheating.__dict__["bodies"] = (body,)
    return cheating


def with_drawn_body(lattice: ShapedLattice, body: Body) -> ShapedLattice:
    """The same, and only what is drawn has the other body."""
    cheating = replace(lattice)
    cheating.__dict__["groups"] = (replace(lattice.groups[0], body=body),)
    return cheating


CHEATS = [with_body, with_drawn_body]


def without_one_column(lattice: ShapedLattice) -> Any:
    """All columns of records but one that is a corner."""
    (columns,) = lattice.record_columns
    first = columns[:, 0].tolist()
    return columns[:, 1:] if Body(columns[:, 1:].astype(object)).norm(first) > 1 else columns[:, :-1]


def test_what_is_right_passes_the_audit() -> None:
    lattice, made, _ = ready(factor=2)
    assert broken(made) == set()
    found = batchdp.audit(FLAGGED, epsilon=1.0, rows_per_unit=2, runs=1001)
    assert found.passed, str(found)
    assert "by 1,001 runs a side" in str(found)
    # As many as are asked for where draws are quick, by what each of many takes.
    assert all(body.seconds_together < 1e-3 < body.seconds for body in lattice.bodies)


@pytest.mark.parametrize("cheat", CHEATS)
def test_one_column_outside_is_noticed(cheat: Any) -> None:
    lattice, made, _ = ready()
    cheating = cheat(lattice, Body(without_one_column(lattice).astype(object)))
    assert "sensitivity" in broken(replace(made, measurement=cheating))
    assert cheating.groups[0].column_outside() is not None
    with pytest.raises(LatticeError, match="outside"):
        calibrate(cheating, 1, made.budget)


def test_a_column_that_was_forgotten_is_noticed() -> None:
    lattice, made, _ = ready()
    cheating = replace(lattice)
    cheating.__dict__["record_columns"] = (without_one_column(lattice),)  # of which bodies are made
    assert "sensitivity" in broken(replace(made, measurement=cheating))
    with pytest.raises(LatticeError, match="outside"):
        calibrate(cheating, 1, made.budget)


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_body_that_is_rounded_inward_is_noticed(cheat: Any) -> None:
    lattice, made, _ = ready()
    (columns,) = lattice.record_columns
    inward = Body((columns - np.sign(columns)).astype(object))
    assert "sensitivity" in broken(replace(made, measurement=cheat(lattice, inward)))
    outward = Body((columns * 2).astype(object))
    assert "sensitivity" not in broken(replace(made, measurement=cheat(lattice, outward)))


def test_shares_above_one_are_refused() -> None:
    groups = [Group(Fraction(3, 5), np.eye(2), np.full(2, 0.5)), Group(Fraction(1, 2), np.eye(2), np.full(2, 0.5))]
    with pytest.raises(StrategyError, match="11/10"):
        Shape(tuple(groups))
    _, made, _ = ready()
    mutant = replace(made, noises=tuple(replace(one, loss=1.1 * one.loss) for one in made.noises))
    assert epsilons_of(mutant)[0] > epsilons_of(made)[0]
    assert broken(mutant) == {"privacy loss"}


def test_shares_that_add_up_to_more_lose_no_more() -> None:
    found = shaped_noise(
        MatrixWorkload(np.random.default_rng(0).standard_normal((4, 9))), ShapeLimits(rank=2, directions=100)
    )
    lattice, made, _ = ready(found)
    assert len(lattice.groups) == 2
    for group in lattice.shape.groups:  # past the check at birth
        object.__setattr__(group, "share", Fraction(1))
    noises = calibrate(replace(lattice), 1, made.budget)
    assert sum(Fraction(one.loss) for one in noises) == 1
    twice = replace(made, noises=tuple(replace(one, scale=1.0, loss=1.0) for one in noises))
    assert broken(twice) == {"privacy loss"}


def test_rows_per_person_that_are_forgotten_are_noticed() -> None:
    _, forgetful, _ = ready(factor=1)
    assert broken(replace(forgetful, neighbours=Neighbours("add-remove", 3))) == {"sensitivity", "privacy loss"}
    _, made, _ = ready(factor=3)
    assert epsilons_of(made) == (Fraction(1, 3),)


def test_epsilon_is_the_exact_fraction_that_is_charged() -> None:
    _, made, _ = ready(budget=0.1)
    (noise,) = made.noises
    assert made.budget.amount == Fraction(1, 10)
    assert Fraction(noise.loss) <= Fraction(1, 10) < Fraction(math.nextafter(noise.loss, 1.0))
    assert epsilons_of(made) == (Fraction(noise.loss),)
    assert Fraction(noise.scale) * Fraction(noise.loss) >= 1


def test_noise_is_drawn_for_one_release_and_added_once(tmp_path: Path) -> None:
    lattice, made, _ = ready()
    counts = np.arange(7)
    assert add(lattice, CellCounts(0 * counts), sample(lattice, made.noises)).tolist() != [0, 0, 0]
    drawn: list[Any] = []

    def draw(*given: Any) -> Any:
        drawn.append(sample(*given))
        return drawn[-1]

    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    request = Request(FLAGGED, lambda: CellCounts(counts), Neighbours(), 10**6, "counts")
    exactly = np.array(measured(lattice, counts), dtype=object)
    for name in ("one", "two"):
        done = release(request, made.budget, ledger=ledger, release_id=name, draw=draw)
        assert done.noisy.tolist() == (exactly + drawn[-1]).tolist()
    release(request, made.budget, ledger=ledger, release_id="one", draw=draw)  # stored: nothing is drawn
    assert len(drawn) == 2
    assert not np.any(drawn[0] == drawn[1])


def test_measurements_are_never_clamped() -> None:
    # A clamp of single coordinates is no contraction in the norm of a body.
    lattice, _, _ = ready()
    counts = np.full(7, 2**62, dtype=np.int64)
    exact = [sum(int(q) * 2**62 for q in row) for row in lattice.integers.toarray()]
    assert measured(lattice, counts) == exact
    assert max(map(abs, exact)) > 2**64


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_every_column_is_inside_in_fractions(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = rng.integers(-2, 3, (rank, 9)) + 5 * np.eye(rank, 9)
    found = shaped(MatrixWorkload(W), ShapeLimits(rank=2, directions=100))
    lattice, made, _ = ready(found)
    assert found.shape is not None
    for column in lattice.integers.T.toarray().tolist():
        total = Fraction(0)
        for (own, group), drawn in zip(found.shape.parts, lattice.groups, strict=True):
            part = column[own]
            assert drawn.body.contains(part)
            total += group.share * drawn.body.norm(part)
        assert total <= 1
    assert sum(epsilons_of(made)) <= 1


def test_noise_is_drawn_before_the_charge_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.5)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("batchdp.mechanism.sample.draws", interrupted)
        with pytest.raises(KeyboardInterrupt):
            batchdp.answer(FLAGGED, np.arange(7), epsilon=1.0, ledger=ledger)
    assert ledger.spent == 0.0
    batchdp.answer(FLAGGED, np.arange(7), epsilon=1.0, ledger=ledger, release_id="a")
    with monkeypatch.context() as patch:  # what costs nothing, or is refused, draws nothing
        patch.setattr("batchdp.mechanism.sample.draws", interrupted)
        batchdp.answer(FLAGGED, np.arange(7), epsilon=1.0, ledger=ledger, release_id="a")
        with pytest.raises(batchdp.BudgetError):
            batchdp.answer(FLAGGED, np.arange(7), epsilon=1.0, ledger=ledger, release_id="b")


@pytest.mark.slow
def test_the_attack_notices_noise_that_is_a_fifth_too_small() -> None:
    _, made, _ = ready(budget=2.0)
    assert {one.check for one in attack(made, 20_000) if not one.held} == set()
    small = replace(made, noises=tuple(replace(one, loss=1.2 * one.loss) for one in made.noises))
    found = {one.check for one in attack(small, 20_000) if not one.held}
    assert {"attack on the largest column", "noise scale"} <= found


@pytest.mark.slow
def test_the_attack_runs_as_often_as_asked_whatever_the_groups() -> None:
    found = shaped_noise(MatrixWorkload(np.eye(4) + 1), ShapeLimits(rank=2, directions=100))
    assert found.shape is not None
    assert len(found.shape.groups) == 2
    assert "by 20,001 runs a side" in str(batchdp.audit(found, epsilon=1.0, runs=20_001))


@pytest.mark.parametrize("factor", [1, 8])
def test_the_attack_adds_the_column_that_shows_most(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All seven columns have norm 1; a third of the draws show all of one with two flags, a quarter of the others."""
    monkeypatch.setattr("batchdp.audits.knorm.TRIALS", 2000)
    lattice, made, _ = ready(budget=2.0)
    columns = (factor * lattice.integers.toarray().T).tolist()
    pilot = noise_of(made, 2000)
    draws = np.concatenate([pilot, np.full((18_000, 3), np.nan)])  # what is not the pilot is not looked at
    chosen = telling_shift(lattice, [2.0 / factor], draws, factor)
    assert np.count_nonzero(chosen) == 2
    assert chosen.tolist() in columns
    assert telling_shift(lattice, [2.0 / factor], draws[:5], factor).tolist() in columns  # no pilot at all


@pytest.mark.parametrize("runs", [1, 9])
def test_an_audit_of_few_runs_proves_little(runs: int) -> None:
    _, made, _ = ready(budget=2.0)
    assert next(attack(made, runs)).held


def test_the_file_of_a_pair_holds_no_shape(tmp_path: Path) -> None:
    plan = batchdp.plan(SQL, DOMAIN, seconds=0.5, cache=False)
    plan.save(tmp_path / "pair.plan")
    header, arrays = archive.load(tmp_path / "pair.plan", FORMAT, batchdp.PlanError, "plan")
    assert header["options"]["shape"] == "pair"
    assert header.get("shape") is None
    assert not any(name.startswith("shape") for name in arrays)
    loaded = batchdp.load_plan(tmp_path / "pair.plan")
    assert loaded.options == plan.options
    assert loaded.strategy.shape is None
    assert sparse.issparse(ready()[0].integers)


def test_consistent_answers_are_fitted_in_units_of_the_noise(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    done = batchdp.answer(FLAGGED, np.array([0, 0, 0, 50, 0, 0, 3]), epsilon=1.0, ledger=ledger)
    agreeing = done.consistent(whole=True)
    assert np.all(agreeing.values >= 0)
    assert np.abs(agreeing.values - done.values).max() < 60
    # Other coordinates of the same measurements have another covariance and the same fit.
    turn = np.array([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, -1.0, 3.0]])
    reader: Any = done.reader
    law = reader.noise_law
    assert isinstance(law, ShapedLaw)
    (group,) = law.shape.groups
    other = {
        "reconstruct": np.asarray(law.reconstruct) @ np.linalg.inv(turn),
        "shape": Shape((replace(group, points=group.points @ turn.T),)),
    }
    measure = sparse.csr_array(turn @ reader.measure.toarray())
    turned = replace(reread(done, other, measure=measure), noisy=turn @ done.noisy.astype(np.float64))
    assert turned.consistent().values == pytest.approx(done.consistent().values, abs=1e-3)


def test_the_command_line_asks_for_shapes(tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text(DOMAIN, encoding="utf-8")
    (tmp_path / "queries.sql").write_text(SQL, encoding="utf-8")
    asked = ["plan", tmp_path / "queries.sql", "-d", tmp_path / "domain.toml", "-o", tmp_path / "a.plan", "--no-cache"]
    said = succeeds(*asked, "--shape", "any", "--seconds", "0.5", "--verbose")
    assert "simulated" in said
    assert "No limit is proven" in said
    plan = batchdp.load_plan(tmp_path / "a.plan")
    assert plan.strategy.shape is not None
    assert plan.factor == 2
    assert "pure" in refused(*asked, "--shape", "any", "--privacy", "zcdp")
    assert "above 3 groups of 1" in succeeds(*asked, "--shape", "any", "--shape-rank", "1", "--seconds", "0.5")


@pytest.mark.parametrize("share", ["1e-30000000", "nan", "-1", "1/0", "0x1", "1" * 40, 0.5])
def test_a_share_in_a_file_is_a_plain_fraction(share: Any) -> None:
    with pytest.raises(StrategyError):
        Shape.read({"shares": [share], "seconds": 1.0}, lambda name: np.ones(4) / 4)


def test_the_audit_of_a_batch_that_asks_for_nothing() -> None:
    assert batchdp.audit(batchdp.optimize(np.zeros((2, 3)), shape="any"), epsilon=1.0, runs=1000).passed


def test_a_ratio_of_answers_with_shaped_noise_has_the_error_of_their_covariance() -> None:
    law: ShapedLaw = prepared(FLAGGED, Neighbours(), 1.0, None).measurement.law(np.array([2.0]))  # type: ignore[attr-defined]
    values, (n, d) = np.array([900.0, 1000.0, 800.0, 700.0])[: FLAGGED.workload.queries], (0, 1)
    one: Asked[int] = Asked(
        "r", Combination(Affine[int](), (Ratio(Affine(0.0, ((1.0, n),)), Affine(0.0, ((1.0, d),))),))
    )
    found = estimates([one], values, law, 0.95)
    theta, C = values[n] / values[d], law.covariance
    expected = np.sqrt(C[n, n] - 2 * theta * C[n, d] + theta**2 * C[d, d]) / values[d]
    assert found.values[0] == pytest.approx(theta)
    assert found.standard_errors[0] == pytest.approx(expected, rel=1e-9)
    assert found.low[0] < theta < found.high[0]
