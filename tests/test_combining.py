"""Releases about the same records as one: least squares over all that was measured, with the exact law of the noise."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.errors import ReleaseError
from batchdp.mechanism.functions import least_squares
from batchdp.mechanism.prepare import prepare
from batchdp.mechanism.sample import sample
from batchdp.plans.designs import Columns, Design
from batchdp.plans.planned import declared_neighbours
from batchdp.release.answering import _request, release
from batchdp.release.combining import combine
from batchdp.release.verify import check_release
from test_grid import BATCHES, _records
from test_grid import DOMAIN as GRID

DOMAIN: dict[str, Any] = GRID
BUDGETS: dict[str, dict[str, Any]] = {"pure": {"epsilon": 1.0}, "zcdp": {"rho": 0.5}}
KINDS = [name for name in BATCHES if not name.startswith("20 000")]
TABLE = _records(DOMAIN)
RANGES = "; ".join(
    f"SELECT COUNT(*) AS r{i} FROM t WHERE v BETWEEN {a} AND {b}"
    for i, (a, b) in enumerate([(0, 9), (5, 30), (11, 12), (20, 40), (3, 25)])
)
OTHERS = "; ".join(
    f"SELECT COUNT(*) AS s{i} FROM t WHERE v BETWEEN {a} AND {b}"
    for i, (a, b) in enumerate([(0, 9), (7, 33), (11, 19), (20, 30), (13, 25)])
)


def planned(privacy: str, **asked: Any) -> batchdp.Plan:
    return batchdp.plan(**{"domain": DOMAIN, "privacy": privacy, "seconds": 0.3, "cache": False, **asked})


def answered(plan: batchdp.Plan, ledger: batchdp.Ledger, name: str, **said: Any) -> batchdp.Release:
    return batchdp.answer(plan, TABLE, **BUDGETS[plan.privacy], ledger=ledger, release_id=name, **said)


def books(folder: Path, privacy: str) -> batchdp.Ledger:
    total: Any = dict.fromkeys(BUDGETS[privacy], 50.0)
    return batchdp.Ledger.create(folder / "budget.db", **total)


def unnoised(plan: batchdp.Plan, ledger: batchdp.Ledger) -> batchdp.Release:
    """A release whose noise happens to be 0 throughout."""
    with ExitStack() as opened:
        request = _request(plan, opened, TABLE, None, None, None, None, None)
        budget = batchdp.privacy.Budget.of(plan.strategy.noise, **BUDGETS[plan.privacy])
        return release(
            request, budget, ledger=ledger, draw=lambda measured, _, __: np.zeros(int(measured.sizes.sum()), np.int64)
        )


def design(plan: batchdp.Plan) -> Design:
    budget = batchdp.privacy.Budget.of(plan.strategy.noise, **BUDGETS[plan.privacy])
    return Design(plan.batch, prepare(plan.strategy, declared_neighbours(plan.domain), budget, None).reader)


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_least_squares_over_one_design_is_what_it_is_read_by(kind: str, privacy: str) -> None:
    """Whatever is measured, of cells or of many columns, the coordinates say the same as the design's own reader."""
    one = design(planned(privacy, **BATCHES[kind]))
    among = Columns([one.batch])
    B, missed = least_squares(one.measured(among), one.asked(among))
    errors = np.sqrt(one.reader.noise.variance_at_one * np.square(B).sum(axis=1))
    own = np.concatenate([one.reader.errors_of(t).reshape(-1) for t in range(len(one.reader.sizes))])
    np.testing.assert_allclose(errors, own, rtol=1e-6)
    assert np.all(missed <= 1e-7 * own)


@pytest.mark.parametrize("privacy", BUDGETS)
def test_two_releases_of_one_plan_are_their_mean(privacy: str, tmp_path: Path) -> None:
    plan, ledger = planned(privacy, sql=RANGES), books(tmp_path, privacy)
    first, second = (answered(plan, ledger, name) for name in ("first", "second"))
    both = combine([first, second])
    np.testing.assert_allclose(both.values, (first.values + second.values) / 2, rtol=1e-6)
    np.testing.assert_allclose(both.standard_errors, first.standard_errors / np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("kinds", [(KINDS[1], KINDS[3]), (KINDS[0], KINDS[2]), (KINDS[3], KINDS[4])])
def test_without_noise_the_combined_answers_are_true(kinds: tuple[str, str], privacy: str, tmp_path: Path) -> None:
    """So nothing is measured on one partition of cells and read on another."""
    ledger = books(tmp_path, privacy)
    parts = [unnoised(planned(privacy, **BATCHES[kind]), ledger) for kind in kinds]
    both = combine(parts)
    frame = both.to_frame().set_index("name")
    for part in parts:
        own = part.to_frame().set_index("name")
        shared = own.index.intersection(frame.index)
        assert len(shared) == len(own)
        np.testing.assert_allclose(frame.loc[shared, "value"], own["value"], atol=1e-3, rtol=1e-5)
        smaller = frame.loc[shared, "standard_error"] <= own["standard_error"] * 1.01
        assert smaller.all() or own["derived"].any()


@pytest.mark.parametrize("privacy", BUDGETS)
def test_a_combination_goes_where_releases_go(privacy: str, tmp_path: Path) -> None:
    """Files, pages, dossiers with all parts, consistent and denoised answers."""
    ledger = books(tmp_path, privacy)
    first = answered(planned(privacy, sql=BATCHES[KINDS[1]]["sql"]), ledger, "first")
    second = answered(planned(privacy, marginals=2), ledger, "second")
    both = combine([first, second])
    both.save(tmp_path / "both.release")
    again = batchdp.load_release(tmp_path / "both.release")
    np.testing.assert_allclose(again.values, both.values, rtol=1e-9)
    assert again.certificate == both.certificate
    batchdp.report(both, tmp_path / "page.html")
    batchdp.dossier(both, tmp_path / "folder", ledger=ledger)
    batchdp.verify(tmp_path / "folder", ledger=ledger)
    for name in ("first", "second"):
        assert name in (tmp_path / "folder" / "note.md").read_text()
        assert f'"release_id": "{name}"' in (tmp_path / "folder" / "evidence.json").read_text()
    agreed = both.consistent()
    assert np.nanmin(agreed.values) >= 0
    assert len(both.denoised().values) == len(both.values)
    assert both.certificate.budget == pytest.approx(2 * first.certificate.budget)
    assert list(both.table("g", name="n")["g"]) == ["a", "b", "c"]


def test_a_combination_stands_for_its_parts(tmp_path: Path) -> None:
    plan, ledger = planned("pure", sql=RANGES), books(tmp_path, "pure")
    first, second, third = (answered(plan, ledger, name) for name in ("first", "second", "third"))
    stepwise, at_once = combine([combine([first, second]), third]), combine([first, second, third])
    np.testing.assert_allclose(stepwise.values, at_once.values, rtol=1e-9)
    with pytest.raises(ReleaseError, match="'second' is given twice"):
        combine([combine([first, second]), second])


def test_one_name_for_two_queries_is_two_answers(tmp_path: Path) -> None:
    ledger = books(tmp_path, "pure")
    asked = "SELECT COUNT(*) AS n FROM t WHERE v > {}"
    parts = [answered(planned("pure", sql=asked.format(v)), ledger, f"r{v}") for v in (10, 20)]
    assert [one.name for one in combine(parts).answers] == ["n", "n (2)"]


def _coverage(privacy: str, many: int, runs: int) -> float:
    """Of 95 % intervals after combining, with noise as it is drawn for releases."""
    plans = [planned(privacy, sql=(RANGES, OTHERS)[i % 2]) for i in range(min(many, 2))]
    budget = batchdp.privacy.Budget.of(plans[0].strategy.noise, **BUDGETS[privacy])
    made = [prepare(one.strategy, declared_neighbours(one.domain), budget, None) for one in plans]
    parts = [(plans[i % 2], made[i % 2]) for i in range(many)]
    designs = [Design(plan.batch, own.reader) for plan, own in parts]
    among = Columns(one.batch for one in designs)
    from batchdp.mechanism.functions import stacked
    from batchdp.mechanism.law import NoiseLaw

    measured = stacked([one.measured(among) for one in designs])
    asked = stacked([one.asked(among) for one in designs[:2]])
    B, _ = least_squares(measured, asked)
    half = NoiseLaw(B, 1.0, budget.noise).half_widths(0.95)
    steps = np.concatenate([np.repeat(own.scales, own.measurement.sizes) for _, own in parts])
    hits = 0.0
    for _ in range(runs):
        noise = np.concatenate([sample(own.measurement, own.noises) for _, own in parts])
        hits += float(np.mean(np.abs(B @ (noise / steps)) <= half))
    return hits / runs


@pytest.mark.slow
@pytest.mark.parametrize("privacy", BUDGETS)
@pytest.mark.parametrize("many", [2, 5])
def test_intervals_hold_after_combining(many: int, privacy: str) -> None:
    assert 0.935 <= _coverage(privacy, many, 2000) <= 0.965


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[batchdp.Release, batchdp.Ledger]:
    ledger = books(tmp_path_factory.mktemp("combining"), "pure")
    return answered(planned("pure", sql=RANGES), ledger, "first", snapshot="2026-10"), ledger


def _domain(**privacy: Any) -> dict[str, Any]:
    return {**DOMAIN, "privacy": privacy}


@pytest.mark.parametrize(
    ("asked", "said", "message"),
    [
        ({}, {"snapshot": "2026-11"}, "nothing is combined across snapshots"),
        ({}, {}, "nothing is combined across snapshots"),
        (
            {"domain": {**DOMAIN, "table": "u"}, "sql": RANGES.replace("FROM t", "FROM u")},
            {"snapshot": "2026-10"},
            "table is 't' in one and 'u' in the other",
        ),
        ({"domain": _domain(neighbours="replace")}, {"snapshot": "2026-10"}, "other rows of a person"),
        (
            {"domain": {**DOMAIN, "columns": {**DOMAIN["columns"], "v": {"integers": [0, 50], "outside": "clip"}}}},
            {"snapshot": "2026-10"},
            "column v",
        ),
        ({"domain": {**DOMAIN, "columns": {"v": DOMAIN["columns"]["v"]}}}, {"snapshot": "2026-10"}, "column h"),
    ],
)
def test_other_records_are_refused_by_name(
    asked: dict[str, Any], said: dict[str, Any], message: str, released: Any, tmp_path: Path
) -> None:
    first, _ = released
    ledger = books(tmp_path, "pure")
    other = answered(planned("pure", **{"sql": RANGES, **asked}), ledger, "other", **said)
    with pytest.raises(ReleaseError, match=message):
        combine([first, other])


def test_other_caps_units_and_noises_are_refused(tmp_path: Path) -> None:
    table = TABLE.assign(person=np.arange(len(TABLE)) % 200)
    found = []
    for cap in (1, 2):
        domain = _domain(unit="person", rows_per_unit=cap)
        ledger = batchdp.Ledger.create(tmp_path / f"{cap}.db", epsilon=5.0)
        found.append(batchdp.answer(planned("pure", sql=RANGES, domain=domain), table, epsilon=1.0, ledger=ledger))
    with pytest.raises(ReleaseError, match="the cap on a person's rows"):
        combine(found)
    (tmp_path / "rho").mkdir()
    other = answered(planned("zcdp", sql=RANGES), books(tmp_path / "rho", "zcdp"), "other")
    with pytest.raises(ReleaseError, match="unit is 'person' in one"):
        combine([found[0], other])


SEVERAL: dict[str, Any] = {
    "privacy": {"unit": "person"},
    "tables": {
        "people": {"columns": {"sex": {"values": ["f", "m"], "other": "drop"}}},
        "visits": {"rows_per_unit": 4, "columns": {"kind": {"values": ["a", "b", "c"], "other": "drop"}}},
    },
}
PEOPLE = pd.DataFrame({"person": range(300), "sex": ["f", "m", "m"] * 100})
VISITS = pd.DataFrame({"person": np.repeat(range(200), 3), "kind": ["a", "b", "b", "c"] * 150})
JOINED = "FROM visits JOIN people ON visits.person = people.person"
BY_SEX = f"SELECT sex, kind, COUNT(*) AS n {JOINED} GROUP BY sex, kind"
OF_PEOPLE = "SELECT sex, COUNT(*) AS people FROM people GROUP BY sex"
PERSONS = "SELECT kind, COUNT(DISTINCT person) AS p FROM visits GROUP BY kind"
SOME = "SELECT COUNT(DISTINCT person) AS some FROM visits WHERE kind <> 'a'"
OFTEN = "SELECT COUNT(*) AS q FROM (SELECT person, COUNT(*) AS c FROM visits WHERE kind = '{}' GROUP BY person) v"


def of_several(plan: batchdp.Plan, ledger: batchdp.Ledger, *, noise: bool = False) -> batchdp.Release:
    """A release of people and visits; its noise happens to be 0 throughout unless there is some."""
    tables = {"people": PEOPLE, "visits": VISITS}
    if noise:
        return batchdp.answer(plan, tables, **BUDGETS[plan.privacy], ledger=ledger)
    with ExitStack() as opened:
        request = _request(plan, opened, tables, None, None, None, None, None)
        budget = batchdp.privacy.Budget.of(plan.strategy.noise, **BUDGETS[plan.privacy])
        return release(
            request, budget, ledger=ledger, draw=lambda measured, _, __: np.zeros(int(measured.sizes.sum()), np.int64)
        )


@pytest.mark.parametrize("privacy", BUDGETS)
def test_joins_persons_and_subqueries_combine_with_the_same_ones(privacy: str, tmp_path: Path) -> None:
    """Whatever each release calls them, and however often each counts a row; counts of persons do not add up."""
    ledger = books(tmp_path, privacy)
    texts = [
        "; ".join([BY_SEX, PERSONS, OFTEN.format("a")]),
        "; ".join([OF_PEOPLE, OFTEN.format("b").replace("AS q", "AS r"), BY_SEX.replace("AS n", "AS m")]),
        f"{SOME}; SELECT COUNT(*) AS everyone FROM people",
    ]
    parts = [of_several(planned(privacy, sql=text, domain=SEVERAL), ledger) for text in texts]
    both = combine(parts)
    of = VISITS.merge(PEOPLE)
    true = {f"n[sex={s}, kind={k}]": n for (s, k), n in of.groupby(["sex", "kind"]).size().items()}
    true |= {f"p[kind={k}]": n for k, n in VISITS.groupby("kind")["person"].nunique().items()}
    true |= {"some": VISITS[VISITS["kind"] != "a"]["person"].nunique(), "people[sex=f]": 100, "everyone": 300}
    true |= {name: VISITS[VISITS["kind"] == kind]["person"].nunique() for name, kind in (("q", "a"), ("r", "b"))}
    found = both.to_frame().set_index("name")
    for name, value in true.items():
        assert found.loc[name, "value"] == pytest.approx(value, abs=1e-3)
    for part in parts:
        own = part.to_frame().set_index("name")["standard_error"]
        mine = found["standard_error"].reindex([name for name in own.index if name in found.index])
        assert (mine <= own.loc[mine.index] * 1.001).all()
    # The table over both is known twice, each count of persons once.
    for at, name, low, high in (
        (0, "n[sex=f, kind=a]", 0.5, 0.95),
        (0, "p[kind=a]", 0.9, 1.001),
        (2, "some", 0.9, 1.001),
    ):
        own = parts[at].to_frame().set_index("name").loc[name, "standard_error"]
        assert low < found.loc[name, "standard_error"] / own < high
    both.save(tmp_path / "both.release")
    again = batchdp.load_release(tmp_path / "both.release")
    assert again.certificate == both.certificate
    np.testing.assert_allclose(again.values, both.values, rtol=1e-9)
    assert "visits JOIN people" in both.certificate.table
    batchdp.dossier(both, tmp_path / "folder", ledger=ledger)
    batchdp.verify(tmp_path / "folder", ledger=ledger)


def test_the_forged_the_foreign_and_the_lonely_are_refused(
    released: tuple[batchdp.Release, batchdp.Ledger], tmp_path: Path
) -> None:
    first, ledger = released
    second = answered(planned("pure", sql=OTHERS), ledger, "second", snapshot="2026-10")
    with pytest.raises(ReleaseError, match="'first' is given twice"):
        combine([first, first])
    with pytest.raises(ReleaseError, match="holds 1; give two"):
        combine([first])
    with pytest.raises(ReleaseError, match="edited or damaged"):
        combine([first, replace(second, given=second.linear_answers + 1000)])
    groups = tuple(replace(one, scale=one.scale / 2) for one in second.certificate.groups)
    with pytest.raises(ReleaseError, match="edited or damaged"):
        combine([first, replace(second, certificate=replace(second.certificate, groups=groups))])
    assert second.source is not None
    with pytest.raises(ReleaseError, match="answers other queries than its SQL"):
        combine([first, replace(second, source=replace(second.source, sql=OTHERS.replace("7 AND 33", "21 AND 33")))])
    forged = replace(second, noisy=second.noisy + 2**30)
    combine([first, forged])  # which hangs together, and only the ledger knows
    with pytest.raises(ReleaseError, match="'second': its measurements are not those in"):
        combine([first, forged], ledger=ledger)
    elsewhere = answered(planned("pure", sql=OTHERS), books(tmp_path, "pure"), "elsewhere", snapshot="2026-10")
    with pytest.raises(ReleaseError, match="'elsewhere' was not charged to"):
        combine([first, elsewhere], ledger=ledger)
    strategy = batchdp.optimize(np.eye(3))
    counts = batchdp.answer(strategy, [1, 2, 3], epsilon=1.0, ledger=ledger)
    with pytest.raises(ReleaseError, match="does not say what its cells stand for"):
        combine([first, counts])


def test_the_command_combines_and_says_from_what(tmp_path: Path, released: Any) -> None:
    from commands import run

    first, ledger = released
    answered(planned("pure", sql=OTHERS), ledger, "tuesday", snapshot="2026-10").save(tmp_path / "b.release")
    first.save(tmp_path / "a.release")
    done = run("combine", tmp_path / "a.release", tmp_path / "b.release", "-o", tmp_path / "c.csv")
    assert done.code == 0, done.err
    assert "first (ε = 1), tuesday (ε = 1)" in " ".join((done.out + done.err).split())
    assert len(pd.read_csv(tmp_path / "c.csv")) == 10
    assert batchdp.load_release(tmp_path / "c.release").parts[1].certificate.release_id == "tuesday"


def test_a_forged_file_of_a_combination_is_refused(tmp_path: Path, released: Any) -> None:
    first, ledger = released
    both = combine([first, answered(planned("pure", sql=OTHERS), ledger, "third", snapshot="2026-10")])
    with pytest.raises(ReleaseError, match="what its parts do not add up to"):
        check_release(replace(both, certificate=replace(both.certificate, budget=3.0)))
    assert isinstance(both.parts[0], batchdp.Release)
