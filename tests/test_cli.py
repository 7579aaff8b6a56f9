from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import batchdp
from batchdp.cli import GROUPS, app
from cases import EXAMPLE_1
from commands import contents, copied, environment, make_study, refused, run, succeeds

LAPLACE = [name for name in batchdp.STRATEGIES if name != "gaussian"]
COMMANDS = ("demo", "init", "plan", "budget", "answer", "report", "compare", "audit")
COLUMNS = ["name", "value", "standard_error", "low", "high", "derived"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_study(folder)
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copied(made, tmp_path)


def answered(
    output: str, *more: object, plan: str = "pure.plan", budget: tuple[object, ...] = ("--epsilon", 0.5)
) -> str:
    return succeeds(
        "answer", plan, "--table", "visits.csv", *budget, "--ledger", "budget.db", "-o", output, "-y", *more
    )


# ── Help ──


def test_help_names_every_command_and_the_way_to_a_first_answer() -> None:
    shown = succeeds("--help")
    for name in COMMANDS:
        assert f" {name} " in shown
    assert "batchdp demo" in shown
    assert "batchdp init visits.csv" in shown
    assert "--install-completion" in shown
    assert run().code == 2
    assert all(job in run().out for job in GROUPS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_that_it_understands(command: str) -> None:
    shown = succeeds(command, "--help")
    assert "Example" in shown
    assert f"\n batchdp {command}" in shown
    assert succeeds(command, "-h") == shown
    from typer.main import get_command

    group = get_command(app)
    for line in sys.modules[f"batchdp.cli.{command}"].EXAMPLES:
        assert len(line) <= 78, "wrapped examples cannot be copied"
        program, name, *arguments = line.split()
        assert (program, name) == ("batchdp", command)
        group.commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


def test_the_version_is_said() -> None:
    assert succeeds("--version") == f"batchdp {batchdp.__version__}\n"


@pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=pytest.mark.slow), pytest.param("fish", marks=pytest.mark.slow)]
)
def test_the_shell_completes_commands_and_choices(shell: str, tmp_path: Path) -> None:
    def completed(words: str) -> str:
        more = {"_BATCHDP_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        more |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        done = subprocess.run(
            [Path(sys.executable).with_name("batchdp")],
            env=environment(tmp_path, **more),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert "budget" in completed("batchdp bu")
    assert "zcdp" in completed("batchdp plan --privacy z")


# ── What must not be imported to start ──

HEAVY = ("numpy", "scipy", "ibis", "duckdb", "sqlglot", "matplotlib", "pandas", "pyarrow", "opendp", "pydantic")


@pytest.mark.parametrize("started", ["import batchdp", "import batchdp.cli"])
def test_starting_imports_nothing_heavy(started: str) -> None:
    heavy = HEAVY if started == "import batchdp" else tuple(name for name in HEAVY if name != "pydantic")
    code = f"{started}; import sys; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def processor_seconds(*arguments: str) -> float:
    """Of a Python process with these arguments, the least of several."""
    code = f"""
import resource, subprocess, sys
subprocess.run([sys.executable, *{arguments!r}], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""
    runs = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5))
    return min(float(done.stdout) for done in runs)


@pytest.mark.slow
def test_help_takes_twice_the_time_of_importing_typer_and_rich_at_most() -> None:
    assert processor_seconds("-m", "batchdp", "--help") <= 2 * processor_seconds("-c", "import typer, rich")


@pytest.mark.slow
def test_importing_batchdp_takes_less_than_a_tenth_of_a_second() -> None:
    assert processor_seconds("-c", "import batchdp") < 0.1


def test_help_of_all_commands_builds_none_and_draws_nothing() -> None:
    code = (
        "import contextlib, io, sys; from batchdp.cli import _built, app\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): app(['--help'])\n"
        "print(_built.cache_info().currsize, 'rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"


# ── The whole job ──


def test_from_a_csv_file_to_a_page_in_five_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("clinic,age\n" + "A,30\n" * 700)
    assert "batchdp plan queries.sql --domain domain.toml -o visits.plan" in succeeds("init", "visits.csv")
    shown = succeeds("plan", "queries.sql", "--domain", "domain.toml", "-o", "visits.plan", "--seconds", 1)
    assert "marked EDIT" in shown
    assert succeeds("budget", "budget.db", "--create", "--epsilon", 1) == "ε = 1 in all, 0 spent, 1 left.\n"
    arguments = ("--table", "visits.csv", "--epsilon", 0.5, "--ledger", "budget.db", "-o", "answers.csv", "--yes")
    shown = succeeds("answer", "visits.plan", *arguments)
    assert "ε = 0.5 of 1 is left." in shown
    assert "page.html" in succeeds("report", "answers.release", "-o", "page.html")
    rows = list(csv.DictReader(Path("answers.csv").read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == COLUMNS
    assert abs(float(rows[0]["value"]) - 700) < 200
    assert "by_clinic" in Path("page.html").read_text(encoding="utf-8")


# ── plan ──


def test_plan_shows_errors_and_advice_and_with_verbose_the_method_and_the_bound(study: Path) -> None:
    given = ("plan", "queries.sql", "-d", "domain.toml", "-o", "x.plan", "--seconds", 1, "--accuracy", 25)
    shown, rest = succeeds(*given), succeeds(*given, "--verbose")
    for text in ("visits by clinic (2)", "median", "    north", "noise on data", "For ±25 at 95 %", "x.plan"):
        assert text in shown
        assert text in rest
    for text in ("by itself    gain", "Method: ", "No strategy of this kind is below"):
        assert text not in shown
        assert text in rest
    assert "EDIT" not in shown


def test_plan_as_json(study: Path) -> None:
    arguments = ("queries.sql", "-d", "domain.toml", "-o", "x.plan", "--seconds", 1)
    shown = json.loads(succeeds("plan", *arguments, "--json", "--accuracy", 25))
    plan = batchdp.load_plan("x.plan")
    assert [row["name"] for row in shown["tables"]] == list(plan.names)
    assert [row["standard_error"] for row in shown["tables"]] == pytest.approx(plan.standard_errors(epsilon=1.0))
    assert (shown["unit"], shown["budget"], shown["accuracy"]) == ("epsilon", 1.0, 25)
    assert shown["advised"] == pytest.approx(batchdp.epsilon_for(plan, half_width=25))
    assert 0 < shown["lower_bound"] <= shown["total_squared_error"]
    gaussian = json.loads(succeeds("plan", *arguments, "--json", "--privacy", "zcdp", "--epsilon", 2))
    assert (gaussian["unit"], gaussian["budget"]) == ("rho", 2.0)


def test_queries_without_noise_are_valid_json(study: Path) -> None:
    Path("none.sql").write_text("SELECT COUNT(*) AS none FROM visits WHERE age > 3 AND age < 2;")
    shown = succeeds("plan", "none.sql", "-d", "domain.toml", "-o", "x.plan", "--json")
    assert json.loads(shown, parse_constant=pytest.fail)["advised"] is None


@pytest.mark.parametrize(("option", "choices"), [("--privacy", "pure zcdp auto"), ("--objective", "sum max")])
def test_a_wrong_choice_is_wrong_usage_and_names_the_choices(study: Path, option: str, choices: str) -> None:
    line = refused("plan", "queries.sql", "-d", "domain.toml", "-o", "x.plan", option, "odd", code=2)
    assert all(choice in line for choice in choices.split())
    assert option in line
    assert not Path("x.plan").exists()


def test_answers_come_first_then_what_matters_and_the_rest_when_asked_for(study: Path) -> None:
    Path("derived.sql").write_text(
        "SELECT COUNT(*) AS total FROM visits;\nSELECT clinic, AVG(age) AS mean FROM visits GROUP BY clinic;"
    )
    Path("years.toml").write_text(Path("domain.toml").read_text().replace("range = [0, 120]", "integers = [0, 120]"))
    given = ("plan", "derived.sql", "-d", "years.toml", "-o", "derived.plan", "--seconds", 1)
    shown, rest = succeeds(*given), succeeds(*given, "-v")
    assert "mean.numerator" not in shown
    assert "mean.numerator" in rest
    order = [shown.index(text) for text in ("  total ", "  mean ", "times smaller", "sentences", "Written to")]
    assert order == sorted(order)
    more = int(re.search(r"^(\d+) more sentences on what is counted: --verbose", shown, re.MULTILINE)[1])  # type: ignore[index]
    rules = batchdp.load_plan("derived.plan").counted.sentences(1_000_000)
    assert more == len(rules) - 2
    for number, rule in enumerate(rules):
        assert (rule in shown) == (number < 2)
        assert rule in rest
    answers = answered("one.csv", "--release-id", "one", plan="derived.plan")
    assert answers.index("private answers") < answers.index("is left") < answers.index(rules[0])
    assert rules[-1] not in answers
    assert rules[-1] in answered("one.csv", "--release-id", "one", "--verbose", plan="derived.plan")


# ── answer ──


@pytest.mark.parametrize("ending", [".csv", ".json", ".CSV"])
def test_answers_have_exactly_the_columns_that_are_promised(study: Path, ending: str) -> None:
    shown = answered(f"answers{ending}")
    release = batchdp.load_release("answers.release")
    expected = [[a.name, a.value, a.standard_error, a.low, a.high, False] for a in release.answers]
    text = Path(f"answers{ending}").read_text(encoding="utf-8")
    if ending == ".json":
        assert json.loads(text) == [dict(zip(COLUMNS, row, strict=True)) for row in expected]
    else:
        header, *rows = csv.reader(text.splitlines())
        assert header == COLUMNS
        assert [[name, *map(float, figures), said != "false"] for name, *figures, said in rows] == expected
    assert release.certificate.release_id in shown
    assert "6 private answers" in shown


def test_answers_to_a_release_alone(study: Path) -> None:
    before = set(contents(study))
    answered("answers.release")
    assert set(contents(study)) - before == {"answers.release"}


def test_answers_as_json_on_stdout(study: Path) -> None:
    shown = json.loads(answered("answers.csv", "--json", "--confidence", 0.9))
    release = batchdp.load_release("answers.release")
    assert shown["confidence"] == 0.9
    assert shown["remaining"] == 0.5
    assert shown["certificate"]["release_id"] == release.certificate.release_id
    assert [row["low"] for row in shown["answers"]] == [a.low for a in release.answers]


def test_the_same_release_id_gives_the_same_answers_and_costs_nothing(study: Path) -> None:
    answered("one.csv", "--release-id", "march")
    answered("two.csv", "--release-id", "march")
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()
    assert batchdp.Ledger.open("budget.db").spent == 0.5
    arguments = ("--table", "visits.csv", "--epsilon", 0.2, "--ledger", "budget.db", "-o", "x.csv")
    assert "choose a new release_id" in refused("answer", "pure.plan", *arguments, "--release-id", "march")
    assert batchdp.Ledger.open("budget.db").spent == 0.5


def test_gaussian_noise_is_charged_to_a_ledger_in_rho(study: Path) -> None:
    succeeds("budget", "rho.db", "--create", "--rho", 1)
    arguments = ("--table", "visits.csv", "--ledger", "rho.db", "-o", "answers.csv", "--yes")
    assert "ρ = 0.75 of 1 is left" in succeeds("answer", "zcdp.plan", *arguments, "--rho", 0.25)
    assert "ρ = 0.643 of 1 is left" in succeeds("answer", "pure.plan", *arguments, "--epsilon", 0.5)
    assert "ρ = 1 in all, 0.357 spent, 0.643 left." in succeeds("budget", "rho.db")


def test_a_full_disk_after_the_spend_leaves_answers_that_can_be_had_again(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import batchdp.cli.files as files

    def full(*_: object) -> None:
        raise batchdp.ReleaseError("cannot write answers.csv: No space left on device")

    arguments = (
        "pure.plan",
        "--table",
        "visits.csv",
        "--epsilon",
        0.5,
        "--ledger",
        "budget.db",
        "-o",
        "answers.csv",
        "--yes",
    )
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_answers", full)
        line = refused("answer", *arguments)
    assert "No space left" in line
    identity = line.partition("--release-id ")[2].split()[0]
    assert not Path("answers.csv").exists()
    succeeds("answer", *arguments, "--release-id", identity)
    ledger = batchdp.Ledger.open("budget.db")
    assert (ledger.spent, len(ledger.history())) == (0.5, 1)
    assert len(Path("answers.csv").read_text().splitlines()) == 7


def test_an_interrupted_count_says_that_the_budget_is_gone(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import batchdp.engines

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batchdp.engines, "prepare_count", lambda *_, **__: interrupted)
    arguments = (
        "pure.plan",
        "--table",
        "visits.csv",
        "--epsilon",
        0.5,
        "--ledger",
        "budget.db",
        "-o",
        "answers.csv",
        "--yes",
    )
    assert "stays spent" in refused("answer", *arguments, code=130)
    monkeypatch.setattr(batchdp.engines, "open_table", interrupted)
    assert "nothing was spent" in refused("answer", *arguments, code=130)
    assert batchdp.Ledger.open("budget.db").spent == 0.5


def test_formulas_stay_texts_in_spreadsheets(study: Path) -> None:
    Path("odd.sql").write_text('SELECT COUNT(*) AS "=1+1" FROM visits; SELECT COUNT(*) AS "a,""b" FROM visits;')
    succeeds("plan", "odd.sql", "-d", "domain.toml", "-o", "odd.plan", "--seconds", 1)
    answered("answers.csv", plan="odd.plan")
    assert [row[0] for row in csv.reader(Path("answers.csv").read_text().splitlines())] == ["name", "'=1+1", 'a,"b']


# ── report ──


def test_a_page_from_a_release_or_from_answers_with_one_beside(study: Path) -> None:
    answered("answers.csv")
    answered("answers.json", "--release-id", "again", budget=("--epsilon", 0.1))
    for source in ("answers.release", "answers.csv", "answers.json"):
        assert "open it in a browser" in succeeds("report", source, "-o", "page.html", "--ledger", "budget.db")
        assert "<html" in Path("page.html").read_text(encoding="utf-8")
    Path("answers.release").unlink()
    assert "answers.release beside" in refused("report", "answers.csv", "-o", "other.html")
    assert not Path("other.html").exists()


@pytest.mark.slow
def test_a_page_with_a_title_and_every_method(study: Path) -> None:
    answered("answers.csv")
    succeeds("report", "answers.csv", "-o", "page.html", "--title", "A <title>", "--plan", "pure.plan")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "A &lt;title&gt;" in page
    assert "hierarchical" in page


# ── budget ──


def test_a_budget_shows_what_was_spent_on_what(study: Path) -> None:
    answered("answers.csv", "--release-id", "first")
    shown = succeeds("budget", "budget.db")
    for text in ("first", "visits", "released", "ε = 1 in all, 0.5 spent, 0.5 left."):
        assert text in shown
    facts = json.loads(succeeds("budget", "budget.db", "--json"))
    assert (facts["unit"], facts["total"], facts["spent"], facts["remaining"]) == ("epsilon", 1.0, 0.5, 0.5)
    assert [entry["release_id"] for entry in facts["history"]] == ["first"]
    created = json.loads(succeeds("budget", "new.db", "--create", "--epsilon", 3, "--json"))
    assert (created["total"], created["history"]) == (3.0, [])


def test_a_budget_that_was_tampered_with_is_found_out(study: Path) -> None:
    import sqlite3

    answered("answers.csv")
    connection = sqlite3.connect("budget.db")
    table, column = connection.execute(
        "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE p.name = 'requested'"
    ).fetchone()
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(f"UPDATE {table} SET {column} = 0.001")
    connection.commit()
    connection.close()
    refused("budget", "budget.db")


# ── compare ──


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv"])
def test_compare_reads_every_form(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"w{ending}"
    if ending == ".npy":
        np.save(path, EXAMPLE_1)
    elif ending == ".npz":
        sparse.save_npz(path, sparse.csr_array(EXAMPLE_1))
    else:
        np.savetxt(path, EXAMPLE_1, delimiter=",")
    shown = json.loads(succeeds("compare", path, "--json"))
    assert (shown["m"], shown["n"], shown["rank"]) == (3, 4, 2)
    errors = {row["name"]: row["expected_squared_error"] for row in shown["methods"]}
    assert set(errors) == {"optimize", *LAPLACE}
    assert shown["gaussian"]["expected_squared_error"] > 0
    assert errors["optimize"] == pytest.approx(8)
    assert errors["noise-on-results"] == pytest.approx(24)
    assert all(row["residual"] <= 1e-9 for row in shown["methods"])
    assert shown["lower_bound"] <= min(errors.values())


@pytest.mark.slow
def test_compare_takes_a_plan(study: Path) -> None:
    shown = succeeds("compare", "pure.plan")
    for text in ("no Laplace strategy is below", "optimize", *LAPLACE):
        assert text in shown


@pytest.mark.parametrize("content", [b"", b"not a matrix", b"1,2\n3\n", b"nan,1\n", b"\x93NUMPY\x01\x00garbage"])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".txt", ".plan"])
def test_a_bad_matrix_is_one_clear_line(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"w{ending}"
    path.write_bytes(content)
    assert str(path) in refused("compare", path)


def test_a_matrix_whose_pointers_go_back_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    with path.open("wb") as file:
        np.savez(
            file,
            format=np.array(b"csr"),
            shape=np.array([2, 2]),
            data=np.ones(2),
            indices=np.array([0, 1]),
            indptr=np.array([0, 2, 0]),
        )
    assert "does not hold a matrix" in refused("compare", path)


def test_a_byte_order_mark_and_brackets_in_the_name_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "we[red]ird.csv"
    path.write_bytes(b"\xef\xbb\xbf1,0\n0,1\n")
    assert "we[red]ird.csv" in succeeds("compare", path).replace("\n", "")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "w.npy"
    np.save(path, np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    assert "does not hold a matrix" in refused("compare", path)


# ── audit ──


def test_audit_passes_and_says_what_it_checked(study: Path) -> None:
    findings = json.loads(succeeds("audit", "zcdp.plan", "--rho", 0.1, "--runs", 1000, "--json"))
    assert findings["passed"] is True
    assert len(findings["findings"]) > 5
    assert "sensitivity" in succeeds("audit", "pure.plan", "--runs", 1000)


def test_a_failed_audit_exits_with_1(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import batchdp.audits as audits

    finding = audits.Finding("noise scale", False, "0.5 of what is claimed")
    monkeypatch.setattr(batchdp, "audit", lambda *_, **__: audits.Audit((finding,)))
    done = run("audit", "pure.plan")
    assert done.code == 1
    assert "noise scale" in done.out


# ── Long tables ──


def test_the_log_says_what_was_tried_and_how_long_it_took_and_nothing_about_records(study: Path) -> None:
    Path("more.csv").write_text("clinic,age\n" + "north,30\n" * 7654 + "south,70\n" * 13)
    plan = ("plan", "queries.sql", "-d", "domain.toml", "-o", "x.plan", "--seconds", 1, "--no-cache")
    spend = ("answer", "x.plan", "-t", "more.csv", "-e", 0.1, "-l", "budget.db", "-o", "x.csv", "-y")
    planned, answered = (run(*given, "--log-level", "debug") for given in (plan, spend))
    assert (planned.code, answered.code) == (0, 0)
    entry = re.compile(r" *\d+\.\d{3} s  (.+): \d+\.\d{3} s( in all)?")
    for done, expected in (
        (planned, ("read the queries", "searched in p-identity")),
        (answered, ("counting in more.csv",)),
    ):
        entries = [entry.fullmatch(line) for line in done.err.splitlines()]
        said = [one[1] for one in entries if one is not None]
        assert len(said) == len(entries)
        assert set(expected) <= set(said)
        assert [one is not None and bool(one[2]) for one in entries] == [False] * (len(entries) - 1) + [True]
    other = run(*(word if word != "more.csv" else "visits.csv" for word in spend), "--log-level", "debug")
    left_out = [re.sub(r"\d+\.\d{3} s|visits|more", "", done.err) for done in (answered, other)]
    assert sorted(set(left_out[0].split())) == sorted(set(left_out[1].split()))
    info = run(*plan, "--log-level", "info")
    assert len(info.err.splitlines()) == 1
    assert succeeds(*plan)


@pytest.mark.slow
def test_a_huge_table_is_cut_on_the_screen_and_whole_in_files(study: Path) -> None:
    values = ", ".join(f'"v{i}"' for i in range(250))
    Path("wide.toml").write_text(f'table = "visits"\n[columns.clinic]\nvalues = [{values}]\n')
    Path("wide.sql").write_text("SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;")
    shown = succeeds("plan", "wide.sql", "-d", "wide.toml", "-o", "wide.plan", "--seconds", 1)
    assert "visits by clinic (250)" in shown
    assert "--all shows every one" in shown
    assert len(shown.splitlines()) < 60
    answered("answers.csv", plan="wide.plan")
    assert len(Path("answers.csv").read_text().splitlines()) == 251
