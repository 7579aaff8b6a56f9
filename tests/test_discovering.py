"""A domain found privately: what is found, what it costs, and that nothing else comes out."""

from __future__ import annotations

import math
import tomllib
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.accounting import least_threshold, threshold_delta
from batchdp.domain import Dates, Domain, Integers, Listed, Numbers
from batchdp.engines import open_table, prepare_count, prepare_values
from batchdp.engines.derived import Derived
from batchdp.errors import BatchDPError, BudgetError, DomainError, LedgerError, ReleaseError, TableError
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.sample import sample_independent
from batchdp.mechanism.thresholds import threshold_for
from batchdp.plans.finding import edges_of, find_ends, found_line, kind_column, line_column, propose_cap, rows_column
from batchdp.privacy import LAPLACE
from batchdp.release import answering, discovering
from batchdp.release.discovering import find
from commands import run, succeeds
from engines import postgres

ROWS = 6_000


def visits(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    days = pd.Timestamp("2023-02-01") + pd.to_timedelta(rng.integers(0, 500, rows), "D")
    return pd.DataFrame(
        {
            "visit_id": np.arange(rows),
            "patient": rng.integers(0, rows // 3, rows),
            "sex": rng.choice(np.array(["f", "m", None], object), rows),
            "note": [f"text {i}" for i in range(rows)],
            "day": days.strftime("%Y-%m-%d"),
            "cost": np.round(rng.lognormal(4, 1, rows), 2),
            "age": rng.integers(18, 90, rows),
        }
    )


def ledger(folder: Path, **given: Any) -> batchdp.Ledger:
    return batchdp.Ledger.create(folder / "budget.db", **(given or {"epsilon": 10.0, "delta": 1e-5}))


# ── what is found ──


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[discovering.Discovery, batchdp.Ledger]:
    books = ledger(tmp_path_factory.mktemp("found"))
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "unit": "patient", "rows_per_unit": 2}
    return find(visits(), ledger=books, release_id="one", name="visits", **asked), books


def test_values_bounds_dates_and_a_cap_are_found(found: tuple[discovering.Discovery, batchdp.Ledger]) -> None:
    domain = found[0].domain
    assert domain.table == "visits"
    assert list(domain.columns) == ["sex", "day", "cost", "age"]
    sex, day, cost, age = domain.columns.values()
    assert isinstance(sex, Listed)
    assert sex.values == ("f", "m")
    assert isinstance(day, Dates)
    assert str(day.dates[0]) == "2023-02-01"
    assert str(day.dates[1]) >= "2024-06-30"
    assert isinstance(cost, Numbers)
    assert cost.range[0] <= 10
    assert 400 <= cost.range[1] <= 2000
    assert isinstance(age, Integers)
    assert 18 <= age.integers[0] <= 20
    assert 89 <= age.integers[1] <= 99
    truth = visits().groupby("patient").size().quantile(0.95)
    assert truth <= domain.privacy.rows_per_unit <= truth + 3


def test_the_file_says_how_and_what_it_cost(found: tuple[discovering.Discovery, batchdp.Ledger]) -> None:
    text = found[0].text
    assert "ε = 4, δ = 1e-06" in text
    assert "# Values that at least about" in text
    assert "# Left out: 'note': no text is in the rows of" in text
    assert "# Left out: 'visit_id': its name looks like an id" in text
    assert batchdp.domain.read_domain(text) == found[0].domain


def test_one_charge_of_exactly_what_was_asked(found: tuple[discovering.Discovery, batchdp.Ledger]) -> None:
    books = found[1]
    (entry,) = books.history()
    assert (entry.requested, entry.delta, entry.privacy_unit) == (4.0, 1e-6, "patient")
    assert books.spent == 4.0
    books.verify()
    batchdp.release.verify.check_ledger(books)


def test_a_repeat_gives_the_same_file_and_anything_else_is_refused(
    found: tuple[discovering.Discovery, batchdp.Ledger],
) -> None:
    first, books = found
    asked: dict[str, Any] = {"delta": 1e-6, "unit": "patient", "rows_per_unit": 2, "name": "visits"}
    again = find(visits(10), epsilon=4.0, ledger=books, release_id="one", **asked)
    assert (again.text, books.spent) == (first.text, 4.0)
    for other in ({"epsilon": 3.0}, {"epsilon": 4.0, "delta": 1e-7}, {"epsilon": 4.0, "rows_per_unit": 1}):
        with pytest.raises(BudgetError, match="was used at"):
            find(visits(10), ledger=books, release_id="one", **(asked | other))


def test_what_is_known_is_kept(tmp_path: Path) -> None:
    known = {
        "table": "v",
        "columns": {
            "age": {"range": [0, 120], "bins": {"young": 0, "old": 65}, "groupings": {"five": [0, 5, 10]}},
            "sex": {"values": ["f", "m", "x"], "groupings": {"two": {"one": ["f"], "other": ["m", "x"]}}},
        },
    }
    books = ledger(tmp_path)
    domain = batchdp.discover(visits()[["age", "sex", "cost"]], epsilon=5.0, ledger=books, domain=known)
    assert domain.columns["age"] == Domain.model_validate(known).columns["age"]
    assert domain.columns["sex"] == Domain.model_validate(known).columns["sex"]
    assert isinstance(domain.columns["cost"], Numbers)


def test_what_the_schema_declares_is_used_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "care.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('bad', 'good', 'CANARY')")
        connection.execute(
            "CREATE TABLE visits (mood mood, status_id text CHECK (status_id IN ('new', 'old')), "
            "paid decimal(8, 2) CHECK (paid BETWEEN 0 AND 250.5), day date CHECK (day >= DATE '2020-01-15'), "
            "age integer CHECK (age > 17), fit boolean, town text)"
        )
        connection.execute(
            "INSERT INTO visits SELECT 'bad', 'new', i % 200, DATE '2020-01-20' + (i % 300)::INTEGER, 18 + i % 70, "
            "true, 'Ulm' FROM range(6000) AS s(i)"
        )
    said: list[str] = []
    books = ledger(tmp_path)
    found = find(f"duckdb://{path}#visits", epsilon=4.0, delta=1e-6, ledger=books, tell=said.append)
    mood, status, paid, day, age, fit, town = (
        found.domain.columns[name] for name in ("mood", "status_id", "paid", "day", "age", "fit", "town")
    )
    assert isinstance(mood, Listed)
    assert mood.values == ("bad", "good", "CANARY")  # though nobody has it
    assert isinstance(status, Listed)
    assert status.values == ("new", "old")
    assert isinstance(paid, Numbers)
    assert (paid.range, paid.step, paid.outside) == ((0, 250.5), 0.01, "clip")
    assert isinstance(day, Dates)
    assert str(day.dates[0]) == "2020-01-15"  # and the month's first day where nothing was said
    assert "2020-10-31" <= str(day.dates[1]) <= "2021-02-28"
    assert isinstance(age, Integers)
    assert age.integers[0] == 18
    assert 87 <= age.integers[1] <= 110
    assert isinstance(fit, Listed)
    assert isinstance(town, Listed)
    assert town.values == ("Ulm",)
    assert found.text.count("at no cost. Make sure that it was known without these data.") == 3
    assert "From its ENUM type, at no cost." in found.text
    assert "The schema declares 3 more, which cost nothing." in said
    (entry,) = books.history()
    assert entry.requested == 4.0


def test_nothing_to_find_is_said_before_anything_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "care.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits (fit boolean, age integer CHECK (age BETWEEN 0 AND 120))")
    books = ledger(tmp_path)
    with pytest.raises(DomainError, match="batchdp init drafts from the schema"):
        batchdp.discover(f"duckdb://{path}#visits", epsilon=1.0, ledger=books)
    assert books.history() == ()


# ── refusals, and the order of things ──


def test_texts_need_a_delta_that_the_ledger_has(tmp_path: Path) -> None:
    pure = ledger(tmp_path, epsilon=10.0)
    with pytest.raises(BudgetError, match="has no delta"):
        batchdp.discover(visits(100), epsilon=1.0, delta=1e-6, ledger=pure)
    done = find(visits(2000), epsilon=5.0, ledger=pure)
    assert "'sex': its values are texts, which need delta" in done.text
    assert pure.spent == 5.0


def test_more_than_is_left_is_refused_and_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("records were read")

    monkeypatch.setattr(answering, "add", never)
    books = ledger(tmp_path, epsilon=1.0, delta=1e-8)
    with pytest.raises(BudgetError):
        batchdp.discover(visits(100), epsilon=2.0, delta=1e-8, ledger=books)
    with pytest.raises(BudgetError, match="delta"):
        batchdp.discover(visits(100), epsilon=1.0, delta=1e-6, ledger=books)
    with pytest.raises(ReleaseError, match="nothing was spent"):
        batchdp.discover(visits(100), epsilon=1.0, delta=1e-8, ledger=books, confirm=lambda _: False)
    with pytest.raises(BatchDPError):
        batchdp.discover(visits(100), epsilon=1.0, ledger=books, unit="nobody")
    assert books.spent == 0
    assert books.history() == ()


def test_the_charge_is_on_disk_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books, seen = ledger(tmp_path), []
    inner: Any = getattr(answering, "add")  # noqa: B009

    def add(*given: Any) -> Any:
        seen.append(batchdp.Ledger.open(books.path).spent)
        return inner(*given)

    monkeypatch.setattr(answering, "add", add)
    batchdp.discover(visits(500), epsilon=5.0, delta=1e-7, ledger=books)
    assert seen == [5.0, 5.0]


def test_what_fails_after_the_charge_says_so_and_nothing_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("text 4711")

    books = ledger(tmp_path)
    monkeypatch.setattr(discovering, "sample_independent", fail)
    with pytest.raises(ReleaseError, match="its budget stays spent") as caught:
        batchdp.discover(visits(3000), epsilon=5.0, delta=1e-7, ledger=books, release_id="x")
    assert "4711" not in str(caught.value)
    assert caught.value.__context__ is None
    assert books.spent == 5.0


def test_a_first_line_that_may_be_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("CANARY,17,2020-01-01\nb,2,2020-01-02\n")
    with pytest.raises(TableError, match="may be a record") as caught:
        batchdp.discover(path, epsilon=1.0, ledger=ledger(tmp_path))
    assert "CANARY" not in str(caught.value)


def test_a_value_below_the_threshold_leaves_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"word": ["often"] * 3000 + [f"CANARY {i}" for i in range(200)] * 2})
    books = ledger(tmp_path)
    done = find(table, epsilon=1.0, delta=1e-8, ledger=books)
    assert done.domain.columns["word"].values == ("often",)  # type: ignore[union-attr]
    for file in tmp_path.rglob("*"):
        assert b"CANARY" not in file.read_bytes()
    shown = capsys.readouterr()
    assert "CANARY" not in shown.out + shown.err + done.text


# ── the threshold ──


@pytest.mark.parametrize("values", [1, 3])
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 2000.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_the_threshold_is_the_least_that_keeps_delta(values: int, scale: float, delta: float) -> None:
    def chance(least: int) -> float:
        q = math.exp(-1 / scale)
        return values * q ** (least - 1) / (1 + q)

    least = least_threshold(values, Fraction(scale), Fraction(str(delta)))
    assert float(threshold_delta(values, Fraction(scale), least)) == pytest.approx(chance(least), rel=1e-12)
    assert threshold_delta(values, Fraction(scale), least) <= Fraction(str(delta))
    one_less = chance(least - 1)
    assert least == 1 or one_less > delta * (1 - 1e-12) or one_less / values > 1 - math.exp(-1 / scale)
    assert chance(least) / values <= 1 - math.exp(-1 / scale)


def seen_alone(runs: int) -> None:
    """How often a value of one person is found, at a δ that can be measured."""
    delta = Fraction(1, 50)
    threshold = threshold_for(Fraction(1, 2), delta, Neighbours())
    noise = sample_independent(LAPLACE, np.array([threshold.scale]), np.array([runs]))
    found = int(np.sum(1 + noise >= threshold.least))
    stated = float(threshold_delta(1, Fraction(threshold.scale), threshold.least))
    assert stated <= float(delta)
    assert abs(found - runs * stated) < 5 * math.sqrt(runs * stated)
    assert found < runs * float(delta) + 5 * math.sqrt(runs * float(delta))


def test_delta_measured() -> None:
    seen_alone(100_000)


@pytest.mark.slow
def test_delta_measured_over_a_million_runs() -> None:
    seen_alone(1_000_000)


def test_epsilon_and_delta_by_the_exact_law_over_all_outputs() -> None:
    """Two tables that differ by one person with k values: of every output, its chances with and without."""
    for relation, k in product(("add-remove", "replace"), (1, 2)):
        neighbours = Neighbours(relation, k)  # type: ignore[arg-type]
        epsilon, delta = Fraction(1), Fraction(1, 20)
        threshold = threshold_for(epsilon, delta, neighbours)
        with_it = [5] * k + [1] * k + [0] * k  # values of others too, then of this person alone
        without = [4] * k + [0] * k + [1 if relation == "replace" else 0] * k
        with_it[: k // 2] = [4] * (k // 2)
        q = math.exp(-1 / threshold.scale)

        def law(count: int, least: int = threshold.least, q: float = q) -> tuple[dict[int, float], float]:
            """The chance of each noisy count that is seen, and of not being seen; a value of nobody is never seen."""
            if count == 0:
                return {}, 1.0
            found = {z: (1 - q) / (1 + q) * q ** abs(z - count) for z in range(least, least + 60)}
            return found, 1 - sum(found.values())

        def excess(ours: list[int], theirs: list[int], epsilon: Fraction = epsilon) -> float:
            """Σ max(0, P − e^ε Q) over all outputs; counts shown are more than what is released."""
            rows = [(1.0, 1.0)]
            for one, other in zip(ours, theirs, strict=True):
                (p, p0), (r, r0) = law(one), law(other)
                keys = p.keys() | r.keys()
                # Whether it is seen is all that is released.
                pairs = [(sum(p.values()), sum(r.values())), (p0, r0)] if keys else [(p0, r0)]
                rows = [(a * x, b * y) for a, b in rows for x, y in pairs]
            return sum(max(0.0, a - math.exp(float(epsilon)) * b) for a, b in rows)

        assert excess(with_it, without) <= float(delta) + 1e-12
        assert excess(without, with_it) <= float(delta) + 1e-12


# ── sensitivity, by brute force ──


def engines_of(table: pd.DataFrame, folder: Path, number: int) -> dict[str, Any]:
    """The same table in every engine that needs no server."""
    texts = table.astype(object).where(table.notna(), None)
    arrow = pa.table({name: pa.array(texts[name].tolist()) for name in table})
    table.to_csv(folder / f"{number}.csv", index=False)
    connection = duckdb.connect()
    connection.register("frame", arrow)
    connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    return {"pandas": table, "arrow": arrow, "CSV": folder / f"{number}.csv", "DuckDB": connection}


HOSTILE = ["a", "A", "ä", " a", "", "nan", "NULL", "\x00x", "🙂", "x" * 300, "1e400", "2020-02-30", None]


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_a_person_moves_values_by_what_is_charged_in_every_engine(cap: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(cap)
    moved: dict[str, int] = {}
    for number in range(6):
        rows = int(rng.integers(4, 30))
        table = pd.DataFrame({"who": rng.integers(0, 5, rows), "w": rng.choice(np.array(HOSTILE, object), rows)})
        person = int(rng.integers(0, 5))
        if number % 2:  # of very many values
            more = pd.DataFrame({"who": person, "w": [f"own {i}" for i in range(50)]})
            table = pd.concat([table, more], ignore_index=True)
        both = engines_of(table, tmp_path, number), engines_of(table[table["who"] != person], tmp_path, 100 + number)
        for name in both[0]:
            here, there = (values_of(one[name], cap) for one in both)
            change = [here.get(text, 0) - there.get(text, 0) for text in here.keys() | there.keys()]
            assert all(one in (0, 1) for one in change), name
            assert sum(change) <= cap
            moved[name] = max(moved.get(name, 0), sum(change))
    assert set(moved.values()) == {cap}  # it is no larger than it has to be


def values_of(table: Any, cap: int) -> dict[str, int]:
    domain = Domain.model_validate(
        {"table": "t", "privacy": {"unit": "who", "rows_per_unit": cap}, "columns": {"w": {"values": ["A"]}}}
    )
    with open_table(table, domain) as source:
        (counted,) = prepare_values(source, ["w"], unit="who", rows_per_unit=cap)()
    return dict(zip(counted.texts, counted.counts.tolist(), strict=True))


@pytest.mark.parametrize("cap", [1, 2])
def test_a_person_moves_kinds_bins_and_rows_by_at_most_the_cap(cap: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(cap)
    columns = {"k": kind_column(), "v": line_column("number"), "m": line_column("date"), "rows": rows_column()}
    privacy = {"unit": "who", "rows_per_unit": cap}
    domain = Domain.model_validate({"table": "t", "privacy": privacy, "columns": columns})
    types = Domain.model_validate({"table": "t", "columns": {"w": {"values": ["A"]}}}).columns
    derived: Any = {"k": ("kind", "w"), "v": ("value", "w"), "m": ("month", "w"), "rows": ("rows", None)}
    odd = [*HOSTILE, "1", "2.5", "-7", "1e15", "2024-01-02", "inf"]
    made = batchdp.plan(domain=domain, marginals=1, seconds=1)

    def cells(table: Any) -> list[dict[int, int]]:
        with open_table(Derived(table, derived, types), domain) as source:
            atoms = made.batch.atoms
            found: list[dict[int, int]] = [{} for _ in atoms]
            for codes, counts in prepare_count(source, atoms, unit="who", rows_per_unit=cap)(None):
                for row, n in zip(codes, counts, strict=True):
                    for own, code in zip(found, row, strict=True):
                        own[code] = own.get(code, 0) + int(n)
        return found

    rows = 25
    table = pd.DataFrame({"who": rng.integers(0, 4, rows), "w": rng.choice(np.array(odd, object), rows)})
    engines = engines_of(table, tmp_path, 0), engines_of(table[table["who"] != 2], tmp_path, 1)
    for name in engines[0]:
        for here, there in zip(*(cells(one[name]) for one in engines), strict=True):
            assert sum(abs(here.get(code, 0) - there.get(code, 0)) for code in here.keys() | there.keys()) <= cap


def test_values_and_kinds_on_postgresql(tmp_path: Path) -> None:
    import psycopg

    address = postgres()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS found")
        connection.execute("CREATE TABLE found (sex text, paid numeric(8, 2), day date)")
        connection.execute(
            "INSERT INTO found SELECT (ARRAY['f', 'm', NULL])[1 + i % 3], i % 500, DATE '2024-01-01' + i % 90 "
            "FROM generate_series(1, 3000) AS s(i)"
        )
    domain = batchdp.discover(f"{address}#found", epsilon=5.0, delta=1e-6, ledger=ledger(tmp_path))
    sex, paid, day = domain.columns.values()
    assert isinstance(sex, Listed)
    assert sex.values == ("f", "m")
    assert isinstance(paid, Integers)
    assert paid.integers[0] <= 5
    assert paid.integers[1] == 499
    assert isinstance(day, Dates)
    assert str(day.dates[0]) == "2024-01-01"


# ── what follows from noisy counts ──


def test_ends_are_found_where_counts_end_and_not_in_the_noise() -> None:
    rng = np.random.default_rng(0)
    edges = edges_of("whole")
    wrong = 0
    for _ in range(200):
        counts = rng.laplace(0, 20, len(edges) - 1)
        wrong += find_ends(counts, 20, (1, 2, 4)) is not None
        counts[edges.index(10) : edges.index(100)] += 300
        ends = find_ends(counts, 20, (1, 2, 4))
        assert ends is not None
        wrong += not (edges[ends[0]] <= 10 and edges[ends[1] + 1] >= 100 and edges[ends[1] + 1] <= 300)
    assert wrong <= 6


@pytest.mark.parametrize("windows", [(1, 2, 4), (1, 3, 12)])
def test_a_window_is_seen_for_what_it_holds_and_not_for_its_empty_bins(windows: tuple[int, ...]) -> None:
    counts = np.zeros(60)
    counts[30:40] = 1000
    counts[[26, 45]] = 400, 10  # of which the first is seen, and the bins around it are empty
    assert find_ends(counts, 20, windows) == (26, 39)
    assert find_ends(counts[::-1], 20, windows) == (20, 33)


def test_a_small_share_at_an_end_is_left_out_where_that_is_sure() -> None:
    counts = np.full(20, 100_000.0)
    counts[[0, 1, 18, 19]] = 1000, 5000, 50_000, 3000
    assert find_ends(counts, 20, (1, 2, 4)) == (1, 18)  # 1 000 and 3 000 are less than 0.3 %, 6 000 are not
    assert find_ends(counts, 2000, (1, 2, 4)) == (2, 18)  # where 6 000 in two bins may be noise


def test_dates_that_are_spread_over_decades_are_found() -> None:
    rng = np.random.default_rng(0)
    counts = rng.laplace(0, 25, 2412)
    counts[600:1200] += 80  # 1950 to 1999, in no month enough by itself
    column = found_line("date", counts, 25)
    assert isinstance(column, Dates)
    assert 1940 <= column.dates[0].year <= 1952
    assert 1997 <= column.dates[1].year <= 2010


def test_the_proposed_cap_is_enough_for_95_per_cent() -> None:
    counts = np.zeros(len(rows_column().bins or ()))
    counts[:4] = 900, 60, 45, 5  # rows of units that have 1, 2, 3, 4
    assert propose_cap(counts, 1.0, 1) == 2
    assert propose_cap(np.zeros(len(counts)), 1.0, 1) is None


# ── the ledger ──


def test_the_first_spend_divides_delta_and_none_after_it(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"plan_digest": "a", "table": "t"}
    books = batchdp.Ledger.create(tmp_path / "first.db", epsilon=1.0, delta=1e-6)
    books.reserve("x", epsilon=0.25, delta=4e-7, **asked)
    account = books.account
    assert sum(one.delta for one in account.filters.values()) + account.thresholds == Fraction(1, 10**6)
    assert books.verify() == books.head
    assert books.epsilon_at(1e-6) == 0.25
    assert math.isnan(batchdp.ledger.books.list_curves(books.history(), (1e-7,))[0].epsilons[0])
    with pytest.raises(BudgetError, match="thresholds"):
        books.reserve("y", epsilon=0.1, delta=1e-8, **asked)
    late = batchdp.Ledger.create(tmp_path / "late.db", epsilon=1.0, delta=1e-6)
    late.reserve("x", epsilon=0.25, **asked)
    with pytest.raises(BudgetError, match="thresholds"):
        late.reserve("y", epsilon=0.1, delta=1e-8, **asked)


def test_thresholds_close_gaussian_noise_alone_and_keep_the_rest(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"plan_digest": "a", "table": "t"}
    books = batchdp.Ledger.create(tmp_path / "b.db", epsilon=1.0, delta=1e-6, thresholds=0.5)
    books.reserve("x", epsilon=0.05, delta=2e-7, **asked)
    books.reserve("y", rho=0.001, scale=64.0, **asked)
    assert books.account.admitting == ["rho"]
    books.share("team", 0.5)
    with pytest.raises(BudgetError, match="delta"):
        books.reserve("z", epsilon=0.01, delta=3e-7, **asked)
    with pytest.raises(BatchDPError, match="goes with epsilon"):
        books.reserve("z", rho=0.001, delta=1e-8, **asked)
    books.verify()


def test_a_ledger_that_divides_delta_again_is_forged(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"plan_digest": "a", "table": "t"}
    books = batchdp.Ledger.create(tmp_path / "b.db", epsilon=1.0, delta=1e-6)
    books.reserve("x", epsilon=0.25, **asked)
    account = batchdp.ledger.account.Account.of(batchdp.privacy.Budget(LAPLACE, 1.0), 1e-6, None, 0.5)
    with books._file.writing() as file:
        account = batchdp.ledger.account.carried_over(file.all(), account)
        said: dict[str, Any] = dict.fromkeys(("release_id", "plan_digest", "table"), "")
        file.append(file.last().follow("carry", **said, **account.terms(), unit="epsilon", requested=1.0))
    with pytest.raises(LedgerError, match="divides a delta again"):
        books.verify()


# ── the command ──


def test_from_csv_to_a_release_in_five_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    visits().drop(columns="patient").to_csv("visits.csv", index=False)
    succeeds("budget", "budget.db", "--create", "--epsilon", 10, "--delta", 1e-6)
    shown = succeeds(
        "discover", "visits.csv", "-l", "budget.db", "-e", 5, "--delta", 1e-7, "-o", "domain.toml", "--yes"
    )
    assert "A value of a text is found if about" in shown
    plan = ["plan", "--marginals", "1", "--domain", "domain.toml", "-o", "visits.plan"]
    assert f"batchdp {' '.join(plan)}" in shown
    succeeds(*plan)
    succeeds("answer", "visits.plan", "-t", "visits.csv", "-e", 2, "-l", "budget.db", "-o", "answers.csv", "--yes")
    succeeds("report", "answers.release", "-o", "page.html")
    assert tomllib.loads(Path("domain.toml").read_text(encoding="utf-8"))["columns"]["sex"]["values"] == ["f", "m"]
    refused = run("discover", "visits.csv", "-l", "budget.db", "-e", "5", "-o", "again.toml")
    assert refused.code == 1
    assert not Path("again.toml").exists()
