"""What is proven about a plan's strategy is kept in its file, and believed only if it can be true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchdp import MatrixWorkload, PlanError, archive, load_plan, plan
from batchdp.plans import Plan
from batchdp.plans import file as plan_files
from batchdp.strategies import pair as strategies
from batchdp.strategies.bounds.convex import OptimalityBound
from batchdp.strategies.bounds.convex import certify as really_certify

DOMAIN: dict[str, Any] = {"table": "t", "columns": {"c": {"integers": [0, 9]}}}
SQL = "SELECT c, COUNT(*) AS n FROM t GROUP BY c; SELECT COUNT(*) AS few FROM t WHERE c < 4"
KINDS: list[dict[str, Any]] = [{}, {"objective": "max"}, {"privacy": "zcdp"}, {"max_cells": 4}]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[MatrixWorkload]:
    """The workloads that the bound on the sum is solved for."""
    seen: list[MatrixWorkload] = []

    def counted(workload: MatrixWorkload) -> OptimalityBound:
        seen.append(workload)
        return really_certify(workload)

    monkeypatch.setattr(strategies, "certify", counted)
    return seen


def made(**options: Any) -> Any:
    found: Plan = plan(SQL, DOMAIN, cache=False, seconds=0.2, **options)
    return found


@pytest.mark.parametrize("options", KINDS)
def test_what_is_proven_is_in_the_file_and_not_solved_again(
    options: dict[str, Any], tmp_path: Path, solved: list[MatrixWorkload]
) -> None:
    planned = made(prove=True, **options)
    budget = planned.strategy.noise.reference.arguments
    largest = planned.strategy.optimality_of_largest
    planned.save(tmp_path / "p")
    count = len(solved)
    loaded: Any = load_plan(tmp_path / "p").strategy
    assert loaded.lower_bound(**budget) == planned.strategy.lower_bound(**budget)
    assert loaded.largest_variance_bound(**budget) == planned.strategy.largest_variance_bound(**budget)
    assert np.array_equal(loaded.optimality.weights, planned.strategy.optimality.weights)
    assert loaded.optimality.outcome is planned.strategy.optimality.outcome
    assert loaded.optimality_of_largest.query_weights == pytest.approx(largest.query_weights)
    assert len(solved) == count


def test_nothing_is_solved_for_unless_it_is_asked_for(tmp_path: Path, solved: list[MatrixWorkload]) -> None:
    made().save(tmp_path / "p")
    assert not solved
    loaded: Any = load_plan(tmp_path / "p").strategy
    assert loaded.lower_bound(epsilon=1.0) > 0
    assert len(solved) == 1


def test_a_remembered_plan_learns_its_bound_once(cache_folder: Path, solved: list[MatrixWorkload]) -> None:
    plan(SQL, DOMAIN, seconds=0.2)
    for _ in range(3):
        assert plan(SQL, DOMAIN, seconds=0.2, prove=True).strategy.lower_bound(epsilon=1.0) > 0
    assert len(solved) == 1
    assert len(list(cache_folder.iterdir())) == 1


def figures(name: str, value: Any) -> Any:
    def edit(header: dict[str, Any], _: dict[str, Any]) -> None:
        header["proven"]["bounds"][0][name] = value

    return edit


def about(value: Any) -> Any:
    return lambda header, _: header.update(proven=value)


FORGED: dict[str, Any] = {
    "above the error": figures("lower_bound", 1e9),
    "below nothing": figures("lower_bound", -1.0),
    "no number": figures("lower_bound", float("nan")),
    "a text": figures("lower_bound", "1"),
    "infinite": figures("upper_bound", float("inf")),
    "upside down": figures("upper_bound", 0.0),
    "of another kind": figures("objective", "mean"),
    "of another batch": lambda header, _: header["proven"].update(workload="0" * 64),
    "without weights": lambda _, arrays: arrays.pop("proven_sum_v"),
    "weights of two dimensions": lambda _, arrays: arrays.update(proven_sum_v=np.ones((2, 2))),
    "nothing": about(None),
    "a list": about([1, 2]),
    "no bounds": about({"workload": 3}),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_bound_that_cannot_be_true_is_left_out_and_proven_anew(
    forgery: str, tmp_path: Path, solved: list[MatrixWorkload]
) -> None:
    planned = made(prove=True)
    planned.save(tmp_path / "p")
    header, arrays = archive.load(tmp_path / "p", plan_files.FORMAT, PlanError, "plan")
    FORGED[forgery](header, arrays)
    archive.save(tmp_path / "p", header, arrays, PlanError)  # under a digest of its own
    solved.clear()
    loaded: Any = load_plan(tmp_path / "p").strategy
    assert loaded.proven == ()
    assert loaded.lower_bound(epsilon=1.0) == pytest.approx(planned.strategy.lower_bound(epsilon=1.0), rel=1e-6)
    assert len(solved) == 1
