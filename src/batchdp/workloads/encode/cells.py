"""The cells of a batch: nobody has to invent bins, the queries define them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Domain
from batchdp.errors import QueryError
from batchdp.queries.query import Query
from batchdp.workloads.encode.atoms import (
    AmountAtoms,
    Atoms,
    possible,
    split,
)
from batchdp.workloads.encode.blocks import Block, blocks, counted
from batchdp.workloads.encode.classes import (
    Classes,
    TooManyClassesError,
    counting,
    joined,
)

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


MOST_CELLS = 8192
"""In one block, unless the caller says otherwise."""


@dataclass(frozen=True, eq=False)
class Cells:
    """How records are counted: the atoms of every column, and the cell of every combination in every block."""

    names: tuple[str, ...]
    """Of the queries."""
    atoms: tuple[Atoms, ...]
    blocks: tuple[Block, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells every block has."""
        return tuple(block.classes.size for block in self.blocks)

    @property
    def matrix(self) -> sparse.csr_array:
        """W: query × cell, block after block; a query that spans blocks has entries in each."""
        stacked = sparse.csr_array(sparse.block_diag([block.classes.matrix for block in self.blocks], format="csr"))
        rows = np.concatenate([block.queries for block in self.blocks])
        if len(rows) == len(self.names):
            return stacked[np.argsort(rows)]
        placing = sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), (len(self.names), len(rows)))
        return sparse.csr_array(placing @ stacked)

    @cached_property
    def meetings(self) -> Meetings | None:
        """Which blocks one record can have a cell in at once; None where that may be all of them."""
        return meetings(self.blocks, self.atoms)

    @cached_property
    def ends(self) -> tuple[tuple[int, int, int], ...]:
        """Pairs of cells that are the two ends of a stretch, −1 for none, and its steps, block after block."""
        found = []
        start = 0
        for block in self.blocks:
            column = next((one for one in self.atoms if one.column == block.amount), None)
            for low, high, which in block.ends:
                assert isinstance(column, AmountAtoms)
                stretch = column.stretches[which]
                below, above = (cell + start if cell >= 0 else -1 for cell in (low, high))
                found.append((below, above, stretch.last - stretch.first))
            start += block.classes.size
        return tuple(found)

    def counts(self, batches: Iterable[tuple[NDArray[np.integer], NDArray[Any]]]) -> NDArray[Any]:
        """How many records every cell has, from counted combinations of atoms; behind them the sums of all `ends`."""
        totals = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        along = [np.zeros(len(block.ends), dtype=object) for block in self.blocks]
        for codes, numbers in batches:
            many = numbers if numbers.ndim == 1 else numbers[:, 0].astype(np.int64)
            for total, sums, block in zip(totals, along, self.blocks, strict=True):
                cells = block.classes.of(codes)
                np.add.at(total, cells[cells >= 0], many[cells >= 0])
                if block.ends:
                    which, steps = counted(block, self.atoms, codes, numbers)
                    np.add.at(sums, which[which >= 0], steps[which >= 0])
        return np.concatenate(totals if not self.ends else [*(total.astype(object) for total in totals), *along])

    def answers(self, counts: NDArray[Any]) -> NDArray[np.float64]:
        """The queries without noise, hence secret: W on the counts, each stretch shared between its ends."""
        W = sparse.csc_array(self.matrix)
        x = counts[: W.shape[1]].astype(np.float64)
        for (low, high, steps), along in zip(self.ends, counts[W.shape[1] :].tolist(), strict=True):
            for cell, share in ((low, -along / steps), (high, along / steps)):
                if cell >= 0:
                    x[cell] += share
        return np.asarray(W @ x)


def cells_of(
    queries: Sequence[Query],
    domain: Domain,
    *,
    most: int = MOST_CELLS,
    progress: Callable[[float, str], object] | None = None,
    partition: Sequence[Sequence[int]] | None = None,
) -> Cells:
    """The cells that the queries tell apart, in one block if there are at most `most`, else in several.

    A `partition` into blocks that was found before saves finding it again.
    """
    if not queries:
        raise QueryError("there are no queries; write at least one SELECT COUNT(*) FROM the table")
    atoms = split(queries, domain, ends=True)
    return Cells(tuple(query.name for query in queries), atoms, blocks(queries, atoms, most, progress, partition))
