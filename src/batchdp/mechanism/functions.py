"""Linear functions of a record over many columns, in coordinates that are the same for every batch.

A function of the columns C is the sum over A ⊆ C of its components: averaged over the columns outside A, and in those
of A a combination of contrasts, which are orthonormal and add up to 0. Components of different sets of columns are
independent, whatever batch they come from, and most measurements of whole tables do not tie them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from math import prod

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import Dense, Indices, assemble

Column = tuple[str, str]
"""A column of a table."""
Component = tuple[str, tuple[Column, ...]]
"""A table, and the columns whose values matter."""
Functions = dict[Component, Dense]
"""Coordinates by component, function × contrasts of every column in their order; what is not there is 0."""

MOST_ENTRIES = 40_000_000
"""Of functions on combinations of values that are looked at together."""
MOST_COORDINATES = 4_000
"""Of components that are tied together, or measurements that tie them."""
ROUNDING = 1e-13
"""Of a function: what is left of a component where there is none."""
TIED = 1e-9
"""Of two components' information, in proportion: less is rounding."""
RANK = 1e-10
"""Of information, in proportion to the largest: below, integers differ from what they stand for, and no more."""

FAINT = 1e-3
"""Of the size of a measured coordinate, in proportion to the largest: what is less is not brought to the same size."""


def contrasts(values: int) -> Dense:
    """Orthonormal columns that add up to 0, as many as values less one."""
    H = np.zeros((values, max(0, values - 1)))
    for k in range(values - 1):
        H[: k + 1, k], H[k + 1, k] = 1.0, -(k + 1.0)
    return np.asarray(H / np.sqrt(np.arange(1, values) * np.arange(2, values + 1)))


def coordinates(mixture: sparse.csr_array) -> Dense:
    """From what a function is on a column's own atoms to its mean and contrasts on finer ones: own × coordinate."""
    fine = mixture.shape[0]
    return np.asarray(mixture.T @ np.column_stack([np.full(fine, 1 / fine), contrasts(fine)]))


def expand(table: str, columns: Sequence[tuple[Column, Dense]], values: Dense) -> Functions:
    """Functions in coordinates, from what they are on all combinations of own atoms: function × combination.

    Args:
        table: that they are about.
        columns: that they look at, each with its `coordinates`.
        values: the last column fastest.
    """
    rows, sizes = len(values), [len(to) for _, to in columns]
    if rows * max(prod(sizes), prod(to.shape[1] for _, to in columns)) > MOST_ENTRIES:
        named = ", ".join(name for (_, name), _ in columns)
        raise WorkloadError(
            f"{rows:,} measurements of {named} have too many combinations of values to be combined; ask for fewer "
            "columns at once, or coarser values"
        )
    found = values.reshape(rows, *sizes)
    size = np.sqrt(np.square(values).sum(axis=1)).reshape(rows, *(1,) * len(sizes))
    for axis, (_, to) in enumerate(columns, 1):
        found = np.moveaxis(np.tensordot(found, to, axes=(axis, 0)), -1, axis)
    found = np.where(np.abs(found) <= ROUNDING * size, 0.0, found)
    order = sorted(range(len(columns)), key=lambda i: columns[i][0])
    made: Functions = {}
    for many in range(len(columns) + 1):
        for own in combinations(order, many):
            part = found[:, *(slice(1, None) if i in own else 0 for i in range(len(columns)))]
            if np.any(part):
                kept = sorted(own)
                turned = part.transpose(0, *(1 + kept.index(i) for i in own))
                made[table, tuple(columns[i][0] for i in own)] = turned
    return made


def times(one: Functions, other: Functions) -> Functions:
    """All products of functions that look at different columns; those of the second vary fastest."""
    found: Functions = {}
    for (table, first), F in one.items():
        for (_, second), G in other.items():
            columns = (*first, *second)
            product = np.moveaxis(np.multiply.outer(F, G), F.ndim, 1).reshape(
                len(F) * len(G), *F.shape[1:], *G.shape[1:]
            )
            order = sorted(range(len(columns)), key=columns.__getitem__)
            found[table, tuple(sorted(columns))] = product.transpose(0, *(1 + i for i in order))
    return found


def added(parts: Iterable[Functions]) -> Functions:
    """Sums of functions, row by row."""
    found: Functions = {}
    for part in parts:
        for component, F in part.items():
            found[component] = found[component] + F if component in found else F
    return found


def _flat(F: Dense) -> Dense:
    return F.reshape(len(F), -1)


@dataclass(frozen=True, eq=False)
class Rows:
    """Some functions, one after the other: parts, each with the number of its first one."""

    count: int
    parts: tuple[tuple[int, Functions], ...] = field(repr=False)

    @cached_property
    def components(self) -> dict[Component, int]:
        """All that occur, each with how many coordinates it has."""
        return {component: _flat(F).shape[1] for _, part in self.parts for component, F in part.items()}

    def on(self, components: Mapping[Component, slice]) -> tuple[Indices, Dense]:
        """Which functions have any of these components, and their coordinates there."""
        size = max((own.stop for own in components.values()), default=0)
        numbers, found = [np.zeros(0, dtype=np.int64)], [np.zeros((0, size))]
        for start, part in self.parts:
            own = [component for component in part if component in components]
            if own:
                F = np.zeros((len(part[own[0]]), size))
                for component in own:
                    F[:, components[component]] = _flat(part[component])
                numbers.append(start + np.arange(len(F)))
                found.append(F)
        return np.concatenate(numbers), np.concatenate(found)

    def matrix(self, places: Mapping[Component, slice]) -> sparse.csr_array:
        """All coordinates: function × coordinate, with the components at these places."""
        pieces = []
        for start, part in self.parts:
            for one, F in part.items():
                pieces.append((_flat(F), start + np.arange(len(F)), np.arange(places[one].start, places[one].stop)))
        return assemble(pieces, (self.count, max((own.stop for own in places.values()), default=0)))

    def chosen(self, numbers: Indices) -> Rows:
        """Some of them, by their numbers in ascending order."""
        made = []
        for start, part in self.parts:
            size = len(next(iter(part.values()), ()))
            first, last = np.searchsorted(numbers, (start, start + size)).tolist()
            if own := {one: F[numbers[first:last] - start] for one, F in part.items() if first < last}:
                made.append((first, own))
        return Rows(len(numbers), tuple(made))


def stacked(rows: Sequence[Rows]) -> Rows:
    """All of them, one after the other."""
    starts = np.cumsum([0, *(one.count for one in rows)]).tolist()
    parts = tuple((first + start, part) for first, one in zip(starts, rows, strict=False) for start, part in one.parts)
    return Rows(starts[-1], parts)


def placed(widths: Mapping[Component, int]) -> dict[Component, slice]:
    """The places of all components' coordinates, one after the other."""
    ends = np.cumsum([0, *widths.values()]).tolist()
    return {component: slice(*pair) for component, pair in zip(widths, pairwise(ends), strict=True)}


def _overlap(F: Dense, G: Dense) -> float:
    """How much the same functions are about both components: the largest entry of FᵀG, or the root of all squares."""
    if F.shape[1] * G.shape[1] <= MOST_ENTRIES // 10:
        return float(np.abs(F.T @ G).max(initial=0.0))
    return float(np.sqrt(max(0.0, float(((F @ F.T) * (G @ G.T)).sum()))))


def tied(rows: Rows) -> Iterator[dict[Component, slice]]:
    """Sets of components that some measurement ties together, each with the places of its coordinates."""
    place = {component: i for i, component in enumerate(rows.components)}
    links = []
    for _, part in rows.parts:
        sizes = {component: float(np.linalg.norm(F)) for component, F in part.items()}
        for one, other in combinations(part, 2):
            if _overlap(_flat(part[one]), _flat(part[other])) > TIED * sizes[one] * sizes[other]:
                links.append((place[one], place[other]))
    ends = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = sparse.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(len(place), len(place)))
    _, label = connected_components(graph, directed=False)
    for number in range(int(label.max(initial=-1)) + 1):
        own = placed({one: rows.components[one] for one, i in place.items() if label[i] == number})
        many = max((at.stop for at in own.values()), default=0)
        measured = sum(len(next(iter(part.values()))) for _, part in rows.parts if part.keys() & own.keys())
        if min(many, measured) > MOST_COORDINATES or (many > MOST_COORDINATES and many * measured > MOST_ENTRIES):
            raise WorkloadError(
                f"the measurements tie {many:,} numbers together, more than {MOST_COORDINATES:,}; ask for fewer "
                "columns at once, or coarser values"
            )
        yield own


def within(measured: Dense, *others: Dense) -> tuple[Dense, ...]:
    """Functions in coordinates of what some measurements span, where these are fewer; the others lose the rest."""
    if measured.shape[0] >= measured.shape[1]:
        return (measured, *others)
    span = np.linalg.qr(measured.T)[0]
    return tuple(one @ span for one in (measured, *others))


def inverse(information: Dense) -> Dense:
    """M⁺, where directions without information stay without."""
    size = np.sqrt(np.maximum(np.diag(information), 0.0))
    size = np.maximum(size, FAINT * (size.max(initial=0.0) or 1.0))
    eigenvalues, V = np.linalg.eigh(information / np.outer(size, size))
    kept = eigenvalues > RANK * max(1.0, float(eigenvalues.max(initial=0.0)))
    root = V[:, kept] / np.sqrt(eigenvalues[kept]) / size[:, None]
    return np.asarray(root @ root.T)


def least_squares(measured: Rows, asked: Rows) -> tuple[Dense, Dense]:
    """B, asked × measured, for measurements with noise of variance 1; and how far B L is from what is asked.

    Per record at the most: a component is at most its norm.
    """
    if asked.count * measured.count > MOST_ENTRIES:
        raise WorkloadError(f"{asked.count:,} answers from {measured.count:,} measurements are too many to be combined")
    B, missed = np.zeros((asked.count, measured.count)), np.zeros(asked.count)
    known = set(measured.components)
    for part in tied(measured):
        (places, L), (rows, W) = measured.on(part), asked.on(part)
        near, wanted = within(L, W)
        M = near.T @ near
        X = inverse(M)
        own = wanted @ X
        own += (wanted - own @ M) @ X  # what rounding left
        own = own @ near.T
        B[np.ix_(rows, places)] += own
        E = W - own @ L
        for one in part.values():
            np.add.at(missed, rows, np.sqrt(np.square(E[:, one]).sum(axis=1)))
    for start, functions in asked.parts:
        for component, F in functions.items():
            if component not in known:
                missed[start : start + len(F)] += np.sqrt(np.square(_flat(F)).sum(axis=1))
    return B, missed
