"""Every wrong turn is one clear line with the right exit code, and leaves ledger and files as they were."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pytest

import batchdp
from batchdp.cli import main
from commands import RECORDS, copied, make_study, refused, succeeds, unchanged

ANSWER = {
    "plan": "pure.plan",
    "--table": "visits.csv",
    "--epsilon": "0.5",
    "--ledger": "budget.db",
    "--output": "answers.csv",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_study(folder)
    os.chdir(folder)
    succeeds("answer", "pure.plan", *words({**ANSWER, "--epsilon": "0.25", "--output": "old.csv"})[1:])
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    copied(made, tmp_path)
    (tmp_path / "empty").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.txt").write_text("not a table")
    for name in ("pure.plan", "old.release", "budget.db"):
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 3 : len(content) // 3 + 200] = b"x" * 200
        (tmp_path / f"damaged-{name}").write_bytes(content)
        (tmp_path / f"cut-{name}").write_bytes((tmp_path / name).read_bytes()[: len(content) // 2])
    return tmp_path


def words(options: dict[str, str]) -> list[str]:
    plan, *rest = options.items()
    return [plan[1], *(word for option in rest for word in option), "--yes"]


def refused_answer(study: Path, code: int = 1, **changed: str | None) -> str:
    names = {"plan": "plan", **{name.lstrip("-"): name for name in ANSWER}}
    options = {**ANSWER, **{names.get(name, f"--{name}"): value for name, value in changed.items()}}
    with unchanged(study):
        line = refused("answer", *words({name: text for name, text in options.items() if text is not None}), code=code)
    assert batchdp.Ledger.open("budget.db").spent == 0.25
    return line


# ── answer ──


@pytest.mark.parametrize("argument", ["plan", "table", "ledger"])
@pytest.mark.parametrize("given", ["missing", "empty", "folder"])
def test_a_wrong_file_for_every_argument_of_answer(study: Path, argument: str, given: str) -> None:
    if argument == "table":
        given = {"missing": "missing.csv", "empty": "empty.csv"}.get(given, given)
        Path("empty.csv").write_text("")
    assert given in refused_answer(study, 1, **{argument: given})


@pytest.mark.parametrize("plan", ["damaged-pure.plan", "cut-pure.plan", "budget.db", "old.release", "queries.sql"])
def test_what_is_not_a_plan(study: Path, plan: str) -> None:
    assert plan in refused_answer(study, plan=plan)
    if plan != "old.release":  # compare also takes matrices
        assert plan in refused("compare", plan)
    assert plan in refused("audit", plan)


@pytest.mark.parametrize("ledger", ["cut-budget.db", "pure.plan", "old.release", "old.csv"])
def test_what_is_not_a_ledger(study: Path, ledger: str) -> None:
    assert ledger in refused_answer(study, ledger=ledger)
    with unchanged(study):
        assert ledger in refused("budget", ledger)


def test_a_ledger_whose_entries_were_overwritten(study: Path) -> None:
    content = Path("budget.db").read_bytes()
    size = 4096  # of a page; the first holds the schema
    for page in range(1, len(content) // size):
        damaged = bytearray(content)
        damaged[page * size : (page + 1) * size] = os.urandom(size)
        Path("damaged.db").write_bytes(damaged)
        assert "damaged.db" in refused("budget", "damaged.db")


def test_a_missing_ledger_comes_with_the_command_that_makes_one(study: Path) -> None:
    assert "batchdp budget new.db --create --epsilon" in refused_answer(study, ledger="new.db")
    assert "batchdp budget new.db --create --epsilon" in refused("budget", "new.db")
    assert "batchdp budget new.db --create --epsilon" in refused("report", "old.csv", "-o", "p.html", "-l", "new.db")
    assert not Path("new.db").exists()


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf", "-inf", "1e-320", "1e12"])
def test_a_budget_out_of_range(study: Path, epsilon: str) -> None:
    line = refused_answer(study, epsilon=epsilon)
    assert "epsilon" in line or "budget" in line
    with unchanged(study):
        if epsilon != "1e-320":
            assert "epsilon" in refused("budget", "new.db", "--create", "--epsilon", epsilon)


@pytest.mark.parametrize("epsilon", ["half", "", "1,5", "0x"])
def test_a_budget_that_is_no_number_is_wrong_usage(study: Path, epsilon: str) -> None:
    assert "--epsilon" in refused_answer(study, code=2, epsilon=epsilon)


def test_neither_both_and_the_wrong_kind_of_budget(study: Path) -> None:
    assert "neither is given" in refused_answer(study, code=2, epsilon=None)
    assert "both are given" in refused_answer(study, code=2, rho="1")
    assert "give epsilon" in refused_answer(study, epsilon=None, rho="0.1")
    assert "give rho" in refused_answer(study, plan="zcdp.plan")
    assert "ledger in epsilon" in refused_answer(study, plan="zcdp.plan", epsilon=None, rho="0.1")
    assert "neither is given" in refused("budget", "new.db", "--create", code=2)
    assert "--create" in refused("budget", "budget.db", "--epsilon", 1, code=2)


def test_more_than_is_left(study: Path) -> None:
    assert "0.75 is left; ask for at most epsilon 0.75" in refused_answer(study, epsilon="0.8")


def test_intervals_of_an_odd_confidence(study: Path) -> None:
    for confidence in ("0", "1", "95", "nan"):
        assert "confidence" in refused_answer(study, confidence=confidence)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("answers.txt", ".csv, .json, .release"),
        ("answers", ".csv, .json, .release"),
        ("nowhere/answers.csv", "does not exist"),
        ("folder/inside.txt/answers.csv", "does not exist"),
        ("answers.csv/", "folder"),
        ("/proc/answers.csv", "cannot be written"),
        ("link.csv", "link"),
        ("visits.csv", "is read by this command"),
        ("./folder/../visits.csv", "is read by this command"),
        ("ledger.csv", "ledger or another database"),
        ("x" * 300 + ".csv", "too long"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_spent(
    study: Path, output: str, said: str
) -> None:
    if output.endswith("/"):
        Path(output).mkdir()
    Path("link.csv").symlink_to("visits.csv")
    shutil.copy("budget.db", "ledger.csv")
    assert said in refused_answer(study, output=output)


def test_the_release_beside_the_output_is_checked_as_well(study: Path) -> None:
    Path("answers.release").mkdir()
    assert "answers.release is a folder" in refused_answer(study)


def test_no_permission(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("answers.csv").write_text("precious")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "answers.csv" and access(path, mode))
    assert "no permission" in refused_answer(study)


@pytest.mark.slow
def test_what_may_not_be_read_or_written(study: Path) -> None:
    """In a child that is somebody else if we are root, who may read and write everything."""
    folder = Path(tempfile.mkdtemp())
    copied(study, folder)
    folder.chmod(0o777)
    (folder / "folder").chmod(0o555)
    for file in ("visits.csv", "pure.plan", "domain.toml", "queries.sql"):
        shutil.copy(file, folder / f"closed-{file}")
        (folder / f"closed-{file}").chmod(0)
    (folder / "budget.db").chmod(0o444)
    os.chdir(folder)
    succeeds("answer", *words({**ANSWER, "--ledger": str(study / "budget.db"), "--output": "imported.csv"}))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            for changed in (
                {"--table": "closed-visits.csv"},
                {"plan": "closed-pure.plan"},
                {"--output": "folder/other.csv"},
                {"--ledger": "budget.db"},
            ):
                line = refused("answer", *words({**ANSWER, **changed}))
                assert any(given in line for given in changed.values()), line
            assert "closed-" in refused("plan", "closed-queries.sql", "-d", "domain.toml", "-o", "x.plan")
            assert "closed-" in refused("plan", "queries.sql", "-d", "closed-domain.toml", "-o", "x.plan")
            assert "folder" in refused("demo", "--folder", "folder/demo")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        shutil.rmtree(folder)


def test_an_output_among_the_tables_files(study: Path) -> None:
    Path("tables").mkdir()
    shutil.copy("visits.csv", "tables")
    assert "part of the table" in refused_answer(study, table="tables", output="tables/answers.csv")


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ("clinic\nnorth\n", "'age'"),
        ("klinic,age\nnorth,3\n", "no column 'clinic' among its 2"),
        ("clinic,age,AGE,Age\nnorth,3,4,5\n", None),
        ("clinic,Age,AGE\nnorth,3,4\n", "several columns"),
        ("\xff\xfe", "UTF-8"),
    ],
)
def test_a_table_with_other_columns(study: Path, records: str, said: str | None) -> None:
    Path("other.csv").write_bytes(records.encode("latin-1"))
    if said is None:
        succeeds("answer", *words({**ANSWER, "--table": "other.csv"}))
    else:
        assert said in refused_answer(study, table="other.csv")


def test_a_column_of_another_type(study: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    parquet.write_table(pa.table({"clinic": ["north"], "age": [["CANARY-VALUE"]]}), "other.parquet")
    line = refused_answer(study, table="other.parquet")
    assert "'age' is declared to hold numbers" in line
    assert "CANARY" not in line


@pytest.mark.parametrize("table", ["missing.duckdb", "budget.db", "mysql://me@host/db", "duckdb://missing#x", "x.xlsx"])
def test_tables_that_are_none(study: Path, table: str) -> None:
    refused_answer(study, table=table)


# ── plan ──


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) AS a FROM visits;\nSELECT COUNT(*) FROM visits WHERE agee > 3", "line 2, column"),
        ("SELECT * FROM visits", "line 1, column 8"),
        ("DROP TABLE visits", "line 1, column 1"),
        ("SELECT COUNT(*) FROM other", "line 1, column 22"),
        ("SELECT 'open", "line 1, column 8"),
        ("", "no query"),
        ("-- nothing\n", "no query"),
    ],
)
def test_sql_that_is_refused_shows_the_place(study: Path, sql: str, said: str) -> None:
    Path("bad.sql").write_text(sql)
    with unchanged(study):
        line = refused("plan", "bad.sql", "-d", "domain.toml", "-o", "x.plan")
    assert said in line
    assert "bad.sql" in line


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("", "table"),
        ('table = "visits"', "columns"),
        ('table = "visits"\n[columns.age]\nrange = [5, 1]', "columns.age"),
        ('table = "visits"\n[columns.age]\nvalues = [1.5]', "columns.age.values"),
        ('table = "visits"\n[privacy]\nneighbors = "replace"\n[columns.age]\nrange = [0, 1]', "privacy.neighbors"),
        ("table = = 3", "line 1"),
        ("\xff", "UTF-8"),
    ],
)
def test_a_domain_that_is_refused_shows_the_key(study: Path, toml: str, said: str) -> None:
    Path("bad.toml").write_bytes(toml.encode("latin-1"))
    with unchanged(study):
        line = refused("plan", "queries.sql", "-d", "bad.toml", "-o", "x.plan")
    assert said in line
    assert "bad.toml" in line or "domain" in line


def test_wrong_files_for_plan(study: Path) -> None:
    with unchanged(study):
        for missing in ("missing", "folder"):
            assert missing in refused("plan", missing, "-d", "domain.toml", "-o", "x.plan")
            assert missing in refused("plan", "queries.sql", "-d", missing, "-o", "x.plan")
        assert "does not exist" in refused("plan", "queries.sql", "-d", "domain.toml", "-o", "nowhere/x.plan")
        for precious in ("queries.sql", "domain.toml"):
            said = refused("plan", "queries.sql", "-d", "domain.toml", "-o", precious)
            assert "is read by this command" in said
        assert "ledger" in refused("plan", "queries.sql", "-d", "domain.toml", "-o", "budget.db")


@pytest.mark.parametrize(
    "option",
    [
        ("--epsilon", 0),
        ("--epsilon", "nan"),
        ("--accuracy", -1),
        ("--accuracy", "nan"),
        ("--accuracy", "inf"),
        ("--seconds", 0),
        ("--seed", -1),
        ("--delta", 2),
    ],
)
def test_numbers_out_of_range_for_plan(study: Path, option: tuple[str, object]) -> None:
    with unchanged(study):
        line = refused("plan", "queries.sql", "-d", "domain.toml", "-o", "x.plan", *option)
    assert option[0].lstrip("-") in line


# ── The others ──


def test_a_ledger_is_never_replaced(study: Path) -> None:
    with unchanged(study):
        assert "exists already" in refused("budget", "budget.db", "--create", "--epsilon", 5)
        assert "exists already" in refused("budget", "queries.sql", "--create", "--epsilon", 5)
        assert "ledger" in refused("report", "old.csv", "-o", "budget.db")
        refused("budget", "nowhere/budget.db", "--create", "--epsilon", 5)
        refused("budget", "folder", "--create", "--epsilon", 5)


@pytest.mark.parametrize("release", ["missing.release", "missing.csv", "empty", "folder", "budget.db"])
def test_what_is_not_a_release(study: Path, release: str) -> None:
    with unchanged(study):
        assert release in refused("report", release, "-o", "page.html")


def test_damaged_releases_and_outputs_of_reports(study: Path) -> None:
    with unchanged(study):
        for release in ("damaged-old.release", "cut-old.release"):
            assert release in refused("report", release, "-o", "page.html")
        assert "is read by this command" in refused("report", "old.csv", "-o", "old.release")
        assert "is read by this command" in refused("report", "old.csv", "-o", "old.csv")
        assert "does not exist" in refused("report", "old.csv", "-o", "nowhere/page.html")
        assert "missing.plan" in refused("report", "old.csv", "-o", "page.html", "--plan", "missing.plan")


def test_wrong_usage() -> None:
    assert "No such command 'reprot'" in refused("reprot", code=2)
    assert "--odd" in refused("budget", "x", "--odd", code=2)
    assert "Missing argument 'LEDGER'" in refused("budget", code=2)
    assert "--domain" in refused("plan", "queries.sql", "-o", "x", code=2)
    assert "batchdp answer --help" in refused("answer", code=2)
    assert "--runs" in refused("audit", "x", "--runs", 5, code=2)
    assert "extra" in refused("budget", "a", "b", code=2)


def test_control_characters_in_names_do_not_reach_the_terminal(study: Path) -> None:
    line = refused("budget", "odd\33[31m\nname")
    assert "\33" not in line


def test_an_error_nobody_thought_of_shows_no_text_of_its_own(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import batchdp

    def broken(*_: object) -> None:
        raise LookupError("CANARY 4711")

    from commands import run

    monkeypatch.setattr(batchdp, "load_plan", broken)
    done = run("audit", "pure.plan")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "LookupError" in done.err
    assert "4711" not in done.err
    monkeypatch.setenv("BATCHDP_TRACEBACK", "1")
    monkeypatch.setattr("sys.argv", ["batchdp", "audit", "pure.plan"])
    with pytest.raises(LookupError):
        main()


def test_the_records_are_what_the_tests_think() -> None:
    assert len(RECORDS.splitlines()) == 901


def test_a_matrix_that_nothing_can_work_on_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (30_000, 30_000)})
        file.truncate(file.tell() + 8 * 30_000**2)  # a hole, which takes no room
    assert "30,000 × 30,000 is 7 GiB as an array" in refused("compare", path)
