"""The boundary to counts: how many there are is looked at before the charge, and no entry decides about another."""

from __future__ import annotations

import array
import warnings
from collections import UserList, deque
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from scipy import sparse

import batchdp
from batchdp.errors import BatchDPError, BudgetError
from batchdp.release.counts import counts_of
from boundary.checking import overheard
from boundary.codes import BESIDE_NUMPY, VALUES
from boundary_cases import quiet

__all__ = ["quiet"]


class Hostile:
    """What fails however it is looked at."""

    def __float__(self) -> float:
        raise RuntimeError("31337")

    __len__ = __index__ = __int__ = __bool__ = __iter__ = __eq__ = __lt__ = __gt__ = __float__  # type: ignore[assignment]
    __str__ = __repr__ = __floor__ = __array__ = __getitem__ = __complex__ = __float__  # type: ignore[assignment]
    __hash__ = object.__hash__


class Warns:
    """What warns when it is looked at."""

    def __float__(self) -> float:
        warnings.warn("31337", stacklevel=1)
        return 3.0


class Whole(int):
    """A whole number that is none when it is rounded."""

    def __floor__(self) -> Any:
        return "31337"


HOSTILE: tuple[Any, ...] = (
    *(
        Hostile(),
        Warns(),
        Whole(3),
        object(),
        len,
        int,
        ...,
        NotImplemented,
        np.array([3]),
        np.array(3),
        np.ones((2, 2)),
    ),
    *(
        [],
        [3],
        [[3], 4],
        (),
        (3, 4),
        {},
        {3: 4},
        {3},
        "",
        "<5",
        "5 ",
        "x" * 10_000,
        "9" * 5000,
        b"",
        b"<5",
        bytearray(b"3"),
    ),
    *(memoryview(b"3"), 3j, 3 + 0j, np.complex64(3), Decimal("sNaN"), Decimal("1e999999"), Decimal(3), Fraction(7, 2)),
    *(
        10**400,
        -(10**400),
        2**63,
        2**64,
        -(2**63) - 1,
        np.datetime64(3, "Y"),
        np.datetime64("NaT"),
        np.timedelta64(3, "D"),
    ),
    *(np.void(b"3"), np.str_("3"), np.bytes_(b"3"), date(2020, 1, 1), pd.Timestamp(3), pd.NaT, pd.Interval(3, 4)),
    *(pd.Series([3]), pd.DataFrame({"a": [3]}), pl.Series([3]), pa.array([3]), pa.scalar(3), pa.scalar("x")),
    *(slice(3), range(3), iter([3]), ValueError("x"), "\ud800", "\x00", "٣", "1e400", "-1", "1_0"),
)
ENTRIES = (*VALUES, *BESIDE_NUMPY, *HOSTILE)

OBJECTS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "UserList": UserList,
    "deque": deque,
    "objects": lambda values: np.fromiter(values, object, len(values)),
    "masked": lambda values: np.ma.array(np.fromiter(values, object, len(values)), mask=False),
    "pandas": lambda values: pd.Series(np.fromiter(values, object, len(values))),
    "polars": lambda values: pl.Series(values, dtype=pl.Object),
}
"""Containers that hold every object as it is."""
GUESSED: dict[str, Callable[[list[Any]], Any]] = {
    "numpy": np.array,
    "pandas": pd.Series,
    "pandas, nullable": lambda values: pd.Series(values).convert_dtypes(),
    "polars": lambda values: pl.Series(values, strict=False),
    "arrow": pa.array,
}
"""Containers whose type is guessed from all of their entries."""


def seen(counts: Any, cells: int) -> tuple[list[int], str]:
    """What is counted, and what is heard of it."""
    with overheard() as heard:
        return counts_of(counts, cells)().tolist(), heard()


@pytest.mark.parametrize("kind", OBJECTS)
def test_one_entry_decides_neither_about_the_release_nor_about_another(kind: str) -> None:
    rng = Random(kind)
    for entry in ENTRIES:
        before = [rng.choice([0, 1, 7, 10**12, 2.0, None, "5", True]) for _ in range(6)]
        place = rng.randrange(6)
        after = [*before[:place], entry, *before[place + 1 :]]
        (here, heard), (there, overheard_) = (seen(OBJECTS[kind](values), 6) for values in (before, after))
        assert heard == overheard_ == ""
        assert [*here[:place], *here[place + 1 :]] == [*there[:place], *there[place + 1 :]]
        assert 0 <= there[place] <= 2**62


@pytest.mark.parametrize("kind", GUESSED)
def test_the_type_that_one_entry_makes_of_all_changes_no_other(kind: str) -> None:
    rng = Random(kind)
    tried = 0
    for entry in VALUES if kind == "polars" else ENTRIES:  # which loses other entries for some of the rest
        for _ in range(3):
            before = [rng.choice([0, 1, 7, 300, 10**12]) for _ in range(6)]
            place = rng.randrange(6)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    given = GUESSED[kind]([*before[:place], entry, *before[place + 1 :]])
            except Exception:  # the library itself refuses, in the caller's hands
                continue
            if isinstance(given, np.ndarray) and given.ndim != 1:
                continue
            there, heard = seen(given, 6)
            assert heard == ""
            assert [*there[:place], *there[place + 1 :]] == [*before[:place], *before[place + 1 :]], (entry, given)
            tried += 1
    assert tried > 50


def test_a_text_is_the_number_that_it_spells_and_what_is_no_number_is_0() -> None:
    spelled = ["5", " 5", "5.9", "5e0", b"5", "0x5", 5 + 0j, "(5+0j)", Decimal("5.99"), Fraction(59, 10), np.float16(5)]
    assert counts_of(spelled, len(spelled))().tolist() == [5] * len(spelled)
    none = [
        "<5",
        "",
        "n/k",
        "-5",
        "5j",
        5j,
        [5],
        (5, 5),
        {5: 5},
        None,
        "nan",
        "inf",
        float("inf"),
        pd.NA,
        np.array([5]),
    ]
    for kind, make in OBJECTS.items():
        assert counts_of(make(none), len(none))().tolist() == [0] * len(none), kind
    large = ["9007199254740993", 2**53 + 1, Decimal(2**53 + 1), str(2**62 + 1), 10**30, "1e30", Decimal("1e999999")]
    assert counts_of(large, 7)().tolist() == [2**53 + 1] * 3 + [2**62] * 4
    assert counts_of(np.array([2**53 + 1, "x"]), 2)().tolist() == [2**53 + 1, 0]


ONE_TEXT = {
    "list": [5, "<5", 3],
    "tuple": (5, [7, 7], 3),
    "text array": np.array([5, "<5", 3]),
    "bytes": np.array([b"5", b"<5", b"3"]),
    "complex array": np.array([5, 1j, 3]),
    "object array": np.array([5, "<5", 3], dtype=object),
    "moments": np.array(["5", "NaT", "3"], "m8[D]"),
    "strings": np.array(["5", "<5", "3"], np.dtypes.StringDType()),
    "series": pd.Series(["5", "<5", "3"]),
    "category": pd.Series(["5", "<5", "3"], dtype="category"),
    "polars": pl.Series(["5", "<5", "3"]),
    "arrow": pa.array(["5", "<5", "3"]),
    "chunks": pa.chunked_array([["5"], ["<5", "3"]]),
    "numbers": array.array("d", [5, -1, 3]),
}


@pytest.mark.parametrize("kind", ONE_TEXT)
def test_a_release_is_made_whatever_one_count_is(kind: str, tmp_path: Path) -> None:
    assert counts_of(ONE_TEXT[kind], 3)().tolist() == [5, 0, 3]
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=10**6)
    for planned in (
        batchdp.optimize(batchdp.Workload(np.eye(3))),
        batchdp.optimize(batchdp.workloads.marginals((3,), [1]).structure, privacy="pure"),
    ):
        done: Any = batchdp.answer(planned, ONE_TEXT[kind], epsilon=10**5, ledger=ledger)
        values = done.values if isinstance(done.values, np.ndarray) else done.values(0)
        assert np.round(values).tolist() == [5, 0, 3]
        assert "one that is not a number, missing, infinite or below 0 is taken as 0" in done.notes[0]


@pytest.mark.parametrize("kind", OBJECTS)
def test_counts_are_not_looked_at_before_the_charge(kind: str, tmp_path: Path) -> None:
    looked = []

    class Spy:
        def __float__(self) -> float:
            looked.append("looked")
            return 3.0

        __len__ = __bool__ = __eq__ = __index__ = __int__ = __float__  # type: ignore[assignment]
        __hash__ = object.__hash__

    planned = batchdp.optimize(batchdp.Workload(np.eye(2)))
    ledger = batchdp.Ledger.create(tmp_path / "budget.db", epsilon=1)
    given = OBJECTS[kind]([Spy(), 2])
    looked.clear()
    with pytest.raises(BudgetError):
        batchdp.answer(planned, given, epsilon=2, ledger=ledger)
    assert not looked
    batchdp.answer(planned, given, epsilon=0.5, ledger=ledger)
    assert looked


NO_LISTS: tuple[Any, ...] = (
    *(None, 3, "555", b"555", bytearray(b"555"), {0: 1, 1: 2, 2: 3}, {1, 2, 3}, iter([1, 2, 3]), np.array(3)),
    *(
        np.ones((3, 1)),
        np.ones((3, 3)),
        np.zeros(3, [("a", int)]),
        np.zeros(3, [("a", int, 2)]),
        pd.DataFrame({"a": [1, 2, 3]}),
    ),
    *(
        pd.Series([1, 2, 3]).groupby([1, 2, 3]),
        pl.LazyFrame({"a": [1, 2, 3]}),
        pa.scalar(3),
        sparse.coo_array(np.ones(3)),
    ),
)


@pytest.mark.parametrize("wrong", NO_LISTS, ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_list_is_refused_by_its_type(wrong: Any) -> None:
    with pytest.raises(BatchDPError, match="counts is not a list of numbers; the workload has 3 cells"):
        counts_of(wrong, 3)


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_length_is_the_shape_and_is_told_to_nobody(kind: str) -> None:
    told = set()
    for entries in ([1, 2], [[0, 1]] * 7, [Hostile()] * 4, []):
        with pytest.raises(BatchDPError) as refusal:
            counts_of(OBJECTS[kind](entries), 3)
        told.add(str(refusal.value))
    assert told == {"counts does not have one entry for each cell; the workload has 3 cells: give one count each"}
    assert counts_of(OBJECTS[kind]([[1], [2, 3], [4]]), 3)().tolist() == [0, 0, 0]
    assert counts_of(OBJECTS[kind]([[1], [2], [4]]), 3)().tolist() == [0, 0, 0]
