"""A damped Newton step of the prices, by conjugate gradients on the second derivative.

The preconditioner has two parts, which add up: the diagonal together with how the copies of a face hang together
through the component that they share, by Sherman and Morrison; and for every table by itself the prices that are
functions of one column, exactly. No shared component resists these, because one-way margins are held, so that without
the second part steps take ten times as many products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from batchdp.linalg.matrix import Dense
from batchdp.release.consistency.faces import (
    Columns,
    Faces,
    Fit,
    Parts,
    Shared,
    closure,
    faces_of,
    join_components,
    lay_along,
    margin_along,
    project,
    split_table,
)

SAFE = 1e-9
"""Added to the diagonal of what is factorised, as a share: far above rounding."""


def newton_step(
    faces: Faces, shared: Shared, fit: Fit, gradient: Dense, *, damping: float, accuracy: float, most: int
) -> tuple[Dense, int]:
    """Where the gradient would be 0 if the second derivative stayed, with `damping` cells more on every face.

    Beside the step: how many products with the second derivative it took.
    """
    added = damping * faces.unit
    counted = faces.weighed(fit.weights)
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
                H[parts[b], part] = _sum_faces(own, cells, (b, a))  # the upper triangle
            entries = sum(prod(faces.shape[F]) for F in faces_of(A) if A[a] in F) / sizes[a]
            diagonal[part] = _sum_faces(own, cells, (a,)) + damping / faces.q[A] * entries / (len(A) - 1) ** 2
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
                face += lay_along(found[self.parts[a]], k - 1, place)


def _sum_faces(faces: list[Dense], cells: Dense | None, kept: tuple[int, ...]) -> Dense:
    """Over all axes of a table but those that are kept, from its faces; a table of two columns is its own sum."""
    rest = [axis for axis in range(len(faces)) if axis not in kept]
    if not rest:
        assert cells is not None
        return cells
    first, *others = rest
    return np.asarray(faces[first].sum(axis=tuple(axis - (axis > first) for axis in others)))


# ── Tables that nearly agree made to agree exactly, at any time: for a search that is stopped.
#
# Every table first gets its one-way margins (`fit_margins`), then the averages of the margins that it shares, which
# may leave cells below 0. What is missing there is added to the whole as if it were records whose other columns are
# spread as these columns' margins are. Sums of non-negative tables that agree are non-negative and agree; scaled
# until no margin is too large but for a slack, and filled up with the product of what the margins then lack, they
# have the same total and, but for that slack, the same one-way margins as before.


def fit_margins(table: Dense, margins: list[Dense]) -> Dense:
    """A non-negative table near this one with these one-way margins, which have one total: what is too much is scaled
    down axis by axis, and what then lacks is added as a product (Altschuler, Weed and Rigollet 2017)."""
    found = table.copy()
    for axis, wanted in enumerate(margins):
        there = margin_along(found, axis)
        found *= lay_along(np.divide(wanted, there, out=np.ones_like(wanted), where=there > wanted), found.ndim, axis)
    lacking = [np.maximum(wanted - margin_along(found, axis), 0.0) for axis, wanted in enumerate(margins)]
    return np.asarray(found + _product(lacking))


def lift(
    tables: Parts, margins: Mapping[int, Dense], slack: Mapping[int, float] | None = None
) -> tuple[dict[Columns, Dense], float]:
    """Tables that agree exactly and are not negative, and which share of all records had to be moved for that.

    Args:
        tables: non-negative, over two columns or more.
        margins: of every column, at least 0, all with one total above 0.
        slack: how many records of a column may be where its margin has none for them; none where left out.
    """
    entangled = [A for A in tables if len(A) > 2]  # tables of two columns share no more than their margins
    found: dict[Columns, Dense] = {}
    moved, settled = 0.0, dict(margins)
    if entangled:
        found, moved = _find_entangled({A: tables[A] for A in entangled}, margins, slack or {})
        settled |= {i: margin_along(x, axis) for A, x in found.items() for axis, i in enumerate(A)}
    for A, x in tables.items():
        if A not in found:
            found[A] = fit_margins(x, [settled[i] for i in A])
    return found, moved


def _find_entangled(
    tables: Parts, margins: Mapping[int, Dense], slack: Mapping[int, float]
) -> tuple[dict[Columns, Dense], float]:
    """The tables that share more than the margins of one column."""
    found = {A: fit_margins(x, [margins[i] for i in A]) for A, x in tables.items()}
    total = float(next(iter(margins.values())).sum())
    shares = {i: margin / total for i, margin in margins.items()}
    sizes = tuple(len(margins[i]) if i in margins else 0 for i in range(max(margins) + 1))
    _agree(found, list(found), shares)
    added = {C: np.zeros([sizes[i] for i in C]) for C in closure(found)}
    for A, x in found.items():
        for C, part in split_table(np.maximum(-x, 0.0), A, shares).items():
            added[C] += part
    grown = {i: margins[i] + join_components(added, (i,), sizes, shares) for i in {i for A in found for i in A}}
    most = total / (total + float(added[()]))
    kept = min(_scale(own, margins[i], slack.get(i, 0.0), most) for i, own in grown.items())
    lacking = {i: np.maximum(margins[i] - kept * own, 0.0) for i, own in grown.items()}
    missing = total - kept * (total + float(added[()]))
    lacking = {i: own * (missing / max(float(own.sum()), 1e-300)) for i, own in lacking.items()}
    for A, x in found.items():
        own = kept * (x + join_components(added, A, sizes, shares)) + _product([lacking[i] for i in A])
        found[A] = np.maximum(own, 0.0)  # what rounding leaves
    return found, 1.0 - kept


def _scale(grown: Dense, margin: Dense, slack: float, most: float) -> float:
    """The largest scale up to `most` at which a grown margin exceeds the right one by no more than the slack in all."""
    allowed = slack + 1e-12 * float(margin.sum())
    low, high = 0.0, 2 * most
    while high - low > 1e-12 * most:
        middle = (low + high) / 2
        if middle <= most and float(np.maximum(middle * grown - margin, 0.0).sum()) <= allowed:
            low = middle
        else:
            high = middle
    return low


def _agree(tables: dict[Columns, Dense], entangled: list[Columns], shares: Mapping[int, Dense]) -> None:
    """In place: every margin of two columns or more becomes its average over the tables, the small ones first."""
    for C in closure(entangled):
        own = [A for A in entangled if set(C) < set(A)]
        if len(C) < 2 or len(own) + (C in entangled) < 2:
            continue
        margins = [project(tables[A], A, C) for A in own]
        average = np.mean(margins, axis=0)
        for A, margin in zip(own, margins, strict=True):
            difference = average - margin
            for axis, i in enumerate(A):
                if i not in C:
                    difference = np.expand_dims(difference, axis)
                    difference = difference * lay_along(shares[i], difference.ndim, axis)
            tables[A] = tables[A] + difference


def _product(margins: list[Dense]) -> Dense:
    """The table with these margins in which columns have nothing to do with one another."""
    total = float(np.mean([margin.sum() for margin in margins]))
    if total <= 0:
        return np.zeros([len(margin) for margin in margins])
    parts = [lay_along(margin / total, len(margins), axis) for axis, margin in enumerate(margins)]
    return np.asarray(total * prod(parts[1:], start=parts[0]))
