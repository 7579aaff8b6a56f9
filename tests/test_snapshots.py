"""Which state of a table a release is about: said once, kept by the release, its file, the ledger and the dossier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from batchdp import BudgetError, Ledger, ReleaseError, answer, dossier, load_release, verify
from batchdp.release.verify import check_charged, check_ledger
from commands import make_study, succeeds
from kinds import MAKERS, kind


@pytest.mark.parametrize("name", MAKERS)
def test_the_label_is_kept_by_release_file_ledger_and_dossier(name: str, tmp_path: Path) -> None:
    own, ledger = kind(name), kind(name).ledger(tmp_path)
    done = answer(own.strategy, own.data, **own.budget, ledger=ledger, release_id="r", snapshot="2026-11")
    plain = answer(own.strategy, own.data, **own.budget, ledger=ledger)
    assert [entry.snapshot for entry in ledger.history()] == ["2026-11", None]
    assert (done.certificate.snapshot, plain.certificate.snapshot) == ("2026-11", "")
    assert "snapshot" not in plain.certificate.header()  # files without a label stay as they were
    done.save(tmp_path / "r.release")
    loaded = load_release(tmp_path / "r.release")
    assert loaded.certificate == done.certificate
    assert check_charged(loaded, ledger)
    check_ledger(ledger)
    dossier(loaded, tmp_path / "out", ledger=ledger)
    verify(tmp_path / "out", ledger=ledger)
    again = answer(own.strategy, own.data, **own.budget, ledger=ledger, release_id="r", snapshot="2026-11")
    assert again.certificate == done.certificate


def test_another_label_is_refused(tmp_path: Path) -> None:
    own = kind("pair, Laplace")
    ledger = own.ledger(tmp_path)
    done = answer(own.strategy, own.data, **own.budget, ledger=ledger, release_id="r", snapshot="2026-11")
    for other in ("2026-12", None):
        with pytest.raises(BudgetError, match=r"used at .* with snapshot='2026-11'"):
            answer(own.strategy, own.data, **own.budget, ledger=ledger, release_id="r", snapshot=other)
        edited = replace(done, certificate=replace(done.certificate, snapshot=other or ""))
        with pytest.raises(ReleaseError, match="says snapshot="):
            check_charged(edited, ledger)
    for odd in ("", "two\nlines", "x" * 1001):
        with pytest.raises(BudgetError, match=r"snapshot=.* printable"):
            answer(own.strategy, own.data, **own.budget, ledger=ledger, snapshot=odd)
    assert len(ledger.history()) == 1


def test_charges_of_all_snapshots_add_up(tmp_path: Path) -> None:
    """Somebody who is in every snapshot loses the sum, and the ledger refuses the month that is too much."""
    own = kind("pair, Laplace")
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.5)
    for month in ("2026-10", "2026-11", "2026-12"):
        answer(own.strategy, own.data, epsilon=0.5, ledger=ledger, snapshot=month)
    assert (ledger.spent, ledger.remaining) == (1.5, 0.0)
    with pytest.raises(BudgetError, match="more than is left"):
        answer(own.strategy, own.data, epsilon=0.5, ledger=ledger, snapshot="2027-01")


def test_the_command_line_says_it(tmp_path: Path) -> None:
    folder = tmp_path
    make_study(folder)
    given = ("answer", folder / "pure.plan", "-t", folder / "visits.csv", "-e", 0.25, "-l", folder / "budget.db", "-y")
    succeeds(*given, "-o", folder / "nov.csv", "--snapshot", "2026-11")
    assert load_release(folder / "nov.release").certificate.snapshot == "2026-11"
    assert "2026-11" in succeeds("budget", folder / "budget.db")


def test_a_year_is_priced_before_it_begins(tmp_path: Path) -> None:
    make_study(tmp_path)
    given = (
        "plan",
        tmp_path / "queries.sql",
        "-d",
        tmp_path / "domain.toml",
        "-o",
        tmp_path / "p.plan",
        "--seconds",
        1,
    )
    said = succeeds(*given, "-e", 0.1, "--releases", 12)
    assert "12 releases, each at ε = 0.1 and as accurate as above, cost ε = 1.2 together" in said
    assert json.loads(succeeds(*given, "-e", 0.1, "--releases", 12, "--json"))["total"] == 1.2
    assert "together" not in succeeds(*given, "-e", 0.1)
