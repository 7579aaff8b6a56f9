"""Hierarchies (Hay, Rastogi, Miklau, Suciu): noisy sums of nested intervals, made consistent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from batchdp.errors import check_whole
from batchdp.linalg.matrix import Dense, Indices, dense
from batchdp.optimizer.family import Family
from batchdp.strategies.blocks import SIZES, Tree, over_cells
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import Reduction


def hierarchical(workload: MatrixWorkload | ArrayLike | Any, *, branching: int = 2) -> PairStrategy:
    """Measure the sum of every node of a tree over the cells; B = W L⁺ is Hay's least-squares consistency.

    Args:
        branching: how many children a node has; the last node of a level may have fewer.
    """
    workload = as_workload(workload)
    branching = check_whole("branching", branching, 2)
    levels = tree_levels(workload.cells, branching)
    L = tree(workload.cells, levels)
    B = tree_reconstruct(dense(workload.matrix), levels)
    return PairStrategy(workload, L, B, method="hierarchical")


def tree_levels(cells: int, branching: int) -> list[Indices]:
    """For every level, leaves first, the cells at which its nodes start."""
    levels, width = [np.arange(cells)], 1
    while width < cells:
        width *= branching
        levels.append(np.arange(0, cells, width))
    return levels


def tree(cells: int, levels: list[Indices]) -> sparse.csr_array:
    """L: one row per node, 1 for every cell below it."""
    above = np.concatenate([[0], np.cumsum([len(starts) for starts in levels])])
    nodes = [np.searchsorted(starts, np.arange(cells), side="right") - 1 for starts in levels]
    rows = np.concatenate([first + node for first, node in zip(above, nodes, strict=False)])
    columns = np.tile(np.arange(cells), len(levels))
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(int(above[-1]), cells))


def tree_reconstruct(W: Dense, levels: list[Indices]) -> Dense:
    """W (LᵀL)⁻¹ Lᵀ, adding one level of nodes after another by the Sherman–Morrison formula.

    LᵀL is the sum over nodes g of 1_g 1_gᵀ. Up to each level, that sum M is block diagonal in the level's
    nodes, so that Y = W M⁻¹ and u = M⁻¹ 1 are all there is to keep.
    """
    Y, u = W.copy(), np.ones(W.shape[1])
    for starts in levels[1:]:
        widths = np.diff(np.append(starts, W.shape[1]))
        gain = 1 + np.add.reduceat(u, starts)
        share = np.add.reduceat(Y, starts, axis=1) / gain
        Y -= np.repeat(share, widths, axis=1) * u
        u /= np.repeat(gain, widths)
    return np.concatenate([np.add.reduceat(Y, starts, axis=1) for starts in levels], axis=1)


BRANCHINGS = (2, 3, 4, 8, 16)
"""Children a node, for the trees over the merged columns: which is best depends on the queries' widths, and each takes
milliseconds, so several are tried."""


def _tree(cells: int) -> Tree:
    levels = tree_levels(cells, 2)
    return tree(cells, levels), partial(tree_reconstruct, levels=levels)


@final
@dataclass(frozen=True, eq=False)
class _Hierarchical(Family):
    def worth(self, reduction: Reduction) -> bool:
        return reduction.workload.cells <= SIZES.most_cells

    def on_columns(self, R: Dense) -> Iterator[Pair]:
        """A tree of every branching over the merged columns."""
        p = R.shape[1]
        if R.size > SIZES.most_entries:
            return
        for branching in BRANCHINGS:
            if branching <= max(2, p):
                levels = tree_levels(p, branching)
                yield Pair(tree(p, levels), tree_reconstruct(R, levels))

    def over_cells(self, reduction: Reduction, best: float, *, thorough: bool) -> Iterator[Dense]:
        return over_cells(reduction, best, _tree, SIZES)


HIERARCHICAL = _Hierarchical("hierarchical", hierarchical, quick=True)
