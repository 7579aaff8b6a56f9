"""The cells of a batch: nobody has to invent bins, the queries define them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.cells.atoms import Atoms
from batchdp.cells.blocks import Block, blocks
from batchdp.cells.meetings import Meetings, meetings
from batchdp.cells.splitting import split
from batchdp.domain import Domain
from batchdp.errors import QueryError
from batchdp.queries import Query

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

    def counts(self, batches: Iterable[tuple[NDArray[np.integer], NDArray[np.int64]]]) -> NDArray[np.int64]:
        """How many records every cell has, from counted combinations of atoms."""
        totals = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        for codes, numbers in batches:
            for total, block in zip(totals, self.blocks, strict=True):
                cells = block.classes.of(codes)
                np.add.at(total, cells[cells >= 0], numbers[cells >= 0])
        return np.concatenate(totals)


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
    atoms = split(queries, domain)
    return Cells(tuple(query.name for query in queries), atoms, blocks(queries, atoms, most, progress, partition))
