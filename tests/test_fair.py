"""Every statement counts alike in a plan, relative to what one record can change; weights by hand are on top."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp.domain import as_domain
from batchdp.errors import BatchDPError, QueryError, StrategyError
from batchdp.linalg.matrix import dense
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.plans import Plan, load_plan, outlook, plan
from batchdp.plans.criteria import named, statements_of
from batchdp.plans.options import Options
from batchdp.plans.weighing import Weighing
from batchdp.sql import read_queries
from commands import refused, run, succeeds

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
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
SELECT state, age, COUNT(*) AS cube FROM visits GROUP BY CUBE (state, age);
SELECT age, SUM(children) AS children FROM visits WHERE state <> 'CA' GROUP BY age;
"""


def small(**options: Any) -> Any:
    made: Plan = plan(SQL, DOMAIN, seconds=0.3, cache=False, **options)
    return made


def dashboard(**options: Any) -> Any:
    made: Plan = plan(BENCHMARKS / "dashboard.sql", BENCHMARKS / "dashboard.toml", **options)
    return made


def test_statements_come_from_the_sql_and_not_from_names() -> None:
    sql = """
    SELECT COUNT(*) AS "a[b]", SUM(children) AS s FROM visits;
    SELECT state, COUNT(*) AS "a[b]" FROM visits GROUP BY state;
    SELECT state, age, COUNT(*) FROM visits GROUP BY GROUPING SETS ((state), (age), ());
    """
    found = statements_of(read_queries(sql, as_domain(DOMAIN)))
    assert [(one.name, len(one.queries)) for one in found] == [("a[b]", 1), ("s", 1), ("a[b]", 3), ("query_3", 8)]
    assert sorted(q for one in found for q in one.queries) == list(range(13))


def test_fair_weights_are_one_over_the_queries_and_the_squared_sensitivity() -> None:
    made = small()
    assert made.options.objective == "fair"
    matrix = np.abs(dense(made.workload.matrix))
    assert made.workload.weights is not None
    for statement in made.statements:
        for q in statement.queries:
            size = matrix[q].max() or 1.0
            assert made.workload.weights[q] == pytest.approx(1 / (len(statement.queries) * size**2))
    total = sum(
        float(np.mean([made.standard_errors(epsilon=1.0)[q] ** 2 / (matrix[q].max() or 1) ** 2 for q in one.queries]))
        for one in made.statements
    )
    assert made.strategy.expected_squared_error(epsilon=1.0) == pytest.approx(total)
    assert outlook(made).objective_error == pytest.approx(total)


def error_of(made: Any, variances: Any) -> float:
    """What a plan minimises, for these variances of its queries."""
    weights = made.asked_workload.weights
    weighed = variances if weights is None else weights * variances
    return float(np.max(weighed) if made.options.objective == "max" else np.sum(weighed))


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("objective", ["fair", "sum", "max"])
@pytest.mark.parametrize("weights", [None, {"total": 50.0, "by_state[state=NY]": 0.1}])
def test_no_plan_is_worse_than_the_simple_mechanisms_by_its_own_objective(
    privacy: Any, objective: Any, weights: Any
) -> None:
    made = small(privacy=privacy, objective=objective, weights=weights)
    errors = [
        error_of(made, method(made.asked_workload).per_query_variance(epsilon=1.0))
        for method in (noise_on_data, noise_on_results)
    ]
    expected = outlook(made)
    assert expected.objective == objective
    assert expected.objective_error <= min(errors) * (1 + 1e-9)
    assert 0 < expected.lower_bound <= expected.objective_error * (1 + 1e-9)
    shown = np.array([row.standard_error for row in expected.tables])
    assert expected.total_squared_error == pytest.approx(float(shown @ shown))


@pytest.mark.parametrize("options", [{}, {"max_cells": 12}, {"privacy": "zcdp", "max_cells": 12}, {"objective": "max"}])
def test_a_plan_with_weights_is_the_same_when_it_is_loaded(options: Any, tmp_path: Path) -> None:
    made = small(**options, weights={"total": 3.0})
    made.save(tmp_path / "x.plan")
    again = load_plan(tmp_path / "x.plan")
    assert again.options == made.options
    assert again.workload.weights == pytest.approx(made.workload.weights)
    assert outlook(again).objective_error == pytest.approx(outlook(made).objective_error)
    assert outlook(again).lower_bound == outlook(made).lower_bound


def test_weights_move_the_error_and_multiply_whatever_the_objective_is() -> None:
    for objective in ("fair", "sum"):
        plain, heavy = (
            small(objective=objective, weights=weights, privacy="zcdp") for weights in (None, {"total": 100})
        )
        at = plain.names.index("total")
        assert heavy.standard_errors(rho=0.5)[at] < 0.8 * plain.standard_errors(rho=0.5)[at]


def by(queries: Any, options: Options) -> Weighing:
    """How these queries are weighed."""
    return Weighing([query.name for query in queries], statements_of(queries), options)


def test_a_hint_weighs_every_item_of_its_select() -> None:
    queries = read_queries(
        SQL.replace("SELECT COUNT(*) AS total", "SELECT /*+ weight(3) */ COUNT(*) AS total"), as_domain(DOMAIN)
    )
    assert [one.weight for one in statements_of(queries)] == [3, 3, 1, 1, 1]
    ones = np.ones(len(queries))
    hinted, plain = (by(q, Options())(ones) for q in (queries, read_queries(SQL, as_domain(DOMAIN))))
    assert hinted is not None
    assert plain is not None
    assert (hinted / plain).tolist() == [3, 3] + [1] * (len(queries) - 2)


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        ("/*+ weight(0) */", "cannot be used"),
        ("/*+ weight(-1) */", "cannot be used"),
        ("/*+ weight(nan) */", "cannot be used"),
        ("/*+ weight(1e300) */", "cannot be used"),
        ("/*+ weight(1.2.3) */", "cannot be used"),
        ("/*+ weigth(3) */", "not known"),
        ("/*+ weight 3 */", "not known"),
        ("/*+ weight(3) */ /*+ weight(3) */", "means nothing"),
        ("/*+ weight(3)", "not closed"),
        ("COUNT(*) AS a, /*+ weight(3) */", "means nothing"),
    ],
)
def test_malformed_hints_are_refused_with_their_place(hint: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem) as refused:
        plan(f"SELECT COUNT(*) AS n FROM visits;\nSELECT {hint} COUNT(*) AS b FROM visits", DOMAIN, cache=False)
    assert "line 2, column" in str(refused.value)
    assert "weight(3)" in str(refused.value) or "right behind SELECT" in str(refused.value)


def test_a_hint_is_read_in_any_case_and_nothing_else_moves() -> None:
    domain = as_domain(DOMAIN)
    text = "SELECT\n/*+ WEIGHT( 2.5e0 ) */ COUNT(*) AS a FROM visits; SELECT COUNT(*) AS b FROM visits -- /*+ x */"
    a, b = statements_of(read_queries(text, domain))
    assert (a.weight, b.weight) == (2.5, 1.0)
    with pytest.raises(QueryError, match=r"line 2, column 24: .*wrong"):
        read_queries("SELECT\n/*+ weight(2) */ COUNT(wrong) AS a FROM visits", domain)


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ({"total": 0}, "from 1e-06 to 1e"),
        ({"total": -3}, "from 1e-06 to 1e"),
        ({"total": math.nan}, "finite"),
        ({"total": 1e300}, "from 1e-06 to 1e"),
        ({"total": "3"}, "finite"),
        ({"total": True}, "finite"),
        ({3: 3}, "name of a statement"),
        ([("total", 3)], "dictionary"),
        ({"totla": 3}, "did you mean 'total'"),
        ({"by_state[state=XX]": 3}, "did you mean 'by_state"),
        ({"": 3}, "neither a statement nor a query"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(weights: Any, problem: str) -> None:
    with pytest.raises(BatchDPError, match=problem):
        plan(SQL, DOMAIN, weights=weights, cache=False)


def test_the_largest_and_the_least_weight_still_give_exact_answers() -> None:
    made = small(weights={"total": 1e6, "cube": 1e-6})
    assert made.strategy.residual < 1e-9
    assert np.all(np.isfinite(made.standard_errors(epsilon=1.0)))


def test_a_statement_that_can_count_nothing_has_no_error_and_no_say() -> None:
    sql = "SELECT COUNT(*) AS none FROM visits WHERE age > 3 AND age < 2; SELECT COUNT(*) AS some FROM visits;"
    expected = outlook(plan(sql, DOMAIN, cache=False, weights={"none": 1e6}))
    none, some = expected.statements
    assert (none.standard_error, none.by_itself, none.is_worse) == (0.0, 0.0, False)
    assert some.standard_error <= some.by_itself


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=5), st.sampled_from(["fair", "sum", "max"]))
def test_weights_by_hand_multiply(weights: list[float], objective: Any) -> None:
    queries = read_queries(SQL, as_domain(DOMAIN))
    names = ("total", "by_state", "cube", "children", "by_state[state=NY]")
    plain = by(queries, Options(objective=objective))
    heavy = by(queries, Options(objective=objective, weights=tuple(zip(names, weights, strict=True))))
    sizes = np.linspace(1, 3, len(queries))
    before = plain(sizes)
    expected = np.ones(len(queries)) if before is None else before
    for name, weight in zip(names, weights, strict=True):
        expected[list(named(name, plain.names, plain.statements, argument="x"))] *= weight
    found = heavy(sizes)
    assert (np.ones(len(queries)) if found is None else found) == pytest.approx(expected)


def test_by_itself_is_an_equal_share_of_the_better_simple_mechanism() -> None:
    made = small(objective="sum")
    expected = outlook(made, epsilon=0.5)
    matrix = dense(made.asked_workload.matrix)
    for one, statement in zip(expected.statements, made.statements, strict=True):
        W = matrix[list(statement.queries)]
        used = np.unique(W[:, np.abs(W).sum(axis=0) > 0], axis=1)
        results = 2 * (np.abs(W).sum(axis=0).max() * 5 / 0.5) ** 2
        data = 2 * (5 / 0.5) ** 2 * np.square(used).sum(axis=1).mean()
        assert one.by_itself == pytest.approx(np.sqrt(min(results, data)))
        own = made.standard_errors(epsilon=0.5)[list(statement.queries)]
        assert one.standard_error == pytest.approx(np.sqrt(np.mean(own**2)))
        assert one.queries == len(own)


def test_the_command_line_shows_statements_and_warns(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    (tmp_path / "d.toml").write_text(DOMAIN)
    given = ["plan", tmp_path / "q.sql", "-d", tmp_path / "d.toml", "-o", tmp_path / "x.plan", "--seconds", 1]
    fair = succeeds(*given, "--weight", "by_state[state=NY]=3", "--verbose")
    assert "by itself" in fair
    assert "sum over statements" in " ".join(fair.split())
    light = ("--objective", "sum", "--weight", "total=0.00001")
    told = json.loads(succeeds(*given, *light, "--json"))
    assert told["objective"] == "sum"
    assert {"name", "queries", "standard_error", "by_itself", "gain", "share", "part_of", "adds"} == set(
        told["statements"][0]
    )
    warned = succeeds(*given, *light)
    assert "Worse than by itself with an equal share of the budget: total (" in warned
    assert "with 1/5 of the budget" in " ".join(fair.split())
    for wrong in ("total", "total=x", "=3", "totla=3", "total=0", "total=nan"):
        assert "total" in refused(*given, "--weight", wrong) or "=3" in wrong
    assert "give it once" in refused(*given, "--weight", "total=3", "--weight", "total=4")
    assert run(*given, "--objective", "mean").code == 2


def test_the_objective_must_be_known() -> None:
    with pytest.raises(StrategyError, match="'fair' or 'sum' or 'max'"):
        plan(SQL, DOMAIN, objective="mean", cache=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("privacy", "alone"), [("pure", 11 * math.sqrt(2)), pytest.param("zcdp", math.sqrt(11), marks=pytest.mark.slow)]
)
def test_no_statement_of_the_dashboard_is_worse_than_by_itself(privacy: Any, alone: float) -> None:
    expected = outlook(dashboard(privacy=privacy))
    assert expected.statements[0].name == "total"
    for one in expected.statements:
        assert one.by_itself == pytest.approx(alone)
        assert one.standard_error <= one.by_itself
    assert expected.warning() == ""
    if privacy == "zcdp":
        assert expected.method == "components"
        assert expected.objective_error < 77.5  # blocks of queries: 90.5


def test_the_papers_total_on_the_dashboard_starves_what_is_small_and_says_so() -> None:
    expected = outlook(dashboard(objective="sum"))
    assert expected.total_squared_error <= 14_163
    assert expected.objective_error == pytest.approx(expected.total_squared_error)
    assert "total (31" in expected.warning()
