"""Plans whose answers will be denoised: weights of tables by simulation, and what raw answers lose."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp.errors import PlanError, PrivacyParameterError, StrategyError
from batchdp.plans.for_estimates import BY_SIZE, NOTHING, ORDERS, VARIANCES, choose_weights, weights_by
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget
from batchdp.release.consistency.release import estimates
from batchdp.release.denoise.tables import denoise_tables
from commands import run, succeeds
from test_components import structure
from test_denoised import exact, noisy_parts

SIZES = (20, 9, 6, 2)
DOMAIN: dict[str, Any] = {
    "table": "people",
    "privacy": {"max_rows": 20_000},
    "columns": {
        "age": {"integers": [0, 19], "other": "drop"},
        "sex": {"values": ["a", "b"], "other": "drop"},
        "region": {"values": list("abcdef"), "other": "drop"},
    },
}


def chosen_for(sizes: tuple[int, ...], rho: float, records: int, orders: Any = (1, 2)) -> Any:
    batch: Any = structure(batchdp.workloads.marginals(sizes, list(orders)))
    return choose_weights(batch, Budget(GAUSSIAN, rho), records, np.ones(len(batch.tables)))


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_noise_is_that_of_the_plan_for_the_weights(noise: Any, tmp_path: Path) -> None:
    """To the digit for Gaussian noise; of Laplace noise a release knows the tables' own variances alone."""
    batch: Any = structure(batchdp.workloads.marginals(SIZES, [0, 1, 2]))
    weights = weights_by((7.0, 7.0, 1.0), 0.5, batch)
    ours = VARIANCES[noise.name](batch, Budget(noise, 0.1))(weights)
    strategy = batchdp.optimize(replace(batch, weights=weights), privacy=noise.privacy, seconds=2)
    budget: dict[str, Any] = {noise.unit: 0.1}
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", **budget)
    release: Any = batchdp.answer(strategy, np.zeros((1, len(SIZES)), np.int64), ledger=ledger, **budget)
    found = estimates(release, list(range(len(batch.tables))))[1]
    assert set(ours) == set(found)
    for C, t in ours.items():
        most = 1.001 if noise == GAUSSIAN else 3
        assert 1 / most < t * found[C] < most


@pytest.mark.parametrize("rho", [1e-4, 0.5])
def test_weights_are_better_than_even_ones_and_always_the_same(rho: float) -> None:
    first, again = chosen_for(SIZES, rho, 5000), chosen_for(SIZES, rho, 5000)
    assert repr(first) == repr(again)
    assert first.orders[1] in ORDERS
    assert first.by_size in BY_SIZE
    assert first.distance <= first.without


def test_little_budget_asks_for_margins_first() -> None:
    assert chosen_for(SIZES, 1e-5, 5000).orders[1] > chosen_for(SIZES, 10.0, 5000).orders[1]


def test_tables_of_three_columns_have_weights_of_their_own() -> None:
    found = chosen_for((6, 5, 4, 3), 0.001, 5000, (1, 2, 3))
    assert len(found.orders) == 4
    assert found.orders[3] == 1
    assert found.distance < found.without


def test_columns_of_one_value_and_very_large_ones() -> None:
    assert np.isfinite(chosen_for((5, 1, 3), 0.1, 100).distance)
    assert chosen_for((2000, 2000), 0.1, 100).orders == ()


@pytest.mark.parametrize(("privacy", "budget"), [("pure", {"epsilon": 0.05}), ("zcdp", {"rho": 0.001})])
def test_a_plan_for_estimates_says_what_raw_answers_lose(privacy: Any, budget: Any, tmp_path: Path) -> None:
    asked: Any = {"marginals": 2, "privacy": privacy, "seconds": 0.5, **budget}
    usual = batchdp.plan(None, DOMAIN, **asked)
    made = batchdp.plan(None, DOMAIN, for_estimates=True, **asked)
    chosen: Any = made.options.for_estimates
    assert chosen.records == 20_000
    assert chosen.distance < chosen.without
    means = [np.mean(one.strategy.mean_variances()) for one in (made, usual)]
    assert chosen.raw_loss == pytest.approx((means[0] / means[1]) ** 0.5, rel=1e-6)
    assert chosen.raw_loss > 1.05
    assert chosen.sentence() in batchdp.outlook(made).summary()
    made.save(tmp_path / "a.plan")
    again = batchdp.load_plan(tmp_path / "a.plan")
    assert repr(again.options) == repr(made.options)
    np.testing.assert_array_equal(again.workload.weights, made.workload.weights)


def test_the_choice_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHDP_CACHE", str(tmp_path))
    asked: Any = {"marginals": 2, "privacy": "zcdp", "rho": 0.001, "for_estimates": True}
    first = batchdp.plan(None, DOMAIN, records=500, **asked)
    monkeypatch.delattr("batchdp.plans.making.choose_weights")
    assert repr(batchdp.plan(None, DOMAIN, records=500, **asked).options) == repr(first.options)
    with pytest.raises(NameError):
        batchdp.plan(None, DOMAIN, records=900, **asked)


def test_denoised_tables_are_closer_by_a_plan_for_them() -> None:
    sizes, budget = (30, 12, 8, 5), Budget(GAUSSIAN, 0.0002)
    batch: Any = structure(batchdp.workloads.marginals(sizes, [1, 2]))
    codes = np.random.default_rng(0).geometric([0.15, 0.3, 0.4, 0.5], size=(5000, 4)) - 1
    codes = np.minimum(codes, np.array(sizes) - 1)
    pairs = list(combinations(range(4), 2))
    truth = {A: exact(codes, sizes, A) for A in pairs}
    usual = 1 / batch.table_sizes()
    chosen = choose_weights(batch, budget, 5000, usual).weights(batch)
    assert chosen is not None
    distances = []
    for weights in (usual, chosen):
        t = VARIANCES["Gaussian"](batch, budget)(weights)
        off = 0.0
        for seed in range(5):
            noisy = noisy_parts(truth, t, np.random.default_rng(seed))
            found = denoise_tables(noisy, t, pairs, sizes, seed).fitted
            off += sum(float(np.abs(found.table(A) - truth[A]).sum()) for A in pairs)
        distances.append(off)
    assert distances[1] < 0.95 * distances[0]


def test_nothing_to_weigh_is_said() -> None:
    made = batchdp.plan("SELECT sex, COUNT(*) FROM people GROUP BY sex", DOMAIN, for_estimates=True)
    assert NOTHING in batchdp.outlook(made).summary()
    usual = batchdp.plan("SELECT sex, COUNT(*) FROM people GROUP BY sex", DOMAIN)
    np.testing.assert_array_equal(made.standard_errors(epsilon=1), usual.standard_errors(epsilon=1))


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"objective": "max"}, StrategyError, "leave out objective='max'"),
        ({"privacy": "auto", "delta": 1e-6}, StrategyError, "must be 'pure' or 'zcdp'"),
        ({"records": 0}, PlanError, "records"),
        ({"rho": 0.1}, PrivacyParameterError, "give epsilon instead"),
        ({"for_estimates": False, "records": 5}, PlanError, "for_estimates=True"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        batchdp.plan(None, DOMAIN, **{"marginals": 2, "for_estimates": True, **given})


def test_records_or_max_rows_are_needed() -> None:
    with pytest.raises(PlanError, match="max_rows"):
        batchdp.plan(None, {**DOMAIN, "privacy": {}}, marginals=2, for_estimates=True)


def test_the_command_and_the_page_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("domain.toml").write_text(
        'table = "people"\n[columns.sex]\nvalues = ["a", "b"]\n[columns.region]\nvalues = ["a", "b", "c", "d"]\n'
    )
    ask = ("plan", "-m", 2, "-d", "domain.toml", "-o", "a.plan", "--privacy", "zcdp", "--rho", 0.001)
    shown = " ".join(succeeds(*ask, "--for-estimates", "--records", 3000).split())
    assert "Weighed for estimates from some 3,000 records" in shown
    assert "at ρ = 0.001" in shown
    told = json.loads(succeeds(*ask, "--for-estimates", "--records", 3000, "--json"))
    assert told["for_estimates"]["raw_loss"] >= 1
    page = batchdp.report_plan(batchdp.load_plan("a.plan"), "plan.html").read_text(encoding="utf-8")
    assert "Raw answers lose by it" in page
    Path("wanted.toml").write_text("[accuracy]\nsex = 10\n")
    refused = run(*ask, "--for-estimates", "--records", 3000, "--accuracy", "wanted.toml")
    assert refused.code != 0
    assert "--for-estimates" in refused.err
