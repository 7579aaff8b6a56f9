"""Domains of several tables: what one person can change in all of them, planned and answered together."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import combinations, combinations_with_replacement, product
from math import lcm
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp.domain import as_domain
from batchdp.errors import BatchDPError, DomainError, PlanError, QueryError, TableError
from batchdp.private import CellCounts
from batchdp.release.counts import reading
from commands import refused, succeeds

DOMAIN = """
[privacy]
unit = "patient_id"
neighbours = "{neighbours}"
[tables.patients]
max_rows = 1_000_000
[tables.patients.columns.sex]
values = ["f", "m"]
[tables.visits]
unit = "pid"
rows_per_unit = {cap}
max_rows = 1_000_000
[tables.visits.columns.clinic]
values = ["c1", "c2"]
[tables.visits.columns.fee]
integers = [0, 10]
"""
SQL = """
SELECT sex, COUNT(*) AS patients FROM patients GROUP BY sex;
SELECT COUNT(*) AS everybody FROM patients;
SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;
SELECT SUM(fee) AS fees FROM visits WHERE clinic = 'c1';
"""


def domain(cap: int = 2, neighbours: str = "add-remove") -> str:
    return DOMAIN.format(cap=cap, neighbours=neighbours)


def frames(patients: list[tuple[Any, ...]], visits: list[tuple[Any, ...]]) -> dict[str, pd.DataFrame]:
    return {
        "patients": pd.DataFrame(patients, columns=["patient_id", "sex"], dtype=object),
        "visits": pd.DataFrame(visits, columns=["pid", "clinic", "fee"], dtype=object),
    }


def counts(plan: batchdp.Plan, given: object) -> NDArray[Any]:
    with ExitStack() as opened:
        found = reading(plan.batch, plan, opened, given, None)()
        assert isinstance(found, CellCounts)
        return found.counts.astype(object)


def change(plan: batchdp.Plan, difference: NDArray[Any]) -> int:
    """What the measurements change by, in whole numbers."""
    Q = plan.lattice.integers.toarray().astype(object)
    return int(sum(abs(one) ** plan.lattice.noise.norm for one in Q @ difference))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("caps", [(1, 2), (1, 3), (2, 3)])
def test_no_person_changes_more_than_is_declared(privacy: Any, neighbours: str, caps: tuple[int, int]) -> None:
    """Every person with as many rows as the caps allow, or fewer, of every kind that the tables tell apart."""
    sql = SQL.replace("SELECT SUM(fee) AS fees", "SELECT COUNT(*) AS fees")
    text = domain(caps[1], neighbours).replace("max_rows", f"rows_per_unit = {caps[0]}\nmax_rows", 1)
    plan = batchdp.plan(sql, text, privacy=privacy, cache=False, seconds=0.3)
    cells = plan.batch.cells  # type: ignore[attr-defined]
    rows: list[list[list[tuple[int, ...]]]] = []
    for part, cap in zip(cells.parts, caps, strict=True):
        kinds = list(product(*(np.flatnonzero(one.possible).tolist() for one in part.cells.atoms)))
        rows.append([[*own] for many in range(cap + 1) for own in combinations_with_replacement(kinds, many)])

    def added(person: tuple[list[tuple[int, ...]], ...]) -> tuple[int, ...]:
        batches = {
            part.table: lambda part=part, own=own: [
                (
                    np.array(own, dtype=np.int64).reshape(len(own), len(part.cells.atoms)),
                    np.ones(len(own), dtype=np.int64),
                )
            ]
            for part, own in zip(cells.parts, person, strict=True)
        }
        return tuple(cells.counts(batches).tolist())

    persons = [np.array(one, dtype=object) for one in {added(person) for person in product(*rows)}]
    assert len(persons) > 10
    norm, moved = plan.lattice.noise.norm, plan.lattice.groups[0].moved
    assert plan.factor == lcm(*caps) * (2 if neighbours == "replace" else 1)
    if neighbours == "add-remove":
        worst = max(change(plan, one) for one in persons)
        exact = plan.lattice.column_sums if norm == 1 else plan.lattice.column_squares  # not rounded up to a square
        assert worst == exact * plan.factor**norm  # all rows of a person in one cell of each table: attained
    else:
        worst = max(change(plan, one - other) for one, other in combinations(persons, 2))
    assert 0 < worst <= moved * plan.factor**norm


def test_answers_are_those_of_an_independent_count() -> None:
    """With hardly any noise: caps that nobody reaches against SQL, and a cap of 1 against the size of what is left."""
    chance = np.random.default_rng(3)
    people = [(f"p{i}", str(chance.choice(["f", "m"]))) for i in range(200)]
    seen = [
        (f"p{chance.integers(200)}", str(chance.choice(["c1", "c2", "c9"])), int(chance.integers(11)))
        for _ in range(600)
    ]
    given = frames(people, seen)
    plan = batchdp.plan(SQL, domain(20), cache=False, seconds=0.3)
    found = _released(plan, given)
    true = [sum(sex == own for _, sex in people) for own in ("f", "m")] + [200]
    true += [sum(clinic == own for _, clinic, _ in seen) for own in ("c1", "c2")]
    true += [sum(fee for _, clinic, fee in seen if clinic == "c1")]
    assert np.allclose(found, true, atol=0.5)
    capped = batchdp.plan("SELECT COUNT(*) AS visits FROM visits", domain(1), cache=False, seconds=0.3)
    assert np.allclose(_released(capped, given), len({pid for pid, _, _ in seen}), atol=0.5)


def _released(plan: batchdp.Plan, given: object) -> NDArray[Any]:
    with tempfile.TemporaryDirectory() as folder:
        ledger = batchdp.Ledger.create(Path(folder) / "ledger.db", epsilon=1e6)
        release = batchdp.answer(plan, given, epsilon=1e5, ledger=ledger)
        assert ledger.history()[0].table == f"patients (cap 1) + visits (cap {plan.factor})"
        release.save(Path(folder) / "one.release")
        again = batchdp.load_release(Path(folder) / "one.release")
        assert "1 of patients" in again.certificate.neighbours
        return again.values


def test_caps_without_a_small_common_multiple(tmp_path: Path) -> None:
    """Persons by group bring a cap of their own; then rows are counted a little less often than their cap allows."""
    text = domain(999).replace("max_rows", "rows_per_unit = 1000\nmax_rows", 1)
    sql = "SELECT fee, COUNT(DISTINCT pid) AS p FROM visits WHERE fee < 7 GROUP BY fee; "
    sql += "SELECT COUNT(*) AS a FROM patients; SELECT COUNT(*) AS b FROM visits"
    plan = batchdp.plan(sql, text, cache=False, seconds=0.2)
    assert plan.factor == 2**20
    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=1e6)
    release = batchdp.answer(plan, frames([("a", "f")] * 1000, [("a", "c1", 3)] * 3), epsilon=1e5, ledger=ledger)
    assert "(1000 of patients, 999 of visits, " in release.certificate.neighbours
    release.save(tmp_path / "one.release")
    assert batchdp.load_release(tmp_path / "one.release").certificate == release.certificate
    found = dict(zip((one.name for one in plan.asked), release.values, strict=True))
    assert [round(found[name]) for name in ("p[fee=3]", "a", "b")] == [1, 1000, 3]


SEEN = "SELECT clinic, COUNT(DISTINCT pid) AS p FROM visits GROUP BY clinic"
BATCHES = {
    "by group": [
        "SELECT sex, COUNT(*) AS a FROM patients GROUP BY sex",
        "SELECT clinic, COUNT(*) AS b FROM visits GROUP BY clinic",
        SEEN,
    ],
    "rollup": [
        "SELECT COUNT(*) AS a FROM patients",
        "SELECT clinic, COUNT(*) AS b FROM visits GROUP BY ROLLUP (clinic); "
        "SELECT COUNT(*) AS c FROM visits WHERE fee > 5",
        SEEN,
    ],
    "many": [
        "SELECT sex, COUNT(*) AS a FROM patients GROUP BY sex; SELECT COUNT(*) AS d FROM patients",
        "SELECT fee, COUNT(*) AS b FROM visits GROUP BY fee; SELECT COUNT(*) AS c FROM visits",
        SEEN,
    ],
}
"""Patients, visits, and persons by clinic."""


def split_by_hand(name: str, privacy: Any) -> tuple[batchdp.Plan, float, float]:
    """One plan of a batch, its total error, and that of the best split found by a search: of the budget between plans
    made apart, each at its own cap."""
    unit = {"epsilon": 1.0} if privacy == "pure" else {"rho": 1.0}
    options = {"privacy": privacy, "objective": "sum", "cache": False, "seconds": 1.0}

    def total(plan: batchdp.Plan) -> float:
        return plan.factor**2 * plan.strategy.expected_squared_error(**unit)

    whole = batchdp.plan(";\n".join(BATCHES[name]), domain(5), **options)
    together = total(whole)
    apart = [total(batchdp.plan(sql, domain(5), **options)) for sql in BATCHES[name]]
    power = 2 if privacy == "pure" else 1
    share = np.linspace(0.0025, 0.9975, 400)
    first, second = np.meshgrid(share, share)
    third = np.where(first + second < 1, 1 - first - second, np.nan)
    best = np.nanmin(sum(own / part**power for own, part in zip(apart, (first, second, third), strict=True)))
    return whole, together, float(best)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("name", BATCHES)
def test_one_plan_is_no_worse_than_the_best_split_by_hand(name: str, privacy: Any) -> None:
    """Gaussian noise can do more. `benchmarks/visits.py --splits` shows the figures."""
    whole, together, best = split_by_hand(name, privacy)
    assert together <= best * (1 + 1e-4)
    if privacy == "pure":
        for method in ("noise-on-data", "noise-on-results"):
            other = batchdp.STRATEGIES[method](whole.workload)
            assert together <= whole.factor**2 * other.expected_squared_error(epsilon=1.0) * (1 + 1e-9)
    else:  # what looks at several relations at once
        assert together < MIXED[name] * best


MIXED = {"by group": 0.8, "rollup": 0.86, "many": 0.9}
"""At most this share of the best split's error is left."""


def test_a_database_has_all_tables(tmp_path: Path) -> None:
    """A DuckDB file, the user's connection, and frames count the same."""
    given = frames([("a", "f"), ("b", "m")], [("a", "c1", 1), ("a", "c2", 2), ("b", "c1", 3)])
    plan = batchdp.plan(SQL.rpartition("SELECT")[0], domain(), cache=False, seconds=0.3)
    path = tmp_path / "care.duckdb"
    with duckdb.connect(str(path)) as made:
        for name, frame in given.items():
            made.register("frame", frame)
            made.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
            made.unregister("frame")
        found = counts(plan, made)
    expected = counts(plan, given)
    for other in (
        found,
        counts(plan, str(path)),
        counts(plan, f"duckdb://{path}"),
        counts(plan, dict.fromkeys(given, path)),
    ):
        assert np.array_equal(other, expected)


def test_what_is_not_given_is_refused_before_the_charge(tmp_path: Path) -> None:
    plan = batchdp.plan(SQL, domain(), cache=False, seconds=0.3)
    given = frames([], [])
    ledger = batchdp.Ledger.create(tmp_path / "l.db", epsilon=1.0)
    for table, said in (
        ({"patients": given["patients"]}, "lacks 'visits'"),
        ({**given, "clinics": given["visits"]}, "'clinics'"),
        ({**given, "Visits": given["visits"]}, "two names that are one"),
        (given["patients"], "give a dictionary"),
        ({**given, "visits": given["patients"]}, "no column"),
    ):
        with pytest.raises(TableError, match=said):
            batchdp.answer(plan, table, epsilon=0.5, ledger=ledger)
    assert ledger.spent == 0


def test_the_command_line_takes_every_table_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by name, one database for all; the page and the dossier name every relation and its cap."""
    monkeypatch.chdir(tmp_path)
    Path("care.toml").write_text(domain())
    Path("q.sql").write_text(
        "SELECT sex, COUNT(*) AS a FROM patients JOIN visits ON patient_id = pid GROUP BY sex;\n"
        "SELECT clinic, COUNT(DISTINCT pid) AS b FROM visits GROUP BY clinic;\n"
    )
    given = frames([("a", "f"), ("b", "m")], [("a", "c1", 1), ("a", "c2", 2), ("b", "c1", 3)])
    with duckdb.connect("care.duckdb") as made:
        for name, frame in given.items():
            frame.to_csv(f"{name}.csv", index=False)
            made.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{name}.csv')")
    succeeds("plan", "q.sql", "--domain", "care.toml", "-o", "care.plan")
    succeeds("budget", "l.db", "--create", "--epsilon", 1)
    spend = ("-e", 0.5, "--ledger", "l.db", "-y", "-o")
    both = ("--table", "patients=patients.csv", "--table", "visits=visits.csv")
    for wrong, said in (
        (both[:2], "lacks 'visits'"),
        ((*both, *both[:2]), "name each table once"),
        ((*both, "--table", "Visits=visits.csv"), "two names"),
        (("--table", "visits.csv"), "give a dictionary"),
    ):
        assert said in refused("answer", "care.plan", *wrong, *spend, "wrong.csv")
    succeeds("answer", "care.plan", *both, *spend, "files.csv")
    succeeds("answer", "care.plan", "--table", "care.duckdb", *spend, "database.csv")
    assert batchdp.Ledger("l.db").remaining == 0
    succeeds("report", "files.release", "-o", "page.html")
    succeeds("dossier", "files.release", "-l", "l.db", "-o", "folder")
    caps = "2 of patients JOIN visits, 2 of persons of visits by clinic"
    assert caps in Path("page.html").read_text()
    assert any(caps in one.read_text() for one in Path("folder").rglob("*") if one.suffix in (".md", ".yaml", ".html"))


def test_plans_are_kept_and_believe_nothing(tmp_path: Path) -> None:
    plan = batchdp.plan(SQL, domain(), cache=False, seconds=0.3)
    plan.save(tmp_path / "a.plan")
    again = batchdp.load_plan(tmp_path / "a.plan")
    assert again.domain == plan.domain
    assert again.factor == 2
    assert np.array_equal(plan.standard_errors(epsilon=1.0), again.standard_errors(epsilon=1.0))
    alone = batchdp.optimize(plan.workload.matrix)  # which knows of one table alone
    with pytest.raises(PlanError, match="block"):
        batchdp.Plan(plan.sql, None, plan.domain, plan.batch, alone, plan.options)
    assert batchdp.audit(plan, epsilon=1.0, runs=1000).findings[0].held


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (domain().replace("[privacy]\nunit", "[privacy]\nwho"), "unit"),
        (domain().replace('unit = "patient_id"', ""), "privacy.unit"),
        (domain() + "[tables.empty]\nrows_per_unit = 1\n", "tables.empty.columns"),
        (domain().replace("rows_per_unit = 2", "rows_per_unit = 0"), "rows_per_unit"),
        (domain().replace("rows_per_unit = 2", "rows = 2"), "unknown key"),
        ('table = "patients"\n' + domain(), "table"),
        (
            domain(2**19 - 1) + "[tables.more]\nrows_per_unit = 1000\n[tables.more.columns.a]\nvalues = [true]\n",
            "divide",
        ),
        (domain() + "[tables.PATIENTS.columns.a]\nvalues = [true]\n", "same to SQL"),
        (domain() + "[tables.other.columns.a]\nvalues = 3\n", "tables.other: columns.a"),
    ],
)
def test_domains_are_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        as_domain(text)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM clinics", "declared are patients, visits"),
        ("SELECT COUNT(*) FROM patients WHERE clinic = 'c1'", "not declared"),
        ("SELECT COUNT(*) FROM patients JOIN visits ON patients.sex = visits.clinic", "one person"),
        ("SELECT COUNT(*) FROM patients, visits", "one person"),
        ("SELECT COUNT(DISTINCT sex) FROM patients", "DISTINCT"),
    ],
)
def test_what_is_not_known_to_be_sound_is_refused(sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        batchdp.plan(sql, domain(), cache=False, seconds=0.3)


def test_marginals_are_of_one_table() -> None:
    with pytest.raises(BatchDPError, match="one table"):
        batchdp.plan(domain=domain(), marginals=2, cache=False, seconds=0.3)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_values_beside_the_answers_of_several_tables(privacy: Any, tmp_path: Path) -> None:
    """Rows of every table are counted by kind: none is negative, and a table agrees with itself."""
    rows = frames([(i, "fm"[i % 2]) for i in range(40)], [(i % 40, "c1" if i % 3 else "c2", i % 11) for i in range(80)])
    planned = batchdp.plan(SQL, domain(), privacy=privacy, cache=False, seconds=0.3)
    budget: dict[str, Any] = {"epsilon": 0.05} if privacy == "pure" else {"rho": 0.001}
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", **budget)
    release = batchdp.answer(planned, rows, ledger=ledger, **budget)
    for found in (release.consistent(), release.denoised(), release.denoised(whole=True)):
        women, men, everybody, first, _, fees = found.values
        assert found.values.min() >= -1e-6
        assert women + men <= everybody + 1e-6  # some rows say something else
        assert fees <= 10 * first + 1e-6
    assert release.denoised().risk <= release.denoised().raw_risk
