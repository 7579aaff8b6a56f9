"""What a caller gives instead of a table: counts of cells, or records by their codes.

Shapes and types are public and checked before the charge; values never are, and nothing about one is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from batchdp.domain import Counted
from batchdp.errors import PrivacyParameterError, TableError
from batchdp.mechanism.measurement import Integers
from batchdp.private import Records
from batchdp.release.components.codes import codes_of, is_records, records_of_counts
from batchdp.strategies.factored import FactoredStrategy
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import MatrixWorkload

LARGEST_COUNT = 2**62
MOST_COUNTED = 10**8
"""Cells of a batch over many columns whose counts can be given."""
NO_COUNTS = (str, bytes, complex, list, tuple, dict, set)


def given_counts(table: Any, workload: MatrixWorkload) -> tuple[Callable[[], Integers], Counted]:
    """Counts of cells; or of records, by codes, where the workload's cells are combinations of columns' values."""
    batch = workload.structure
    if not isinstance(batch, KroneckerWorkload) or not is_records(table):
        return counts_of(table, workload.cells), Counted(given="counts")
    codes = codes_of(table, batch)

    def counted() -> Integers:
        cells = np.ravel_multi_index(tuple(codes.read().codes.T), batch.sizes)
        return np.bincount(cells, minlength=batch.cells).astype(np.int64)

    return counted, Counted(given="codes")


def given_records(
    strategy: FactoredStrategy, table: Any
) -> tuple[Callable[[], Records], tuple[str, ...] | None, Counted]:
    """How records will be read: from codes in a frame or 2-D array, or from counts of all cells in one dimension."""
    batch = strategy.workload
    if is_records(table):
        codes = codes_of(table, batch)
        return codes.read, codes.names, Counted(given="codes")
    if batch.cells > MOST_COUNTED:
        raise TableError(
            f"the table is one of {batch.cells:.3g} cells' counts, too many to be held; give records: a 2-D array or a "
            "frame with one whole-number code a column"
        )
    return records_of_counts(counts_of(table, batch.cells), batch), None, Counted(given="counts")


def counts_of(counts: Any, cells: int) -> Callable[[], Integers]:
    """What gives the counts as whole numbers. Their shape and type are public and checked; their values never are.

    Floats are taken too, because counts become floats where a cell is empty: a missing or infinite count is none, what
    is no whole number is rounded down, and counts are brought within 0 to 2^62. Nothing of this moves two neighbours
    further apart. The release's notes say so.
    """
    values = counts.filled(0) if isinstance(counts, np.ma.MaskedArray) else counts
    if isinstance(counts, (list, tuple)):
        for count in counts:
            if isinstance(count, NO_COUNTS):
                raise PrivacyParameterError(f"counts holds a {type(count).__name__}; counts must be whole numbers")
        values = np.array(counts, dtype=object)
    # Only of counts the shape is told: of records nobody may know how many there are.
    if is_records(counts) or np.ndim(values) != 1:
        raise PrivacyParameterError(
            f"counts is no list of numbers; the workload has {cells} cells: give one count each, in one dimension"
        )
    shape, dtype = np.shape(values), getattr(values, "dtype", None) or np.asarray(values).dtype
    kind = getattr(dtype, "kind", None) or ("i" if str(dtype).lower().startswith(("int", "uint")) else "")
    if kind not in ("i", "u", "b", "f", "O"):
        raise PrivacyParameterError(f"counts has entries of type {dtype}; counts must be whole numbers (integers)")
    if shape != (cells,):
        raise PrivacyParameterError(f"counts has shape {shape}; the workload has {cells} cells: give one count each")
    return lambda: _whole_counts(
        np.asarray(values, dtype=object if kind == "O" or not hasattr(dtype, "kind") else None)
    )


@np.errstate(all="ignore")
def _whole_counts(counts: npt.NDArray[Any]) -> Integers:
    if counts.dtype == object:
        counts = np.array([_one_count(count) for count in counts], dtype=np.int64)
    if counts.dtype.kind == "f":
        counts = np.floor(np.clip(np.nan_to_num(counts.astype(np.float64), posinf=0.0, neginf=0.0), 0.0, 2.0**62))
    wide = counts if counts.dtype == np.uint64 else np.maximum(counts.astype(np.int64), 0)
    whole: Integers = np.minimum(wide, np.array(LARGEST_COUNT, dtype=wide.dtype)).astype(np.int64)
    return whole


def _one_count(count: Any) -> int:
    try:
        floor: int = math.floor(count)
        return min(max(floor, 0), LARGEST_COUNT)
    except Exception:  # missing or infinite, in one of their many ways
        return 0
