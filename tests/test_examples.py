"""Every example runs, quietly, and shows what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import environment

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWN = {
    "choosing_epsilon.py": "±25 on every answer:",
    "gaussian_noise.py": "ρ = 0.5 is left",
    "patients_and_visits.py": "5 of visits, 3 of persons of visits by clinic",
    "own_matrix.py": "ε = 0.5 of 1.0 is left",
    "pandas_frame.py": "adults in the north",
    "questions.py": "age_deviation: 1 rows",
    "shared_ledger.py": "the same again, free: True 0.1 left",
}


NOTEBOOKS = {
    "first_release.ipynb": "ε = 1 of 2 is left",
    "own_queries.ipynb": "['until 2026-01', 'until 2026-02']",
    "many_tables.ipynb": "page.html has 16 tables",
}
CELL = """
import ast, json, sys
from pathlib import Path

names = sys.modules["__main__"].__dict__
for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:  # which a notebook shows, as HTML or as a picture
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            shown = [getattr(value, name)() for name in ("_repr_html_", "_repr_png_") if hasattr(value, name)]
            assert value is None or any(shown), cell["source"]
"""


def test_every_example_is_tested() -> None:
    assert {file.name for file in EXAMPLES.iterdir() if file.suffix == ".py"} == set(SHOWN)
    assert {file.name for file in EXAMPLES.iterdir() if file.suffix == ".ipynb"} == set(NOTEBOOKS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_what_it_shows_has_a_picture(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / name
    assert NOTEBOOKS[name] in run([sys.executable, "-W", "error", "-c", CELL, str(file)], tmp_path)
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")  # nothing that gets stale


def run(command: list[str], folder: Path) -> str:
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder, PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}", TMPDIR=str(folder)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert SHOWN[name] in run([sys.executable, "-W", "error", str(EXAMPLES / name)], tmp_path)


@pytest.mark.slow
def test_the_five_commands_run(tmp_path: Path) -> None:
    shown = run(["sh", str(EXAMPLES / "five_commands.sh")], tmp_path)
    assert "11 private answers" in shown
    assert "ε = 0.5 of 1 is left." in shown
    folder = Path(shown.rpartition("Everything is in ")[2].strip().rstrip("."))
    header, *answers = (folder / "answers.csv").read_text().splitlines()
    assert header == "name,value,standard_error,low,high,derived"
    assert len(answers) == 11
    assert "adults in the north" in (folder / "page.html").read_text(encoding="utf-8")


def test_the_five_commands_are_those_that_help_shows() -> None:
    lines = [line for line in (EXAMPLES / "five_commands.sh").read_text().splitlines() if line.startswith("batchdp ")]
    assert [line.split()[1] for line in lines] == ["init", "plan", "budget", "answer", "report"]
    assert lines[3] == (
        "batchdp answer visits.plan --table visits.csv --epsilon 0.5 --ledger budget.db -o answers.csv --yes"
    )


@pytest.mark.slow
def test_the_flights_run(tmp_path: Path) -> None:
    shown = run(["sh", str(EXAMPLES / "flights.sh")], tmp_path)
    assert "average_distance by carrier (10), derived" in shown
    assert "ε = 2 of 3 is left." in shown
    folder = Path(shown.rpartition("Everything is in ")[2].strip().rstrip("."))
    header, *rows = (line.split(",") for line in (folder / "answers.csv").read_text().splitlines())
    assert header == ["name", "value", "standard_error", "low", "high", "derived"]
    derived = [row for row in rows if row[-1] == "true"]
    assert len(rows) == 88
    assert len(derived) == 30
    for name, value, _, low, high, _ in derived:
        assert not value or float(low) <= float(value) <= float(high), name
    averages = [float(row[1]) for row in derived if row[0].startswith("average_distance") and row[1]]
    assert averages
    assert all(500 < one < 2500 for one in averages)
    assert "Derived answers" in (folder / "page.html").read_text(encoding="utf-8")
