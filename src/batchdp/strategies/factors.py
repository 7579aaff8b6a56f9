"""The two factors of a strategy as they are given: refused unless they are matrices of finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import MOST_DENSE_ENTRIES, Dense, Matrix, dense
from batchdp.linalg.product import Product


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
