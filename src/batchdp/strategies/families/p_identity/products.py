"""A reduced workload as what an evaluation of p-Identity needs of it: products with a few rows.

Only RᵀR matters, so the merged workload √weights · W serves as well as R. Where it is large and changes in few places
along its columns, as ranges do, W = D S with a sparse D of differences and S the sums from each column on: a product
with W is a cumulative sum and a sparse product, a hundred times cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings
from batchdp.workloads.reduction import Reduction


class Products(Protocol):
    """A reduced workload R, k × n."""

    @property
    def shape(self) -> tuple[int, int]:
        """k, n."""

    @property
    def work(self) -> int:
        """How many entries a dense matrix of the same cost has."""

    @property
    def squares(self) -> Dense:
        """‖R_j‖² of every column."""

    def answers(self, rows: Dense) -> Dense:
        """Rows (p × n) times Rᵀ."""

    def combined(self, rows: Dense) -> Dense:
        """Rows (p × k) times R."""


@dataclass(frozen=True, eq=False)
class Whole:
    """R as an array."""

    R: Dense

    @property
    def shape(self) -> tuple[int, int]:
        """k, n."""
        k, n = self.R.shape
        return k, n

    @property
    def work(self) -> int:
        """k n."""
        return self.R.size

    @cached_property
    def squares(self) -> Dense:
        """‖R_j‖² of every column."""
        return np.asarray(np.einsum("ij,ij->j", self.R, self.R))

    def answers(self, rows: Dense) -> Dense:
        """Rows (p × n) times Rᵀ."""
        return np.asarray(rows @ self.R.T)

    def combined(self, rows: Dense) -> Dense:
        """Rows (p × k) times R."""
        return np.asarray(rows @ self.R)


@dataclass(frozen=True, eq=False)
class Differences:
    """W as the differences D of neighbouring columns."""

    differences: sparse.csr_array
    squares: Dense
    cost: int = SETTINGS.sparse_cost
    """How many multiplications of dense matrices one of a sparse one takes the time of."""

    @property
    def shape(self) -> tuple[int, int]:
        """Queries (as many as R has rows, or more), n."""
        m, n = self.differences.shape
        return m, n

    @property
    def work(self) -> int:
        """Of the sparse product, and of the sums."""
        return self.cost * (self.differences.nnz + self.shape[1])

    @cached_property
    def _turned(self) -> sparse.csr_array:
        return sparse.csr_array(self.differences.T)

    def answers(self, rows: Dense) -> Dense:
        """Rows (p × n), summed from each column on, times Dᵀ."""
        sums = np.cumsum(rows.T[::-1], axis=0)[::-1]
        return np.asarray(self.differences @ sums).T

    def combined(self, rows: Dense) -> Dense:
        """Rows (p × k) times D, summed up to each column."""
        return np.cumsum(self._turned @ rows.T, axis=0).T


def products(reduction: Reduction, settings: Settings = SETTINGS) -> Products:
    """The cheapest form of a reduced workload."""
    R = reduction.reduced
    if R.size < settings.differing_entries or reduction.workload.queries * R.shape[1] > 4 * R.size:
        return Whole(R)
    W = reduction.merged_workload()
    if reduction.workload.weights is not None:
        W = W * np.sqrt(reduction.workload.weights)[:, None]
    differences = sparse.csr_array(np.diff(W, axis=1, prepend=0.0))
    found = Differences(differences, np.asarray(np.einsum("ij,ij->j", W, W)), settings.sparse_cost)
    return found if 4 * found.work < R.size else Whole(R)
