"""Plans on top of what earlier releases measured: the error of the combined answers, its bound, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
import given as benchmark
from batchdp.errors import PlanError, ReleaseError
from batchdp.optimizer.informed import Informed, _Barrier, gaussian, laplace
from commands import run
from test_combining import (
    BUDGETS,
    BY_SEX,
    DOMAIN,
    JOINED,
    OF_PEOPLE,
    OTHERS,
    PERSONS,
    RANGES,
    SEVERAL,
    SOME,
    TABLE,
    answered,
    books,
    of_several,
    planned,
)
from test_grid import BATCHES

HALF = "; ".join(
    f"SELECT COUNT(*) AS h{i} FROM t WHERE v BETWEEN {a} AND {b}"
    for i, (a, b) in enumerate([(0, 9), (5, 30), (11, 12), (2, 38), (33, 35), (17, 18)])
)
TABLES = (
    "SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h; SELECT h, COUNT(*) AS m FROM t GROUP BY h",
    "SELECT h, COUNT(*) AS m FROM t GROUP BY h; SELECT h, COUNT(*) AS k FROM t WHERE v > 20 GROUP BY h",
)


def total(plan: batchdp.Plan, release: batchdp.Release) -> float:
    """What a plan minimises, of the answers of a release, by their names."""
    errors = release.to_frame().set_index("name")["standard_error"]
    own = errors[[table.name for table in plan.tables]].to_numpy()
    weights = np.ones(len(own)) if plan.workload.weights is None else plan.workload.weights
    return float(weights @ own**2)


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("asked", [(RANGES, HALF), TABLES], ids=["ranges", "tables"])
def test_what_is_promised_is_what_combining_gives(asked: tuple[str, str], privacy: str, tmp_path: Path) -> None:
    ledger = books(tmp_path, privacy)
    first = answered(planned(privacy, sql=asked[0]), ledger, "first")
    plain, plan = planned(privacy, sql=asked[1]), planned(privacy, sql=asked[1], given=[first])
    given = plan.options.given
    assert given is not None
    assert given.releases == ("first",)
    assert given.bound <= given.together <= given.without <= given.alone * (1 + 1e-9)
    assert given.alone == pytest.approx(plain.strategy.expected_squared_error(**BUDGETS[privacy]), rel=1e-3)
    without = batchdp.combine([first, answered(plain, ledger, "without")])
    assert total(plain, without) == pytest.approx(given.without, rel=1e-6)
    plan.save(tmp_path / "second.plan")
    again = batchdp.load_plan(tmp_path / "second.plan")
    assert again.options.given == given
    assert vars(again.options.given) == vars(given)
    together = batchdp.combine([first, answered(again, ledger, "second")])
    assert total(plan, together) == pytest.approx(given.together, rel=1e-6)
    if asked[0] == RANGES:
        assert given.together < 0.999 * given.without
    if privacy == "zcdp":
        assert given.together <= 1.01 * given.bound


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("kind", [name for name in BATCHES if not name.startswith("20 000")])
def test_any_batch_is_planned_on_top_of_any(kind: str, privacy: str, tmp_path: Path) -> None:
    """Cells, tables of many columns, sums: never worse than without, and the answers combine."""
    ledger = books(tmp_path, privacy)
    first = answered(planned(privacy, sql=RANGES), ledger, "first")
    plan = planned(privacy, **BATCHES[kind], given=[first])
    given = plan.options.given
    assert given is not None
    assert given.bound <= given.together * (1 + 1e-9)
    assert given.together <= given.without <= given.alone * (1 + 1e-9)
    batchdp.combine([first, answered(plan, ledger, "second")])
    assert "On top of release first" in batchdp.outlook(plan).summary()


def test_what_was_measured_is_looked_at_and_not_what_was_found(tmp_path: Path) -> None:
    """Or intervals would not hold: the strategy would depend on the noise."""
    ledger = books(tmp_path, "pure")
    plan = planned("pure", sql=RANGES)
    (tmp_path / "elsewhere").mkdir()
    one, other = (answered(plan, own, "first") for own in (ledger, books(tmp_path / "elsewhere", "pure")))
    assert not np.array_equal(one.noisy, other.noisy)
    made = [planned("pure", sql=OTHERS, given=[release]).strategy for release in (one, other)]
    assert np.array_equal(made[0].measure, made[1].measure)


def test_a_release_of_the_same_batch_leaves_half_of_the_error(tmp_path: Path) -> None:
    """Where there is nothing to choose: one count, twice."""
    ledger = books(tmp_path, "zcdp")
    sql = "SELECT COUNT(*) AS n FROM t"
    plan = planned("zcdp", sql=sql, given=[answered(planned("zcdp", sql=sql), ledger, "first")])
    given = plan.options.given
    assert given is not None
    assert given.together / given.alone == pytest.approx(0.5, rel=1e-4)


def test_what_could_not_be_combined_is_refused(tmp_path: Path) -> None:
    ledger = books(tmp_path, "pure")
    first = answered(planned("pure", sql=RANGES), ledger, "first", snapshot="2026-10")
    second = answered(planned("pure", sql=RANGES), ledger, "second", snapshot="2026-11")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"given": [first, first]}, "'first' comes twice"),
        ({"given": [first, second]}, "nothing is combined across snapshots"),
        ({"given": first}, "must be a list of releases"),
        ({"given": ["first.release"]}, "holds a str"),
        ({"given": [first], "privacy": "zcdp"}, "privacy is 'pure' in release 'first' and 'zcdp' in the plan"),
        ({"given": [first], "shape": "any"}, "leave out shape"),
        ({"given": [first], "domain": {**DOMAIN, "privacy": {"neighbours": "replace"}}}, "the cap on a person's rows"),
        ({"given": [first], "domain": {**DOMAIN, "columns": {"v": DOMAIN["columns"]["v"]}}}, "column h"),
    ]
    for asked, message in refused:
        with pytest.raises(PlanError, match=message):
            planned(**{"privacy": "pure", "sql": OTHERS, **asked})
    with pytest.raises(ReleaseError, match="edited or damaged"):
        planned("pure", sql=OTHERS, given=[replace(first, given=first.linear_answers + 1000)])
    counts = batchdp.answer(batchdp.optimize(np.eye(3)), [1, 2, 3], epsilon=1.0, ledger=ledger)
    with pytest.raises(ReleaseError, match="does not say what its cells stand for"):
        planned("pure", sql=OTHERS, given=[counts])


@pytest.mark.parametrize("privacy", BUDGETS)
def test_joins_and_persons_are_planned_on_top_too(privacy: str, tmp_path: Path) -> None:
    """With the errors that the combination then has, however often each release counts a row."""
    ledger = books(tmp_path, privacy)
    first = of_several(planned(privacy, sql=f"{BY_SEX}; {PERSONS}", domain=SEVERAL), ledger, noise=True)
    more = f"{OF_PEOPLE}; SELECT kind, COUNT(*) AS k {JOINED} WHERE sex IN ('f', 'm') GROUP BY kind; {SOME}"
    plan = planned(privacy, sql=more, domain=SEVERAL, given=[first])
    known = plan.options.given
    assert known is not None
    assert known.bound <= known.together <= known.without < known.alone
    assert total(plan, batchdp.combine([first, of_several(plan, ledger, noise=True)])) == pytest.approx(known.together)


def test_the_cache_knows_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path / "cache"))
    ledger = books(tmp_path, "pure")
    releases = [answered(planned("pure", sql=RANGES), ledger, name) for name in ("first", "second")]
    made = [planned("pure", sql=OTHERS, cache=True, given=own) for own in ([], releases[:1], releases, releases[:1])]
    assert [one.options.given and one.options.given.releases for one in made] == [
        None, ("first",), ("first", "second"), ("first",)
    ]  # fmt: skip
    assert vars(made[1].options.given) == vars(made[3].options.given)
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_the_command_plans_on_top(tmp_path: Path) -> None:
    ledger = books(tmp_path, "pure")
    answered(planned("pure", sql=RANGES), ledger, "first", snapshot="2026-10").save(tmp_path / "first.release")
    (tmp_path / "d.toml").write_text(
        'table = "t"\n[columns.v]\nintegers = [0, 50]\nbins = [0, 10, 20, 30, 40]\n[columns.g]\nvalues = ["a", "b"]\n'
    )
    (tmp_path / "q.sql").write_text(OTHERS)
    asked = ("plan", tmp_path / "q.sql", "-d", tmp_path / "d.toml", "-o", tmp_path / "q.plan", "--no-cache")
    done = run(*asked, "--given", tmp_path / "first.release")
    assert done.code == 1
    assert "in release 'first'" in done.err
    TABLE[["v"]].to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "d.toml").write_text('table = "t"\n[columns.v]\nintegers = [0, 50]\n')
    (tmp_path / "r.sql").write_text(RANGES)
    for more in (
        ("plan", tmp_path / "r.sql", "-d", tmp_path / "d.toml", "-o", tmp_path / "r.plan", "--no-cache"),
        ("answer", tmp_path / "r.plan", "-t", tmp_path / "t.csv", "-e", "1", "-l", tmp_path / "budget.db", "-o",
         tmp_path / "r.csv", "--yes", "--snapshot", "2026-10"),
        (*asked, "--given", tmp_path / "r.release"),
        ("answer", tmp_path / "q.plan", "-t", tmp_path / "t.csv", "-e", "1", "-l", tmp_path / "budget.db", "-o",
         tmp_path / "q.csv", "--yes", "--snapshot", "2026-10"),
        ("combine", tmp_path / "r.release", tmp_path / "q.release", "-o", tmp_path / "both.csv"),
    ):  # fmt: skip
        done = run(*more)
        assert done.code == 0, done.err
        if "--given" in more:
            said = " ".join((done.out + done.err).split())
            assert "for a release at ε = 1: what is minimised is" in said
            assert "as snapshot 2026-10" in said
    assert len(pd.read_csv(tmp_path / "both.csv")) == 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "privacy"), [("ranges", "pure"), ("ranges", "zcdp"), ("tables", "zcdp")])
def test_a_second_batch_that_overlaps_the_first_by_half(name: str, privacy: str) -> None:
    """The quicker ones of benchmarks/given.py; the others are on docs/combining.md."""
    found = benchmark.overlapping(*benchmark.WORKLOADS[name](), privacy)
    assert found["bound"] <= found["together"] <= min(0.8, found["without"])
    assert privacy == "pure" or found["together"] <= 1.005 * found["bound"]


# ── The search itself.


def _problem() -> tuple[Informed, np.random.Generator]:
    rng = np.random.default_rng(0)
    totals = np.linalg.qr(rng.standard_normal((12, 9)))[0]
    known = rng.standard_normal((5, 9))
    return Informed(rng.standard_normal((6, 12)), totals, known.T @ known, (4, 3, 5), ((0, 1), (1, 2))), rng


def test_the_barrier_has_the_gradient_that_it_says() -> None:
    problem, rng = _problem()
    barrier, x = _Barrier(problem, 0.1, 1.0), rng.standard_normal(3 + 16 + 9 + 25)
    found = [(barrier(x + 1e-6 * e)[0] - barrier(x - 1e-6 * e)[0]) / 2e-6 for e in np.eye(len(x))]
    np.testing.assert_allclose(barrier(x)[1], found, rtol=1e-5, atol=1e-5)


def test_no_strategy_is_below_the_bound_and_the_found_one_is_near() -> None:
    problem, rng = _problem()
    start = np.linalg.qr(rng.standard_normal((12, 12)))[0] / 2
    found = gaussian(problem, start)
    assert found.bound <= found.error <= 1.03 * found.bound
    barrier = _Barrier(problem, 0.1, 1.0)
    errors = [barrier.certified(rng.standard_normal(3 + 16 + 9 + 25)).error for _ in range(200)]
    assert min(errors) >= found.bound
    for met in problem.meetings:
        norms = [np.linalg.norm(found.measure[:, problem.cells[g]], axis=0).max() for g in met]
        assert float(np.sum(np.square(norms))) <= 1 + 1e-9
    L = laplace(problem, start / 4)
    assert problem.error(problem.told(L))[0] <= problem.error(problem.told(start / 4))[0]
    assert problem.error(problem.told(L))[0] >= found.bound
    for met in problem.meetings:
        assert sum(np.abs(L[:, problem.cells[g]]).sum(axis=0).max() for g in met) <= 1 + 1e-9
