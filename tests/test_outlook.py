"""What `batchdp plan` promises is what the noise does."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.sample import sample
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.plans import epsilon_for, plan
from batchdp.plans.outlook import Outlook, outlook
from batchdp.plans.targets import rounded, rounded_up
from mechanisms import prepared

SQL = """
SELECT COUNT(*) AS total FROM visits;
SELECT age, COUNT(*) AS aged FROM visits GROUP BY age;
SELECT COUNT(*) FILTER (WHERE age < 65) * 3 AS weighted FROM visits;
"""
DOMAIN = """
table = "visits"
[privacy]
max_rows = 100_000
unit = "person"
rows_per_unit = {rows}
neighbours = "{neighbours}"
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
"""


@cache
def made(privacy: str = "pure", rows: int = 1, neighbours: str = "add-remove", sql: str = SQL) -> Any:
    domain = DOMAIN.format(rows=rows, neighbours=neighbours)
    return plan(sql, domain, privacy=privacy, seconds=1, cache=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("privacy", "rows", "neighbours"), [("zcdp", 1, "add-remove"), ("pure", 3, "replace")])
def test_the_figures_are_the_plans_and_those_of_the_noise(privacy: str, rows: int, neighbours: str) -> None:
    planned = made(privacy, rows, neighbours)
    expected = outlook(planned, epsilon=0.5)
    budget = {"epsilon": 0.5} if privacy == "pure" else {"rho": 0.125}
    assert (expected.unit, expected.budget) == next(iter(budget.items()))
    shown = np.array([row.standard_error for row in expected.tables])
    assert shown == pytest.approx(planned.standard_errors(**budget))
    assert tuple(row.name for row in expected.tables) == planned.names

    relation = Neighbours(planned.domain.privacy.neighbours, rows)
    ready = prepared(planned.strategy, relation, next(iter(budget.values())), 100_000)
    lattice: Any = ready.measurement
    draws = np.array([sample(lattice, ready.noises) for _ in range(1500)], dtype=float)
    errors = draws / 2.0**lattice.bits @ np.asarray(lattice.reconstruct).T
    assert np.sqrt((errors**2).mean(axis=0)) == pytest.approx(shown, rel=0.2)  # five standard deviations
    assert expected.total_squared_error == pytest.approx(float(shown @ shown))
    assert 0 < expected.lower_bound <= expected.total_squared_error


def test_the_simple_mechanisms() -> None:
    planned = made(rows=2)
    expected = outlook(planned, epsilon=0.5)
    on_data = 2 * np.sqrt(noise_on_data(planned.workload).per_query_variance(epsilon=0.5))
    on_results = 2 * np.sqrt(noise_on_results(planned.workload).per_query_variance(epsilon=0.5))
    assert [row.noise_on_data for row in expected.tables] == pytest.approx(on_data)
    assert [row.noise_on_results for row in expected.tables] == pytest.approx(on_results)


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_the_advised_budget_is_enough_and_no_more_than_that(privacy: str) -> None:
    planned = made(privacy)
    expected = outlook(planned, accuracy=25.0)
    assert expected.accuracy == 25
    assert expected.advised == pytest.approx(epsilon_for(planned, half_width=25.0))
    shown = float(expected.summary().rpartition(" = ")[2].removesuffix(" (rounded up)."))
    assert expected.advised <= shown <= expected.advised * 1.1
    letter = "ε" if privacy == "pure" else "ρ"
    assert f"For ±25 at 95 % on every query you need {letter} = " in expected.summary()
    assert ("Laplace noise at ε = 1" in expected.caption()) == (privacy == "zcdp")


def test_an_accuracy_of_its_own_is_a_round_one_near_the_worst() -> None:
    expected = outlook(made())
    worst = max(row.standard_error for row in expected.tables)
    assert 1.2 * worst < expected.accuracy < 3.5 * worst


def test_queries_that_can_count_nothing_need_no_budget() -> None:
    expected = outlook(made(sql="SELECT COUNT(*) AS none FROM visits WHERE age > 3 AND age < 2;"))
    assert math.isnan(expected.advised)
    assert "you need" not in expected.summary()
    assert [(row.by_itself, one.gained) for row, one in zip(expected.tables, expected.statements, strict=True)] == [
        (0.0, "–")
    ]
    assert isinstance(expected, Outlook)


@pytest.mark.parametrize(
    ("value", "near"), [(0.0, 1.0), (1.1, 1.0), (3.0, 2.5), (7.4, 5.0), (7.6, 10.0), (99.0, 100.0), (0.021, 0.02)]
)
def test_round_numbers(value: float, near: float) -> None:
    assert rounded(value) == pytest.approx(near)


@pytest.mark.parametrize(("value", "above"), [(0.911, 0.92), (0.91, 0.91), (1.14, 1.2), (123.0, 130.0), (9.99, 10.0)])
def test_rounding_up(value: float, above: float) -> None:
    assert rounded_up(value) == pytest.approx(above)
