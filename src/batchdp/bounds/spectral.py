"""Bounds from the singular values of W alone: quick, and the paper's analysis rests on them; and what relaxing W costs.

The paper calls the singular values λ_k of W its eigenvalues. All figures are total expected squared error
under ε-differential privacy, ignoring importance weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr
from scipy.special import gammaln

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Dense, dense
from batchdp.workloads.workload import MatrixWorkload, as_workload


def singular_values(workload: MatrixWorkload | ArrayLike | Any) -> Dense:
    """The non-zero singular values of W, largest first."""
    W = dense(as_workload(workload).matrix)
    sigma = np.linalg.svd(W, compute_uv=False)
    return np.asarray(sigma[sigma > sigma[0] * max(W.shape) * np.finfo(float).eps])


def svd_lower_bound(workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0) -> float:
    """2 (Σ λ_k)² / (n ε²): no factorisation of W is below; the convex bound with all cells alike."""
    workload = as_workload(workload)
    return 2 * float(singular_values(workload).sum()) ** 2 / (workload.cells * epsilon**2)


def lemma_3_upper_bound(workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0) -> float:
    """2 r Σ λ_k² / ε²: what B = √r U Σ, L = V / √r reaches at the most, r being the rank.

    The paper prints r Σ λ_k² / ε², without the factor 2 of the Laplace variance. Its proof also says that
    every column of V has L2 norm 1; V has orthonormal rows, so a column's norm is at most 1, which suffices.
    """
    squares = singular_values(workload) ** 2
    return 2 * len(squares) * float(squares.sum()) / epsilon**2


def lemma_4_lower_bound(
    workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0, constant: float = 1.0
) -> float:
    """constant · r³ vol^(2/r) / ε²: Hardt and Talwar's order of growth for any ε-private mechanism.

    Their theorem has an unnamed absolute constant, so this shows how a workload scales; it certifies nothing.
    vol is the volume of the hull of ± the columns of Uᵀ W. The paper takes it to be (2^r / r!) Π λ_k, which
    holds when V is a coordinate projection but not in general: for one query that sums n cells the printed
    bound is of order 4n, while Laplace noise answers it with error 2. Here vol is bounded from below by the
    cross-polytope on r columns of W chosen by pivoted QR, (2^r / r!) |det|, which is valid always.
    """
    W = dense(as_workload(workload).matrix)
    r = len(singular_values(workload))
    if r == 0:
        return 0.0
    R = qr(W, mode="r", pivoting=True)[0]
    return constant * _volume_term(np.abs(np.diag(R))[:r]) / epsilon**2


def lemma_4_as_printed(
    workload: MatrixWorkload | ArrayLike | Any, *, epsilon: float = 1.0, constant: float = 1.0
) -> float:
    """constant · ((2^r / r!) Π λ_k)^(2/r) r³ / ε², for comparison with the paper; not a bound in general."""
    sigma = singular_values(workload)
    return constant * _volume_term(sigma) / epsilon**2 if len(sigma) else 0.0


def theorem_2_ratio(workload: MatrixWorkload | ArrayLike | Any) -> float:
    """C² r / 8 with C = λ_1 / λ_r: Lemma 3's bound is at most this many times Lemma 4's as printed.

    The paper prints (C / 4)² r; Lemma 3's missing factor 2 doubles it. It needs rank r > 5, and it speaks of
    the printed Lemma 4 with constant 1, so it says how fast the two grow apart rather than how far apart
    they are.
    """
    sigma = singular_values(workload)
    if len(sigma) <= 5:
        raise WorkloadError(f"workload has rank {len(sigma)}; Theorem 2 speaks of ranks above 5")
    return float((sigma[0] / sigma[-1]) ** 2 * len(sigma) / 8)


def _volume_term(lengths: Dense) -> float:
    """((2^r / r!) Π lengths)^(2/r) r³, by logarithms so that nothing overflows."""
    r = len(lengths)
    log_volume = r * np.log(2) - gammaln(r + 1) + np.log(lengths).sum()
    return float(np.exp(2 / r * log_volume) * r**3)


def structural_error_bound(relaxation: float, squared_counts: float) -> float:
    """γ² Σ x_i²: the most that ‖W − B L‖_F ≤ γ adds to the total squared error (Theorem 3).

    The paper prints γ Σ x_i² in the theorem; its own proof gives ‖W − B L‖²_F Σ x_i², that is γ².
    """
    return float(np.square(relaxation) * squared_counts)
