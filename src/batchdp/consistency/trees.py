"""Nested measurements: exact least squares in two passes over the tree (Hay, Rastogi, Miklau, Suciu 2010).

A country, its states and their counties: every measurement is a weighted total of cells, and of any two one holds the
other or they have no cell in common. Going up, every node's own measurement is averaged with the sum of its children's
estimates, by their precisions; going down, what a node's estimate has more than its children's is shared among them by
their variances. That is the least-squares solution, in time proportional to the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tree:
    """The cells are nodes 0 to n − 1, the measurements follow; a child comes before its parent.

    Args:
        cells: n.
        parent: of every node; −1 for a root.
        weight: of every measurement, the one coefficient that its cells have; in the order of the nodes.
        order: which measurement each node after the cells is.
    """

    cells: int
    parent: Integers
    weight: Dense
    order: Integers

    @cached_property
    def levels(self) -> tuple[Integers, ...]:
        """Nodes by their distance from a root, the roots first."""
        depth = np.zeros(len(self.parent), dtype=np.int64)
        for node in range(len(self.parent) - 1, -1, -1):
            if self.parent[node] >= 0:
                depth[node] = depth[self.parent[node]] + 1
        by_depth = np.argsort(depth, kind="stable")
        ends = np.cumsum(np.bincount(depth))
        return tuple(np.split(by_depth, ends[:-1]))


def tree_of(measure: sparse.csr_array) -> Tree | None:
    """The tree that the rows of L make; None where they are not nested, or a row's coefficients differ."""
    L = sparse.csr_array(measure)
    L.sort_indices()
    L.eliminate_zeros()
    m, n = L.shape
    lengths = np.diff(L.indptr)
    parent = np.full(n + m, -1, dtype=np.int64)
    weight = np.zeros(m)
    size = np.concatenate([np.ones(n, dtype=np.int64), np.zeros(m, dtype=np.int64)])
    top = np.arange(n)  # of every cell, the largest node so far that holds it
    order = np.argsort(lengths, kind="stable")
    for node, row in enumerate(order, start=n):
        span = slice(L.indptr[row], L.indptr[row + 1])
        own, values = L.indices[span], L.data[span]
        if len(own) == 0:
            continue
        below = np.unique(top[own])
        if size[below].sum() != len(own) or np.any(values != values[0]):
            return None
        parent[below] = node
        weight[node - n] = values[0]
        size[node] = len(own)
        top[own] = node
    return Tree(n, parent, weight, order)


def two_passes(tree: Tree, measurements: Dense, free: NDArray[np.bool_] | None = None) -> Dense:
    """The cells x that minimise ‖L x − y‖², those that are not free being 0; where several do, even ones."""
    n, nodes = tree.cells, len(tree.parent)
    y = measurements[tree.order]
    estimate, variance = np.zeros(nodes), np.zeros(nodes)
    variance[:n] = np.inf if free is None else np.where(free, np.inf, 0.0)  # a cell that is free may be anything
    below, spread, unknown = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)  # of a node's children together
    for level in reversed(tree.levels):
        inner = level[level >= n]
        estimate[inner], variance[inner] = _averaged(
            below[inner], np.where(unknown[inner] > 0, np.inf, spread[inner]), y[inner - n], tree.weight[inner - n]
        )
        child = level[tree.parent[level] >= 0]
        up, known = tree.parent[child], np.isfinite(variance[child])
        np.add.at(below, up, estimate[child])
        np.add.at(spread, up, np.where(known, variance[child], 0.0))
        np.add.at(unknown, up, ~known)
    for level in tree.levels[1:]:
        up, known = tree.parent[level], np.isfinite(variance[level])
        even = np.where(known, 0.0, 1 / np.maximum(unknown[up], 1))
        own = np.divide(variance[level], spread[up], out=np.zeros(len(level)), where=known & (spread[up] > 0))
        estimate[level] += (estimate[up] - below[up]) * np.where(unknown[up] > 0, even, own)
    return estimate[:n]


def _averaged(below: Dense, spread: Dense, y: Dense, weight: Dense) -> tuple[Dense, Dense]:
    """Own measurements and the children's sums, by their precisions; with variances."""
    precision, known = np.square(weight), np.isfinite(spread)
    measured = np.divide(y, weight, out=np.zeros_like(y), where=weight != 0)
    alone = np.divide(1.0, precision, out=np.full_like(y, np.inf), where=precision > 0)
    odds = np.where(known, spread, 0.0) * precision
    estimate = np.where(known, below + (measured - below) * odds / (1 + odds), measured)
    return estimate, np.where(known, np.where(known, spread, 0.0) / (1 + odds), alone)
