"""Descents of p-Identity: quasi-Newton steps without negative entries, then with what that form holds fixed.

SciPy's L-BFGS-B spends more on the bounds than an evaluation takes here. `minimise` does as Bertsekas's two-metric
projection: entries at zero that want to become negative are left out, the others take a quasi-Newton step among
themselves, and the end of the step is cut at zero. `polish_shared` frees the diagonal and the signs and costs O(k p n)
a round; `polish_dense` frees every entry of L and costs O(n³). Both project columns onto the L1 ball, which sets
entries to zero exactly where quasi-Newton steps only creep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from batchdp.linalg.cone import plus_identity, solved
from batchdp.linalg.descent import Descended, Reached, descend
from batchdp.linalg.l1_ball import project_columns
from batchdp.linalg.matrix import Dense, Plain
from batchdp.text import Outcome
from batchdp.workloads.matrix import Pair
from batchdp.workloads.reduction import Reduction

SPARSE_COST = 30
"""Multiplications of dense matrices that take the time of one of a sparse matrix; on ranges, 18 to 38 were measured."""
SPARSE_COLUMNS = 2048
"""Merged columns above which the measure L is a sparse matrix: a dense diagonal would take 32 megabytes."""
DIFFERING_ENTRIES = 1_000_000
"""Entries of R from which the workload is tried as differences; a round on fewer takes milliseconds either way."""


@dataclass(frozen=True, eq=False)
class Products:
    """A reduced workload R, k × n (or one with more rows and the same Gram matrix), as what evaluations need of it."""

    shape: tuple[int, int]
    work: int
    """How many entries a dense matrix of the same cost has."""
    squares: Dense
    """‖R_j‖² of every column."""
    answers: Callable[[Dense], Dense]
    """From rows (p × n) to these times Rᵀ."""
    combined: Callable[[Dense], Dense]
    """From rows (p × k) to these times R."""


def whole(R: Dense) -> Products:
    """R as an array."""
    squares = np.asarray(np.einsum("ij,ij->j", R, R))
    k, n = R.shape
    return Products((k, n), R.size, squares, lambda rows: np.asarray(rows @ R.T), lambda rows: np.asarray(rows @ R))


def by_entries(W: sparse.csr_array) -> Products:
    """A sparse matrix by its entries alone."""
    turned, (k, n) = sparse.csr_array(W.T), W.shape
    squares = np.asarray(W.multiply(W).sum(axis=0), dtype=np.float64).ravel()

    def times(matrix: sparse.csr_array) -> Callable[[Dense], Dense]:
        return lambda rows: np.ascontiguousarray((matrix @ np.ascontiguousarray(rows.T)).T)

    return Products((k, n), SPARSE_COST * int(W.nnz), squares, times(W), times(turned))


def by_differences(W: Dense) -> Products:
    """W by the differences D of neighbouring columns, which has few entries where queries are ranges."""
    D = sparse.csr_array(np.diff(W, axis=1, prepend=0.0))
    turned, (m, n) = sparse.csr_array(D.T), W.shape

    def answers(rows: Dense) -> Dense:
        return np.asarray(D @ np.cumsum(rows.T[::-1], axis=0)[::-1]).T

    def combined(rows: Dense) -> Dense:
        return np.cumsum(np.asarray(turned @ rows.T), axis=0).T

    return Products((m, n), SPARSE_COST * (D.nnz + n), np.asarray(np.einsum("ij,ij->j", W, W)), answers, combined)


def products(reduction: Reduction) -> Products:
    """The cheapest form of a reduced workload."""
    R = reduction.reduced
    if R.size < DIFFERING_ENTRIES or reduction.workload.queries * R.shape[1] > 4 * R.size:
        return whole(R)
    W = reduction.merged_workload()
    if reduction.workload.weights is not None:
        W = W * np.sqrt(reduction.workload.weights)[:, None]
    found = by_differences(W)
    return found if 4 * found.work < R.size else whole(R)


def error(R: Products, P: Dense, e: Dense) -> tuple[float, Dense, Dense]:
    """‖R L⁺‖²_F and half its derivatives by P (with e fixed) and by e (with P fixed)."""
    if len(P) == 0:  # which LAPACK does not take
        eq = e * R.squares
        return float(e @ eq), P, eq
    Y = R.answers(P * e)
    Z = solved(plus_identity(P @ P.T), Y)
    M = R.combined(Z)
    eq = e * R.squares
    by_e = eq - np.einsum("ij,ij->j", M, P)
    M *= e
    return float(e @ eq - np.vdot(Y, Z)), (Z @ Z.T) @ P - M, by_e


def pack(shared: Dense) -> Dense:
    """Rows d, Θ of sensitivity 1 from shared queries beside the identity."""
    return np.asarray(np.vstack([np.ones(shared.shape[1]), shared]) / (1 + np.abs(shared).sum(axis=0)))


def unpack(packed: Dense) -> Plain:
    """L, without rows that are zero."""
    d, T = packed[0], without_zeros(packed[1:])
    if len(d) <= SPARSE_COLUMNS:
        return np.vstack([np.diag(d), T])
    return sparse.csr_array(sparse.vstack([sparse.diags_array(d), sparse.csr_array(T)]))


def without_zeros(rows: Dense) -> Dense:
    """The rows that are not zero."""
    return np.asarray(rows[np.abs(rows).sum(axis=1) > 0])


def shared_of(packed: Dense) -> Dense:
    """The shared queries Θ beside the identity: what `pack` was given."""
    return np.asarray(packed[1:] / packed[0])


def paired(R: Dense, packed: Dense) -> Pair | None:
    """L and B = R L⁺, or None if the diagonal is too small to divide by."""
    B = reconstruct(R, packed)
    return None if B is None else Pair(unpack(packed), B, Outcome.BEST_OF_STARTS)


def reconstruct(R: Dense, packed: Dense) -> Dense | None:
    """B = R L⁺ for the L that `unpack` gives, or None if the diagonal is too small to divide by."""
    d, T = packed[0], without_zeros(packed[1:])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        P = T / d
    if not np.all(np.isfinite(P)):
        return None
    K = plus_identity(P @ P.T)
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


SHORTEST = 1e-8
"""The shortest share of a step that is tried: half the digits, below which a change of the value is rounding."""

MEMORY = 8
"""Past steps that the curvature is learnt from; the usual 5 to 10 of L-BFGS, not tuned."""
SMALLEST_DIAGONAL = 1e-4
"""The least entry of the diagonal d while it is free, of a column's budget of 1: the error is a difference of terms
that grow with 1/d, and here they still agree to half the digits."""
LEAST_GAIN = 1e-4
"""The relative gain of the error, as its gradient predicts it, below which freeing every entry of L is not worth its
O(n³) a round."""

Objective = Callable[[Dense], tuple[float, Dense]]
"""Value and gradient; may raise LinAlgError where it is undefined."""


def minimise(objective: Objective, start: Dense, rounds: int, *, tolerance: float = 1e-9) -> Reached:
    """Descend from a start; ends when a step gains less than `tolerance` of the value."""
    x = np.maximum(start, 0.0)
    value, g = objective(x)
    evaluations = 1
    past: deque[tuple[Dense, Dense]] = deque(maxlen=MEMORY)
    for _ in range(rounds):
        d = _direction(g, (x > 0) | (g < 0), past)
        share = 1.0 if past else 0.1 * float(x.max(initial=0.0)) / max(float(np.abs(d).max(initial=0.0)), 1e-300)
        while share >= SHORTEST:
            y = x + share * d
            np.maximum(y, 0.0, out=y)
            moved = y - x
            slope = float(np.vdot(g, moved))
            if not slope < 0:  # cut at zero, the step may point uphill
                share = 0.0
                break
            try:
                v, h = objective(y)
            except LinAlgError:
                v, h = np.inf, g
            evaluations += 1
            if v <= value + 1e-4 * slope:
                break
            # The minimum of the parabola through what is known, if that is not absurd.
            share *= float(np.clip(-slope / (2 * (v - value - slope)), 0.1, 0.5))
        if share < SHORTEST:
            if not past:
                break
            past.clear()
            continue
        turned = h - g
        if np.vdot(moved, turned) > 1e-10 * np.vdot(moved, moved):
            past.append((moved, turned))
        gain = value - v
        x, value, g = y, v, h
        if gain <= tolerance * abs(value):
            break
    return Reached(x, value, evaluations)


def _direction(g: Dense, free: NDArray[np.bool_], past: deque[tuple[Dense, Dense]]) -> Dense:
    """The quasi-Newton step among the free entries: the two-loop recursion with every step cut down to them."""
    d = np.where(free, -g, 0.0)
    kept = []
    for moved, turned in past:
        s = moved * free
        curvature = float(np.vdot(s, turned))
        if curvature > 1e-10 * float(np.vdot(s, s)):
            kept.append((s, turned, curvature))
    coefficients = []
    for s, y, curvature in reversed(kept):
        coefficients.append(float(np.vdot(s, d)) / curvature)
        d -= coefficients[-1] * y
    d *= free
    if kept:
        y = kept[-1][1] * free
        d *= kept[-1][2] / float(np.vdot(y, y))
    for (s, y, curvature), coefficient in zip(kept, reversed(coefficients), strict=True):
        d += (coefficient - float(np.vdot(y, d)) / curvature) * s
    return d


def polish_shared(R: Products, packed: Dense, rounds: int) -> Descended[None]:
    """The packed strategy with d and the signs of Θ free; its value is ‖B‖²_F."""

    def evaluate(packed: Dense) -> tuple[float, Dense, None]:
        e = 1 / packed[0]
        P = packed[1:] * e
        value, by_P, by_e = error(R, P, e)
        gradient = np.empty_like(packed)
        gradient[0] = -2 * e * (np.einsum("ij,ij->j", P, by_P) + e * by_e)
        np.multiply(by_P, 2 * e, out=gradient[1:])
        return value, gradient, None

    def project(packed: Dense) -> Dense:
        projected = project_columns(packed)
        np.maximum(projected[0], SMALLEST_DIAGONAL, out=projected[0])
        return projected

    return descend(evaluate, packed, rounds, project=project)


def wants_more(R: Dense, packed: Dense) -> bool:
    """Whether measuring columns together as [diag(d); Θ] does not would gain anything to speak of.

    With Z = (LᵀL)⁻¹ Rᵀ, entry (i, j) of the derivative by L is −2 d_i ⟨z_i, z_j⟩ in the rows of the diagonal. A column
    spends its budget well if no entry is larger than that of its own row, and those add up to the error.
    """
    B = reconstruct(R, packed)
    if B is None:
        return False
    d = packed[0]
    Z = B[:, : len(d)] / d
    G = np.abs(Z.T @ Z) * d[:, None]
    own = np.diag(G)
    return float((G.max(axis=0) - own).sum()) > LEAST_GAIN * float(own.sum())


def polish_dense(R: Dense, measure: Dense, rounds: int) -> Descended[None]:
    """L with every entry free, of full column rank; its value is ‖B‖²_F."""

    def error(L: Dense) -> tuple[float, Dense, None]:
        Z = cho_solve(cho_factor(L.T @ L, lower=True, check_finite=False), R.T, check_finite=False)
        return float(np.vdot(Z, R.T)), -2 * (L @ Z) @ Z.T, None

    return descend(error, measure, rounds)
