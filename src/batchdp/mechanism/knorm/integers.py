"""Linear equations in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.object_]
"""Python's whole numbers, of any size."""


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


def identity(size: int) -> Integers:
    """I in whole numbers."""
    return np.array([[int(i == j) for j in range(size)] for i in range(size)], dtype=object).reshape(size, size)


def independent_columns(matrix: Integers) -> list[int]:
    """As many columns as there are independent ones, the first of each kind; exact."""
    k, c = matrix.shape
    rows = [list(map(int, row)) for row in matrix]
    found: list[int] = []
    previous = 1
    for j in range(c):
        i = len(found)
        pivot = next((r for r in range(i, k) if rows[r][j]), None)
        if pivot is None:
            continue
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, k):
            factor = rows[r][j]
            rows[r] = [(rows[i][j] * a - factor * b) // previous for a, b in zip(rows[r], rows[i], strict=True)]
        previous = rows[i][j]
        found.append(j)
        if len(found) == k:
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
