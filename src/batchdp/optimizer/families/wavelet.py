"""Wavelets (Xiao, Wang, Gehrke: Privelet): how the two halves of every interval differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp.linalg.matrix import Dense, plain
from batchdp.optimizer.family import Family
from batchdp.strategies.blocks import SIZES, Tree, over_cells
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import Reduction


def wavelet(workload: MatrixWorkload | ArrayLike | Any) -> PairStrategy:
    """Measure the total and, for every interval of a halving tree, its left sum minus its right sum.

    These are Privelet's Haar coefficients with its weights absorbed, so that each gets the same noise. Where
    n is not a power of two the left half takes the odd cell; the transform stays square and invertible.
    """
    workload = as_workload(workload)
    L, inverse = haar(workload.cells)
    return PairStrategy(workload, L, plain(workload.matrix) @ inverse, method="wavelet")


def haar(cells: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The transform (n × n) and its inverse, both with about n log₂ n entries."""
    cell = np.arange(cells)
    rows, signs, depths = [np.zeros(cells, dtype=np.int64)], [np.ones(cells)], [np.zeros(cells)]
    columns = [cell]
    starts, ends, measurements, depth = np.array([0]), np.array([cells]), 1, 0
    leaf_depth = np.zeros(cells)
    while len(starts):
        wide = ends - starts > 1
        starts, ends = starts[wide], ends[wide]
        middles = starts + (ends - starts + 1) // 2
        inside = np.repeat(np.arange(len(starts)), ends - starts)
        column = np.arange(len(inside)) + np.repeat(
            starts - np.concatenate([[0], np.cumsum(ends - starts)[:-1]])[: len(starts)], ends - starts
        )
        rows.append(measurements + inside)
        columns.append(column)
        signs.append(np.where(column < middles[inside], 1.0, -1.0))
        depths.append(np.full(len(column), float(depth)))
        leaf_depth[column] += 1
        measurements += len(starts)
        starts, ends = (np.stack(pair, axis=1).ravel() for pair in ((starts, middles), (middles, ends)))
        depth += 1
    row, column, sign = np.concatenate(rows), np.concatenate(columns), np.concatenate(signs)
    # A half is (sum ± difference) / 2, so each level between an interval and a cell halves its share.
    share = sign * 2.0 ** (np.concatenate(depths) - leaf_depth[column])
    L = sparse.csr_array((sign, (row, column)), shape=(cells, cells))
    return L, sparse.csr_array((share, (column, row)), shape=(cells, cells))


def _tree(cells: int) -> Tree:
    L, inverse = haar(cells)
    return L, lambda W: np.asarray(W @ inverse)


@final
@dataclass(frozen=True, eq=False)
class _Wavelet(Family):
    def worth(self, reduction: Reduction) -> bool:
        return reduction.workload.cells <= SIZES.most_cells

    def on_columns(self, R: Dense) -> Iterator[Pair]:
        """The transform of the merged columns."""
        if R.size <= SIZES.most_entries:
            L, inverse = haar(R.shape[1])
            yield Pair(L, np.asarray(R @ inverse))

    def over_cells(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        return over_cells(reduction, best, _tree, SIZES)


WAVELET = _Wavelet("wavelet", wavelet, quick=True)
