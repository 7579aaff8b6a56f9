"""What is computed from linear answers, as a value: ratios added up, or where a running total crosses a share.

The parts are whatever stands for a linear query: amounts while SQL is read, positions of queries in a plan and in a
release. Nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Generic, TypeVar

Part = TypeVar("Part")
Other = TypeVar("Other")

MOST_EDGES = 100_001
"""Of the bins of a quantile."""
MOST_RATIOS = 32
"""With denominators of their own, in one expression: intervals look at them two by two."""
LARGEST = 1e100
"""Number in an expression, as in SQL."""
MOST_STEPS = 2.0**53
"""Between the ends of a column."""
SUM, QUANTILE, MOMENT = "sum", "quantile", "moment"
"""The kinds of expressions, in files."""


@dataclass(frozen=True)
class Affine(Generic[Part]):
    """A constant, and multiples of parts."""

    constant: float = 0.0
    terms: tuple[tuple[float, Part], ...] = ()

    @property
    def parts(self) -> Iterator[Part]:
        """The parts that are multiplied by numbers."""
        return (part for _, part in self.terms)

    def mapped(self, to: Callable[[Part], Other]) -> Affine[Other]:
        """The same of other parts."""
        return Affine(self.constant, tuple((factor, to(part)) for factor, part in self.terms))


@dataclass(frozen=True)
class Ratio(Generic[Part]):
    """One over the other."""

    numerator: Affine[Part]
    denominator: Affine[Part]


@dataclass(frozen=True)
class Combination(Generic[Part]):
    """A plain answer and ratios, added up; either may be missing."""

    plain: Affine[Part]
    ratios: tuple[Ratio[Part], ...] = ()

    @property
    def parts(self) -> Iterator[Part]:
        """Every part, as often as it stands there."""
        yield from self.plain.parts
        for ratio in self.ratios:
            yield from ratio.numerator.parts
            yield from ratio.denominator.parts

    def mapped(self, to: Callable[[Part], Other]) -> Combination[Other]:
        """The same of other parts."""
        ratios = tuple(Ratio(one.numerator.mapped(to), one.denominator.mapped(to)) for one in self.ratios)
        return Combination(self.plain.mapped(to), ratios)


@dataclass(frozen=True)
class Crossing(Generic[Part]):
    """Where the running total of a group crosses a share of its total: a quantile.

    Args:
        share: p, above 0 and below 1.
        edges: of the bins, in ascending order, both ends of the line among them.
        below: for every edge between the ends, the records below it.
        total: all records between the ends.
        step: the values are whole multiples of this from `start`; None where any number may be one.
        start: the first of them.
    """

    share: float
    edges: tuple[float, ...]
    below: tuple[Part, ...]
    total: Part
    step: float | None = None
    start: float = 0.0

    @property
    def parts(self) -> Iterator[Part]:
        """The running totals, from the lowest, and the total."""
        yield from self.below
        yield self.total

    def mapped(self, to: Callable[[Part], Other]) -> Crossing[Other]:
        """The same of other parts."""
        below = tuple(map(to, self.below))
        return Crossing(self.share, self.edges, below, to(self.total), self.step, self.start)


MOMENTS = ("variance", "deviation", "covariance", "correlation")


@dataclass(frozen=True)
class Moments(Generic[Part]):
    """A variance, its root, a covariance or a correlation, from a count, sums, and sums of squares and products.

    Args:
        what: one of `MOMENTS`.
        sample: whether one less than the count is divided by.
        count: the records that have a number, or both.
        sums: of x, and of y where there are two.
        products: of x with x; or of x with y, and for a correlation of x with x and of y with y.
    """

    what: str
    sample: bool
    count: Part
    sums: tuple[Part, ...]
    products: tuple[Part, ...]

    @property
    def parts(self) -> Iterator[Part]:
        """The count, the sums, and the sums of products."""
        yield from (self.count, *self.sums, *self.products)

    def mapped(self, to: Callable[[Part], Other]) -> Moments[Other]:
        """The same of other parts."""
        sums, products = tuple(map(to, self.sums)), tuple(map(to, self.products))
        return Moments(self.what, self.sample, to(self.count), sums, products)

    def of(self, numbers: Sequence[complex]) -> complex:
        """What it is where the parts are these numbers, in their order; a deviation as its square."""
        n, sums, products = numbers[0], numbers[1 : 1 + len(self.sums)], numbers[1 + len(self.sums) :]
        by = n - self.sample

        def product(which: int, a: int, b: int) -> complex:
            return (products[which] - sums[a] * sums[b] / n) / by

        if self.what != "correlation":
            return product(0, 0, len(self.sums) - 1)
        return product(0, 0, 1) / (product(1, 0, 0) * product(2, 1, 1)) ** 0.5


DERIVED = (Combination, Crossing, Moments)
"""What is computed from parts."""


@dataclass(frozen=True)
class Asked(Generic[Part]):
    """An answer that somebody asked for: a part as it is, or something computed from parts."""

    name: str
    of: Part | Combination[Part] | Crossing[Part] | Moments[Part]

    @property
    def derived(self) -> bool:
        """Whether it is computed from parts."""
        return isinstance(self.of, DERIVED)


def parts_of(of: int | Combination[int] | Crossing[int] | Moments[int]) -> Iterator[int]:
    """The queries that an answer is computed from."""
    if isinstance(of, DERIVED):
        yield from of.parts
    else:
        yield of


def written(asked: Sequence[Asked[int]]) -> list[dict[str, Any]]:
    """What is asked, as files have it."""
    return [{"name": one.name, "of": write_expression(one.of) if one.derived else one.of} for one in asked]  # type: ignore[arg-type]


def write_expression(of: Combination[Any] | Crossing[Any] | Moments[Any]) -> dict[str, Any]:
    """For files; its parts stand there as they are."""
    if isinstance(of, Combination):
        ratios = [[_affine(one.numerator), _affine(one.denominator)] for one in of.ratios]
        return {"kind": SUM, "plain": _affine(of.plain), "ratios": ratios}
    if isinstance(of, Moments):
        sums, products = list(of.sums), list(of.products)
        held = {"what": of.what, "sample": of.sample, "count": of.count, "sums": sums, "products": products}
        return {"kind": MOMENT, **held}
    written = {field.name: getattr(of, field.name) for field in fields(of)}
    return {"kind": QUANTILE, **written, "edges": list(of.edges), "below": list(of.below)}


def _affine(one: Affine[Any]) -> dict[str, Any]:
    return {"constant": one.constant, "terms": [[factor, part] for factor, part in one.terms]}


def read(content: Any, queries: int) -> tuple[Asked[int], ...]:
    """From a file, where anything can stand; a `ValueError` unless it is about so many queries."""
    if not isinstance(content, list):
        raise ValueError("what is asked is not a list")

    def part(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < queries:
            raise ValueError("a query that does not exist")
        return value

    def asked(name: Any, of: Any) -> Asked[int]:
        if not isinstance(name, str):
            raise ValueError("a name that is not a text")
        return Asked(name, read_expression(of, part) if isinstance(of, dict) else part(of))

    return tuple(asked(one["name"], one["of"]) for one in content)


def read_expression(of: Any, part: Callable[[Any], Part]) -> Combination[Part] | Crossing[Part] | Moments[Part]:
    """From a file, where anything can stand, with its parts read by a function; a `ValueError` if it is none."""
    if of["kind"] == SUM:
        ratios = tuple(Ratio(_read_affine(above, part), _read_affine(below, part)) for above, below in of["ratios"])
        if len(ratios) > MOST_RATIOS:
            raise ValueError("more ratios than can be looked at")
        if any(not ratio.denominator.terms for ratio in ratios):
            raise ValueError("a ratio divides by a constant")
        return Combination(_read_affine(of["plain"], part), ratios)
    if of["kind"] == MOMENT:
        shapes = {"variance": (1, 1), "deviation": (1, 1), "covariance": (2, 1), "correlation": (2, 3)}
        sums, products = tuple(map(part, of["sums"])), tuple(map(part, of["products"]))
        if shapes.get(of["what"]) != (len(sums), len(products)) or not isinstance(of["sample"], bool):
            raise ValueError("an unknown moment")
        return Moments(of["what"], of["sample"], part(of["count"]), sums, products)
    if of["kind"] != QUANTILE:
        raise ValueError("an expression of another kind")
    edges, share = tuple(map(_number, of["edges"])), _number(of["share"])
    below = tuple(map(part, of["below"]))
    step = None if of["step"] is None else _number(of["step"])
    ordered = all(low < high for low, high in pairwise(edges))
    if not (0 < share < 1 and ordered and 2 <= len(edges) <= MOST_EDGES and len(below) == len(edges) - 2):
        raise ValueError("the bins of a quantile do not fit together")
    if step is not None and not (step > 0 and edges[-1] - edges[0] <= MOST_STEPS * step):
        raise ValueError("a step that is not one")
    return Crossing(share, edges, below, part(of["total"]), step, _number(of["start"]))


def _read_affine(one: Any, part: Callable[[Any], Part]) -> Affine[Part]:
    terms = tuple((_number(factor), part(own)) for factor, own in one["terms"])
    return Affine(_number(one["constant"]), terms)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise ValueError("something that is not a number, or too large")
    return float(value)
