"""Which blocks a record can have a cell in at once: records that exist, rather than all that could be thought of.

Blocks for one carrier each exclude each other, since a record has one carrier. Followed through its columns, a record
reaches a state in the automaton of every block; only whether that state counts matters here, so that the automata are
small, and joined they reach exactly the combinations that some record has. Nothing is claimed where these are too
many, or where the combinations of atoms are more than an audit can go through one by one: then all blocks meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from batchdp.cells.atoms import AmountAtoms, Atoms
from batchdp.cells.blocks import Block
from batchdp.cells.classes import Classes, TooManyClassesError, counting, joined
from batchdp.cells.splitting import possible

MOST_RECORDS = 4_000_000
"""Combinations of atoms that can be gone through one by one."""
MOST_MEETINGS = 4096

Meetings = tuple[tuple[int, ...], ...]
"""Sets of blocks that a record can have a cell in at once, none inside another."""


def meetings(blocks: Sequence[Block], atoms: Sequence[Atoms]) -> Meetings | None:
    """All largest sets of blocks that one record can have a cell in; None where that may be all of them."""
    if len(blocks) < 2 or records(blocks, atoms) > MOST_RECORDS:
        return None
    looks = [(b, counting(one)) for b, block in enumerate(blocks) for one in at_ends(block, atoms)]
    try:
        patterns = reduce(lambda one, other: joined(one, other, atoms, MOST_MEETINGS), (one for _, one in looks))
    except TooManyClassesError:
        return None
    found = largest(_sets(patterns, [b for b, _ in looks]))
    met = {block for own in found for block in own}
    if len(met) < len(blocks):  # a block that no record is in: nothing is claimed
        return None
    return None if len(found) == 1 else found


def looked_at(blocks: Sequence[Block]) -> list[int]:
    """The columns of atoms that some block looks at."""
    return sorted({i for block in blocks for i, table in enumerate(block.classes.transitions) if table is not None})


def records(blocks: Sequence[Block], atoms: Sequence[Atoms]) -> int:
    """How many combinations of atoms there are in the columns that some block looks at."""
    return prod(int(possible(atoms[i]).sum()) for i in looked_at(blocks))


def largest(found: set[tuple[int, ...]]) -> Meetings:
    """Those that are not inside another."""
    sets = sorted((frozenset(own) for own in found), key=len, reverse=True)
    kept: list[frozenset[int]] = []
    for own in sets:
        if not any(own <= other for other in kept):
            kept.append(own)
    return tuple(sorted(tuple(sorted(own)) for own in kept))


def at_ends(block: Block, atoms: Sequence[Atoms]) -> list[Classes]:
    """The block's classes; where it sums amounts, once with all records at the lower ends, and once at the upper ones.

    A record between two ends is in every block that either end is in.
    """
    place = next((i for i, one in enumerate(atoms) if one.column == block.amount), None)
    column = None if place is None else atoms[place]
    table = None if place is None else block.classes.transitions[place]
    if place is None or table is None or not isinstance(column, AmountAtoms):
        return [block.classes]
    found = []
    for upper in (False, True):
        moved = table.copy()
        for one in column.stretches:
            if one.low is not None and one.high is not None:
                moved[:, [one.low, one.high]] = table[:, [one.high if upper else one.low]]
        changed = (*block.classes.transitions[:place], moved, *block.classes.transitions[place + 1 :])
        found.append(Classes(changed, block.classes.amounts))
    return found


def _sets(patterns: Classes, owners: Sequence[int]) -> set[tuple[int, ...]]:
    """For every state that a record reaches the blocks that count it."""
    counted = np.asarray(patterns.amounts.toarray()) != 0
    return {tuple(sorted({owners[row] for row in np.flatnonzero(column).tolist()})) for column in counted.T}
