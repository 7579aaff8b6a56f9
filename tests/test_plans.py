"""Plans: made without data, saved and remembered without trust; and `answer(plan, table)` from a file to the ledger."""

from __future__ import annotations

import inspect
import json
import logging
import re
import shutil
import subprocess
import sys
import time
import traceback
from contextlib import ExitStack
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from batchdp import (
    BatchDPError,
    BudgetError,
    DomainError,
    Ledger,
    Plan,
    PlanError,
    PrivacyParameterError,
    QueryError,
    Release,
    ReleaseError,
    StrategyError,
    TableError,
    answer,
    archive,
    audit,
    epsilon_for,
    load_domain,
    load_plan,
    optimize,
    plan,
)
from batchdp.cli import plan as plan_command
from batchdp.domain import as_domain
from batchdp.engines import open_table
from batchdp.engines.duck import DuckEngine
from batchdp.linalg.matrix import dense
from batchdp.mechanism.prepare import CAPS
from batchdp.optimizer.options import OBJECTIVES, PRIVACIES
from batchdp.plans import file as plan_files
from batchdp.plans import making, strategy_io
from batchdp.plans.options import OF_PLANS, Options, PlanObjective
from batchdp.plans.planned import settle
from batchdp.release import answering
from batchdp.release.counts import reading
from batchdp.sql import script
from mechanisms import released
from sql_truth import DOMAIN, battery, connection, records

DESCRIBED: dict[str, Any] = {
    "table": "people",
    "privacy": {"max_rows": 10**6},
    "columns": {
        "state": {"values": ["NY", "NJ", "CA"]},
        "age": {"range": [0, 120], "bins": [0, 18, 40, 65]},
        "children": {"integers": [0, 5]},
    },
}
SQL = """
    SELECT COUNT(*) AS everyone, SUM(children) AS children FROM people;
    SELECT state, COUNT(*) AS by_state FROM people GROUP BY state;
    SELECT age, COUNT(*) AS by_age FROM people WHERE state = 'NY' GROUP BY age
"""
CHOICES = "SELECT SUM(CASE state WHEN 'NY' THEN 1 WHEN 'NJ' THEN 2 WHEN 'CA' THEN 3 END) AS s FROM people"
FAST: dict[str, Any] = {"seconds": 0.5}
UNITS = DESCRIBED | {"privacy": {"max_rows": 10**6, "unit": "age"}}


def people(rows: int = 500, seed: int = 0, **columns: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    made = {
        "state": rng.choice(["NY", "NJ", "CA", "TX"], rows),
        "age": rng.uniform(-5, 130, rows),
        "children": rng.integers(0, 6, rows),
    }
    return pa.table(made | columns)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=1000)


@cache
def planned(sql: str = SQL, protected: str = "", **options: Any) -> Any:
    """A plan under the domain's privacy settings, in JSON; made once, as it is frozen."""
    described = DESCRIBED | ({"privacy": json.loads(protected)} if protected else {})
    found: Plan = plan(sql, described, cache=False, **FAST | options)
    return found


def without_noise(given: Plan, table: Any, books: Ledger) -> Release:
    """What `answer` does, with a draw that adds nothing."""
    strategy, relation, cap = settle(given, None, None, None)
    with ExitStack() as opened:
        counts = reading(given.batch, given, opened, table, None)
        amount = 0.01 if given.privacy == "zcdp" else 0.1
        found: Release = released(strategy, counts, books, amount, label="people", neighbours=relation, max_rows=cap)
        return found


# ── making ──


def test_a_plan_knows_its_queries() -> None:
    made = planned()
    assert made.names[:2] == ("everyone", "children")
    assert made.workload.queries == 2 + 3 + 4
    assert made.privacy == "pure"
    assert made.lattice.largest_total == 10**6
    assert re.fullmatch(r"Plan\(9 answers over 'people', .+, pure\)", repr(made))
    assert made.standard_errors(epsilon=1.0) == pytest.approx(np.sqrt(made.strategy.per_query_variance(epsilon=1.0)))


def test_planning_takes_no_table() -> None:
    assert not {"table", "data", "counts", "rows"} & set(inspect.signature(plan).parameters)


def test_planning_imports_nothing_that_reads_tables() -> None:
    script = (
        "import sys, batchdp.plans as p\n"
        f"p.plan({SQL!r}, {DESCRIBED!r}, seconds=0.5, cache=False)\n"
        "print([name for name in ('duckdb', 'ibis', 'pandas', 'pyarrow', 'sqlite3') if name in sys.modules])"
    )
    # The package's own __init__ imports everything, so only what planning itself pulls in is looked at.
    bare = "import sys, types; sys.modules['batchdp'] = m = types.ModuleType('batchdp'); m.__path__ = [{!r}]\n"
    package = str(Path(making.__file__).parents[1])
    ran = subprocess.run([sys.executable, "-c", bare.format(package) + script], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_the_import_rule_names_plans_and_cells() -> None:
    rules = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    forbidden = rules.partition("What chooses a strategy cannot see data")[2].partition("[[")[0]
    assert all(
        f'"batchdp.{name}"' in forbidden for name in ("workloads", "plans", "sql", "domain", "engines", "ledger")
    )


def test_sql_and_domain_are_taken_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    toml = '[columns.state]\nvalues = ["NY", "NJ", "CA"]\n[columns.age]\nrange = [0, 120]\nbins = [0, 18, 40, 65]\n'
    toml = f'table = "people"\nprivacy.max_rows = 1_000_000\n{toml}[columns.children]\nintegers = [0, 5]\n'
    (tmp_path / "d.toml").write_text(toml)
    W = dense(planned().workload.matrix)
    for sql in (SQL, tmp_path / "q.sql", str(tmp_path / "q.sql")):
        domains: list[Any] = [DESCRIBED, toml, tmp_path / "d.toml", str(tmp_path / "d.toml")]
        for described in (*domains, load_domain(tmp_path / "d.toml")):
            made = plan(sql, described, **FAST)
            assert np.array_equal(dense(made.workload.matrix), W)
            assert (made.sql, made.domain) == (SQL, as_domain(DESCRIBED))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"sql": 3}, QueryError, "int"),
        ({"sql": None}, QueryError, "both left out"),
        ({"sql": "missing.sql"}, QueryError, "cannot read"),
        ({"sql": ""}, QueryError, "SELECT"),
        ({"domain": 3}, DomainError, "int"),
        ({"domain": None}, DomainError, "domain is left out"),
        ({"domain": "missing.toml"}, DomainError, "cannot read"),
        ({"domain": {}}, DomainError, "table"),
        ({"privacy": "epsilon"}, StrategyError, "privacy="),
        ({"privacy": ["pure"]}, StrategyError, "privacy="),
        ({"privacy": "auto"}, StrategyError, "delta"),
        ({"objective": "mean"}, StrategyError, "objective="),
        ({"seconds": 0}, StrategyError, "seconds="),
        ({"seconds": float("nan")}, StrategyError, "seconds="),
        ({"seconds": "5"}, StrategyError, "seconds="),
        ({"seed": -1}, StrategyError, "seed="),
        ({"seed": 1.5}, StrategyError, "seed="),
        ({"seed": object()}, StrategyError, "seed="),
        ({"epsilon": 0}, PrivacyParameterError, "epsilon="),
        ({"delta": 1}, PrivacyParameterError, "delta="),
        ({"delta": float("inf")}, PrivacyParameterError, "delta="),
        ({"max_cells": 0}, StrategyError, "max_cells="),
        ({"max_cells": True}, StrategyError, "max_cells="),
        ({"max_cells": "many"}, StrategyError, "max_cells="),
        ({"max_cells": 2, "sql": CHOICES}, QueryError, "raise max_cells"),
    ],
)
@pytest.mark.parametrize("cache", [True, False])
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[BatchDPError], words: str, cache: bool, cache_folder: Path
) -> None:
    given: dict[str, Any] = {"sql": SQL, "domain": DESCRIBED, "cache": cache, **arguments}
    with pytest.raises(error, match=words):
        plan(**given)
    assert not cache_folder.exists()


def test_numbers_of_numpy_are_numbers() -> None:
    options: dict[str, Any] = {"seconds": np.float32(0.5), "seed": np.int64(3), "max_cells": np.int16(500)}
    assert plan(SQL, DESCRIBED, **options).options == planned(seed=3, max_cells=500).options


def test_the_options_are_spelled_alike_everywhere() -> None:
    spelled = {one.name: one.default for one in fields(Options) if one.name not in OF_PLANS[1:]}
    arguments = inspect.signature(plan).parameters
    assert {name: arguments[name].default for name in spelled} == spelled
    searched = inspect.signature(optimize).parameters
    assert {name: searched[name].default for name in Options().of_search()} == Options().of_search()
    told = inspect.signature(plan_command.command).parameters
    of_plans = {**Options().of_search(), "objective": "fair"}
    limits = of_plans.pop("limits")
    assert (told["shape_rank"].default, told["draw_seconds"].default) == (limits.rank, limits.seconds)
    assert {name: told[name].default for name in spelled if name in told} == of_plans
    assert tuple(plan_command.PrivacyChoice) == PRIVACIES
    assert tuple(plan_command.ObjectiveChoice) == get_args(PlanObjective) == ("fair", *OBJECTIVES)


BAD_SQL = {
    "unknown column": "SELECT COUNT(*) FROM people WHERE salary > 3",
    "unknown table": "SELECT COUNT(*) FROM secrets",
    "value outside": "SELECT COUNT(*) FROM people WHERE state = 'ZZ'",
    "number outside": "SELECT COUNT(*) FROM people WHERE age > 1e9",
    "quotes": "SELECT COUNT(*) FROM people WHERE state = 'NY",
    "double quotes": 'SELECT COUNT(*) FROM people WHERE "state = 1',
    "hidden statement": "SELECT COUNT(*) AS a FROM people; DELETE FROM people; SELECT COUNT(*) AS b FROM people",
    "behind a comment": "SELECT COUNT(*) FROM people --\n; DROP TABLE people",
    "ddl": "CREATE TABLE x AS SELECT COUNT(*) FROM people",
    "copy": "COPY people TO 'out.csv'",
    "attach": "ATTACH 'x.db'",
    "pragma": "PRAGMA database_list",
    "subquery": "SELECT COUNT(*) FROM (SELECT state FROM people GROUP BY state)",
    "cte": "WITH t AS (SELECT COUNT(*) AS n FROM people) SELECT COUNT(*) FROM t",
    "in subquery": "SELECT COUNT(*) FROM people WHERE state IN (SELECT state FROM people)",
    "join": "SELECT COUNT(*) FROM people JOIN other ON 1 = 1",
    "comma join": "SELECT COUNT(*) FROM people, other",
    "union": "SELECT COUNT(*) FROM people UNION SELECT COUNT(*) FROM people",
    "function": "SELECT COUNT(*) FROM read_csv('x')",
    "rows": "SELECT * FROM people",
    "average": "SELECT AVG(age) FROM people",
    "distinct": "SELECT COUNT(DISTINCT state) FROM people",
    "nan": "SELECT COUNT(*) FROM people WHERE age > NaN",
    "infinite": "SELECT COUNT(*) FROM people WHERE age > 1e999",
    "huge factor": "SELECT 1e200 * COUNT(*) FROM people",
    "same name": "SELECT COUNT(*) AS a FROM people; SELECT COUNT(age) AS a FROM people",
    "same name in capitals": "SELECT COUNT(*) AS a, COUNT(age) AS A FROM people",
    "look-alike name": "SELECT COUNT(*) AS pay, COUNT(age) AS p\u0430y FROM people",
    "look-alike column": "SELECT COUNT(*) FROM people WHERE st\u0430te = 'NY'",
    "invisible": "SELECT COUNT(*) FROM people WHERE state\u200b = 'NY'",
    "only comments": "-- nothing\n/* at all */ ;;",
    "blank": " \n\t",
}


@pytest.mark.parametrize("name", BAD_SQL)
def test_bad_queries_end_in_one_clear_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.sql"
    path.write_text(BAD_SQL[name])
    for sql in (BAD_SQL[name], path):
        with pytest.raises(BatchDPError) as refused:
            plan(sql, DESCRIBED, **FAST)
        assert len(str(refused.value).splitlines()) == 1
        assert len(str(refused.value)) < 500
    assert [one.name for one in tmp_path.iterdir()] == ["bad.sql"]


BAD_DOMAINS: dict[str, Any] = {
    "nan": {"columns": {"age": {"range": [0, float("nan")]}}},
    "infinite": {"columns": {"age": {"range": [0, float("inf")]}}},
    "turned": {"columns": {"age": {"range": [3, 1]}}},
    "look-alikes": {"columns": {"age": {"range": [0, 1]}, "\u0430ge": {"range": [0, 1]}}},
    "two in capitals": {"columns": {"age": {"range": [0, 1]}, "AGE": {"range": [0, 1]}}},
    "no columns": {"columns": {}},
    "rows without unit": {"privacy": {"rows_per_unit": 3}, "columns": {"age": {"range": [0, 1]}}},
    "no rows": {"privacy": {"max_rows": 0}, "columns": {"age": {"range": [0, 1]}}},
    "neighbours": {"privacy": {"neighbours": "swap"}, "columns": {"age": {"range": [0, 1]}}},
}


@pytest.mark.parametrize("name", BAD_DOMAINS)
def test_bad_domains_end_in_one_clear_error(name: str) -> None:
    with pytest.raises(DomainError) as refused:
        plan("SELECT COUNT(*) FROM t", {"table": "t", **BAD_DOMAINS[name]})
    assert len(str(refused.value).splitlines()) == 1


def test_ten_megabytes_of_queries_are_refused_at_once(tmp_path: Path) -> None:
    sql = "SELECT COUNT(*) AS n FROM people;\n" * 300_000
    (tmp_path / "large.sql").write_text(sql)
    for given in (sql, tmp_path / "large.sql"):
        started = time.process_time()
        with pytest.raises(QueryError, match="split it into several batches"):
            plan(given, DESCRIBED)
        assert time.process_time() - started < 2


def test_queries_that_can_never_be_true_are_answered_with_nothing(ledger: Ledger) -> None:
    made = plan("SELECT COUNT(*) AS never FROM people WHERE FALSE; SELECT COUNT(*) AS n FROM people", DESCRIBED, **FAST)
    assert without_noise(made, people(), ledger).values.tolist() == [0, pytest.approx(500)]
    nothing = plan("SELECT COUNT(*) AS never FROM people WHERE FALSE", DESCRIBED)
    assert answer(nothing, people(), epsilon=1.0, ledger=ledger).values.tolist() == [0]


# ── files ──


def same(one: Any, other: Any) -> bool:
    a, b = one.strategy, other.strategy
    described = all(getattr(a, name) == getattr(b, name) for name in (*strategy_io.OF_PAIR, "sensitivity", "residual"))
    return (
        described
        and (one.sql, one.domain, one.options, one.names) == (other.sql, other.domain, other.options, other.names)
        and one.workload.blocks == other.workload.blocks
        and one.batch.cells.atoms == other.batch.cells.atoms
        and np.array_equal(dense(one.workload.matrix), dense(other.workload.matrix))
        and np.array_equal(a.measure, b.measure)
        and np.array_equal(a.reconstruct, b.reconstruct)
        and isinstance(a.measurement, np.ndarray) == isinstance(b.measurement, np.ndarray)
    )


@pytest.mark.parametrize(
    "options", [{}, {"privacy": "zcdp"}, {"objective": "max"}, {"max_cells": 12}, {"privacy": "auto", "delta": 1e-6}]
)
def test_a_plan_that_is_saved_is_loaded_as_it_was(options: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    made = plan(SQL, DESCRIBED, cache=False, **FAST | options)
    assert (len(made.workload.blocks) > 1) == ("max_cells" in options)
    made.save(tmp_path / "p.plan")
    loaded = load_plan(tmp_path / "p.plan")
    assert same(made, loaded)
    table = people()
    books = Ledger.create(tmp_path / "rho.db", rho=100)
    assert np.array_equal(without_noise(made, table, books).values, without_noise(loaded, table, books).values)


def test_every_kind_of_column_survives_a_file(tmp_path: Path) -> None:
    sql = "; ".join(one.replace(" AS n ", f" AS n{i} ") for i, one in enumerate(battery()[::9]) if " AS n " in one)
    made = plan(sql, DOMAIN.replace("[columns.floor]", '[columns.floor]\nother = "drop"'), cache=False, **FAST)
    made.save(tmp_path / "p.plan")
    assert same(made, load_plan(tmp_path / "p.plan"))


def parts_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    header, arrays = archive.load(path, plan_files.FORMAT, PlanError, "plan")
    return header, arrays


def forged(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """By somebody who computes the digest anew."""
    archive.save(path, header, arrays, PlanError)
    return path


@pytest.mark.parametrize("matrix", ["L", "B"])
@pytest.mark.parametrize("part", ["data", "indices", "indptr", "shape"])
def test_a_changed_matrix_is_refused_even_under_a_new_digest(matrix: str, part: str, tmp_path: Path) -> None:
    name = f"{matrix}_{part}"
    planned().save(tmp_path / "p")
    header, arrays = parts_of(tmp_path / "p")
    changes: list[Any] = [arrays[name] * 2, arrays[name][:-1], arrays[name] + 1, arrays[name].astype(complex) * 1j]
    changes += [np.array(["x"] * len(arrays[name])), np.zeros((0,)), np.array(3.0)]
    if name.endswith("data"):
        changes += [np.full_like(arrays[name], value) for value in (np.nan, np.inf, 0.0, 1e308)]
        changes.append(arrays[name] * (1 + 1e-6))
    for changed in changes:
        with pytest.raises(PlanError):
            load_plan(forged(tmp_path / "forged", header, {**arrays, name: changed}))
    with pytest.raises(PlanError):
        load_plan(forged(tmp_path / "forged", header, {key: a for key, a in arrays.items() if key != name}))


@pytest.mark.parametrize(
    "change",
    [
        {"sql": "SELECT COUNT(*) FROM people"},
        {"sql": "DROP TABLE people"},
        {"sql": 3},
        {"domain": {"table": "people"}},
        {"domain": "people"},
        {"domain": None},
        {"options": {"max_cells": 10**9, "shell": "rm"}},
        {"options": {"max_cells": "many"}},
        {"options": None},
        {"blocks": []},
        {"blocks": [[0]]},
        {"blocks": [[], list(range(9))]},
        {"blocks": [[*range(8), "x"]]},
        {"blocks": [[0], [*range(1, 9)]]},
        {"blocks": 3},
        {"strategy": {}},
        {"strategy": None},
        {"strategy": {"method": "own", "privacy": "none", "rounds": 0, "status": "", "reason": ""}},
    ],
)
def test_a_changed_header_is_refused_even_under_a_new_digest(change: dict[str, Any], tmp_path: Path) -> None:
    planned().save(tmp_path / "p")
    header, arrays = parts_of(tmp_path / "p")
    with pytest.raises(PlanError, match="forged"):
        load_plan(forged(tmp_path / "forged", header | change, arrays))


def test_a_relaxation_in_a_file_does_not_let_wrong_answers_in(tmp_path: Path) -> None:
    planned().save(tmp_path / "p")
    header, arrays = parts_of(tmp_path / "p")
    relaxed = header | {"strategy": header["strategy"] | {"relaxation": 1e9}}
    with pytest.raises(PlanError, match="misses the workload"):
        load_plan(forged(tmp_path / "forged", relaxed, arrays | {"B_data": arrays["B_data"] * 1.5}))


def test_no_sensitivity_is_stored_and_one_that_is_added_is_not_believed(tmp_path: Path) -> None:
    planned().save(tmp_path / "p")
    header, arrays = parts_of(tmp_path / "p")
    assert "sensitivity" not in json.dumps(header)
    assert {name.partition("_")[0] for name in arrays} == {"L", "B"}
    small = {"sensitivity": 1e-9, "residual": 0.0}
    bold = header | small | {"strategy": header["strategy"] | small}
    # Both scaled: the same answers, ten times the sensitivity.
    scaled = arrays | {"L_data": arrays["L_data"] * 10, "B_data": arrays["B_data"] / 10, "sensitivity": np.array(1e-9)}
    with pytest.raises(PlanError, match="holds 'sensitivity', which this version does not know"):
        load_plan(forged(tmp_path / "forged", bold, scaled))
    del scaled["sensitivity"]
    loaded = load_plan(forged(tmp_path / "forged", header, scaled))
    assert loaded.strategy.sensitivity == pytest.approx(10 * planned().strategy.sensitivity)


def test_a_plan_of_another_format_is_named(tmp_path: Path, ledger: Ledger) -> None:
    answer(planned(), people(), epsilon=1.0, ledger=ledger).save(tmp_path / "release.npz")
    with pytest.raises(PlanError, match=r"is of format 'batchdp-release-0\.3'"):
        load_plan(tmp_path / "release.npz")
    planned().save(tmp_path / "p")
    header, arrays = parts_of(tmp_path / "p")
    with pytest.raises(PlanError, match="is of format 'batchdp-plan-0'"):
        load_plan(forged(tmp_path / "old", header | {"format": "batchdp-plan-0"}, arrays))


@pytest.mark.parametrize("path", ["missing.plan", ".", "text.plan"])
def test_what_is_no_plan_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "text.plan").write_text(SQL)
    with pytest.raises(PlanError, match=re.escape(str(tmp_path / path))):
        load_plan(tmp_path / path)


# ── the cache ──


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workloads that were optimised."""
    seen: list[Any] = []

    def watched(workload: Any, *args: Any, **options: Any) -> Any:
        seen.append(workload)
        return optimize(workload, *args, **options)

    monkeypatch.setattr(making, "optimize", watched)
    return seen


def test_the_same_batch_is_planned_once(searches: list[Any], cache_folder: Path) -> None:
    first = plan(SQL, DESCRIBED, **FAST)
    started = time.process_time()
    again = plan(SQL, as_domain(DESCRIBED), **FAST)
    assert time.process_time() - started < 1
    assert same(first, again)
    assert len(searches) == 1
    assert len(list(cache_folder.iterdir())) == 1


def test_a_remembered_batch_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan(SQL, DESCRIBED, **FAST)
    parsed = []

    for module, name in ((making, "read_selections"), (plan_files, "read_selections")):
        really_read = getattr(script, name)

        def read(text: str, *given: Any, really_read: Any = really_read, **options: Any) -> Any:
            parsed.append(text)
            return really_read(text, *given, **options)

        monkeypatch.setattr(module, name, read)
    plan(SQL, DESCRIBED, **FAST)
    assert parsed == [SQL]


def test_other_queries_domains_and_options_are_remembered_apart(searches: list[Any], cache_folder: Path) -> None:
    wider = DESCRIBED | {"privacy": {"max_rows": 10**7}}
    variants: list[tuple[str, Any, dict[str, Any]]] = [
        (SQL, DESCRIBED, {}),
        (SQL.replace("'NY'", "'NJ'"), DESCRIBED, {}),
        (SQL, wider, {}),
        (SQL, DESCRIBED, {"privacy": "zcdp"}),
        (SQL, DESCRIBED, {"seed": 1}),
        (SQL, DESCRIBED, {"seconds": 0.6}),
        (SQL, DESCRIBED, {"max_cells": 12}),
    ]
    for count, (sql, described, options) in enumerate(variants, 1):
        plan(sql, described, **FAST | options)
        assert len(searches) == count
        assert len(list(cache_folder.iterdir())) == count


def test_a_damaged_entry_is_planned_again_and_mended(searches: list[Any], cache_folder: Path) -> None:
    first = plan(SQL, DESCRIBED, **FAST)
    (entry,) = cache_folder.iterdir()
    whole = entry.read_bytes()
    for damage in (b"", whole[:-50], bytes(len(whole)), whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :]):
        entry.write_bytes(damage)
        searches.clear()
        assert same(plan(SQL, DESCRIBED, **FAST), first)
        assert len(searches) == 1
        assert same(load_plan(entry), first)


def test_an_entry_that_holds_another_plan_is_not_used(searches: list[Any], cache_folder: Path) -> None:
    other = SQL.replace("state = 'NY'", "state = 'NJ'")
    plan(SQL, DESCRIBED, **FAST)
    (entry,) = cache_folder.iterdir()
    planned(other).save(entry)
    searches.clear()
    assert plan(SQL, DESCRIBED, **FAST).sql == SQL
    assert len(searches) == 1


@pytest.mark.parametrize("kind", ["file", "below a file", "folder in its place"])
def test_a_cache_that_cannot_be_written_is_no_error(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    if kind == "folder in its place":
        plan(SQL, DESCRIBED, **FAST)
        (entry,) = cache_folder.iterdir()
        entry.unlink()
        entry.mkdir()
    else:
        folder = tmp_path / "file" / ("sub" if kind == "below a file" else "")
        monkeypatch.setenv("BATCHDP_CACHE", str(folder))
    assert same(plan(SQL, DESCRIBED, **FAST), planned())


def test_a_user_without_a_home_gets_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHDP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")

    def nobody(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    assert same(plan(SQL, DESCRIBED, **FAST), planned())
    assert list(tmp_path.iterdir()) == []  # a folder called ~ least of all
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    plan(SQL, DESCRIBED, **FAST)
    assert len(list((tmp_path / "xdg" / "batchdp").iterdir())) == 1


def test_without_a_cache_nothing_is_written(searches: list[Any], cache_folder: Path) -> None:
    for _ in range(2):
        plan(SQL, DESCRIBED, cache=False, **FAST)
    assert len(searches) == 2
    assert not cache_folder.exists()


# ── answers ──


@pytest.mark.slow
def test_the_battery_is_answered_as_duckdb_answers_it(ledger: Ledger) -> None:
    named = [one.replace(" AS n ", f" AS n{i} ") for i, one in enumerate(battery()) if " AS n " in one]
    table = records(400, 5)
    engine = connection(table)
    expected = [float((engine.execute(one).fetchone() or (0,))[0] or 0) for one in named]
    made = plan(";".join(named), f"privacy.max_rows = 1_000_000\n{DOMAIN}", seconds=2, max_cells=500)
    assert len(made.workload.blocks) > 1
    done = without_noise(made, table, ledger)
    assert len(done.names) >= 150
    assert done.values == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"max_cells": 12}, {"privacy": "zcdp"}, {"objective": "max"}])
def test_answers_without_noise_are_the_truth(options: dict[str, Any], tmp_path: Path) -> None:
    table = people()
    made = planned(**options)
    done = without_noise(made, table, Ledger.create(tmp_path / "l.db", rho=1000))
    state, age, children = (table.column(name).to_numpy(zero_copy_only=False) for name in ("state", "age", "children"))
    edges = [(0, 18), (18, 40), (40, 65), (65, 120.0000001)]
    truth = [len(state), children.sum(), *((state == one).sum() for one in ("NY", "NJ", "CA"))]
    truth += [((state == "NY") & (age >= low) & (age < high)).sum() for low, high in edges]
    assert done.values == pytest.approx([float(value) for value in truth], abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"max_cells": 12}])
def test_answers_with_noise_are_near_the_truth(options: dict[str, Any], ledger: Ledger) -> None:
    made = planned(**options)
    done = answer(made, people(), epsilon=2.0, ledger=ledger)
    truth = without_noise(made, people(), ledger).values
    assert np.all(np.abs(done.values - truth) < 25 * made.standard_errors(epsilon=2.0))
    assert done.standard_errors == pytest.approx(made.standard_errors(epsilon=2.0), rel=1e-3)
    assert done.certificate.largest_total == 10**6
    assert done.certificate.table == "people"
    assert audit(made, epsilon=2.0, runs=2_000).passed


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The queries that an engine was asked."""
    seen: list[Any] = []
    real = DuckEngine.batches

    def batches(self: DuckEngine, query: Any) -> Any:
        seen.append(query)
        return real(self, query)

    monkeypatch.setattr(DuckEngine, "batches", batches)
    return seen


def test_a_table_that_does_not_fit_costs_nothing(ledger: Ledger, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(people().drop_columns(["age"]), tmp_path / "narrow.parquet")
    (tmp_path / "text.txt").write_text("state,age,children\n")
    tables: list[tuple[Any, str]] = [
        (people().drop_columns(["age"]), "age"),
        (tmp_path / "narrow.parquet", "age"),
        (people(age=[[30]] * 500), "age"),
        (people(state=[{"a": 1}] * 500), "state"),
        (tmp_path / "missing.csv", "missing.csv"),
        (tmp_path / "text.txt", "text.txt"),
        ("mysql://somewhere", "mysql"),
        (3, "int"),
        (None, "NoneType"),
        (np.zeros(3, int), "ndarray"),
    ]
    for table, words in tables:
        with pytest.raises(TableError, match=words):
            answer(planned(), table, epsilon=1.0, ledger=ledger)
    assert ledger.spent == 0
    assert ledger.history() == ()


def test_a_budget_that_is_not_there_leaves_the_table_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books = Ledger.create(tmp_path / "small.db", epsilon=1)
    seen = rows_read(monkeypatch)
    with pytest.raises(BudgetError, match="left"):
        answer(planned(), people(), epsilon=1.5, ledger=books)
    for bad in ({}, {"rho": 1.0}, {"epsilon": 0.0}, {"epsilon": float("nan")}, {"epsilon": 1e9}):
        arguments: dict[str, Any] = bad
        with pytest.raises(BatchDPError):
            answer(planned(), people(), ledger=books, **arguments)
    assert seen == []
    assert books.spent == 0
    answer(planned(), people(), epsilon=1.0, ledger=books)
    assert len(seen) == 1


@pytest.mark.parametrize("arguments", [{"neighbours": "replace"}, {"rows_per_unit": 2}, {"max_rows": 10}])
def test_what_stands_in_the_domain_is_not_given_again(arguments: dict[str, Any], ledger: Ledger) -> None:
    with pytest.raises(PrivacyParameterError, match="domain"):
        answer(planned(), people(), epsilon=1.0, ledger=ledger, **arguments)
    with pytest.raises(PrivacyParameterError, match="domain"):
        epsilon_for(planned(), standard_error=3.0, **arguments)
    assert ledger.spent == 0


def test_an_engine_that_fails_while_counting_costs_once_and_shows_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: DuckEngine, query: Any) -> Any:
        yield from ()
        raise RuntimeError("Could not convert 'Jane Doe, HIV' to INT64")

    monkeypatch.setattr(DuckEngine, "batches", failing)
    with pytest.raises(TableError, match=r"RuntimeError.*'friday'.*stays spent") as failed:
        answer(planned(), people(), epsilon=1.0, ledger=ledger, release_id="friday")
    assert "Jane" not in "".join(traceback.format_exception(failed.value))
    assert failed.value.__context__ is None
    assert ledger.spent == 1
    monkeypatch.undo()
    with pytest.raises(BudgetError, match="friday"):
        answer(planned(), people(), epsilon=1.0, ledger=ledger, release_id="friday")
    assert ledger.spent == 1


def test_a_repeated_id_gives_the_stored_answers_without_reading_the_table(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = rows_read(monkeypatch)
    first = answer(planned(), people(), epsilon=1.0, ledger=ledger, release_id="monday")
    again = answer(planned(), people(seed=9), epsilon=1.0, ledger=ledger, release_id="monday")
    assert len(seen) == 1
    assert np.array_equal(first.values, again.values)
    assert ledger.spent == 1


@pytest.mark.parametrize(
    "other",
    [
        ("SELECT COUNT(*) AS n FROM people WHERE state = 'NJ'", DESCRIBED),
        ("SELECT COUNT(*) AS n FROM people WHERE age < 18", DESCRIBED),
        ("SELECT COUNT(*) AS n FROM people WHERE state = 'NY'", UNITS),
    ],
)
def test_an_id_that_was_used_for_other_queries_is_refused(other: tuple[str, Any], ledger: Ledger) -> None:
    """All have the same matrices and names: what their cells stand for tells them apart."""
    first = plan("SELECT COUNT(*) AS n FROM people WHERE state = 'NY'", DESCRIBED)
    answer(first, people(), epsilon=1.0, ledger=ledger, release_id="monday")
    with pytest.raises(BudgetError, match="monday"):
        answer(plan(*other), people(), epsilon=1.0, ledger=ledger, release_id="monday")
    assert ledger.spent == 1


@pytest.mark.parametrize("rows_per_unit", [1, 3])
@pytest.mark.parametrize("max_cells", [8192, 12])
def test_a_person_with_ten_thousand_rows_moves_answers_as_little_as_any_other(
    rows_per_unit: int, max_cells: int, ledger: Ledger
) -> None:
    made = planned(protected=json.dumps({"unit": "id", "rows_per_unit": rows_per_unit}), max_cells=max_cells)
    quiet = people(300, id=list(range(300)))
    heavy = people(10_000, seed=1, id=[-1] * 10_000)
    here = without_noise(made, quiet, ledger).values
    there = without_noise(made, pa.concat_tables([quiet, heavy.cast(quiet.schema)]), ledger).values
    most = np.abs(dense(made.workload.matrix)).max(axis=1)
    assert np.all(np.abs(there - here) <= rows_per_unit * most + 1e-6)
    assert there[0] - here[0] == pytest.approx(rows_per_unit)


def test_replacing_doubles_the_sensitivity_and_rows_multiply_it(tmp_path: Path) -> None:
    def used(**privacy: Any) -> tuple[int, float]:
        made = planned(protected=json.dumps({"max_rows": 10**6, **privacy}))
        ledger = Ledger.create(tmp_path / f"{len(list(tmp_path.iterdir()))}.db", epsilon=1.0)
        done = answer(made, people(id=list(range(500))), epsilon=1.0, ledger=ledger)
        assert made.standard_errors(epsilon=1.0) == pytest.approx(done.standard_errors, rel=1e-3)
        return done.certificate.groups[0].moved, made.factor

    one, _ = used()
    assert used(neighbours="replace") == (2 * one, 2)
    assert used(unit="id", rows_per_unit=5) == (5 * one, 5)
    assert used(unit="id", rows_per_unit=5, neighbours="replace") == (10 * one, 10)


def test_the_cap_comes_from_the_domain(ledger: Ledger) -> None:
    for cap in (1000, 10**7):
        made = planned(protected=json.dumps({"max_rows": cap}))
        assert answer(made, people(), epsilon=1.0, ledger=ledger).certificate.largest_total == cap
    free = planned(protected="{}")
    assert free.lattice.largest_total == CAPS[0]
    assert answer(free, people(), epsilon=1.0, ledger=ledger).certificate.largest_total in CAPS


def test_counting_reports_progress(ledger: Ledger) -> None:
    seen: list[tuple[float, str]] = []
    answer(planned(), people(), epsilon=1.0, ledger=ledger, progress=lambda share, what: seen.append((share, what)))
    assert seen[-1][0] == 1
    planning: list[tuple[float, str]] = []
    plan(SQL, DESCRIBED, **FAST, max_cells=12, progress=lambda share, what: planning.append((share, what)))
    assert {what.partition(":")[0] for _, what in planning} >= {"Reading queries", "Grouping queries", "Optimising"}
    assert all(0 <= share <= 1 for share, _ in planning)


def test_a_planted_count_appears_nowhere(
    tmp_path: Path,
    cache_folder: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canary = 7_048_613
    caplog.set_level(logging.DEBUG)
    described = DESCRIBED | {"privacy": {"max_rows": 10**10}}
    made = plan("SELECT COUNT(*) AS ny FROM people WHERE state = 'NY'; SELECT COUNT(*) AS n FROM people", described)
    table = duckdb.connect().sql(f"SELECT 'NY' AS state, 1.0 AS age, 0 AS children FROM range({canary})")
    books = Ledger.create(tmp_path / "canary.db", epsilon=1)
    # So much noise that an answer begins with the canary by chance once in a hundred million runs.
    done = answer(made, table, epsilon=1e-8, ledger=books)
    done.save(tmp_path / "release.npz")
    made.save(tmp_path / "made.plan")
    with open_table(table, made.domain) as source:
        shown = [repr(source), str(source)]
    shown += [repr(made), str(made), repr(made.batch), repr(made.lattice), repr(done), str(done.certificate)]
    shown += [repr(books), str(books.history())]
    failures: list[dict[str, Any]] = [{"epsilon": 100.0}, {"epsilon": -1.0}, {"rho": 1.0}, {"epsilon": 1e9}]
    for bad in failures:
        with pytest.raises(BatchDPError) as refused:
            answer(made, table, ledger=books, **bad)
        shown += traceback.format_exception(refused.value)

    def draw(*_: Any) -> list[int]:
        raise MemoryError

    monkeypatch.setattr(answering, "add", draw)
    with pytest.raises(ReleaseError, match=r"MemoryError.*stays spent") as crashed:
        answer(made, table, epsilon=1e-8, ledger=books)
    shown += traceback.format_exception(crashed.value)
    captured = capfd.readouterr()
    shown += [caplog.text, captured.out, captured.err]
    with np.load(tmp_path / "release.npz") as saved:
        shown += [str(saved[name].tolist()) for name in saved]
    assert not [text for text in shown if str(canary) in text]
    for path in (*tmp_path.rglob("*"), *cache_folder.rglob("*")):
        raw = path.read_bytes() if path.is_file() else b""
        assert str(canary).encode() not in raw
        assert np.int64(canary).tobytes() not in raw
        assert np.float64(canary).tobytes() not in raw


def test_a_plan_is_used_elsewhere_without_its_cache(tmp_path: Path, cache_folder: Path, ledger: Ledger) -> None:
    plan(SQL, DESCRIBED, **FAST).save(tmp_path / "p.plan")
    shutil.rmtree(cache_folder)
    done = answer(load_plan(tmp_path / "p.plan"), people(), epsilon=1.0, ledger=ledger)
    assert len(done.answers) == 9


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_plan_shows_itself_in_a_notebook(privacy: Any) -> None:
    sql = 'SELECT COUNT(*) AS "<b>all</b>" FROM t; SELECT c, COUNT(*) AS n FROM t GROUP BY c'
    made = plan(sql, {"table": "t", "columns": {"c": {"integers": [0, 20]}}}, privacy=privacy, cache=False)
    shown = made._repr_html_()
    assert "<b>all" not in shown
    assert "&lt;b&gt;all" in shown
    assert f"{made.strategy.residual:.1e}" in shown
    assert "16 more" in shown
