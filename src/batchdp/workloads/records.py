"""Which cells a record can have: one in every block, blocks that meet, stretches between cells, kinds of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from batchdp.errors import WorkloadError, check_whole
from batchdp.linalg.matrix import BLOCK_ENTRIES


def checked_blocks(blocks: Iterable[int], cells: int) -> tuple[int, ...]:
    """How many cells every block has, refused unless these are all cells."""
    try:
        checked = tuple(check_whole("blocks", size, 1, WorkloadError) for size in blocks)
    except TypeError as error:
        raise WorkloadError(f"blocks={blocks!r} is not a list; give the number of cells in each") from error
    if sum(checked) != cells:
        raise WorkloadError(f"blocks have {sum(checked)} cells in all, the workload {cells}; give the sizes in order")
    return checked


def checked_meetings(meetings: Iterable[Iterable[int]] | None, blocks: int) -> tuple[tuple[int, ...], ...]:
    """The sets of blocks that meet, all of them if nothing is said; refused unless every block is in one."""
    if meetings is None:
        return (tuple(range(blocks)),)
    try:
        checked = tuple(
            tuple(sorted({check_whole("meetings", block, 0, WorkloadError) for block in met})) for met in meetings
        )
    except TypeError as error:
        raise WorkloadError(f"meetings={meetings!r} is not a list of lists of blocks' numbers, from 0") from error
    named = {block for met in checked for block in met}
    if named != set(range(blocks)):
        raise WorkloadError(
            f"meetings name the blocks {sorted(named)}, the workload has 0 to {blocks - 1}; name each at least once: "
            "one in no meeting would count as having no records"
        )
    return checked


Ends = tuple[tuple[int, int, int], ...]
"""The lower and the upper cell, −1 for none, and in how many steps one gets from one to the other."""


def checked_ends(ends: Iterable[tuple[int, int, int]], blocks: tuple[int, ...]) -> Ends:
    """The pairs, refused unless each is two cells of one block."""
    block_of = np.repeat(np.arange(len(blocks)), blocks)
    checked = []
    for pair in ends:
        low, high, steps = (check_whole("ends", number, -1, WorkloadError) for number in pair)
        known = [cell for cell in (low, high) if cell != -1]
        if steps < 1 or low == high or any(cell >= len(block_of) for cell in known):
            raise WorkloadError(f"ends={pair!r} are not two cells with at least one step between them")
        if len({int(block_of[cell]) for cell in known}) > 1:
            raise WorkloadError(f"ends={pair!r} lie in two blocks; a stretch lies in one")
        checked.append((low, high, steps))
    return tuple(checked)


def checked_records(records: ArrayLike, blocks: Sequence[int]) -> NDArray[np.int32]:
    """One row per kind of record and one cell, or −1, per block; refused unless every cell has a kind."""
    given = np.asarray(records)
    if given.ndim != 2 or given.shape[1] != len(blocks) or given.dtype.kind not in "iu":
        raise WorkloadError(
            f"records are not whole numbers, one row per kind of record and {len(blocks)} cells in each"
        )
    for block, size in enumerate(blocks):
        seen = np.unique(given[:, block])
        if not np.array_equal(seen[seen != -1], np.arange(size)):
            raise WorkloadError(
                f"records name other cells of block {block} than 0 to {size - 1}; name each at least once, and -1 for "
                "none: a cell that no record has would count as one that changes nothing"
            )
    checked = np.unique(given.astype(np.int32), axis=0)
    checked.flags.writeable = False
    return checked


def cells_of_records(records: NDArray[np.int32], blocks: Sequence[int]) -> sparse.csc_array:
    """Cell × kind of record, in whole numbers: 1 where the kind has the cell."""
    kinds, places = np.nonzero(records >= 0)
    starts = np.cumsum((0, *blocks[:-1]))
    cells = records[kinds, places] + starts[places]
    shape = (sum(blocks), len(records))
    return sparse.csc_array((np.ones(len(kinds), dtype=np.int64), (cells, kinds)), shape=shape)


def by_kind(measure: Any, kinds: sparse.csc_array) -> Iterator[Any]:
    """What a record of every kind changes of some measurements, one column per kind, some kinds at a time."""
    step = max(1, BLOCK_ENTRIES // max(1, measure.shape[0]))
    for start in range(0, kinds.shape[1], step):
        yield measure @ kinds[:, start : start + step]
