"""Formula (7) solved well: the paper's augmented Lagrangian with B eliminated.

For fixed L, multiplier π and penalty β, the best B is a ridge regression. With R̃ = R + π/β and
Z = R̃ (LᵀL + I/β)⁻¹ it leaves ⟨Z, R̃⟩ to be minimised over the column L1 balls, with gradient −2 L ZᵀZ, best
B = Z Lᵀ, next multiplier Z and residual R − B L = (Z − π)/β. Three things make it work where the printed schedule
stalls: β starts low and grows slowly (starting high freezes a poor solution), rows of L that died are revived, and
the end is repaired exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, qr

from batchdp.linalg.cone import plus_identity, solved
from batchdp.linalg.descent import descend
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense, dense
from batchdp.strategies.account import FLOPS
from batchdp.strategies.bounds import convex
from batchdp.strategies.pair import complete, is_exact
from batchdp.text import Outcome
from batchdp.workloads.matrix import Pair

Progress = Callable[[int, float, float], object]
"""Called with (round, relative residual, ‖B‖²_F); a true answer ends the run."""


@dataclass(frozen=True)
class Settings:
    """What is tuned and what is measured, by `benchmarks/tuning.py`; and what its runs are cut short by."""

    slow: float = 1.1
    """Growth of β whenever the residual stops shrinking; tuned."""
    steps: int = 10
    """Projected gradient steps a round; tuned."""
    part: float = 0.7
    """Of the work that is left, beside p-Identity's 0.3; tuned."""
    max_rounds: int = 250
    """Rounds after which a run ends, converged or not."""
    small: int = 16_384
    """Entries of L up to which single precision saves nothing."""
    round_seconds: float = 3e-4
    """Nominal seconds of one ridge regression whatever its size. Measured, as the next is."""
    variable_seconds: float = 3e-8
    """Nominal seconds for every entry of L: projection and gradient steps."""

    def price(self, k: int, n: float, r: int) -> float:
        """One round of the augmented Lagrangian: 1.2 regressions a step, half of them in single precision."""
        columns = int(n)
        products = (2.0 * r * r * columns + 6.0 * r * k * columns + r**3) / FLOPS
        return 0.9 * self.steps * (self.round_seconds + products + self.variable_seconds * r * columns)

    def singles_price(self, k: int, n: int, r: int) -> float:
        """One round of the form with r shared measurements and those of single columns; measured."""
        products = 4.0 * r * (k * n + r * (k + n)) / FLOPS
        return 1.5 * self.steps * (2e-4 + products + (1.2e-9 * k * n + 8e-8 * n * r))


SETTINGS = Settings()
CLOSE_ENOUGH = 1e-5
"""The relative residual at which the exact problem (γ = 0) is handed to the repair."""
ROUGH = 1e-3
"""The relative residual down to which single precision serves."""
LARGEST_PENALTY = 1e7
"""The β at which a run ends: the residual no longer shrinks, or L has lost rank."""
HEIGHT = 30.0
"""The largest entry of a revived row, as a multiple of 1/r: a short row dies again and again."""
REVIVING = 0.7
"""The share of `max_rounds` up to which dead rows are revived; later ones could not settle."""


def first_measure(R: Dense, rank: int, rng: np.random.Generator) -> Dense:
    """The right singular vectors in a random orientation, so that every row takes part; sensitivity 1."""
    k = len(R)
    V = np.linalg.svd(R, full_matrices=False)[2]
    Q = np.linalg.qr(rng.standard_normal((max(rank, k), max(rank, k))))[0][:rank, :k]
    L = Q @ V
    return np.asarray(L / np.abs(L).sum(axis=0).max())


def revived(L: Dense, residual: Dense, height: float) -> Dense:
    """L with zero rows re-seeded from the residual's leading right singular vectors; L itself if none is zero.

    Once a row of L and its column of B are zero, no gradient brings them back. The new row must be tall, `height`
    times 1/r: a short one dies again and again, and leaves the others where they are.
    """
    dead = np.flatnonzero(np.abs(L).max(axis=1) < 1e-9)
    if dead.size == 0:
        return L
    V = np.linalg.svd(residual, full_matrices=False)[2][: dead.size]
    L = L.copy()
    L[dead[: len(V)]] = height / len(L) * V / np.abs(V).max(axis=1, keepdims=True)
    return np.asarray(L / np.maximum(1.0, np.abs(L).sum(axis=0)))


def repaired(R: Dense, L: Dense, B: Dense, rounds: int, outcome: Outcome) -> Pair | None:
    """The nearby pair with R = B L to rounding: L + B⁺ (R − B L), scaled to sensitivity 1, and B = R L⁺.

    R L⁺ is the least B for this L. Where L has nearly dependent rows the pseudo-inverse may cut directions that R
    needs; B then stays as it is, which is exact too. None if the pair has lost a direction of R for good.
    """
    for _ in range(2):  # the second pass removes the rounding of the first
        L = L + np.linalg.lstsq(B, R - B @ L, rcond=1e-13)[0]
    least = complete(R, L, rounds, outcome)
    if least is not None:
        return least
    sensitivity = float(np.abs(L).sum(axis=0).max(initial=0.0)) or 1.0
    pair = Pair(L / sensitivity, B * sensitivity, outcome, rounds)
    return pair if is_exact(R, pair) else None


ROUNDS = 200
"""The rounds after which a column stays as short as it is: every iterate is a solution, so none is needed."""
SHRINK = 0.5
"""By how much a round shrinks entries, as a multiple of their mean size; any value converges, to the same end."""


def least_measure(B: Dense, R: Dense, enough: float = 1.0) -> Dense:
    """L with B L = R to rounding; columns are shortened until their L1 norm is at most `enough`.

    B has full row rank. Most columns are short enough from the start, where L2 norms are least, or after a few rounds,
    and only those that are not take part in the next.
    """
    k, r = B.shape
    plus = np.linalg.pinv(B)
    L = plus @ R
    L += plus @ (R - B @ L)
    norms = np.abs(L).sum(axis=0)
    long = np.flatnonzero(norms > enough)
    if r == k or long.size == 0:
        return L
    onto = np.eye(r) - plus @ B
    base = L[:, long]
    l, u, shrink = base, np.zeros_like(base), SHRINK * float(np.abs(base).mean())
    for _ in range(ROUNDS):
        z = l + u
        u = np.clip(z, -shrink, shrink)
        z -= u
        l = base + onto @ (z - u)
        lengths = np.abs(l).sum(axis=0)
        better = lengths < norms[long]
        L[:, long[better]], norms[long[better]] = l[:, better], lengths[better]
        still = norms[long] > enough
        if not still.any():
            break
        if not still.all():
            long, base, l, u = long[still], base[:, still], l[:, still], u[:, still]
    return L


class Full:
    """How a matrix of variables stands for L: here every entry of L is one; r × r systems."""

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """⟨Z, R̃⟩, its gradient in the variables, and Z; by the ridge regression for B."""
        L = variables
        C = solved(plus_identity(L @ L.T, 1 / penalty), L @ target.T)
        Z = C.T @ L
        np.subtract(target, Z, out=Z)
        Z *= penalty
        C *= -2.0
        return float(np.vdot(Z, target)), C @ Z, Z

    def measure(self, variables: Dense) -> Dense:
        """L."""
        return variables

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """The variables with what died brought back from the residual; the same object if nothing did."""
        return revived(variables, residual, HEIGHT)


class WithSingles(Full):
    """L = [diag(d); Θ], the variables being the rows d, Θ, where d may vanish: only outlying columns keep theirs.

    Lies between p-Identity, where every column has its own measurement, and low rank, where none has.
    """

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """By Woodbury, with p × p systems for p rows of Θ."""
        d, T = variables[0], variables[1:]
        e = 1 / np.sqrt(d * d + 1 / penalty)
        P, C = T * e, target * e
        X = C - solved(plus_identity(P @ P.T), P @ C.T).T @ P
        Z = X * e
        gradient = np.empty_like(variables)
        gradient[0] = -2 * d * np.einsum("ij,ij->j", Z, Z)
        gradient[1:] = -2 * (T @ Z.T) @ Z
        return float(np.vdot(X, C)), gradient, Z

    def measure(self, variables: Dense) -> Dense:
        """L without its zero rows."""
        d, T = variables[0], variables[1:]
        return np.vstack([np.diag(d)[d > 0], T[np.abs(T).sum(axis=1) > 0]])

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """Nothing: d keeps every direction alive while it matters."""
        return variables


FULL, WITH_SINGLES = Full(), WithSingles()


@dataclass(frozen=True)
class Rules:
    """How a run goes: where β starts and how it grows, and when the run ends."""

    penalty: float
    """The first β, for R scaled to ‖R‖²_F = its number of columns."""
    growth: float = SETTINGS.slow
    """Of β, whenever the residual stops shrinking."""
    relaxation: float = 0.0
    """γ; the run ends as soon as ‖R − B L‖_F is at most this, and the pair is not repaired."""
    give_up_above: float = np.inf
    """A run is hopeless whose ‖B‖² is above this near the end, or several times this before: from a low β it first
    grows with the residual's decline, and then falls to half and less."""
    settings: Settings = SETTINGS

    def hopeless(self, rounds: int, residual: float, size: float) -> bool:
        """Whether a run that is so far has no chance left."""
        allowed = 1.02 if residual < 0.001 else 2.0 if residual < 0.01 else 5.0
        return rounds >= 5 and size > self.give_up_above * allowed


def solve(R: Dense, start: Dense, rules: Rules, *, form: Full = FULL, progress: Progress | None = None) -> Pair | None:
    """The pair found from a start, or None if it was given up, lost a direction or never came within γ.

    Args:
        R: the reduced workload.
        start: of the variables of `form`, columns of L1 norm at most 1.
        rules: where β starts and how it grows, and when the run ends.
        form: how the variables stand for L.
        progress: told of every round, may cancel.
    """
    run, rounds = _Run(R, start, rules, form), 0
    outcome: Outcome | None = None
    for rounds in range(1, rules.settings.max_rounds + 1):
        try:
            told = run.descend()
        except LinAlgError:  # L lost rank while β is already large
            if not run.single:
                return None
            run.go_double()
            continue
        if progress is not None and progress(rounds, *told):
            outcome = Outcome.CANCELLED
            break
        if rules.hopeless(rounds, *told):
            return None
        outcome = run.follow(rounds)
        if outcome is not None:
            break
    return run.end(rounds, outcome or Outcome.OUT_OF_ROUNDS)


class _Run:
    """The state of the augmented Lagrangian: variables M, multiplier π, penalty β."""

    def __init__(self, R: Dense, start: Dense, rules: Rules, form: Full) -> None:
        self._R, self._rules, self._form = R, rules, form
        self._norm = float(np.linalg.norm(R))
        self._scale = float(np.sqrt(R.shape[1])) / self._norm
        self._enough = rules.relaxation / self._norm if rules.relaxation > 0 else CLOSE_ENOUGH
        self.single = start.size > rules.settings.small
        self._scaled, self._M = R * self._scale, start
        if self.single:  # whatever the type says: half the time, and far from the end nothing is lost
            self._scaled, self._M = (cast(Dense, one.astype(np.float32)) for one in (self._scaled, start))
        self._pi = self._Z = self._E = np.zeros_like(self._scaled)
        self._beta = rules.penalty
        self._residual = self._last = np.inf
        self._step: float | None = None

    def descend(self) -> tuple[float, float]:
        """A few gradient steps for fixed π and β; the relative residual and ‖B‖²_F after them."""
        beta, target = self._beta, self._scaled + self._pi / self._beta
        tolerance, steps = 1e-6 if self.single else 1e-14, self._rules.settings.steps
        evaluate = self._form.evaluate
        found = descend(lambda M: evaluate(target, M, beta), self._M, steps, step=self._step, tolerance=tolerance)
        self._M, self._Z, self._step = found.point, found.extra, found.step
        self._E = (self._Z - self._pi) / beta
        self._residual = float(np.linalg.norm(self._E)) / self._norm / self._scale
        size = (found.value - float(np.vdot(self._Z, self._Z)) / beta) / self._scale**2
        return self._residual, size

    def follow(self, rounds: int) -> Outcome | None:
        """The next multiplier and penalty, or how the run has ended."""
        residual = self._residual
        if residual <= self._enough and not self.single:
            return Outcome.CONVERGED
        self._pi = self._Z
        if rounds < REVIVING * self._rules.settings.max_rounds:
            alive = self._form.revived(self._M, self._E)
            self._step = self._step if alive is self._M else None
            self._M = alive
        if residual > 0.9 * self._last:
            # Once the residual is small the vertices no longer move: hurry.
            growth = self._rules.growth
            self._beta *= growth if residual > 1e-2 else growth**2 if residual > 1e-3 else growth**4
        self._last = residual
        if self._beta > LARGEST_PENALTY:
            return Outcome.PENALTY_AT_LIMIT  # L lost rank, or a residual that rounding keeps: the repair will tell
        if self.single and residual <= max(ROUGH, self._enough):
            self.go_double()
        return None

    def go_double(self) -> None:
        """Go on in double precision."""
        self.single, self._scaled = False, self._R * self._scale
        self._M, self._pi = self._M.astype(np.float64), self._pi.astype(np.float64)

    def end(self, rounds: int, outcome: Outcome) -> Pair | None:
        """The pair, made exact unless γ allows a residual."""
        L = self._form.measure(self._M).astype(np.float64)
        B = self._Z.astype(np.float64) @ L.T / self._scale
        if self._rules.relaxation == 0:
            return repaired(self._R, L, B, rounds, outcome)
        return Pair(L, B, outcome, rounds) if outcome is Outcome.CONVERGED else None


WORKING_COLUMNS = 2.0
"""Columns in the first working set, as a multiple of the r k entries of B."""
WORKING_ROUNDS = 8
"""Working sets that are tried at the most."""
FIRM = 3.0
"""β of a warm start as a multiple of r; times 2 each round, so that less and less moves."""
NEARLY = 0.99
"""The norm from which a column's measurements bring it into the working set."""
AGREED = 1e-3
"""The relative difference between the errors on all columns and on the working set that ends the search."""


def pays(columns: int, workload_rank: int, rank: int) -> bool:
    """Whether there are so many more columns than entries of B that most of them cannot matter."""
    return columns > max(2048, 2 * WORKING_COLUMNS * rank * workload_rank)


def solve_working_set(R: Dense, rank: int, rules: Rules, *, seed: int, progress: Progress | None = None) -> Pair | None:
    """The best pair found for all columns of R, or None if that is nowhere near `rules.give_up_above`.

    Args:
        R: the reduced workload.
        rank: r.
        rules: as for `fast.solve`, on the first working set; an error there above `give_up_above` ends the search,
            since all columns only add to it.
        seed: of the random rotation of the start.
        progress: told of every round, may cancel.
    """
    columns = outermost(R, int(WORKING_COLUMNS * rank * len(R)))
    start = first_measure(R[:, columns], rank, np.random.default_rng(seed))
    best: Pair | None = None
    rounds, cancelled = 0, False

    def watch(round_: int, residual: float, size: float) -> bool:
        nonlocal rounds, cancelled
        rounds += 1
        cancelled = bool(progress and progress(rounds, residual, size))
        return cancelled

    for attempt in range(WORKING_ROUNDS):
        part = solve(R[:, columns], start, rules, progress=watch)
        if part is None:
            break
        L = least_measure(part.reconstruct, R)
        found = complete(R, L, rounds, part.outcome)
        if found is not None and (best is None or found.error < best.error):
            best = found
        if cancelled or (found is not None and found.error <= part.error * (1 + AGREED)):
            break
        joining = np.abs(L).sum(axis=0) > NEARLY
        joining[columns] = True
        if joining.sum() == len(columns):
            break
        columns = np.flatnonzero(joining)
        start = project_columns(L[:, columns])
        rules = replace(rules, penalty=FIRM * 2.0**attempt * rank)
    return best


def outermost(R: Dense, count: int) -> NDArray[np.int64]:
    """The columns nearest to the surface of the best ellipsoid around all, and some that span R; in their order."""
    L = dense(convex.solve(R, tolerance=1e-2).pair.measure)
    spanning = qr(L, mode="r", pivoting=True, check_finite=False)[1][: len(R)]
    nearest = np.argsort(-np.square(L).sum(axis=0), kind="stable")[:count]
    return np.union1d(spanning, nearest)
