"""Whole numbers that still add up.

`round_controlled`: every cell goes to the whole number below or above, and so does every total of two nested
families, such as the rows and the columns of a table, or a hierarchy. The coefficients of two such families are
totally unimodular (they are a network's), so that a corner of the linear program is whole, and there is one because
the unrounded cells are a solution. Three two-way tables have no such guarantee: they can agree and yet not be
roundable.

`round_onto_margins`: a table of any number of columns gets whole margins that are given. From the cells rounded down,
every margin has as many counts to give as every other; a count given to any cell whose margins all have one left
keeps it so. That never gets stuck, whatever the order; the largest remainders come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from batchdp.linalg.matrix import Dense
from batchdp.linalg.matrix import Indices as Integers
from batchdp.release.consistency.faces import margin_along

NEARLY = 1e-7
"""What is so near to a whole number is one."""
MOST_PROGRAM = 150_000
"""Cells between two whole numbers that a linear program is solved for."""
CHUNK = 4096


def round_margin(values: Dense, total: int) -> Integers:
    """Every value rounded down or up such that they add up to this; by the largest remainders.

    The total is what all values add up to, rounded down or up.
    """
    below, rest = _round_down(values)
    missing = total - int(below.sum())
    while missing > 0:
        first = np.argsort(-rest, kind="stable")[:missing]
        below[first] += 1
        rest[first] -= 1
        missing -= len(first)
    return below


def nested_families(totals: sparse.csr_array) -> tuple[list[int], list[int], list[int]]:
    """The rows as two families, of which any two members are nested or apart, and those that fit into neither."""
    lengths = np.diff(totals.indptr)
    families: tuple[list[int], list[int], list[int]] = ([], [], [])
    innermost = [np.full(totals.shape[1], -1), np.full(totals.shape[1], -1)]
    for row in np.argsort(-lengths, kind="stable"):
        own = totals.indices[totals.indptr[row] : totals.indptr[row + 1]]
        if len(own) == 0:
            continue
        fitting = next((f for f in (0, 1) if np.all(innermost[f][own] == innermost[f][own[0]])), 2)
        families[fitting].append(int(row))
        if fitting < 2:
            innermost[fitting][own] = row
    return families


def round_controlled(values: Dense, totals: sparse.csr_array) -> tuple[Integers, list[int]]:
    """Cells rounded to a neighbour such that totals are, too; and the totals for which that was not asked.

    Args:
        values: of the cells, none negative.
        totals: 0 and 1, a total a row.
    """
    first, second, rest = nested_families(totals)
    below, remainder = _round_down(values)
    there = np.flatnonzero(remainder > 0)
    if len(there) == 0:
        return below, rest
    raised = None
    if len(there) <= MOST_PROGRAM:
        T = sparse.csr_array(totals[sorted(first + second)])[:, there]
        exact = T @ remainder[there]
        low, high = np.floor(exact + NEARLY), np.ceil(exact - NEARLY)
        raised = _find_corner(1 - 2 * remainder[there], T, low, high)
    if raised is None:  # too many cells, or beyond what rounding errors of a double allow
        return round_margin(values, round(float(values.sum()))), list(range(totals.shape[0]))
    below[there] += raised
    return below, rest


def round_onto_margins(values: Dense, margins: Sequence[Integers]) -> Integers:
    """A table of whole numbers with these one-way margins, near to the values; none of them negative.

    Every margin is that of the values, rounded down or up, and all have one total.
    """
    below, remainder = _round_down(values)
    left = [margin - margin_along(below, axis) for axis, margin in enumerate(margins)]
    if values.ndim == 2 and np.count_nonzero(remainder) <= MOST_PROGRAM:
        raised = _raise_cells(remainder, left)
        if raised is not None:
            return below + raised
    return _give_out(below, remainder, left)


def _round_down(values: Dense) -> tuple[Integers, Dense]:
    """Rounded down, and what that leaves off; what is nearly whole is whole."""
    near = np.rint(values)
    values = np.where(np.abs(values - near) <= NEARLY, near, values)
    below = np.floor(values)
    return below.astype(np.int64), values - below


def _find_corner(cost: Dense, totals: sparse.csr_array, low: Dense, high: Dense) -> Integers | None:
    """Which cells to raise: the corner of the program with the least cost, if it is whole."""
    A: Any = sparse.csc_array(sparse.vstack([totals, -totals]))
    found = linprog(cost, A_ub=A, b_ub=np.concatenate([high, -low]), bounds=(0, 1), method="highs-ds")
    if found.x is None:
        return None
    raised: Integers = np.rint(found.x).astype(np.int64)
    sums = totals @ raised
    return raised if np.all((sums >= low) & (sums <= high)) else None


def _raise_cells(remainder: Dense, left: Sequence[Integers]) -> Integers | None:
    """Which cells of a two-way table to raise for the margins to be met; None where raising by one does not do."""
    places = np.nonzero(remainder > 0)
    n = np.arange(len(places[0]))
    if any(np.any(own < 0) for own in left):
        return None
    if len(n) == 0:
        return np.zeros(remainder.shape, dtype=np.int64) if not any(own.any() for own in left) else None
    one = np.ones(len(n))
    T = sparse.vstack(
        [sparse.csr_array((one, (i, n)), (k, len(n))) for i, k in zip(places, remainder.shape, strict=True)]
    )
    wanted = np.concatenate(left).astype(np.float64)
    raised = _find_corner(1 - 2 * remainder[places], sparse.csr_array(T), wanted, wanted)
    if raised is None:
        return None
    found = np.zeros(remainder.shape, dtype=np.int64)
    found[places] = raised
    return found


def _give_out(below: Integers, remainder: Dense, left: Sequence[Integers]) -> Integers:
    """Counts to the cells with the largest remainders as long as their margins have one left; then to any such cell."""
    whole, left = below.copy(), [own.copy() for own in left]
    _take_back(whole, left)
    flat, shape = remainder.reshape(-1), remainder.shape
    order = np.flatnonzero(flat > 0)
    order = order[np.argsort(-flat[order], kind="stable")]
    for start in range(0, len(order), CHUNK):
        places = np.unravel_index(order[start : start + CHUNK], shape)
        alive = np.all([own[place] > 0 for own, place in zip(left, places, strict=True)], axis=0)
        for place in zip(*(axis[alive].tolist() for axis in places), strict=True):
            if all(own[i] > 0 for own, i in zip(left, place, strict=True)):
                whole[place] += 1
                for own, i in zip(left, place, strict=True):
                    own[i] -= 1
    while all(own.any() for own in left):
        place = tuple(int(np.argmax(own)) for own in left)
        given = min(int(own[i]) for own, i in zip(left, place, strict=True))
        whole[place] += given
        for own, i in zip(left, place, strict=True):
            own[i] -= given
    return whole


def _take_back(whole: Integers, left: Sequence[Integers]) -> None:
    """Where cells that were nearly whole make more than their margin, by rounding: one less for the largest of them."""
    for axis, own in enumerate(left):
        while (over := int(np.argmin(own))) >= 0 and own[over] < 0:
            slice_ = np.moveaxis(whole, axis, 0)[over]
            inside = [int(i) for i in np.unravel_index(int(np.argmax(slice_)), slice_.shape)]
            place = (*inside[:axis], over, *inside[axis:])
            whole[place] -= 1
            for other, i in zip(left, place, strict=True):
                other[i] += 1
