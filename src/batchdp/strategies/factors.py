"""The two factors of a pair: as given, refused unless they are matrices of finite numbers, or from a measure alone.

From a measure the least reconstruction follows, with a check that it reproduces the workload.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import MOST_DENSE_ENTRIES, Dense, Matrix, column_norms, dense, dense_product
from batchdp.linalg.product import Product
from batchdp.outcome import Outcome
from batchdp.workloads.pair import Pair


def is_finite(matrix: Matrix) -> bool:
    """Whether no entry is NaN or infinite."""
    if isinstance(matrix, Product):
        return is_finite(matrix.left) and is_finite(matrix.right)
    entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return bool(np.all(np.isfinite(entries)))


def real(matrix: Any) -> Matrix:
    """A factor as a matrix of floats."""
    if isinstance(matrix, Product):
        return _real_product(matrix)
    try:
        if not sparse.issparse(matrix):
            return np.asarray(matrix, dtype=np.float64)
        rows: Any = matrix
        if rows.format == "csc" and rows.dtype == np.float64 and rows.has_canonical_format:
            return sparse.csc_array(rows) if not isinstance(rows, sparse.csc_array) else rows
        real = sparse.csr_array(rows.tocsr().astype(np.float64))
        if not real.has_canonical_format:  # an entry in several pieces has another norm than their sum
            real = real.copy()
            real.sum_duplicates()
        return real
    except (TypeError, ValueError) as error:
        raise StrategyError(f"measurement and reconstruction must be matrices of numbers ({error})") from error


def _real_product(matrix: Product) -> Product:
    """The same object where its factors are fit already."""
    left, right = real(matrix.left), real(matrix.right)
    if isinstance(left, Product) or isinstance(right, Product):
        raise StrategyError("measurement and reconstruction may be products of two matrices, not of more")
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise StrategyError(f"a product of {left.shape} and {right.shape} does not fit together")
    return matrix if left is matrix.left and right is matrix.right else Product(left, right)


def on_request(matrix: Matrix, name: str) -> Dense:
    """The factor as an array that cannot be written to; refused beyond memory."""
    if not isinstance(matrix, np.ndarray) and matrix.shape[0] * matrix.shape[1] > MOST_DENSE_ENTRIES:
        rows, columns = matrix.shape
        raise StrategyError(
            f"{name} is {rows} × {columns}, {rows * columns * 8 / 2**30:.0f} GiB as an array; use "
            f"{'measurement' if name == 'measure' else 'reconstruction'} instead, which is sparse or in factors"
        )
    array = dense(matrix)
    array.flags.writeable = False
    return array


EXACT = 1e-11
"""The relative residual up to which R = B L counts as held to rounding."""


def complete(R: Dense, L: Dense, rounds: int = 0, outcome: Outcome = Outcome.CLOSED_FORM) -> Pair | None:
    """L scaled to sensitivity 1 with its best B = R L⁺, or None if L cannot reproduce R."""
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0))
    if sensitivity == 0:
        return None
    L = L / sensitivity
    pair = Pair(L, least_reconstruct(R, L), outcome, rounds)
    return pair if is_exact(R, pair) else None


def scale_to_one(pair: Pair) -> Pair:
    """The same pair at sensitivity 1."""
    sensitivity = float(column_norms(pair.measure, 1).max())
    return Pair(pair.measure * (1 / sensitivity), pair.reconstruct * sensitivity, pair.outcome, pair.rounds)


def is_exact(R: Dense, pair: Pair) -> bool:
    """Whether R = B L to rounding."""
    miss = np.linalg.norm(R - dense_product(pair.reconstruct, pair.measure))
    return bool(miss <= EXACT * np.linalg.norm(R))


def least_reconstruct(R: Dense, L: Dense) -> Dense:
    """B = R L⁺: by Cholesky with one refinement where that is exact, else by least squares.

    The SVD inside least squares costs a second at a thousand columns; the Gram matrix a few hundredths.
    """
    r, n = L.shape
    try:
        if r >= n:
            factor = cho_factor(L.T @ L, lower=True, check_finite=False)
            B = cho_solve(factor, R.T, check_finite=False).T @ L.T
            B += cho_solve(factor, (R - B @ L).T, check_finite=False).T @ L.T
        else:
            factor = cho_factor(L @ L.T, lower=True, check_finite=False)
            B = cho_solve(factor, L @ R.T, check_finite=False).T
            B += cho_solve(factor, L @ (R - B @ L).T, check_finite=False).T
        pivots = np.diag(factor[0])
        # With dependent rows R = B L may hold though B is not the smallest.
        if pivots.min() > 1e-6 * pivots.max() and np.linalg.norm(R - B @ L) <= 1e-12 * np.linalg.norm(R):
            return np.asarray(B)
    except LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(L.T, R.T, rcond=1e-13)[0].T)
