"""Strategies of one's own batches go through files and come back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import Ledger, MatrixWorkload, StrategyError, archive, load_strategy, optimize, workloads
from batchdp.plans.strategy_file import FORMAT

RNG = np.random.default_rng(7)
IN_BLOCKS = MatrixWorkload(
    np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1.0]]), ["a", "b", "c"], weights=[1, 2, 3], blocks=[2, 2]
)
PAIRS: list[Any] = [{0: np.tri(30), 1: np.tri(40)}, {1: np.tri(40), 2: np.eye(50)}, {(0, 2): RNG.random((4, 1500))}]
BATCHES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a matrix": (workloads.prefix(12), {"seconds": 0.3}),
    "blocks, names and weights": (IN_BLOCKS, {"seconds": 0.3}),
    "Gaussian noise": (workloads.prefix(12), {"privacy": "zcdp"}),
    "small products": (workloads.products((3, 4), [[np.tri(3), None], [None, np.eye(4)]]), {"seconds": 0.3}),
    "whole tables": (workloads.marginals((10,) * 12, [1, 2]), {"privacy": "zcdp"}),
    "whole tables, Laplace noise": (workloads.marginals((10,) * 12, [1, 2]), {}),
    "joint factors": (workloads.products((30, 40, 50), PAIRS), {"privacy": "zcdp", "seconds": 0.3}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_strategies_come_back_as_they_were(name: str, tmp_path: Path) -> None:
    batch, options = BATCHES[name]
    strategy = optimize(batch, **options)
    strategy.save(tmp_path / "one.strategy")
    found = load_strategy(tmp_path / "one.strategy")
    assert type(found) is type(strategy)
    assert (found.method, found.measurements, found.privacy) == (
        strategy.method,
        strategy.measurements,
        strategy.privacy,
    )
    assert (found.total, found.limit) == pytest.approx((strategy.total, strategy.limit), rel=1e-9)
    assert [one.name for one in found.workload.tables] == [one.name for one in strategy.workload.tables]
    assert np.allclose(found.mean_variances(), strategy.mean_variances(), rtol=1e-9)


def test_a_strategy_from_a_file_answers(tmp_path: Path) -> None:
    optimize(workloads.prefix(4), seconds=0.2).save(tmp_path / "one.strategy")
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=2e3)
    release = batchdp.answer(load_strategy(tmp_path / "one.strategy"), [1, 2, 3, 4], epsilon=1e3, ledger=ledger)
    assert release.values == pytest.approx([1, 3, 6, 10], abs=0.3)


def test_what_is_no_strategy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.strategy"
    optimize(workloads.prefix(4), seconds=0.2).save(path)
    with pytest.raises(batchdp.PlanError, match="format"):
        batchdp.load_plan(path)
    header, arrays = archive.load(path, FORMAT, StrategyError, "strategy")
    for change, said in (
        ({"workload": {**header["workload"], "names": ["a"]}}, "names"),
        ({"workload": {"kind": "x"}}, "not a strategy"),
        ({"surprise": 1}, "surprise"),
    ):
        archive.save(path, {**header, **change}, arrays, StrategyError)
        with pytest.raises(StrategyError, match=said):
            load_strategy(path)
    archive.save(path, header, {**arrays, "L_data": 2 * arrays["L_data"]}, StrategyError)
    with pytest.raises(StrategyError, match="misses the workload"):
        load_strategy(path)
    with pytest.raises(StrategyError, match="cannot read"):
        load_strategy(tmp_path / "none")


def test_a_comparison_has_a_page_in_a_notebook() -> None:
    methods = {name: batchdp.STRATEGIES[name] for name in ("noise-on-data", "noise-on-results")}
    shown = batchdp.compare(workloads.prefix(4), methods)._repr_html_()
    assert shown.index("noise-on-data") < shown.index("noise-on-results")
    assert "expected squared error at ε = 1" in shown
