"""VARIANCE, STDDEV, COVAR and CORR: a count, sums, and sums of squares and products, from the middle of the range."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from batchdp.queries.expressions import Moments
from batchdp.queries.query import Amount, Choice, Condition, Constant, Scaled, Total
from batchdp.sql.amounts import amount_of, number_function
from batchdp.sql.constants import number_of
from batchdp.sql.functions import kind_of, refused_at
from batchdp.sql.pieces import Function, arithmetic, constant
from batchdp.sql.quantiles import filtered
from batchdp.sql.refusals import Node
from batchdp.sql.regions import ends_of, where
from batchdp.sql.syntax import MOMENTS, Scope, unwrapped

_NOTHING = Constant(0.0)


def is_moment(node: Node) -> bool:
    """Whether a node is one of them, with a FILTER or without."""
    inner = unwrapped(node)
    return type(inner.this if isinstance(inner, exp.Filter) else inner) in MOMENTS


def moments(scope: Scope, node: Node) -> Moments[Amount]:
    """What a record adds to every part."""
    whole, (node, holds) = node, filtered(scope, unwrapped(node))
    given = [unwrapped(one) for one in (node.this, node.args.get("expression")) if one is not None]
    with refused_at(scope, whole):
        own = [_centred(scope, one) for one in given]
        if len({one.column for one in own}) < len(own):
            raise scope.refusal(whole, "a covariance of a column with itself", "write VARIANCE(column)")
        one, other = own[0], own[-1]
        products = [_product(scope, whole, one, other)]
        if isinstance(node, exp.Corr):
            products += [_product(scope, whole, each, each) for each in own]
        known = [_known(each) for each in own]
        sums = [amount_of(scope, whole, each, Fraction(1)) for each in own]
    if len(own) > 1:  # of records that have both
        sums = [Choice(there, amount, _NOTHING) for amount, there in zip(sums, reversed(known), strict=True)]
        squares = [
            Choice(there, amount, _NOTHING) for amount, there in zip(products[1:], reversed(known), strict=False)
        ]
        products = [products[0], *squares]
    count: Amount = Constant(1.0)
    for there in known:
        count = Choice(there, count, _NOTHING)
    parts = [count, *sums, *products]
    if holds is not None:
        parts = [Choice(holds, part, _NOTHING) for part in parts]
    what, sample = MOMENTS[type(node)]
    return Moments(what, sample, parts[0], tuple(parts[1 : 1 + len(own)]), tuple(parts[1 + len(own) :]))


def _centred(scope: Scope, node: Node) -> Function:
    """A column or a function of one, value by value, less the middle of its range."""
    own = number_function(scope, node)
    if kind_of(own) is None or not own.column:
        raise scope.refusal(node, "a variance of a constant", "give it a column")
    own = own.told_apart()
    middle = sum(ends_of(own), Fraction(0)) / 2
    return arithmetic(own, constant(Fraction(float(middle))), "-")


def _known(own: Function) -> Condition:
    """The records for which it has a number."""
    return where(own, [region for region, result in own.pieces if result is not None])


def _product(scope: Scope, node: Node, one: Function, other: Function) -> Amount:
    if one.column == other.column:
        return amount_of(scope, node, arithmetic(one, other, "*"), Fraction(1))
    inner = amount_of(scope, node, other, Fraction(1))
    parts = [
        Choice(where(one, [region]), Scaled(number_of(scope, node, result), inner), _NOTHING)
        for region, result in one.pieces
        if isinstance(result, Fraction) and result
    ]
    return Total(tuple(parts)) if len(parts) != 1 else parts[0]
