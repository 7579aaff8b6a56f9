"""Symmetric matrices against the positive definite cone: inside it with an inverse, or brought there.

All eigenvectors cost ten times as much as an inverse by Cholesky, and a matrix that leaves the cone leaves it in few
directions; so those are sought by themselves, and all of them only where that fails.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from batchdp.linalg.matrix import Dense

ITERATIVE_FROM = 256
"""Rows from which iteration finds a few eigenvectors sooner than LAPACK finds all."""
ATTEMPTS = ((1, 20, 1e-4), (8, 40, 1e-9), (32, 96, 1e-9))
"""How many of the lowest eigenvectors are sought, from how many Lanczos vectors, how precisely; one after the other."""


def inverse_inside(M: Dense, floor: float) -> Dense | None:
    """M⁻¹ if M is surely positive definite, with no eigenvalue below `floor` times its largest; None if not."""
    inverse = _inverse(M)
    if inverse is None:
        return None
    condition = np.linalg.norm(M) * np.linalg.norm(inverse)  # Frobenius norms: no less than the true one
    return inverse if condition <= 1 / floor else None


def project(M: Dense, floor: float, hopeless: Callable[[Dense, float], bool]) -> tuple[Dense, Dense] | None:
    """P, the nearest matrix with no eigenvalue below `floor` times M's largest, and its inverse.

    None as soon as P is hopeless by what is known of it: orthonormal columns U and a height with UᵀPU ≤ height · I.
    """
    attempts = ATTEMPTS if len(M) >= ITERATIVE_FROM else ()
    least = floor * _largest(M) if attempts else 0.0
    for count, vectors, tolerance in attempts:
        try:
            eigenvalues, V = eigsh(
                M, k=count, which="SA", v0=_start(M), ncv=vectors, tol=tolerance, maxiter=4 * len(M) // vectors
            )
        except ArpackNoConvergence:
            break
        below = eigenvalues < least
        # With residuals ρᵢ of pairs θᵢ, uᵢ below the floor f, and c the parts of a unit u = U y along M's eigenvectors,
        # uᵀP u = Σ c² max(λ, f) ≤ f + ‖(M − f I)₊ u‖ ≤ f + Σ |yᵢ| ρᵢ ≤ f + ‖ρ‖.
        residual = float(np.linalg.norm(M @ V - V * eigenvalues))
        if below.any() and hopeless(V[:, below], least + residual):
            return None
        if not below.all() and residual <= 0.01 * least:  # all that are below are known
            lifted = M + (V * np.maximum(least - eigenvalues, 0)) @ V.T
            inverse = _inverse(lifted)
            if inverse is not None:
                return lifted, inverse
    eigenvalues, V = np.linalg.eigh(M)
    eigenvalues = np.maximum(eigenvalues, max(eigenvalues[-1], 1e-300) * floor)
    return (V * eigenvalues) @ V.T, (V / eigenvalues) @ V.T


def _largest(M: Dense) -> float:
    return float(eigsh(M, k=1, which="LA", v0=_start(M), tol=1e-6, return_eigenvectors=False)[0])


def _start(M: Dense) -> Dense:
    """The same in every run, and orthogonal to no eigenvector that one would meet."""
    return np.asarray(np.cos(np.arange(len(M)) ** 2.0))


def _inverse(M: Dense) -> Dense | None:
    C, failed = dpotrf(M.T, lower=1, clean=1)  # the transpose of a symmetric matrix, because LAPACK goes by columns
    if failed:
        return None
    lower, _ = dpotri(C, lower=1, overwrite_c=1)
    inverse = lower + lower.T  # above the diagonal, `clean` has left nothing
    inverse[np.diag_indices_from(inverse)] /= 2
    return np.asarray(inverse)
