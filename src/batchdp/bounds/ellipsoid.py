"""Factorisations R = B L of the Gaussian problem: ellipsoids that hold every column of R."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, qr
from scipy.linalg.lapack import dtrtri

from batchdp.linalg.matrix import Dense

Real = NDArray[np.floating[Any]]
"""A dense matrix in single or double precision."""
Columns = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """P⁻¹ = U l^-½ T l^-½ Uᵀ with T = C Cᵀ, and the value tr P · max q on the columns that it was made for."""

    value: float
    l: Dense
    U: Dense
    C: Dense | None = None
    """Lower triangular; I if there is none."""

    def measure(self) -> Dense:
        """K with L = K R, before it is scaled to norm 1."""
        K = self.U.T / np.sqrt(self.l)[:, None]
        return K if self.C is None else self.C.T @ K

    def reconstruct(self) -> Dense:
        """K⁻¹, which is B: formed from the factors, so that no digits are lost in an inversion."""
        B = self.U * np.sqrt(self.l)
        return B if self.C is None else B @ dtrtri(self.C, lower=True)[0].T


def root(R: Real, v: Dense) -> tuple[Dense, Dense]:
    """Eigenvalues l (all positive) and eigenvectors U of P = (R diag(v) Rᵀ)^½."""
    A = R * np.sqrt(v).astype(R.dtype)
    squares, U = np.linalg.eigh((A @ A.T).astype(np.float64))
    if squares[0] > 1e-11 * squares[-1]:
        return np.sqrt(squares), U
    U, l, _ = np.linalg.svd(_triangle(A).T, full_matrices=False)
    if l.size < R.shape[0]:  # fewer working columns than rows: complete the basis
        U, l = np.linalg.qr(U, mode="complete")[0], np.pad(l, (0, R.shape[0] - l.size))
    return np.maximum(l, 1e-14 * l[0]), U


def lower_bound(R: Dense, v: Dense) -> float:
    """(tr (R diag(v) Rᵀ)^½)² / Σv: no factorisation of R is below, whatever v ≥ 0."""
    A = R * np.sqrt(v)
    squares = np.linalg.eigvalsh(A @ A.T)
    if squares[0] > 1e-11 * squares[-1]:
        return float(np.sqrt(squares).sum() ** 2 / v.sum())
    return float(np.linalg.svd(_triangle(A), compute_uv=False).sum() ** 2 / v.sum())


def _triangle(A: Real) -> Dense:
    """The singular values of A in few columns: a graded spectrum must not be squared."""
    return np.asarray(qr(A.T.astype(np.float64), mode="r", check_finite=False)[0][: A.shape[0]])


def tightened(l: Dense, U: Dense, Y: Real, q: Dense, active: Columns) -> Ellipsoid | None:
    """The ellipsoid after moving P⁻¹ to where every active column has q_j = 1 exactly.

    With L = P^-½ R take P'⁻¹ = P^-½ (I − L_A diag(w) L_Aᵀ) P^-½: q is linear in P⁻¹, so w solves
    (L_Aᵀ L_A)^(squared entries) w = q_A − 1. What is left over (other columns, the ridge) is scaled away.
    """
    L = Y / np.sqrt(l).astype(Y.dtype)[:, None]
    A = L[:, active]
    H = A.T @ A
    H *= H
    H[np.diag_indices_from(H)] += 3e-5 if Y.dtype == np.float32 else 1e-6
    try:
        # The transpose is the same matrix in the order that LAPACK factors without a copy.
        w = cho_solve(cho_factor(H.T, overwrite_a=True, check_finite=False), (q[active] - 1).astype(Y.dtype))
        T = np.eye(l.size) - (A * w) @ A.T
        C = cholesky(T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    M = C.T.astype(Y.dtype) @ L
    largest = float(np.einsum("ij,ij->j", M, M).max())
    trace = float(np.square(dtrtri(C, lower=True)[0]).sum(axis=0) @ l)
    return Ellipsoid(trace * largest, l, U, C)
