from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hatchling.builders.wheel import WheelBuilder
from typer.main import get_command

import commands
from commands import environment, unchanged
from reproduction import datasets, examples, running
from reproduction.__main__ import EXAMPLES, app, main
from reproduction.datasets import DATASETS, merged, stand_ins
from reproduction.errors import ReproductionError
from reproduction.evaluation import cores, publish, reproduce
from reproduction.findings import Findings
from reproduction.formulas import corrections
from reproduction.journal import COLUMNS, Journal, Row, Settings, locked, read, read_all, resume, row_for, settings_of
from reproduction.measuring import Job, errors, measure
from reproduction.mechanisms import strategy_for
from reproduction.page import page
from reproduction.parameters import FIGURES, PAPER, QUICK, TARGETS, Table
from reproduction.peers import running as peers_running
from reproduction.peers.journal import load
from reproduction.peers.verdicts import verdicts
from reproduction.points import COMPARED, Batch, Point, Task, points_of
from reproduction.processes import run_jobs

run = partial(commands.run, program=main)
succeeds = partial(commands.succeeds, program=main)
refused = partial(commands.refused, program=main)
DOCS = Path(__file__).parent.parent / "docs"
TINY = replace(
    QUICK,
    cells=(16,),
    queries=(4,),
    base_shares=(0.5, 1.0),
    rank_ratios=(0.5, 1.2, 2.0),
    relaxations=(1e-3, 1.0),
    default_cells=16,
    default_queries=4,
)


pytestmark = pytest.mark.xdist_group("reproduction")  # else every worker would measure all figures


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures, tiny: measured once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reproduction"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "whole").exists():
            reproduce(["all"], folder, quick=True, table=TINY)
            (folder / "whole").touch()
    return folder


@pytest.fixture
def started(done: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(done, tmp_path / "started")


def go_on(folder: Path, *figures: str, table: Table = TINY) -> dict[Point, Row]:
    """Measure what is missing, without drawing it."""
    folder.mkdir(exist_ok=True)
    journal = resume(folder, Settings(True, False, stand_ins().digest, table.seconds))
    running.run(journal, figures, table, stand_ins())
    return journal.rows


def timeless(folder: Path) -> dict[str, list[list[str]]]:
    """The CSVs without the seconds, which differ from run to run."""
    at = COLUMNS.index("seconds")
    return {
        file.name: [
            [cell for i, cell in enumerate(line) if i != at] for line in csv.reader(file.read_text().splitlines())
        ]
        for file in sorted(folder.glob("figure-*.csv"))
    }


# ── The run ──


@pytest.mark.slow
def test_every_figure_is_there_with_all_its_points(done: Path) -> None:
    for figure in FIGURES:
        rows = read(done / f"{figure}.csv")
        assert {row.point for row in rows} == set(points_of(figure, TINY))
        assert [row.status for row in rows if not row.ok] == []
        assert (done / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (done / f"{figure}.svg").read_text()
    assert (done / "table-1.csv").read_text().startswith("parameter,values,default\n")
    assert "Nothing: all" in (done / "README.md").read_text()


def assert_repetitions_agree(rows: Iterable[Row]) -> None:
    """At every point, and all together.

    No point may be further off than one of so many normal deviates is in one of a million runs. If the standard errors
    are right, the squares of all deviations have the mean 1; 5 standard errors of that mean are allowed.
    """
    measured = [row for row in rows if row.ok and row.mechanism != "bound"]
    furthest = NormalDist().inv_cdf(1 - 1e-6 / (2 * len(measured)))
    for row in measured:
        assert abs(row.simulated - row.error) <= furthest * row.standard_error, row
        assert row.error == pytest.approx(row.noise + row.structural)
    drawn = {replace(row.point, figure=""): row for row in measured}.values()  # figures share points
    deviations = np.array([(row.simulated - row.error) / row.standard_error for row in drawn])
    assert abs(deviations.mean()) <= 5 / np.sqrt(deviations.size)
    squares = deviations**2
    assert abs(squares.mean() - 1) <= 5 * squares.std() / np.sqrt(squares.size)


def assert_residuals(rows: Iterable[Row]) -> None:
    """Every point carries one; it is rounding wherever B L = W was asked for, and at most γ elsewhere."""
    for row in rows:
        if not row.ok:
            continue
        if row.gamma == 0 and (row.ratio == 0 or row.ratio >= 1):
            assert row.residual <= 1e-9, row
            assert row.structural <= 1e-9 * row.error
        else:
            assert row.residual > 1e-9, row  # and not a NaN
            assert row.structural > 0
        if row.mechanism.startswith("LRM"):
            assert row.r > 0


def test_the_closed_form_and_the_repetitions_agree_at_every_point(done: Path) -> None:
    rows = read_all(done)
    assert len(rows) > 100
    assert_repetitions_agree(rows)
    low_rank = next(row for row in rows if row.mechanism == "LRM")
    with pytest.raises(AssertionError):
        assert_repetitions_agree([*rows, replace(low_rank, simulated=low_rank.error + 7 * low_rank.standard_error)])
    with pytest.raises(AssertionError):
        assert_repetitions_agree(replace(row, standard_error=2 * row.standard_error) for row in rows)


@pytest.mark.parametrize("mechanism", ["LRM", "Gaussian"])
def test_the_standard_error_is_that_of_the_average(mechanism: str) -> None:
    """With and without a structural error, under both kinds of noise."""
    strategy = strategy_for(Task(Batch(16, 4, "WRange"), mechanism, 1.2, 1.0 if mechanism == "LRM" else 0.0))
    rng = np.random.default_rng(0)
    found = np.array([errors(strategy, np.arange(16.0), 1.0, 20, rng) for _ in range(2000)])
    assert found[:, 3].mean() == pytest.approx(found[0, 0], rel=0.02)
    assert found[:, 3].std() == pytest.approx(found[0, 4], rel=0.1)


@pytest.mark.slow
def test_every_point_of_low_rank_carries_its_residual(done: Path) -> None:
    rows = read_all(done)
    assert_residuals(rows)
    for row in rows:
        if row.gamma > 0:
            assert row.residual * row.point.task.batch.make().norm <= row.gamma * (1 + 1e-9)


def test_no_mechanism_is_below_the_bound(done: Path) -> None:
    findings = Findings(read_all(done))
    for figure in FIGURES[2:]:
        bound = findings.curve(figure, "bound")
        for name in ("LM", "WM", "HM", "LRM", "LRM-printed", "p-Identity", "optimize"):
            assert all(error >= bound[at] * (1 - 1e-9) for at, error in findings.curve(figure, name).items())


def test_what_is_there_is_not_measured_again(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(jobs: Any, _work: object, **_: object) -> list[object]:
        assert list(jobs) == []
        return []

    monkeypatch.setattr(running, "run_jobs", none)
    before = {file.name: file.read_bytes() for file in started.glob("*.csv")}
    go_on(started, *FIGURES)
    assert {file.name: file.read_bytes() for file in started.glob("*.csv")} == before


def test_a_point_that_another_figure_has_is_copied(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (started / "figure-9.csv").unlink()
    asked: list[Task] = []

    def note(jobs: Any, _work: object, **_: object) -> list[object]:
        asked.extend(job.task for job in jobs)
        return []

    monkeypatch.setattr(running, "run_jobs", note)
    go_on(started, "figure-9")
    assert {task.batch.base for task in asked} == {4}  # s = 2 is in Figure 6
    assert {row.s for row in read(started / "figure-9.csv")} == {2}


def test_a_run_that_was_cut_off_goes_on_and_ends_the_same(done: Path, started: Path) -> None:
    whole = (started / "figure-4.csv").read_text()
    lines = whole.splitlines(keepends=True)
    (started / "figure-4.csv").write_text("".join(lines[: len(lines) // 2]) + lines[-1][:20])  # a torn line
    go_on(started, "figure-4")
    assert timeless(started) == timeless(done)


@pytest.mark.parametrize(
    "end", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.slow), pytest.param("SIGINT", marks=pytest.mark.slow)]
)
def test_a_run_that_is_ended_goes_on_and_leaves_no_process(done: Path, tmp_path: Path, end: str) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_reproduction import TINY\n"
        "from reproduction.evaluation import reproduce\n"
        "if __name__ == '__main__':\n"
        "    reproduce(['figure-2'], Path(sys.argv[2]), quick=True, table=TINY, workers=2)\n"
    )
    (tmp_path / "script.py").write_text(script)
    folder = tmp_path / "ended"
    command = [sys.executable, str(tmp_path / "script.py"), str(Path(__file__).parent), str(folder)]
    said, saying = os.pipe()  # inherited by every process of the run: at its end, all of them are gone
    process = subprocess.Popen(command, env=environment(tmp_path), stderr=saying)
    os.close(saying)
    deadline = time.monotonic() + 60
    while not (folder / "figure-2.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(getattr(signal, end))
    assert process.wait() != 0
    with os.fdopen(said) as rest:
        rest.read()
    kept = read(folder / "figure-2.csv")
    assert len(kept) < len(points_of("figure-2", TINY))
    rows = go_on(folder, "figure-2")
    assert set(kept) <= set(rows.values())
    assert timeless(folder)["figure-2.csv"] == timeless(done)["figure-2.csv"]


def job(mechanism: str, m: int, n: int) -> Job:
    return Job(Task(Batch(n, m, "WRange"), mechanism, 1.2), ((mechanism, "a", 1.0),), {"a": np.ones(n)}, 20)


def test_what_takes_too_long_is_stopped_and_what_fails_says_why() -> None:
    jobs = [job("LRM-printed", 128, 256), job("no such", 4, 8), job("LM", 4, 8)]
    ended = {one.job.task.mechanism: one for one in run_jobs(jobs, measure, workers=2, seconds=0.2)}
    assert ended["LRM-printed"].failure == "skipped: took more than 0.2 s"
    assert ended["no such"].failure == "failed: ReproductionError: mechanism='no such' is not one of the evaluation's"
    assert ended["LM"].failure == ""
    assert [ended[name].limit for name in ("LRM-printed", "no such", "LM")] == pytest.approx(
        [0.2, nan, nan], nan_ok=True
    )
    assert ended["LM"].result is not None
    assert ended["LM"].result[0].error == pytest.approx(2 * 17 / 4, rel=0.5)


def test_what_was_too_slow_is_not_tried_on_larger_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = replace(TINY, cells=(8, 16))
    small, large = (Point("figure-5", Task(Batch(n, 4, "WRange"), "MM"), "Search Logs", 0.1) for n in table.cells)
    failed = Point("figure-5", Task(Batch(8, 4, "WRange"), "HM"), "Search Logs", 0.1)
    go_on(tmp_path, table=table)
    Journal(tmp_path).add(
        [row_for(small, {"status": "any words", "limit": 20.0}), row_for(failed, {"status": "failed: took no memory"})]
    )
    asked: list[Task] = []

    def note(jobs: Any, _work: object, **_: object) -> list[object]:
        asked.extend(job.task for job in jobs)
        return []

    monkeypatch.setattr(running, "run_jobs", note)
    rows = go_on(tmp_path, "figure-5", table=table)
    assert rows[large].status == "skipped: took more than 20 s already at 4 × 8"
    assert not {small.task, large.task} & set(asked)
    assert failed.task in asked
    asked.clear()
    go_on(tmp_path, "figure-5", table=replace(table, seconds=10.0))
    assert not {small.task, large.task} & set(asked)
    go_on(tmp_path, "figure-5", table=replace(table, seconds=30.0))
    assert {small.task, large.task} <= set(asked)  # with more time, both are tried again
    settings = settings_of(tmp_path)
    assert settings is not None
    assert settings.seconds == 30


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    busy = f"another run is going on in {folder}; wait, or name another folder"
    succeeds("table-1", "-o", folder, "--quick")
    with locked(folder), unchanged(folder):
        assert refused("all", "-o", folder, "--quick") == busy
        publish(folder)  # looking on is allowed
    holder = (
        "import sys, time; from pathlib import Path; from reproduction.journal import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", holder, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert refused("table-1", "-o", folder, "--quick") == busy
        process.kill()
    succeeds("table-1", "-o", folder, "--quick")  # the lock has died with its process


def test_a_folder_that_cannot_be_locked_says_so(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(ReproductionError, match="cannot lock"):
        reproduce(["table-1"], tmp_path, quick=True, table=TINY)


@pytest.mark.slow
def test_a_run_can_be_drawn_before_it_is_done(started: Path) -> None:
    for name in FIGURES:
        lines = (started / f"{name}.csv").read_text().splitlines(keepends=True)
        (started / f"{name}.csv").write_text("".join(lines[:1] + [line for line in lines if ",LM," in line]))
        (started / f"{name}.png").unlink()
    publish(started)
    text = (started / "README.md").read_text()
    drawn = {name for name in FIGURES if (started / f"{name}.png").exists()}
    assert drawn == {name for name in FIGURES if f"{name}.png" in text} == set(FIGURES[2:])
    assert "not run yet" in text


def test_runs_are_not_mixed(started: Path) -> None:
    parameters = (started / "table-1.csv").read_bytes()
    with pytest.raises(ReproductionError, match=r"other sizes \(--quick\); name another folder"):
        reproduce(["all"], started, table=PAPER)
    assert (started / "table-1.csv").read_bytes() == parameters
    other = datasets.Collection({"Search Logs": np.ones(20, dtype=np.int64)}, originals=True)
    with pytest.raises(ReproductionError, match=r"other data \(--data\)"):
        resume(started, Settings(True, True, other.digest, TINY.seconds))
    (started / "run.json").unlink()
    with pytest.raises(ReproductionError, match="not what they were made with"):
        reproduce(["figure-2"], started, quick=True, table=TINY)
    with pytest.raises(ReproductionError, match="holds no results"):
        publish(started)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text.replace("simulated", "guessed", 1), "other columns"),
        (lambda text: text.replace("Search Logs,", "Search Logs,many", 1), r"line \d+ is damaged"),
    ],
)
def test_damaged_results_are_refused(started: Path, spoil: Callable[[str], str], message: str) -> None:
    path = started / "figure-5.csv"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ReproductionError, match=message):
        reproduce(["figure-5"], started, quick=True, table=TINY)


# ── Parameters and points ──


def test_table_1_is_the_papers() -> None:
    assert [row[1] for row in PAPER.rows()] == [
        "0.0001, 0.001, 0.01, 0.1, 1, 10",
        "0.8, 1, 1.2, 1.4, 1.7, 2.1, 2.5, 3, 3.6",
        "128, 256, 512, 1024, 2048, 4096, 8192",
        "64, 128, 256, 512, 1024",
        "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1",
        "1, 0.1, 0.01",
    ]
    assert [row[2] for row in PAPER.rows()] == ["0.01", "1.2", "1024", "256", "0.5", "0.1"]


def test_the_points_are_the_papers() -> None:
    points = {figure: points_of(figure, PAPER) for figure in FIGURES}
    for figure, found in points.items():
        assert len(set(found)) == len(found)
        mechanisms = {point.task.mechanism for point in found}
        assert ("MM" in mechanisms) == (figure in ("figure-4", "figure-5", "figure-6"))
        if figure >= "figure-4":
            assert set(COMPARED) <= mechanisms
            assert {point.dataset for point in found} == {dataset.name for dataset in DATASETS}
    assert len(points["figure-4"]) == 7 * 10 * 3
    assert len(points["figure-9"]) == 10 * 9 * 3
    assert {point.task.batch.base for point in points["figure-9"]} >= {26, 128, 256}
    assert {point.task.relaxation for point in points["figure-2"]} == {0, *PAPER.relaxations}


# ── Data ──


def test_the_stand_ins_have_the_documented_size_total_and_sparsity() -> None:
    counts = stand_ins().counts
    for dataset in DATASETS:
        assert counts[dataset.name].size == dataset.entries
        assert counts[dataset.name].sum() == dataset.total
        assert counts[dataset.name].min() >= 0
        assert np.array_equal(counts[dataset.name], dataset.make())
    assert np.mean(merged(counts["Search Logs"], 4096) == 0) == pytest.approx(0.5103, abs=1e-3)
    assert np.mean(merged(counts["Net Trace"], 4096) == 0) == pytest.approx(0.9661, abs=1e-3)
    assert np.sort(counts["Net Trace"])[-100:].sum() > 0.5 * counts["Net Trace"].sum()  # the heavy tail
    degrees = counts["Social Network"]
    assert np.all(np.diff(degrees) >= 0)
    assert degrees.min() >= 1
    assert np.median(degrees) == pytest.approx(48, abs=2)
    assert np.mean(degrees >= 100) == pytest.approx(0.2, abs=0.03)


def test_neighbours_are_merged_in_order() -> None:
    counts = np.arange(10)
    assert merged(counts, 5).tolist() == [1, 5, 9, 13, 17]
    assert merged(counts, 3).tolist() == [0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8 + 9]
    assert merged(counts, 10).tolist() == counts.tolist()
    assert merged(counts, 1).tolist() == [45]
    for cells in (0, 11):
        with pytest.raises(ReproductionError, match=f"cells={cells} must be between 1 and the 10"):
            merged(counts, cells)


def write_data(folder: Path, **replaced: bytes) -> Path:
    folder.mkdir()
    for dataset in DATASETS:
        (folder / dataset.file).write_bytes(replaced.get(dataset.file.split(".")[0], b"3\n0\n" * 8))
    return folder


def test_the_originals_are_read_where_they_are_given(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", nettrace=b"12\r\n0\r\n" * 8)
    reproduce(["table-1"], tmp_path / "out", data=data, table=TINY)
    settings = settings_of(tmp_path / "out")
    assert settings is not None
    assert settings.originals
    assert "read with `--data`" in (tmp_path / "out" / "README.md").read_text()
    assert datasets.originals(data, 16).counts["Net Trace"].tolist() == [12, 0] * 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3\n-1\n", "line 2: '-1' is not a count"),
        (b"3\n2.5\n", "line 2: '2.5' is not a count"),
        (b"3\n\n4\n", "line 2: '' is not a count"),
        (b"many\n", "line 1: 'many' is not a count"),
        (b"9" * 30 + b"\n", "line 1: '999"),
        (b"\xff\xfe3\x00", "not plain text"),
        (b"3\n" * 15, "has 15 lines, fewer than the 16 cells"),
    ],
)
def test_bad_data_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    data = write_data(tmp_path / "data", search_logs=content)
    with pytest.raises(ReproductionError, match=message):
        reproduce(["figure-2"], tmp_path / "out", data=data, table=TINY)


def test_a_missing_data_file_says_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(ReproductionError, match=r"a folder with search_logs\.txt, nettrace\.txt"):
        reproduce(["figure-2"], tmp_path / "out", data=tmp_path, table=TINY)


# ── Examples and formulas ──


def test_the_optimum_of_the_second_example_is_below_the_papers() -> None:
    first, second = examples.examples()
    assert first.reached == pytest.approx(first.printed, rel=1e-4)
    assert second.printed == pytest.approx(39)
    assert second.reached == pytest.approx(38, abs=0.01)
    assert second.bound <= second.reached


def test_each_correction_has_a_case() -> None:
    found = {one.where: one.case for one in corrections()}
    assert found["Section 3.2, noise on results"] == "example 2: 54 as printed, 150 in truth"
    assert "200 as printed, yet an error of 2 suffices" in found["Lemma 4, lower bound"]
    assert "γ² Σ x² is 1,250" in found["Theorem 3, relaxed decomposition"]


# ── The page and the command ──


COMMITTED = DOCS / "reproduction"
committed = pytest.mark.skipif(not COMMITTED.exists(), reason="docs/reproduction is not there")


@committed
def test_the_committed_results_hold_every_figure_and_point() -> None:
    """What took too long has a row that says so."""
    settings = settings_of(COMMITTED)
    assert settings is not None
    table = QUICK if settings.quick else PAPER
    for figure in FIGURES:
        assert {row.point for row in read(COMMITTED / f"{figure}.csv")} == set(points_of(figure, table))
        assert "</svg>" in (COMMITTED / f"{figure}.svg").read_text()
        assert 0 < (COMMITTED / f"{figure}.png").stat().st_size <= 125_000


@committed
def test_the_committed_page_is_what_the_committed_results_give() -> None:
    settings = settings_of(COMMITTED)
    assert settings is not None
    table = QUICK if settings.quick else PAPER
    made = page(
        read_all(COMMITTED), examples.load(COMMITTED), verdicts(load(COMMITTED)), settings, table, "reproduction"
    )
    stale = "stale: run make reproduce"
    assert (DOCS / "reproduction.md").read_text() == made, stale


@committed
def test_the_committed_repetitions_agree_with_the_closed_form_and_residuals_are_there() -> None:
    rows = read_all(COMMITTED)
    assert_repetitions_agree(rows)
    assert_residuals(rows)


def test_the_command_makes_a_page_and_draws_it_again(tmp_path: Path) -> None:
    said = succeeds("table-1", "examples", "-o", tmp_path / "out", "--quick")
    assert said.startswith("0 points, 0 of them without figures. Read ")
    before = (tmp_path / "out" / "README.md").read_text()
    assert "Example 2: the best total error is 39 / ε² | **does not hold** | least found: 38" in before
    succeeds("all", "-o", tmp_path / "out", "--draw", "--page", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == before.replace("](./", "](out/")


def test_the_help_has_examples_that_it_understands() -> None:
    shown = succeeds("--help")
    for line in EXAMPLES:
        assert f"\n {line}" in shown
        program, *arguments = line.split("python -m reproduction ")
        assert program == ""
        get_command(app).make_context("reproduction", arguments[0].split())


def test_no_wheel_holds_it(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(DOCS.parent)).build(directory=str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        packages = {name.partition("/")[0] for name in archive.namelist()}
        (about,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert {name for name in packages if not name.endswith(".dist-info")} == {"batchdp"}
    assert not re.search("numba|filelock|reproduction", about.partition("\n\n")[0])


@committed
def test_nothing_is_left_to_measure_for_the_committed_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So `make reproduce` makes the page in seconds."""
    folder = shutil.copytree(COMMITTED, tmp_path / "committed")
    monkeypatch.setattr(running, "run_jobs", lambda jobs, *_, **__: [pytest.fail(f"{job}") for job in jobs])
    monkeypatch.setattr(peers_running, "run_jobs", lambda jobs, *_, **__: [pytest.fail(f"{job}") for job in jobs])
    journal = resume(folder, Settings(False, False, stand_ins().digest, PAPER.seconds))
    running.run(journal, FIGURES, PAPER, stand_ins())
    peers_running.run(folder, seconds=PAPER.seconds)
    assert all((folder / one.name).read_bytes() == one.read_bytes() for one in COMMITTED.glob("*.csv"))


def test_there_are_as_many_workers_as_cores() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_the_page_marks_failed_searches(done: Path) -> None:
    rows, settings = read_all(done), settings_of(done)
    assert settings is not None
    failed = [
        replace(row, status="fell back to its start") if (row.figure, row.mechanism) == ("figure-5", "LRM") else row
        for row in rows
    ]
    text = page(failed, [], [], settings, TINY, ".")
    assert re.search(r"\| LRM \| [\d,.]+ † \|", text)
    assert "† At 3 points the search for LRM failed" in text
    assert "WRange 4 × 16 with r = 5." in text


def test_the_page_marks_searches_that_gave_up(done: Path) -> None:
    rows, settings = read_all(done), settings_of(done)
    assert settings is not None
    good = [replace(row, status="converged") if row.gave_up else row for row in rows]
    assert "‡" not in page(good, [], [], settings, TINY, ".")
    stuck = [
        replace(row, status="penalty at its limit") if (row.figure, row.mechanism) == ("figure-5", "LRM") else row
        for row in good
    ]
    text = page(stuck, [], [], settings, TINY, ".")
    assert re.search(r"\| LRM \| [\d,.]+ ‡ \|", text)
    assert re.search(r"‡ At 3 points, .* at its limit .* LRM: WRange 4 × 16 with r = 5\.", text)


def test_wrong_usage_is_refused(tmp_path: Path) -> None:
    assert "figure-1" in refused("figure-1", "-o", tmp_path, code=2)
    assert "FIGURE" in refused("-o", tmp_path, code=2)
    assert "--workers" in refused("all", "-o", tmp_path, "--workers", 0, code=2)
    assert "seconds=-1" in refused("table-1", "-o", tmp_path, "--seconds", -1)
    assert "cannot read" in refused("figure-2", "-o", tmp_path, "--data", tmp_path / "nowhere")
    assert "holds no results" in refused("all", "-o", tmp_path / "empty", "--draw")
    with pytest.raises(ReproductionError, match="must be one of table-1"):
        reproduce(["figure-1"], tmp_path)
    with pytest.raises(ReproductionError, match="workers=0"):
        reproduce(["table-1"], tmp_path, workers=0)
    assert set(TARGETS) == {"table-1", "examples", "peers", *FIGURES}


@pytest.mark.slow
def test_a_figure_of_the_quick_version(tmp_path: Path) -> None:
    ended = run("figure-9", "-o", tmp_path / "out", "--quick", "--workers", 2)
    assert ended.code == 0
    rows = read(tmp_path / "out" / "figure-9.csv")
    assert len(rows) == len(points_of("figure-9", QUICK))
    assert [row.status for row in rows if not row.ok] == []
