"""A record becomes the numbers of its atoms, in the engine: expressions over the table's columns.

Long lists of values are a small table within the query that the records are joined with: a CASE with a branch for
each value is tried from the top for every record. Amounts on a grid are the number of a step. Whole numbers are
exact; others are rounded in float64, by additions, divisions and floors that every engine does alike, to the
nearest step; ties go up, and so does what lies below a tie by no more than float64's own rounding, so that 0.285
goes where the decimal 0.285 does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import sqlglot.expressions as sge
from ibis.backends.sql.datatypes import DuckDBType, PostgresType, PySparkType  # type: ignore[import-untyped]
from numpy.typing import NDArray

from batchdp.domain.columns import Column, Dates, Grid, Integers, Listed, Numbers, exact
from batchdp.engines.columns import BYTES, engine_function, floor, is_missing, is_whole
from batchdp.queries.query import Cut, Place, Value
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms, LineAtoms, ListedAtoms

LARGEST_CODE = 2**62


def is_before(column: Any, cut: Cut) -> Any:
    """Whether a value lies before the cut."""
    dtype = column.type()
    if dtype.is_date():
        if cut.value > date.max.toordinal():
            return ibis.literal(True)
        return column < ibis.literal(date.fromordinal(int(cut.value)))
    cut = _snap_cut(cut, dtype)
    if not is_held(cut.value, dtype):
        return ibis.literal(cut.value > 0)
    return column <= _number_literal(cut.value, dtype) if cut.after else column < _number_literal(cut.value, dtype)


def _snap_cut(cut: Cut, dtype: Any) -> Cut:
    """A cut between two numbers that the type can hold, as the one before the upper number."""
    if dtype.is_integer() and cut.value != int(cut.value):
        return Cut(math.ceil(cut.value))
    if dtype.is_decimal() and dtype.scale is not None:
        exact = _as_decimal(cut.value)
        upper = exact.scaleb(dtype.scale).to_integral_value(ROUND_CEILING).scaleb(-dtype.scale)
        if upper != exact:
            return Cut(upper)  # type: ignore[arg-type]
    return cut


def is_held(value: Place, dtype: Any) -> bool:
    """Whether a column of this type can hold exactly this number."""
    if dtype.is_integer():
        return value == int(value) and dtype.bounds.lower <= value <= dtype.bounds.upper
    if dtype.is_decimal() and dtype.scale is not None:
        steps = _as_decimal(value).scaleb(dtype.scale)
        return steps == steps.to_integral_value() and abs(steps) < Decimal(10) ** dtype.precision
    return True


def _number_literal(value: Place, dtype: Any) -> Any:
    """A literal that the engine compares exactly with a column of this type.

    It is spelled as a text and cast, so that no engine reads 0.1 as a fraction of a type of its own choosing.
    """
    if dtype.is_integer():
        return ibis.literal(int(value))
    if dtype.is_decimal():
        return ibis.literal(format(_as_decimal(value), "f")).cast(dtype(nullable=True))
    rounded = float(value) if dtype.is_float64() else float(np.float32(value))
    return ibis.literal(repr(rounded)).cast(dtype(nullable=True))


def _as_decimal(value: Place | Decimal) -> Decimal:
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
    return ibis.ifelse(is_missing(column), constant(stride * (atoms.size - 1)), found)


@lru_cache(maxsize=1024)
def constant(value: int) -> Any:
    """A literal of 64 bits: left to itself, an engine would take fewer, and overflow in products and sums."""
    return ibis.literal(value).cast("int64") if value < 2**31 else ibis.literal(value)


LONG = 8
"""Whole numbers or days in a row, each an atom by itself, from which their atom is counted and not searched for."""


def _line_code(column: Any, atoms: LineAtoms, stride: int) -> Any:
    """By halves; within a long row of single whole numbers or days, by how many are before the value."""
    if not atoms.cuts:
        return constant(0)
    starts = _whole_starts(atoms.cuts, column.type())
    single = [False] + [start is not None and end == start + 1 for start, end in pairwise(starts)] + [False]
    rows = [list(own) for _, own in groupby(range(len(single)), lambda i: (single[i], 0 if single[i] else i))]
    rows = [part for own in rows for part in ([own] if len(own) >= LONG else [[i] for i in own])]

    def found(place: int) -> Any:
        first, last = rows[place][0], rows[place][-1]
        if first == last:
            return constant(stride * first)
        inside = ~is_before(column, atoms.cuts[first - 1]) & is_before(column, atoms.cuts[last])
        # What cannot be computed with is NULL before: no value may raise.
        value, start = ibis.ifelse(inside, column, ibis.null(column.type())), starts[first - 1]
        if column.type().is_date():
            passed = value.delta(ibis.literal(date.fromordinal(start)), unit="day").cast("int64")
        else:
            passed = value.cast("int64") - constant(start)
        return (passed + constant(first)) * constant(stride)

    return _search(len(rows) - 1, found, lambda place: is_before(column, atoms.cuts[rows[place][-1]]))


def _whole_starts(cuts: Sequence[Cut], dtype: Any) -> list[Any]:
    """The first whole number or day after every cut; None where a column of this type can have others."""
    if not (dtype.is_date() or dtype.is_integer()):
        return [None] * len(cuts)
    return [math.floor(cut.value) + 1 if cut.after else math.ceil(cut.value) for cut in cuts]


def _search(last: int, found: Callable[[int], Any], is_up_to: Callable[[int], Any], first: int = 0) -> Any:
    """What is found for the first number that a value is up to, by halves: engines try long lists from the top."""
    if first == last:
        return found(first)
    middle = (first + last) // 2
    lower, upper = (_search(end, found, is_up_to, start) for start, end in ((first, middle), (middle + 1, last)))
    return ibis.ifelse(is_up_to(middle), lower, upper)


def _amount_code(column: Any, atoms: AmountAtoms, stride: int, step: Any) -> Any:
    """On the grid the lower end of the stretch, by the number of the step; elsewhere by the value itself."""
    on_grid = [stretch for stretch in atoms.stretches if stretch.low is not None]

    ends = [stretch.beside for stretch in atoms.stretches]  # where there is none, no record is
    elsewhere = constant(0)
    if any(end is not None for end in ends):
        elsewhere = _search(
            len(atoms.cuts), lambda i: constant(stride * (ends[i] or 0)), lambda i: is_before(column, atoms.cuts[i])
        )
    here = _search(
        len(on_grid) - 1,
        lambda i: constant(stride * (on_grid[i].low or 0)),
        lambda i: step <= constant(on_grid[i].last),
    )
    return ibis.ifelse(step.isnull(), elsewhere, here)


def _listed_code(column: Any, atoms: ListedAtoms, stride: int) -> Any:
    branches = [
        (column.isin(values), constant(stride * i))
        for i, group in enumerate(atoms.groups)
        if (values := values_of(group, column.type()))
    ]
    other = constant(stride * len(atoms.groups))
    return ibis.cases(*branches, else_=other) if branches else other


def value_at(place: Any, atoms: ListedAtoms) -> Any:
    """The listed value that alone is an atom, by the atom's number; NULL where there is no number."""
    values = [constant(value) if type(value) is int else ibis.literal(value) for (value,) in atoms.groups]
    found = _search(len(values) - 1, lambda i: values[i], lambda i: place <= constant(i))
    return ibis.ifelse(place.isnull(), ibis.null(values[0].type()), found)


def values_of(group: Sequence[Any], dtype: Any) -> list[Any]:
    """Literals of those of the values that a column of this type can hold."""
    if not dtype.is_numeric() or dtype.is_boolean():
        return list(group)
    return [_number_literal(value, dtype) for value in group if is_held(value, dtype)]


def keeps(column: Any, atoms: Atoms, looked_up: Any = None) -> Any:
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
    inside = ~is_missing(column) & ~is_before(column, Cut(low)) & is_before(column, top)
    if atoms.whole and not column.type().is_integer():
        inside = inside & is_whole(column)
    return inside


# ── packing ──


def pack(sizes: Sequence[int]) -> list[list[tuple[int, int]]]:
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


def unpack(
    codes: Sequence[npt.NDArray[np.int64]], packs: Sequence[Sequence[tuple[int, int]]], sizes: Sequence[int]
) -> npt.NDArray[np.int32]:
    """The atoms' numbers again, one column for each."""
    atoms = np.empty((len(codes[0]), len(sizes)), np.int32)
    for pack, together in zip(packs, codes, strict=True):
        for i, stride in pack:
            atoms[:, i] = (together // stride) % sizes[i]
    return atoms


# ── long lists of values ──

SHORT = 32
"""So many values are tried one by one."""
SQL_TYPES = {"duckdb": DuckDBType, "postgres": PostgresType, "pyspark": PySparkType}


@dataclass(frozen=True)
class Lookup:
    """Values of a column with their atoms, as a table `name(value, atom)`."""

    name: str
    dialect: str
    dtype: Any
    """The ibis type of the column, which the values are given too."""
    atoms: tuple[tuple[Value, int], ...]

    def sql(self) -> str:
        """The table as a part of WITH."""
        dialect = {"pyspark": "spark"}.get(self.dialect, self.dialect)
        texts = ((value if isinstance(value, str) else str(int(value)), atom) for value, atom in self.atoms)
        rows = ", ".join(f"({sge.convert(text).sql(dialect=dialect)}, {atom})" for text, atom in texts)
        type_ = ibis.expr.datatypes.dtype(self.dtype)(nullable=True)
        spelled = SQL_TYPES[self.dialect].from_ibis(type_).sql(dialect=dialect)
        # The value is cast to the column's own type and the atom to 64 bits: engines would choose smaller ones.
        return (
            f"{self.name} AS (SELECT CAST(value AS {spelled}) AS value, CAST(atom AS BIGINT) AS atom "
            f"FROM (VALUES {rows}) AS listed(value, atom))"
        )


def build_lookup(atoms: Atoms, name: str, dtype: Any, dialect: str, collates: bool) -> Lookup | None:
    """The table for a long list, and for texts that a collation could confuse; None for everything else."""
    if not isinstance(atoms, ListedAtoms) or atoms.kind == "boolean":
        return None
    found: dict[Value, int] = dict.fromkeys(atoms.declared or (), len(atoms.groups))
    found |= {value: i for i, group in enumerate(atoms.groups) for value in group}
    if len(found) <= SHORT and not (collates and atoms.kind == "text"):
        return None
    held = [(value, atom) for value, atom in found.items() if isinstance(value, str) or is_held(value, dtype)]
    if dtype.is_float32():  # which takes neighbouring whole numbers for one; the first atom has them
        first = sorted(held, key=lambda one: -one[1])
        held = list({np.float32(value): (value, atom) for value, atom in first}.values())
    return Lookup(name, dialect, dtype, tuple(held)) if held else None


def join_lookup(rows: Any, column: str, table: Lookup, place: str, collates: bool) -> Any:
    """The rows with their atoms in the column `place`; NULL where the value is not in the table."""
    there = ibis.table({"value": table.dtype, "atom": "int64"}, name=table.name)
    match = rows[column] == there["value"]
    if collates and table.dtype.is_string():
        # Bytes, because a collation that takes two values for one would find a record twice.
        match = BYTES[table.dialect](rows[column]) == BYTES[table.dialect](there["value"])
    return rows.left_join(there, match).select(rows, **{place: there["atom"]})


# ── amounts on a grid ──

LIMB = 21
"""Bits of the pieces in which steps are summed: sums of 2^42 records stay in 64 bits."""
DIGITS = 60
"""Behind the point: PostgreSQL refuses to make a float of a decimal that is smaller than any float."""
ROUNDING = 2.0**-49
"""Of a value's step number in float64, relative to the largest: representing both ends and the step, a difference, a
sum and a quotient."""
MOST_ROUNDING = 2.0**-6
"""Of a step: where float64 is coarser than that, ties are what it takes for one."""


_round = engine_function("round", lambda x, digits: None, (Decimal, int), Decimal)
"""The engine's own: ibis would give it a type of fewer digits."""


def place_on_grid(column: Any, atoms: AmountAtoms, dialect: str) -> Any:
    """The number of the record's step; NULL where the value is not on the grid."""
    low, high = atoms.ends
    below = is_before(column, Cut(low))
    above = ~is_before(column, Cut(high, after=True))
    # What cannot be computed with is NULL before anything is cast: no value may raise.
    inside = ibis.ifelse(is_missing(column) | below | above, ibis.null(column.type()), column)
    found = _whole_steps(inside, int(atoms.grid.low)) if atoms.whole else _nearest_step(inside, atoms.grid, dialect)
    first, last = constant(0), constant(atoms.grid.steps)
    found = _clamp(found, last, first)
    if atoms.clip:
        found = ibis.ifelse(below, first, ibis.ifelse(above, last, found))
        found = ibis.ifelse(is_missing(column), ibis.null("int64"), found)
    return found


def _clamp(steps: Any, last: Any, first: Any) -> Any:
    """No step beyond the grid's: the ends that values were compared with are rounded where the column is float32."""
    return ibis.ifelse(steps > last, last, ibis.ifelse(steps < first, first, steps))


def _whole_steps(inside: Any, low: int) -> Any:
    """How many whole numbers a value is above the first; NULL where it is none."""
    if not inside.type().is_integer():
        inside = ibis.ifelse(is_whole(inside), inside, ibis.null(inside.type()))
    return inside.cast("int64") - constant(low)


def half_step(grid: Grid) -> float:
    """What is added before a quotient is cut to a whole number: half a step, and what float64 may have lost."""
    lost = ROUNDING * float(max(abs(grid.low), abs(grid.high)) / grid.step)
    return float(grid.step) * (0.5 + (lost if lost <= MOST_ROUNDING else 0.0))


def _nearest_step(inside: Any, grid: Grid, dialect: str) -> Any:
    if inside.type().is_decimal() and dialect == "postgres":
        inside = _round(inside, DIGITS)
    low, added, step = (_float_literal(number) for number in (grid.low, half_step(grid), grid.step))
    # The sum is far from 0: PostgreSQL refuses a quotient that vanishes. Below 2^63: so is the cast.
    return floor((inside.cast("float64") - low + added) / step).cast("int64")


def _float_literal(number: Any) -> Any:
    return ibis.literal(repr(float(number))).cast("float64")


FINEST = 2**40
"""Steps that a range without any is cut into where a value is spelled."""
LEAST_STEP = Fraction(1, 10**290)


def spell_declared(column: Any, declared: Column, dialect: str) -> Any:
    """What a record has in a declared column, as a text that is alike in every engine and never NULL."""
    if isinstance(declared, Listed) and declared.kind != "integer":
        told = ibis.ifelse(column, "1", "0") if declared.kind == "boolean" else column
    elif isinstance(declared, Dates):
        first, last = declared.ends()
        inside = ~is_before(column, Cut(first)) & is_before(column, Cut(last + 1))
        day = ibis.ifelse(inside, column, ibis.null("date"))
        told = (day.year() * 10_000 + day.month() * 100 + day.day()).cast("int64").cast("string")
    else:
        told = place_on_grid(column, finest(declared), dialect).cast("string")
    return ibis.ifelse(is_missing(column), "-", ibis.coalesce("=" + told, "?"))


def finest(declared: Listed | Numbers | Integers) -> AmountAtoms:
    """A column of numbers as one of amounts, each step by itself."""
    if isinstance(declared, Listed):
        declared = Integers(integers=(min(map(int, declared.values)), max(map(int, declared.values))))
    low, high = declared.ends()
    grid = declared.grid or _finest_grid(exact(low), exact(high))
    whole, clip = isinstance(declared, Integers), declared.outside is not None
    return AmountAtoms("", grid, (low, high), (), dropping=False, whole=whole, clip=clip, summed=False)


def _finest_grid(low: Fraction, high: Fraction) -> Grid:
    """A range in many steps, none so small that what a float of 32 bits is off by would not fit when divided by it."""
    step = max((high - low) / FINEST, max(abs(low), abs(high)) / 2**60, LEAST_STEP)
    return Grid(low, step, int((high - low) / step))


def count_limbs(grid: Grid) -> int:
    """How many pieces the number of a step has."""
    return max(1, -(-grid.steps.bit_length() // LIMB))


def take_limb(steps: Any, i: int) -> Any:
    """A piece of the number of a step, the lowest first."""
    return (steps >> LIMB * i) & ((1 << LIMB) - 1)


def sum_limbs(pieces: Any) -> Any:
    """The sum of pieces as 64 bits, which engines make more of."""
    return pieces.sum().cast("decimal(38, 0)").cast("int64")


def join_limbs(sums: Sequence[NDArray[np.int64]]) -> NDArray[np.object_]:
    """The sum of steps from those of their pieces, in whole numbers of any size."""
    whole = np.zeros(len(sums[0]), dtype=object)
    for i, part in enumerate(sums):
        whole += part.astype(object) * (1 << LIMB * i)
    return whole
