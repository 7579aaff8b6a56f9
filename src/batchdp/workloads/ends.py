"""Pairs of cells between which a record can lie."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from batchdp.checks import check_whole
from batchdp.errors import WorkloadError

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
