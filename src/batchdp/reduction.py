"""Make the problem small without changing it: fewer rows, fewer columns, aligned signs.

Only WᵀW matters to the error, so W = U R with orthonormal U lets every method work on R, which has as many
rows as W has rank. Two equal columns can share one column of L, opposite ones share it with a sign, and a
column that is c times another (|c| ≤ 1) takes c times the other's: its norm is no larger, so the sensitivity
stays. Cells that no query touches need no measurement at all. What is found for R is lifted back exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchdp.matrix import BLOCK_ENTRIES, Dense, Matrix, dense, row_maxima, scale_rows
from batchdp.workload import Workload

Indices = NDArray[np.int64]
Hashes = NDArray[np.uint64]

DIRECTION_BITS = 40
"""Columns are parallel if their entries agree to this many bits of the largest one."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """An equivalent smaller problem R, and the way back.

    √weights · W = U R M, where M has one entry a column: class j of `classes` with factor `scales[j]`.
    """

    workload: Workload
    reduced: Dense
    """R: rank of W rows, one column a class of parallel columns."""
    rows: Dense
    """U: orthonormal columns, one row a query."""
    classes: Indices
    """For each cell the column of R that stands for it."""
    scales: Dense
    """For each cell its multiple of that column, at most 1 in magnitude; 0 where no query touches it."""

    @property
    def rank(self) -> int:
        """k, the rank of W."""
        return int(self.reduced.shape[0])

    @property
    def columns(self) -> int:
        """The number of classes of cells."""
        return int(self.reduced.shape[1])

    def lift_measure(self, measure: Dense) -> Dense:
        """The full L from the reduced one: L[:, j] = scale_j · L_R[:, class_j]."""
        if self.columns == 0:
            return np.zeros((measure.shape[0], self.workload.cells))
        L = measure[:, self.classes]
        L *= self.scales
        return L

    def restrict_measure(self, measure: Matrix) -> Dense:
        """From the measure of a full strategy one for the reduced problem that is never worse.

        Each class takes the column of the cell that stands for it, and measurements that became multiples of one
        another are made as one: the column norms stay, and one noise takes the place of several.
        """
        stands = self._representatives
        L = dense(measure[:, stands]) * self.scales[stands]
        kept, merged, scales = merge_parallel(np.ascontiguousarray(L.T))
        together = np.bincount(merged, np.abs(scales), minlength=len(kept))[: len(kept)]
        return np.asarray(L[kept] * together[:, None])

    def merged_workload(self) -> Dense:
        """W itself on the cells that stand for their classes, exactly: m × p."""
        stands = self._representatives
        return np.asarray(dense(self.workload.matrix[:, stands]) * self.scales[stands])

    @cached_property
    def _representatives(self) -> Indices:
        """For every class the first cell whose column is ± the class's own."""
        stands = np.zeros(self.columns, dtype=np.int64)
        full = np.flatnonzero(np.abs(self.scales) == 1)[::-1]
        stands[self.classes[full]] = full
        return stands

    def lift_reconstruct(self, reconstruct: Dense) -> Dense:
        """The full B from the reduced one, with the weights taken out again: B = U B_R / √weights."""
        B = self.rows @ reconstruct
        if self.workload.weights is not None:
            B /= np.sqrt(self.workload.weights)[:, None]
        return B


def reduce(workload: Workload, *, merge: bool = True) -> Reduction:
    """The smallest equivalent problem that merging columns and dropping dependent rows gives.

    Without `merge` every cell keeps its own column and sign.
    """
    if not merge:
        U, R = _independent_rows(dense(workload.weighted))
        n = workload.cells
        return Reduction(workload, R, U, np.arange(n), np.ones(n))
    cells, classes = _merge_equal(workload.matrix)
    W = dense(workload.matrix[:, cells])
    # Queries of one size each, so that small ones count when columns are compared.
    sizes = np.frexp(row_maxima(W))[1]
    kept, merged, scales = merge_parallel(np.ldexp(W, -sizes[:, None]))
    W = W[:, kept]
    if workload.weights is not None:
        W = dense(scale_rows(W, np.sqrt(workload.weights)))
    U, R = _independent_rows(W)
    signs = np.where(R[0] < 0, -1.0, 1.0) if R.shape[0] else np.ones(R.shape[1])
    merged_of_cell = merged[classes]
    scales_of_cell = scales[classes] * (signs[merged_of_cell] if len(kept) else 1.0)
    return Reduction(workload, R * signs, U, merged_of_cell, scales_of_cell)


def _independent_rows(W: Dense) -> tuple[Dense, Dense]:
    """U and R with W = U R, U orthonormal, R of full row rank."""
    if W.size == 0:
        return np.zeros((W.shape[0], 0)), np.zeros((0, W.shape[1]))
    U, sigma, Vt = np.linalg.svd(W, full_matrices=False)
    k = int(np.sum(sigma > sigma[0] * max(W.shape) * np.finfo(float).eps))
    return np.ascontiguousarray(U[:, :k]), sigma[:k, None] * Vt[:k]


def _merge_equal(matrix: Matrix) -> tuple[Indices, Indices]:
    """One cell of each class of equal columns, and every cell's class."""
    prints = np.zeros(matrix.shape[1], dtype=np.uint64)
    salts = _salts(matrix.shape[0])
    for rows, columns, values in _entries_by_rows(matrix):
        mixed = _mix(values.view(np.uint64), salts[rows])
        if columns is None:
            prints += mixed.sum(axis=0, dtype=np.uint64)
        else:
            np.add.at(prints, columns, mixed)
    _, first, classes = np.unique(prints, return_index=True, return_inverse=True)
    return _in_order(first, classes)


def _entries_by_rows(matrix: Matrix) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32] | None, Dense]]:
    """Blocks of rows as (row of each entry, its column, its value); dense blocks keep their shape."""
    rows, columns = matrix.shape
    if isinstance(matrix, np.ndarray):
        height = max(1, BLOCK_ENTRIES // columns)
        for start in range(0, rows, height):
            block = matrix[start : start + height] + 0.0  # turns −0 into 0
            yield np.arange(start, start + len(block))[:, None], None, block
        return
    row_of = np.repeat(np.arange(rows), np.diff(matrix.indptr)) if matrix.nnz <= BLOCK_ENTRIES else None
    for start in range(0, matrix.nnz, BLOCK_ENTRIES):
        part = slice(start, min(matrix.nnz, start + BLOCK_ENTRIES))
        position = np.arange(part.start, part.stop)
        row = row_of if row_of is not None else np.searchsorted(matrix.indptr, position, side="right") - 1
        yield row, matrix.indices[part], matrix.data[part]


def merge_parallel(W: Dense) -> tuple[Indices, Indices, Dense]:
    """Columns to keep, and for every column which of those it is a multiple of and by what factor."""
    p = W.shape[1]
    prints = np.zeros(p, dtype=np.uint64)
    pivots = np.zeros(p)
    salts = _salts(W.shape[0])[:, None]
    width = max(1, BLOCK_ENTRIES // W.shape[0])
    for start in range(0, p, width):
        part = slice(start, min(p, start + width))
        block = W[:, part]
        magnitudes = np.abs(block)
        # The first entry that is largest up to rounding: parallel columns agree on where it is.
        nearly = magnitudes >= magnitudes.max(axis=0) * (1 - 2.0**-30)
        pivot = block[nearly.argmax(axis=0), np.arange(block.shape[1])]
        pivots[part] = pivot
        direction = np.rint(block / np.where(pivot == 0, 1, pivot) * 2.0**DIRECTION_BITS) + 0.0
        prints[part] = _mix(direction.view(np.uint64), salts).sum(axis=0, dtype=np.uint64)
    order = np.lexsort((-np.abs(pivots), prints))
    order = order[pivots[order] != 0]
    starts = np.concatenate([[True], prints[order][1:] != prints[order][:-1]])[: len(order)]
    kept = order[starts]
    merged = np.zeros(p, dtype=np.int64)
    scales = np.zeros(p)
    if len(order):
        merged[order] = np.cumsum(starts) - 1
        scales[order] = pivots[order] / pivots[kept[merged[order]]]
    return *_in_order(kept, merged), scales


def _in_order(kept: Indices, classes: Indices) -> tuple[Indices, Indices]:
    """The classes numbered as the cells are: neighbours stay neighbours, which trees and plots rely on."""
    order = np.argsort(kept)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return kept[order], number[classes] if len(order) else classes


def _salts(rows: int) -> Hashes:
    return np.random.default_rng(0).integers(1, 2**63, size=rows, dtype=np.uint64) | np.uint64(1)


def _mix(bits: Hashes, salts: Hashes) -> Hashes:
    """A 64-bit hash of each entry in its row, 0 for a zero entry; sums of it identify a column.

    A collision (less than one in 10^7 for a million columns) would merge different columns; the strategy
    that came of it would not reproduce W and be refused.
    """
    h = bits * salts
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= salts
    h[bits == 0] = 0
    return h
