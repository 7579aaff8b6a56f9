"""The few operations that serve dense and sparse matrices alike.

A matrix here is a float64 NumPy array or a SciPy sparse array. Large ones are read in blocks of columns,
so that nothing of the size of a dense workload is ever allocated on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Dense = NDArray[np.float64]
Matrix = Dense | sparse.csr_array | sparse.csc_array

BLOCK_ENTRIES = 4_000_000
"""How many entries of a matrix are dense at a time where it is read in blocks: 32 MB."""


def dense(matrix: Matrix) -> Dense:
    """The matrix as a NumPy array."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def frozen(matrix: Matrix) -> Matrix:
    """A copy that cannot be written to, or the matrix itself where it already is one."""
    if isinstance(matrix, np.ndarray):
        if not matrix.flags.writeable and matrix.base is None:
            return matrix
        copy = matrix.copy()
        copy.flags.writeable = False
        return copy
    if not matrix.data.flags.writeable and not matrix.indices.flags.writeable:
        return matrix
    kept = matrix.copy()
    for part in (kept.data, kept.indices, kept.indptr):
        part.flags.writeable = False
    return kept


def identity(size: int) -> Matrix:
    """The identity, sparse."""
    return sparse.eye_array(size, format="csr")


def column_blocks(matrix: Matrix) -> Iterator[tuple[slice, Dense]]:
    """Dense blocks of neighbouring columns, left to right."""
    rows, columns = matrix.shape
    width = max(1, BLOCK_ENTRIES // max(1, rows))
    by_column = matrix if isinstance(matrix, np.ndarray) else sparse.csc_array(matrix)
    for start in range(0, columns, width):
        block = slice(start, min(columns, start + width))
        yield block, dense(by_column[:, block])


def column_norms(matrix: Matrix, order: int) -> Dense:
    """The L1 or L2 norm of every column."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.linalg.norm(matrix, ord=order, axis=0))
    magnitudes = abs(matrix) if order == 1 else matrix.multiply(matrix)
    sums = np.asarray(magnitudes.sum(axis=0, dtype=np.float64)).ravel()
    return sums if order == 1 else np.asarray(np.sqrt(sums))


def row_squares(matrix: Matrix) -> Dense:
    """The sum of squares of every row."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", matrix, matrix))
    return np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64).ravel()


def row_maxima(matrix: Matrix) -> Dense:
    """The largest magnitude of every row."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.abs(matrix).max(axis=1, initial=0.0))
    rows = sparse.csr_array(matrix)
    maxima = np.zeros(rows.shape[0])
    filled = np.flatnonzero(np.diff(rows.indptr))
    if filled.size:
        maxima[filled] = np.maximum.reduceat(np.abs(rows.data), rows.indptr[filled])
    return maxima


def dense_product(left: Matrix, right: Matrix) -> Dense:
    """The product of two matrices, as a NumPy array."""
    product = left @ right
    return np.asarray(product if isinstance(product, np.ndarray) else product.toarray(), dtype=np.float64)


def scale_rows(matrix: Matrix, factors: Dense) -> Matrix:
    """Every row times its own factor."""
    if isinstance(matrix, np.ndarray):
        return matrix * factors[:, None]
    return sparse.csr_array(sparse.diags_array(factors) @ matrix)


def row_residuals(workload: Matrix, reconstruct: Matrix, measure: Matrix) -> Dense:
    """‖W_i − B_i L‖ of every row."""
    total = np.zeros(workload.shape[0])
    by_column = measure if isinstance(measure, np.ndarray) else sparse.csc_array(measure)
    for block, W in column_blocks(workload):
        E = W - dense_product(reconstruct, by_column[:, block])
        total += np.einsum("ij,ij->i", E, E)
    return np.asarray(np.sqrt(total))


def rows_span(matrix: Matrix, blocks: Sequence[int]) -> bool:
    """Whether a row has entries in more than one block of columns."""
    rows = sparse.coo_array(matrix)
    block = np.repeat(np.arange(len(blocks)), blocks)[rows.coords[1]]
    first = np.full(matrix.shape[0], len(blocks))
    last = np.full(matrix.shape[0], -1)
    np.minimum.at(first, rows.coords[0], block)
    np.maximum.at(last, rows.coords[0], block)
    return bool(np.any(last > first))


def shrunk(matrix: Matrix, *, rows: int, columns: int) -> Dense:
    """At most so many rows and columns, each entry the one of largest magnitude in its block.

    For pictures: a mean would wash out the few large entries that a strategy is made of.
    """
    m, n = matrix.shape
    height, width = min(m, rows), min(n, columns)
    high, low = np.zeros((height, width)), np.zeros((height, width))
    entries = sparse.coo_array(matrix)
    block = entries.row.astype(np.int64) * height // max(1, m), entries.col.astype(np.int64) * width // max(1, n)
    np.maximum.at(high, block, entries.data)
    np.minimum.at(low, block, entries.data)
    return np.asarray(np.where(high >= -low, high, low))
