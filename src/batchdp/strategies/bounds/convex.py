"""The convex bound: no factorisation W = B L with column L2 norms at most 1 has a smaller ‖B‖²_F.

With P = B Bᵀ the best such factorisation of the reduced workload R minimises tr P subject to
q_j = R_jᵀ P⁻¹ R_j ≤ 1 for every column. Its dual has one number per column: every v ≥ 0 gives the valid lower
bound (tr (R diag(v) Rᵀ)^½)² / Σv, and P = (R diag(v) Rᵀ)^½ made feasible gives an upper one. They meet where
q_j = 1 wherever v_j > 0. An L1 norm is at least the L2 norm, so the bound holds for Laplace strategies too.

How it is solved, and why that is quick:

- With u = log v, u ← u + a log q. The Jacobian of log q is −S/2 with S row-stochastic and similar to a
  positive semi-definite matrix, so every 0 < a < 4 contracts; a = 1 is the textbook fixed point. a = 3 with
  Anderson extrapolation takes several times fewer rounds.
- The lower bound is flat at the optimum but tr P · max q is not. `tighten` moves P⁻¹ to where the active
  columns have exactly q_j = 1, so that a gap of 1e-2 becomes 1e-3 or less for the price of a few rounds.
- After the first round only the columns that stick out furthest are worked on, those of a large problem in single
  precision. Where the bounds seem to meet they are proven: on all columns, in double precision. Columns that stick
  out then come back.
- Many rows that are like their neighbours start from the solution for every fourth of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchdp.linalg.fixed_point import SMALLEST_RATIO, FixedPoint, Pace
from batchdp.linalg.matrix import Dense
from batchdp.linalg.threads import one_thread
from batchdp.strategies.bounds.ellipsoid import (
    MOST_GRADED,
    ActiveColumns,
    Columns,
    Ellipsoid,
    Patience,
    Proof,
    Real,
    lower_bound,
    root,
    tighten,
)
from batchdp.text import Outcome
from batchdp.workloads.matrix import MatrixWorkload, Pair, as_workload
from batchdp.workloads.reduction import reduce

Objective = Literal["sum", "max"]
"""What a strategy minimises: the sum of all queries' squared errors, or the largest."""


@dataclass(frozen=True, eq=False)
class OptimalityBound:
    """How good a strategy can be at all; both bounds are at sensitivity 1, weighted by the queries' importance."""

    objective: Objective
    """The bounds are on ‖B‖²_F ("sum"), or on the largest ‖B_i‖² ("max")."""
    lower_bound: float
    """No factorisation is below."""
    upper_bound: float
    """Some factorisation with column L2 norms of at most 1 reaches this."""
    weights: Dense
    """v: how much each class of cells matters; with the queries' weights, all that the lower bound follows from."""
    query_weights: Dense | None = None
    """w: how much each query matters to the largest error; they sum to 1. None for the sum."""
    rounds: int = 0
    outcome: Outcome = Outcome.OPTIMAL

    @property
    def gap(self) -> float:
        """The relative duality gap, upper / lower − 1."""
        if self.lower_bound > 0:
            return max(0.0, self.upper_bound / self.lower_bound - 1)
        return 0.0 if self.upper_bound == 0 else np.inf


@dataclass(frozen=True, eq=False)
class Optimum:
    """The end of a convex search: what it proved, and the pair that reaches the upper bound."""

    bound: OptimalityBound
    pair: Pair


def of_blocks(found: Sequence[OptimalityBound], together: Sequence[Sequence[int]] | None = None) -> OptimalityBound:
    """From the bounds on the sums of all blocks.

    Below: a strategy for all queries answers those of every block. Where no query spans blocks, its error is the sum of
    theirs. Where some do, its squared sensitivity is at least the sum of the blocks' that a record can be in at once:
    `together` has these sets. Both add up to less than can be reached. Above: the blocks' pairs with the best
    shares of the budget, (Σ √E_g)².
    """
    if not found:
        return OptimalityBound("sum", 0.0, 0.0, np.zeros(1))
    worst = Outcome.of_all(one.outcome for one in found)
    return OptimalityBound(
        "sum",
        lower_bound=max(
            sum(found[g].lower_bound for g in own) for own in (together if together else [range(len(found))])
        ),
        upper_bound=sum(np.sqrt(one.upper_bound) for one in found) ** 2,
        weights=np.concatenate([one.weights * (one.lower_bound / one.weights.sum()) for one in found]),
        rounds=sum(one.rounds for one in found),
        outcome=Outcome.OPTIMAL_BY_BLOCK if len(found) > 1 and worst is Outcome.OPTIMAL else worst,
    )


PACE = Pace(exponent=3.0, first=2 / 3)
"""a = 2 is the best single step: exact along v itself."""
LOWEST = -46.0
"""The least log v relative to the mean: v = 1e-20 is as good as 0."""
FEWEST_ACTIVE = 256
"""The number of columns below which leaving some out buys nothing."""
SMALLEST_COARSENED = 2048
"""The number of rows from which a solution for a quarter of them is worth a try."""
WORTH_ROUNDING = 1e8
"""The k²p from which rounds are made in single precision."""
FINEST_ROUNDED = 1e-4
"""The smallest tolerance that single precision is good for."""

Progress = Callable[[int, float, float], object]
"""Called with (round, lower bound, upper bound) on ‖B‖²_F; a true answer ends the search."""


def certify(
    workload: MatrixWorkload | ArrayLike | Any, *, tolerance: float = 1e-3, max_rounds: int = 500
) -> OptimalityBound:
    """The convex bound for a workload, to a relative duality gap of `tolerance` or `max_rounds` rounds.

    Over several blocks it is the sum of theirs, since a strategy for all queries answers those of every block; or that
    of the kinds of records, where these are listed.
    """
    workload = as_workload(workload)
    if workload.kinds is not None:
        return certify(workload.of_kinds(), tolerance=tolerance, max_rounds=max_rounds)
    if len(workload.blocks) > 1:
        found = [certify(part, tolerance=tolerance, max_rounds=max_rounds) for _, _, part in workload.parts()]
        return of_blocks(found, workload.summed_together())
    return solve(reduce(workload).reduced, tolerance=tolerance, max_rounds=max_rounds).bound


@one_thread
def solve(R: Dense, *, tolerance: float = 1e-3, max_rounds: int = 500, progress: Progress | None = None) -> Optimum:
    """Minimise ‖B‖²_F over R = B L with columns of L of L2 norm at most 1; R has full row rank.

    `progress(round, lower bound, upper bound)` may return True to cancel; the best so far is returned. It is told what
    the round found; what is returned was checked on all columns in double precision.
    """
    k, p = R.shape
    scale = float(np.abs(R).max(initial=0.0))
    if scale == 0:
        nothing = Pair(np.zeros((0, p)), np.zeros((k, 0)), Outcome.OPTIMAL)
        return Optimum(OptimalityBound("sum", 0.0, 0.0, np.ones(p)), nothing)
    search, rounds = _Search(R / scale, tolerance), 0
    outcome: Outcome | None = None
    for rounds in range(1, max_rounds + 1):
        accepted = search.evaluate()
        if accepted is None:
            continue
        low, high = search.bounds()
        if progress is not None and progress(rounds, low * scale**2, high * scale**2):
            outcome = Outcome.CANCELLED
            break
        outcome = search.move(accepted, first=rounds == 1)
        if outcome is not None:
            break
    return search.end(outcome or Outcome.OUT_OF_ROUNDS, rounds, scale)


@dataclass(frozen=True, eq=False)
class _Point:
    """What a round knows at u = log v: P = U diag(l) Uᵀ, scaled so that the lower bound is its trace."""

    bound: float
    u: Dense
    l: Dense
    U: Dense
    Y: Real
    """Uᵀ R on the columns that are worked on."""
    q: Dense

    @cached_property
    def log_q(self) -> Dense:
        """The logarithms of q, for the plain step."""
        return np.log(np.maximum(self.q, SMALLEST_RATIO))


class _Search:
    """The state: the columns that are worked on, log v on them, what the rounds say and what is proven."""

    def __init__(self, R: Dense, tolerance: float) -> None:
        self._shape, self._tolerance = R.shape, tolerance
        self._work, self._proof = ActiveColumns(R), Proof(R)
        self._loop = FixedPoint(_start(R, tolerance), PACE)
        self._patience = Patience(tolerance)
        k = R.shape[0]
        self._low, self._found = 0.0, Ellipsoid(np.inf, np.ones(k), np.eye(k))  # what the rounds say, not yet proven

    def bounds(self) -> tuple[float, float]:
        """What the rounds say so far."""
        return self._low, min(self._found.value, self._proof.upper)

    def evaluate(self) -> _Point | None:
        """The round's point with its bounds taken in, or None if the extrapolation overshot and was taken back."""
        work, u = self._work, self._loop.u
        l, U = root(work.matrix, np.exp(u))
        Y = U.T.astype(work.matrix.dtype) @ work.matrix
        q = np.einsum("ij,ij->j", Y, Y / l.astype(Y.dtype)[:, None]).astype(np.float64)
        c = l.sum() / np.exp(u).sum()  # scale v so that Σv = tr P, where the bound is tr P itself
        point = _Point(float((l * c).sum()), u + 2 * np.log(c), l * c, U, Y, q / c)
        if not self._loop.accept(point.bound, point.u, point.q, rounding=1e-9 if work.exact else 1e-6):
            return None
        self._low = max(self._low, point.bound)
        if work.exact:
            self._proof.below(work.columns, np.exp(point.u), point.bound)
        self._take_upper(point)
        return point

    def _take_upper(self, point: _Point) -> None:
        """The upper bound of the point, tightened where that pays."""
        candidate = Ellipsoid(point.bound * float(point.q.max()), point.l, point.U)
        active = np.flatnonzero((np.exp(point.u) > 1e-2 * point.bound / point.u.size) | (point.q > 1))
        if self._patience.ends(self._shape[0], point.u.size, active.size, candidate.value / self._low - 1):
            tight = tighten(point.l, point.U, point.Y, point.q, active)
            candidate = min(candidate, tight or candidate, key=lambda one: one.value)
            self._patience.renew(candidate.value / self._low - 1)
        if candidate.value < self._found.value:
            self._found = self._work.original(candidate)

    def move(self, point: _Point, *, first: bool) -> Outcome | None:
        """To the next point, or how the search has ended."""
        violators: Columns = np.zeros(0, dtype=np.int64)
        if self._found.value <= self._low * (1 + self._tolerance):
            norms = self._prove()
            if self._proof.upper <= self._proof.lower * (1 + self._tolerance):
                return Outcome.OPTIMAL
            violators = self._work.violators(norms)
            self._found = replace(self._found, value=np.inf)
            if not (violators.size or self._work.exact):
                self._work.turn_back()  # nothing sticks out, so that it was the rounding
        if violators.size:
            self._take_in(violators, point)
            return None
        if not self._loop.move(np.log(point.bound / self._shape[1]) + LOWEST):
            return Outcome.STALLED
        if first and self._rounding_pays(point):
            self._work.turn(point.U, point.Y)
        self._leave_out(point, first)
        return None

    def _prove(self) -> Dense:
        """Check what the rounds say; returns the squared norms of all columns."""
        if not self._work.exact:
            self._proof.below(self._work.columns, np.exp(self._loop.accepted))
        return self._proof.above(self._found)

    def _take_in(self, violators: Columns, point: _Point) -> None:
        """Columns that stick out after all."""
        self._work.add(violators)
        fresh = np.full(violators.size, np.log(1e-2 * point.bound / point.u.size))
        self._loop.restart(np.concatenate([point.u, fresh]))
        self._patience.lose()  # little is missing, and tightening finds it at once

    def _rounding_pays(self, point: _Point) -> bool:
        k, p = self._shape
        large = k * k * p > WORTH_ROUNDING and self._tolerance >= FINEST_ROUNDED
        return bool(large and point.l[0] > MOST_GRADED * point.l[-1])

    def _leave_out(self, point: _Point, first: bool) -> None:
        """Go on without the columns that cannot matter, if they are many."""
        if first:
            gone = _all_but_the_first(point.u + 2 * point.log_q, self._shape[0])
        else:
            gone = (self._loop.u < np.log(point.bound / self._shape[1]) - 9) & (point.log_q < -0.01)
        if gone.size - gone.sum() >= FEWEST_ACTIVE and gone.sum() > 0.2 * gone.size:
            self._work.keep(~gone)
            self._loop.restrict(~gone)

    def end(self, outcome: Outcome, rounds: int, scale: float) -> Optimum:
        """What is proven, for the workload before it was scaled."""
        proof = self._proof
        if outcome is not Outcome.OPTIMAL:
            self._prove()
        bound = OptimalityBound(
            "sum", proof.lower * scale**2, proof.upper * scale**2, proof.v, rounds=rounds, outcome=outcome
        )
        return Optimum(bound, Pair(proof.L, proof.B * scale, outcome, rounds))


def _all_but_the_first(order: Dense, k: int) -> NDArray[np.bool_]:
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
    v = solve(R[3::4], tolerance=tolerance).bound.weights
    v = np.maximum(v, 1e-3 * v.mean())
    between = R[1::4]
    return np.log(v) if lower_bound(between, v) > lower_bound(between, np.ones(p)) else np.zeros(p)
