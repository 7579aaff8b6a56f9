"""What remains of an expression once one column of a record is known.

Taking the columns one after the other, every expression ends as a number. Records that leave the same remainder of all
queries need not be told apart any longer, which is what keeps the number of classes small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import fsum

from batchdp.cells.splitting import Part
from batchdp.queries import (
    All,
    Amount,
    Any,
    Choice,
    Condition,
    Constant,
    Missing,
    Negation,
    OneOf,
    Scaled,
    Total,
    Truth,
    ValueOf,
    Within,
)

Known = Mapping[Part, float]
"""What the parts that look at the known column are: the value of a `Truth`, or a number."""


def terms_of(amount: Amount) -> Iterator[Amount]:
    """Amounts that add up to this one, each as small as can be without looking at a column."""
    match amount:
        case Total(amounts):
            for part in amounts:
                yield from terms_of(part)
        case Scaled(factor, inner):
            yield from (Scaled(factor, term) for term in terms_of(inner))
        case Choice(condition, then, Constant(0.0)):
            yield from (Choice(condition, term, Constant(0.0)) for term in terms_of(then))
        case _:
            yield amount


def restricted(amount: Amount, known: Known) -> Amount:
    """The amount with what is known put in, simplified."""
    match amount:
        case Constant():
            return amount
        case ValueOf():
            return Constant(known[amount]) if amount in known else amount
        case Choice(condition, then, otherwise):
            decided = restricted_condition(condition, known)
            if decided is Truth.TRUE:
                return restricted(then, known)
            if decided is Truth.FALSE:
                return restricted(otherwise, known)
            yes, no = restricted(then, known), restricted(otherwise, known)
            return yes if yes == no else Choice(decided, yes, no)
        case Scaled(factor, inner):
            rest = restricted(inner, known)
            return Constant(factor * rest.number) if isinstance(rest, Constant) else Scaled(factor, rest)
        case Total(amounts):
            rests = [restricted(part, known) for part in amounts]
            open_parts = tuple(rest for rest in rests if not isinstance(rest, Constant))
            number = fsum(rest.number for rest in rests if isinstance(rest, Constant))
            if not open_parts:
                return Constant(number)
            parts = open_parts if number == 0 else (*open_parts, Constant(number))
            return parts[0] if len(parts) == 1 else Total(parts)


def restricted_condition(condition: Condition, known: Known, unknown: Truth = Truth.FALSE) -> Condition:
    """The condition with what is known put in, simplified without changing whether it is true.

    What is unknown counts as false; under a NOT, which leaves it unknown, it counts as true. So remainders that differ
    only in what is false and what is unknown are one.
    """
    match condition:
        case OneOf() | Within() | Missing():
            return _settled(Truth(int(known[condition])), unknown) if condition in known else condition
        case Negation(inner):
            return _negated(restricted_condition(inner, known, Truth.TRUE if unknown is Truth.FALSE else Truth.FALSE))
        case All(conditions):
            rests = (restricted_condition(part, known, unknown) for part in conditions)
            return _joined(All, rests, stops=Truth.FALSE, passes=Truth.TRUE)
        case Any(conditions):
            rests = (restricted_condition(part, known, unknown) for part in conditions)
            return _joined(Any, rests, stops=Truth.TRUE, passes=Truth.FALSE)
        case Truth():
            return _settled(condition, unknown)


def _settled(truth: Truth, unknown: Truth) -> Truth:
    return unknown if truth is Truth.UNKNOWN else truth


def _joined(kind: type[All] | type[Any], rests: Iterable[Condition], *, stops: Truth, passes: Truth) -> Condition:
    left: dict[Condition, None] = {}
    for rest in rests:
        if rest is stops:
            return stops
        if rest is not passes:
            left[rest] = None
    if not left:
        return passes
    return next(iter(left)) if len(left) == 1 else kind(tuple(left))


def _negated(condition: Condition) -> Condition:
    if isinstance(condition, Truth):
        return Truth.FALSE if condition is Truth.TRUE else Truth.TRUE
    return condition.condition if isinstance(condition, Negation) else Negation(condition)
