"""The convex bound: no factorisation W = B L with column L2 norms at most 1 has a smaller ‖B‖²_F.

With P = B Bᵀ the best Gaussian strategy minimises tr P subject to R_jᵀ P⁻¹ R_j ≤ 1 for every column of the
reduced workload R. Its dual has one number a column: every v ≥ 0 gives the valid lower bound
(tr (R diag(v) Rᵀ)^½)² / Σv. An L1 norm is at least the L2 norm, so the bound holds for Laplace strategies too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchdp.matrix import Dense
from batchdp.reduction import reduce
from batchdp.workload import Workload


@dataclass(frozen=True, eq=False)
class Certificate:
    """How the search for the bound ended."""

    lower_bound: float
    """On ‖B‖²_F Δ², weighted by the queries' importance."""
    upper_bound: float
    """What the best Gaussian strategy seen reaches; the truth for Gaussian noise lies between the two."""
    rounds: int
    weights: Dense
    """v: how much each class of cells matters."""

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        return self.upper_bound / self.lower_bound - 1 if self.lower_bound > 0 else 0.0


def certify(workload: Workload, *, tolerance: float = 1e-3, max_rounds: int = 2000) -> Certificate:
    """The convex bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds."""
    return solve(reduce(workload).reduced, tolerance=tolerance, max_rounds=max_rounds)


def solve(R: Dense, *, tolerance: float, max_rounds: int) -> Certificate:
    """The fixed point v ← v q with q_j = R_jᵀ P⁻¹ R_j and P = (R diag(v) Rᵀ)^½."""
    k, n = R.shape
    if k == 0:
        return Certificate(0.0, 0.0, 0, np.ones(n))
    v = np.full(n, 1.0 / n)
    lower, upper, best = 0.0, np.inf, v
    for rounds in range(1, max_rounds + 1):
        trace, q = _traces(R, v)
        if trace**2 > lower:
            lower, best = trace**2, v
        upper = min(upper, trace * float(q.max()))
        if upper <= lower * (1 + tolerance):
            break
        v = v * q
        v /= v.sum()
    return Certificate(lower, upper, rounds, best)


def _traces(R: Dense, v: Dense) -> tuple[float, Dense]:
    """tr P and q for Σv = 1."""
    eigenvalues, Q = np.linalg.eigh((R * v) @ R.T)
    roots = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * 1e-30))
    Y = (Q.T @ R) / np.sqrt(roots)[:, None]
    return float(roots.sum()), np.einsum("ij,ij->j", Y, Y)
