"""From a function of declared values to what records must fulfil: for it to be true, or to have one of its results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from batchdp.domain import Dates, Integers, Listed, Numbers
from batchdp.domain.columns import Grid, exact, label
from batchdp.queries.query import All, Any, Condition, Cut, Missing, Negation, OneOf, Place, Truth, Within
from batchdp.sql.pieces import FIRST, LAST, Constant, Edge, Function, FunctionError, Line, Region, joined, within_ends


def where(function: Function, regions: list[Region]) -> Condition:
    """The column's value is in one of these regions; unknown for NULL."""
    if isinstance(function.declared, Listed):
        return OneOf(function.column, frozenset(regions))
    found: list[Within] = []
    for low, high in _touching(function, regions):
        start, end = _cut(function, low), _cut(function, high)
        if start is None or end is None or start < end:
            found.append(Within(function.column, start, end))
    if not found:
        return All((Missing(function.column), Negation(Missing(function.column))))
    return found[0] if len(found) == 1 else Any(tuple(found))


def _touching(function: Function, regions: list[Region]) -> Iterator[tuple[Edge, Edge]]:
    """Stretches with no whole number or step between them as one."""
    column = function.declared
    grid = None if isinstance(column, Dates) or column is None or isinstance(column, Listed) else column.grid
    held: tuple[Edge, Edge] | None = None
    for region in regions:
        assert isinstance(region, tuple)
        if held is not None and (held[1] == region[0] or (grid and _first(grid, held[1]) == _first(grid, region[0]))):
            held = held[0], region[1]
            continue
        if held is not None:
            yield held
        held = region
    if held is not None:
        yield held


def _first(grid: Grid, edge: Edge) -> int:
    """The first step behind an edge."""
    place = (Fraction(edge.value) - grid.low) / grid.step
    return math.floor(place) + 1 if edge.after else math.ceil(place)


def _cut(function: Function, edge: Edge) -> Cut | None:
    """An edge as a cut between the values that there are."""
    column = function.declared
    if isinstance(edge.value, float):
        return None
    if isinstance(column, Dates):
        return Cut(math.floor(edge.value) + 1 if edge.after else math.ceil(edge.value))
    if isinstance(column, Integers):
        return Cut(int(edge.value), edge.after) if edge.value.denominator == 1 else Cut(math.ceil(edge.value))
    assert isinstance(column, Numbers)
    if column.grid is not None:
        return _grid_cut(function.column, column.grid, edge)
    near: Place = int(edge.value) if edge.value.denominator == 1 else float(edge.value)
    if exact(near) == edge.value:
        return Cut(near, edge.after)
    # No float is such a number: the next one above it is the first behind the edge.
    return Cut(near if Fraction(near) >= edge.value else math.nextafter(near, math.inf))


def _grid_cut(name: str, grid: Grid, edge: Edge) -> Cut:
    first = _first(grid, edge)
    for value in (grid.value(first), grid.value(first) - grid.step / 2):
        near: Place = int(value) if value.denominator == 1 else float(value)
        if grid.first(near, after=False) == first:
            return Cut(near)
    raise FunctionError(
        f"the steps of {name} are too narrow to be told apart as floats",
        "declare a coarser step, or a range nearer to 0",
    )


def condition_of(function: Function) -> Condition:
    """What a function that is true or false demands; for what is not known, it is neither."""
    if not function.column:
        truths: dict[object, Truth] = {True: Truth.TRUE, False: Truth.FALSE}
        return truths.get(function.constant, Truth.UNKNOWN)
    found: list[Condition] = [where(function, [region for region, result in function.pieces if result is True])]
    known = [region for region, result in joined((r, x is not None) for r, x in function.pieces) if result]
    if not _is_everything(function, known):
        found.append(All((Truth.UNKNOWN, Negation(where(function, known)))))
    if function.missing is True:
        found.append(Missing(function.column))
    whole: Condition = found[0] if len(found) == 1 else Any(tuple(found))
    return All((Negation(Missing(function.column)), whole)) if function.missing is False else whole


def _is_everything(function: Function, known: list[Region]) -> bool:
    """Whether no record can have a value beside these regions."""
    column = function.declared
    assert column is not None
    if isinstance(column, Listed):
        return column.other == "drop" and len(known) == len(column.values)
    if known == [(FIRST, LAST)]:
        return True
    inside = len(known) == 1 and column.other == "drop"
    low, high = known[0] if len(known) == 1 else (LAST, FIRST)
    bottom, top = (exact(end) for end in column.ends())
    return inside and low <= Edge(bottom) and high >= Edge(top, not isinstance(column, Dates))


def groups_of(function: Function) -> dict[Constant, Condition]:
    """For every different result the records that have it, in the order of the results; NULL is none."""
    found: dict[tuple[type, Constant], list[Region]] = {}
    for region, result in function.told_apart().pieces:
        if result is not None:
            found.setdefault((type(result), result), []).append(region)  # type: ignore[arg-type]
    ordered = (
        found
        if isinstance(function.declared, Listed) and not _is_number(function)
        else dict(sorted(found.items(), key=lambda one: one[0][1]))
    )
    groups = {result: where(function, regions) for (_, result), regions in ordered.items()}
    if function.missing is not None:
        holds = groups.get(function.missing)
        own: Condition = Missing(function.column)
        groups[function.missing] = own if holds is None else Any((holds, own))
    return groups


def label_of(result: Constant) -> str:
    """A result as people read it."""
    if isinstance(result, Fraction):
        return str(result.numerator) if result.denominator == 1 else repr(float(result))
    return label(result) if isinstance(result, bool) else str(result)


def labels_of(function: Function) -> list[str]:
    """What a function can be, where that is a few constants."""
    found = [*function.results, function.missing]
    known = [label_of(one) for one in found if one is not None and not isinstance(one, Line)]
    return [] if any(isinstance(one, Line) for one in found) else list(dict.fromkeys(known))


def _is_number(function: Function) -> bool:
    return any(isinstance(result, Fraction) for result in function.results)


def ends_of(function: Function) -> tuple[Fraction, Fraction]:
    """The least and the largest number that a declared value becomes."""
    found = [] if function.missing is None else [function.missing]
    for region, result in function.pieces:
        if isinstance(result, Line):
            assert isinstance(region, tuple)
            low, high = within_ends(function, *region)
            found += [result.at(Fraction(low.value)), result.at(Fraction(high.value))] if low < high else []
        elif result is not None:
            found.append(result)
    return min(found), max(found)  # type: ignore[return-value]
