"""The convex bound: no factorisation W = B L with column L2 norms at most 1 has a smaller ‖B‖²_F.

With P = B Bᵀ the best such factorisation of the reduced workload R minimises tr P subject to
q_j = R_jᵀ P⁻¹ R_j ≤ 1 for every column. Its dual has one number a column: every v ≥ 0 gives the valid lower
bound (tr (R diag(v) Rᵀ)^½)² / Σv, and P = (R diag(v) Rᵀ)^½ made feasible gives an upper one. They meet where
q_j = 1 wherever v_j > 0. An L1 norm is at least the L2 norm, so the bound holds for Laplace strategies too.

How it is solved, and why that is quick:

- With u = log v, u ← u + a log q. The Jacobian of log q is −S/2 with S row-stochastic and similar to a
  positive semi-definite matrix, so every 0 < a < 4 contracts; a = 1 is the textbook fixed point. a = 3 with
  Anderson extrapolation takes several times fewer rounds.
- The lower bound is flat at the optimum but tr P · max q is not. `tightened` moves P⁻¹ to where the active
  columns have exactly q_j = 1, so that a gap of 1e-2 becomes 1e-3 or less for the price of a few rounds.
- After the first round only the columns that stick out furthest are worked on, those of a large problem in single
  precision. Where the bounds seem to meet they are proven: on all columns, in double precision. Columns that stick
  out then come back.
- Many rows that are like their neighbours start from the solution for every fourth of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from batchdp.bounds.active_columns import MOST_GRADED, ActiveColumns
from batchdp.bounds.anderson import Anderson
from batchdp.bounds.ellipsoid import Columns, Ellipsoid, lower_bound, root, tightened
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.workloads.reduction import reduce
from batchdp.workloads.workload import Workload

STEP = 3.0
"""a, the exponent of v ← v q^a."""
MEMORY = 8
"""Rounds that the extrapolation looks back on."""
LARGEST_MOVE = 3.0
"""Of log v in one round, upwards; twice that downwards."""
LOWEST = -46.0
"""log v relative to the mean: v = 1e-20 is as good as 0."""
LARGEST_ACTIVE_SET = 10_000
"""`tightened` holds a square matrix of this size."""
SMALLEST_WORKING_SET = 256
"""Below this, dropping columns buys nothing."""
SMALLEST_COARSENED = 2048
"""Rows from which a solution for a quarter of them is worth a try."""
WORTH_ROUNDING = 1e8
"""k²p from which rounds are made in single precision."""
FINEST_ROUNDED = 1e-4
"""The smallest tolerance that single precision is good for."""

Status = Literal["optimal", "out of rounds", "stalled", "cancelled"]
Progress = Callable[[int, float, float], object]


@dataclass(frozen=True, eq=False)
class Certificate:
    """How the search for the bound ended; bounds are on ‖B‖²_F Δ², weighted by the queries' importance."""

    lower_bound: float
    """No factorisation is below."""
    upper_bound: float
    """‖B‖²_F of the factorisation R = B L with `measure` as L."""
    measure: Dense
    """L for the reduced workload, columns of L2 norm at most 1."""
    reconstruct: Dense
    """B for the reduced workload: R = B L."""
    weights: Dense
    """v: how much each class of cells matters; the lower bound can be recomputed from it alone."""
    rounds: int
    status: Status

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        if self.lower_bound > 0:
            return max(0.0, self.upper_bound / self.lower_bound - 1)
        return 0.0 if self.upper_bound == 0 else np.inf


def _summed(found: list[Certificate]) -> Certificate:
    worst = max(found, key=lambda one: one.gap, default=None)
    return Certificate(
        lower_bound=sum(one.lower_bound for one in found),
        upper_bound=sum(one.upper_bound for one in found),
        measure=block_diag(*(one.measure for one in found)),
        reconstruct=block_diag(*(one.reconstruct for one in found)),
        weights=np.concatenate([one.weights * (one.lower_bound / one.weights.sum()) for one in found] or [np.zeros(1)]),
        rounds=sum(one.rounds for one in found),
        status=worst.status if worst is not None else "optimal",
    )


def certify(workload: Workload, *, tolerance: float = 1e-3, max_rounds: int = 500) -> Certificate:
    """The convex bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds.

    Over several blocks it is the sum of theirs: a strategy for all queries answers those of every block.
    """
    if len(workload.blocks) > 1:
        found = [certify(part, tolerance=tolerance, max_rounds=max_rounds) for _, _, part in workload.parts()]
        return _summed(found)
    return solve(reduce(workload).reduced, tolerance=tolerance, max_rounds=max_rounds)


@one_thread
def solve(R: Dense, *, tolerance: float = 1e-3, max_rounds: int = 500, progress: Progress | None = None) -> Certificate:
    """Minimise ‖B‖²_F over R = B L with columns of L of L2 norm at most 1; R has full row rank.

    `progress(round, lower bound, upper bound)` may return True to cancel; the best so far is returned. It is told what
    the round found; what is returned was checked on all columns in double precision.
    """
    k, p = R.shape
    scale = float(np.abs(R).max(initial=0.0))
    if scale == 0:
        return Certificate(0.0, 0.0, np.zeros((0, p)), np.zeros((k, 0)), np.ones(p), 0, "optimal")
    R = R / scale
    work, proof = ActiveColumns(R), _Proof(R)
    u = _start(R, tolerance)
    memory = Anderson(MEMORY, first=2 / STEP)  # a = 2 is the best single step: exact along v itself
    patience = _Patience(tolerance)
    low, found = 0.0, Ellipsoid(np.inf, np.ones(k), np.eye(k))  # what the rounds say, not yet proven
    last: tuple[float, Dense, Dense] | None = None  # the last point accepted on these columns: bound, u, log q
    rejected, rounds = 0, 0
    status: Status = "out of rounds"

    for rounds in range(1, max_rounds + 1):
        l, U = root(work.matrix, np.exp(u))
        Y = U.T.astype(work.matrix.dtype) @ work.matrix
        q = np.einsum("ij,ij->j", Y, Y / l.astype(Y.dtype)[:, None]).astype(np.float64)
        c = l.sum() / np.exp(u).sum()  # scale v so that Σv = tr P, where the bound is tr P itself
        l, q, u = l * c, q / c, u + 2 * np.log(c)
        bound = float(l.sum())

        if last is not None and bound < last[0] * (1 - (1e-9 if work.exact else 1e-6)) and rejected < 8:
            rejected += 1  # the extrapolation overshot: back to the last point, one safe step, forget the past
            memory.forget()
            u = last[1] + last[2]
            continue
        rejected = 0
        log_q = np.log(np.maximum(q, 1e-12))
        last = (bound, u, log_q)
        low = max(low, bound)
        if work.exact:
            proof.below(work.columns, np.exp(u), bound)

        candidate = Ellipsoid(bound * float(q.max()), l, U)
        active = np.flatnonzero((np.exp(u) > 1e-2 * bound / u.size) | (q > 1))
        if patience.ends(k, u.size, active.size, candidate.value / low - 1):
            tight = tightened(l, U, Y, q, active)
            candidate = min(candidate, tight or candidate, key=lambda one: one.value)
            patience.renew(candidate.value / low - 1)
        if candidate.value < found.value:
            found = work.original(candidate)
        if progress is not None and progress(rounds, low * scale**2, min(found.value, proof.upper) * scale**2):
            status = "cancelled"
            break
        violators: Columns = np.zeros(0, dtype=np.int64)
        if found.value <= low * (1 + tolerance):
            if not work.exact:
                proof.below(work.columns, np.exp(u))
            norms = proof.above(found)
            if proof.upper <= proof.lower * (1 + tolerance):
                status = "optimal"
                break
            violators = work.violators(norms)
            found = replace(found, value=np.inf)
            if not (violators.size or work.exact):
                work.turn_back()  # nothing sticks out, so that it was the rounding
        if violators.size:
            work.add(violators)
            u = np.concatenate([u, np.full(violators.size, np.log(1e-2 * bound / u.size))])
            last = None
            memory.forget()
            patience.lose()  # little is missing, and tightening finds it at once
            continue

        step = memory.step(u, STEP * log_q)
        if np.abs(step).max() < 1e-13:
            status = "stalled"
            break
        u = np.maximum(u + np.clip(step, -2 * LARGEST_MOVE, LARGEST_MOVE), np.log(bound / p) + LOWEST)
        if rounds == 1 and k * k * p > WORTH_ROUNDING and tolerance >= FINEST_ROUNDED and l[0] > MOST_GRADED * l[-1]:
            work.turn(U, Y)
        gone = _left_out(last[1] + 2 * log_q, k) if rounds == 1 else (u < np.log(bound / p) - 9) & (log_q < -0.01)
        if u.size - gone.sum() >= SMALLEST_WORKING_SET and gone.sum() > 0.2 * u.size:
            work.keep(~gone)
            u, last = u[~gone], (bound, last[1][~gone], log_q[~gone])
            memory.restrict(~gone)

    if status != "optimal":
        if not work.exact:
            proof.below(work.columns, np.exp(u if last is None else last[1]))
        proof.above(found)
    return Certificate(
        proof.lower * scale**2, proof.upper * scale**2, proof.L, proof.B * scale, proof.v, rounds, status
    )


class _Patience:
    """When to tighten: often where that costs less than a round, else when it is likely to be for the last time."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._credit = self._cost = self._price = 0.0

    def ends(self, k: int, columns: int, active: int, gap: float) -> bool:
        """Whether to do so after a round on so many columns that left such a gap."""
        self._cost = 4.0 * k * k * columns + 20.0 * k**3
        self._price = 2.0 * k * active**2 + active**3 / 3 + 3.0 * k**3
        self._credit += self._cost
        # It gains about a digit, so that one who is further off had better go on.
        reluctance = 1 + self._halvings(gap / 10) if self._price > self._cost else 1.0
        return gap < 1 and active <= LARGEST_ACTIVE_SET and self._price * reluctance <= self._credit

    def renew(self, gap: float) -> None:
        """Start over after a try that left such a gap; a round about halves it."""
        self._credit = min(0.0, self._price - self._cost * self._halvings(gap)) if self._price > self._cost else 0.0

    def lose(self) -> None:
        """Do so after the next round."""
        self._credit = np.inf

    def _halvings(self, gap: float) -> float:
        return float(np.log2(max(1.0, gap / self._tolerance)))


class _Proof:
    """Bounds that hold, and what they follow from: checked on all columns, in double precision."""

    def __init__(self, R: Dense) -> None:
        self._R = R
        self.lower, self.upper = 0.0, np.inf
        self.v = np.ones(R.shape[1])
        self.L, self.B = R, np.eye(R.shape[0])

    def below(self, columns: Columns, v: Dense, bound: float | None = None) -> None:
        """A lower bound from weights on some columns, which is one for all; computed unless it is known."""
        if bound is None:
            bound = lower_bound(self._R[:, columns], v)
        if bound > self.lower:
            self.lower, self.v = bound, np.zeros(self._R.shape[1])
            self.v[columns] = v

    def above(self, found: Ellipsoid) -> Dense:
        """An upper bound from an ellipsoid, scaled until it holds all columns; returns their squared norms before."""
        L, B = found.measure() @ self._R, found.reconstruct()
        norms = np.asarray(np.einsum("ij,ij->j", L, L))
        size = float(np.sqrt(norms.max()))
        upper = float(np.square(B).sum()) * size**2
        if upper < self.upper:
            L /= size
            B *= size
            self.upper, self.L, self.B = upper, L, B
        return norms


def _left_out(order: Dense, k: int) -> NDArray[np.bool_]:
    """All but the columns that come first; how many touch the last ellipsoid was measured on the paper's workloads."""
    gone = np.ones(order.size, dtype=bool)
    gone[np.argsort(-order)[: 4 * k + 1024]] = False
    return gone


def _start(R: Dense, tolerance: float) -> Dense:
    """log v to begin with: all alike, or the solution for every fourth row where it does for those between as well.

    It does so if rows are like their neighbours, as with ranges over an ordered domain; that saves most rounds.
    """
    k, p = R.shape
    if k < SMALLEST_COARSENED:
        return np.zeros(p)
    v = solve(R[3::4], tolerance=tolerance).weights
    v = np.maximum(v, 1e-3 * v.mean())
    between = R[1::4]
    return np.log(v) if lower_bound(between, v) > lower_bound(between, np.ones(p)) else np.zeros(p)
