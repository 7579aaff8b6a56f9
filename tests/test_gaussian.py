from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from batchdp import STRATEGIES, MatrixWorkload, PairStrategy, StrategyError, bounds, optimize, workloads
from batchdp.linalg.matrix import dense
from batchdp.optimizer.families.gaussian import gaussian
from batchdp.text import Outcome
from cases import contract_workload, peer_figures, small_workloads

CONTRACT = sorted({figure[:4] for figure in peer_figures(1024) if figure[0].startswith("W")})


@pytest.mark.parametrize("case", CONTRACT, ids=str)
def test_the_optimum_is_certified_on_every_contract_workload(case: tuple[str, int, int, int]) -> None:
    strategy = optimize(contract_workload(*case), privacy="zcdp")
    assert strategy.optimality.gap <= 1e-3
    assert strategy.residual <= 1e-9
    error, bound = strategy.expected_squared_error(rho=0.5), strategy.lower_bound(rho=0.5)
    assert bound <= error <= bound * 1.001


@pytest.mark.slow
def test_a_thousand_running_totals_within_one_percent() -> None:
    strategy = optimize(workloads.prefix(1024), privacy="zcdp")
    assert strategy.expected_squared_error(rho=0.5) <= 1.01 * strategy.lower_bound(rho=0.5)


@pytest.mark.slow
def test_a_thousand_queries_over_eight_thousand_cells() -> None:
    strategy = gaussian(workloads.discrete(1024, 8192))
    assert strategy.optimality.gap <= 1e-3
    assert strategy.residual <= 1e-9


@pytest.mark.parametrize("name", small_workloads())
def test_no_other_pair_is_better_under_gaussian_noise(name: str) -> None:
    workload = small_workloads()[name]
    best = gaussian(workload, tolerance=1e-6).expected_squared_error(rho=0.5)
    weights = np.ones(workload.queries) if workload.weights is None else workload.weights
    for other in ("noise-on-data", "noise-on-results", "wavelet", "p-identity"):
        pair = STRATEGIES[other](workload)
        L2 = PairStrategy(workload, pair.measure, pair.reconstruct, privacy="zcdp").sensitivity
        assert best <= L2**2 * float(weights @ np.square(pair.reconstruct).sum(axis=1)) * (1 + 2e-6)


def test_several_blocks_are_solved_by_themselves_and_nothing_more_is_claimed() -> None:
    """As one block the two have an error of 119.6, which was said to be the optimum."""
    blocks = [dense(workloads.prefix(n).matrix) for n in (6, 8)]
    workload = MatrixWorkload(sparse.block_diag(blocks), blocks=[6, 8])
    strategy = gaussian(workload)
    error = strategy.expected_squared_error(rho=0.5)
    each = [gaussian(block).expected_squared_error(rho=0.5) for block in blocks]
    assert error == pytest.approx(sum(np.sqrt(each)) ** 2)
    assert error < 59.5
    bound = strategy.optimality
    assert bound.lower_bound * (1 + bound.gap) == pytest.approx(error, rel=2e-3)
    assert bound.gap > 0.5  # the limit adds up the blocks'
    assert strategy.status is Outcome.OPTIMAL_BY_BLOCK
    assert strategy.status.advice
    together = optimize(workload, "zcdp")
    assert together.expected_squared_error(rho=0.5) < 0.81 * error
    assert bounds.certify(workload).gap <= 1e-3
    assert together.lower_bound(rho=0.5) == pytest.approx(together.expected_squared_error(rho=0.5), rel=2e-3)


def test_a_smaller_tolerance_gives_a_smaller_gap() -> None:
    W = workloads.discrete(20, 40)
    assert gaussian(W, tolerance=1e-8).optimality.gap <= 1e-8
    for bad in (0, -1, 1, np.nan):
        with pytest.raises(StrategyError, match="tolerance"):
            gaussian(W, tolerance=bad)


def test_out_of_rounds_is_said_and_still_a_valid_pair() -> None:
    strategy = gaussian(workloads.discrete(20, 40), tolerance=1e-12, max_rounds=2)
    assert strategy.status == "out of rounds"
    assert strategy.residual <= 1e-9
    assert strategy.expected_squared_error(rho=0.5) >= strategy.lower_bound(rho=0.5)


@pytest.mark.parametrize("name", small_workloads())
def test_the_worst_query_under_gaussian_noise_is_optimal(name: str) -> None:
    workload = small_workloads()[name]
    strategy = optimize(workload, privacy="zcdp", objective="max")
    largest, bound = strategy.largest_variance(rho=0.5), strategy.largest_variance_bound(rho=0.5)
    assert bound * (1 - 1e-9) <= largest
    assert largest <= bound * 1.0011 or len(workload.blocks) > 1  # over blocks the bound is that of one, and loose
    assert largest <= optimize(workload, privacy="zcdp").largest_variance(rho=0.5) * 1.0011


def test_the_worst_case_bound_can_be_recomputed_from_its_weights() -> None:
    """By weak duality the weighted-sum bound for the same weights is a bound on the largest variance."""
    W = dense(workloads.ranges(10, 16).matrix)
    worst = bounds.certify_worst(MatrixWorkload(W))
    weighted = bounds.certify(MatrixWorkload(W, weights=worst.query_weights), tolerance=1e-6)
    assert weighted.upper_bound >= worst.lower_bound * (1 - 1e-6)
    assert weighted.lower_bound <= worst.upper_bound * (1 + 1e-6)


def test_the_certificate_is_a_sentence() -> None:
    laplace, normal = optimize(workloads.prefix(8)), optimize(workloads.prefix(8), privacy="zcdp")
    assert "Laplace noise at ε = 0.5" in laplace.certified(epsilon=0.5)
    assert "not tight" in laplace.certified(epsilon=0.5)
    assert "Gaussian noise at ρ = 2" in normal.certified(rho=2)
    assert f"{normal.lower_bound(rho=2):.6g}" in normal.certified(rho=2)
