"""Symmetric matrices against the positive definite cone: inside it, or brought there.

All eigenvectors cost thirty times as much as a Cholesky factor, and a matrix that leaves the cone leaves it in few
directions; so those are sought by themselves, and all of them only where that fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpocon, dposv, dpotrf, dpotrs, sposv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from batchdp.linalg.matrix import Dense


def plus_identity(matrix: Dense, times: float = 1.0) -> Dense:
    """The square matrix with so much more on its diagonal, in place."""
    matrix.flat[:: len(matrix) + 1] += times
    return matrix


def solved(matrix: Dense, right: Dense) -> Dense:
    """X with `matrix` X = `right`, in their precision; LinAlgError unless the matrix is positive definite."""
    if not right.size:  # which LAPACK does not take
        return right
    _, X, info = (sposv if matrix.dtype == np.float32 else dposv)(matrix, right, lower=1)
    if info:
        raise LinAlgError("a matrix that rounding has left without an inverse")
    return np.asarray(X)


ITERATIVE_FROM = 256
"""Rows from which iteration finds a few eigenvectors sooner than LAPACK finds all."""
FEW = (8, 32)
"""How many eigenvectors are sought by themselves, at first and at most."""
_eigsh: Any = eigsh  # with or without `rng`
_SAME = {"rng": 0} if "rng" in inspect.signature(eigsh).parameters else {}
"""For vectors that ARPACK makes up where a space is exhausted; SciPy before 1.17 has them the same by itself."""

Hopeless = Callable[[Dense, float], bool]


@dataclass(frozen=True)
class Definite:
    """A positive definite matrix and what divides by it."""

    matrix: Dense
    divided: Callable[[Dense], Dense]
    """From rows R to R M⁻¹."""


def inside(M: Dense, floor: float) -> Definite | None:
    """M itself if it is positive definite with, by LAPACK's estimate, no eigenvalue below `floor` times its largest."""
    C = _factor(M)
    if C is None:
        return None
    inverse_condition, _ = dpocon(C, np.abs(M).sum(axis=0).max(), uplo="L")
    return _by_factor(M, C) if inverse_condition >= floor else None


def project(M: Dense, floor: float, hopeless: Hopeless) -> Definite | None:
    """P, the nearest matrix with no eigenvalue below `floor` times M's largest.

    None as soon as P is hopeless by what is known of it: orthonormal columns U and a height with UᵀPU ≤ height · I.
    """
    glance = _at_a_glance(M) if len(M) >= ITERATIVE_FROM else None
    if glance is not None:
        if _surely(M, floor * float(np.linalg.norm(M)), *glance, hopeless):
            return None
        least = floor * _largest(M)
        for count in FEW if least > 0 else ():  # without a floor nothing is proven
            found = _lowest(M, count, glance[0][0])
            if found is None:
                break
            eigenvalues, V = found
            if _surely(M, least * (1 + 1e-5), eigenvalues, V, hopeless):
                return None
            # Then all that are below are known, but perhaps for equal ones; of those, P would show by having no factor.
            if eigenvalues[-1] > least and _residual(M, eigenvalues, V) <= 0.01 * least:
                P = np.asarray(M + (V * np.maximum(least - eigenvalues, 0)) @ V.T)
                C = _factor(P)
                if C is not None:
                    return _by_factor(P, C)
    eigenvalues, V = np.linalg.eigh(M)
    eigenvalues = np.maximum(eigenvalues, max(eigenvalues[-1], 1e-300) * floor)
    return Definite((V * eigenvalues) @ V.T, lambda R: np.asarray(((R @ V) / eigenvalues) @ V.T))


def _surely(M: Dense, least: float, eigenvalues: Dense, V: Dense, hopeless: Hopeless) -> bool:
    """Whether directions in which M is not positive are enough to call its projection P hopeless.

    With residuals ρᵢ of pairs θᵢ, uᵢ below the floor f, and c the parts of a unit u = U y along M's eigenvectors,
    uᵀP u = Σ c² max(λ, f) ≤ f + ‖(M − f I)₊ u‖ ≤ f + Σ |yᵢ| ρᵢ ≤ f + ‖ρ‖.
    """
    below = eigenvalues < 0
    return bool(below.any()) and hopeless(V[:, below], least + _residual(M, eigenvalues[below], V[:, below]))


def _residual(M: Dense, eigenvalues: Dense, V: Dense) -> float:
    return float(np.linalg.norm(M @ V - V * eigenvalues))


def _at_a_glance(M: Dense) -> tuple[Dense, Dense] | None:
    """The least eigenvalue and its vector, roughly, in single precision."""
    with np.errstate(over="ignore"):
        single = M.astype(np.float32)
    found = _eigenvectors(single, 1, which="SA", tol=1e-4)
    if found is None:
        return None
    eigenvalues, V = (one.astype(float) for one in found)
    return eigenvalues, V / np.linalg.norm(V)


def _lowest(M: Dense, count: int, least: float) -> tuple[Dense, Dense] | None:
    """The least eigenvalues, ascending, and their vectors, by inverses of M less a shift below the least of them."""
    shift = least - 0.05 * abs(least) - 1e-5 * float(np.linalg.norm(M))
    shifted = M.copy()
    shifted[np.diag_indices_from(shifted)] -= shift
    C = _factor(shifted)
    if C is None:
        return None
    inverse = LinearOperator(M.shape, matvec=lambda v: dpotrs(C, v, lower=1)[0], dtype=M.dtype)
    found = _eigenvectors(M, count, sigma=shift, OPinv=inverse, tol=1e-10)
    if found is None:
        return None
    eigenvalues, V = found
    ascending = np.argsort(eigenvalues)
    return eigenvalues[ascending], V[:, ascending]


def _largest(M: Dense) -> float:
    """The largest eigenvalue, at most 1e-6 too small; 0 if it is not positive, or was not found."""
    try:
        found = _eigsh(M, k=1, which="LA", v0=_start(M), tol=1e-6, return_eigenvectors=False, **_SAME)
    except ArpackError:
        return 0.0
    return max(0.0, float(found[0]))


def _eigenvectors(M: Any, count: int, **how: Any) -> tuple[Any, Any] | None:
    """A few eigenvalues and their vectors; None where ARPACK gives up."""
    try:
        eigenvalues, V = _eigsh(M, k=count, v0=_start(M), maxiter=len(M) // 5, **how, **_SAME)
    except ArpackError:
        return None
    return eigenvalues, V


def _start(M: Any) -> Any:
    """The same in every run, and orthogonal to no eigenvector that one would meet."""
    return np.cos(np.arange(len(M)) ** 2.0).astype(M.dtype)


def _factor(M: Dense) -> Dense | None:
    """Cholesky's, below the diagonal; None unless M is positive definite."""
    C, failed = dpotrf(M.T, lower=1, clean=0)  # the transpose of a symmetric matrix, because LAPACK goes by columns
    return None if failed else C


def _by_factor(M: Dense, C: Dense) -> Definite:
    return Definite(M, lambda R: np.asarray(dpotrs(C, R.T, lower=1)[0].T))
