"""Small symmetric systems, straight to LAPACK: of a few rows, SciPy's checks take longer than what they guard."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dposv, sposv

from batchdp.linalg.matrix import Dense


def plus_identity(matrix: Dense, times: float = 1.0) -> Dense:
    """The square matrix with so much more on its diagonal, in place."""
    matrix.flat[:: len(matrix) + 1] += times
    return matrix


def solved(matrix: Dense, right: Dense) -> Dense:
    """X with `matrix` X = `right`, in their precision; LinAlgError unless the matrix is positive definite."""
    if not right.size:  # which LAPACK does not take
        return right
    _, X, info = (sposv if matrix.dtype == np.float32 else dposv)(matrix, right, lower=1)
    if info:
        raise LinAlgError("a matrix that rounding has left without an inverse")
    return np.asarray(X)
