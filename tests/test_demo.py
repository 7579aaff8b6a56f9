"""The demonstration: the whole job on invented records, and the truth in none of its files."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import batchdp
from batchdp.cli import example
from batchdp.domain import read_domain
from batchdp.ledger import Ledger
from batchdp.release import load_release
from batchdp.sql import read_queries
from commands import contents, environment, refused, succeeds, unchanged

ROOT = Path(__file__).parent.parent
QUICK = "SELECT COUNT(*) AS patients FROM patients;\nSELECT state, COUNT(*) AS patients FROM patients GROUP BY state;\n"


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A smaller demonstration, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "QUERIES", QUICK)
    monkeypatch.setattr(example, "RECORDS", 5_000)
    return tmp_path


def test_forty_queries_of_every_kind() -> None:
    queries = read_queries(example.QUERIES, read_domain(example.DOMAIN))
    assert len(queries) == 40
    for word in ("GROUP BY", "BETWEEN", "FILTER", "SUM(CASE", "SUM(charge)", "IN (", "<>"):
        assert word in example.QUERIES


def test_it_shows_the_truth_beside_the_answers_and_can_be_run_twice(quick: Path) -> None:
    shown = succeeds("demo")
    for text in ("truth", "private, ε = 1", "private, ε = 0.1", "gain", "9 queries about 5,000 patients", "5,000 "):
        assert text in shown
    for text in ("Method: ", "ε = 1.1 of 3 spent, 1.9 left", "batchdp budget batchdp-demo/budget.db", "batchdp init"):
        assert text in shown
    folder = quick / "batchdp-demo"
    assert set(contents(folder)) == {*example.FILES, example.MARK, "answers-1.release", "answers-0.1.release"}
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    assert Ledger.open(folder / "budget.db").spent == pytest.approx(1.1)
    (folder / "notes.txt").write_text("mine")
    first = load_release(folder / "answers-1.release")
    succeeds("demo")
    assert (folder / "notes.txt").read_text() == "mine"
    assert Ledger.open(folder / "budget.db").spent == pytest.approx(1.1)
    assert load_release(folder / "answers-1.release").certificate.release_id != first.certificate.release_id


@pytest.mark.slow
def test_what_is_suggested_next_works(quick: Path) -> None:
    succeeds("demo", "--folder", "else where")
    succeeds("budget", "else where/budget.db")
    succeeds("audit", "else where/patients.plan", "--runs", 2000)
    succeeds("report", "else where/answers-0.1.release", "-o", "page.html")


def test_somebody_elses_folder_is_left_alone(quick: Path) -> None:
    for name in ("patients.parquet", "domain.toml"):
        folder = quick / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("precious")
        with unchanged(quick):
            assert "not from a demonstration" in refused("demo", "--folder", folder)
    (quick / "file").write_text("precious")
    with unchanged(quick):
        assert "not from a demonstration" in refused("demo", "--folder", "file")
        refused("demo", "--folder", "file/below")


@pytest.mark.slow
def test_the_truth_is_in_no_file(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed after the last file was written, and what was written holds none of it."""
    exact: list[np.ndarray] = []
    written: list[dict[str, str]] = []
    compute = example.truth

    def watched(plan: batchdp.Plan, table: Path) -> np.ndarray:
        written.append(contents(quick))
        exact.append(compute(plan, table))
        return exact[0]

    monkeypatch.setattr(example, "truth", watched)
    succeeds("demo")
    assert contents(quick) == written[0]
    canaries = {np.float64(value).tobytes() for value in exact[0]} | {np.int64(value).tobytes() for value in exact[0]}
    searched = 0
    for file in (quick / "batchdp-demo").iterdir():
        if file.suffix == ".parquet":
            continue
        parts = [file.read_bytes()]
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                parts = [archive.read(name) for name in archive.namelist()]
        for part in parts:
            searched += len(part)
            assert not [canary for canary in canaries if canary in part]
    assert searched > 10_000


@pytest.mark.slow
def test_the_whole_demonstration_takes_seconds(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "batchdp", "demo"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "40 queries about 100,000 patients" in done.stdout
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:.1f} seconds of CPU time")
    made = batchdp.load_plan(tmp_path / "batchdp-demo" / "patients.plan")
    assert made.strategy.expected_squared_error(epsilon=1.0) < 790, "found with a larger time budget: 782"
    assert seconds < 30


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_runs_the_demonstration(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    installed = subprocess.run(install, capture_output=True, text=True, check=False, timeout=600)
    if installed.returncode and "requires-python" not in installed.stderr.lower():
        pytest.skip(f"pip cannot download: {installed.stderr.strip().splitlines()[-1]}")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [tmp_path / "empty" / "bin" / "batchdp", "demo"],
        cwd=elsewhere,
        env=environment(elsewhere, PYTHONPATH=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "40 queries" in done.stdout
    assert (elsewhere / "batchdp-demo" / "report.html").stat().st_size > 10_000
