"""The boundary's mutants: each breaks one rule of how tables are read, and each is caught."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ibis  # type: ignore[import-untyped]
import polars as pl
import pytest

import test_neighbours_charge as charge
import test_neighbours_files as files
from batchdp.engines import cleaning, codes, coding, frames
from batchdp.engines import coding as lookups
from batchdp.engines import files as reading
from batchdp.engines import files as separated
from batchdp.errors import TableError
from batchdp.release import counts
from batchdp.release import counts as release_codes
from boundary import ADAPTERS
from boundary.fuzzing import fuzz

Patch = pytest.MonkeyPatch


def fuzzed(engine: str) -> Callable[[Path], None]:
    """The fuzzer, until it finds something."""

    def check(folder: Path) -> None:
        for tally in fuzz(ADAPTERS[engine], seed=3, pairs=400):
            assert not tally.problems, tally.problems[0]

    return check


def parallel_csv(patch: Patch) -> None:
    """A file in two halves, the second from the first line feed behind the middle."""
    original = separated.read_records

    def halves(file: Any, layout: Any, wanted: Any) -> Iterator[list[Any]]:
        data = file.read()
        middle = data.find(b"\n", len(data) // 2) + 1 or len(data)
        yield from original(io.BytesIO(data[:middle]), layout, wanted)
        yield from original(io.BytesIO(data[middle:]), layout, wanted)

    patch.setattr(reading, "read_records", halves)


def narrow_strides(patch: Patch) -> None:
    """32 bits, as an engine would choose by itself."""
    spelled = lookups.Lookup.sql
    patch.setattr(coding, "constant", lambda value: ibis.literal(value))
    patch.setattr(lookups.Lookup, "sql", lambda self: spelled(self).replace("(atom AS BIGINT)", "(atom AS INTEGER)"))


def union_by_name(patch: Patch) -> None:
    """One type for the ids of all files: a float where one file has floats."""
    common = cleaning.common_type
    patch.setattr(cleaning, "common_type", lambda types, **_: common(types))
    patch.setattr(cleaning, "as_unit", lambda array, target: array.cast(target, safe=False))


def casts_that_raise(patch: Patch) -> None:
    """CAST where TRY_CAST is needed."""
    patch.setattr(ibis.expr.types.Value, "try_cast", ibis.expr.types.Value.cast)


def collected_early(patch: Patch) -> None:
    """A lazy frame is run when it is opened."""
    original = frames._polars_parts

    def eager(frame: Any, *arguments: Any) -> Any:
        return original(frame.collect() if isinstance(frame, pl.LazyFrame) else frame, *arguments)

    patch.setattr(frames, "_polars_parts", eager)


def converted_early(patch: Patch) -> None:
    """The objects of a pandas frame are looked at when it is opened."""
    original = frames._pandas_parts

    def eager(frame: Any, *arguments: Any) -> Any:
        for name in frame.columns:
            for value in frame[name]:
                with suppress(ValueError):
                    str(value)
        return original(frame, *arguments)

    patch.setattr(frames, "_pandas_parts", eager)


def numbers_only(patch: Patch) -> None:
    """Codes are refused in a column that is none of numbers."""
    original = release_codes.codes_of

    def checked(table: Any, batch: Any) -> Any:
        dtypes = list(getattr(table, "dtypes", [getattr(table, "dtype", None)]))
        if any(getattr(dtype, "kind", "i") not in "iuf" for dtype in dtypes):
            raise TableError("it has entries of another type")
        return original(table, batch)

    patch.setattr(counts, "codes_of", checked)


def texts_dropped(patch: Patch) -> None:
    """A text is no code, so that one record can drop all others."""
    patch.setattr(codes, "_parse_number", lambda text: math.nan)


def truths_dropped(patch: Patch) -> None:
    """Nor is a text that stands for a truth."""
    patch.setattr(codes, "TRUTHS", {})


def codes_by_python(patch: Patch) -> None:
    """Objects are asked for whole numbers by themselves."""
    patch.setattr(codes, "_spell_object", lambda value: str(int(value)))


MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[Path], None]]] = {
    "parallel CSV": (parallel_csv, lambda folder: files.test_notes_everywhere(".csv", "\n", folder)),
    "32-bit strides": (narrow_strides, fuzzed("pyarrow")),
    "32-bit strides, CSV": (narrow_strides, fuzzed("csv")),
    "union by name": (union_by_name, files.test_ids_stay_apart_whatever_another_files_types),
    "cast without TRY": (casts_that_raise, fuzzed("csv")),
    "collect before the charge": (collected_early, charge.test_a_lazy_frame_is_not_run),
    "codes of numbers only": (numbers_only, fuzzed("codes guessed by pandas")),
    "codes of texts dropped": (texts_dropped, fuzzed("codes in what CSV readers make")),
    "codes of truths dropped": (truths_dropped, fuzzed("codes guessed by NumPy")),
    "codes asked of objects": (codes_by_python, fuzzed("codes in pandas of objects")),
    "convert before the charge": (converted_early, charge.test_pandas_objects_are_not_looked_at),
}


SLOW = {"32-bit strides, CSV"}
"""The same mutant in another engine."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in MUTANTS])
def test_every_mutant_is_caught(name: str, tmp_path: Path) -> None:
    mutate, check = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        with pytest.raises(AssertionError):
            check(tmp_path)
