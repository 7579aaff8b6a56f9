"""Amounts by their ends: which cells are the two ends of a stretch, and how sums of steps are shared between them.

A record at step u of a stretch from u₀ to u₀ + d is a mixture of one at either end: it counts as one record at the
lower end, and (u − u₀)/d of the way to the upper one. So a table is described by how many records each cell has, those
within a stretch at its lower end, and by the sum of u − u₀ over the records of every stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchdp.cells.atoms import AmountAtoms, Atoms
from batchdp.cells.classes import MOST_ENTRIES, Classes
from batchdp.cells.splitting import possible
from batchdp.errors import QueryError

if TYPE_CHECKING:
    from batchdp.cells.blocks import Block


def ends_of(classes: Classes, atoms: Sequence[Atoms], amount: str | None) -> tuple[tuple[int, int, int], ...]:
    """For every kind of record with an amount: its cells at the stretch's two ends, which differ, and the stretch."""
    states = np.zeros((1, 3), dtype=np.int64)  # at the lower end, at the upper end, which stretch
    for column, table in zip(atoms, classes.transitions, strict=True):
        if table is None:
            continue
        if isinstance(column, AmountAtoms) and column.column == amount:
            parts = [
                np.stack([table[states[:, 0], one.low], table[states[:, 0], one.high], np.full(len(states), i)], axis=1)
                for i, one in enumerate(column.stretches)
                if one.low != one.high
            ]
            states = np.concatenate(parts) if parts else np.zeros((0, 3), dtype=np.int64)
        else:
            alive = np.flatnonzero(possible(column))
            if len(states) * len(alive) > MOST_ENTRIES:
                raise QueryError(
                    f"the queries cut {amount} into too many stretches by group; ask for fewer bins or groups in it"
                )
            low, high = (table[states[:, end]][:, alive].astype(np.int64) for end in (0, 1))
            states = np.stack([low, high, np.broadcast_to(states[:, 2, None], low.shape)], axis=2).reshape(-1, 3)
        states = np.unique(states.astype(np.int64), axis=0)
    cells = classes.cells
    found = np.stack([cells[states[:, 0]], cells[states[:, 1]], states[:, 2]], axis=1)
    found = np.unique(found[found[:, 0] != found[:, 1]], axis=0)
    return tuple((int(low), int(high), int(stretch)) for low, high, stretch in found)


def counted(
    block: Block, atoms: Sequence[Atoms], codes: NDArray[np.integer], numbers: NDArray[np.object_]
) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """Where records with these atoms lie: in which of the block's stretches, −1 for none, and Σu − n u₀.

    `numbers` has the counts, then the sums of the steps of every summed column.
    """
    place, column, sums = next(
        (i, one, 1 + k)
        for k, (i, one) in enumerate(
            (i, one) for i, one in enumerate(atoms) if isinstance(one, AmountAtoms) and one.summed
        )
        if one.column == block.amount
    )
    stretch_of = np.full(column.size, -1, dtype=np.int64)
    first_of = np.zeros(column.size, dtype=object)
    for i, one in enumerate(column.stretches):
        if one.low is not None and one.low != one.high:
            stretch_of[one.low], first_of[one.low] = i, one.first
    own = codes[:, place]
    upper = codes.copy()
    upper[:, place] += stretch_of[own] >= 0
    low, high = block.classes.of(codes), block.classes.of(upper)
    known = {ends: k for k, ends in enumerate(block.ends)}
    keys = zip(low.tolist(), high.tolist(), stretch_of[own].tolist(), strict=True)
    which = np.array([known.get(key, -1) for key in keys], dtype=np.int64)
    return which, numbers[:, sums] - numbers[:, 0] * first_of[own]
