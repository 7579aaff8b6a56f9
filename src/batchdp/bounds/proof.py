"""The bounds that the convex search may claim: rounds suggest them, this checks them."""

from __future__ import annotations

import numpy as np

from batchdp.bounds.ellipsoid import Columns, Ellipsoid, lower_bound
from batchdp.linalg.matrix import Dense


class Proof:
    """Bounds that hold, and what they follow from: checked on all columns, in double precision."""

    def __init__(self, R: Dense) -> None:
        self._R = R
        self.lower, self.upper = 0.0, np.inf
        self.v = np.ones(R.shape[1])
        self.L, self.B = R, np.eye(R.shape[0])

    def below(self, columns: Columns, v: Dense, bound: float | None = None) -> None:
        """A lower bound from weights on some columns, which is one for all; computed unless it is known."""
        if bound is None:
            bound = lower_bound(self._R[:, columns], v)
        if bound > self.lower:
            self.lower, self.v = bound, np.zeros(self._R.shape[1])
            self.v[columns] = v

    def above(self, found: Ellipsoid) -> Dense:
        """An upper bound from an ellipsoid, scaled until it holds all columns; returns their squared norms before."""
        L, B = found.measure() @ self._R, found.reconstruct()
        norms = np.asarray(np.einsum("ij,ij->j", L, L))
        size = float(np.sqrt(norms.max()))
        upper = float(np.square(B).sum()) * size**2
        if upper < self.upper:
            L /= size
            B *= size
            self.upper, self.L, self.B = upper, L, B
        return norms
