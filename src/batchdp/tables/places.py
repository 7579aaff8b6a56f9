"""Amounts on a grid, in the engine: the number of a record's step, an integer of 64 bits.

Whole numbers are exact. Others are rounded in float64, by additions, divisions and floors that every engine does alike,
to the nearest step; ties go up, and so does what lies below a tie by no more than float64's own rounding, so that 0.285
goes where the decimal 0.285 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from batchdp.cells.atoms import AmountAtoms
from batchdp.domain.grid import Grid
from batchdp.queries.conditions import Cut
from batchdp.tables.coding import before, constant
from batchdp.tables.reading import floor, is_whole, missing

LIMB = 21
"""Bits of the pieces in which steps are summed: sums of 2^42 records stay in 64 bits."""
DIGITS = 60
"""Behind the point: PostgreSQL refuses to make a float of a decimal that is smaller than any float."""
ROUNDING = 2.0**-49
"""Of a value's step number in float64, relative to the largest: representing both ends and the step, a difference, a
sum and a quotient."""
MOST_ROUNDING = 2.0**-6
"""Of a step: where float64 is coarser than that, ties are what it takes for one."""


@ibis.udf.scalar.builtin(name="round")  # type: ignore[untyped-decorator]
def _round(x: Decimal, digits: int) -> Decimal:
    """The engine's own: ibis would give it a type of fewer digits."""
    raise NotImplementedError


def place(column: Any, atoms: AmountAtoms, dialect: str) -> Any:
    """The number of the record's step; NULL where the value is not on the grid."""
    low, high = atoms.ends
    below = before(column, Cut(low))
    above = ~before(column, Cut(high, after=True))
    # What cannot be computed with is NULL before anything is cast: no value may raise.
    inside = ibis.ifelse(missing(column) | below | above, ibis.null(column.type()), column)
    found = _whole(inside, int(atoms.grid.low)) if atoms.whole else _nearest(inside, atoms.grid, dialect)
    found = _within(found, constant(atoms.grid.steps), constant(0))
    if atoms.clip:
        found = ibis.ifelse(below, constant(0), ibis.ifelse(above, constant(atoms.grid.steps), found))
        found = ibis.ifelse(missing(column), ibis.null("int64"), found)
    return found


def _whole(inside: Any, low: int) -> Any:
    """How many whole numbers a value is above the first; NULL where it is none."""
    if not inside.type().is_integer():
        inside = ibis.ifelse(is_whole(inside), inside, ibis.null(inside.type()))
    return inside.cast("int64") - constant(low)


def _within(steps: Any, last: Any, first: Any) -> Any:
    """No step beyond the grid's: the ends that values were compared with are rounded where the column is float32."""
    return ibis.ifelse(steps > last, last, ibis.ifelse(steps < first, first, steps))


def half(grid: Grid) -> float:
    """What is added before a quotient is cut to a whole number: half a step, and what float64 may have lost."""
    lost = ROUNDING * float(max(abs(grid.low), abs(grid.high)) / grid.step)
    return float(grid.step) * (0.5 + (lost if lost <= MOST_ROUNDING else 0.0))


def _nearest(inside: Any, grid: Grid, dialect: str) -> Any:
    if inside.type().is_decimal() and dialect == "postgres":
        inside = _round(inside, DIGITS)
    low, added, step = (_float(number) for number in (grid.low, half(grid), grid.step))
    # The sum is far from 0: PostgreSQL refuses a quotient that vanishes. Below 2^63: so is the cast.
    return floor((inside.cast("float64") - low + added) / step).cast("int64")


def _float(number: Any) -> Any:
    return ibis.literal(repr(float(number))).cast("float64")


def limbs(grid: Grid) -> int:
    """How many pieces the number of a step has."""
    return max(1, -(-grid.steps.bit_length() // LIMB))


def limb(steps: Any, i: int) -> Any:
    """A piece of the number of a step, the lowest first."""
    return (steps >> LIMB * i) & ((1 << LIMB) - 1)


def total(pieces: Any) -> Any:
    """The sum of pieces as 64 bits, which engines make more of."""
    return pieces.sum().cast("decimal(38, 0)").cast("int64")


def joined(sums: Sequence[NDArray[np.int64]]) -> NDArray[np.object_]:
    """The sum of steps from those of their pieces, in whole numbers of any size."""
    whole = np.zeros(len(sums[0]), dtype=object)
    for i, part in enumerate(sums):
        whole += part.astype(object) * (1 << LIMB * i)
    return whole
