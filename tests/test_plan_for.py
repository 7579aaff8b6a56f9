"""Accuracies by name: the plan that has them at the least budget, or what cannot be met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp.errors import AccuracyError, BatchDPError
from batchdp.linalg.matrix import dense
from batchdp.plans import Plan, epsilon_for, load_plan, plan, plan_for
from batchdp.plans.accuracy import needed
from batchdp.plans.criteria import Statement, as_criteria, load_criteria
from commands import refused, succeeds

DOMAIN = """
table = "visits"
[columns.state]
values = ["NY", "NJ", "CA"]
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
[columns.children]
integers = [0, 4]
"""
SQL = """
SELECT COUNT(*) AS total, SUM(children) AS children FROM visits;
SELECT state, COUNT(*) AS by_state FROM visits GROUP BY state;
SELECT age, COUNT(*) AS by_age FROM visits GROUP BY age;
SELECT COUNT(*) AS none FROM visits WHERE age > 3 AND age < 2;
"""
WANTED: dict[str, Any] = {
    "total": 4,
    "by_state": {"margin": 40},
    "by_age[age=0 to 17]": {"margin": 9, "confidence": 0.9},
}


def names() -> tuple[str, ...]:
    return plan(SQL, DOMAIN, seconds=0.5).names


def wanted() -> dict[str, Any]:
    """With the name of the first age group, whatever it is called."""
    first = next(name for name in names() if name.startswith("by_age["))
    return {**{name: one for name, one in WANTED.items() if "by_age" not in name}, first: WANTED["by_age[age=0 to 17]"]}


def met(made: Plan, accuracy: dict[str, Any]) -> list[float]:
    """Error over what is wanted, for every name, at the budget that the plan says it needs."""
    assert made.needed is not None
    found = []
    for name, one in accuracy.items():
        own = [q for q in made.names if q == name or q.startswith(f"{name}[")]
        goal = (
            {"standard_error": one}
            if isinstance(one, int)
            else {"half_width": one["margin"], "confidence": one.get("confidence", 0.95)}
        )
        budgets = [epsilon_for(made, query=q, **goal) for q in own]
        found.append(max(budgets) / float(made.needed))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"privacy": "zcdp"}, {"max_cells": 6}, {"privacy": "zcdp", "max_cells": 6}])
def test_the_budget_is_enough_for_all_just_enough_for_one_and_less_than_without(options: Any, tmp_path: Path) -> None:
    accuracy = wanted()
    made = plan_for(SQL, DOMAIN, accuracy, seconds=3, **options)
    shares = met(made, accuracy)
    assert max(shares) == pytest.approx(1)
    plain = plan(SQL, DOMAIN, seconds=1, cache=False, **options)
    without = max(budget for _, budget in needed(plain, as_criteria(accuracy)))
    assert float(made.needed or 0) <= without * (1 + 1e-9)
    made.save(tmp_path / "x.plan")
    again = load_plan(tmp_path / "x.plan")
    assert float(again.needed or 0) == pytest.approx(float(made.needed or 0))
    assert again.options == made.options
    assert again.workload.weights == pytest.approx(made.workload.weights)


def test_gaussian_noise_in_one_block_has_the_least_budget_that_there_is() -> None:
    accuracy = {"total": 4, "by_state": 6, "by_age": 8, "children": 10}
    made = plan_for(SQL, DOMAIN, accuracy, privacy="zcdp")
    W = dense(made.workload.matrix)
    goals = np.array([accuracy.get(name.split("[")[0], 1e6) for name in made.names], dtype=float)
    bound = batchdp.optimize(W / goals[:, None], "zcdp", objective="max").largest_variance_bound(rho=1.0)
    assert bound * (1 - 1e-6) <= float(made.needed or 0) <= bound * 1.003


def test_a_plan_without_accuracies_needs_no_budget_of_its_own() -> None:
    assert plan(SQL, DOMAIN, seconds=0.5).needed is None


def test_a_name_for_all_others_and_the_most_specific_name_wins() -> None:
    criteria = as_criteria({"*": 100, "a": 5, "a[x=1]": {"margin": 3}})
    statements = [Statement("a", queries=(0, 1)), Statement("b", queries=(2,))]
    found = {one.name: one.queries for one in criteria.wanted(["a[x=1]", "a[x=2]", "b"], statements)}
    assert found == {"*": (2,), "a": (1,), "a[x=1]": (0,)}


def test_what_cannot_be_met_is_said_by_name() -> None:
    with pytest.raises(AccuracyError) as said:
        plan_for(SQL, DOMAIN, {"total": 1, "by_age": 1e5}, at_most=0.5, seconds=1)
    assert "ε = 0.5" in str(said.value)
    assert "'total' is to have a standard error of 1 and would have " in str(said.value)
    assert "by_age" not in str(said.value)
    enough = float(str(said.value).partition("ε = ")[2].partition("ε = ")[2].split()[0])
    assert plan_for(SQL, DOMAIN, {"total": 1, "by_age": 1e5}, at_most=enough * 1.01, seconds=1).needed is not None
    with pytest.raises(AccuracyError, match="no budget is enough"):
        plan_for(SQL, DOMAIN, {"total": 1e-9}, privacy="zcdp")


def test_answers_without_noise_are_met_and_alone_they_need_no_plan() -> None:
    assert plan_for(SQL, DOMAIN, {"none": 0.001, "total": 5}, seconds=1).needed is not None
    with pytest.raises(AccuracyError, match="need no noise"):
        plan_for(SQL, DOMAIN, {"none": 0.001}, seconds=1)


@pytest.mark.parametrize(
    ("accuracy", "problem"),
    [
        ({}, "at least 1"),
        ({"total": 0}, "greater than"),
        ({"total": -1}, "greater than"),
        ({"total": float("nan")}, "finite"),
        ({"total": float("inf")}, "finite|less than"),
        ({"total": 1e300}, "less than"),
        ({"total": True}, "accuracy.total"),
        ({"total": "5"}, "accuracy.total"),
        ({"total": None}, "accuracy.total"),
        ({"total": {}}, "either standard_error or margin"),
        ({"total": {"margin": 3, "standard_error": 3}}, "either standard_error or margin"),
        ({"total": {"standard_error": 3, "confidence": 0.9}}, "belongs to margin"),
        ({"total": {"margin": 3, "confidence": 1}}, "confidence"),
        ({"total": {"margin": 3, "confidence": 0}}, "confidence"),
        ({"total": {"marjin": 3}}, "unknown key; known here: standard_error, margin, confidence"),
        ({"totla": 5}, "did you mean 'total'"),
        ({"by_state[state=ZZ]": 5}, "did you mean 'by_state"),
        (5, "dictionary"),
        (None, "dictionary"),
        ({3: 5}, "valid string"),
    ],
)
def test_accuracies_that_cannot_be_meant_are_refused(accuracy: Any, problem: str) -> None:
    with pytest.raises(AccuracyError, match=problem):
        plan_for(SQL, DOMAIN, accuracy)


@pytest.mark.parametrize("options", [{"at_most": 0}, {"at_most": -1.0}, {"at_most": float("nan")}, {"privacy": "auto"}])
def test_other_arguments_are_checked(options: Any) -> None:
    with pytest.raises(BatchDPError, match=r"at_most|privacy"):
        plan_for(SQL, DOMAIN, {"total": 5}, **options)


FILES = {
    "no toml": ("total = = 5", "not TOML"),
    "empty": ("", "accuracy: Field required"),
    "at the top": ("total = 5", "accuracy"),
    "unknown key": ("at_least = 3\n[accuracy]\ntotal = 5", "unknown key; known here: accuracy, at_most"),
    "no number": ('at_most = "1"\n[accuracy]\ntotal = 5', "at_most"),
    "control characters": ('[accuracy]\n"\\u001b[2J" = -5', "accuracy"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_read_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, problem = FILES[case]
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(AccuracyError, match=problem) as said:
        load_criteria(tmp_path / "a.toml")
    assert str(said.value).isprintable()
    with pytest.raises(AccuracyError, match="cannot read"):
        load_criteria(tmp_path / "missing.toml")


@pytest.mark.slow
def test_the_command_line_takes_a_number_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    (tmp_path / "d.toml").write_text(DOMAIN)
    (tmp_path / "a.toml").write_text("at_most = 5.0\n[accuracy]\ntotal = 4\nby_state = { margin = 40 }\n")
    given = ["plan", tmp_path / "q.sql", "-d", tmp_path / "d.toml", "-o", tmp_path / "x.plan", "--seconds", 1]
    told = succeeds(*given, "--accuracy", tmp_path / "a.toml")
    made = load_plan(tmp_path / "x.plan")
    assert f"The accuracies that are wanted need {made.needed}" in told
    assert load_criteria(tmp_path / "a.toml") == made.options.accuracy
    assert "For ±25 at 95 % on every query you need" in succeeds(*given, "--accuracy", 25)
    assert "leave out --weight" in refused(*given, "--accuracy", tmp_path / "a.toml", "--weight", "total=3")
    assert "cannot read" in refused(*given, "--accuracy", "missing.toml")
    assert "accuracy" in refused(*given, "--accuracy", "nan")
    (tmp_path / "a.toml").write_text("at_most = 0.01\n[accuracy]\ntotal = 4\n")
    assert "cannot be met with ε = 0.01" in refused(*given, "--accuracy", tmp_path / "a.toml")
