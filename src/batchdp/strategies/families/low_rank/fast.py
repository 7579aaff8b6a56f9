"""Formula (7) solved well: the paper's augmented Lagrangian with B eliminated.

For fixed L, multiplier π and penalty β, the best B is a ridge regression. With R̃ = R + π/β and
Z = R̃ (LᵀL + I/β)⁻¹ it leaves ⟨Z, R̃⟩ to be minimised over the column L1 balls, with gradient −2 L ZᵀZ, best
B = Z Lᵀ, next multiplier Z and residual R − B L = (Z − π)/β. Three things make it work where the printed schedule
stalls: β starts low and grows slowly (starting high freezes a poor solution), rows of L that died are revived, and
the end is repaired exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from scipy.linalg import LinAlgError

from batchdp.linalg.cholesky import plus_identity, solved
from batchdp.linalg.descent import descend
from batchdp.linalg.matrix import Dense
from batchdp.outcome import Outcome
from batchdp.strategies.families.low_rank.program import Progress, repaired, revived
from batchdp.strategies.families.low_rank.settings import SETTINGS, Settings
from batchdp.workloads.pair import Pair


class Form(Protocol):
    """How a matrix of variables stands for L."""

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """⟨Z, R̃⟩, its gradient in the variables, and Z."""

    def measure(self, variables: Dense) -> Dense:
        """L."""

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """The variables with what died brought back from the residual; the same object if nothing did."""


@dataclass(frozen=True)
class Full:
    """Every entry of L is a variable; r × r systems."""

    height: float
    """The largest entry of a revived row, as a multiple of 1/r."""

    def evaluate(self, target: Dense, variables: Dense, penalty: float) -> tuple[float, Dense, Dense]:
        """By the ridge regression for B."""
        L = variables
        C = solved(plus_identity(L @ L.T, 1 / penalty), L @ target.T)
        Z = C.T @ L
        np.subtract(target, Z, out=Z)
        Z *= penalty
        C *= -2.0
        return float(np.vdot(Z, target)), C @ Z, Z

    def measure(self, variables: Dense) -> Dense:
        """The variables themselves."""
        return variables

    def revived(self, variables: Dense, residual: Dense) -> Dense:
        """Zero rows re-seeded."""
        return revived(variables, residual, self.height)


class WithSingles:
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


def solve(
    R: Dense, start: Dense, rules: Rules, *, form: Form | None = None, progress: Progress | None = None
) -> Pair | None:
    """The pair found from a start, or None if it was given up, lost a direction or never came within γ.

    Args:
        R: the reduced workload.
        start: of the variables of `form`, columns of L1 norm at most 1.
        rules: where β starts and how it grows, and when the run ends.
        form: how the variables stand for L; every entry is one if left out.
        progress: told of every round, may cancel.
    """
    run, rounds = _Run(R, start, rules, form or Full(rules.settings.height)), 0
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

    def __init__(self, R: Dense, start: Dense, rules: Rules, form: Form) -> None:
        self._R, self._rules, self._form = R, rules, form
        self._norm = float(np.linalg.norm(R))
        self._scale = float(np.sqrt(R.shape[1])) / self._norm
        close = rules.settings.close_enough
        self._enough = rules.relaxation / self._norm if rules.relaxation > 0 else close
        self.single = start.size > rules.settings.small
        self._scaled, self._M = R * self._scale, start
        if self.single:
            self._scaled, self._M = _rounded(self._scaled), _rounded(start)
        self._pi = self._Z = self._E = np.zeros_like(self._scaled)
        self._beta = rules.penalty
        self._residual = self._last = np.inf
        self._step: float | None = None

    def descend(self) -> tuple[float, float]:
        """A few gradient steps for fixed π and β; the relative residual and ‖B‖²_F after them."""
        beta, target = self._beta, self._scaled + self._pi / self._beta
        tolerance = 1e-6 if self.single else 1e-14
        found = descend(
            lambda M: self._form.evaluate(target, M, beta),
            self._M,
            self._rules.settings.steps,
            step=self._step,
            tolerance=tolerance,
        )
        self._M, self._Z, self._step = found.point, found.extra, found.step
        self._E = (self._Z - self._pi) / beta
        self._residual = float(np.linalg.norm(self._E)) / self._norm / self._scale
        size = (found.value - float(np.vdot(self._Z, self._Z)) / beta) / self._scale**2
        return self._residual, size

    def follow(self, rounds: int) -> Outcome | None:
        """The next multiplier and penalty, or how the run has ended."""
        settings, residual = self._rules.settings, self._residual
        if residual <= self._enough and not self.single:
            return Outcome.CONVERGED
        self._pi = self._Z
        if rounds < settings.reviving * settings.max_rounds:
            alive = self._form.revived(self._M, self._E)
            self._step = self._step if alive is self._M else None
            self._M = alive
        if residual > 0.9 * self._last:
            # Once the residual is small the vertices no longer move: hurry.
            growth = self._rules.growth
            self._beta *= growth if residual > 1e-2 else growth**2 if residual > 1e-3 else growth**4
        self._last = residual
        if self._beta > settings.largest_penalty:
            return Outcome.PENALTY_AT_LIMIT  # L lost rank, or a residual that rounding keeps: the repair will tell
        if self.single and residual <= max(settings.rough, self._enough):
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


def _rounded(matrix: Dense) -> Dense:
    """In single precision, whatever the type says: half the time, and far from the end nothing is lost."""
    return cast(Dense, matrix.astype(np.float32))
