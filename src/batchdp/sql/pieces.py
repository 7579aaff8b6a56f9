"""A function of one column's declared values: what it is for each of them, in pieces, and what follows for records.

On a list of values, and on days, a piece is a value. On a line of numbers a piece is a stretch on which the function
is a constant, or affine: it is known for every number, however many there are, and its edges are exact fractions.
Arithmetic takes numbers beyond the declared ends as they are, as comparisons do; other functions are not known there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple

from batchdp.domain import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.columns import Grid, exact
from batchdp.queries.query import Value

Constant = str | bool | Fraction | date
"""What a function is for a value; whole numbers too are fractions."""

MOST_PIECES = 100_000
MOST_TOLD_APART = 4096
"""Values of a column that are told apart one by one where a function is not affine."""


class FunctionError(ValueError):
    """What cannot be computed: the problem, and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


class Edge(NamedTuple):
    """Where a line is cut: just before a number, or just after it."""

    value: Fraction | float
    after: bool = False


FIRST, LAST = Edge(-math.inf), Edge(math.inf, True)


@dataclass(frozen=True)
class Line:
    """slope · x + start, with a slope that is not 0."""

    slope: Fraction
    start: Fraction

    def at(self, x: Fraction) -> Fraction:
        """The value at x."""
        return self.slope * x + self.start


Result = Constant | Line | None
"""None is NULL."""
Region = Any
"""A pair of edges, which is a stretch of a line, or a listed value."""
Piece = tuple[Region, Result]


@dataclass(frozen=True)
class Function:
    """What every declared value of a column becomes, in the declared order, and what NULL becomes.

    A constant has no column, and one piece.
    """

    column: str
    declared: Column | None
    pieces: tuple[Piece, ...]
    missing: Constant | None = None

    @property
    def constant(self) -> Constant | None:
        """The value of a constant."""
        found = self.pieces[0][1]
        assert not isinstance(found, Line)
        return found

    @property
    def results(self) -> Iterator[Result]:
        """All that it can be for declared values."""
        return (result for _, result in self.pieces)

    def mapped(self, compute: Callable[[Constant], Constant | None]) -> Function:
        """Another function of the results, which are constants; NULL stays NULL."""
        flat = self.told_apart()

        def one(result: Result) -> Constant | None:
            return None if result is None else compute(result)  # type: ignore[arg-type]

        return replace(flat, pieces=joined((r, one(x)) for r, x in flat.pieces), missing=one(self.missing))

    def told_apart(self) -> Function:
        """With constants alone: where the function is affine, every declared value is a piece."""
        if not any(isinstance(result, Line) for result in self.results):
            return self
        grid = self._grid()
        if grid.steps >= MOST_TOLD_APART:
            raise FunctionError(
                f"a function of {self.column} that is computed value by value, of {grid.steps + 1:,} values",
                f"declare at most {MOST_TOLD_APART:,} values, by a coarser step or a shorter range",
            )
        pieces: list[Piece] = []
        at = 0
        for (start, end), result in self.pieces:
            while at <= grid.steps and (Edge(grid.value(at)) < start):
                at += 1
            while at <= grid.steps and Edge(grid.value(at), True) <= end:
                x = grid.value(at)
                pieces.append(((Edge(x), Edge(x, True)), result.at(x) if isinstance(result, Line) else result))
                at += 1
        return replace(self, pieces=tuple(pieces))

    def _grid(self) -> Grid:
        column = self.declared
        if not isinstance(column, Integers | Numbers) or column.grid is None:
            raise FunctionError(
                f"a function of {self.column} that is computed value by value, and any number may be one of its values",
                f"add a step to {self.column} that leaves at most {MOST_TOLD_APART:,} values",
            )
        return column.grid


def constant(value: Constant | None) -> Function:
    """The same for every record."""
    return Function("", None, (((FIRST, LAST), value),), value)


def identity(name: str, column: Column) -> Function:
    """The column itself, as a function."""
    if isinstance(column, Listed):
        return Function(name, column, tuple((value, _read(value)) for value in column.values))
    if isinstance(column, Dates):
        first, last = (int(end) for end in column.ends())
        if last - first >= MOST_PIECES:
            raise FunctionError(
                f"a function of {name}, which has {last - first + 1:,} days", f"declare at most {MOST_PIECES:,} days"
            )
        days = range(first, last + 1)
        return Function(
            name, column, tuple(((Edge(Fraction(d)), Edge(Fraction(d + 1))), date.fromordinal(d)) for d in days)
        )
    return Function(name, column, (((FIRST, LAST), Line(Fraction(1), Fraction(0))),))


def _read(value: Value) -> Constant:
    return Fraction(value) if isinstance(value, int) and not isinstance(value, bool) else value


def joined(pieces: Iterator[Piece]) -> tuple[Piece, ...]:
    """The same with neighbouring stretches of one result as one; neighbours of whole numbers or steps touch."""
    found: list[Piece] = []
    for region, result in pieces:
        if found and isinstance(region, tuple) and found[-1][1] == result and type(found[-1][1]) is type(result):
            before = found[-1][0]
            assert isinstance(before, tuple)
            if before[1] == region[0]:
                found[-1] = (before[0], region[1]), result
                continue
        found.append((region, result))
    return tuple(found)


def both(one: Function, other: Function) -> Iterator[tuple[Region, Result, Result]]:
    """What two functions of one column are, on pieces on which both have one piece."""
    if not one.column or not other.column:
        for region, result in (one if one.column else other).pieces:
            yield region, *((result, other.constant) if one.column else (one.constant, result))
        return
    if isinstance(one.declared, Listed):
        for (region, first), (_, second) in zip(one.pieces, other.pieces, strict=True):
            yield region, first, second
        return
    i = j = 0
    while i < len(one.pieces) and j < len(other.pieces):
        ((low, high), first), ((start, end), second) = one.pieces[i], other.pieces[j]
        if max(low, start) < min(high, end):
            yield (max(low, start), min(high, end)), first, second
        i, j = i + (high <= end), j + (end <= high)


def computed(one: Function, other: Function, compute: Callable[[Constant, Constant], Constant | None]) -> Function:
    """A function of two constants or functions of one column; NULL where one of them is."""
    one, other = one.told_apart(), other.told_apart()

    def result(a: Result, b: Result) -> Constant | None:
        return None if a is None or b is None else compute(a, b)  # type: ignore[arg-type]

    own = one if one.column else other
    pieces = joined((region, result(a, b)) for region, a, b in both(one, other))
    return Function(own.column, own.declared, pieces, result(one.missing, other.missing))


def line(slope: Fraction, start: Fraction) -> Result:
    """A line, or a constant where it is level."""
    return Line(slope, start) if slope else start


def arithmetic(one: Function, other: Function, sign: str) -> Function:
    """One + − × or ÷ the other, exactly."""
    own = one if one.column else other

    def result(a: Result, b: Result) -> Result:
        if a is None or b is None:
            return None
        (p, q), (r, s) = ((x.slope, x.start) if isinstance(x, Line) else (Fraction(0), x) for x in (a, b))
        assert isinstance(q, Fraction)
        assert isinstance(s, Fraction)
        if sign in "+-":
            more = 1 if sign == "+" else -1
            return line(p + more * r, q + more * s)
        if sign == "*" and not (p and r):
            return line(p * s + r * q, q * s)
        if sign == "/" and not r:
            if s == 0:
                raise FunctionError("a division by zero", "divide by another number")
            return line(p / s, q / s)
        raise _NotAffineError

    try:
        pieces = joined((region, result(a, b)) for region, a, b in both(one, other))
    except _NotAffineError:
        return arithmetic(one.told_apart(), other.told_apart(), sign)
    missing = result(one.missing, other.missing)
    assert not isinstance(missing, Line)
    return Function(own.column, own.declared, pieces, missing)


class _NotAffineError(Exception):
    """Caught where every value is then told apart."""


def absolute(one: Function) -> Function:
    """The distance |x| from 0."""

    def parts(low: Edge, high: Edge, own: Line) -> Iterator[Piece]:
        for region, sign in _signs(low, high, own):
            yield region, (Fraction(0) if sign == 0 else line(sign * own.slope, sign * own.start))

    return _piecewise(one, parts, abs)  # type: ignore[arg-type]


def rounded(one: Function, how: str) -> Function:
    """The whole number below ("floor"), above ("ceil"), or nearest, halves away from 0 ("round")."""

    def whole(x: Fraction) -> Fraction:
        if how == "round":
            return Fraction(math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1))
        return Fraction(math.floor(x) if how == "floor" else math.ceil(x))

    def parts(low: Edge, high: Edge, own: Line) -> Iterator[Piece]:
        low, high = within_ends(one, low, high)
        if not low < high:
            return
        ends = [own.at(Fraction(low.value)), own.at(Fraction(high.value))]
        first, last = math.floor(min(ends)) - 1, math.ceil(max(ends)) + 1
        if last - first > MOST_PIECES:
            raise FunctionError(f"more than {MOST_PIECES:,} different results", "divide by a larger number first")
        order = range(first, last + 1) if own.slope > 0 else range(last, first - 1, -1)
        for k in order:
            start, end = _that_round_to(k, how)
            edges = [Edge((Fraction(e.value) - own.start) / own.slope, e.after) for e in (start, end)]
            if own.slope < 0:  # just before a value is just after it from the other side
                edges = [Edge(e.value, not e.after) for e in reversed(edges)]
            if max(low, edges[0]) < min(high, edges[1]):
                yield (max(low, edges[0]), min(high, edges[1])), Fraction(k)

    return _piecewise(one, parts, whole)  # type: ignore[arg-type]


def _that_round_to(k: int, how: str) -> tuple[Edge, Edge]:
    """The numbers that become k."""
    half = Fraction(1, 2)
    if how == "floor":
        return Edge(Fraction(k)), Edge(Fraction(k + 1))
    if how == "ceil":
        return Edge(Fraction(k - 1), True), Edge(Fraction(k), True)
    # Halves go away from 0: −0.5 becomes −1, and 0.5 becomes 1.
    return Edge(k - half, after=k <= 0), Edge(k + half, after=k < 0)


def _piecewise(
    one: Function, parts: Callable[[Edge, Edge, Line], Iterator[Piece]], compute: Callable[[Constant], Constant]
) -> Function:
    """A function of another one that is known on every stretch on which that is affine."""
    found: list[Piece] = []
    for region, result in one.pieces:
        if isinstance(result, Line):
            low, high = region
            found += parts(low, high, result)
        else:
            found.append((region, None if result is None else compute(result)))
    missing = None if one.missing is None else compute(one.missing)
    return replace(one, pieces=joined(iter(found)), missing=missing)


def within_ends(one: Function, low: Edge, high: Edge) -> tuple[Edge, Edge]:
    """A stretch as far as it is declared."""
    assert isinstance(one.declared, Integers | Numbers)
    bottom, top = (exact(end) for end in one.declared.ends())
    return max(low, Edge(bottom)), min(high, Edge(top, True))


def _signs(low: Edge, high: Edge, own: Line) -> Iterator[tuple[tuple[Edge, Edge], int]]:
    """A stretch in up to three: where a line is on one side of 0, where it is 0, where it is on the other."""
    root = -own.start / own.slope
    at, behind = Edge(root), Edge(root, True)
    before = -1 if own.slope > 0 else 1
    for start, end, sign in (
        (low, min(at, high), before),
        (max(low, at), min(behind, high), 0),
        (max(low, behind), high, -before),
    ):
        if start < end:
            yield (start, end), sign


COMPARE: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "<>": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def compared(one: Function, other: Function, sign: str) -> Function:
    """Whether one is less, equal or more than the other, as a function."""
    own, holds = one if one.column else other, COMPARE[sign]

    def pieces() -> Iterator[Piece]:
        for region, a, b in both(one, other):
            if a is None or b is None:
                yield region, None
            elif isinstance(a, Line) or isinstance(b, Line):
                gap = arithmetic_of(a, b)
                if isinstance(gap, Line):
                    low, high = region
                    yield from ((part, holds(side)) for part, side in _signs(low, high, gap))
                else:
                    yield region, holds((gap > 0) - (gap < 0))
            else:
                yield region, holds((a > b) - (a < b))  # type: ignore[operator]

    nothing = one.missing is None or other.missing is None
    found = None if nothing else holds((one.missing > other.missing) - (one.missing < other.missing))  # type: ignore[operator]
    return Function(own.column, own.declared, joined(pieces()), found)


def arithmetic_of(a: Any, b: Any) -> Line | Fraction:
    """The difference of two results that are numbers."""
    (p, q), (r, s) = ((x.slope, x.start) if isinstance(x, Line) else (Fraction(0), x) for x in (a, b))
    found = line(p - r, q - s)
    assert isinstance(found, Line | Fraction)
    return found
