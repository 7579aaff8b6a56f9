"""Factorisations R = B L of the Gaussian problem: ellipsoids around all columns of R, found on few and proven on all.

Of many columns few touch the ellipsoid in the end, and those that stick out of the first one are nearly the same.
Single precision halves the work on them. So that a graded spectrum can be squared in it, the columns are turned to
the first round's eigenbasis: there every row has a size of its own, and keeps its digits whatever that of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, qr
from scipy.linalg.lapack import dtrtri

from batchdp.linalg.matrix import Dense, Indices

Real = NDArray[np.floating[Any]]
"""A dense matrix in single or double precision."""
Columns = Indices


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


def tighten(l: Dense, U: Dense, Y: Real, q: Dense, active: Columns) -> Ellipsoid | None:
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


MOST_GRADED = 1e-5
"""Smallest to largest eigenvalue of P below which single precision is not tried."""


class ActiveColumns:
    """`matrix` is Qᵀ R on some `columns`; Q is the `basis`, or I while there is none."""

    def __init__(self, R: Dense) -> None:
        self._all = R
        self.columns: Columns = np.arange(R.shape[1])
        self.matrix: Real = R
        self._basis: Dense | None = None

    @property
    def exact(self) -> bool:
        """Whether a round's lower bound is one of double precision."""
        return self.matrix.dtype.type is np.float64

    def keep(self, which: NDArray[np.bool_] | Columns) -> None:
        """Go on with some of the columns only."""
        self.columns = self.columns[which]
        self.matrix = np.ascontiguousarray(self.matrix[:, which])

    def add(self, columns: Columns) -> None:
        """Take columns in, behind those that are there."""
        fresh = self._all[:, columns]
        if self._basis is not None:
            fresh = self._basis.T @ fresh
        self.columns = np.concatenate([self.columns, columns])
        self.matrix = np.concatenate([self.matrix, fresh.astype(self.matrix.dtype)], axis=1)

    def turn(self, basis: Dense, turned: Real) -> None:
        """Go on in single precision in another basis; `turned` is the matrix in it."""
        self._basis, self.matrix = basis, turned.astype(np.float32)

    def turn_back(self) -> None:
        """Go on in double precision."""
        self._basis, self.matrix = None, self._all[:, self.columns]

    def original(self, found: Ellipsoid) -> Ellipsoid:
        """An ellipsoid of `matrix` as one of R."""
        return found if self._basis is None else replace(found, U=self._basis @ found.U)

    def violators(self, norms: Dense) -> Columns:
        """Columns that were left out and are longer than all of those that are here; if any, then nearly so as well."""
        outside = np.ones(norms.size, dtype=bool)
        outside[self.columns] = False
        longest = norms[self.columns].max()
        if not np.any(norms[outside] > longest * (1 + 1e-6)):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(outside & (norms > 0.99 * longest))


class Proof:
    """Bounds that hold, and what they follow from: checked on all columns, in double precision."""

    def __init__(self, R: Dense) -> None:
        self._R = R
        self.lower, self.upper = 0.0, np.inf
        self.v = np.ones(R.shape[1])
        self.L, self.B = R, np.eye(R.shape[0])

    def below(self, columns: Columns, v: Dense, bound: float | None = None) -> None:
        """A lower bound from weights on some columns, which is one for all; computed unless it is known."""
        if bound is None:
            bound = lower_bound(self._R[:, columns], v)
        if bound > self.lower:
            self.lower, self.v = bound, np.zeros(self._R.shape[1])
            self.v[columns] = v

    def above(self, found: Ellipsoid) -> Dense:
        """An upper bound from an ellipsoid, scaled until it holds all columns; returns their squared norms before."""
        L, B = found.measure() @ self._R, found.reconstruct()
        norms = np.asarray(np.einsum("ij,ij->j", L, L))
        size = float(np.sqrt(norms.max()))
        upper = float(np.square(B).sum()) * size**2
        if upper < self.upper:
            L /= size
            B *= size
            self.upper, self.L, self.B = upper, L, B
        return norms


LARGEST_ACTIVE_SET = 10_000
"""Columns up to which tightening is tried: it holds a square matrix of this size."""


class Patience:
    """When to tighten: often where that costs less than a round, else when it is likely to be for the last time."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._credit = self._cost = self._price = 0.0

    def ends(self, k: int, columns: int, active: int, gap: float) -> bool:
        """Whether to do so after a round on so many columns that left such a gap."""
        self._cost = 4.0 * k * k * columns + 20.0 * k**3
        self._price = 2.0 * k * active**2 + active**3 / 3 + 3.0 * k**3
        self._credit += self._cost
        # It gains about a digit, so that one who is further off had better go on.
        reluctance = 1 + self._halvings(gap / 10) if self._price > self._cost else 1.0
        return gap < 1 and active <= LARGEST_ACTIVE_SET and self._price * reluctance <= self._credit

    def renew(self, gap: float) -> None:
        """Start over after a try that left such a gap; a round about halves it."""
        self._credit = min(0.0, self._price - self._cost * self._halvings(gap)) if self._price > self._cost else 0.0

    def lose(self) -> None:
        """Do so after the next round."""
        self._credit = np.inf

    def _halvings(self, gap: float) -> float:
        return float(np.log2(max(1.0, gap / self._tolerance)))
