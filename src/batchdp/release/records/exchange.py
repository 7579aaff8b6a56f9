"""Records improved by exchanging values of one column between two of them, while their tables come closer.

A margin never changes by that. The distance is Σ w (c − t)², over the cells of all tables of several columns, where t
is the denoised count and w = (t + 1/4)^−1/2: between squares, which only the largest cells count for, and squares
over t, which chance in small ones drowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchdp.linalg.matrix import Dense, Indices
from batchdp.release.records.fitting import Codes, Fitting
from batchdp.text import Outcome, Progress

AT_ONCE = 64
"""Exchanges that are made at once at first, each as if it were the only one."""
LITTLE = 0.01
"""The share of the distance that a round takes off below which it is enough."""
LOOKED_UP = 50_000
"""Cells of every kind that one proposal of many exchanges looks at, such that they are near to the processor."""
MOST_WORK = 4_000_000_000
"""Cells that are looked at in all: some two minutes."""
SIGNS = (-1, 1, -1, 1)
"""Of two records that exchange a value, each leaves a cell and comes into another."""


@dataclass(frozen=True)
class _Moves:
    """Where the tables of one column have their cells: for every table the axis of this column, and the others."""

    own: Indices
    stride: Indices
    others: Indices
    strides: Indices
    """Place × table; axes that a table has not are the last one, which is always 0."""
    starts: Indices
    changed: Indices
    """All axes of the column."""


class Exchange:
    """Records, their tables less the denoised ones, and which cells every value of every record is counted in."""

    def __init__(self, fitting: Fitting, records: Codes) -> None:
        self.records, n = records, len(records)
        axes = fitting.axes
        self.groups = np.zeros((n, len(axes) + 1), dtype=np.int32)
        for a, axis in enumerate(axes):
            group = np.where(axis.group < 0, axis.rows, axis.group)  # in none: a row of its own, that does not count
            self.groups[:, a] = group[records[:, axis.column]]
        wide = [axis.rows + (not axis.complete) for axis in axes]
        off, weights, self.starts, shapes, at = [], [], [], [], 0
        self.tables = [table for table in fitting.tables if len(table.axes) > 1]
        for table in self.tables:
            shape = [wide[a] for a in table.axes]
            inside = tuple(slice(axes[a].rows) for a in table.axes)
            wanted, weight = np.zeros(shape), np.zeros(shape)
            wanted[inside] = np.maximum(table.counts, 0.0) * (n / fitting.total)
            weight[inside] = (wanted[inside] + 0.25) ** -0.5
            place = np.ravel_multi_index([self.groups[:, a] for a in table.axes], shape)
            now = np.bincount(place, minlength=wanted.size)
            off.append(now - wanted.reshape(-1))
            weights.append(weight.reshape(-1))
            self.starts.append(at)
            shapes.append(shape)
            at += wanted.size
        self.off = np.concatenate([np.zeros(0), *off])
        self.weights = np.concatenate([np.zeros(0), *weights])
        self.moves = {i: self._moves(fitting, i, shapes) for i in range(len(fitting.sizes))}
        self.at_once = dict.fromkeys(self.moves, AT_ONCE)
        self.work = 0

    def _moves(self, fitting: Fitting, column: int, shapes: list[list[int]]) -> _Moves:
        """Of the tables that look at a column."""
        changed = [a for a, axis in enumerate(fitting.axes) if axis.column == column]
        here = [t for t, table in enumerate(self.tables) if set(table.axes) & set(changed)]
        most = max((len(self.tables[t].axes) for t in here), default=1) - 1
        own, stride = np.zeros(len(here), dtype=np.int64), np.zeros(len(here), dtype=np.int64)
        others = np.full((most, len(here)), len(fitting.axes), dtype=np.int64)
        strides = np.zeros((most, len(here)), dtype=np.int64)
        for k, t in enumerate(here):
            along = np.append(np.cumprod(shapes[t][:0:-1])[::-1], 1)
            place = 0
            for a, s in zip(self.tables[t].axes, along.tolist(), strict=True):
                if a in changed:
                    own[k], stride[k] = a, s
                else:
                    others[place, k], strides[place, k] = a, s
                    place += 1
        starts = np.array([self.starts[t] for t in here], dtype=np.int64)
        return _Moves(own, stride, others, strides, starts, np.array(changed, dtype=np.int64))

    @property
    def distance(self) -> float:
        """What is made small."""
        return float(self.weights @ np.square(self.off))

    def _gains(self, moves: _Moves, r: Indices, s: Indices) -> tuple[Dense, list[Indices]]:
        """How much the distance grows by exchanging each of these pairs by itself; the cells that lose and win one."""
        one, other = self.groups[r], self.groups[s]
        rest = [moves.starts, moves.starts]
        for axis, stride in zip(moves.others, moves.strides, strict=True):
            rest = [place + groups[:, axis] * stride for place, groups in zip(rest, (one, other), strict=True)]
        a, b = one[:, moves.own] * moves.stride, other[:, moves.own] * moves.stride
        cells = [rest[0] + a, rest[0] + b, rest[1] + b, rest[1] + a]
        grows = np.zeros(a.shape)
        for place, sign in zip(cells, SIGNS, strict=True):
            grows += self.weights[place] * (2 * sign * self.off[place] + 1)
        grows[(rest[0] == rest[1]) | (a == b)] = 0.0
        self.work += 4 * grows.size
        return grows.sum(axis=1), cells

    def improve(self, column: int, rng: np.random.Generator) -> None:
        """Propose an exchange of a column to every pair of records in a random order; make those that gain."""
        moves, half = self.moves[column], len(self.records) // 2
        if not len(moves.own):
            return
        pairs = rng.permutation(len(self.records))[: 2 * half].reshape(2, half)
        many = max(1, LOOKED_UP // len(moves.own))
        for start in range(0, half, many):
            r, s = pairs[:, start : start + many]
            better = self._gains(moves, r, s)[0] < 0
            r, s = r[better], s[better]
            while len(r):
                done = self._make(column, r[: self.at_once[column]], s[: self.at_once[column]])
                r, s = r[done:], s[done:]

    def _make(self, column: int, r: Indices, s: Indices) -> int:
        """Make exchanges at once, if that gains, and say how many are done with; else fewer are made at once next.

        The distance changes by Σ w ((c' − t)² − (c − t)²) = Σ w (c' − c) ((c' − t) + (c − t)), where c' − c is a sum
        over the exchanges, and so is the whole.
        """
        moves, many = self.moves[column], len(r)
        grows, cells = self._gains(moves, r, s)
        better = np.flatnonzero(grows < 0)
        r, s, cells = r[better], s[better], [place[better].reshape(-1) for place in cells]
        apart, together = float(grows[better].sum()), self._weighed(cells)
        for place, sign in zip(cells, SIGNS, strict=True):
            np.add.at(self.off, place, sign)
        together += self._weighed(cells)
        if together > 0:
            for place, sign in zip(cells, SIGNS, strict=True):
                np.add.at(self.off, place, -sign)
            self.at_once[column] = max(1, many // 2)
            return many == 1
        if together < 0.7 * apart:
            self.at_once[column] = min(len(self.records), self.at_once[column] * 9 // 8 + 1)
        elif together > 0.4 * apart:
            self.at_once[column] = max(1, self.at_once[column] * 3 // 4)
        here, there = np.concatenate([r, s]), np.concatenate([s, r])
        self.groups[np.ix_(here, moves.changed)] = self.groups[np.ix_(there, moves.changed)]
        self.records[here, column] = self.records[there, column]
        return many

    def _weighed(self, cells: list[Indices]) -> float:
        return float(
            sum(sign * (self.weights[place] @ self.off[place]) for place, sign in zip(cells, SIGNS, strict=True))
        )


def exchange_values(
    fitting: Fitting, records: Codes, rng: np.random.Generator, progress: Progress | None = None
) -> Outcome:
    """Improve records in place until little is gained by it; Ctrl-C leaves the best so far.

    Args:
        fitting: the tables that they should have.
        records: codes, record × column.
        rng: what is random comes from it.
        progress: called with (share done, what is being done).
    """
    work = Exchange(fitting, records)
    if not work.tables or len(records) < 2:
        return Outcome.CLOSED_FORM
    before = work.distance
    try:
        while True:
            for column in rng.permutation(len(fitting.sizes)).tolist():
                work.improve(column, rng)
                if progress is not None:
                    progress(min(1.0, work.work / MOST_WORK), "exchanging values")
                if work.work > MOST_WORK:
                    return Outcome.OUT_OF_TIME
            after = work.distance
            if after >= (1 - LITTLE) * before:
                return Outcome.CONVERGED
            before = after
    except KeyboardInterrupt:
        return Outcome.CANCELLED
