"""The kernels of Algorithm 2 by Numba: each column of L goes through a step while it is in the processor's first cache.

The order of every sum is fixed and no product is fused with a sum, so that all processors round alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit

from batchdp.linalg.matrix import Dense
from batchdp.optimizer.families.low_rank.paper import Kernels

Function = TypeVar("Function", bound=Callable[..., object])
Places = np.ndarray[tuple[int], np.dtype[np.uint64]]


def compiled(function: Function) -> Function:
    """The function in machine code, which is kept from process to process."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def step(
    now: Dense,
    now_slope: Dense,
    before: Dense,
    before_slope: Dense,
    momentum: float,
    omega: float,
    thresholds: Dense,
    H: Dense,
    F: Dense,
    after: Dense,
    after_slope: Dense,
) -> tuple[float, float]:
    """A step of Algorithm 2, column by column."""
    n, r = F.shape
    S, slope, X, place = np.empty(r), np.empty(r), np.empty(r), np.empty(r, np.uint64)
    moved = bent = 0.0
    for j in range(n):
        _combined(now[j], before[j], momentum, S)
        _combined(now_slope[j], before_slope[j], momentum, slope)
        for i in range(r):
            X[i] = S[i] - slope[i] * (1 / omega)
        t, count = _threshold(X, thresholds[j], place)
        thresholds[j] = t
        shrunk, rise, f = after[j], after_slope[j], F[j]
        shrunk[:] = 0.0
        for q in range(count):
            x = X[place[q]]
            shrunk[place[q]] = x - t if x > 0 else x + t
        rise[:] = 0.0
        _add_product(shrunk, place, count, H, rise)
        for i in range(r):
            rise[i] -= f[i]
        for i in range(r):
            S[i] -= shrunk[i]
        for i in range(r):
            slope[i] -= rise[i]
        square, product = _dots(S, slope)
        moved += square
        bent += product
    return moved, bent


@compiled
def product(rows: Dense, matrix: Dense) -> Dense:
    """The product rows · matrix, by the entries of `rows` that are not zero."""
    n, r = rows.shape
    into, place = np.zeros((n, matrix.shape[1])), np.empty(r, np.uint64)
    for j in range(n):
        _add_product(rows[j], place, _above(rows[j], 0.0, place), matrix, into[j])
    return into


@compiled
def transposed_product(rows: Dense, matrix: Dense) -> Dense:
    """The product rowsᵀ · matrix, by the entries of `rows` that are not zero."""
    n, r = rows.shape
    into = np.zeros((r, matrix.shape[1]))
    for j in range(n):
        row, M = rows[j], matrix[j]
        for i in range(r):
            x = row[i]
            if x != 0:
                sums = into[i]
                for c in range(M.size):
                    sums[c] += x * M[c]
    return into


@compiled
def _combined(now: Dense, before: Dense, momentum: float, into: Dense) -> None:
    for i in range(into.size):
        into[i] = now[i] + momentum * (now[i] - before[i])


@compiled
def _threshold(X: Dense, low: float, place: Places) -> tuple[float, int]:
    """What shrinks X to an L1 norm of 1 at most; and how many entries are left, whose places `place` begins with.

    Newton's method climbs from a guess below the root, and looks again only at entries above. From a guess above it
    lands below, because Σ max(|x| − t, 0) is convex; a tenth less is below whatever the rounding.
    """
    while True:
        count, total = _above(X, low, place), 0.0
        for q in range(count):
            total += abs(X[place[q]])
        if total - count * low >= 1:
            break
        if low == 0:
            return 0.0, count
        low = 0.9 * max((total - 1) / max(count, 1), 0.0)
    while True:
        t, before, count, total = (total - 1) / count, count, 0, 0.0
        for q in range(before):
            x = abs(X[place[q]])
            place[count] = place[q]
            if x > t:
                count += 1
                total += x
        if count == before:
            return t, count


@compiled
def _above(X: Dense, low: float, place: Places) -> int:
    """How many magnitudes are above `low`; `place` begins with where. No branch, which could not be foreseen."""
    count = 0
    for i in range(X.size):
        place[count] = i
        count += abs(X[i]) > low
    return count


@compiled
def _add_product(row: Dense, place: Places, count: int, matrix: Dense, into: Dense) -> None:
    """Add row · matrix, by the entries of the row in these places."""
    fours = count - count % 4
    for q in range(0, fours, 4):
        a, b, c, d = place[q], place[q + 1], place[q + 2], place[q + 3]
        xa, xb, xc, xd = row[a], row[b], row[c], row[d]
        Ma, Mb, Mc, Md = matrix[a], matrix[b], matrix[c], matrix[d]
        for i in range(into.size):
            into[i] += (xa * Ma[i] + xb * Mb[i]) + (xc * Mc[i] + xd * Md[i])
    for q in range(fours, count):
        x, M = row[place[q]], matrix[place[q]]
        for i in range(into.size):
            into[i] += x * M[i]


@compiled
def _dots(x: Dense, y: Dense) -> tuple[float, float]:
    """⟨x, x⟩ and ⟨x, y⟩, each in eight sums, because one would wait for every addition."""
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
    eights = x.size - x.size % 8
    for i in range(0, eights, 8):
        a0 += x[i] * x[i]
        a1 += x[i + 1] * x[i + 1]
        a2 += x[i + 2] * x[i + 2]
        a3 += x[i + 3] * x[i + 3]
        a4 += x[i + 4] * x[i + 4]
        a5 += x[i + 5] * x[i + 5]
        a6 += x[i + 6] * x[i + 6]
        a7 += x[i + 7] * x[i + 7]
        b0 += x[i] * y[i]
        b1 += x[i + 1] * y[i + 1]
        b2 += x[i + 2] * y[i + 2]
        b3 += x[i + 3] * y[i + 3]
        b4 += x[i + 4] * y[i + 4]
        b5 += x[i + 5] * y[i + 5]
        b6 += x[i + 6] * y[i + 6]
        b7 += x[i + 7] * y[i + 7]
    for i in range(eights, x.size):
        a0 += x[i] * x[i]
        b0 += x[i] * y[i]
    return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7)), ((b0 + b4) + (b2 + b6)) + ((b1 + b5) + (b3 + b7))


NUMBA = Kernels(step, product, transposed_product)
