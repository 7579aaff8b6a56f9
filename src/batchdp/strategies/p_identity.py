"""p-Identity (McKenna, Miklau, Hay, Machanavajjhala: OPT₀): every cell once, and p shared queries.

L = [I; Θ] with every column divided by 1 + Σ|Θ|, so that all columns have L1 norm 1. Here it works on the
merged columns of the reduced workload R, whose signs are aligned, so that a non-negative Θ serves signed
workloads as well. An evaluation costs O(k p n): no n × n matrix appears.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from batchdp.checks import whole
from batchdp.matrix import Dense
from batchdp.reduction import reduce
from batchdp.strategy import Strategy
from batchdp.threads import one_thread
from batchdp.workload import Workload, as_workload

SCREENING_ROUNDS = 60
"""Enough to tell a good p from a bad one."""
POLISHED = 2
"""How many of the screened starts are run to the end."""


@dataclass(frozen=True, eq=False)
class Fit:
    """One run of the search for Θ."""

    shared: Dense
    """Θ, p × n."""
    error: float
    """‖R L⁺‖²_F of the strategy, whose sensitivity is 1."""
    rounds: int

    @property
    def measure(self) -> Dense:
        """L = [I; Θ] / (1 + Σ|Θ|)."""
        share = 1 / (1 + np.abs(self.shared).sum(axis=0))
        return np.vstack([np.diag(share), self.shared * share])


@one_thread
def p_identity(
    workload: Workload | ArrayLike | Any,
    *,
    shared: int | None = None,
    signed: bool = False,
    seed: int = 0,
    max_rounds: int = 400,
) -> Strategy:
    """The best p-Identity strategy from several starts; never worse than merged noise on data.

    Args:
        shared: p, how many shared queries; several are tried if left out.
        signed: whether shared queries may have negative coefficients.
        seed: of the random starts.
        max_rounds: of the quasi-Newton method, for each start that is run to the end.
    """
    workload = as_workload(workload)
    shared = None if shared is None else whole("shared", shared, 1)
    seed, max_rounds = whole("seed", seed, 0), whole("max_rounds", max_rounds, 1)
    reduction = reduce(workload)
    if reduction.rank == 0:
        return Strategy.lifted(reduction, np.zeros((0, 0)), method="p-identity")
    found = search(reduction.reduced, shared=shared, signed=signed, seed=seed, max_rounds=max_rounds)
    return Strategy.lifted(
        reduction, found.measure, method="p-identity", rounds=found.rounds, status="best of several starts"
    )


def search(R: Dense, *, shared: int | None = None, signed: bool = False, seed: int = 0, max_rounds: int = 400) -> Fit:
    """Screen random starts of several p, run the best to the end; sharing nothing is one of them."""
    n = R.shape[1]
    rng = np.random.default_rng(seed)
    starts = [rng.uniform(-1 if signed else 0, 1, size=(p, n)) for p in ([shared] if shared else _sizes(n))]
    screened = [fit(R, start, SCREENING_ROUNDS, signed) for start in starts]
    screened.sort(key=lambda found: found.error)
    found = [fit(R, begun.shared, max_rounds, signed) for begun in screened[:POLISHED]]
    nothing_shared = Fit(np.zeros((0, n)), float(np.sum(R * R)), 0)
    best = min([*found, nothing_shared], key=lambda found: found.error)
    return Fit(best.shared, best.error, sum(run.rounds for run in (*screened, *found)))


def fit(R: Dense, start: Dense, max_rounds: int, signed: bool = False) -> Fit:
    """L-BFGS-B from a start.

    Signed entries are split, Θ = Θ⁺ − Θ⁻ with both parts non-negative: the column sum stays linear and the
    problem smooth.
    """
    p, n = start.shape
    scale = 1 / float(np.sum(R * R))

    def whole(z: Dense) -> tuple[float, Dense]:
        error, slope, sum_slope = _error(R, z.reshape(p, n), z.reshape(p, n))
        return error * scale, (slope + sum_slope).ravel() * scale

    def split(z: Dense) -> tuple[float, Dense]:
        positive, negative = z.reshape(2, p, n)
        error, slope, sum_slope = _error(R, positive - negative, positive + negative)
        return error * scale, np.stack([sum_slope + slope, sum_slope - slope]).ravel() * scale

    z = np.stack([np.maximum(start, 0), np.maximum(-start, 0)]) if signed else np.maximum(start, 0)
    ended = minimize(
        split if signed else whole,
        z.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)],
        options={"maxiter": max_rounds, "maxfun": 2 * max_rounds, "ftol": 1e-9, "gtol": 1e-9},
    )
    parts = ended.x.reshape(-1, p, n)
    T = parts[0] - parts[1] if signed else parts[0]
    return Fit(T, _error(R, T, np.abs(T))[0], int(ended.nfev))


def _error(R: Dense, T: Dense, magnitude: Dense) -> tuple[float, Dense, Dense]:
    """‖R L⁺‖²_F, its derivative through Θ with the column sums fixed, and that through the column sums."""
    C = R * (1 + magnitude.sum(axis=0))
    K = T @ T.T
    K[np.diag_indices_from(K)] += 1
    X = C - cho_solve(cho_factor(K, check_finite=False), T @ C.T, check_finite=False).T @ T
    return float(np.vdot(C, X)), -2 * (T @ X.T) @ X, 2 * np.einsum("ij,ij->j", X, R)


def screen(R: Dense, start: Dense, max_rounds: int) -> Fit:
    """Like `fit` for Θ ≥ 0, as Θ = u² without bounds: for a few rounds from a positive start.

    SciPy spends microseconds a variable and call on bounds, which in a short run with many columns is more than the
    rounds themselves. It creeps where Θ is near zero, so `fit` takes over for the survivors.
    """
    p, n = start.shape
    scale = 1 / float(np.sum(R * R))

    def squared(z: Dense) -> tuple[float, Dense]:
        u = z.reshape(p, n)
        error, slope, sum_slope = _error(R, u * u, u * u)
        return error * scale, (2 * scale * (slope + sum_slope) * u).ravel()

    ended = minimize(
        squared,
        np.sqrt(np.maximum(start, 0)).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_rounds, "maxfun": 2 * max_rounds, "ftol": 1e-9, "gtol": 1e-9},
    )
    T = ended.x.reshape(p, n) ** 2
    return Fit(T, _error(R, T, T)[0], int(ended.nfev))


def _sizes(n: int) -> list[int]:
    return sorted({p for p in (1, 2, 4, 8, 16, n // 16, n // 8) if 1 <= p <= max(1, n // 2)})
