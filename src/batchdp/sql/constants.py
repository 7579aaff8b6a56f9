"""Numbers as SQL writes them, and arithmetic on them alone, exactly."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from batchdp.sql.refusals import Node
from batchdp.sql.syntax import ARITHMETIC, Scope, unwrapped

LONGEST_NUMBER = 60
"""Characters."""
LONGEST_FRACTION = 4096
"""Bits."""
_COMPUTE: dict[type, Callable[[Fraction, Fraction], Fraction]] = dict(
    zip(ARITHMETIC, (operator.add, operator.sub, operator.mul, operator.truediv), strict=True)
)


def exact_number(scope: Scope, node: Node) -> Fraction:
    """The number that a literal writes, exactly."""
    text = str(node.this)
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", text)
    if len(text) > LONGEST_NUMBER or (exponent and abs(int(exponent[1])) > 300):
        raise scope.refusal(node, "a number that is too large or too long", "write numbers like 1000, 0.5 or 1e3")
    return Fraction(text)


def is_constant(node: Node) -> bool:
    """Whether a node is made of numbers alone."""
    pending = [node]
    while pending:
        part = unwrapped(pending.pop())
        if isinstance(part, ARITHMETIC):
            pending += [part.this, part.expression]
        elif isinstance(part, exp.Neg):
            pending.append(part.this)
        elif not isinstance(part, exp.Literal):
            return False
    return True


def constant_of(scope: Scope, node: Node) -> Fraction:
    """The exact value of arithmetic on numbers; recursive in parentheses only."""
    chain = []
    node = unwrapped(node)
    while isinstance(node, ARITHMETIC):
        chain.append(node)
        node = unwrapped(node.this)
    if isinstance(node, exp.Neg):
        value = -constant_of(scope, node.this)
    elif isinstance(node, exp.Literal) and not node.is_string:
        value = exact_number(scope, node)
    else:
        raise scope.refusal(node, "not a number", "write numbers like 1000, 0.5 or 1e3")
    for step in reversed(chain):
        other = constant_of(scope, step.expression)
        if isinstance(step, exp.Div) and other == 0:
            raise scope.refusal(step, "a division by zero", "divide by another number")
        value = checked(scope, step, _COMPUTE[type(step)](value, other))
    return value


def checked(scope: Scope, node: Node, number: Fraction) -> Fraction:
    """Refuse numbers whose exact fraction takes too long to compute with."""
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > LONGEST_FRACTION:
        raise scope.refusal(node, "arithmetic with numbers that are too long", "write the result as one number")
    return number


def number_of(scope: Scope, node: Node, number: Fraction) -> float:
    """A factor as a float; refused where it is beyond what can be computed with."""
    size = abs(number)
    if number != 0 and not Fraction(1, 10**100) < size < 10**100:
        raise scope.refusal(node, "a factor that is too large or too small", "use factors from 1e-100 to 1e100")
    return float(number)
