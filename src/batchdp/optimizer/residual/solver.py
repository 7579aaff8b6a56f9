"""The certified optimum where every record has one column in each of several blocks.

Block b has a matrix R_b; a class c of records has the column R_b[:, j_b(c)] of it, or none. Minimise Σ_b tr P_b subject
to q_c = Σ_b r_bcᵀ P_b⁻¹ r_bc ≤ 1 for every class: the best strategy that measures the blocks apart. Every v ≥ 0 on the
classes gives the lower bound (Σ_b tr (R_b diag(v_b) R_bᵀ)^½)² / Σv, v_b being v summed over a column's classes, and
P_b = (R_b diag(v_b) R_bᵀ)^½ made feasible an upper one. Solved as in `bounds.convex`, which has the case of one block:
log v moves by a multiple of log q, extrapolated, and P⁻¹ is moved to where all active classes have q_c = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky
from scipy.linalg.lapack import dtrtri

from batchdp.linalg.fixed_point import FixedPoint
from batchdp.linalg.matrix import Dense, dense
from batchdp.linalg.threads import one_thread
from batchdp.strategies.account import FLOPS, UNLIMITED, Account
from batchdp.strategies.bounds.convex import LOWEST, PACE, Optimum
from batchdp.strategies.bounds.convex import solve as solve_matrix
from batchdp.strategies.bounds.ellipsoid import root

Indices = NDArray[np.int64]

MOST_ACTIVE = 3000
"""Classes for which P⁻¹ is moved: a square matrix of this size is solved."""
EVERY = 4
"""Rounds between two such moves."""
ROUND_SECONDS, BLOCK_SECONDS = 4e-4, 1e-4
"""Nominal seconds of a round whatever its size, and for each of its blocks. Measured, as the next is."""
EIGENVALUES = 15.0
"""Operations that the eigenvalues of a matrix take, as a multiple of its rows' third power."""


@dataclass(frozen=True, eq=False)
class Block:
    """R with independent rows, and for every class of records which of its columns it has, −1 for none."""

    R: Dense
    column: Indices


@dataclass(frozen=True, eq=False)
class Solved:
    """Bounds on the least Σ tr P, and for every block K and K⁻¹ with P⁻¹ = KᵀK: measure K R, which has q ≤ 1."""

    lower: float
    upper: float
    measure: tuple[Dense, ...]
    recover: tuple[Dense, ...]
    weights: Dense
    """v: how much every class matters; the lower bound follows from it alone."""


@dataclass(frozen=True, eq=False)
class _Point:
    """P_b = U diag(l) Uᵀ of every block, its L = l^-½ Uᵀ R, and q."""

    l: list[Dense]
    U: list[Dense]
    L: list[Dense]
    q: Dense


@one_thread
def solve(
    blocks: list[Block],
    classes: int,
    *,
    tolerance: float = 1e-3,
    max_rounds: int = 500,
    account: Account = UNLIMITED,
    start: Dense | None = None,
) -> Solved:
    """Minimise Σ tr P_b over all blocks; `tolerance` is the relative gap between the bounds, `start` a guess at v."""
    scale = max((float(np.abs(block.R).max(initial=0.0)) for block in blocks), default=0.0)
    if scale == 0:
        empty = tuple(np.zeros((0, 0)) for _ in blocks)
        return Solved(0.0, 0.0, empty, empty, np.ones(classes))
    blocks = [Block(block.R / scale, block.column) for block in blocks]
    guess = np.zeros(classes) if start is None else np.log(np.maximum(start, 1e-6 * start.mean()))
    loop = FixedPoint(guess, PACE)
    lower, upper = 0.0, np.inf
    v = np.ones(classes)
    price = ROUND_SECONDS + sum(block_price(*block.R.shape) for block in blocks)
    best: tuple[list[Dense], list[Dense]] | None = None
    for rounds in range(1, max_rounds + 1):
        u = loop.u
        account.charge(price)
        point = _at(blocks, np.exp(u))
        # v is scaled so that Σv = Σ tr P, where the bound is Σ tr P itself.
        c = float(sum(float(l.sum()) for l in point.l)) / float(np.exp(u).sum())
        point = _Point([l * c for l in point.l], point.U, [L / np.sqrt(c) for L in point.L], point.q / c)
        u = u + 2 * np.log(c)
        bound = float(sum(float(l.sum()) for l in point.l))
        if not loop.accept(bound, u, point.q):
            continue
        if bound > lower:
            lower, v = bound, np.exp(u)
        largest = float(point.q.max())
        if bound * largest < upper:
            upper, best = bound * largest, _plain(point, largest)
        if rounds % EVERY == 0 or upper <= lower * (1 + 10 * tolerance):
            active = np.flatnonzero((np.exp(u) > 1e-2 * bound / classes) | (point.q > 1))
            account.charge((2.0 * sum(map(len, point.l)) * active.size**2 + active.size**3 / 3) / FLOPS)
            tight = _tighten(blocks, point, active)
            if tight is not None and tight[0] < upper:
                upper, best = tight[0], tight[1:]
        if upper <= lower * (1 + tolerance) or account.over():
            break
        if not loop.move(np.log(bound / classes) + LOWEST):
            break
    assert best is not None
    return Solved(
        lower * scale**2,
        upper * scale**2,
        tuple(K / scale for K in best[0]),
        tuple(B * scale for B in best[1]),
        v / v.sum(),
    )


def block_price(rows: int, columns: int) -> float:
    """What a block adds to a round, in nominal seconds."""
    return BLOCK_SECONDS + (4.0 * rows * rows * columns + EIGENVALUES * rows**3) / FLOPS


def certify(R: Dense, tolerance: float, account: Account, max_rounds: int = 500) -> Optimum:
    """The optimum for one matrix by `bounds.convex`, its rounds entered in the account."""
    price = ROUND_SECONDS + block_price(*R.shape)

    def watch(_round: int, _lower: float, _upper: float) -> bool:
        account.charge(price)
        return account.over()

    return solve_matrix(R, tolerance=tolerance, max_rounds=max_rounds, progress=watch)


def solve_one(R: Dense, tolerance: float, account: Account = UNLIMITED) -> Solved:
    """One block whose every class has a column of its own: `bounds.convex` is quicker where it is large."""
    ended = certify(R, tolerance, account)
    bound, pair = ended.bound, ended.pair
    K = np.asarray(np.linalg.lstsq(R.T, dense(pair.measure).T, rcond=None)[0].T, dtype=np.float64)
    v = np.maximum(bound.weights, 0.0)
    return Solved(bound.lower_bound, bound.upper_bound, (K,), (pair.reconstruct,), v / v.sum())


def _at(blocks: list[Block], v: Dense) -> _Point:
    ls, Us, Ls, q = [], [], [], np.zeros(len(v))
    for block in blocks:
        there = block.column >= 0
        own = np.bincount(block.column[there], v[there], minlength=block.R.shape[1]).astype(np.float64)
        l, U = root(block.R, own)
        L = (U.T @ block.R) / np.sqrt(l)[:, None]
        q[there] += np.einsum("ij,ij->j", L, L)[block.column[there]]
        ls.append(l)
        Us.append(U)
        Ls.append(L)
    return _Point(ls, Us, Ls, q)


def _plain(point: _Point, largest: float) -> tuple[list[Dense], list[Dense]]:
    size = np.sqrt(largest)
    measure = [U.T / (np.sqrt(l) * size)[:, None] for l, U in zip(point.l, point.U, strict=True)]
    return measure, [U * (np.sqrt(l) * size) for l, U in zip(point.l, point.U, strict=True)]


def _tighten(blocks: list[Block], point: _Point, active: Indices) -> tuple[float, list[Dense], list[Dense]] | None:
    """P'⁻¹ = P^-½ (I − L_A diag(w) L_Aᵀ) P^-½ in every block, w such that every active class has q = 1."""
    if len(active) > MOST_ACTIVE or active.size == 0:
        return None
    H = np.zeros((len(active), len(active)))
    own = []
    for block, L in zip(blocks, point.L, strict=True):
        columns = block.column[active]
        A = np.where(columns >= 0, L[:, columns], 0.0)
        own.append(A)
        H += np.square(A.T @ A)
    H[np.diag_indices_from(H)] += 1e-6
    try:
        w = cho_solve(cho_factor(H, check_finite=False), point.q[active] - 1)
        triangles = [cholesky(np.eye(len(A)) - (A * w) @ A.T, lower=True, check_finite=False) for A in own]
    except LinAlgError:
        return None
    q, trace = np.zeros(len(point.q)), 0.0
    inverses = []
    for block, L, l, C in zip(blocks, point.L, point.l, triangles, strict=True):
        M = C.T @ L
        there = block.column >= 0
        q[there] += np.einsum("ij,ij->j", M, M)[block.column[there]]
        inverses.append(dtrtri(C, lower=True)[0])
        trace += float(np.square(inverses[-1]).sum(axis=0) @ l)
    size = float(np.sqrt(q.max()))
    parts = list(zip(point.l, point.U, triangles, inverses, strict=True))
    measure = [C.T @ (U.T / np.sqrt(l)[:, None]) / size for l, U, C, _ in parts]
    recover = [(U * np.sqrt(l)) @ inverse.T * size for l, U, _, inverse in parts]
    return trace * size**2, measure, recover
