"""p-Identity on a sparse matrix as it is, from the widest of its own queries as shared ones.

Nothing of the matrix's size is dense until the end, so that thousands of queries over thousands of cells take seconds.
A query over many cells is what a shared measurement is for; the descent sets those to zero that do not pay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from batchdp.linalg.descent import Reached
from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.mechanism import fit
from batchdp.strategies.families.p_identity.problem import pack, paired
from batchdp.workloads.pair import Pair

WIDE = ((16, 48), (64, 96))
"""Queries with a column in so many or more are tried, the widest first, up to so many."""
START_SUM = 4.0
"""The largest sum of the shared queries over one column, to begin with."""
ROUNDS = 60
SPARSE_COST = 30
"""How many multiplications of dense matrices one of a sparse one takes the time of."""


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse matrix as what an evaluation needs of it."""

    W: sparse.csr_array

    @property
    def shape(self) -> tuple[int, int]:
        """k, n."""
        k, n = self.W.shape
        return k, n

    @property
    def work(self) -> int:
        """How many entries a dense matrix of the same cost has."""
        return SPARSE_COST * int(self.W.nnz)

    @cached_property
    def squares(self) -> Dense:
        """‖W_j‖² of every column."""
        return np.asarray(self.W.multiply(self.W).sum(axis=0), dtype=np.float64).ravel()

    @cached_property
    def _turned(self) -> sparse.csr_array:
        return sparse.csr_array(self.W.T)

    def answers(self, rows: Dense) -> Dense:
        """Rows (p × n) times Wᵀ."""
        return np.ascontiguousarray((self.W @ np.ascontiguousarray(rows.T)).T)

    def combined(self, rows: Dense) -> Dense:
        """Rows (p × k) times W."""
        return np.ascontiguousarray((self._turned @ np.ascontiguousarray(rows.T)).T)


def from_wide_rows(W: sparse.csr_array) -> tuple[float, Callable[[], Pair | None]]:
    """The best of a few descents for a matrix whose columns are merged: ‖B‖²_F, and the pair when it is wanted.

    The pair is None where its diagonal cannot be divided by.
    """
    R = Sparse(sparse.csr_array(W))
    n = R.shape[1]
    found = [Reached(np.zeros((0, n)), float(R.squares.sum()), 0)]
    for share, most in WIDE:
        rows = _widest(R.W, n / share, most)
        if len(rows):
            shared = np.abs(R.W[rows].toarray())
            shared *= START_SUM / float(shared.sum(axis=0).max())
            found.append(fit(R, shared, ROUNDS))
    best = min(found, key=lambda one: one.value)
    shared = best.point[best.point.sum(axis=1) > 0]
    return best.value, lambda: paired(np.asarray(R.W.toarray()), pack(shared))


def _widest(W: sparse.csr_array, least: float, most: int) -> list[int]:
    """The queries with the most columns, each kind once."""
    sizes = np.diff(W.indptr)
    kinds: dict[bytes, int] = {}
    for i in np.argsort(-sizes, kind="stable"):
        if sizes[i] < least or len(kinds) == most:
            break
        kinds.setdefault(W.indices[W.indptr[i] : W.indptr[i + 1]].tobytes(), int(i))
    return list(kinds.values())
