"""A domain against its table, privately: what would go wrong is found, through `answer` and one charge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp.release import answering
from batchdp.release.checking import check, findings, fits, look, plan_check
from commands import run

ROWS = 50_000
FITTING: dict[str, Any] = {
    "table": "people",
    "columns": {
        "sex": {"values": ["Male", "Female"], "other": "drop"},
        "age": {"integers": [0, 120], "outside": "clip"},
        "day": {"dates": ["2024-01-01", "2024-12-31"]},
    },
}


def people(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "sex": rng.choice(["Male", "Female"], rows),
            "age": rng.integers(17, 91, rows),
            "day": (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), "D")).strftime("%Y-%m-%d"),
            "person": np.arange(rows),
        }
    )


def ledger(folder: Path, epsilon: float = 100.0) -> batchdp.Ledger:
    return batchdp.Ledger.create(folder / "budget.db", epsilon=epsilon)


def changed(**columns: Any) -> dict[str, Any]:
    return {**FITTING, "columns": {**FITTING["columns"], **columns}}


WRONG = {
    "misspelt values": (changed(sex={"values": [" Male", " Female"]}), "sex: next to none"),
    "a range that ended": (changed(day={"dates": ["2023-01-01", "2024-10-31"]}), "day: the range ended"),
    "a wrong unit": ({**FITTING, "privacy": {"unit": "sex"}}, "Hardly any rows are counted"),
}


def test_nothing_is_found_where_the_domain_fits(tmp_path: Path) -> None:
    books, table = ledger(tmp_path), people()
    for _ in range(5):
        assert findings(check(FITTING, table, epsilon=0.1, ledger=books), FITTING) == ()


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_found_nearly_always(wrong: str, tmp_path: Path) -> None:
    domain, said = WRONG[wrong]
    books, table = ledger(tmp_path), people()
    for _ in range(5):
        found = findings(check(domain, table, epsilon=0.1, ledger=books), domain)
        assert len(found) == 1, found
        assert found[0].startswith(said)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_99_of_100_checks_find_it(wrong: str, tmp_path: Path) -> None:
    domain, said = WRONG[wrong]
    books, table = ledger(tmp_path), people()
    runs = [findings(check(domain, table, epsilon=0.1, ledger=books), domain) for _ in range(100)]
    assert sum(any(one.startswith(said) for one in found) for found in runs) >= 99


def test_counts_are_those_before_anything_is_dropped_or_clipped(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"sex": ["Male", "x", None, "Female"] * 100, "age": [200, 30, 1.5, None] * 100, "day": ["2025-01-01"] * 400}
    )
    release = check(FITTING, table, epsilon=100.0, ledger=ledger(tmp_path))
    sex, age, day = fits(release, FITTING)
    for found, wanted in [
        ((sex.declared, sex.outside, sex.missing), (200, 100, 100)),
        ((age.declared, age.outside, age.missing), (200, 100, 100)),
        ((day.declared, day.outside, day.missing), (0, 400, 0)),
    ]:
        np.testing.assert_allclose([value for value, _ in found], wanted, atol=5)
    assert day.later is not None
    assert day.later[0] == pytest.approx(400, abs=5)


def test_it_is_one_charge_of_what_was_asked_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, seen = ledger(tmp_path, 1.0), []
    inner: Any = getattr(answering, "add")  # noqa: B009

    def add(*given: Any) -> Any:
        seen.append(books.spent)
        return inner(*given)

    monkeypatch.setattr(answering, "add", add)
    first = check(FITTING, people(100), epsilon=0.25, ledger=books, release_id="fit")
    again = check(FITTING, people(100), epsilon=0.25, ledger=books, release_id="fit")
    assert seen == [0.25]
    assert first.values.tolist() == again.values.tolist()
    with pytest.raises(batchdp.BudgetError):
        check(FITTING, people(100), epsilon=1.0, ledger=books)


@pytest.mark.parametrize("rows", [1, 3])
def test_one_person_moves_the_measurements_by_what_is_charged(rows: int) -> None:
    """Every row that can be, put into the cells: a column's sum over the measurements is the stated sensitivity."""
    domain = {**FITTING, "privacy": {"unit": "person", "rows_per_unit": rows}}
    made = plan_check(domain)
    assert made.domain.privacy.rows_per_unit == rows
    measure = np.abs(np.asarray(made.strategy.measure))
    assert measure.sum(axis=0).max() == pytest.approx(made.strategy.sensitivity)


def test_names_that_a_check_would_use_itself(tmp_path: Path) -> None:
    odd = {"table": "fit", "columns": {"rows": {"values": ["a"]}, "fit0": {"dates": ["2024-01-01", "2024-01-02"]}}}
    odd["columns"]["0 later"] = {"range": [0, 1]}  # type: ignore[index]
    table = pd.DataFrame({"rows": ["a"] * 50, "fit0": ["2024-01-01"] * 50, "0 later": [0.5] * 50})
    found = fits(check(odd, table, epsilon=50.0, ledger=ledger(tmp_path)), odd)
    assert [round(one.declared[0], -1) for one in found] == [50, 50, 50]


def written(folder: Path, domain: str) -> list[str]:
    (folder / "domain.toml").write_text(domain)
    people(2_000).to_csv(folder / "people.csv", index=False)
    return ["check", str(folder / "domain.toml"), "-t", str(folder / "people.csv")]


SPELT = 'table = "people"\n[columns.sex]\nvalues = [" Male", "Female"]\n'


def test_the_command_says_what_would_go_wrong_and_writes_a_page(tmp_path: Path) -> None:
    ledger(tmp_path)
    page = tmp_path / "fit.html"
    spend = ["-l", str(tmp_path / "budget.db"), "-e", "10", "-o", str(page), "--yes"]
    done = run(*written(tmp_path, SPELT), *spend)
    assert done.code == 0, done.err
    said = re.search(r"sex: about (\d+) % of the rows have a value that is not declared", done.out)
    assert said is not None
    assert int(said[1]) == pytest.approx(100 * (people(2_000)["sex"] == "Male").mean(), abs=1)
    assert "<html" in page.read_text()


def test_exact_counts_are_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    asked = written(tmp_path, SPELT)
    done = run(*asked, "--exact")
    assert done.code == 1
    assert "on a terminal only" in done.err
    assert not done.out
    assert run(*asked, "--exact", "-o", str(tmp_path / "fit.html")).code == 2
    assert run(*asked).code == 2


def test_what_the_owner_sees_is_what_a_check_measures() -> None:
    counts = look(FITTING, people(300).assign(sex=["Male", "x", None] * 100))
    assert counts.counts.tolist()[0] == [100, 100, 100]
    assert "100" not in repr(counts)
