"""A damped Newton step of the prices, by conjugate gradients on the second derivative.

The preconditioner has two parts, which add up: the diagonal together with how the copies of a face hang together
through the component that they share, by Sherman and Morrison; and for every table by itself the prices that are
functions of one column, exactly. No shared component resists these, because one-way margins are held, so that without
the second part steps take ten times as many products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from batchdp.consistency.components import Columns, along
from batchdp.consistency.faces import Faces, Fit, Shared, faces_of

Dense = NDArray[np.float64]

SAFE = 1e-9
"""Added to the diagonal of what is factorised, as a share: far above rounding."""


def newton_step(
    faces: Faces, shared: Shared, fit: Fit, gradient: Dense, *, damping: float, accuracy: float, most: int
) -> tuple[Dense, int]:
    """Where the gradient would be 0 if the second derivative stayed, with `damping` cells more on every face.

    Beside the step: how many products with the second derivative it took.
    """
    added = damping * faces.unit
    counted = faces.weights_of(fit.weights)
    nothing = {C: np.zeros_like(part) for C, part in shared.held.items()}
    still = Shared({C: np.zeros_like(c) for C, c in shared.centres.items()}, shared.stiffness, nothing)
    every = {**still.centres, **nothing}

    def curved(d: Dense) -> Dense:
        found = faces.weighed(fit.weights, d) + added * d
        if still.centres:
            found += faces.spread_out(still.pulled(faces.pulls(d, every)))
        return np.asarray(found)

    precondition = _preconditioner(faces, shared, counted, fit, damping)
    d, r = np.zeros(faces.length), -gradient
    s = precondition(r)
    q, old = s.copy(), float(r @ s)
    enough, products = accuracy**2 * old, 0
    while products < most:
        products += 1
        Hq = curved(q)
        curvature = float(q @ Hq)
        if curvature <= 0:  # the gradient is 0 already
            break
        length = old / curvature
        d += length * q
        r -= length * Hq
        s = precondition(r)
        new = float(r @ s)
        if new <= enough:
            break
        q *= new / old
        q += s
        old = new
    return d, products


def _preconditioner(faces: Faces, shared: Shared, counted: Dense, fit: Fit, damping: float) -> Callable[[Dense], Dense]:
    inverse = 1 / (counted + damping * faces.unit)
    together = {
        F: shared.stiffness[F] + faces.all_of(inverse, F).sum(axis=0) for F in faces.shape if F in shared.stiffness
    }
    single = [_OneWay.of(faces, A, counted, fit, damping) for A in faces.t]

    def solve(r: Dense) -> Dense:
        found = inverse * r
        for F, sums in together.items():  # diag + 1 1ᵀ / stiffness over the copies
            own = faces.all_of(found, F)
            own -= faces.all_of(inverse, F) * (own.sum(axis=0) / sums)
        for one in single:
            one.add(faces, r, found)
        return found

    return solve


@dataclass(frozen=True, eq=False)
class _OneWay:
    """A table's prices that are functions of one column each, spread evenly over the faces that have it."""

    columns: Columns
    parts: list[slice]
    """Of the unknowns, one for every column."""
    factor: tuple[Dense, bool]

    @classmethod
    def of(cls, faces: Faces, A: Columns, counted: Dense, fit: Fit, damping: float) -> _OneWay:
        """From what the cells, by weight, that two values of two columns have in common count for."""
        sizes = [faces.sizes[i] for i in A]
        ends = np.cumsum([0, *sizes])
        parts = [slice(int(first), int(last)) for first, last in pairwise(ends)]
        own, cells = faces.of(counted, A), fit.weights[A] / faces.q[A] if len(A) == 2 else None
        H, diagonal = np.zeros((ends[-1], ends[-1])), np.empty(ends[-1])
        for a, part in enumerate(parts):
            for b in range(a):
                H[parts[b], part] = _sums(own, cells, (b, a))  # the upper triangle
            entries = sum(prod(faces.shape[F]) for F in faces_of(A) if A[a] in F) / sizes[a]
            diagonal[part] = _sums(own, cells, (a,)) + damping / faces.q[A] * entries / (len(A) - 1) ** 2
        usual = float(diagonal.mean())
        for part in parts[1:]:  # adding to one column's prices what another's lose changes nothing
            between = np.zeros(len(H))
            between[parts[0]], between[part] = 1.0, -1.0
            H += usual / float(between @ between) * np.outer(between, between)
        H[np.diag_indices_from(H)] += diagonal * (1 + SAFE)
        return cls(A, parts, cho_factor(H, overwrite_a=True, check_finite=False))

    def add(self, faces: Faces, r: Dense, to: Dense) -> None:
        """The solution for a right-hand side, in place."""
        k, pulls = len(self.columns), faces.of(r, self.columns)
        right = np.zeros(self.parts[-1].stop)
        for axis, face in enumerate(pulls):
            for place, a in enumerate(a for a in range(k) if a != axis):
                right[self.parts[a]] += face.sum(axis=tuple(other for other in range(k - 1) if other != place))
        found = cho_solve(self.factor, right / (k - 1) ** 2, check_finite=False)
        for axis, face in enumerate(faces.of(to, self.columns)):
            for place, a in enumerate(a for a in range(k) if a != axis):
                face += along(found[self.parts[a]], k - 1, place)


def _sums(faces: list[Dense], cells: Dense | None, kept: tuple[int, ...]) -> Dense:
    """Over all axes of a table but those that are kept, from its faces; a table of two columns is its own sum."""
    rest = [axis for axis in range(len(faces)) if axis not in kept]
    if not rest:
        assert cells is not None
        return cells
    first, *others = rest
    return np.asarray(faces[first].sum(axis=tuple(axis - (axis > first) for axis in others)))
