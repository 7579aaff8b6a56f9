"""Batches as unions of products: what they are, what fits, what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import MatrixWorkload, Workload, workloads
from batchdp.errors import BatchDPError, PrivacyParameterError, ReleaseError, StrategyError, WorkloadError
from batchdp.linalg.matrix import dense
from batchdp.text import Outcome
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors

EACH = np.eye(3)
PREFIX = np.tril(np.ones((2, 2)))


def in_factors_only(workload: Workload) -> KroneckerWorkload:
    assert isinstance(workload, KroneckerWorkload)
    return workload


def test_a_small_batch_is_a_matrix_with_names_and_remembers_its_structure() -> None:
    W = workloads.products((2, 3), [[PREFIX, None], [None, EACH], [PREFIX, EACH], [None, None]])
    assert isinstance(W, MatrixWorkload)
    assert isinstance(W.structure, KroneckerWorkload)
    expected = np.vstack(
        [np.kron(PREFIX, np.ones((1, 3))), np.kron(np.ones((1, 2)), EACH), np.kron(PREFIX, EACH), np.ones((1, 6))]
    )
    assert np.array_equal(dense(W.matrix), expected)
    assert (W.names[0], W.names[2], W.names[-1]) == ("a1 0", "a2 0", "total")
    assert [table.shape for table in W.structure.tables] == [(2,), (3,), (2, 3), ()]
    assert W.structure.queries == W.queries == 12


def test_several_orders_are_the_tables_of_each() -> None:
    one, both = workloads.marginals((2, 3, 2), 1), workloads.marginals((2, 3, 2), [0, 1])
    assert isinstance(one, MatrixWorkload)
    assert isinstance(both, MatrixWorkload)
    assert np.array_equal(dense(both.matrix)[1:], dense(one.matrix))
    assert both.names == ("total", *one.names)


@pytest.mark.slow
def test_what_does_not_fit_keeps_its_tables() -> None:
    W = workloads.marginals((10,) * 100, [0, 1, 2, 3])
    assert isinstance(W, KroneckerWorkload)
    assert (len(W.tables), W.queries, W.cells) == (166_751, 1 + 1000 + 4950 * 100 + 161_700 * 1000, 10**100)
    assert W.tables[0].name == "total"
    assert W.tables[-1].columns == (97, 98, 99)
    assert W.tables[101].shape == (10, 10)
    with pytest.raises(WorkloadError, match="162,196,001 queries over 1e100 cells"):
        _ = W.matrix


def test_tables_of_more_queries_than_floats_can_count() -> None:
    W = workloads.marginals((10,) * 20, 20)
    assert isinstance(W, KroneckerWorkload)
    assert W.queries == 10**20


def test_a_table_asked_twice_counts_twice() -> None:
    once = workloads.products((3,), [[EACH], [None]], weights=[1, 2])
    twice = workloads.products((3,), [[EACH], [None], [None]])
    assert twice.queries == once.queries + 1
    assert [table.name for table in twice.structure.tables] == ["a1", "total", "total (2)"]
    one, two = (batchdp.optimize(W, "zcdp").expected_squared_error(rho=0.5) for W in (once, twice))
    assert one == pytest.approx(two, rel=2e-3)


def test_equal_factors_are_one() -> None:
    W = workloads.products((2, 3), [[PREFIX, EACH], [PREFIX.copy(), None], [np.ones((1, 2)), EACH.copy()]])
    assert [len(own) for own in W.structure.factors] == [1, 1]
    assert W.structure.factors[1][0].given is None  # each value by itself needs no matrix
    assert W.structure.tables[2].columns == (1,)  # ones are "does not matter"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: workloads.products((2, 3), []), "terms is empty"),
        (lambda: workloads.products((), [[]]), "sizes is empty"),
        (lambda: workloads.products((2, 3), [[PREFIX]]), r"terms\[0\] has 1 factors for 2 columns"),
        (lambda: workloads.products((2, 3), [[None, PREFIX]]), r"terms\[0\]\[1\] has shape \(2, 2\)"),
        (lambda: workloads.products((2, 3), [[None, np.ones(3)]]), r"terms\[0\]\[1\] has shape \(3,\)"),
        (lambda: workloads.products((2, 3), [[None, np.zeros((0, 3))]]), r"terms\[0\]\[1\] has no rows"),
        (lambda: workloads.products((2, 3), [[None, None], [None, np.full((1, 3), np.nan)]]), r"terms\[1\]\[1\].*NaN"),
        (lambda: workloads.products((2, 3), [[None, np.full((1, 3), 1e200)]]), r"terms\[0\]\[1\].*rescale"),
        (lambda: workloads.products((2, 3), [[None, [["a", "b", "c"]]]]), r"terms\[0\]\[1\] is not a matrix"),
        (lambda: workloads.products((2, 3), 4), "terms must be a list of tables"),  # type: ignore[arg-type]
        (lambda: workloads.products((2, 0), [[None, None]]), r"sizes\[1\]=0"),
        (lambda: workloads.products((2, 10**7), [[None, None]]), "group them"),
        (lambda: workloads.products((3,), [[EACH], [None]], names=["a", "a"]), "'a' more than once"),
        (lambda: workloads.products((3,), [[EACH], [None]], names=["a"]), "names has 1 entries for 2 tables"),
        (lambda: workloads.products((3,), [[EACH]], weights=[0.0]), "weights must be finite and above 0"),
        (lambda: workloads.products((3,), [[EACH]], weights=[1.0, 2.0]), "weights has shape"),
        (lambda: workloads.products((3,), [[EACH]], weights=["x"]), "weights are not numbers"),
        (lambda: workloads.marginals((2, 2), [1, 3]), "shape has 2 attributes and order"),
        (lambda: workloads.marginals((2, 2), [1, 1]), "more than once"),
        (lambda: workloads.marginals((2, 2), []), "order is empty"),
        (lambda: workloads.marginals((2,) * 300, 4), "makes 330,791,175 tables"),
        (lambda: workloads.marginals((2, 2), "1"), "order='1' must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_refusals_name_the_argument_and_the_remedy(make: Callable[[], object], match: str) -> None:
    with pytest.raises(WorkloadError, match=match):
        make()


def test_optimize_answers_many_columns_with_gaussian_noise() -> None:
    W = workloads.marginals((10,) * 20, [0, 1, 2, 3])
    told: list[tuple[float, str, float]] = []
    strategy = batchdp.optimize(W, "zcdp", progress=lambda *one: told.append(one))
    assert np.sqrt(strategy.expected_squared_error(rho=0.5) / W.queries) == pytest.approx(26.917, abs=1e-3)
    assert strategy.lower_bound(rho=0.5) == pytest.approx(strategy.expected_squared_error(rho=0.5))
    assert (strategy.method, strategy.sensitivity, strategy.privacy) == ("components", 1.0, "zcdp")
    assert strategy.status is Outcome.CLOSED_FORM
    assert batchdp.optimize(W, "zcdp", objective="max").status is Outcome.OPTIMAL
    with pytest.raises(StrategyError, match="GiB as an array"):
        _ = strategy.measure
    with pytest.raises(StrategyError, match="GiB as an array"):
        _ = strategy.reconstruct
    with pytest.raises(batchdp.PrivacyParameterError, match="epsilon"):
        strategy.expected_squared_error(epsilon=1.0)
    with pytest.raises(batchdp.PrivacyParameterError, match="rho is missing"):
        strategy.lower_bound()
    with pytest.raises(batchdp.PrivacyParameterError, match="rho=0"):
        strategy.lower_bound(rho=0)
    with pytest.raises(StrategyError, match="objective"):
        batchdp.optimize(W, "zcdp", objective="least")  # type: ignore[call-overload,arg-type,unused-ignore]
    with pytest.raises(StrategyError, match="seconds"):
        batchdp.optimize(W, "zcdp", seconds=-1)
    found: object = strategy
    assert "1,160,000" not in repr(found)
    assert repr(found).startswith("Strategy(components, zcdp: 1,")


def test_tables_are_found_by_number_and_by_name() -> None:
    from batchdp.optimizer.residual.optimizing import optimize_products

    batch = in_factors((2, 3), [[PREFIX, None], [PREFIX, EACH]], names=["ages", "both"])
    strategy = optimize_products(batch)
    assert np.array_equal(strategy.variances("both", rho=0.5), strategy.variances(1, rho=0.5))
    assert np.array_equal(strategy.variances(-1, rho=0.25), 2 * strategy.variances(1, rho=0.5))
    assert strategy.variances("ages", rho=0.5).shape == (2,)
    for table in ("other", 2):
        with pytest.raises(StrategyError, match="table="):
            strategy.variances(table, rho=0.5)


def test_time_that_is_over_still_gives_a_strategy_with_a_limit() -> None:
    sizes = (16,) * 6
    prefix, each = np.tril(np.ones((16, 16))), np.eye(16)
    W = workloads.products(
        sizes,
        [[prefix if i in k else each if i + 1 in k else None for i in range(6)] for k in combinations(range(6), 2)],
    )
    start = time.process_time()
    strategy = batchdp.optimize(W, "zcdp", seconds=0.01)
    assert time.process_time() - start < 5  # not the ten of the largest groups
    assert 0 < strategy.lower_bound(rho=0.5) <= strategy.expected_squared_error(rho=0.5)
    assert strategy.status is Outcome.BUDGET_SPENT
    assert batchdp.optimize(W, "zcdp", progress=lambda *_: True).status is Outcome.CANCELLED


MANY = in_factors_only(workloads.marginals((10,) * 20, [0, 1, 2]))


def components() -> batchdp.ResidualStrategy:
    return batchdp.optimize(MANY, "zcdp")


def test_the_kind_of_strategy_follows_from_the_kind_of_batch() -> None:
    """mypy checks the annotations, this what they say."""
    found: batchdp.ResidualStrategy = batchdp.optimize(MANY, "zcdp")
    assert isinstance(found, batchdp.ResidualStrategy)
    assert isinstance(MANY, batchdp.KroneckerWorkload)
    small = workloads.products((2, 3), [[PREFIX, EACH]])
    assert isinstance(small, MatrixWorkload)
    one: batchdp.PairStrategy = batchdp.optimize(small, "zcdp")
    assert isinstance(one, batchdp.PairStrategy)
    either: batchdp.PairStrategy | batchdp.ResidualStrategy = batchdp.optimize(workloads.marginals((2, 3), 1), "zcdp")
    assert either.sensitivity == pytest.approx(1.0)
    two: batchdp.MarginalStrategy = batchdp.optimize(in_factors((2, 3), [[PREFIX, EACH]]), "pure", seconds=0.1)
    assert isinstance(two, batchdp.MarginalStrategy)


TOO_LARGE = r"too much for a matrix.*ask for fewer tables"


def test_measurements_that_do_not_fit_are_refused_with_their_size(tmp_path: Path) -> None:
    ledger = batchdp.Ledger.create(tmp_path / "own.ledger", epsilon=1)
    many = batchdp.workloads.marginals((100,) * 12, [6])  # 924 tables of 10^12 cells
    given: Any = batchdp.optimize(many, seconds=0.1)
    with pytest.raises(ReleaseError, match=r"GB of memory.*measurements.*fewer tables, or of fewer columns"):
        batchdp.answer(given, np.zeros((1, 12), dtype=np.int64), epsilon=0.5, ledger=ledger)
    assert batchdp.epsilon_for(given, standard_error=1e9) > 0
    assert ledger.spent == 0


def test_a_batch_is_not_a_strategy(tmp_path: Path) -> None:
    ledger = batchdp.Ledger.create(tmp_path / "own.ledger", rho=1)
    given: Any = MANY
    for take in (
        lambda: batchdp.answer(given, [0, 1], rho=0.5, ledger=ledger),
        lambda: batchdp.audit(given, rho=0.5),
        lambda: batchdp.epsilon_for(given, standard_error=1.0),
    ):
        with pytest.raises(ReleaseError, match=r"planned is a Workload.*give the strategy that optimize"):
            take()
    assert ledger.spent == 0


def test_the_budget_for_an_accuracy_follows_from_the_worst_table() -> None:
    found = components()
    rho = batchdp.epsilon_for(found, standard_error=10.0)
    assert np.sqrt(found.worst_variance(rho=rho)) == pytest.approx(10, rel=5e-3)
    assert batchdp.epsilon_for(found, half_width=19.6) == pytest.approx(rho, rel=1e-3)
    assert batchdp.epsilon_for(found, standard_error=10.0, neighbours="replace") == pytest.approx(4 * rho)
    assert batchdp.epsilon_for(found, standard_error=10.0, query="a1 × a2") < rho
    with pytest.raises(PrivacyParameterError, match="is not in the workload"):
        batchdp.epsilon_for(found, standard_error=10.0, query="nothing")
    prefixes = workloads.products((4, 3), [[PREFIX_OF_FOUR, None], [None, np.eye(3)]])
    small = batchdp.optimize(prefixes.structure, "zcdp")
    assert small.worst_variance(rho=0.5) == pytest.approx(float(small.per_query_variance(rho=0.5).max()))


PREFIX_OF_FOUR = np.tril(np.ones((4, 4)))


@pytest.mark.parametrize("given", [components(), MANY], ids=["strategy", "workload"])
def test_what_needs_a_plan_or_a_release_refuses_batches_over_many_columns(given: Any, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="an outlook needs a Plan"):
        batchdp.outlook(given)
    with pytest.raises(ReleaseError, match="a report needs one from"):
        batchdp.report(given, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(BatchDPError, match="give SELECT statements"):
        batchdp.plan(given, {})
    with pytest.raises(BatchDPError, match="domain"):
        batchdp.plan("SELECT COUNT(*) FROM t", given)


TAKERS: dict[str, Callable[[Any], object]] = {
    "low_rank": batchdp.low_rank,
    **{f"STRATEGIES {name}": method for name, method in batchdp.STRATEGIES.items()},
    **{
        f"bounds.{name}": getattr(batchdp.bounds, name)
        for name in batchdp.bounds.__all__
        if name not in ("OptimalityBound", "structural_error_bound")
    },
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_whatever_needs_a_matrix_refuses_what_is_too_large_for_one(take: Callable[[Any], object]) -> None:
    with pytest.raises(WorkloadError, match=TOO_LARGE):
        take(MANY)
    for strategy in (components(), batchdp.STRATEGIES["noise-on-data"](np.eye(2))):
        with pytest.raises(WorkloadError, match=r"give its \.workload"):
            take(strategy)
