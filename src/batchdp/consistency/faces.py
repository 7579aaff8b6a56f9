"""What holds tables together: their faces, which are their margins over all columns but one, and a price for each.

Every table is fitted by itself, min q/2 ‖x − t‖² over x ≥ 0, under prices u on its faces: x = max(t − (⊕ u) / q, 0), in
closed form, where ⊕ spreads the faces' prices over the cells. Prices are right where every face of every table is what
the shared components say. That is the minimum of a convex function of the prices, smooth and piecewise quadratic, whose
second derivative counts the cells above 0: these are few, so that a Newton step by conjugate gradients costs less than
a look at all cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.consistency.components import Columns, Parts, joined, split, spread

Dense = NDArray[np.float64]
Indices = NDArray[np.int64]


def faces_of(columns: Columns) -> list[Columns]:
    """One for every column, the one that is summed over."""
    return [columns[:axis] + columns[axis + 1 :] for axis in range(len(columns))]


@dataclass(frozen=True, eq=False)
class Shared:
    """The components that tables share: a pull of the prices moves each from its centre by pull / stiffness."""

    centres: Parts
    stiffness: Mapping[Columns, float]
    held: Parts
    """Those that no pull moves."""

    def pulled(self, pull: Parts) -> dict[Columns, Dense]:
        """Where they are."""
        return {**{C: c + pull[C] / self.stiffness[C] for C, c in self.centres.items()}, **self.held}

    def cost(self, pull: Parts) -> float:
        """Their part of the function of the prices."""
        found = sum(float((pull[C] * part).sum()) for C, part in self.held.items())
        for C, c in self.centres.items():
            found += float((pull[C] * c).sum()) + float(np.square(pull[C]).sum()) / (2 * self.stiffness[C])
        return found


@dataclass(frozen=True, eq=False)
class Fit:
    """The tables at some prices."""

    prices: Dense
    cost: float
    """½ Σ q ‖x‖²."""
    margins: Dense
    """Of all tables on all their faces, laid out as prices are."""
    cells: list[Indices]
    """Of every table those above 0."""


class Faces:
    """All faces of all tables, as slices of one vector: of each face one copy for every table that has it."""

    def __init__(
        self, targets: Parts, weights: Mapping[Columns, float], sizes: tuple[int, ...], empty: Mapping[int, Indices]
    ) -> None:
        self.t, self.q, self.sizes, self.empty = targets, weights, sizes, empty
        owners: dict[Columns, list[Columns]] = {}
        for A in targets:
            for F in faces_of(A):
                owners.setdefault(F, []).append(A)
        self.shape = {F: tuple(sizes[i] for i in F) for F in owners}
        self.copies = {F: len(own) for F, own in owners.items()}
        self.start: dict[Columns, int] = {}
        self.place: dict[tuple[Columns, Columns], slice] = {}
        self.length = 0
        for F, own in owners.items():
            self.start[F] = self.length
            for A in own:
                self.place[A, F] = slice(self.length, self.length + prod(self.shape[F]))
                self.length += prod(self.shape[F])
        self.unit = np.empty(self.length)
        """1 / q of every price's table: what one cell above 0 adds to the second derivative."""
        for (A, _), place in self.place.items():
            self.unit[place] = 1 / weights[A]

    def of(self, vector: Dense, A: Columns, F: Columns) -> Dense:
        """The part of a table's face."""
        return vector[self.place[A, F]].reshape(self.shape[F])

    def all_of(self, vector: Dense, F: Columns) -> Dense:
        """A face's copies, one a row."""
        n = self.copies[F] * prod(self.shape[F])
        return vector[self.start[F] : self.start[F] + n].reshape(self.copies[F], -1)

    def uncut(self, prices: Dense, A: Columns) -> Dense:
        """t − (⊕ u) / q."""
        table = self.t[A].copy()
        for axis, F in enumerate(faces_of(A)):
            table -= np.expand_dims(self.of(prices, A, F) / self.q[A], axis)
        return table

    def cut(self, table: Dense, A: Columns) -> Dense:
        """In place: nothing below 0, and nothing where a column's margin is 0."""
        np.maximum(table, 0.0, out=table)
        for axis, i in enumerate(A):
            if len(self.empty[i]):
                np.moveaxis(table, axis, 0)[self.empty[i]] = 0.0
        return table

    def table(self, prices: Dense, A: Columns) -> Dense:
        """The table at these prices."""
        return self.cut(self.uncut(prices, A), A)

    def fit(self, prices: Dense) -> Fit:
        """All tables, of which only what a step needs is kept."""
        cost, margins, cells = 0.0, np.empty(self.length), []
        for A in self.t:
            x = self.table(prices, A)
            flat = x.reshape(-1)
            cost += self.q[A] * float(flat @ flat) / 2
            for axis, F in enumerate(faces_of(A)):
                margins[self.place[A, F]] = x.sum(axis=axis).reshape(-1)
            cells.append(np.flatnonzero(flat))
        return Fit(prices, cost, margins, cells)

    def pulls(self, prices: Dense, wanted: Parts) -> dict[Columns, Dense]:
        """What prices on faces do to these components."""
        found = {C: np.zeros_like(part) for C, part in wanted.items()}
        for F in self.shape:
            for C, part in split(self.all_of(prices, F).sum(axis=0).reshape(self.shape[F]), F).items():
                found[C] += part / spread(C, F, self.sizes)
        return found

    def spread_out(self, parts: Parts) -> Dense:
        """The faces that components make, in every copy."""
        found = np.empty(self.length)
        for F in self.shape:
            self.all_of(found, F)[:] = joined(parts, F, self.sizes).reshape(-1)
        return found

    def incidence(self, cells: list[Indices]) -> sparse.csr_array:
        """Which faces every cell above 0 is counted in, over √q."""
        columns, values, lengths = [], [], []
        for A, own in zip(self.t, cells, strict=True):
            at = np.unravel_index(own, self.t[A].shape)
            faces = [
                self.place[A, F].start + np.ravel_multi_index(at[:axis] + at[axis + 1 :], self.shape[F])
                if F
                else np.full(len(own), self.place[A, F].start)
                for axis, F in enumerate(faces_of(A))
            ]
            columns.append(np.stack(faces, axis=1).reshape(-1))
            values.append(np.full(len(A) * len(own), self.q[A] ** -0.5))
            lengths.append(np.full(len(own), len(A)))
        ends = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        entries = (np.concatenate(values), np.concatenate(columns), ends)
        return sparse.csr_array(entries, shape=(len(ends) - 1, self.length))


def newton_step(
    faces: Faces, shared: Shared, fit: Fit, gradient: Dense, *, damping: float, accuracy: float, most: int
) -> Dense:
    """Where the gradient would be 0 if the second derivative stayed, with `damping` cells more on every face.

    By conjugate gradients, preconditioned by its diagonal and, exactly, by how the copies of a face hang together
    through what they share.
    """
    if not gradient.any():  # and no damping either, so that a face without cells has no second derivative
        return np.zeros(faces.length)
    S = faces.incidence(fit.cells)
    transposed = sparse.csr_array(S.T)
    added = damping * faces.unit
    diagonal = np.asarray(transposed.power(2).sum(axis=1)).reshape(-1) + added
    nothing = {C: np.zeros_like(part) for C, part in shared.held.items()}
    still = Shared({C: np.zeros_like(c) for C, c in shared.centres.items()}, shared.stiffness, nothing)
    every = {**still.centres, **nothing}

    def curved(d: Dense) -> Dense:
        found = transposed @ (S @ d) + added * d
        if still.centres:
            found += faces.spread_out(still.pulled(faces.pulls(d, every)))
        return np.asarray(found)

    precondition = _preconditioner(faces, shared, diagonal)
    d, r = np.zeros(faces.length), -gradient
    s = precondition(r)
    q, old, first = s.copy(), float(r @ s), float(np.linalg.norm(r))
    for _ in range(most):
        Hq = curved(q)
        curvature = float(q @ Hq)
        if curvature <= 0:  # the gradient is 0 already
            break
        length = old / curvature
        d += length * q
        r -= length * Hq
        if np.linalg.norm(r) <= accuracy * first:
            break
        s = precondition(r)
        new = float(r @ s)
        q *= new / old
        q += s
        old = new
    return d


def _preconditioner(faces: Faces, shared: Shared, diagonal: Dense) -> Callable[[Dense], Dense]:
    """Of diag + 1 1ᵀ / stiffness over the copies of every face, by Sherman and Morrison."""
    inverse = 1 / diagonal
    sums = {F: shared.stiffness[F] + faces.all_of(inverse, F).sum(axis=0) for F in faces.shape if F in shared.stiffness}

    def solve(r: Dense) -> Dense:
        found = inverse * r
        for F, together in sums.items():
            own = faces.all_of(found, F)
            own -= faces.all_of(inverse, F) * (own.sum(axis=0) / together)
        return found

    return solve
