"""The columns that a search works on, in the precision that suffices for it.

Of many columns few touch the ellipsoid in the end, and those that stick out of the first one are nearly the same.
Single precision halves the work on them. So that a graded spectrum can be squared in it, the columns are turned to
the first round's eigenbasis: there every row has a size of its own, and keeps its digits whatever that of the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchdp.bounds.ellipsoid import Columns, Ellipsoid, Real
from batchdp.linalg.matrix import Dense

MOST_GRADED = 1e-5
"""Smallest to largest eigenvalue of P below which single precision is not tried."""


class ActiveColumns:
    """`matrix` is Qᵀ R on some `columns`; Q is the `basis`, or I while there is none."""

    def __init__(self, R: Dense) -> None:
        self._all = R
        self.columns: Columns = np.arange(R.shape[1])
        self.matrix: Real = R
        self._basis: Dense | None = None

    @property
    def exact(self) -> bool:
        """Whether a round's lower bound is one of double precision."""
        return self.matrix.dtype.type is np.float64

    def keep(self, which: NDArray[np.bool_] | Columns) -> None:
        """Go on with some of the columns only."""
        self.columns = self.columns[which]
        self.matrix = np.ascontiguousarray(self.matrix[:, which])

    def add(self, columns: Columns) -> None:
        """Take columns in, behind those that are there."""
        fresh = self._all[:, columns]
        if self._basis is not None:
            fresh = self._basis.T @ fresh
        self.columns = np.concatenate([self.columns, columns])
        self.matrix = np.concatenate([self.matrix, fresh.astype(self.matrix.dtype)], axis=1)

    def turn(self, basis: Dense, turned: Real) -> None:
        """Go on in single precision in another basis; `turned` is the matrix in it."""
        self._basis, self.matrix = basis, turned.astype(np.float32)

    def turn_back(self) -> None:
        """Go on in double precision."""
        self._basis, self.matrix = None, self._all[:, self.columns]

    def original(self, found: Ellipsoid) -> Ellipsoid:
        """An ellipsoid of `matrix` as one of R."""
        return found if self._basis is None else replace(found, U=self._basis @ found.U)

    def violators(self, norms: Dense) -> Columns:
        """Columns that were left out and are longer than all of those that are here; if any, then nearly so as well."""
        outside = np.ones(norms.size, dtype=bool)
        outside[self.columns] = False
        longest = norms[self.columns].max()
        if not np.any(norms[outside] > longest * (1 + 1e-6)):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(outside & (norms > 0.99 * longest))
