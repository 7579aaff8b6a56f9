from __future__ import annotations

from pathlib import Path

import pytest

from batchdp import Ledger
from batchdp.ledger.books import DELTAS, MOST_CURVES, list_curves
from batchdp.mechanism.conversion import epsilon_at, epsilons_at
from batchdp.reports.plots import APART, _apart
from commands import refused, succeeds


def test_every_spend_and_all_together_by_the_smaller_of_both_ways(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", rho=3.0)
    assert list_curves(ledger.history()) == ()
    ledger.reserve("pure", epsilon=0.4, plan_digest="x", table="t")
    ledger.reserve("zcdp", rho=0.1, plan_digest="x", table="t")
    pure, zcdp, both = list_curves(ledger.history())
    assert (pure.name, zcdp.name, both.name) == ("pure", "zcdp", "all 2")
    assert pure.epsilons == pytest.approx([min(0.4, epsilon_at(0.08, delta)) for delta in DELTAS], rel=1e-12)
    assert zcdp.epsilons == tuple(epsilons_at(0.1, DELTAS))
    assert both.epsilons == pytest.approx([epsilon_at(0.18, delta) for delta in DELTAS], rel=1e-12)
    assert both.epsilons[3] == pytest.approx(ledger.epsilon_at(1e-6), rel=1e-7)  # charged in billionths, rounded up


def test_many_pure_releases_are_never_said_to_cost_more_than_their_sum(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=100.0)
    for number in range(MOST_CURVES + 5):
        ledger.reserve(f"release {number}", epsilon=0.1, plan_digest="x", table="t")
    found = list_curves(ledger.history())
    assert len(found) == MOST_CURVES + 1
    assert found[0].name == "release 5"
    assert max(found[-1].epsilons) <= 2.5 * (1 + 1e-12)
    assert found[-1].epsilons[0] == pytest.approx(epsilon_at(0.125, 1e-3), rel=1e-12)
    assert found[-1].epsilons[0] < 1.6


def test_names_stand_apart() -> None:
    places = _apart([0.3, 0.3, 0.1, 0.31])
    assert sorted(places)[0] == 0.1
    assert all(b - a >= APART - 1e-12 for a, b in zip(sorted(places), sorted(places)[1:], strict=False))


def test_the_command_draws_them(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    succeeds("budget", ledger.path, "--plot", tmp_path / "none.svg")  # nothing spent yet
    ledger.reserve("$release$ <&>", epsilon=0.4, plan_digest="x", table="t")
    for ending, beginning in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        succeeds("budget", ledger.path, "--plot", tmp_path / f"together{ending}")
        assert (tmp_path / f"together{ending}").read_bytes().startswith(beginning)
    assert "must be one of" in refused("budget", ledger.path, "--plot", tmp_path / "x.html")
    assert ledger.verify()
