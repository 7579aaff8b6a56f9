"""What remains of an expression once one column of a record is known.

Taking the columns one after the other, every expression ends as a number. Records that leave the same remainder of all
queries need not be told apart any longer, which is what keeps the number of classes small.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def restricted(amount: Amount, known: Known) -> Amount:
    """The amount with what is known put in, simplified."""
    match amount:
        case Constant():
            return amount
        case ValueOf():
            return Constant(known[amount]) if amount in known else amount
        case Choice(condition, then, otherwise):
            decided = _only_if_true(restricted_condition(condition, known))
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


def restricted_condition(condition: Condition, known: Known) -> Condition:
    """The condition with what is known put in, simplified without changing its three-valued truth."""
    match condition:
        case OneOf() | Within() | Missing():
            return Truth(int(known[condition])) if condition in known else condition
        case Negation(inner):
            return _negated(restricted_condition(inner, known))
        case All(conditions):
            return _joined(All, conditions, known, stops=Truth.FALSE, passes=Truth.TRUE)
        case Any(conditions):
            return _joined(Any, conditions, known, stops=Truth.TRUE, passes=Truth.FALSE)
        case _:
            return condition


def _joined(
    kind: type[All] | type[Any], conditions: tuple[Condition, ...], known: Known, *, stops: Truth, passes: Truth
) -> Condition:
    left: dict[Condition, None] = {}
    for condition in conditions:
        rest = restricted_condition(condition, known)
        if rest is stops:
            return stops
        if rest is not passes:
            left[rest] = None
    if not left:
        return passes
    return next(iter(left)) if len(left) == 1 else kind(tuple(left))


def _negated(condition: Condition) -> Condition:
    if isinstance(condition, Truth):
        return {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}[condition]
    return condition.condition if isinstance(condition, Negation) else Negation(condition)


def _only_if_true(condition: Condition) -> Condition:
    """Simplified where only truth matters: what is unknown counts as false."""
    if condition is Truth.UNKNOWN:
        return Truth.FALSE
    if isinstance(condition, All):
        return Truth.FALSE if Truth.UNKNOWN in condition.conditions else condition
    if isinstance(condition, Any):
        left = tuple(part for part in condition.conditions if part is not Truth.UNKNOWN)
        return left[0] if len(left) == 1 else Any(left)
    return condition
