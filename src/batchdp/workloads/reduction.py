"""Make the problem small without changing it: fewer rows, fewer columns, aligned signs.

Only WᵀW matters to the error, so W = U R with orthonormal U lets every method work on R, which has as many
rows as W has rank. Two equal columns can share one column of L, opposite ones share it with a sign, and a
column that is c times another (|c| ≤ 1) takes c times the other's: its norm is no larger, so the sensitivity
stays. Cells that no query touches need no measurement at all. What is found for R is lifted back exactly.

W is read a few times from end to end and never made dense; what is kept has the size of U, R and one number per cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import (
    Dense,
    Indices,
    Matrix,
    Plain,
    columns_of,
    dense,
    independent_rows,
    leading_signs,
    row_maxima,
    scale_rows,
)
from batchdp.linalg.product import CellMap, Product
from batchdp.workloads.matrix import MatrixWorkload

SKETCHES = 4
"""Random mixtures of the queries by which columns are compared."""
ALIKE = 2.0**-38
"""Columns are parallel if the mixtures' directions agree to this."""
MOST_ENTRIES = 20_000_000
"""Of a factor that is lifted entry by entry, and of a workload that is compared so; others are kept as products."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """An equivalent smaller problem R, and the way back.

    √weights · W = U R M, where M has one entry per column: class j of `classes` with factor `scales[j]`.
    """

    workload: MatrixWorkload
    reduced: Dense
    """R: rank of W rows, one column per class of parallel columns."""
    rows: Plain
    """U: orthonormal columns, one row per query."""
    classes: Indices
    """For each distinct cell (each column of the left factor where W is a product) the column of R it stands for."""
    scales: Dense
    """For each distinct cell its multiple of that column, at most 1 in magnitude; 0 where no query touches it."""

    by_cell: bool = False
    """Whether every cell keeps its own column, so that `classes` speaks of cells even where W is a product."""

    @property
    def _by_distinct(self) -> bool:
        return isinstance(self.workload.matrix, Product) and not self.by_cell

    @property
    def rank(self) -> int:
        """k, the rank of W."""
        return int(self.reduced.shape[0])

    @property
    def columns(self) -> int:
        """The number of classes of cells."""
        return int(self.reduced.shape[1])

    def lift_measure(self, measure: Plain) -> Matrix:
        """The full L from the reduced one: L[:, j] = scale_j · L_R[:, class_j]."""
        W, n = self.workload.matrix, len(self.classes)
        if self.columns == 0:
            return np.zeros((measure.shape[0], self.workload.cells))
        if isinstance(measure, np.ndarray):
            entries = measure.shape[0] * n
        else:
            entries = int(np.bincount(sparse.csr_array(measure).indices, minlength=self.columns)[self.classes].sum())
        M = CellMap(self.classes, self.scales, self.columns).matrix()
        wide = sparse.issparse(W) and W.shape[0] * n > MOST_ENTRIES
        if not self._by_distinct and (wide or entries > MOST_ENTRIES):
            return Product(measure, M)
        L = measure[:, self.classes] * self.scales if isinstance(measure, np.ndarray) else sparse.csr_array(measure @ M)
        # The cells merged as the workload does, so that the two are compared, and measured, by distinct columns.
        return Product(L, W.right) if isinstance(W, Product) and self._by_distinct else L

    def restrict_measure(self, measure: Matrix) -> Dense:
        """From the measure of a full strategy one for the reduced problem that is never worse.

        Each class takes the column of the cell that stands for it, and measurements that became multiples of one
        another are made as one: the column norms stay, and one noise takes the place of several.
        """
        stands = self._representatives
        W = self.workload.matrix
        cells = _cells_of(W)[stands] if isinstance(W, Product) and self._by_distinct else stands
        L = dense(columns_of(measure, cells)) * self.scales[stands]
        kept, merged, scales = merge_parallel(np.ascontiguousarray(L.T))
        together = np.bincount(merged, np.abs(scales), minlength=len(kept))[: len(kept)]
        return np.asarray(L[kept] * together[:, None])

    def merged_workload(self) -> Dense:
        """W itself on the cells that stand for their classes, exactly: m × p."""
        stands = self._representatives
        W = self.workload.matrix
        return np.asarray(dense(columns_of(_distinct(W) if self._by_distinct else W, stands)) * self.scales[stands])

    @cached_property
    def _representatives(self) -> Indices:
        """For every class the first cell whose column is ± the class's own."""
        stands = np.zeros(self.columns, dtype=np.int64)
        full = np.flatnonzero(np.abs(self.scales) == 1)[::-1]
        stands[self.classes[full]] = full
        return stands

    def lift_reconstruct(self, reconstruct: Plain) -> Matrix:
        """The full B from the reduced one, with the weights taken out again: B = U B_R / √weights."""
        weights = self.workload.weights
        U = self.rows if weights is None else scale_rows(self.rows, 1 / np.sqrt(weights))
        (m, k), r = self.rows.shape, reconstruct.shape[1]
        # U is dense where it is not the identity.
        if isinstance(U, np.ndarray) and m * r > MOST_ENTRIES and 2 * k * (m + r) < m * r:
            return Product(U, reconstruct)
        found = U @ reconstruct
        # As files keep it: the same numbers in another order have other rounding errors.
        return np.ascontiguousarray(found) if isinstance(found, np.ndarray) else found


def reduce(workload: MatrixWorkload, *, merge: bool = True) -> Reduction:
    """The smallest equivalent problem that merging columns and dropping dependent rows gives.

    Without `merge` every cell keeps its own column and sign.
    """
    if not merge:
        U, R = independent_rows(dense(workload.weighted))
        n = workload.cells
        return Reduction(workload, R, U, np.arange(n), np.ones(n), by_cell=True)
    W = _distinct(workload.matrix)
    kept, classes, scales = merge_parallel(W)
    if len(kept) < W.shape[1]:
        W = columns_of(W, kept)
    if workload.weights is not None:
        W = scale_rows(W, np.sqrt(workload.weights))
    U, R = independent_rows(W)
    signs = leading_signs(R)
    return Reduction(workload, R * signs, U, classes, scales * (signs[classes] if len(kept) else 1.0))


def _distinct(matrix: Matrix) -> Plain:
    """The matrix on one cell of each kind, where it says itself which are alike."""
    return matrix.left if isinstance(matrix, Product) else matrix


def _cells_of(matrix: Product) -> Indices:
    """For every column of the left factor the first cell that has it."""
    assert matrix.cell_map is not None
    first = np.zeros(matrix.left.shape[1], dtype=np.int64)
    chosen = matrix.cell_map.classes
    first[chosen[::-1]] = np.arange(len(chosen))[::-1]
    return first


def merge_parallel(W: Plain) -> tuple[Indices, Indices, Dense]:
    """Columns to keep, and for every column which of those it is a multiple of and by what factor.

    Parallel columns have parallel mixtures of their entries, and for random mixtures hardly any others do: four numbers
    a column tell them apart, for the price of one product. Were two different columns to be merged (mixtures that agree
    to ten digits, four times), what came of it would not reproduce W and be refused.
    """
    m, p = W.shape
    # Rows of one size each, so that small ones count too.
    sizes = np.ldexp(1.0, -np.frexp(row_maxima(W))[1])[:, None]
    mixtures = np.asarray((W.T @ (sizes * np.random.default_rng(0).standard_normal((m, SKETCHES)))).T)
    lengths = np.linalg.norm(mixtures, axis=0)
    full = np.flatnonzero(lengths)
    largest = np.abs(mixtures[:, full]).argmax(axis=0)
    directions = mixtures[:, full] / np.copysign(lengths[full], mixtures[largest, full])
    label = _clusters(directions)
    # Of every class the longest column, which is the first of those that are as long up to rounding.
    mantissas, exponents = np.frexp(lengths[full])
    rounded = np.ldexp(np.rint(np.ldexp(mantissas, 38)), exponents)
    order = np.lexsort((full, -rounded, label))
    longest = full[order[np.diff(label[order], prepend=-1) > 0]]
    kept = np.sort(longest)  # classes are numbered as the cells are: neighbours stay neighbours, as trees rely on
    classes, scales = np.zeros(p, dtype=np.int64), np.zeros(p)
    classes[full] = np.searchsorted(kept, longest)[label]
    scales[full] = _multiples(W, sizes, full, kept, classes[full])
    return kept, classes, scales


def _clusters(points: Dense) -> Indices:
    """For every column the cluster of columns that it is next to in every coordinate."""
    label = np.zeros(points.shape[1], dtype=np.int64)
    for coordinate in points:
        order = np.lexsort((coordinate, label))
        value = coordinate[order]
        apart = (np.diff(label[order], prepend=-1) > 0) | (np.diff(value, prepend=-np.inf) > ALIKE)
        # A chain of neighbours may lead far: cut it into pieces.
        first = np.flatnonzero(apart)[np.cumsum(apart) - 1]
        piece = np.floor((value - value[first]) / ALIKE)
        label[order] = np.cumsum(apart | (np.diff(piece, prepend=0.0) != 0)) - 1
    return label


def _multiples(W: Plain, sizes: Dense, columns: Indices, kept: Indices, classes: Indices) -> Dense:
    """By how much each column is the one that is kept of its class: from the entries at that one's largest."""
    if len(kept) == 0:
        return np.zeros(0)
    K: Any = scale_rows(columns_of(W, kept) if len(kept) < W.shape[1] else W, sizes.ravel())
    at = np.asarray(abs(K).argmax(axis=0)).ravel()
    pivots, values = np.zeros(len(kept)), np.zeros(W.shape[1])
    if isinstance(W, np.ndarray):
        pivots, values[columns] = W[at, kept], W[at[classes], columns]
    else:  # the entries of the rows in question, rather than a search for each
        row_of = np.full(W.shape[1], -1)
        row_of[columns] = at[classes]
        rows = np.unique(at)
        wanted = sparse.coo_array(sparse.csr_array(W)[rows])
        row, column = rows[wanted.coords[0]], wanted.coords[1]
        hit = row_of[column] == row
        values[column[hit]] = wanted.data[hit]
        pivots = values[kept]
    return np.asarray(np.clip(values[columns] / pivots[classes], -1.0, 1.0))
