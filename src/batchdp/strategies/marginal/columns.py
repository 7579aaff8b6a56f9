"""What a table measures of a column that it tells apart: each value by itself, or a strategy for this column.

With L of L1 norm 1 inside and X = (LᵀL)⁻¹, tables that tell the column apart and tables that add up over it still share
their eigenspaces, after a change of basis: the average has the eigenvalue 1 under L and τ = 1ᵀ X 1 under the sum, the
rest 1 and 0. A factor F has |F X 1|² / τ in the average and tr(F X Fᵀ) less that in the rest. Given the weights of the
tables, a column's own strategy is a p-Identity whose error is a function of X: Σ_g tr(S_g (p_g LᵀL + q_g J)⁻¹).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from batchdp.linalg.matrix import Dense, Indices
from batchdp.strategies.account import FLOPS, UNLIMITED, Account
from batchdp.strategies.residual.columns import Column, without_rounding

MOST_VALUES = 400
"""Of a column that gets a strategy of its own: its inverse is taken at every step."""
MOST_ROUNDING = 1e-11
"""Of the inverse: answers would be off by as much, and a strategy is refused from 1e-9 on."""
NOTHING = 1e-14
"""What rounding may leave of FᵀF where all values have the same, relative to its size."""
ROUND_SECONDS, OPERATIONS = 3e-4, 8.0
"""Nominal seconds of an evaluation whatever its size, and its operations as a multiple of n² (n + p); measured."""
SCREENING = 25
"""Rounds for a start that is only looked at."""


@dataclass(frozen=True, eq=False)
class ColumnStrategy:
    """A column as tables measure it. Factor 0 is "does not matter"."""

    tau: float
    mean: Dense
    """For every factor its part in the average."""
    rest: Dense
    """For every factor its part in the rest."""
    measure: Dense | None = None
    """L, measurement × value that is told apart, every column of L1 norm at most 1; each value by itself if None."""
    inverse: Dense | None = None
    """(LᵀL)⁻¹."""
    recover: Dense | None = None
    """(LᵀL)⁻¹Lᵀ, where its factors one after the other would round too much; else None."""

    def recover_values(self, measured: Dense) -> Dense:
        """What measurements, along the last axis, say of the values."""
        if self.measure is None or self.inverse is None:
            return measured
        return np.asarray(measured @ self.measure @ self.inverse if self.recover is None else measured @ self.recover.T)

    @property
    def average_row(self) -> Dense:
        """What the sum of the values makes of a strategy's measurements."""
        assert self.measure is not None
        assert self.inverse is not None
        return np.asarray(self.measure @ self.inverse.sum(axis=1) if self.recover is None else self.recover.sum(axis=0))

    def averages(self, F: Dense) -> Dense:
        """F X 1 / τ: what every query of a factor has of the average."""
        return np.asarray((F.sum(axis=1) if self.inverse is None else F @ self.inverse.sum(axis=1)) / self.tau)

    def parts(self, F: Dense, *, rest: bool) -> Dense:
        """F P, P being what X = (LᵀL)⁻¹ has of the average or of the rest."""
        mean = self.averages(F)[:, None]
        if rest:
            return np.asarray(F - mean if self.inverse is None else (F - mean) @ self.inverse)
        return np.asarray(mean * (np.ones(F.shape[1]) if self.inverse is None else self.inverse.sum(axis=1)))

    def recovered(self, F: Dense, *, rest: bool) -> Dense:
        """F P Lᵀ / τ: what queries make of what is measured inside, by the average of the values or by the rest."""
        found = self.parts(F, rest=rest) / self.tau
        return np.asarray(found if self.measure is None else found @ self.measure.T)

    def rows(self, F: Dense) -> tuple[Dense, Dense]:
        """For every query of a factor its part in the average, and in the rest."""
        mean = self.averages(F)
        # Squares of what is left, not a difference of squares: the rest of a query that is nearly an average is small.
        left = F - mean[:, None]
        rest = np.square(left) if self.inverse is None else left @ self.inverse * left
        return np.asarray(np.square(mean) * self.tau), np.asarray(np.maximum(rest.sum(axis=1), 0.0))


def each_value(column: Column) -> ColumnStrategy:
    """Every value that is told apart by itself."""
    n = float(len(column.orbit))
    counts = column.counts
    mean = np.array([float(np.square(F @ counts).sum()) for F in column.rows]) / n
    # Squares of differences, not a difference of squares: what is left of queries that nearly add up is measured too.
    left = [without_rounding(F - (F @ counts / n)[:, None], float(np.abs(F).max())) for F in column.rows]
    rest = np.array([float(np.square(F).sum(axis=0) @ counts) for F in left]) + column.spread @ (counts - 1)
    return ColumnStrategy(n, mean, rest)


def by_strategy(measure: Dense, grams: list[Dense]) -> ColumnStrategy | None:
    """The column with L inside; None where L does not determine it. `grams` has FᵀF of every factor."""
    norm = float(np.abs(measure).sum(axis=0).max())
    L = measure / norm
    try:
        factor = cho_factor(L.T @ L, lower=True, check_finite=False)
    except LinAlgError:
        return None
    pivots = np.diag(factor[0])
    if pivots.min() < 1e-6 * pivots.max():
        return None
    X = np.asarray(cho_solve(factor, np.eye(len(L.T)), check_finite=False))
    if np.abs(X @ (L.T @ L) - np.eye(len(X))).max() > MOST_ROUNDING:
        return None
    X1 = X.sum(axis=1)
    tau = float(X1.sum())
    mean = np.array([float(X1 @ S @ X1) for S in grams]) / tau
    # The rest sees nothing of what is the same for all values, which would hide what little some queries have of it.
    left = [S - S.mean(axis=0) for S in grams]
    left = [S - S.mean(axis=1)[:, None] for S in left]
    rest = np.array([float(np.vdot(S, X)) - float(X1 @ S @ X1) / tau for S in left])
    nothing = [np.abs(S).max() <= NOTHING * np.abs(gram).max() for S, gram in zip(left, grams, strict=True)]
    return ColumnStrategy(tau, mean, np.where(nothing, 0.0, np.maximum(rest, 0.0)), L, X)


@dataclass(frozen=True, eq=False)
class ColumnProblem:
    """What all tables together want of one column: Σ_g c_g tr(S_k (p_g LᵀL + q_g J)⁻¹)."""

    grams: list[Dense]
    kind: Indices
    weight: Dense
    apart: Dense
    """p_g: what tables that tell the column apart add."""
    summed: Dense
    """q_g: what tables that add up over it add."""

    @cached_property
    def _whole(self) -> Dense:
        """Σ_k α_k S_k: the derivative by X where no table adds up over the column."""
        found = np.zeros_like(self.grams[0])
        for k in np.unique(self.kind[self.kind > 0]).tolist():
            own = self.kind == k
            found += float((self.weight[own] / self.apart[own]).sum()) * self.grams[k]
        return found

    @cached_property
    def _also_summed(self) -> list[tuple[Dense, Dense, Dense, Dense]]:
        """The Gram matrices of factors that tables add up over, with the c, p and q of these."""
        kinds = np.unique(self.kind[(self.kind > 0) & (self.summed > 0)]).tolist()
        return [(self.grams[k], *self._terms(k)) for k in kinds]

    def _terms(self, k: int) -> tuple[Dense, Dense, Dense]:
        own = self.kind == k
        return self.weight[own], self.apart[own], self.summed[own]

    def value(self, X: Dense) -> tuple[float, Dense]:
        """The error and its derivative by X = (LᵀL)⁻¹."""
        X1 = X.sum(axis=1)
        tau = float(X1.sum())
        c, p, q = self._terms(0)  # S = J: a function of τ alone
        both = p + tau * q
        total = float(np.vdot(self._whole, X)) + float((c * tau / both).sum())
        by_tau, shift = float((c * p / both**2).sum()), np.zeros(len(X))
        for S, c, p, q in self._also_summed:
            H = float((c * q / (p * (p + tau * q))).sum())
            slope = -float((c * q**2 / (p * (p + tau * q) ** 2)).sum())
            SX1 = S @ X1
            u = float(X1 @ SX1)
            total -= H * u
            shift += H * SX1
            by_tau -= slope * u
        return total, self._whole - shift[:, None] - shift[None, :] + by_tau


def fit_column(
    wanted: ColumnProblem, starts: list[Dense], rounds: int, polished: int = 2, account: Account = UNLIMITED
) -> tuple[Dense, float]:
    """The best p-Identity from several shared queries Θ: L = [I; Θ] with columns of norm 1, and its error."""
    n = len(wanted.grams[0])
    eye = np.eye(n)

    def objective(flat: Dense, p: int) -> tuple[float, Dense]:
        T = flat.reshape(p, n)
        e = 1 + T.sum(axis=0)
        Y = np.asarray(cho_solve(cho_factor(eye + T.T @ T, lower=True, check_finite=False), eye, check_finite=False))
        value, by_X = wanted.value(Y * np.outer(e, e))
        by_e = 2 * (by_X * Y) @ e
        by_Y = by_X * np.outer(e, e)
        return value, (by_e - 2 * T @ (Y @ by_Y @ Y)).reshape(-1)

    def run(T: Dense, most: int) -> tuple[float, Dense]:
        if not len(T):
            return wanted.value(eye)[0], T
        ended = minimize(
            objective,
            T.reshape(-1),
            (len(T),),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * T.size,
            options={"maxiter": most, "ftol": 1e-9, "gtol": 1e-9},
        )
        account.charge(ended.nfev * (ROUND_SECONDS + OPERATIONS * n**2 * (n + len(T)) / FLOPS))
        return float(ended.fun), ended.x.reshape(T.shape)

    looked = sorted((run(T, SCREENING) for T in starts), key=lambda one: one[0])
    ended = [run(T, rounds) for _, T in looked[:polished]]
    value, T = min([*ended, looked[0]], key=lambda one: one[0])
    L = np.vstack([eye, T[T.sum(axis=1) > 1e-9]])
    return L / L.sum(axis=0), value


def shared_starts(n: int, rng: np.random.Generator, *, thorough: bool = True) -> list[Dense]:
    """Shared queries to begin with: none, random ones, and neighbouring values together on several levels."""
    found = [np.zeros((0, n))]
    sizes = (1, 2, 4, 8, 16, 32) if thorough else (1, 8)
    found += [min(1.0, 4 / p) * rng.random((p, n)) for p in sizes if p <= max(1, n // 2)]
    for width in (2, 3, 4, 6, 8, 10, 16) if thorough else (4,):
        if width < n:
            ends, wide = np.arange(n) // width, np.arange(n) // width**2
            fine, coarse = (np.asarray(own == np.unique(own)[:, None], float) for own in (ends, wide))
            for rows in (fine, np.vstack([fine, coarse]) if len(coarse) > 1 else fine):
                found.append(0.5 * rows + 0.05 * rng.random(rows.shape))
    return found


def shared_of(measure: Dense) -> Dense | None:
    """Θ of a measure [diag(d); d Θ], to go on from; None where it has another form."""
    n = measure.shape[1]
    if len(measure) < n:
        return None
    D, rest = measure[:n], measure[n:]
    d = np.diag(D)
    if np.any(d <= 0) or np.count_nonzero(D) != n or np.any(rest < 0):
        return None
    return np.asarray(rest / d)
