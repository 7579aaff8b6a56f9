"""`release.consistent()`: of tables and of ordinary releases, in files, on pages and from the command line."""

from __future__ import annotations

import base64
import csv
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

import batchdp
from batchdp.errors import ReleaseError
from batchdp.release.consistency import release as fitting
from batchdp.release.consistency.faces import join_components
from batchdp.release.consistency.tables import SLACK
from batchdp.reports import tables as page_tables
from batchdp.reports.matrices import counts_among, grids
from batchdp.reports.rendering import render_part
from batchdp.reports.tables import Packer
from batchdp.strategies.marginal.strategy import Results
from batchdp.strategies.residual.strategy import ResidualStrategy
from commands import copied, environment, make_study, succeeds
from test_components import structure
from test_table_release import codes as laplace_codes
from test_weighted_lattice import of_groups
from test_weighted_release import KINDS

SIZES = (6, 5, 4)
FIELDS = re.findall(
    r'"(\w+)"', next(line for line in render_part("reports/tables.js").splitlines() if "FIELDS = " in line)
)
"""What the page calls the entries of a packed table."""


def table_release(
    tmp_path: Path,
    *,
    sizes: tuple[int, ...] = SIZES,
    order: Any = (2,),
    codes: NDArray[np.int64] | None = None,
    rho: float = 0.05,
    batch: Any = None,
) -> batchdp.Release:
    rng = np.random.default_rng(0)
    given = np.column_stack([rng.integers(0, max(1, n // 2), 60) for n in sizes]) if codes is None else codes
    chosen = structure(batchdp.workloads.marginals(sizes, list(order)) if batch is None else batch)
    strategy = batchdp.optimize(chosen, privacy="zcdp")
    assert isinstance(strategy, ResidualStrategy)
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", rho=rho)
    done = batchdp.answer(strategy, given, rho=rho, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    return done


def ordinary(tmp_path: Path, rows: Any, counts: list[int]) -> batchdp.Release:
    ledger = batchdp.Ledger.create(tmp_path / "ordinary.db", epsilon=1)
    done = batchdp.answer(batchdp.optimize(np.array(rows, dtype=float)), counts, epsilon=0.2, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    return done


def check_agreement(found: batchdp.Consistent) -> None:
    made = [found.array(t) for t in range(len(found.tables))]
    for (t, first), (s, second) in combinations(enumerate(found.tables), 2):
        shared = set(first.columns) & set(second.columns)
        ours, theirs = (
            made[k].sum(axis=tuple(a for a, i in enumerate(own.columns) if i not in shared))
            for k, own in ((t, first), (s, second))
        )
        assert np.all(np.abs(ours - theirs) <= 1e-6 * np.maximum(1, theirs))


# ── Tables ──


@pytest.mark.parametrize("order", [(0, 1, 2), (2,), (1, 3), (0,), (1,)])
def test_tables_agree_and_are_not_negative(order: tuple[int, ...], tmp_path: Path) -> None:
    done = table_release(tmp_path, order=order)
    before = [done.array(t).copy() for t in range(len(done.tables))]
    found = done.consistent()
    assert all(found.array(t).min() >= 0 for t in range(len(done.tables)))
    check_agreement(found)
    assert all(np.array_equal(done.array(t), before[t]) for t in range(len(before)))
    assert "intervals belong to the noisy answers" in found.notes[0]


def test_frames_have_both_values_and_no_interval(tmp_path: Path) -> None:
    done = table_release(tmp_path)
    found = done.consistent(whole=True)
    frame = found.table("a2", "a1")
    assert list(frame.columns) == ["a2", "a1", "value", "raw"]
    assert np.array_equal(frame["raw"], done.table("a2", "a1")["value"])
    assert np.array_equal(frame["value"], found.array(done.find("a1", "a2")).reshape(-1))
    assert np.array_equal(frame["value"], np.rint(frame["value"]))
    with pytest.raises(ReleaseError, match="not one of"):
        found.array(99)


def test_one_two_way_table_keeps_all_totals_when_whole(tmp_path: Path) -> None:
    done = table_release(tmp_path, sizes=(7, 5), order=(0, 1, 2))
    plain, whole = done.consistent(), done.consistent(whole=True)
    assert whole.rounding is not None
    assert whole.rounding.adds_up
    check_agreement(whole)
    for t in range(len(done.tables)):
        assert np.array_equal(whole.array(t), np.rint(whole.array(t)))
        assert np.abs(whole.array(t) - plain.array(t)).max() < 1
        assert whole.array(t).min() >= 0
    assert whole.rounding.largest_move < 1


@pytest.mark.parametrize("order", [(2,), (1, 2, 3), (2, 3)])
def test_several_tables_keep_one_way_margins_when_whole(order: tuple[int, ...], tmp_path: Path) -> None:
    sizes = (6, 5, 4, 3)
    done = table_release(tmp_path, sizes=sizes, order=order)
    plain, whole = done.consistent(), done.consistent(whole=True)
    margins: dict[str, NDArray[np.float64]] = {}
    for t, table in enumerate(done.tables):
        values = whole.array(t)
        assert np.array_equal(values, np.rint(values))
        assert values.min() >= 0
        for axis, i in enumerate(table.columns):
            own = values.sum(axis=tuple(a for a in range(values.ndim) if a != axis))
            assert np.array_equal(margins.setdefault(i, own), own)
    rounding = whole.rounding
    assert rounding is not None
    moves = max(float(np.abs(whole.array(t) - plain.array(t)).max()) for t in range(len(done.tables)))
    assert rounding.largest_move == pytest.approx(moves, abs=1e-6)
    disagreeing = False
    try:
        check_agreement(whole)
    except AssertionError:
        disagreeing = True
    assert disagreeing == (not rounding.adds_up)
    assert ("no longer do" in str(rounding)) == disagreeing


def test_no_records_and_tables_without_overlap(tmp_path: Path) -> None:
    batch = batchdp.workloads.products((3, 4, 2), [[np.eye(3), None, None], [None, np.eye(4), np.eye(2)]])
    none = np.zeros((0, 3), dtype=np.int64)
    done = table_release(tmp_path, sizes=(3, 4, 2), codes=none, batch=batch)
    for whole in (False, True):
        found = done.consistent(whole=whole)
        check_agreement(found)
        assert min(found.array(t).min() for t in range(2)) >= 0


def test_ranges_come_from_cells_that_are_not_negative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = np.tril(np.ones((6, 6)))
    batch = batchdp.workloads.products(
        SIZES, [[prefix, np.eye(5), None], [np.eye(6), None, None], [None, None, np.eye(4)]]
    )
    done = table_release(tmp_path, batch=batch)
    for whole in (False, True):
        found = done.consistent(whole=whole)
        first = found.array(0)
        assert np.all(np.diff(np.vstack([np.zeros(5), first]), axis=0) >= -1e-9)
        assert np.allclose(np.diff(np.append(0, first.sum(axis=1))), found.array(1), atol=1e-6)
    assert np.array_equal(found.array(0), np.rint(found.array(0)))
    monkeypatch.setattr(fitting, "MOST_CELLS", 10)
    with pytest.raises(ReleaseError, match="ask also for a whole table"):
        done.consistent()


def test_values_between_others_need_no_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum and a count of amounts by group, beside counts: what 1 to 4 add, 0 and 5 can."""
    amounts, there = np.arange(6.0)[None], np.array([[1.0, 1, 1, 1, 1, 1]])
    batch = batchdp.workloads.products(
        (4, 3, 6), [[np.eye(4), np.eye(3), None], [np.eye(4), None, amounts], [np.eye(4)[:3], None, there]]
    )
    done = table_release(tmp_path, sizes=(4, 3, 6), batch=batch)
    expected = done.consistent()
    monkeypatch.setattr(fitting, "MOST_CELLS", 4 * 3 * 2)
    asked: Any = done.reader
    assert [len(fitting._extreme_values(asked.workload, i)) for i in range(3)] == [4, 3, 2]
    found, whole = done.consistent(), done.consistent(whole=True)
    for t in range(3):
        assert np.allclose(found.array(t), expected.array(t), atol=1e-5)
        assert np.array_equal(whole.array(t), np.rint(whole.array(t)))
    assert np.allclose(whole.array(0).sum(axis=1)[:3], whole.array(2).reshape(-1))
    assert np.all(whole.array(1).reshape(-1) <= 5 * whole.array(0).sum(axis=1))


def test_groups_within_whole_tables_are_sums_of_consistent_cells(tmp_path: Path, monkeypatch: Any) -> None:
    """A hierarchy among tables of many columns: counties by age, states by age, states, and counties by another."""
    states = np.kron(np.eye(3), np.ones((1, 2)))
    batch = batchdp.workloads.products(
        (6, 5, 4),
        [[np.eye(6), np.eye(5), None], [states, np.eye(5), None], [states, None, None], [np.eye(6), None, np.eye(4)]],
    )
    done = table_release(tmp_path, batch=batch)
    monkeypatch.setattr(fitting, "MOST_CELLS", 10)
    for whole in (False, True):
        found = done.consistent(whole=whole)
        counties, by_age, alone, other = (found.array(t) for t in range(4))
        assert min(own.min() for own in (counties, by_age, alone, other)) >= 0
        assert np.allclose(states @ counties, by_age)
        assert np.allclose(by_age.sum(axis=1), alone)
        assert np.allclose(counties.sum(axis=1), other.sum(axis=1), atol=1e-6)
        assert found.table(name=done.tables[1].name).shape[0] == 15
    assert found.rounding is not None
    plain = done.consistent()
    moves = max(float(np.abs(found.array(t) - plain.array(t)).max()) for t in range(4))
    assert found.rounding.largest_move == pytest.approx(moves)


def test_saved_releases_give_the_same(tmp_path: Path) -> None:
    done = table_release(tmp_path)
    done.save(tmp_path / "tables.release")
    loaded = batchdp.load_release(tmp_path / "tables.release")
    assert isinstance(loaded, batchdp.Release)
    assert np.array_equal(loaded.consistent().array(1), done.consistent().array(1))


def test_too_many_cells_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = table_release(tmp_path)
    monkeypatch.setattr(fitting, "MOST_ANSWERS", 10)
    with pytest.raises(ReleaseError, match="fewer columns"):
        done.consistent()


def test_without_what_the_release_knows_the_metric_is_that_of_the_standard_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = table_release(tmp_path)
    monkeypatch.setattr(fitting, "component_variances", lambda _: None)
    found = done.consistent()
    check_agreement(found)
    assert min(found.array(t).min() for t in range(3)) >= 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tables_with_laplace_noise(kind: str, tmp_path: Path) -> None:
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=0.5)
    done = batchdp.answer(KINDS[kind](), laplace_codes(), epsilon=0.5, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    found = done.consistent()
    assert found.status in ("converged", "optimal")
    assert all(found.array(t).min() >= 0 for t in range(len(done.tables)))
    if kind == "whole":
        check_agreement(found)
    whole = done.consistent(whole=True)
    if kind != "rounded":
        assert all(np.array_equal(whole.array(t), np.rint(whole.array(t))) for t in range(len(done.tables)))


def test_tables_that_were_measured_apart_are_averaged_by_their_precision(tmp_path: Path) -> None:
    batch = structure(batchdp.workloads.products((3, 4), [[np.eye(3), np.eye(4)], [np.eye(3), None]]))
    strategy = of_groups(batch, Results(batch, 0.5))
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=1)
    done = batchdp.answer(strategy, np.zeros((50, 2), dtype=np.int64), epsilon=1, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    y, p = fitting.estimates(done, [0, 1])
    margin, alone = done.array(0).sum(axis=1), done.array(1)
    assert join_components(y, (0,), (3, 4)) == pytest.approx((margin / 4 + alone) / (1 / 4 + 1))
    assert p[0,] == pytest.approx(p[0, 1] * (1 / 4 + 1))
    check_agreement(done.consistent())


# ── Ordinary releases ──


def test_ordinary_releases_give_what_dense_least_squares_give(tmp_path: Path) -> None:
    rows = np.vstack([np.eye(6), np.kron(np.eye(2), np.ones(3)), np.ones((1, 6))])
    done = ordinary(tmp_path, rows, [0, 0, 3, 0, 0, 400])
    total, units = max(0.0, float(done.values[8])), 1 / done.standard_errors
    units[8] = 1e4  # held
    fitted = lsq_linear(units[:, None] * rows, units * [*done.values[:8], total], bounds=(0, np.inf), tol=1e-14)
    found = done.consistent()
    assert np.allclose(found.values, rows @ fitted.x, atol=1e-3)
    assert found.values[8] == pytest.approx(total, rel=1e-5, abs=1e-5)
    assert np.asarray(found) == pytest.approx(found.values)
    assert found.values.min() >= 0
    whole = done.consistent(whole=True)
    assert np.array_equal(whole.values, np.rint(whole.values))
    assert np.abs(whole.values - found.values).max() < 1  # a hierarchy keeps all its totals
    assert whole.rounding is not None
    assert whole.rounding.moved_totals == 0
    assert whole.values[8] == whole.values[:6].sum()
    assert list(found.table("query").columns) == ["query", "value", "raw"]


@pytest.mark.parametrize("name", ["noise-on-data", "noise-on-results", "wavelet", "p-identity"])
def test_consistent_ranges_of_few_records_are_closer_than_noisy_ones(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    batch = batchdp.workloads.ranges(40, 128, 0)
    strategy = batchdp.STRATEGIES[name](batch)
    counts = rng.multinomial(200, rng.dirichlet(np.full(128, 0.1)))
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=1)
    done = batchdp.answer(strategy, counts, epsilon=0.1, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    reader: Any = done.reader
    truth = batch.matrix @ counts
    noisy, consistent = 0.0, 0.0
    for _ in range(20):  # the same release with noise from a seed
        y = reader.measure @ counts + rng.laplace(scale=reader.noise_law.scale, size=reader.measurements)
        own = replace(done, noisy=np.rint(y * 2.0**reader.bits), given=None)
        noisy += float(np.square(own.values - truth).mean())
        consistent += float(np.square(own.consistent().values - truth).mean())
    assert consistent < noisy


@pytest.mark.parametrize("counts", [[0], [7]])
def test_a_release_of_one_query(counts: list[int], tmp_path: Path) -> None:
    done = ordinary(tmp_path, [[1]], counts)
    found = done.consistent()
    assert found.values[0] == pytest.approx(max(0.0, float(done.values[0])))
    assert done.consistent(whole=True).values[0] == pytest.approx(np.rint(found.values[0]), abs=1)


# ── Files, pages, commands ──


def test_files_have_both_and_say_whose_the_intervals_are(tmp_path: Path) -> None:
    done = table_release(tmp_path)
    found = done.consistent(whole=True)
    for format_, read in (("parquet", pd.read_parquet), ("csv", pd.read_csv)):
        files = batchdp.export(found, tmp_path / format_, format=format_)  # type: ignore[arg-type]
        frame = read(files[0])
        assert list(frame.columns) == ["a1", "a2", "value", "standard_error", "low", "high", "consistent"]
        assert np.allclose(frame["consistent"], found.array(0).reshape(-1))
        assert np.allclose(frame["value"], done.array(0).reshape(-1))
        index = json.loads((tmp_path / format_ / "tables.json").read_text())
        assert index["notes"] == [*done.notes, *found.notes]
        assert index["tables"][0]["columns"] == ["a1", "a2"]
        if format_ == "parquet":
            assert b"intervals belong" in pq.read_schema(files[0]).metadata[b"notes"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_study(folder)
    return folder


def test_commands_write_consistent_answers_beside_the_noisy_ones(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copied(made, tmp_path)
    spend = ("answer", "pure.plan", "--table", "visits.csv", "--epsilon", 0.2, "--ledger", "budget.db", "-y")
    shown = succeeds(*spend, "-o", "out.csv", "--consistent")
    assert "intervals belong to the noisy answers" in shown.replace("\n", " ")
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["name", "value", "standard_error", "low", "high", "derived", "consistent", "interval_of"]
    loaded = batchdp.load_release("out.release")
    assert isinstance(loaded, batchdp.Release)
    assert np.allclose([float(row["value"]) for row in rows], loaded.values)
    assert np.allclose([float(row["consistent"]) for row in rows], loaded.consistent().values)
    succeeds(*spend, "-o", "out.json", "--whole")
    found = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert all(row["consistent"] == round(row["consistent"]) and row["interval_of"] == "value" for row in found)
    shown = succeeds("export", "out.release", "-o", "tables", "--format", "csv", "--consistent", "--whole")
    assert "Whole numbers" in shown
    assert all("consistent" in file.read_text().splitlines()[0] for file in Path("tables").glob("*.csv"))
    succeeds("report", "out.release", "-o", "page.html", "--consistent")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Consistent</button>" in page
    assert "intervals belong to the noisy answers" in page


STOPPED = """
import signal, sys, time
from batchdp.cli import main
from batchdp.release.consistency import cells, tables

def waiting(*arguments, **named):
    print("searching", flush=True)
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)
cells._step = waiting
tables.newton_step = waiting
sys.argv[0] = "batchdp"
main()
"""


def stopped(folder: Path, *arguments: object) -> str:
    """What a command prints whose search gets Ctrl-C; it must end well."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, *map(str, arguments)],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return out.replace("\n", " ")


def test_ctrl_c_while_tables_are_made_to_agree_writes_the_best_so_far(tmp_path: Path) -> None:
    done = table_release(tmp_path, sizes=(6, 5, 4, 3), order=(2, 3))
    done.save(tmp_path / "tables.release")
    said = stopped(tmp_path, "export", "tables.release", "-o", "tables", "--format", "csv", "--consistent")
    assert "The search was stopped" in said
    assert "agrees and is not negative, yet is not the closest" in said
    exact, (_, p) = done.consistent(), fitting.estimates(done, range(len(done.tables)))
    margins: dict[str, list[Any]] = {}
    for file in sorted((tmp_path / "tables").glob("*.csv")):
        frame = pd.read_csv(file)
        assert frame["consistent"].min() >= 0
        for column in frame.columns[:-5]:
            margins.setdefault(column, []).append(frame.groupby(column)["consistent"].sum().to_numpy())
    for i, column in enumerate(("a1", "a2", "a3", "a4")):
        t = next(t for t, own in enumerate(done.tables) if column in own.columns)
        others = tuple(axis for axis, k in enumerate(done.tables[t].columns) if k != column)
        for own in margins[column]:
            off = np.abs(own - exact.array(t).sum(axis=others)).mean()
            assert off <= 2 * SLACK * p[i,] ** -0.5 + 1e-5


def test_ctrl_c_while_answers_are_made_to_agree_writes_the_best_so_far(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path)
    spend = ("answer", "pure.plan", "--table", "visits.csv", "--epsilon", 0.2, "--ledger", "budget.db", "-y")
    said = stopped(tmp_path, *spend, "-o", "out.csv", "--consistent")
    assert "The search was stopped" in said
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert rows
    assert all(float(row["consistent"]) >= 0 for row in rows)
    assert batchdp.Ledger.open(tmp_path / "budget.db").spent == pytest.approx(0.2)


def test_the_page_of_tables_has_both_and_says_whose_the_intervals_are(tmp_path: Path, monkeypatch: Any) -> None:
    done = table_release(tmp_path)
    found = done.consistent(whole=True)
    for most in (5000, 10):  # in the page itself, and beside it
        monkeypatch.setattr(page_tables, "MOST_INSIDE", most)
        page = batchdp.report(done, tmp_path / "page.html", beside=found).read_text(encoding="utf-8")
        assert "intervals belong to the noisy answers" in page
        assert '<th scope="col">Consistent</th>' in page
        assert (tmp_path / "page_files").is_dir() == (most == 10)
    noisy_page = batchdp.report(done, tmp_path / "noisy.html").read_text(encoding="utf-8")
    assert "Consistent</th>" not in noisy_page
    parts: dict[str, Any] = {}
    packer = Packer(parts.__setitem__)
    for grid in grids(done, found):
        packer.add(grid)
    packer.finish()
    for t, entry in enumerate(parts["list"]):
        kept = dict(zip(FIELDS, entry, strict=True))
        words = np.frombuffer(base64.b64decode(parts[f"part-{kept['part']}"]), "<i4")[kept["word"] :]
        own = words[: kept["answers"] * kept["stride"]].reshape(-1, kept["stride"])
        assert np.array_equal(own[:, -1] * kept["step"], found.array(t).reshape(-1))
        assert np.allclose(own[:, 0] * kept["step"], done.array(t).reshape(-1), atol=kept["step"])


def test_a_page_refuses_the_consistent_tables_of_another_release(tmp_path: Path) -> None:
    done = table_release(tmp_path)
    done.save(tmp_path / "tables.release")
    with pytest.raises(ReleaseError, match="another release"):
        batchdp.report(batchdp.load_release(tmp_path / "tables.release"), tmp_path / "p.html", beside=done.consistent())


def test_a_page_refuses_the_consistent_answers_of_another_release(tmp_path: Path) -> None:
    done = ordinary(tmp_path, [[1, 0], [0, 1]], [3, 4])
    other = done.with_confidence(0.9)
    with pytest.raises(ReleaseError, match="another release"):
        batchdp.report(done, tmp_path / "page.html", beside=other.consistent())


PETS: dict[str, Any] = {
    "table": "pets",
    "columns": {
        "species": {"values": ["dog", "cat", "rabbit"], "other": "keep"},
        "ill": {"values": ["yes", "no"]},
        "clinic": {"values": list("abcdefgh")},
        "age": {"integers": [0, 19]},
    },
}
ASKED = """SELECT species, ill, COUNT(*) AS n FROM pets GROUP BY ROLLUP (species, ill);
SELECT clinic, ill, COUNT(*) AS at FROM pets GROUP BY clinic, ill;
SELECT species, SUM(age) AS years FROM pets GROUP BY species;
SELECT COUNT(*) AS of_all FROM pets"""


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_answers_of_several_blocks_agree(privacy: Any, tmp_path: Path) -> None:
    """Cells of blocks are no kinds of records: these are kept beside the measurements, and fitted."""
    planned = batchdp.plan(ASKED, PETS, privacy=privacy, max_cells=60, seconds=0.5)
    assert len(planned.workload.blocks) > 1
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "species": rng.choice(["dog", "rabbit", "newt"], 60, p=[0.9, 0.05, 0.05]),
            "ill": rng.choice(["yes", "no"], 60),
            "clinic": rng.choice(list("abz"), 60),
            "age": rng.integers(0, 20, 60),
        }
    )
    budget: Any = {"epsilon": 0.5} if privacy == "pure" else {"rho": 0.05}
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", **budget)
    release = batchdp.answer(planned, rows, ledger=ledger, **budget)
    release.save(tmp_path / "a.release")
    release = batchdp.load_release(tmp_path / "a.release")
    found = dict(zip(release.names, release.consistent().values.tolist(), strict=True))
    assert min(found.values()) >= -1e-6
    total = found["of_all"]
    assert found["n[species=all, ill=all]"] == pytest.approx(total, abs=1e-4)
    for name in ("dog", "cat", "rabbit"):
        whole = found[f"n[species={name}, ill=all]"]
        assert sum(found[f"n[species={name}, ill={ill}]"] for ill in ("yes", "no")) <= whole + 1e-4
        assert found[f"years[species={name}]"] <= 19 * whole + 1e-3
    assert sum(found[f"at[clinic={c}, ill={ill}]"] for c in "abcdefgh" for ill in ("yes", "no")) <= total + 1e-4
    assert counts_among(release).tolist() == ["years" not in name for name in release.names]


def test_blocks_whose_records_nobody_knows_are_refused(tmp_path: Path) -> None:
    strategy = batchdp.optimize(batchdp.MatrixWorkload(np.eye(4), blocks=(2, 2)), seconds=0.1)
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=1)
    release = batchdp.answer(strategy, [1, 2, 3, 4], epsilon=1, ledger=ledger)
    with pytest.raises(batchdp.ReleaseError, match="several blocks"):
        release.consistent()
