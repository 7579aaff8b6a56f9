"""A p-Identity strategy as rows d, Θ standing for L = [diag(d); Θ], and its reconstruction.

B = R L⁺ comes from p × p systems by the Woodbury formula: L itself is never squared, and where it is large it is
sparse.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.matrix import Dense, Plain
from batchdp.outcome import Outcome
from batchdp.strategies.families.p_identity.settings import SETTINGS, Settings
from batchdp.workloads.pair import Pair


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
