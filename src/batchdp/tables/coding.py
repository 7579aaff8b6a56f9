"""A record becomes the numbers of its atoms, in the engine: expressions over the table's columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from batchdp.cells.atoms import AmountAtoms, Atoms, LineAtoms, ListedAtoms
from batchdp.queries.conditions import Cut, Place
from batchdp.tables.reading import is_whole, missing

LARGEST_CODE = 2**62


def before(column: Any, cut: Cut) -> Any:
    """Whether a value lies before the cut."""
    dtype = column.type()
    if dtype.is_date():
        if cut.value > date.max.toordinal():
            return ibis.literal(True)
        return column < ibis.literal(date.fromordinal(int(cut.value)))
    cut = _among(cut, dtype)
    if not is_held(cut.value, dtype):
        return ibis.literal(cut.value > 0)
    return column <= _number(cut.value, dtype) if cut.after else column < _number(cut.value, dtype)


def _among(cut: Cut, dtype: Any) -> Cut:
    """A cut between two numbers that the type can hold, as the one before the upper number."""
    if dtype.is_integer() and cut.value != int(cut.value):
        return Cut(math.ceil(cut.value))
    if dtype.is_decimal() and dtype.scale is not None:
        exact = _decimal(cut.value)
        upper = exact.scaleb(dtype.scale).to_integral_value(ROUND_CEILING).scaleb(-dtype.scale)
        if upper != exact:
            return Cut(upper)  # type: ignore[arg-type]
    return cut


def is_held(value: Place, dtype: Any) -> bool:
    """Whether a column of this type can hold exactly this number."""
    if dtype.is_integer():
        return value == int(value) and dtype.bounds.lower <= value <= dtype.bounds.upper
    if dtype.is_decimal() and dtype.scale is not None:
        steps = _decimal(value).scaleb(dtype.scale)
        return steps == steps.to_integral_value() and abs(steps) < Decimal(10) ** dtype.precision
    return True


def _number(value: Place, dtype: Any) -> Any:
    """A literal that the engine compares exactly with a column of this type.

    It is spelled as a text and cast, so that no engine reads 0.1 as a fraction of a type of its own choosing.
    """
    if dtype.is_integer():
        return ibis.literal(int(value))
    if dtype.is_decimal():
        return ibis.literal(format(_decimal(value), "f")).cast(dtype(nullable=True))
    rounded = float(value) if dtype.is_float64() else float(np.float32(value))
    return ibis.literal(repr(rounded)).cast(dtype(nullable=True))


def _decimal(value: Place | Decimal) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(repr(value))


# ── atoms ──


def code(column: Any, atoms: Atoms, stride: int, looked_up: Any = None) -> Any:
    """The number of the record's atom, times the stride, as a 64-bit integer.

    `looked_up` is the number of a listed value's atom, or NULL for anything else, where a join has found it; of an
    amount it is the number of its step, or NULL for what is not on its grid.
    """
    if isinstance(atoms, AmountAtoms):
        found = _amount_code(column, atoms, stride, looked_up)
    elif isinstance(atoms, LineAtoms):
        found = _line_code(column, atoms, stride)
    elif looked_up is None:
        found = _listed_code(column, atoms, stride)
    else:
        found = ibis.coalesce(looked_up * constant(stride), constant(stride * len(atoms.groups)))
    return ibis.ifelse(missing(column), constant(stride * (atoms.size - 1)), found)


@lru_cache(maxsize=1024)
def constant(value: int) -> Any:
    """A literal of 64 bits: left to itself, an engine would take fewer, and overflow in products and sums."""
    return ibis.literal(value).cast("int64") if value < 2**31 else ibis.literal(value)


def _line_code(column: Any, atoms: LineAtoms, stride: int) -> Any:
    def tree(first: int, last: int) -> Any:
        if first == last:
            return constant(stride * first)
        middle = (first + last) // 2
        return ibis.ifelse(before(column, atoms.cuts[middle]), tree(first, middle), tree(middle + 1, last))

    return tree(0, len(atoms.cuts))


def _amount_code(column: Any, atoms: AmountAtoms, stride: int, step: Any) -> Any:
    """On the grid the lower end of the stretch, by the number of the step; elsewhere by the value itself."""
    on_grid = [stretch for stretch in atoms.stretches if stretch.low is not None]

    def by_step(first: int, last: int) -> Any:
        if first == last:
            return constant(stride * (on_grid[first].low or 0))
        middle = (first + last) // 2
        return ibis.ifelse(step <= constant(on_grid[middle].last), by_step(first, middle), by_step(middle + 1, last))

    def by_value(first: int, last: int) -> Any:
        if first == last:
            return constant(stride * (atoms.stretches[first].beside or 0))  # where there is none, no record is
        middle = (first + last) // 2
        return ibis.ifelse(before(column, atoms.cuts[middle]), by_value(first, middle), by_value(middle + 1, last))

    beside = any(stretch.beside is not None for stretch in atoms.stretches)
    elsewhere = by_value(0, len(atoms.cuts)) if beside else constant(0)
    return ibis.ifelse(step.isnull(), elsewhere, by_step(0, len(on_grid) - 1))


def _listed_code(column: Any, atoms: ListedAtoms, stride: int) -> Any:
    branches = [
        (column.isin(values), constant(stride * i))
        for i, group in enumerate(atoms.groups)
        if (values := values_of(group, column.type()))
    ]
    other = constant(stride * len(atoms.groups))
    return ibis.cases(*branches, else_=other) if branches else other


def values_of(group: Sequence[Any], dtype: Any) -> list[Any]:
    """Literals of those of the values that a column of this type can hold."""
    if not dtype.is_numeric() or dtype.is_boolean():
        return list(group)
    return [_number(value, dtype) for value in group if is_held(value, dtype)]


def kept(column: Any, atoms: Atoms, looked_up: Any = None) -> Any:
    """Whether the domain says to keep a record; None where it keeps every one."""
    if isinstance(atoms, AmountAtoms):
        return looked_up.notnull() if atoms.dropping else None
    if atoms.declared is None:
        return None
    if looked_up is not None:
        return looked_up.notnull()
    if isinstance(atoms, ListedAtoms):
        values = values_of(atoms.declared, column.type())
        return column.isin(values) if values else ibis.literal(False)
    low, high = atoms.declared
    top = Cut(high + 1) if atoms.kind == "date" else Cut(high, after=True)
    inside = ~missing(column) & ~before(column, Cut(low)) & before(column, top)
    if atoms.whole and not column.type().is_integer():
        inside = inside & is_whole(column)
    return inside


# ── packing ──


def packing(sizes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Which atoms go into which integer: for each integer, (position, stride) of the columns in it."""
    packs: list[list[tuple[int, int]]] = [[]]
    stride = 1
    for i, size in enumerate(sizes):
        if stride * size > LARGEST_CODE:
            packs.append([])
            stride = 1
        packs[-1].append((i, stride))
        stride *= size
    return packs


def unpacked(
    codes: Sequence[npt.NDArray[np.int64]], packs: Sequence[Sequence[tuple[int, int]]], sizes: Sequence[int]
) -> npt.NDArray[np.int32]:
    """The atoms' numbers again, one column for each."""
    atoms = np.empty((len(codes[0]), len(sizes)), np.int32)
    for pack, together in zip(packs, codes, strict=True):
        for i, stride in pack:
            atoms[:, i] = (together // stride) % sizes[i]
    return atoms
