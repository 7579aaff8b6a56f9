"""Which cells the records that exist have together: one kind of record for every combination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.linalg.matrix import BLOCK_ENTRIES


def checked_records(records: ArrayLike, blocks: Sequence[int]) -> NDArray[np.int32]:
    """One row a kind of record and one cell, or −1, a block; refused unless every cell has a kind."""
    given = np.asarray(records)
    if given.ndim != 2 or given.shape[1] != len(blocks) or given.dtype.kind not in "iu":
        raise WorkloadError(f"records are not whole numbers, one row a kind of record and {len(blocks)} cells in each")
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
    """What a record of every kind changes of some measurements, one column a kind, some kinds at a time."""
    step = max(1, BLOCK_ENTRIES // max(1, measure.shape[0]))
    for start in range(0, kinds.shape[1], step):
        yield measure @ kinds[:, start : start + step]
