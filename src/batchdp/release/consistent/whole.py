"""Tables of whole numbers: all totals where one table of up to two columns holds them, else the one-way margins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.consistency.faces import Columns, maximal, subsets
from batchdp.consistency.rounding import round_controlled, round_margin, round_onto_margins
from batchdp.progress import Progress
from batchdp.release.consistent.notes import Rounding

Dense = NDArray[np.float64]
Integers = NDArray[np.int64]
Read = Callable[[int], Dense]


@dataclass(frozen=True, eq=False)
class Wholes:
    """Whole tables, in the order of the release's, and what that cost."""

    tables: tuple[Integers, ...]
    rounding: Rounding


def whole_tables(read: Read, asked: Sequence[Columns], names: Sequence[str], progress: Progress | None) -> Wholes:
    """Round consistent tables; `read` gives one by its number."""
    largest = maximal(asked)
    if len(largest) == 1:
        found = _from_one(read(asked.index(largest[0])), largest[0], asked)
        unkept: tuple[tuple[str, float], ...] = ()
    else:
        found = _one_by_one(read, asked, progress)
        unkept = _disagreements(found, asked, names)
    moves = [np.abs(read(t) - own) for t, own in enumerate(found)]
    largest_move = max(float(move.max(initial=0.0)) for move in moves)
    return Wholes(tuple(found), Rounding(largest_move, sum(int(np.count_nonzero(move >= 1)) for move in moves), unkept))


def _from_one(table: Dense, columns: Columns, asked: Sequence[Columns]) -> list[Integers]:
    """Of one table all others are margins: they are summed from its whole cells."""
    if table.ndim <= 2:
        whole = round_controlled(table.reshape(-1), _totals(table.shape))[0].reshape(table.shape)
    else:
        whole = round_onto_margins(table, _margins(table, round_margin(table.reshape(-1), _rounded(table)).sum()))
    return [_margin(whole, columns, own) for own in asked]


def _one_by_one(read: Read, asked: Sequence[Columns], progress: Progress | None) -> list[Integers]:
    """The total and the one-way margins once for all tables, then every table onto its own."""
    total: int | None = None
    margins: dict[int, Integers] = {}
    found: list[Integers] = []
    for t, own in enumerate(asked):
        values = read(t)
        total = _rounded(values) if total is None else total
        for axis, i in enumerate(own):
            if i not in margins:
                others = tuple(a for a in range(values.ndim) if a != axis)
                margins[i] = round_margin(values.sum(axis=others), total)
        if len(own) < 2:
            found.append(margins[own[0]] if own else np.array(total))
        else:
            found.append(round_onto_margins(values, [margins[i] for i in own]))
        if progress is not None:
            progress((t + 1) / len(asked), "rounding tables")
    return found


def _rounded(table: Dense) -> int:
    return round(float(table.sum()))


def _margins(table: Dense, total: int) -> list[Integers]:
    axes = range(table.ndim)
    return [round_margin(table.sum(axis=tuple(a for a in axes if a != axis)), total) for axis in axes]


def _margin(table: Integers, columns: Columns, own: Columns) -> Integers:
    return np.asarray(table.sum(axis=tuple(a for a, i in enumerate(columns) if i not in own)))


def _totals(shape: tuple[int, ...]) -> sparse.csr_array:
    """Rows, columns and the total of a table, over its cells."""
    rows = [np.zeros(prod(shape), dtype=np.int64)]
    if len(shape) == 2:
        i, j = np.indices(shape).reshape(2, -1)
        rows += [1 + i, 1 + shape[0] + j]
    cells = np.tile(np.arange(prod(shape)), len(rows))
    return sparse.csr_array((np.ones(len(cells)), (np.concatenate(rows), cells)))


def _disagreements(
    found: Sequence[Integers], asked: Sequence[Columns], names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """The margins of two columns and more that tables share and no longer agree on, the worst first."""
    first: dict[Columns, list[Integers]] = {}
    worst: dict[Columns, float] = {}
    for t, own in enumerate(asked):
        for part in subsets(own):
            if len(part) < 2:
                continue
            margin = _margin(found[t], own, part)
            seen = first.setdefault(part, [margin, margin])
            seen[0], seen[1] = np.minimum(seen[0], margin), np.maximum(seen[1], margin)
            worst[part] = float((seen[1] - seen[0]).max(initial=0))
    named = [(" × ".join(names[i] for i in part), off) for part, off in worst.items() if off > 0]
    return tuple(sorted(named, key=lambda one: -one[1]))
