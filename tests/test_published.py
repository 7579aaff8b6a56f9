"""Figures that other programs publish for batches over many columns, reached or beaten, each with its limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import published
import structured
import templates
from batchdp import optimize, workloads
from batchdp.privacy import GAUSSIAN, LAPLACE
from published import PUBLISHED, PURE, Published

TO_REACH = {
    "SF1": 1.95,
    "SF1, states": 2.26,
    "CPS prefixes": 6.98,
    "Adult 2-way prefixes": 17.2,
    "Loans prefixes": 13.0,
    "Adult 1-way prefixes": 5.0,
    "Loans 1-way prefixes": 4.62,
    "Loans 2-way prefixes": 14.2,
    "CPS 1-way prefixes": 3.07,
    "CPS 2-way prefixes": 5.823,
    "CPS 3-way prefixes": 7.302,
    "CPS ≤ 3-way prefixes": 7.570,
    "10^10 1- and 2-way prefixes": 9.43,
    "10^50 1- and 2-way prefixes": 40.2,
    "10^100 1- and 2-way prefixes": 77.0,
    "10^200 1- and 2-way prefixes": 150.0,
    "Adult, 8 small columns, affine": 5.577,
}
PURE_TO_REACH = {
    "SF1": 4.82,
    "SF1, states": 6.8,
    "CPS all": 3.3735,
    "CPS prefixes": 28.665,
    "Adult ≤ 3-way": 157.2,
    "Adult 2-way prefixes": 342.0,
    "Loans": 67.9,
    "Loans prefixes": 203.8,
    "10^100 ≤ 3-way": 115_000.0,
    "2^10 2-way": 120**0.5,
    "10^10 ≤ 2-way": 41.2,
    "10^50 ≤ 2-way": 1104.0,
    "0/1 100 × 200": 8.78,
    "(4, 7, 11, 3), 1- and 2-way": 4.81,
    "2^8 3-way": 5.66,
    "prefix 64 × identity 16": 3.764,
    "all ranges 32 × 32": 10.13,
    "width 32 over 512": 4.51,
    "permuted ranges 256": 5.7,
    "400 random ranges of 32 × 32": 9.31,
}
TO_REACH |= {"10^10 pairs, affine": 8.02, "10^10 pairs, abs-diff": 8.39}
TO_REACH |= {"10^10 pairs, random": 26.133, "10^10 pairs, mixed": 20.42}
QUICK = {"CPS all", "Loans", "2^10 2-way", "0/1 100 × 200", "prefix 64 × identity 16"}
LOOSE = {
    one.name: 1.05 for one in PUBLISHED if one.name.endswith(("prefixes", "ranges")) and one.name != "CPS prefixes"
}
LOOSE |= {"10^10 pairs, affine": 1.16, "10^10 pairs, abs-diff": 1.2, "10^10 pairs, random": 1.006}
LOOSE["Adult, 8 small columns, affine"] = 1.13
LOOSE |= {"10^10 pairs, mixed": 20.0}  # of which next to nothing is proven
"""Found over limit where columns are split; elsewhere it is within a thousandth."""
SLOW = {*LOOSE, "10^200 ≤ 3-way"}


def _marked(one: Published) -> object:
    title = f"{one.name}{', largest' * one.largest}"
    return pytest.param(one, id=title, marks=[pytest.mark.slow] if one.name in SLOW else [])


@pytest.mark.parametrize("one", [_marked(one) for one in PUBLISHED])
def test_published_figures(one: Published) -> None:
    line = structured.measured(one, GAUSSIAN)
    assert 1 - 1e-9 <= line.ratio <= LOOSE.get(one.name, 1.001)
    if one.name in TO_REACH:
        assert line.found <= TO_REACH[one.name]
    elif one.figure is not None:
        assert line.found == pytest.approx(one.figure, abs=0.06 if one.largest else 1e-3)


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.name, marks=[] if one.name in QUICK else [pytest.mark.slow]) for one in PURE]
)
def test_figures_with_laplace_noise(one: Published) -> None:
    line = structured.measured(one, LAPLACE)
    assert line.found <= PURE_TO_REACH[one.name]
    assert one.figure is None or line.found < one.figure
    assert line.limit <= line.found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("affine", 8.02), ("abs-diff", 8.39)])
def test_conditions_on_two_columns_in_sql(kind: str, most: float) -> None:
    line = structured.in_sql(kind, GAUSSIAN)
    assert line.queries == published.pairs(kind).queries
    assert line.limit <= line.found <= most


@pytest.mark.slow
def test_the_census_as_a_matrix_is_split_into_groups_of_rows() -> None:
    assert structured.census_matrix().found <= 4.9


def test_templates_written_anew_reach_what_is_quoted_of_hdmm() -> None:
    """5.322 a query at ε = 1 for prefixes of 64 values times 16 values; and none is better than ours."""
    batch = published.SMALL["prefix 64 × identity 16"]()
    ((_, run),) = templates.templates("prefix 64 × identity 16", batch)
    found = min(run(np.random.RandomState(seed)) for seed in range(templates.STARTS))
    assert (2 * found / batch.queries) ** 0.5 == pytest.approx(5.322, rel=2e-3)
    W = np.tril(np.ones((12, 12)))
    error, X = templates.p_identity(W.T @ W, np.random.RandomState(0))
    assert error == pytest.approx(float(np.sum((W.T @ W) * X)))
    asked = [(0, 1), (2,)]
    one = templates.marginals((2, 3, 4), asked, np.random.RandomState(0))
    whole = optimize(workloads.products((2, 3, 4), [[np.eye(2), np.eye(3), None], [None, None, np.eye(4)]]))
    assert one >= whole.expected_squared_error(epsilon=1.0) / 2 * (1 - 1e-6)


def test_the_census_has_its_queries() -> None:
    assert published.census().queries == 4151
    assert published.census(states=True).queries == 4151 * 52


def test_the_dashboard_with_laplace_noise() -> None:
    line = structured.dashboard(LAPLACE)
    assert line.found <= 14_163
    assert line.limit >= 2_050


@pytest.mark.slow
def test_the_dashboards_plan_is_near_its_optimum() -> None:
    line = structured.dashboard(GAUSSIAN)
    assert line.queries == 188
    assert line.found <= 1045
    assert line.limit >= 1000
    assert line.ratio <= 1.01
    assert (Path(structured.__file__).parent / "dashboard.sql").read_text().count("SELECT") == 11
