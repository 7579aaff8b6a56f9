"""What a caller gives instead of a table: counts of cells, or records by their codes.

What holds them and how many they are is public and checked before the charge; values never are, and nothing about one
is an error: one entry can decide the type of all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.domain import Counted
from batchdp.errors import PrivacyParameterError, TableError
from batchdp.mechanism.measurement import Integers
from batchdp.private import Records
from batchdp.release.components.codes import codes_of, is_records, library, records_of_counts
from batchdp.strategies.factored import FactoredStrategy
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import MatrixWorkload

LARGEST_COUNT = 2**62
MOST_COUNTED = 10**8
"""Cells of a batch over many columns whose counts can be given."""


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
    """What gives the counts as whole numbers. How many there are is public and checked; what they are never is.

    An entry can be anything: counts become floats where a cell is empty, and one text among them makes texts of all in
    an array or a file. A text is the number that it spells; what is no number, missing or infinite is taken as 0, what
    is no whole number is rounded down, and counts are brought within 0 to 2^62. Nothing of this moves two neighbours
    further apart, nor lets one entry change another. The release's notes say so.
    """
    length = _length(counts)
    if length is None:
        raise PrivacyParameterError(
            f"counts is no list of numbers; the workload has {cells} cells: give one count each, in one dimension"
        )
    if length != cells:  # nobody is told how many there are: they may be records
        raise PrivacyParameterError(
            f"counts has more or fewer entries than one a cell; the workload has {cells} cells: give one count each"
        )
    return lambda: _whole_counts(counts, cells)


def _length(counts: Any) -> int | None:
    """How many entries there are, by the container alone; None for what is no list of them, in one dimension."""
    fields = isinstance(counts, np.ndarray) and counts.dtype.names is not None
    if fields or is_records(counts) or isinstance(counts, (str, bytes, bytearray, memoryview)):
        return None
    series = hasattr(type(counts), "__array__") and (library(counts) or getattr(counts, "ndim", 0) == 1)
    return len(counts) if series or isinstance(counts, Sequence) else None


def _whole_counts(counts: Any, cells: int) -> Integers:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # they would be about values
        try:
            found = _entries(counts)
        except Exception:  # a type whose values Python does not have: none of them is a number
            return np.zeros(cells, np.int64)
        kind = found.dtype.kind if isinstance(found, np.ndarray) else ""
        if isinstance(found, np.ndarray) and kind in "biufm":
            whole = _whole_numbers(found.astype(np.int64) if kind == "m" else found)
        else:
            whole = np.fromiter(map(_one_count, found), np.int64, cells)
        return np.where(np.ma.getmaskarray(counts), 0, whole) if isinstance(counts, np.ma.MaskedArray) else whole


def _entries(counts: Any) -> NDArray[Any] | Sequence[Any]:
    """The entries of a container, as they are: an array of numbers where that is quick, else Python's objects."""
    match library(counts):
        case "pandas":
            quick = isinstance(counts.dtype, np.dtype) and counts.dtype.kind in "biuf"
            return np.asarray(counts) if quick else list(counts.tolist())
        case "polars":
            return np.zeros(len(counts)) if counts.dtype.is_temporal() else list(counts.to_list())
        case "pyarrow":
            return list(map(_python, counts))
    if isinstance(counts, Sequence):
        return counts
    array = np.asarray(counts)
    return np.zeros(len(array)) if array.dtype.kind == "M" else array


def _python(scalar: Any) -> Any:
    with suppress(Exception):  # a text that is none
        return scalar.as_py()
    return None


def _whole_numbers(counts: NDArray[Any]) -> Integers:
    if counts.dtype.kind == "f":
        counts = np.floor(np.clip(np.nan_to_num(counts.astype(np.float64), posinf=0.0, neginf=0.0), 0.0, 2.0**62))
    wide = counts if counts.dtype == np.uint64 else np.maximum(counts.astype(np.int64), 0)
    whole: Integers = np.minimum(wide, np.array(LARGEST_COUNT, dtype=wide.dtype)).astype(np.int64)
    return whole


def _one_count(count: Any) -> int:
    with suppress(Exception):  # whatever an object does when it is looked at
        number = _number(count)
        if -math.inf < number < math.inf:
            whole = LARGEST_COUNT if number > LARGEST_COUNT else index(math.floor(number))
            return min(max(whole, 0), LARGEST_COUNT)
    return 0


def _number(count: Any) -> Any:
    """What an entry is as a number; an error for what is none."""
    from batchdp.tables.codes import spelled_number

    if isinstance(count, (str, bytes, complex, np.complexfloating)):
        return spelled_number(count)
    if isinstance(count, (int, float, Decimal, Fraction, np.generic)):
        return count
    return float(count) if getattr(count, "ndim", 0) == 0 else 0
