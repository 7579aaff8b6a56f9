"""Trees over the cells themselves, brought to the merged columns where that may pay.

The cells' own intervals differ from the merged columns'; with far more cells than columns they only do worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from batchdp.linalg.matrix import Dense, Plain, column_norms, dense
from batchdp.workloads.reduction import Reduction

Tree = tuple[Plain, Callable[[Dense], Dense]]
"""A measure over the cells, and from W its reconstruction W L⁺."""


@dataclass(frozen=True)
class Sizes:
    """Up to which sizes a closed form is tried; guards against minutes spent on what cannot win."""

    most_entries: int = 20_000_000
    """Entries of R, or columns times cells, up to which a closed form is built at all: 160 MB as an array."""
    many_columns: int = 1500
    """Columns up to which a measure over the cells gets a reconstruction of its own, which is cubic in them."""
    few_columns: int = 500
    """Columns up to which that reconstruction takes a fraction of a second and is not worth a check beforehand."""
    most_cells: int = 4096
    """Cells up to which the function as it stands is run for the largest error, where small batches profit."""


SIZES = Sizes()


def over_cells(reduction: Reduction, best: float, build: Callable[[int], Tree], sizes: Sizes) -> Iterator[Dense]:
    """The measure on the merged columns; where it takes long, only if it comes below `best` over the cells."""
    p, workload = reduction.columns, reduction.workload
    if p >= workload.cells or p > sizes.many_columns or p * workload.cells > sizes.most_entries:
        return
    L, reconstruct = build(workload.cells)
    quick = p <= sizes.few_columns or workload.queries * workload.cells > sizes.most_entries
    if quick or _error(L, reconstruct(dense(workload.weighted))) < best:
        yield reduction.restrict_measure(L)


def _error(measure: Plain, reconstruct: Dense) -> float:
    """‖B‖²_F at sensitivity 1."""
    return float(column_norms(measure, 1).max() ** 2 * np.vdot(reconstruct, reconstruct))
