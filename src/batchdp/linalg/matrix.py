"""The few operations that serve dense, sparse and factored matrices alike.

A matrix here is a float64 NumPy array, a SciPy sparse array or a `Product` of two of these. Large ones are read in
blocks, so that nothing of the size of a dense workload is ever allocated on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.linalg import product
from batchdp.linalg.product import CellMap, Product
from batchdp.linalg.product import Dense as Dense
from batchdp.linalg.product import Plain as Plain

Matrix = Plain | Product

BLOCK_ENTRIES = 4_000_000
"""How many entries of a matrix are dense at a time where it is read in blocks: 32 MB."""
MOST_DENSE_ENTRIES = 500_000_000
"""Of one array: 4 GB."""


Indices = NDArray[np.int64]


def dense(matrix: Matrix) -> Dense:
    """The matrix as a NumPy array."""
    if isinstance(matrix, np.ndarray):
        return matrix
    check_size(*matrix.shape)
    return dense(matrix.columns(slice(None))) if isinstance(matrix, Product) else matrix.toarray()


def check_size(rows: int, columns: int) -> None:
    """Refuse an array that hardly fits into memory."""
    if rows * columns > MOST_DENSE_ENTRIES:
        raise WorkloadError(
            f"a matrix of {rows:,} × {columns:,} is {rows * columns * 8 / 2**30:,.0f} GiB as an array, which no method "
            "here can work on; ask fewer queries, merge cells, or give it as a scipy.sparse matrix, which optimize "
            "leaves sparse for Laplace noise"
        )


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Where the machine's memory runs out all the same, that is said as any other refusal."""
    try:
        yield
    except MemoryError as error:
        raise WorkloadError(
            f"{what} does not fit into the memory of this machine; ask fewer queries, merge cells, or give a "
            "scipy.sparse matrix, which optimize leaves sparse for Laplace noise"
        ) from error


def plain(matrix: Matrix) -> Plain:
    """The matrix entry by entry: as it is, or multiplied out."""
    if not isinstance(matrix, Product):
        return matrix
    if isinstance(matrix.left, np.ndarray) or matrix.cell_map is None:
        return dense(matrix)
    filled = np.diff(sparse.csc_array(matrix.left).indptr)
    check_size(1, int(filled[matrix.cell_map.classes].sum()))
    return matrix.columns(slice(None))


@overload
def frozen(matrix: Plain, *, own: bool = False) -> Plain: ...
@overload
def frozen(matrix: Product, *, own: bool = False) -> Product: ...
def frozen(matrix: Matrix, *, own: bool = False) -> Matrix:
    """A copy that cannot be written to, or the matrix itself where it is one already or nobody else's."""
    if isinstance(matrix, Product):
        left, right = frozen(matrix.left), frozen(matrix.right)
        return matrix if left is matrix.left and right is matrix.right else Product(left, right)
    if isinstance(matrix, np.ndarray):
        # Row after row in memory, whoever made it: what is computed from a matrix then does not change when it is saved
        # and loaded, down to the last digit.
        in_rows = matrix.flags.c_contiguous
        if in_rows and not matrix.flags.writeable and matrix.base is None:
            return matrix
        copy = matrix if own and in_rows else matrix.copy(order="C")
        copy.flags.writeable = False
        return copy
    if not any(part.flags.writeable for part in _arrays(matrix)):
        return matrix
    kept = matrix if own else matrix.copy()
    for part in _arrays(kept):
        part.flags.writeable = False
    return kept


def _arrays(matrix: sparse.csr_array | sparse.csc_array) -> Iterator[NDArray[Any]]:
    """What a sparse matrix consists of, down to the arrays that others are views of."""
    for part in (matrix.data, matrix.indices, matrix.indptr):
        array: Any = part
        while isinstance(array, np.ndarray):
            yield array
            array = array.base


def identity(size: int) -> Plain:
    """The identity of this size, sparse."""
    return sparse.eye_array(size, format="csr")


def column_blocks(matrix: Matrix) -> Iterator[tuple[slice, Dense]]:
    """Dense blocks of neighbouring columns, left to right."""
    rows, columns = matrix.shape
    width = max(1, BLOCK_ENTRIES // max(1, rows))
    by_column = sparse.csc_array(matrix) if sparse.issparse(matrix) else matrix
    for start in range(0, columns, width):
        block = slice(start, min(columns, start + width))
        yield block, dense(columns_of(by_column, block))


def columns_of(matrix: Matrix, block: slice | Indices) -> Plain:
    """Some columns, entry by entry."""
    return matrix.columns(block) if isinstance(matrix, Product) else product.columns_of(matrix, block)


def row_blocks(matrix: Product) -> Iterator[tuple[slice, Dense]]:
    """Dense blocks of neighbouring rows, from the top."""
    rows, columns = matrix.shape
    height = max(1, BLOCK_ENTRIES // max(1, columns))
    for start in range(0, rows, height):
        block = slice(start, min(rows, start + height))
        yield block, dense(matrix.rows(block))


def column_norms(matrix: Matrix, order: int) -> Dense:
    """The L1 or L2 norm of every column."""
    if isinstance(matrix, Product):
        if (cells := matrix.cell_map) is not None:
            return column_norms(matrix.left, order)[cells.classes] * np.abs(cells.factors)
        return np.concatenate([column_norms(block, order) for _, block in column_blocks(matrix)])
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.linalg.norm(matrix, ord=order, axis=0))
    magnitudes = abs(matrix) if order == 1 else matrix.multiply(matrix)
    sums = np.asarray(magnitudes.sum(axis=0, dtype=np.float64)).ravel()
    return sums if order == 1 else np.asarray(np.sqrt(sums))


def row_squares(matrix: Matrix) -> Dense:
    """The sum of squares of every row."""
    if isinstance(matrix, Product):
        if matrix.cell_map is not None:
            return np.asarray(_squared(matrix.left) @ matrix.cell_map.squares)
        return np.concatenate([row_squares(block) for _, block in row_blocks(matrix)])
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", matrix, matrix))
    return _reduced(matrix, np.square, np.add)


def row_maxima(matrix: Matrix) -> Dense:
    """The largest magnitude of every row."""
    if isinstance(matrix, Product):
        return np.concatenate([row_maxima(block) for _, block in row_blocks(matrix)])
    if isinstance(matrix, np.ndarray):
        return np.asarray(np.abs(matrix).max(axis=1, initial=0.0))
    return _reduced(matrix, np.abs, np.maximum)


def _reduced(matrix: Plain, each: np.ufunc, together: np.ufunc) -> Dense:
    """One number for every row of a sparse matrix, from its entries; 0 for a row without any."""
    rows = sparse.csr_array(matrix)
    found = np.zeros(rows.shape[0])
    filled = np.flatnonzero(np.diff(rows.indptr))
    height = max(1, BLOCK_ENTRIES * rows.shape[0] // max(1, rows.nnz))
    for start in range(0, len(filled), height):
        part = filled[start : start + height]
        first = int(rows.indptr[part[0]])
        entries = each(rows.data[first : rows.indptr[part[-1] + 1]])
        found[part] = together.reduceat(entries, rows.indptr[part] - first)
    return found


def dense_product(left: Matrix, right: Matrix) -> Dense:
    """The product of two matrices, as a NumPy array."""
    found = left @ right
    return np.asarray(found if isinstance(found, np.ndarray) else found.toarray(), dtype=np.float64)


@overload
def scale_rows(matrix: Plain, factors: Dense) -> Plain: ...
@overload
def scale_rows(matrix: Product, factors: Dense) -> Product: ...
def scale_rows(matrix: Matrix, factors: Dense) -> Matrix:
    """Every row times its own factor."""
    if isinstance(matrix, Product):
        return Product(scale_rows(matrix.left, factors), matrix.right)
    if isinstance(matrix, np.ndarray):
        return matrix * factors[:, None]
    rows = sparse.csr_array(matrix)
    return sparse.csr_array(
        (rows.data * np.repeat(factors, np.diff(rows.indptr)), rows.indices, rows.indptr), rows.shape
    )


def row_residuals(workload: Matrix, reconstruct: Matrix, measure: Matrix) -> Dense:
    """‖W_i − B_i L‖ of every row."""
    total = np.zeros(workload.shape[0])
    if isinstance(measure, Product):
        if isinstance(workload, Product) and (cells := shared_cell_map(workload, measure)) is not None:
            # Every cell has a column of the left factors: enough to look at these, each as often as it is there.
            times = cells.squares
            for block, W in column_blocks(workload.left):
                E = W - dense_product(reconstruct, columns_of(measure.left, block))
                total += np.square(E) @ times[block]
            return np.asarray(np.sqrt(total))
        if reconstruct.shape[0] * measure.left.shape[1] <= MOST_DENSE_ENTRIES:
            measure = Product(dense_product(reconstruct, measure.left), measure.right)
            if sparse.issparse(workload) and measure.cell_map is not None:
                return np.asarray(np.sqrt(_squared_differences(sparse.csr_array(workload), measure, measure.cell_map)))
            reconstruct = identity(measure.shape[0])
    by_column = sparse.csc_array(measure) if sparse.issparse(measure) else measure
    for block, W in column_blocks(workload):
        E = W - dense_product(reconstruct, columns_of(by_column, block))
        total += np.einsum("ij,ij->i", E, E)
    return np.asarray(np.sqrt(total))


def shared_cell_map(one: Product, other: Product) -> CellMap | None:
    """The way in which both merge cells, if they merge the same ones alike.

    Read from the factors as they are now: what was known of them earlier is not relied on.
    """
    cells = product.cell_map_of(one.right)
    if cells is None or one.right is other.right:
        return cells
    return cells if cells == product.cell_map_of(other.right) else None


def _squared_differences(workload: sparse.csr_array, predicted_by: Product, cells: CellMap) -> Dense:
    """‖W_i − P_i M‖² of every row for a sparse W, visiting the entries of W alone.

    Where W has none, P M should have none either. A row of W that has entries at all cells of a class leaves nothing
    over; otherwise the whole class counts as missed, which is too much where the row has some of them, but then it is
    not a multiple of P's column anyway.
    """
    P = dense(predicted_by.left)
    chosen, factors = cells.classes, cells.factors
    m, p = P.shape
    there = np.bincount(chosen[factors != 0], minlength=p)
    total = np.zeros(m)
    height = max(1, BLOCK_ENTRIES // max(p, workload.nnz // m))
    for start in range(0, m, height):
        rows = slice(start, min(m, start + height))
        size = rows.stop - start
        span = slice(workload.indptr[rows.start], workload.indptr[rows.stop])
        row = np.repeat(np.arange(size), np.diff(workload.indptr[start : rows.stop + 1]))
        cell = workload.indices[span]
        at = row * p + chosen[cell]
        factor = factors[cell]
        predicted = P[rows].reshape(-1)
        total[rows] = np.bincount(row, np.square(workload.data[span] - predicted[at] * factor), minlength=size)
        visited = np.bincount(at, factor != 0, minlength=size * p).reshape(size, p)
        total[rows] += np.where(visited == there, 0.0, np.square(P[rows])) @ cells.squares
    return total


def _squared(matrix: Plain) -> Plain:
    return np.square(matrix) if isinstance(matrix, np.ndarray) else matrix.multiply(matrix)


def rows_span(matrix: Matrix, blocks: Sequence[int]) -> bool:
    """Whether a row has entries in more than one block of columns."""
    if len(blocks) == 1:
        return False
    rows = sparse.coo_array(plain(matrix))
    block = np.repeat(np.arange(len(blocks)), blocks)[rows.coords[1]]
    first = np.full(matrix.shape[0], len(blocks))
    last = np.full(matrix.shape[0], -1)
    np.minimum.at(first, rows.coords[0], block)
    np.maximum.at(last, rows.coords[0], block)
    return bool(np.any(last > first))


def assemble(pieces: Iterable[tuple[Plain, NDArray[Any], NDArray[Any]]], shape: tuple[int, int]) -> sparse.csr_array:
    """A sparse matrix from smaller ones, each with the rows and the columns of the whole that its own stand for.

    Where several have an entry, these add up.
    """
    found = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for piece, rows, columns in pieces:
        own = sparse.coo_array(piece)
        found.append((own.data, rows[own.coords[0]], columns[own.coords[1]]))
    values, at, to = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return sparse.csr_array(sparse.coo_array((values, (at, to)), shape=shape))


def shrunk(matrix: Matrix, *, rows: int, columns: int) -> Dense:
    """At most so many rows and columns, each entry the one of largest magnitude in its block.

    For pictures: a mean would wash out the few large entries that a strategy is made of.
    """
    m, n = matrix.shape
    height, width = min(m, rows), min(n, columns)
    high, low = np.zeros((height, width)), np.zeros((height, width))
    entries = sparse.coo_array(plain(matrix))
    block = entries.row.astype(np.int64) * height // max(1, m), entries.col.astype(np.int64) * width // max(1, n)
    np.maximum.at(high, block, entries.data)
    np.minimum.at(low, block, entries.data)
    return np.asarray(np.where(high >= -low, high, low))


LARGE = 1000
"""Rows from which singular values are avoided where they can be."""
MANY_ENTRIES = 1_000_000
"""From which a low rank is looked for first."""
FIRST_GUESS = 32
"""Of the rank of a matrix with many rows and columns; doubled while it is too small."""
EXACT = 1e-13
"""The largest relative residual of any row of W − U R that counts as rounding."""
WELL_CONDITIONED = 1e-5
"""The smallest pivot of a Cholesky factor, relative to the largest, that shows independent rows beyond doubt."""


def independent_rows(W: Plain) -> tuple[Plain, Dense]:
    """U and R with W = U R, and orthonormal columns in U; a row of zeros in W is one in U, without rounding errors."""
    if W.shape[0] == 0 or W.shape[1] == 0:
        return np.zeros((W.shape[0], 0)), np.zeros((0, W.shape[1]))
    least, found = min(W.shape), None
    if W.shape[0] * W.shape[1] >= MANY_ENTRIES:
        found = _of_low_rank(W, FIRST_GUESS, min(4 * FIRST_GUESS, least // 4))
        if found is None and least >= LARGE and W.shape[0] <= W.shape[1]:
            found = _of_full_rank(dense(W))
        # Of a matrix that could not be worked on at full rank anyway, no large rank is looked for at length.
        large = W.shape[0] * W.shape[1] > MOST_DENSE_ENTRIES
        found = found or _of_low_rank(W, 8 * FIRST_GUESS, 8 * FIRST_GUESS if large else least // 4)
    U, R = found or _by_singular_values(dense(W))
    if isinstance(U, np.ndarray):
        U[row_squares(W) == 0] = 0
    return U, R


def leading_signs(R: Dense) -> Dense:
    """For every column the sign with which it points along the strongest direction of all."""
    if R.shape[0] == 0:
        return np.ones(R.shape[1])
    v = R[0]
    if R.shape[0] >= LARGE:  # R may not come from singular values, which have the strongest first
        u = np.ones(R.shape[0])
        for _ in range(30):
            v = u @ R
            u = R @ v
            u /= np.linalg.norm(u)
    return np.where(v < 0, -1.0, 1.0)


def _of_low_rank(W: Plain, guess: int, most: int) -> tuple[Plain, Dense] | None:
    """From the span of W times random columns, if that many suffice."""
    m, p = W.shape
    while guess <= most:
        Q, T = np.linalg.qr(np.asarray(W @ np.random.default_rng(0).standard_normal((p, guess))))
        pivots = np.abs(np.diag(T))
        if pivots.min() <= pivots.max() * m * np.finfo(float).eps:
            break
        guess *= 2
    else:
        return None
    R = np.asarray((W.T @ Q).T)
    U, sigma, V = np.linalg.svd(R, full_matrices=False)
    k = int(np.sum(sigma > sigma[0] * max(m, p) * np.finfo(float).eps))
    U, R = np.ascontiguousarray(Q @ U[:, :k]), sigma[:k, None] * V[:k]
    exact = row_residuals(W, U, R) <= EXACT * np.sqrt(row_squares(W))
    return (U, R) if np.all(exact) else None


def _of_full_rank(W: Dense) -> tuple[Plain, Dense] | None:
    """W itself, if its rows are far from dependent."""
    sizes = np.sqrt(row_squares(W))
    if not np.all(sizes > 1e-6 * sizes.max()):
        return None
    G = (W @ W.T) / sizes / sizes[:, None]
    try:
        pivots = np.diag(np.linalg.cholesky(G))
    except np.linalg.LinAlgError:
        return None
    return (identity(len(W)), W) if pivots.min() > WELL_CONDITIONED * pivots.max() else None


def _by_singular_values(W: Dense) -> tuple[Dense, Dense]:
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    k = int(np.sum(sigma > sigma[0] * max(W.shape) * np.finfo(float).eps))
    return np.ascontiguousarray(U[:, :k]), sigma[:k, None] * V[:k]


def outer_rows(parts: Sequence[Dense], places: int) -> Dense:
    """For every place the outer product of its rows in all parts, flattened, the last part fastest."""
    found = np.ones((places, 1))
    for one in parts:
        wide = np.broadcast_to(one, (places, one.shape[1]))
        found = (found[:, :, None] * wide[:, None, :]).reshape(places, -1)
    return found


def unravel(places: Indices, shape: Sequence[int]) -> tuple[Indices, ...]:
    """The place along every axis of answers in a table."""
    return tuple(np.unravel_index(places, tuple(shape))) if prod(shape) and shape else ()
