"""Strategies for a batch of which something is known already: the least error of what both tell together.

Noise on a measurement has variance 1 here, and the sensitivity is 1. With the information J about the totals of cells
that earlier measurements left, a strategy L leaves the error tr W (J + LᵀL)⁻¹ Wᵀ.

Gaussian noise: the problem is convex in G = LᵀL. It is solved with −μ log det G added, which keeps every direction
measured a little and shows how much is left: with Φ = X⁻¹WᵀWX⁻¹, X = J + G, every v ≥ 0 with diag(v) ⪰ Φ proves that
no strategy is below f² / (f − ⟨Φ, G⟩ + Σv), and v_j = (G Φ)_jj + μ is nearly such. Laplace noise: columns descend in
the L1 ball from a strategy that is known; the bound above holds for them too, and is loose.

Over several blocks a strategy measures each by itself, and the blocks that meet in a record share the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve, lu_factor, lu_solve
from scipy.optimize import linprog, minimize

from batchdp.linalg.descent import descend
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense, Indices
from batchdp.linalg.threads import one_thread

RIDGE = 1e-10
"""Of the information in every direction, in proportion to the mean: some may be neither known nor asked for."""
BARRIERS = (1e-2, 1e-3)
"""μ n, in proportion to the error: what the last of them costs at the most."""
ROUNDS, TURNS = (100, 300), 10
"""Of quasi-Newton steps at a time, by the size, and how often at the last barrier."""
MEMORY = 20
WORK = 1e9
"""Coordinates to the third power, times turns."""
ENOUGH = 2e-3
"""Error over bound, less 1."""
MIXED = 0.05
"""Of noise on data in the start, so that every direction is measured."""
DESCENTS, STEPS = 3, 200
"""Of Laplace strategies: how often blocks get new shares, and the rounds between."""
FLOOR = 1e-9


@dataclass(frozen=True, eq=False)
class Informed:
    """What is asked, and what is known.

    Args:
        queries: W, each row times the square root of its weight: query × cell.
        totals: orthonormal columns, cell × coordinate: what totals of cells can be at all.
        known: J, the information about these coordinates, where noise on a measurement has variance 1.
        blocks: how many cells each block has.
        meetings: sets of blocks that one record can have a cell in at once.
    """

    queries: Dense
    totals: Dense
    known: Dense
    blocks: tuple[int, ...]
    meetings: tuple[tuple[int, ...], ...]

    @cached_property
    def asked(self) -> Dense:
        """Wᵀ in coordinates."""
        return np.asarray((self.queries @ self.totals).T)

    @cached_property
    def block_of(self) -> Indices:
        """The block of every cell."""
        return np.repeat(np.arange(len(self.blocks)), self.blocks)

    @cached_property
    def cells(self) -> list[slice]:
        """Of every block."""
        ends = np.cumsum([0, *self.blocks]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    def error(self, G: Dense) -> tuple[float, Dense]:
        """The error with the information G about coordinates, and a root of Φ: that is minus its derivative."""
        X = self.known + G
        X[np.diag_indices_from(X)] += RIDGE * np.trace(X) / len(X)
        Y = np.asarray(cho_solve(cho_factor(X, lower=True, check_finite=False), self.asked, check_finite=False))
        return float(np.vdot(self.asked, Y)), Y

    def told(self, L: Dense) -> Dense:
        """The information of a strategy about coordinates."""
        own = L @ self.totals
        return np.asarray(own.T @ own)

    def needed(self, L: Dense) -> Dense:
        """What is asked of the new measurements where the best answers are read from both: W X⁻¹ LᵀL."""
        G = self.told(L)
        return np.asarray(self.error(G)[1].T @ G @ self.totals.T)

    def most(self, by_block: Sequence[float]) -> float:
        """The most that Σ s_g V_g can be, where the shares of blocks that meet add up to 1."""
        if len(self.meetings) == 1:
            return float(max(by_block))
        A = np.array([[float(g in met) for g in range(len(self.blocks))] for met in self.meetings])
        shares: Any = linprog(-np.asarray(by_block), A_ub=A, b_ub=np.ones(len(A))).x
        return float(np.dot(by_block, shares))


@dataclass(frozen=True, eq=False)
class Certified:
    """A strategy, its error, and what no strategy is below that measures every block by itself."""

    measure: Dense
    error: float
    bound: float


@one_thread
def gaussian(problem: Informed, start: Dense, turns: int | None = None) -> Certified:
    """The strategy with the least error under Gaussian noise, of L2 sensitivity 1, from one that is known.

    Args:
        problem: what is asked, and what is known.
        start: a strategy for the same queries, of L2 sensitivity 1 at the most.
        turns: how often steps are made at the last barrier, if it takes as many; by the size if left out.
    """
    A = [_root((1 - MIXED) * start[:, own].T @ start[:, own] + MIXED * np.eye(n)) for own, n in _sized(problem)]
    tops = [float(np.linalg.norm(one, axis=0).max()) for one in A]
    x = np.concatenate([2 * np.log(tops), *((one / np.linalg.norm(one, axis=0)).ravel() for one in A)])
    error = problem.error(problem.told(start))[0]
    best = Certified(start, error, 0.0)
    affordable = WORK / len(problem.known) ** 3
    rounds = int(np.clip(10 * affordable, *ROUNDS))
    if turns is None:
        turns = int(np.clip(affordable, 1, TURNS))
    for share in (*BARRIERS[:-1], *BARRIERS[-1:] * turns):
        barrier = _Barrier(problem, share * error / len(start.T), error)
        found = minimize(barrier, x, jac=True, method="L-BFGS-B", options={"maxiter": rounds, "maxcor": MEMORY})
        x = np.asarray(found.x)
        made = barrier.certified(x)
        low = max(best.bound, made.bound)
        best = replace(min(best, made, key=lambda one: one.error), bound=low)
        if best.error <= (1 + ENOUGH) * low:
            break
    return best


def _sized(problem: Informed) -> Iterable[tuple[slice, int]]:
    return zip(problem.cells, problem.blocks, strict=True)


def _root(G: Dense) -> Dense:
    """The symmetric root."""
    values, U = np.linalg.eigh(G)
    return np.asarray((U * np.sqrt(np.maximum(values, 0.0))) @ U.T)


class _Barrier:
    """The error with −μ log det G added, by the logarithms of the blocks' shares and the directions of all columns."""

    def __init__(self, problem: Informed, mu: float, size: float) -> None:
        self.problem, self.mu, self.size = problem, mu, size

    def _strategy(self, x: Dense) -> tuple[list[Dense], list[Dense], Dense, tuple[int, ...]]:
        """Of every block L with columns of norm 1, the norms that they had, its sensitivity; the fullest meeting."""
        many = len(self.problem.blocks)
        ends = np.cumsum(np.square(self.problem.blocks))[:-1]
        A = [one.reshape(n, n) for one, n in zip(np.split(x[many:], ends), self.problem.blocks, strict=True)]
        norms = [np.linalg.norm(one, axis=0) for one in A]
        parts = np.exp(x[:many] - x[:many].max())
        fullest = max(self.problem.meetings, key=lambda met: float(parts[list(met)].sum()))
        shares = np.sqrt(parts / parts[list(fullest)].sum())
        return [one / size for one, size in zip(A, norms, strict=True)], norms, shares, fullest

    def _told(self, U: list[Dense], shares: Dense) -> tuple[float, Dense]:
        G = np.zeros_like(self.problem.known)
        for own, share, cells in zip(U, shares, self.problem.cells, strict=True):
            rows = share * own @ self.problem.totals[cells]
            G += rows.T @ rows
        return self.problem.error(G)

    def __call__(self, x: Dense) -> tuple[float, Dense]:
        U, norms, shares, fullest = self._strategy(x)
        value, Y = self._told(U, shares)
        of_block, by_A = np.zeros(len(U)), []
        for g, (own, size, share, cells) in enumerate(zip(U, norms, shares, self.problem.cells, strict=True)):
            factor = lu_factor(own, check_finite=False)
            value -= 2 * self.mu * float(np.log(np.abs(np.diag(factor[0]))).sum() + len(own) * np.log(share))
            root = self.problem.totals[cells] @ Y
            by_L = -2 * (share * own @ root) @ root.T
            by_L -= 2 * self.mu / share * lu_solve(factor, np.eye(len(own)), trans=1, check_finite=False)
            along = (by_L * own).sum(axis=0)
            of_block[g] = share * along.sum() / 2
            by_A.append(((by_L - own * along) * (share / size)).ravel())
        of_block[list(fullest)] -= shares[list(fullest)] ** 2 * of_block.sum()
        return value / self.size, np.concatenate([of_block, *by_A]) / self.size

    def certified(self, x: Dense) -> Certified:
        """The strategy there, and the bound by the v that its columns show."""
        U, _, shares, _ = self._strategy(x)
        value, Y = self._told(U, shares)
        inner, by_block = 0.0, []
        for own, share, cells in zip(U, shares, self.problem.cells, strict=True):
            root = self.problem.totals[cells] @ Y
            seen = share * own @ root
            inner += float(np.square(seen).sum())
            v = np.maximum((share * own * (seen @ root.T)).sum(axis=0), 0.0) + self.mu
            scaled = root / np.sqrt(v)[:, None]
            by_block.append(float(np.linalg.norm(scaled, ord=2) ** 2 * v.sum()))
        rest = value - inner + self.problem.most(by_block)
        L = block_diag(*(share * own for own, share in zip(U, shares, strict=True)))
        return Certified(np.asarray(L), value, value**2 / rest if rest > 0 else 0.0)


@one_thread
def laplace(problem: Informed, start: Dense) -> Dense:
    """A strategy of L1 sensitivity 1, with no larger error than one that is known."""
    norms = np.abs(start).sum(axis=0)
    shares = np.array([max(float(norms[own].max(initial=0.0)), FLOOR) for own in problem.cells])
    unit = start / shares[problem.block_of]
    best, least = start, problem.error(problem.told(start))[0]
    for _ in range(DESCENTS if len(problem.blocks) > 1 else 1):
        by_cell = shares[problem.block_of]

        def objective(U: Dense, by_cell: Dense = by_cell) -> tuple[float, Dense, None]:
            L = U * by_cell
            value, Y = problem.error(problem.told(L))
            root = problem.totals @ Y
            return value, -2 * (L @ root) @ root.T * by_cell, None

        reached = descend(objective, unit, STEPS, project=project_columns)
        unit, L = reached.point, reached.point * by_cell
        if reached.value < least:
            best, least = L, reached.value
        root = problem.totals @ problem.error(problem.told(L))[1]
        along = (L * ((L @ root) @ root.T)).sum(axis=0)
        # The sum is least where p³ ∝ E, and what a block's measurements are worth is E / p².
        worth = np.array([max(float(along[own].sum()), FLOOR * float(along.sum())) for own in problem.cells])
        shares = (worth * shares**2) ** (1 / 3)
        shares = shares / max(float(shares[list(met)].sum()) for met in problem.meetings)
    return best
