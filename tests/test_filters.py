"""Ledgers of (ε, δ), shares, one relation per ledger, and what is carried over from one promise to another."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import BudgetError, Ledger, LedgerError, PrivacyParameterError, answer, optimize, workloads
from batchdp.accounting import epsilon_of_rho, gaussian_delta, gaussian_mu2, laplace_rho
from batchdp.ledger import Reservation, StoredRelease
from batchdp.mechanism.conversion import rho_for
from batchdp.privacy import shortest
from batchdp.release.verify import check_charged, check_ledger
from commands import refused, succeeds
from kinds import MAKERS, kind
from test_ledger import ASKED, rechained

SCALE = 2.0**30
PURE = optimize(workloads.prefix(4))
GAUSSIAN = optimize(workloads.prefix(4), privacy="zcdp")
COUNTS = [3, 1, 4, 1]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)


def spend(ledger: Ledger, name: str, *, scale: float | None = SCALE, **asked: Any) -> Reservation:
    reservation = ledger.reserve(name, **asked, **ASKED, scale=scale)
    assert isinstance(reservation, Reservation)
    return reservation


def test_a_third_is_nowhere_said_to_be_less(tmp_path: Path) -> None:
    own = Ledger.create(tmp_path / "own.db", epsilon=1)
    spend(own, "a", epsilon=Fraction(1, 3))
    said = (own.history()[0].requested, own.epsilon_at(1e-6), own.spent)
    assert [shortest(one) >= Fraction(1, 3) for one in said] == [True] * 3


def test_what_another_noise_may_still_be_asked_for_is_said(ledger: Ledger) -> None:
    spend(ledger, "a", epsilon=0.3)
    with pytest.raises(BudgetError, match="what is left can be asked for as epsilon alone"):
        spend(ledger, "b", rho=0.001)


# ── the promise ──


@pytest.mark.parametrize("gaussian", [None, 0, 0.25, Fraction(1, 3), 1])
def test_the_filters_keep_the_promise_and_use_all_of_delta(gaussian: Any, tmp_path: Path) -> None:
    account = Ledger.create(tmp_path / "budget.db", epsilon=0.5, delta=1e-9, gaussian=gaussian).account
    assert account.is_sound()
    assert sum(one.delta for one in account.filters.values()) <= Fraction(1, 10**9)
    more = 1 + Fraction(1, 10**9)
    for unit, holds in (
        ("mu2", lambda total, delta: gaussian_delta(total, Fraction(1, 2)) <= delta),
        ("rho", lambda total, delta: epsilon_of_rho(total, delta) <= Fraction(1, 2)),
    ):
        one = account.filters.get(unit)  # type: ignore[call-overload]
        assert (one is None) == (gaussian == {"mu2": 0, "rho": 1}[unit])
        if one is not None:
            assert holds(one.total, one.delta)
            assert not holds(one.total * more, one.delta)
    assert account.filters["epsilon"].total == Fraction(1, 2)


def test_what_is_no_promise_is_refused(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": 1.0, "delta": 0}, "delta=0"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta=1.5"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta=nan"),
        ({"rho": 1.0, "delta": 1e-6}, "goes with epsilon="),
        ({"delta": 1e-6}, "exactly one"),
        ({"epsilon": 1.0, "gaussian": 0.5}, "give delta too"),
        ({"epsilon": 1.0, "delta": 1e-6, "gaussian": 1.1}, "gaussian=1.1"),
        ({"epsilon": 1.0, "delta": 1e-6, "gaussian": True}, "gaussian=True"),
        ({"epsilon": 1.0, "neighbours": "swap"}, "neighbours='swap'"),
    ]
    for given, message in wrong:
        with pytest.raises(PrivacyParameterError, match=message):
            Ledger.create(tmp_path / "budget.db", **given)
    assert not (tmp_path / "budget.db").exists()


def test_a_ledger_is_used_up_by_either_noise_alone(tmp_path: Path) -> None:
    for name, asked in (("pure", {"epsilon": 1.0}), ("gaussian", {"rho": rho_for(1.0, 1e-6)})):
        ledger = Ledger.create(tmp_path / name, epsilon=1.0, delta=1e-6)
        assert (ledger.unit, ledger.delta, ledger.total, ledger.spent) == ("epsilon", 1e-6, 1.0, 0.0)
        assert ledger.remaining == 1.0
        assert ledger.remaining_for("pure") == 1.0
        assert ledger.remaining_for("zcdp") == rho_for(1.0, 1e-6)
        spend(ledger, "all", **asked)
        assert 0.999 < ledger.spent <= 1.0
        assert ledger.remaining < 0.05  # of ε, in squares: a thousandth of μ² is left
        with pytest.raises(BudgetError, match="is more than is left"):
            spend(ledger, "more", epsilon=0.05)
        assert ledger.verify() == ledger.head


def test_both_noises_together_are_counted_in_rho(ledger: Ledger) -> None:
    spend(ledger, "gaussian", rho=0.005)
    assert ledger.standing().unit == "mu2"
    spend(ledger, "laplace", epsilon=0.1)
    total = Fraction(5, 1000) + laplace_rho(Fraction(1, 10), Fraction(SCALE))
    assert ledger.account.admitting == ["rho"]
    assert ledger.account.sum("rho") == total
    assert ledger.account.sum("epsilon") is None
    assert [entry.charged for entry in ledger.history()] == [0.005, float(total - Fraction(5, 1000))]
    left = ledger.remaining_for("zcdp")
    with pytest.raises(BudgetError, match=r"of rho 0\.0149\d+… is spent, .* is requested"):
        spend(ledger, "too much", rho=left * 1.001)
    spend(ledger, "the rest", rho=left)
    assert ledger.remaining_for("zcdp") < 1e-15
    assert 0.99 < ledger.spent <= 1.0
    assert ledger.verify() == ledger.head


def test_noise_of_which_nothing_is_known_is_charged_by_its_guarantee_alone(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, "some", rho=0.001, scale=None)
    assert ledger.account.admitting == ["rho"]
    books = Ledger.create(tmp_path / "rho.db", rho=1)
    assert spend(books, "any", epsilon=1.0, scale=None).charged == 0.5
    assert spend(books, "laplace", epsilon=1.0).charged == pytest.approx(math.exp(-1))
    only = Ledger.create(tmp_path / "gaussian.db", epsilon=1.0, delta=1e-6, gaussian=1)
    with pytest.raises(BudgetError, match="cannot be charged to a ledger in epsilon or mu2"):
        spend(only, "some", rho=0.001, scale=None)
    for scale in (0.0, 63.9, math.nan, math.inf, True, "64"):
        with pytest.raises(BudgetError, match="scale="):
            spend(books, "bad", epsilon=0.1, scale=scale)  # type: ignore[arg-type]


def test_releases_of_every_noise_are_charged_by_what_was_drawn(ledger: Ledger) -> None:
    done = answer(GAUSSIAN, COUNTS, epsilon=0.5, delta=1e-6, ledger=ledger, release_id="gaussian")
    assert done.epsilon_at(1e-6) <= 0.5 * (1 + 1e-12)
    assert done.certificate.budget == rho_for(0.5, 1e-6)
    (entry,) = ledger.history()
    assert entry.scale == done.certificate.least_scale == min(one.scale for one in done.certificate.groups)
    due = gaussian_mu2(shortest(done.certificate.budget), Fraction(entry.scale))
    assert ledger.account.sum("mu2") == due
    assert float(due) == pytest.approx(2 * done.certificate.budget, rel=1e-3)
    pure = answer(PURE, COUNTS, epsilon=0.05, delta=1e-6, ledger=ledger)  # pure noise promises ε with every δ
    assert ledger.history()[1].scale == pure.certificate.least_scale
    assert ledger.history()[1].charged < 0.05**2 / 2
    check_ledger(ledger)
    again = answer(GAUSSIAN, COUNTS, epsilon=0.5, delta=1e-6, ledger=ledger, release_id="gaussian")
    assert np.array_equal(again.values, done.values)
    assert len(ledger.history()) == 2


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_release_is_granted_and_found_again(name: str, ledger: Ledger) -> None:
    made = kind(name)
    ledger.share("a", 0.5)
    done = answer(made.strategy, made.data, epsilon=0.3, delta=1e-6, ledger=ledger, share="a", release_id="one")
    assert done.epsilon_at(1e-6) <= 0.3
    (entry,) = ledger.history()
    is_shaped = done.certificate.noise.name == "K-norm"
    assert (entry.scale is None) == is_shaped
    assert (entry.relation, entry.share) == ("add-remove", "a")
    implied = 0.3**2 / 2 if made.strategy.noise.is_pure else done.certificate.budget
    part = float(ledger.account.sum("rho") or 0) / implied
    is_laplace = done.certificate.noise.name == "Laplace"
    assert 0.9 < part < 0.92 if is_laplace else part == pytest.approx(1, rel=1e-12)
    check_ledger(ledger)
    assert check_charged(done, ledger)
    again = answer(made.strategy, made.data, epsilon=0.3, delta=1e-6, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, done.values)


def test_variance_is_an_eighth_less_than_through_rho(tmp_path: Path) -> None:
    exact = Ledger.create(tmp_path / "exact.db", epsilon=1.0, delta=1e-6)
    done = answer(GAUSSIAN, COUNTS, epsilon=1.0, delta=1e-6, ledger=exact)
    through = Ledger.create(tmp_path / "rho.db", rho=0.02435597)  # whose (ε, δ) by ρ alone is (1, 1e-6)
    other = answer(GAUSSIAN, COUNTS, rho=0.02435597, ledger=through)
    assert 1 - np.max(done.standard_errors**2 / other.standard_errors**2) >= 0.129


# ── one relation ──


def test_a_ledger_is_about_one_relation(tmp_path: Path) -> None:
    open_one = Ledger.create(tmp_path / "open.db", epsilon=3.0)
    spend(open_one, "unsaid", epsilon=0.1, scale=None)
    answer(PURE, COUNTS, epsilon=0.1, ledger=open_one, neighbours="replace")
    spend(open_one, "unsaid, too", epsilon=0.1, scale=None)
    fixed = Ledger.create(tmp_path / "fixed.db", epsilon=3.0, neighbours="add-remove")
    for ledger, other in ((open_one, "add-remove"), (fixed, "replace")):
        head = ledger.head
        for asked in (
            lambda: answer(PURE, COUNTS, epsilon=0.1, ledger=ledger, neighbours=other),  # type: ignore[arg-type] # noqa: B023
            lambda: ledger.reserve("other", epsilon=0.1, **ASKED, neighbours=other),  # type: ignore[arg-type] # noqa: B023
        ):
            with pytest.raises(BudgetError, match=f"neighbours='{other}' cannot be charged here"):
                asked()
        assert ledger.head == ledger.verify() == head
    assert [entry.relation for entry in open_one.history()] == [None, "replace", "replace"]
    with pytest.raises(PrivacyParameterError, match="neighbours='swap'"):
        fixed.reserve("other", epsilon=0.1, **ASKED, neighbours="swap")  # type: ignore[arg-type]


# ── shares ──


@pytest.fixture(params=["epsilon", "rho", "both"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    total: Any = {"epsilon": {"epsilon": 1}, "rho": {"rho": 1}, "both": {"epsilon": 1, "delta": 1e-6}}[request.param]
    ledger = Ledger.create(tmp_path / "shared.db", **total)
    ledger.share("a", 0.4)
    ledger.share("b", Decimal("0.3"))
    return ledger


def test_a_share_is_spent_and_no_more(shared: Ledger) -> None:
    unit: Any = shared.unit
    assert {name: one[0] for name, one in shared.shares.items()} == {"a": 0.4, "b": 0.3}
    spend(shared, "a1", **{unit: 0.4 if shared.delta is None or unit == "epsilon" else 0.001}, share="a")
    for share, amount in (("a", 1e-9), ("b", 0.31), (None, 0.31)):
        with pytest.raises(BudgetError, match="is more than is left"):
            spend(shared, "too much", **{unit: amount}, share=share)
    spend(shared, "b1", **{unit: 0.3}, share="b")
    spend(shared, "rest", **{unit: 0.3})
    assert shared.standing().remaining == 0
    assert [entry.share for entry in shared.history()] == ["a", "b", None]
    assert shared.verify() == shared.head


def test_gaussian_noise_has_its_share_of_every_currency(ledger: Ledger) -> None:
    ledger.share("a", 0.4)
    whole = ledger.account.filters["mu2"].total
    spend(ledger, "a1", rho=ledger.remaining_for("zcdp", share="a"), share="a")
    assert whole * Fraction("0.399") < (ledger.account.sum("mu2", "a") or 0) <= whole * Fraction("0.4")
    with pytest.raises(BudgetError, match=r"of share 'a' is spent"):
        spend(ledger, "a2", rho=0.001, share="a")
    spend(ledger, "rest", rho=ledger.remaining_for("zcdp"))
    assert (ledger.account.sum("mu2") or 0) <= whole
    assert ledger.verify() == ledger.head


def test_shares_never_add_up_to_more_and_never_take_back_what_was_spent(shared: Ledger) -> None:
    unit: Any = shared.unit
    for name, amount, message in (("c", 0.31, "is more than is free"), ("a", 0.71, "is more than is free")):
        with pytest.raises(BudgetError, match=message):
            shared.share(name, amount)
    spend(shared, "a1", **{unit: 0.2}, share="a")
    spend(shared, "rest", **{unit: 0.25})
    for name, amount in (("a", 0.1), ("b", 0.4)):
        with pytest.raises(BudgetError, match="less than was spent already"):
            shared.share(name, amount)
    head = shared.share("a", 0.2)
    assert head == shared.head
    shared.share("b", 0)
    spend(shared, "all", **{unit: 0.55})
    assert shared.standing().remaining == 0
    with pytest.raises(BudgetError, match="share='c' is not in this ledger, which has 'a', 'b'"):
        spend(shared, "c1", **{unit: 0.1}, share="c")
    for bad in (-0.1, math.nan, True, "0.1"):
        with pytest.raises(PrivacyParameterError, match=f"{unit}="):
            shared.share("a", bad)  # type: ignore[arg-type]
    assert shared.verify() == shared.head


def test_an_answer_is_taken_from_a_share(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "shared.db", epsilon=1)
    ledger.share("a", 0.25)
    done = answer(PURE, COUNTS, epsilon=0.25, ledger=ledger, share="a", release_id="one")
    with pytest.raises(BudgetError, match="of share 'a' is spent"):
        answer(PURE, COUNTS, epsilon=0.25, ledger=ledger, share="a")
    again = answer(PURE, COUNTS, epsilon=0.25, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, done.values)
    assert ledger.spent == 0.25


def test_threads_race_for_shares(shared: Ledger) -> None:
    unit: Any = shared.unit

    def attempt(i: int) -> bool:
        try:
            spend(shared, str(i), **{unit: 0.1}, share=("a", "b", None)[i % 3])
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        granted = list(pool.map(attempt, range(18)))
    assert [sum(granted[i::3]) for i in range(3)] == [4, 3, 3]
    assert shared.standing().remaining == 0
    assert shared.verify() == shared.head


# ── forged entries ──


def _edit(field: str, change: Callable[[Any], None]) -> Callable[[dict[str, Any]], None]:
    def edit(row: dict[str, Any]) -> None:
        content = json.loads(row[field])
        change(content)
        row[field] = json.dumps(content, sort_keys=True, separators=(",", ":"))

    return edit


@pytest.mark.parametrize(
    ("number", "edit", "wrong"),
    [
        (0, _edit("charges", lambda one: one["filters"]["mu2"].__setitem__(0, "0.0561")), "entry 0 does not add up"),
        (0, _edit("charges", lambda one: one.update(delta="0.0000001")), "entry 0 does not add up"),
        (0, _edit("charges", lambda one: one["filters"].update(x=["1", "0"])), "does not say what was spent"),
        (0, _edit("charges", lambda one: one["filters"]["rho"].__setitem__(0, "-1")), "does not say what was spent"),
        (2, _edit("charges", lambda one: one.update(mu2="0.001")), "entry 2 does not add up"),
        (2, _edit("account", lambda one: one["spent"]["a"].update(mu2="0.001")), "entry 2 does not add up"),
        (2, _edit("account", lambda one: one["shares"].update(a="0.5")), "entry 2 does not add up"),
        (1, _edit("account", lambda one: one["shares"].update(a="1.5")), "more than is free|does not add up"),
        (2, lambda row: row.update(account="[]"), "entry 2 does not say what was spent"),
        (2, lambda row: row.update(account=None), "entry 2 does not add up|does not say"),
        (2, lambda row: row.update(scale=1.0), "entry 2 was changed"),
        (3, lambda row: row.update(relation="replace"), "entry 3 is about other neighbours"),
        (3, lambda row: row.update(share="b"), "is not in this ledger|does not add up"),
    ],
)
def test_forged_amounts_are_refused(
    number: int, edit: Callable[[dict[str, Any]], None], wrong: str, ledger: Ledger
) -> None:
    ledger.share("a", 0.4)
    for i in range(2):
        ledger.reserve(str(i), rho=0.002, **ASKED, scale=SCALE, neighbours="add-remove", share="a")
    ledger.verify()
    rechained(lambda rows: edit(rows[number]), ledger)
    with pytest.raises((LedgerError, BudgetError), match=wrong):
        ledger.verify()


# ── from ε or ρ to (ε, δ) ──


def test_a_ledger_of_epsilon_becomes_one_of_epsilon_and_delta(tmp_path: Path) -> None:
    old = Ledger.create(tmp_path / "old.db", epsilon=1)
    done = answer(PURE, COUNTS, epsilon=0.25, ledger=old, release_id="one")
    spend(old, "any", epsilon=0.25, scale=None)
    head = old.head
    ledger = Ledger.migrate(old.path, tmp_path / "new.db", delta=1e-6)
    assert (ledger.total, ledger.delta) == (1.0, 1e-6)
    assert ledger.account.sum("epsilon") == Fraction(1, 2)
    by_rho = laplace_rho(Fraction(1, 4), Fraction(done.certificate.least_scale or 0)) + Fraction(1, 32)
    assert ledger.account.sum("rho") == by_rho
    assert ledger.account.admitting == ["epsilon"]  # Σρ is beyond its total already
    assert ledger.verify(head) == ledger.head != head
    check_ledger(ledger)
    again = answer(PURE, COUNTS, epsilon=0.25, ledger=ledger, release_id="one")
    assert np.array_equal(again.values, done.values)
    with pytest.raises(BudgetError, match="is more than is left"):
        spend(ledger, "gaussian", rho=0.0001)
    spend(ledger, "rest", epsilon=0.5)
    with pytest.raises(LedgerError, match="was carried over"):
        Ledger.open(old.path)
    with pytest.raises(LedgerError, match="is not carried over to another promise"):
        Ledger.migrate(ledger.path, tmp_path / "newer.db", delta=1e-5)
    assert ledger.verify() == ledger.head


def test_a_ledger_of_rho_becomes_one_of_epsilon_and_delta(tmp_path: Path) -> None:
    old = Ledger.create(tmp_path / "old.db", rho=0.02)
    spend(old, "gaussian", rho=0.01)
    ledger = Ledger.migrate(old.path, tmp_path / "new.db", delta=1e-6)
    account, half = ledger.account, Fraction(1, 2 * 10**6)
    assert account.total == epsilon_of_rho(Fraction(2, 100), half)
    assert {unit: one.delta for unit, one in account.filters.items()} == {"mu2": half, "rho": half}
    assert account.filters["rho"].total == Fraction(2, 100)  # whatever the old ledger would grant, and no more
    assert account.sum("mu2") == gaussian_mu2(Fraction(1, 100), Fraction(SCALE))
    spend(ledger, "rest", rho=ledger.remaining_for("zcdp"))
    assert 0.0125 < ledger.history()[1].requested < 0.0135  # by the exact profile, an eighth more of ρ in all
    assert ledger.verify() == ledger.head
    assert [entry.release_id for entry in ledger.history()] == ["gaussian", "rest"]
    mixed = Ledger.create(tmp_path / "mixed.db", rho=0.02)
    spend(mixed, "gaussian", rho=0.01)
    spend(mixed, "laplace", epsilon=0.1)
    carried = Ledger.migrate(mixed.path, tmp_path / "carried.db", delta=1e-6)
    assert carried.account.admitting == ["rho"]
    assert carried.exact_remaining == Fraction(1, 100) - laplace_rho(Fraction(1, 10), Fraction(SCALE))
    shared = Ledger.create(tmp_path / "shared.db", rho=0.02)
    shared.share("a", 0.01)
    with pytest.raises(LedgerError, match="or shares, is not carried over"):
        Ledger.migrate(shared.path, tmp_path / "x.db", delta=1e-6)
    assert not (tmp_path / "x.db").exists()
    assert Ledger.open(shared.path).verify() == shared.head


# ── for people ──


def test_the_commands_take_delta_and_shares(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    shown = succeeds("budget", path, "--create", "--epsilon", "1", "--delta", "1e-6", "--share", "a=0.4")
    for part in ("(ε, δ) = (1, 1e-06)", "far below one over the number of people", "Gaussian noise alone: μ² = 0.056"):
        assert part in shown
    assert "Share a: ε = 0.4 of 1" in shown
    answer(GAUSSIAN, COUNTS, epsilon=0.3, delta=1e-6, ledger=path, share="a", release_id="one")
    shown = succeeds("budget", path, "--share", "a=0.5")
    assert "So far: (ε, δ) = (0.29" in shown
    assert ", ρ = 0.0029" in shown
    assert ", μ = 0.07" in shown
    facts = json.loads(succeeds("budget", path, "--json"))
    assert (facts["unit"], facts["delta"], facts["total"]) == ("epsilon", 1e-6, 1.0)
    assert facts["shares"]["a"][0] == 0.5
    assert facts["filters"]["epsilon"]["left"] is None
    assert "not a name and an amount" in refused("budget", path, "--share", "a", code=2)
    assert "only set with --create" in refused("budget", path, "--delta", "1e-6", code=2)
    assert "goes with --epsilon" in refused(
        "budget", tmp_path / "x", "--create", "--rho", "1", "--delta", "1e-6", code=2
    )
    old = Ledger.create(tmp_path / "old.db", rho=0.5)
    shown = succeeds("budget", old.path, "--migrate", tmp_path / "new.db", "--delta", "1e-6")
    assert "(ε, δ) = (5.36" in shown


def test_pages_and_notebooks_say_what_is_promised(ledger: Ledger, tmp_path: Path) -> None:
    done = answer(GAUSSIAN, COUNTS, epsilon=0.5, delta=1e-6, ledger=ledger)
    page = batchdp.report(done, tmp_path / "page.html", ledger=ledger).read_text(encoding="utf-8")
    assert "(ε, δ) = (1, 1e-06)" in page
    assert "far below one over the number of people" in page
    assert f"ρ = {done.certificate.budget:.6g}, μ = " in page
    assert "(ε, δ) = (1, 1e-06)" in ledger._repr_html_()
    assert "for (ε, δ) = (1, 1e-06) spent" in repr(ledger)
    assert ledger.plot().axes[0].get_xlabel().startswith("μ² spent of 0.056")
    assert ledger.epsilon_at(1e-6) == pytest.approx(done.epsilon_at(1e-6))


@pytest.mark.slow
def test_granting_takes_no_longer_after_thousands_of_spends(tmp_path: Path) -> None:
    """benchmarks/ledger.py has 30 000."""
    ledger = Ledger.create(tmp_path / "long.db", epsilon=100.0, delta=1e-6)
    ledger.share("a", 50)
    times = []
    for i in range(600):
        start = time.process_time()
        spend(ledger, str(i), rho=1e-5, share=("a", None)[i % 2])
        times.append(time.process_time() - start)
    assert np.median(times[-100:]) < 3 * np.median(times[:100]) + 0.005


def test_a_repeat_of_a_charge_costs_nothing_in_any_currency(ledger: Ledger) -> None:
    stored = ledger.complete(spend(ledger, "one", rho=0.002), b"output")
    again = ledger.reserve("one", rho=0.002, **ASKED, scale=SCALE)
    assert isinstance(again, StoredRelease)
    assert again == stored
    with pytest.raises(BudgetError, match="was charged"):
        ledger.reserve("one", rho=0.002, **ASKED, scale=64.0)  # less noise, and more to pay


@pytest.mark.parametrize(("rho", "delta"), [(1e-7, 1e-3), (1e-20, 1e-6)])
def test_a_ledger_that_delta_alone_covers_stays_as_it_was(rho: float, delta: float, tmp_path: Path) -> None:
    old = Ledger.create(tmp_path / "old.db", rho=rho)
    with pytest.raises(LedgerError, match="give a smaller delta"):
        Ledger.migrate(tmp_path / "old.db", tmp_path / "new.db", delta=delta)
    assert Ledger.open(tmp_path / "old.db").total == old.total
    assert not (tmp_path / "new.db").exists()
