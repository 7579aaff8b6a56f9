"""Synthetic records: close to every table, named as the domain names them, from the release and a seed alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp.errors import ReleaseError
from batchdp.plans import designs
from batchdp.release.records import exchange, records, tree
from batchdp.release.records.exchange import Exchange
from batchdp.release.records.fitting import Axis, Codes, FittedTable, Fitting, Known, fitting
from batchdp.release.records.tree import JunctionTree, choose_tables, draw_from_tree, give_margin, information
from batchdp.text import Outcome
from commands import run, succeeds

N = 4000
DOMAIN: dict[str, Any] = {
    "table": "people",
    "privacy": {"max_rows": 100_000},
    "columns": {
        "state": {"values": ["NY", "NJ", "CA"]},
        "age": {"range": [0, 120], "bins": [0, 18, 40, 65], "groupings": {"age_thirty": [0, 30, 60, 90]}},
        "charge": {"range": [0, 1000], "step": 0.25, "bins": [0, 100, 500], "other": "drop"},
        "visited": {"dates": ["2020-01-01", "2021-12-31"], "bins": ["2020-01-01", "2021-01-01"], "other": "drop"},
        "children": {"integers": [0, 5], "other": "drop"},
        "insured": {"values": [True, False], "other": "drop"},
    },
}
SIZES = (9, 7, 5, 3)


def people(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.integers(0, 121, n)
    frame = pd.DataFrame(
        {
            "state": rng.choice(["NY", "NJ", "CA", "TX"], n, p=[0.5, 0.2, 0.2, 0.1]),
            "age": age.astype(float),
            "charge": np.round(rng.uniform(0, 4 * age + 1).clip(0, 1000) * 4) / 4,
            "visited": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 731, n), unit="D"),
            "children": rng.binomial(5, np.where(age > 40, 0.5, 0.1)),
            "insured": rng.random(n) < 0.7,
        }
    )
    frame.loc[frame.index[: n // 20], "age"] = np.nan
    return frame


def release_of(folder: Path, sql: str | None, marginals: int | None = 2, **budget: Any) -> batchdp.Release:
    budget = budget or {"rho": 0.5}
    privacy: Any = "zcdp" if "rho" in budget else "pure"
    plan = batchdp.plan(sql, DOMAIN, marginals=marginals, privacy=privacy, cache=False, seconds=1)
    ledger = batchdp.Ledger.create(folder / "ledger.db", **budget)
    return batchdp.answer(plan, people(), ledger=ledger, **budget)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> batchdp.Release:
    return release_of(tmp_path_factory.mktemp("pairs"), None)


@pytest.fixture(scope="module")
def drawn(pairs: batchdp.Release) -> batchdp.Records:
    return batchdp.draw_records(pairs)


def codes_release(folder: Path, codes: NDArray[np.int64], sizes: Sequence[int], rho: float) -> Any:
    workload: Any = batchdp.workloads.marginals(tuple(sizes), [0, 1, 2])
    strategy = batchdp.optimize(workload.structure, privacy="zcdp")
    return batchdp.answer(strategy, codes, rho=rho, ledger=batchdp.Ledger.create(folder / "codes.db", rho=rho))


def in_circles(n: int) -> NDArray[np.int64]:
    """Records of which every pair of neighbouring columns hangs together, in a circle that is no tree."""
    rng = np.random.default_rng(3)
    common = rng.uniform(size=(n, 1))
    mixed = np.where(rng.uniform(size=(n, 4)) < 0.6, common, rng.uniform(size=(n, 4)))
    found: NDArray[np.int64] = (mixed * SIZES).astype(np.int64)
    return found


# ── how close


def test_tables_are_within_a_fraction_of_the_noise(drawn: batchdp.Records) -> None:
    large = [one for one in drawn.distances if one.cells > 1]
    assert len(large) == 6 + 15
    assert all(one.denoised < max(one.noise, 0.01) for one in large)
    assert np.mean([one.denoised for one in large]) < 0.3 * np.mean([one.noise for one in large])
    assert len(drawn) == round(drawn.fitting.total)
    assert drawn.unasked == []


def test_distances_are_those_that_one_counts(drawn: batchdp.Records, pairs: batchdp.Release) -> None:
    one = next(own for own in drawn.distances if own.name == "children × insured")
    frame, counts = drawn.to_frame(), pairs.denoised().table("children", "insured")
    now = frame.groupby(["children", "insured"]).size()
    found = sum(
        abs(now.get((int(a), b == "true"), 0) / len(frame) - value / drawn.fitting.total)
        for a, b, value in counts.iloc[:, :3].to_numpy()
    )
    assert one.denoised == pytest.approx(found, abs=1e-9)


def first_draft(known: Fitting, n: int, rng: np.random.Generator) -> Codes:
    """Records as they are before the first exchange."""
    return draw_from_tree(known.margins(), known.together(), n, rng)[0]


def test_exchanges_come_closer_than_the_tree_and_keep_margins(tmp_path: Path) -> None:
    release = codes_release(tmp_path, in_circles(5000), SIZES, rho=5.0)
    known = fitting(release.reader, release, release.denoised())
    rng = np.random.default_rng(0)
    better = first_draft(known, 5000, rng)
    start, margins = Exchange(known, better).distance, [np.bincount(own).tolist() for own in better.T]
    assert exchange.exchange_values(known, better, rng) == Outcome.CONVERGED
    assert Exchange(known, better).distance < 0.3 * start
    assert [np.bincount(own).tolist() for own in better.T] == margins


def test_no_exchanges_come_less_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far too many at once undo one another; they are not made, and fewer are tried."""
    monkeypatch.setattr(exchange, "AT_ONCE", 10_000)
    release = codes_release(tmp_path, in_circles(3000), SIZES, rho=5.0)
    known = fitting(release.reader, release, release.denoised())
    rng = np.random.default_rng(0)
    work = Exchange(known, np.column_stack([rng.permutation(own) for own in first_draft(known, 3000, rng).T]))
    for column in (0, 1, 2, 3) * 4:
        before = work.distance
        work.improve(column, rng)
        assert work.distance <= before * (1 + 1e-12)
    assert max(work.at_once.values()) < 1500


def test_gains_are_what_the_distance_grows_by(tmp_path: Path) -> None:
    """Single exchanges, of all columns, with groups of values beside values themselves."""
    sql = "SELECT age_thirty, state, COUNT(*) AS n FROM people WHERE children > 1 GROUP BY age_thirty, state"
    release = release_of(tmp_path, sql)
    known = fitting(release.reader, release, release.denoised())
    assert any(not axis.complete for axis in known.axes)
    rng = np.random.default_rng(1)
    codes = first_draft(known, 200, rng)
    for column in range(len(known.sizes)):
        work = Exchange(known, codes)
        for r, s in rng.permutation(200)[:8].reshape(-1, 2):
            gain, _ = work._gains(work.moves[column], np.array([r]), np.array([s]))
            swapped = codes.copy()
            swapped[[r, s], column] = swapped[[s, r], column]
            assert gain[0] == pytest.approx(Exchange(known, swapped).distance - work.distance, abs=1e-7)


def test_what_is_kept_while_exchanging_is_what_one_counts(tmp_path: Path) -> None:
    release = codes_release(tmp_path, in_circles(1000), SIZES, rho=1.0)
    known = fitting(release.reader, release, release.denoised())
    rng = np.random.default_rng(2)
    work = Exchange(known, first_draft(known, 1000, rng))
    for column in range(4):
        work.improve(column, rng)
    assert work.off == pytest.approx(Exchange(known, work.records).off)


# ── the junction tree


def dense(tables: dict[tuple[int, ...], NDArray[np.float64]], sizes: Sequence[int]) -> NDArray[np.float64]:
    """The model of the greatest entropy with these tables, as one array over all columns."""
    joint = np.full(tuple(sizes), 1 / np.prod(sizes))
    for _ in range(300):
        for C, table in tables.items():
            rest = tuple(i for i in range(len(sizes)) if i not in C)
            now = joint.sum(axis=rest, keepdims=True)
            joint = joint * (table.reshape(now.shape) / now)
    return joint


@pytest.mark.parametrize(
    "columns",
    [
        [(0, 1), (1, 2), (2, 3), (3, 4)],
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        [(0, 1, 2), (2, 3), (3, 4), (1, 4)],
        [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3)],
        [(0, 1), (3, 4)],
        [(0, 1, 2), (1, 2, 3), (0, 3), (0, 1)],
    ],
    ids=str,
)
def test_the_model_is_that_of_the_greatest_entropy(columns: list[tuple[int, ...]]) -> None:
    """Fitted along a tree as over all columns at once, with circles and columns that nothing is known of."""
    sizes = (3, 2, 4, 3, 2)
    truth = np.random.default_rng(7).dirichlet(np.full(int(np.prod(sizes)), 0.7)).reshape(sizes)
    tables = {C: truth.sum(axis=tuple(i for i in range(5) if i not in C)) for C in columns}
    margins = [truth.sum(axis=tuple(j for j in range(5) if j != i)) for i in range(5)]
    axes = [Axis(i, np.arange(n), n) for i, n in enumerate(sizes)]
    known = {
        C: Known(FittedTable(str(C), C, x, x, 0.0), tuple(range(len(C))), tuple(axes[i] for i in C))
        for C, x in tables.items()
    }
    chosen, order = choose_tables(sizes, known, 10**9)
    assert sorted(chosen) == sorted(columns)
    model = JunctionTree(margins, tables, order)
    wanted = dense(tables | {(i,): x for i, x in enumerate(margins)}, sizes)
    assert model.fit() == Outcome.CONVERGED
    for k, clique in enumerate(model.cliques):
        rest = tuple(i for i in range(5) if i not in clique)
        assert model.shares[k] == pytest.approx(wanted.sum(axis=rest), abs=1e-6)


def test_the_tree_is_of_the_strongest_pairs_and_grows_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cells to spare it is a tree; with some, the next strongest table is in it; what says nothing never is."""
    strong, weak, none = np.diag([0.5, 0.5]), np.array([[0.3, 0.2], [0.2, 0.3]]), np.full((2, 2), 0.25)
    given = {(0, 1): strong, (1, 2): strong, (0, 2): weak, (2, 3): none, (1, 3): none}
    axes = [Axis(i, np.arange(2), 2) for i in range(4)]
    known: dict[tuple[int, ...], Known] = {
        C: Known(FittedTable(str(C), C, x, x, 0.0), (0, 1), tuple(axes[i] for i in C)) for C, x in given.items()
    }
    assert information(strong) == pytest.approx(np.log(2))
    monkeypatch.setattr(tree, "MOST_CELLS", 0)
    chosen, order = choose_tables([2] * 4, known, 100)
    assert sorted(chosen) == [(0, 1), (1, 2), (1, 3)]
    assert max(len(given) for _, given in order) == 1
    monkeypatch.setattr(tree, "MOST_CELLS", 100)
    assert sorted(choose_tables([2] * 4, known, 100)[0]) == [(0, 1), (0, 2), (1, 2), (1, 3)]
    drawn, _ = draw_from_tree([np.array([0.5, 0.5])] * 4, known, 100, np.random.default_rng(0))
    assert (drawn[:, :3] == drawn[:, :1]).all()
    assert np.bincount(drawn[:, 0]).tolist() == [50, 50]


def test_records_of_many_kinds_have_the_tables_of_the_model() -> None:
    """Where most kinds of records come once or never, rounding them is right on the whole."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(8000)).reshape(20, 20, 20)
    margins = [truth.sum(axis=tuple(j for j in range(3) if j != i)) for i in range(3)]
    model = JunctionTree(margins, {(0, 1, 2): truth}, [(2, (0, 1)), (1, (0,)), (0, ())])
    model.fit()
    drawn = model.draw(4000, rng)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        now = np.bincount(drawn[:, i] * 20 + drawn[:, j], minlength=400) / 4000
        wanted = truth.sum(axis=3 - i - j).reshape(-1)
        by_chance = np.abs(rng.multinomial(4000, wanted) / 4000 - wanted).sum()
        assert np.abs(now - wanted).sum() < 0.8 * by_chance


def test_margins_are_given_with_the_fewest_changes() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, 100).astype(np.int32)
    wanted, before = np.array([50, 20, 30]), values.copy()
    give_margin(values, wanted, rng)
    assert np.bincount(values).tolist() == wanted.tolist()
    assert (values != before).sum() == np.maximum(wanted - np.bincount(before), 0).sum()


# ── values


def test_values_are_as_the_domain_names_them(drawn: batchdp.Records, pairs: batchdp.Release) -> None:
    frame = pairs.records()
    assert list(frame.columns) == list(DOMAIN["columns"])
    assert set(frame.state.dropna()) == {"NY", "NJ", "CA", "anything else"}
    assert frame.age.dropna().between(0, 120).all()
    assert 0 < frame.age.isna().sum() < 600
    assert ((frame.charge * 4) % 1 == 0).all()
    assert frame.charge.between(0, 1000).all()
    assert frame.visited.map(lambda day: date(2020, 1, 1) <= day <= date(2021, 12, 31)).all()
    assert set(frame.children) <= set(range(6))
    assert set(frame.insured) == {True, False}
    assert any("drawn evenly: age, charge, visited." in note for note in drawn.notes)


def test_groups_of_numbers_are_those_that_were_asked(drawn: batchdp.Records) -> None:
    frame, codes = drawn.to_frame(), drawn.codes[:, drawn.fitting.names.index("age")]
    bins = np.searchsorted([18, 40, 65], frame.age[codes < 4], side="right")
    assert (bins == codes[codes < 4]).all()


def test_finer_tables_say_where_numbers_are(tmp_path: Path) -> None:
    sql = "SELECT age_thirty, COUNT(*) AS n FROM people GROUP BY age_thirty"
    found = batchdp.draw_records(release_of(tmp_path, sql))
    shares = np.bincount(np.searchsorted([30, 60, 90], found.to_frame().age.dropna(), side="right")) / len(found)
    truth = np.bincount(np.searchsorted([30, 60, 90], people().age.dropna(), side="right")) / N
    assert np.abs(shares - truth).sum() < 0.04
    assert set(found.to_frame().state.dropna()) == {"NY", "NJ", "CA", "anything else"}


def test_cells_of_sql_are_kinds_of_records(tmp_path: Path) -> None:
    sql = (
        "SELECT state, COUNT(*) AS n FROM people GROUP BY state;"
        "SELECT state, insured, COUNT(*) AS m FROM people GROUP BY state, insured;"
        "SELECT children, COUNT(*) AS c FROM people GROUP BY children; SELECT SUM(children) AS s FROM people"
    )
    found = batchdp.draw_records(release_of(tmp_path, sql, None, epsilon=5.0))
    assert list(found.columns) == ["state", "insured", "children"]
    assert all(one.denoised < 0.05 for one in found.distances)
    assert ("insured", "children") in found.unasked
    assert any("insured × children" in note for note in found.notes)


def test_codes_without_names_are_numbers(tmp_path: Path) -> None:
    frame = codes_release(tmp_path, in_circles(300), SIZES, rho=1.0).records(100, seed=4)
    assert frame.shape == (100, 4)
    assert all(frame[f"a{i + 1}"].between(0, n - 1).all() for i, n in enumerate(SIZES))


# ── what is said


def test_the_same_release_and_seed_give_the_same_records_without_the_table(tmp_path: Path) -> None:
    """Loaded where neither table, plan nor ledger are any longer."""
    (tmp_path / "private").mkdir()
    people().to_csv(tmp_path / "private" / "people.csv", index=False)
    plan = batchdp.plan(None, smaller("state", "children", "insured"), marginals=2, cache=False)
    ledger = batchdp.Ledger.create(tmp_path / "private" / "ledger.db", epsilon=1)
    table = str(tmp_path / "private" / "people.csv")
    batchdp.answer(plan, table, epsilon=1, ledger=ledger).save(tmp_path / "people.release")
    shutil.rmtree(tmp_path / "private")
    first, again, other = (
        batchdp.load_release(tmp_path / "people.release").records(500, seed=seed) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)


def test_files_say_what_they_are(drawn: batchdp.Records, pairs: batchdp.Release, tmp_path: Path) -> None:
    drawn.save(tmp_path / "records.parquet")
    drawn.save(tmp_path / "records.csv")
    said = {
        key.decode(): value.decode() for key, value in pq.read_schema(tmp_path / "records.parquet").metadata.items()
    }
    assert said["what"] == "synthetic records, not data"
    assert said["release_id"] == pairs.certificate.release_id
    assert said["privacy"] == "ρ = 0.5"
    assert "nobody's" in said["notes"]
    assert json.loads((tmp_path / "records.csv-metadata.json").read_text())["release_id"] == said["release_id"]
    one, other = pd.read_parquet(tmp_path / "records.parquet"), pd.read_csv(tmp_path / "records.csv")
    assert one.charge.tolist() == other.charge.tolist()
    assert one.state.tolist() == other.state.tolist()
    assert pairs.records().attrs["release_id"] == said["release_id"]
    with pytest.raises(ReleaseError, match=r"\.parquet or \.csv"):
        drawn.save(tmp_path / "records.txt")


def test_the_page_shows_every_table_and_no_record(drawn: batchdp.Records, tmp_path: Path) -> None:
    page = batchdp.report_records(drawn, tmp_path / "page.html").read_text()
    assert all(one.name in page for one in drawn.distances)
    assert "Every pair of columns is in a table" in page
    assert drawn.release.certificate.release_id in page


def test_command(pairs: batchdp.Release, tmp_path: Path) -> None:
    pairs.save(tmp_path / "people.release")
    said = succeeds(
        "records", tmp_path / "people.release", "-o", tmp_path / "r.parquet", "-n", 300, "--seed", 2,
        "--page", tmp_path / "page.html",
    )  # fmt: skip
    assert "GB of memory" in said
    assert "children × insured" in said
    assert "nobody's" in said
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "r.parquet"), pairs.records(300, seed=2), check_dtype=False
    )
    assert (tmp_path / "page.html").exists()
    wrong = run("records", tmp_path / "people.release", "-o", tmp_path / "r.txt")
    assert wrong.code == 1
    assert ".parquet" in wrong.err


def test_a_plan_for_records_asks_all_pairs(tmp_path: Path) -> None:
    columns = {name: DOMAIN["columns"][name] for name in ("state", "children", "insured")}
    domain = {"table": "people", "columns": columns}
    plan = batchdp.plan(None, domain, privacy="zcdp", rho=0.1, for_records=True, records=5000, cache=False)
    assert len(plan.tables) == 1 + 3 + 3
    assert plan.options.for_estimates is not None


@pytest.mark.parametrize(("given", "problem"), [({"n": 0}, "n=0"), ({"seed": -1}, "seed=-1"), ({"n": 10**12}, "GB")])
def test_refusals(pairs: batchdp.Release, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ReleaseError, match=problem):
        pairs.records(**given)


def test_nothing_to_draw_from_is_said(tmp_path: Path) -> None:
    strategy = batchdp.optimize(batchdp.workloads.prefix(8), seconds=0.1)
    ledger = batchdp.Ledger.create(tmp_path / "l.db", epsilon=1)
    release = batchdp.answer(strategy, np.arange(8), epsilon=1, ledger=ledger)
    with pytest.raises(ReleaseError, match="--for-records"):
        release.records()


@pytest.mark.parametrize("where", ["fitting a junction tree", "exchanging values"])
def test_stopped_work_has_the_best_so_far(pairs: batchdp.Release, where: str) -> None:
    def stop(share: float, what: str) -> None:
        if what == where:
            raise KeyboardInterrupt

    found = batchdp.draw_records(pairs, 200, progress=stop)
    assert found.status == Outcome.CANCELLED
    assert records.STOPPED in found.notes


# ── several releases, and several tables


def smaller(*names: str) -> dict[str, Any]:
    return {"table": "people", "columns": {name: DOMAIN["columns"][name] for name in names}}


def marginals(folder: Path, domain: dict[str, Any], orders: Any, name: str) -> batchdp.Release:
    plan = batchdp.plan(None, domain, marginals=orders, privacy="zcdp", cache=False, seconds=0.5)
    return batchdp.answer(plan, people(), rho=1.0, ledger=batchdp.Ledger.create(folder / name, rho=1.0))


def test_records_of_combined_releases_over_few_columns(tmp_path: Path) -> None:
    domain = smaller("state", "children", "insured")
    one = batchdp.combine([marginals(tmp_path, domain, 2, "a.db"), marginals(tmp_path, domain, 1, "b.db")])
    found = batchdp.draw_records(one)
    assert set(found.columns) == set(domain["columns"])
    assert found.unasked == []
    assert all(own.denoised < 0.05 for own in found.distances)
    assert found.metadata["privacy"] == "ρ = 2"


def test_records_of_combined_releases_over_many_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kinds of records are too many; a column is grouped otherwise in each, and is as fine as both say."""
    monkeypatch.setattr(designs, "MOST_KINDS", 100)
    first, second = smaller("state", "age", "insured"), smaller("state", "age", "insured")
    second["columns"]["age"] = {"range": [0, 120], "bins": [0, 30, 65]}
    one = batchdp.combine([marginals(tmp_path, first, 2, "a.db"), marginals(tmp_path, second, 2, "b.db")])
    assert one.kinds is not None
    assert one.kinds.shape[1] == 0
    found = batchdp.draw_records(one)
    assert found.method == "junction tree, then exchanges"
    assert len(found.distances) == len(one.tables)
    assert found.fitting.others == ()
    frame, truth = found.to_frame(), people()
    cuts = [0, 18, 30, 40, 65, 121]
    shares = [np.histogram(own.dropna(), cuts)[0] / len(own) for own in (frame.age, truth.age)]
    assert np.abs(shares[0] - shares[1]).sum() < 0.05
    assert np.abs(pd.crosstab(frame.state, frame.insured, normalize=True).to_numpy().sum() - 1) < 1e-9
    assert all(own.denoised < max(0.02, own.noise) for own in found.distances)


def test_of_several_tables_one_is_drawn(tmp_path: Path) -> None:
    columns = {
        "patients": {"sex": {"values": ["f", "m"]}, "old": {"values": [True, False]}},
        "visits": {"clinic": {"values": ["c1", "c2"]}},
    }
    domain = {
        "privacy": {"unit": "id", "neighbours": "add-remove"},
        "tables": {
            name: {"rows_per_unit": 1 + 2 * (name == "visits"), "columns": own} for name, own in columns.items()
        },
    }
    sql = (
        "SELECT sex, old, COUNT(*) AS p FROM patients GROUP BY sex, old;"
        "SELECT clinic, COUNT(*) AS v FROM visits GROUP BY clinic"
    )
    patients = pd.DataFrame({"id": range(400), "sex": ["f", "f", "f", "m"] * 100, "old": [True, False] * 200})
    visits = pd.DataFrame({"id": [i % 400 for i in range(1200)], "clinic": ["c1", "c1", "c2"] * 400})
    plan = batchdp.plan(sql, domain, privacy="zcdp", cache=False)
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=20.0)
    release = batchdp.answer(plan, {"patients": patients, "visits": visits}, rho=20.0, ledger=ledger)
    with pytest.raises(ReleaseError, match=r"patients, visits; .*give table="):
        release.records()
    with pytest.raises(ReleaseError, match="'clinics' is not one that this release counts"):
        release.records(table="clinics")
    found = batchdp.draw_records(release, table="patients")
    assert list(found.columns) == ["sex", "old"]
    assert len(found) == pytest.approx(400, abs=20)
    assert found.to_frame().sex.value_counts(normalize=True)["f"] == pytest.approx(0.75, abs=0.03)
    assert records.ONE_TABLE in found.notes
    release.save(tmp_path / "care.release")
    succeeds("records", tmp_path / "care.release", "-o", tmp_path / "visits.csv", "--table", "visits")
    assert set(pd.read_csv(tmp_path / "visits.csv").clinic) == {"c1", "c2"}
