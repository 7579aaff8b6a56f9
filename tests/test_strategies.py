"""What every registered family owes its caller; registering a family adds these tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from batchdp import STRATEGIES, MatrixWorkload, PairStrategy, StrategyError
from batchdp.linalg.matrix import dense
from batchdp.optimizer.families import FAMILIES
from batchdp.optimizer.families.hierarchical import hierarchical
from batchdp.optimizer.families.matrix_mechanism import matrix_mechanism
from batchdp.optimizer.families.noise_on_data import noise_on_data
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.optimizer.families.p_identity import p_identity
from batchdp.optimizer.families.wavelet import haar
from batchdp.privacy import GAUSSIAN, LAPLACE
from cases import contract_workload, peer_figures, small_workloads

every_method = pytest.mark.parametrize("method", STRATEGIES)


@every_method
@pytest.mark.parametrize("name", small_workloads())
def test_the_pair_reproduces_the_workload(method: str, name: str) -> None:
    workload = small_workloads()[name]
    strategy = STRATEGIES[method](workload)
    W = dense(workload.matrix)
    assert np.linalg.norm(strategy.reconstruct @ strategy.measure - W) <= 1e-9 * np.linalg.norm(W)
    assert strategy.residual <= 1e-9
    assert strategy.method == method


def simulated_errors(strategy: PairStrategy, draws: int) -> np.ndarray:
    """Squared errors, draws × queries, with noise from a seeded generator: for tests only."""
    rng = np.random.default_rng(1)
    shape = (draws, strategy.measurements)
    draw = {LAPLACE: rng.laplace, GAUSSIAN: rng.normal}[strategy.noise]  # at ε = 1, or ρ = 1/2
    noise = draw(scale=strategy.sensitivity, size=shape)
    return np.asarray((noise @ strategy.reconstruct.T) ** 2)


@every_method
@pytest.mark.parametrize(
    "name",
    ["example 2", "discrete", "ranges", "related", "weighted", "zero row", "sparse", "blocks", "spanning", "product"],
)
def test_simulated_error_matches_the_formula(method: str, name: str) -> None:
    strategy = STRATEGIES[method](small_workloads()[name])
    budget = strategy.noise.reference.arguments
    draws = 20_000
    errors = simulated_errors(strategy, draws)
    expected = strategy.per_query_variance(**budget)
    # Five standard errors of the simulation itself, about 1 to 3 percent.
    assert np.all(np.abs(errors.mean(axis=0) - expected) <= 5 * errors.std(axis=0) / np.sqrt(draws))
    weights = strategy.workload.weights
    totals = errors.sum(axis=1) if weights is None else errors @ weights
    total = strategy.expected_squared_error(**budget)
    assert abs(totals.mean() - total) <= 5 * totals.std() / np.sqrt(draws)


@pytest.mark.slow
@every_method
def test_no_method_is_below_the_lower_bound(method: str) -> None:
    for workload in small_workloads().values():
        strategy = STRATEGIES[method](workload)
        budget = strategy.noise.reference.arguments
        error, bound = strategy.expected_squared_error(**budget), strategy.lower_bound(**budget)
        assert error >= bound * (1 - 1e-9)


@every_method
def test_arrays_sparse_matrices_and_workloads_are_the_same_to_a_method(method: str) -> None:
    W = np.array([[1, 1, 0, 0, 2], [0, 1, 1, 0, 2], [0, 0, 1, 1, -2]])
    errors = [
        STRATEGIES[method](given).per_query_variance(**FAMILIES[method].noise.reference.arguments)
        for given in (W, W.tolist(), sparse.csr_array(W), MatrixWorkload(W))
    ]
    for other in errors[1:]:
        assert other == pytest.approx(errors[0])


EXACT = {"noise-on-data": "noise-on-data", "noise-on-results": "noise-on-results"}
CLOSE = {"wavelet": "wavelet", "hierarchical-binary": "hierarchical"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "figure",
    [figure for figure in peer_figures(1024) if figure[4] in EXACT | CLOSE],
    ids=lambda figure: "-".join(map(str, figure[:5])),
)
def test_baselines_agree_with_other_programs(figure: tuple[str, int, int, int, str, float]) -> None:
    kind, m, n, s, peer, error = figure
    workload = contract_workload(kind, m, n, s)
    strategy = STRATEGIES[(EXACT | CLOSE)[peer]](workload)
    ours = strategy.expected_squared_error(epsilon=1) / m
    assert ours == pytest.approx(error, rel=5e-6 if peer in EXACT else 0.01)


@pytest.mark.parametrize(
    "figure",
    [figure for figure in peer_figures(512) if figure[4] == "hdmm-p-identity-best-of-3" and figure[1] <= 256],
    ids=lambda figure: "-".join(map(str, figure[:4])),
)
def test_p_identity_is_at_least_as_good_as_other_programs(figure: tuple[str, int, int, int, str, float]) -> None:
    kind, m, n, s, _, error = figure
    ours = p_identity(contract_workload(kind, m, n, s)).expected_squared_error(epsilon=1) / m
    assert ours <= error * (1 + 1e-6)


def test_signed_p_identity_reproduces_and_is_never_worse_than_noise_on_data() -> None:
    for workload in small_workloads().values():
        signed = p_identity(workload, signed=True, max_rounds=50).expected_squared_error(epsilon=1)
        assert signed <= noise_on_data(workload, merged=True).expected_squared_error(epsilon=1) * (1 + 1e-9)


def test_merging_and_least_squares_are_never_worse() -> None:
    for workload in small_workloads().values():
        for method, better in (
            (noise_on_data(workload), noise_on_data(workload, merged=True)),
            (noise_on_results(workload), noise_on_results(workload, least_squares=True)),
        ):
            assert better.expected_squared_error(epsilon=1) <= method.expected_squared_error(epsilon=1) * (1 + 1e-9)


@pytest.mark.parametrize("cells", [1, 2, 3, 5, 8, 13, 100, 128])
def test_the_wavelet_transform_is_inverted_exactly(cells: int) -> None:
    L, inverse = haar(cells)
    assert np.array_equal((L @ inverse).toarray(), np.eye(cells))
    assert np.max(abs(L).sum(axis=0)) == 1 + np.ceil(np.log2(cells))


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 16, 27])
@pytest.mark.parametrize("branching", [2, 3, 10])
def test_the_trees_reconstruction_is_the_pseudo_inverse(cells: int, branching: int) -> None:
    W = np.random.default_rng(0).standard_normal((4, cells))
    strategy = hierarchical(W, branching=branching)
    assert np.allclose(strategy.reconstruct, W @ np.linalg.pinv(strategy.measure))


@pytest.mark.parametrize("branching", [1, 0, -2, 2.5, True, "2"])
def test_an_impossible_branching_is_refused(branching: int) -> None:
    with pytest.raises(StrategyError, match="branching"):
        hierarchical(np.eye(3), branching=branching)


@pytest.mark.parametrize("shared", [0, -1, 1.5, True])
def test_an_impossible_number_of_shared_queries_is_refused(shared: int) -> None:
    with pytest.raises(StrategyError, match="shared"):
        p_identity(np.eye(3), shared=shared)


def test_p_identity_is_deterministic_for_a_seed() -> None:
    W = contract_workload("WRange", 20, 40, 0)
    one, same = p_identity(W, seed=3), p_identity(W, seed=3)
    assert np.array_equal(one.measure, same.measure)


def test_the_matrix_mechanism_approaches_the_l2_optimum_that_it_aims_for() -> None:
    strategy = matrix_mechanism(contract_workload("Prefix", 16, 16, 0), max_rounds=300, smoothing=0.001)
    L2 = float(np.square(strategy.measure).sum(axis=0).max() * np.square(strategy.reconstruct).sum())
    assert strategy.optimality.upper_bound * 1.01 >= L2


def test_section_3_2_noise_on_results_squares_the_column_sum() -> None:
    W = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    error = noise_on_results(W).expected_squared_error(epsilon=1)
    assert error == pytest.approx(2 * 3 * np.abs(W).sum(axis=0).max() ** 2)
    assert error > 2 * 3 * np.square(W).sum(axis=0).max()  # what the paper prints
