"""The problem of p-Identity: a workload as products with few rows, a strategy as rows d, Θ, and its error.

Only RᵀR matters, so the merged workload √weights · W serves as well as R. Where it is large and changes in few places
along its columns, as ranges do, W = D S with a sparse D of differences and S the sums from each column on: a product
with it takes passes instead of multiplications.

L = [I; P] diag(1/e): e_j is how much larger the noise on column j is than if it were measured alone, and P says how
often the shared queries count it. With Y = P diag(e) Rᵀ, K = I + P Pᵀ and Z = K⁻¹ Y the Woodbury formula gives
‖R L⁺‖²_F = Σ e_j² ‖R_j‖² − ⟨Y, Z⟩, and the derivatives need nothing new but Z R. So an evaluation is two products of R
with p rows, 4 k n p operations, without any n × n or k × n matrix beside the workload itself. Packed, a strategy is
rows d, Θ that stand for L = [diag(d); Θ]; B = R L⁺ comes from p × p systems too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.cholesky import plus_identity, solved
from batchdp.linalg.matrix import Dense, Plain
from batchdp.outcome import Outcome
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings
from batchdp.workloads.pair import Pair
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


def error(R: Products, P: Dense, e: Dense) -> tuple[float, Dense, Dense]:
    """‖R L⁺‖²_F and half its derivatives by P (with e fixed) and by e (with P fixed)."""
    if len(P) == 0:  # which LAPACK does not take
        eq = e * R.squares
        return float(e @ eq), P, eq
    Y = R.answers(P * e)
    Z = solved(plus_identity(P @ P.T), Y)
    M = R.combined(Z)
    eq = e * R.squares
    by_e = eq - np.einsum("ij,ij->j", M, P)
    M *= e
    return float(e @ eq - np.vdot(Y, Z)), (Z @ Z.T) @ P - M, by_e


def pack(shared: Dense) -> Dense:
    """Rows d, Θ of sensitivity 1 from shared queries beside the identity."""
    return np.asarray(np.vstack([np.ones(shared.shape[1]), shared]) / (1 + np.abs(shared).sum(axis=0)))


def unpack(packed: Dense, settings: Settings = SETTINGS) -> Plain:
    """L, without rows that are zero."""
    d, T = packed[0], packed[1:]
    T = T[np.abs(T).sum(axis=1) > 0]
    if len(d) <= settings.sparse_columns:
        return np.vstack([np.diag(d), T])
    return sparse.csr_array(sparse.vstack([sparse.diags_array(d), sparse.csr_array(T)]))


def shared_of(packed: Dense) -> Dense:
    """The shared queries Θ beside the identity: what `pack` was given."""
    return np.asarray(packed[1:] / packed[0])


def paired(R: Dense, packed: Dense, settings: Settings = SETTINGS) -> Pair | None:
    """L and B = R L⁺, or None if the diagonal is too small to divide by."""
    B = reconstruct(R, packed)
    return None if B is None else Pair(unpack(packed, settings), B, Outcome.BEST_OF_STARTS)


def reconstruct(R: Dense, packed: Dense) -> Dense | None:
    """B = R L⁺ for the L that `unpack` gives, or None if the diagonal is too small to divide by."""
    d, T = packed[0], packed[1:]
    T = T[np.abs(T).sum(axis=1) > 0]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        P = T / d
    if not np.all(np.isfinite(P)):
        return None
    K = P @ P.T
    K.flat[:: len(K) + 1] += 1
    try:
        factor = cho_factor(K, lower=True, check_finite=False) if len(K) else None
    except LinAlgError:
        return None

    def solved(E: Dense) -> Dense:
        C = E / d
        if factor is None:
            return np.asarray(C)
        Z = cho_solve(factor, P @ C.T, check_finite=False).T
        return np.hstack([C - Z @ P, Z])

    B = solved(R)
    B += solved(R - B[:, : len(d)] * d - B[:, len(d) :] @ T)  # removes the rounding of the first
    return B
