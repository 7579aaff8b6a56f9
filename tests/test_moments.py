"""VARIANCE, STDDEV, COVAR and CORR, and averages of differences: DuckDB's without noise, and with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import batchdp
from asked_truth import different, domain, ours
from batchdp.domain import as_domain
from batchdp.errors import QueryError
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw
from batchdp.privacy import GAUSSIAN, LAPLACE
from batchdp.queries.expressions import Asked, Moments, read_expression, write_expression
from batchdp.sql import read_queries

SQLS = [
    "SELECT court AS k0, STDDEV(priors) AS n1 FROM cases GROUP BY court",
    "SELECT STDDEV_POP(2 * priors + 1) FILTER (WHERE felony) AS n2 FROM cases",
    "SELECT COVAR_SAMP(priors, court) AS n3 FROM cases",
    "SELECT CORR(priors, court) AS n4 FROM cases WHERE felony",
    "SELECT VAR_SAMP(MONTH(filed)) AS n5 FROM cases",
    "SELECT court AS k0, AVG(2 * (age + priors - 3)) AS n6 FROM cases WHERE felony GROUP BY court",
    "SELECT AVG(fine - priors + 2) FILTER (WHERE felony) AS n7 FROM cases",
]


@pytest.mark.parametrize("sql", SQLS)
def test_moments_and_averages_of_sums_are_duckdb_s(sql: str) -> None:
    assert [different(sql, found) for found in ours([sql])] == [[]]


@pytest.mark.parametrize("options", [{}, {"marginals": 0}, {"privacy": "zcdp"}])
def test_they_go_through_plans_releases_and_files(options: dict[str, Any], tmp_path: Path) -> None:
    made: Any = batchdp.plan("SELECT STDDEV(priors) AS d, CORR(priors, court) AS r FROM cases", domain(), seconds=1,
                             cache=False, **options)  # fmt: skip
    made.save(tmp_path / "x.plan")
    again = batchdp.load_plan(tmp_path / "x.plan")
    assert [one.of for one in again.asked] == [one.of for one in made.asked]
    budget: Any = {"rho": 10.0} if "privacy" in options else {"epsilon": 10.0}
    ledger = batchdp.Ledger.create(tmp_path / "b.db", **budget)
    table = pd.DataFrame({name: [None] * 900 for name in domain().columns})
    table["priors"], table["court"] = [0, 4, 8] * 300, [1, 2, 3] * 300
    release = batchdp.answer(made, table, ledger=ledger, **budget)
    deviation, correlation = (next(one for one in release.answers if one.name == name) for name in "dr")
    assert deviation.low <= deviation.value <= deviation.high
    assert deviation.value == pytest.approx(np.std([0, 4, 8] * 300, ddof=1), rel=0.2)
    assert correlation.value == pytest.approx(1, abs=0.2)
    release.save(tmp_path / "x.release")
    assert batchdp.load_release(tmp_path / "x.release").answers == release.answers


def test_an_average_of_days_between() -> None:
    columns = {"a": {"dates": ["2021-01-01", "2021-03-31"]}, "b": {"dates": ["2021-01-01", "2021-12-31"]}}
    declared = as_domain({"table": "t", "columns": columns})
    assert len(read_queries("SELECT AVG(b - a) AS days FROM t", declared)) == 2
    with pytest.raises(QueryError, match="days that are not subtracted"):
        read_queries("SELECT AVG(a + b) AS days FROM t", declared)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
def test_intervals_hold_the_deviation_as_often_as_they_say(noise: Any) -> None:
    """Of a group of 1000 with little noise beside it; in small groups they hold it less often, which the page says."""
    true = np.array([1000.0, 200.0, 4000.0])
    asked: Any = [Asked("s", Moments("deviation", True, 0, (1,), (2,)))]
    rng, law, hits = np.random.default_rng(3), NoiseLaw(np.eye(3) * [[1], [4], [16]], 2.0, noise), 0
    for _ in range(400):
        draws = rng.laplace(scale=2.0, size=3) if noise == LAPLACE else rng.normal(scale=2.0, size=3)
        found = estimates(asked, true + draws * [1, 4, 16], law, 0.95)
        hits += bool(found.low[0] <= np.sqrt((4000 - 40) / 999) <= found.high[0])
    assert 0.92 <= hits / 400 <= 0.99


def test_files_hold_them_and_refuse_others() -> None:
    one = Moments("correlation", False, 0, (1, 2), (3, 4, 5))
    assert read_expression(write_expression(one), int) == one
    with pytest.raises(ValueError, match="an unknown moment"):
        read_expression({**write_expression(one), "what": "variance"}, int)
