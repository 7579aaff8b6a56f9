from __future__ import annotations

import numpy as np
import pytest

from batchdp import WorkloadError, bounds, workloads
from batchdp.optimizer.families.noise_on_results import noise_on_results
from cases import contract_workload, peer_figures, small_workloads


@pytest.mark.parametrize("name", small_workloads())
def test_the_bounds_are_in_order(name: str) -> None:
    workload = small_workloads()[name]
    certificate = bounds.certify(workload)
    assert certificate.lower_bound <= certificate.upper_bound
    one_block = len(workload.blocks) == 1
    known = one_block or workload.kinds is not None  # over several blocks the bound of these is tight, a sum is not
    assert (certificate.gap <= 1e-3) == known
    if one_block and workload.weights is None:
        assert bounds.svd_lower_bound(workload) <= 2 * certificate.lower_bound * (1 + 1e-9)
        assert 2 * certificate.lower_bound <= bounds.lemma_3_upper_bound(workload) * (1 + 1e-9)


def test_the_singular_value_bound_is_the_peers() -> None:
    for kind, m, n, s, peer, error in peer_figures(256):
        if peer == "svd-lower-bound":
            workload = contract_workload(kind, m, n, s)
            assert bounds.svd_lower_bound(workload) / m == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize(
    "figure",
    [figure for figure in peer_figures(256) if figure[4] == "l2-lower-bound"],
    ids=lambda figure: "-".join(map(str, figure[:4])),
)
def test_the_convex_bound_is_the_peers(figure: tuple[str, int, int, int, str, float]) -> None:
    kind, m, n, s, _, error = figure
    certificate = bounds.certify(contract_workload(kind, m, n, s))
    assert certificate.gap <= 1e-3
    assert 2 * certificate.lower_bound / m == pytest.approx(error, rel=2e-3)


def test_every_dual_weight_gives_a_valid_bound() -> None:
    """The certificate can be checked without trusting the solver: recompute it from the weights alone."""
    workload = workloads.discrete(8, 12)
    certificate = bounds.certify(workload)
    from batchdp.workloads.reduction import reduce

    R = reduce(workload).reduced
    v = certificate.weights
    eigenvalues = np.linalg.eigvalsh((R * v) @ R.T)
    recomputed = np.sqrt(np.maximum(eigenvalues, 0)).sum() ** 2 / v.sum()
    assert recomputed == pytest.approx(certificate.lower_bound)


def test_lemma_3_is_reached_by_its_own_construction() -> None:
    W = np.random.default_rng(0).standard_normal((6, 9))
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    r = len(sigma)
    B, L = np.sqrt(r) * U * sigma, V / np.sqrt(r)
    assert np.abs(L).sum(axis=0).max() <= 1
    assert 2 * np.sum(B * B) == pytest.approx(bounds.lemma_3_upper_bound(W))


def test_lemma_4_as_printed_is_not_a_bound() -> None:
    """One query that sums n cells: Laplace noise of error 2 suffices, the printed formula says 4n."""
    total = np.ones((1, 50))
    assert noise_on_results(total).expected_squared_error(epsilon=1) == 2
    assert bounds.lemma_4_as_printed(total) == pytest.approx(4 * 50)
    assert bounds.lemma_4_lower_bound(total) == pytest.approx(4)  # of the right order for every n


def test_lemma_4_agrees_with_the_printed_formula_on_independent_cells() -> None:
    W = np.diag([3.0, 2.0, 1.0])
    assert bounds.lemma_4_lower_bound(W) == pytest.approx(bounds.lemma_4_as_printed(W))
    assert bounds.lemma_4_lower_bound(np.zeros((2, 2))) == 0 == bounds.lemma_4_as_printed(np.zeros((2, 2)))


def test_lemma_4_does_not_overflow() -> None:
    assert 0 < bounds.lemma_4_lower_bound(workloads.discrete(200, 300)) < np.inf


def test_theorem_2_bounds_the_ratio_of_the_two_lemmas() -> None:
    for workload in (workloads.discrete(30, 40), workloads.ranges(30, 20), workloads.prefix(40)):
        ratio = bounds.lemma_3_upper_bound(workload) / bounds.lemma_4_as_printed(workload)
        assert ratio <= bounds.theorem_2_ratio(workload)
    with pytest.raises(WorkloadError, match="rank 3"):
        bounds.theorem_2_ratio(np.eye(3))


def test_theorem_3_squares_the_relaxation() -> None:
    rng = np.random.default_rng(0)
    W, x = rng.standard_normal((5, 7)), rng.integers(0, 100, size=7).astype(float)
    E = 1e-2 * rng.standard_normal((5, 7))
    gamma = float(np.linalg.norm(E))
    structural = float(np.sum(((W - (W - E)) @ x) ** 2))
    assert structural <= bounds.structural_error_bound(gamma, float(x @ x))
    # A residual along x attains it, so γ in place of γ² would be wrong for γ > 1 and loose below.
    E = np.outer(np.ones(5), x)
    gamma = float(np.linalg.norm(E))
    assert float(np.sum((E @ x) ** 2)) == pytest.approx(bounds.structural_error_bound(gamma, float(x @ x)))
    assert float(np.sum((E @ x) ** 2)) > gamma * float(x @ x)


def test_bounds_scale_with_one_over_epsilon_squared() -> None:
    W = workloads.discrete(8, 12)
    for bound in (
        bounds.svd_lower_bound,
        bounds.lemma_3_upper_bound,
        bounds.lemma_4_lower_bound,
        bounds.lemma_4_as_printed,
    ):
        assert bound(W, epsilon=0.1) == pytest.approx(100 * bound(W))
