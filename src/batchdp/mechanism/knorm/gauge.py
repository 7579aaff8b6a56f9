"""‖x‖_K = min Σ|λ| with Σ λ b = x: searched for in floats, proven in whole numbers.

Columns may be taken with either sign, so any k independent ones are a feasible basis, and the simplex method starts
wherever it likes. With weights λ = B⁻¹ x and prices y = B⁻ᵀ sign(λ), always

    yᵀx / max |yᵀb| ≤ ‖x‖_K ≤ Σ|λ| = yᵀx.

What floats find is no more than a proposal. Of λ the sum of Σ λ b is computed exactly, and what is missing from x has
a norm of at most its largest entry times Σ ‖e‖_K; of y the largest |yᵀb|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.linalg.matrix import Dense

Basis = NDArray[np.intp]
Integers = NDArray[np.object_]
"""Python's whole numbers, of any size."""

TOLERANCE = 1e-10
MOST_PIVOTS = 500
WEIGHT_BITS = 64
"""Of λ, when it is rounded to be proven."""
PRICE_BITS = 40
"""Of y."""


@dataclass(frozen=True)
class Found:
    """What floats say of a point: believed by nobody."""

    basis: Basis
    weights: Dense
    prices: Dense
    low: float
    high: float

    @property
    def rounded_weights(self) -> list[int]:
        """In units of 2^-WEIGHT_BITS."""
        return [round(w) for w in (self.weights * 2.0**WEIGHT_BITS).tolist()]


def searched(columns: Dense, point: Dense, basis: Basis, *, until: float | None = None) -> Found:
    """The simplex method in floats, from a basis; ends early when the norm is above or below `until` for sure."""
    basis = basis.copy()
    best = Found(basis, np.zeros(len(point)), np.zeros(len(point)), 0.0, np.inf)
    for _ in range(MOST_PIVOTS):
        try:
            inverse = np.linalg.inv(columns[:, basis])
        except np.linalg.LinAlgError:
            return best
        weights = inverse @ point
        if not np.isfinite(inverse).all():
            return best
        signs = np.where(weights < 0, -1.0, 1.0)
        prices = signs @ inverse
        reduced = prices @ columns
        entering = int(np.argmax(np.abs(reduced)))
        most = abs(float(reduced[entering]))
        high = float(np.abs(weights).sum())
        best = Found(basis, weights, prices, high / most, high)
        if most <= 1 + TOLERANCE:
            return best
        if until is not None and (high < until * (1 - TOLERANCE) or high / most > until * (1 + TOLERANCE)):
            return best
        change = inverse @ columns[:, entering] * np.sign(reduced[entering]) * signs
        size = np.abs(weights)
        ratio = np.full(len(point), np.inf)
        np.divide(size, change, out=ratio, where=change > 1e-12)
        # A weight may change its sign, which costs 2 |change| more a step: go on until that does not pay.
        order = np.argsort(ratio)
        slopes = 1 - most + 2 * np.cumsum(np.maximum(change[order], 0.0))
        leaving = order[min(int(np.searchsorted(slopes, 0.0)), len(order) - 1)]
        if not np.isfinite(ratio[leaving]):
            return best
        basis = basis.copy()
        basis[leaving] = entering
    return best


def residual(columns: Integers, weights: Sequence[int], basis: Basis, point: Sequence[int], bits: int) -> int:
    """The largest entry of x − Σ λ b, exactly, in units of 2^-(bits + WEIGHT_BITS).

    Here x = point / 2^bits and λ = weights / 2^WEIGHT_BITS.
    """
    total = columns[:, basis] @ np.array(weights, dtype=object)
    return max(abs((int(x) << WEIGHT_BITS) - (int(t) << bits)) for x, t in zip(point, total, strict=True))


@dataclass(frozen=True, eq=False)
class Cut:
    """|yᵀx| ≤ bound for every x of the body, in whole numbers; verified when made."""

    normal: tuple[int, ...]
    bound: int


def cut(columns: Integers, prices: Dense) -> Cut | None:
    """Floats made a half-space that holds the body: y is rounded, and the bound is the largest |yᵀb|, exactly."""
    top = float(np.abs(prices).max(initial=0.0))
    if not (np.isfinite(top) and top > 0):
        return None
    y = [round(x) for x in (prices / top * 2.0**PRICE_BITS).tolist()]
    return Cut(tuple(y), max(map(abs, dot(y, columns).tolist())))


def exact_norm(
    columns: Integers, point: Integers, basis: Sequence[int], likely: Sequence[float]
) -> tuple[Fraction, dict[int, Fraction]]:
    """‖point‖_K and weights of that sum, by the simplex method in whole numbers, from independent columns.

    A weight that is zero has the sign that is likely: the one that it has beside the point.
    Bland's rule: the first column that pays enters, the first of those that bind leaves; no basis comes twice.
    """
    k = len(point)
    chosen = list(basis)
    signs = [-1 if (w or x) < 0 else 1 for w, x in zip(solved(columns[:, chosen], point)[0], likely, strict=True)]
    while True:
        B = columns[:, chosen] * np.array(signs, dtype=object)
        weights, d = solved(B, point)
        prices, e = solved(B.T.copy(), np.array([1] * k, dtype=object))
        if not d:
            raise ArithmeticError("a basis of dependent columns")
        reduced = dot(prices.tolist(), columns).tolist()
        entering = next((j for j, value in enumerate(reduced) if abs(value) > e), None)
        if entering is None:
            found = {j: Fraction(s * int(w), d) for j, s, w in zip(chosen, signs, weights, strict=True)}
            return Fraction(sum(map(int, weights)), d), found
        sign = 1 if reduced[entering] > 0 else -1
        change, _ = solved(B, columns[:, entering] * sign)
        ratios = [
            (Fraction(int(w), int(x)), 2 * chosen[i] + (signs[i] < 0), i)
            for i, (w, x) in enumerate(zip(weights, change, strict=True))
            if x > 0
        ]
        leaving = min(ratios)[2]
        chosen[leaving], signs[leaving] = entering, sign


def solved(matrix: Integers, right: Integers) -> tuple[Integers, int]:
    """X and d > 0 with matrix · X = d · right; d = 0 for a singular matrix. Bareiss' elimination: no fractions."""
    k = len(matrix)
    rows = [[*map(int, a), *map(int, b)] for a, b in zip(matrix, right.reshape(k, -1), strict=True)]
    previous = 1
    for i in range(k):
        pivot = next((r for r in range(i, k) if rows[r][i]), None)
        if pivot is None:
            return np.zeros_like(right), 0
        rows[i], rows[pivot] = rows[pivot], rows[i]
        top = rows[i]
        for r in range(k):
            if r != i:
                row, factor = rows[r], rows[r][i]
                rows[r] = [(top[i] * a - factor * b) // previous for a, b in zip(row, top, strict=True)]
        previous = top[i]
    sign = 1 if previous > 0 else -1
    found = np.array([[sign * value for value in row[k:]] for row in rows], dtype=object)
    return found.reshape(right.shape), sign * previous


def independent_columns(matrix: Integers) -> list[int]:
    """As many columns as there are independent ones, the first of each kind; exact, by their Gram matrix."""
    found: list[int] = []
    for j in range(matrix.shape[1]):
        some = matrix[:, [*found, j]]
        if solved(some.T @ some, some[:1].T)[1]:
            found.append(j)
        if len(found) == len(matrix):
            break
    return found


def whole_matrix(values: Any) -> Integers | None:
    """A matrix of Python's whole numbers; None for anything else."""
    try:
        given = np.asarray(values)
    except ValueError:
        return None
    if given.ndim != 2 or given.dtype.kind not in "iuO":
        return None
    if given.dtype.kind == "O" and any(isinstance(x, bool) or not isinstance(x, int | np.integer) for x in given.flat):
        return None
    return np.array([[int(x) for x in row] for row in given], dtype=object).reshape(given.shape)


def dot(weights: Sequence[int], matrix: Integers) -> Integers:
    """weightsᵀ · matrix, exactly."""
    return np.asarray(np.array([int(w) for w in weights], dtype=object) @ matrix)
