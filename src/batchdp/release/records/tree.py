"""Records from a junction tree: the model of the greatest entropy with the tables that say most, as far as it is small.

Columns are taken away one after another, each with those that it is still beside: a clique. Its parent is the clique of
the first of these that is taken away. Iterative proportional fitting gives every clique its tables while it walks
along the tree, so that what it changes is always a margin of the whole model. Records are drawn in the opposite order,
each column given those of its clique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import inf, prod

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.release.consistency.rounding import round_margin
from batchdp.release.records.fitting import Codes, Known
from batchdp.text import Outcome, Progress

Columns = tuple[int, ...]
Order = list[tuple[int, Columns]]
"""Columns as they are taken away, each with those that it is beside, in ascending order."""

MOST_CELLS = 1_000_000
"""Of all cliques together, unless a tree of pairs has more."""
MOST_REFUSED = 300
"""Tables that do not fit in, after which no more are tried."""
MOST_ROUNDS = 50
ENOUGH = 1e-9
"""How far a table may be off, as a share of all records."""
LITTLE = 0.01
"""The share of it that a round takes off from which on the tables have nothing in common that is closer."""
GOLDEN = (5**0.5 - 1) / 2


def draw_from_tree(
    margins: Sequence[Dense],
    known: Mapping[Columns, Known],
    n: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[Codes, Outcome]:
    """Records × columns with whole margins that fit, and how the fit ended; Ctrl-C leaves the best so far.

    Args:
        margins: shares of every column's values.
        known: tables of several columns, by these in ascending order.
        n: how many records.
        rng: what is random comes from it.
        progress: called with (share, what is being done).
    """
    chosen, order = choose_tables([len(own) for own in margins], known, n)
    model = JunctionTree(margins, {C: known[C].shares(margins) for C in chosen}, order)
    status = model.fit(progress)
    return model.draw(n, rng), status


def information(shares: Dense) -> float:
    """What a table says beyond its single columns, in nats."""
    apart = np.ones(())
    for axis in range(shares.ndim):
        own = shares.sum(axis=tuple(other for other in range(shares.ndim) if other != axis))
        apart = np.multiply.outer(apart, own)
    there = shares > 0
    return float((shares[there] * np.log(shares[there] / apart[there])).sum())


def choose_tables(sizes: Sequence[int], known: Mapping[Columns, Known], n: int) -> tuple[list[Columns], Order]:
    """The strongest tables whose cliques are small enough, and the order of these; first a tree of pairs.

    A table is as strong as what it says, less what chance alone would seem to say (Chow and Liu 1968, Akaike 1974).
    """
    strength = {C: information(own.groups) - own.groups.size / (2 * n) for C, own in known.items()}
    ranked = sorted(strength, key=lambda C: (-strength[C], C))
    chosen, part = list[Columns](), list(range(len(sizes)))
    for C in ranked:
        if len(C) == 2 and part[C[0]] != part[C[1]]:
            chosen.append(C)
            part = [part[C[0]] if own == part[C[1]] else own for own in part]
    order = _take_away(sizes, chosen)
    most = max(MOST_CELLS, sum(prod(sizes[i] for i in (column, *given)) for column, given in order))
    refused, left = 0, [C for C in ranked if strength[C] > 0 and C not in set(chosen)]
    for C in left:
        if not any({column, *given}.issuperset(C) for column, given in order):
            found = _take_away(sizes, [*chosen, C], most) if prod(sizes[i] for i in C) <= most else []
            if not found:
                refused += 1
                if refused == MOST_REFUSED:
                    break
                continue
            order = found
        chosen.append(C)
    return chosen, order


def _take_away(sizes: Sequence[int], chosen: Sequence[Columns], most: float = inf) -> Order:
    """Take columns away, the one with the smallest clique first; nothing if they have more cells than that."""
    beside: dict[int, set[int]] = {i: set() for i in range(len(sizes))}
    for one, other in (pair for C in chosen for pair in combinations(C, 2)):
        beside[one].add(other)
        beside[other].add(one)
    cells = {i: prod(sizes[j] for j in (i, *own)) for i, own in beside.items()}
    order, total = Order(), 0
    while cells:
        column = min(cells, key=lambda i: (cells[i], i))
        total += cells.pop(column)
        if total > most:
            return []
        given = beside.pop(column)
        order.append((column, tuple(sorted(given))))
        for i in given:
            beside[i] = (beside[i] | given) - {i, column}
            cells[i] = prod(sizes[j] for j in (i, *beside[i]))
    return order


class JunctionTree:
    """Shares of all values of every clique's columns, which agree with one another.

    Args:
        margins: shares of every column's values; at first, columns have nothing to do with one another.
        tables: shares that they should have, by columns in ascending order.
        order: the cliques.
    """

    def __init__(self, margins: Sequence[Dense], tables: Mapping[Columns, Dense], order: Order) -> None:
        self.margins, self.order = margins, order
        self.cliques = [tuple(sorted((column, *given))) for column, given in order]
        self.shares = []
        for C in self.cliques:
            own = np.ones(())
            for i in C:
                own = np.multiply.outer(own, margins[i])
            self.shares.append(own)
        place = {column: k for k, (column, _) in enumerate(order)}
        self.wanted: list[list[tuple[Columns, Dense]]] = [[] for _ in order]
        for C, table in tables.items():
            self.wanted[min(place[i] for i in C)].append((C, table))
        last = len(order) - 1
        self.walk = _walk([min((place[i] for i in given), default=last) for _, given in order[:last]])

    def fit(self, progress: Progress | None = None) -> Outcome:
        """Give cliques their tables until nothing comes closer; what cannot agree has the last word in turn."""
        before = inf
        try:
            for k in range(MOST_ROUNDS):
                if progress is not None:
                    progress(k / MOST_ROUNDS, "fitting a junction tree")
                off = max(map(self._visit, self.walk))
                if off < ENOUGH or off > (1 - LITTLE) * before:
                    return Outcome.CONVERGED
                before = off
        except KeyboardInterrupt:
            return Outcome.CANCELLED
        return Outcome.OUT_OF_ROUNDS

    def margin(self, k: int, columns: Columns) -> Dense:
        """The shares of some columns of a clique."""
        clique = self.cliques[k]
        return np.asarray(self.shares[k].sum(axis=tuple(a for a, i in enumerate(clique) if i not in columns)))

    def _visit(self, step: tuple[int, int]) -> float:
        """Bring what is new from one clique to the next, and give that its tables; how far they were off."""
        here, there = step
        common = tuple(i for i in self.cliques[there] if i in self.cliques[here])
        self._give(there, common, self.margin(here, common))
        return max((self._give(there, C, table) for C, table in self.wanted[there]), default=0.0)

    def _give(self, k: int, columns: Columns, wanted: Dense) -> float:
        now = self.margin(k, columns)
        ratio = np.divide(wanted, now, out=np.zeros_like(now), where=now > 1e-200)
        self.shares[k] *= ratio.reshape([len(self.margins[i]) if i in columns else 1 for i in self.cliques[k]])
        return float(np.abs(now - wanted).sum())

    def draw(self, n: int, rng: np.random.Generator) -> Codes:
        """Records × columns, with the margins, as whole numbers."""
        told = np.zeros((n, len(self.margins)), dtype=np.int32)
        for k in range(len(self.order) - 1, -1, -1):
            (column, given), clique, margin = self.order[k], self.cliques[k], self.margins[self.order[k][0]]
            shares = np.moveaxis(self.shares[k], clique.index(column), -1)
            before = np.zeros(n, dtype=np.int64)
            for i in given:
                before = before * len(self.margins[i]) + told[:, i]
            told[:, column] = _draw_given(before, shares.reshape(-1, len(margin)), margin, rng)
            give_margin(told[:, column], round_margin(margin * n, n), rng)
        return told


def _walk(parents: Sequence[int]) -> list[tuple[int, int]]:
    """Steps along all edges of a tree, there and back, from its last clique."""
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for child, parent in enumerate(parents):
        children[parent].append(child)
    path, stack, seen = list[int](), [len(parents)], set[int]()
    while stack:
        here = stack.pop()
        path.append(here)
        if here not in seen:
            seen.add(here)
            for child in children[here]:
                stack += [here, child]
    return list(pairwise(path)) or [(0, 0)]


def _draw_given(given: Indices, joint: Dense, margin: Dense, rng: np.random.Generator) -> Codes:
    """A value for every record, such that after each of the others every value comes as often as it should, rounded."""
    there, given, counts = np.unique(given, return_inverse=True, return_counts=True)
    joint = joint[there]
    rows = joint.sum(axis=1, keepdims=True)
    ends = np.cumsum(np.where(rows > 0, joint / np.maximum(rows, 1e-300), margin), axis=1)
    ends /= ends[:, -1:]
    # Rounded at a place of their own, which is spread evenly over the rows: where each has few, all together are right.
    offset = (rng.random() + GOLDEN * rng.permutation(len(there))) % 1
    reached = np.minimum(np.floor(ends * counts[:, None] + offset[:, None]), counts[:, None])
    reached[:, -1] = counts
    many = np.diff(reached, axis=1, prepend=0).astype(np.int64)
    found = np.empty(len(given), dtype=np.int32)
    order = np.argsort(given + rng.random(len(given)), kind="stable")
    found[order] = np.repeat(np.tile(np.arange(joint.shape[1]), len(joint)), many.reshape(-1))
    return found


def give_margin(values: Codes, margin: Indices, rng: np.random.Generator) -> None:
    """Change as few values as possible, at random, for each to come as often as it should."""
    surplus = np.bincount(values, minlength=len(margin)) - margin
    if not surplus.any():
        return
    order = rng.permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    starts = np.cumsum(np.bincount(values, minlength=len(margin))) - np.bincount(values, minlength=len(margin))
    place = np.arange(len(values)) - starts[values[order]]
    moved = order[place < np.maximum(surplus, 0)[values[order]]]
    values[moved] = rng.permutation(np.repeat(np.arange(len(margin)), np.maximum(-surplus, 0)))
