"""ORDER BY, LIMIT, OFFSET and HAVING: what is shown of private answers, which costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from batchdp.domain import Listed
from batchdp.domain.columns import fold
from batchdp.queries.views import Test, View
from batchdp.sql.constants import constant_of, is_constant
from batchdp.sql.functions import function, kind_of
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import Scope, unwrapped

if TYPE_CHECKING:
    from batchdp.sql.groupings import Grouping
    from batchdp.sql.selections import Counted

MOST_ROWS = 10**9
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def view(scope: Scope, counted: Sequence[Counted], grouped: Grouping) -> View | None:
    """What a statement shows; None where that is all, in the declared order."""
    tree = scope.statement.tree
    order, having, limit, offset = (tree.args.get(name) for name in ("order", "having", "limit", "offset"))
    if order is having is limit is offset is None:
        return None
    reader = _Reader(scope, counted, grouped)
    return View(
        items=tuple(item.name for item in counted),
        keys=tuple(key.name for key in grouped.keys),
        order=() if order is None else tuple(reader.ordered(one) for one in order.expressions),
        limit=None if limit is None else _number(scope, limit, limit.args.get("count") or limit.expression),
        offset=0 if offset is None else _number(scope, offset, offset.expression),
        having=None if having is None else reader.test(having.this),
        texts=tuple(key.name for key in grouped.keys if _is_text(scope, key.node)),
    )


def _is_text(scope: Scope, node: Node) -> bool:
    """Whether the groups of a key are ordered as texts are: `false` comes before `true`."""
    if not isinstance(node, exp.Column):
        return isinstance(node, exp.Case) or kind_of(function(scope, node)) is str
    if scope.grouping(node) is not None:
        return False
    column = scope.column(node)[1]
    return isinstance(column, Listed) and column.kind in ("text", "boolean")


def _number(scope: Scope, node: Node, given: Node) -> int:
    number = constant_of(scope, given) if is_constant(given) else None
    if number is None or number.denominator != 1 or not 0 <= number <= MOST_ROWS:
        raise scope.refusal(node, "not a number of rows", "write a whole number, like LIMIT 5")
    return int(number)


class _Reader:
    """Finds answers and keys by alias, by position, or by how they are written."""

    def __init__(self, scope: Scope, counted: Sequence[Counted], grouped: Grouping) -> None:
        self._scope, self._counted, self._grouped = scope, counted, grouped

    def ordered(self, node: Node) -> tuple[str, bool]:
        """What rows are ordered by, and whether that goes down."""
        inner = unwrapped(node.this)
        items = self._scope.statement.tree.expressions
        if isinstance(inner, exp.Literal) and not inner.is_string:
            text = str(inner.this)
            if not (text.isdecimal() and len(text) < 6 and 1 <= int(text) <= len(items)):
                raise self._scope.refusal(node, "not the position of an item", f"positions go from 1 to {len(items)}")
            item = items[int(text) - 1]
            inner = unwrapped(item.this if isinstance(item, exp.Alias) else item)
        name = self._answer(inner) or self._key(inner)
        if name is None:
            remedy = "order by an item of the SELECT: by its name, its position, or as it is written there"
            raise self._scope.refusal(node, "ORDER BY something that the statement does not show", remedy)
        return name, bool(node.args.get("desc"))

    def _answer(self, node: Node) -> str | None:
        for item in self._counted:
            inner = unwrapped(item.node.this if isinstance(item.node, exp.Alias) else item.node)
            if inner == node or (_is_name(node) and fold(item.name) == fold(node.name)):
                return item.name
        return None

    def _key(self, node: Node) -> str | None:
        aliases = {
            fold(one.alias): unwrapped(one.this)
            for one in self._scope.statement.tree.expressions
            if isinstance(one, exp.Alias)
        }
        meant: Node = aliases.get(fold(node.name), node) if _is_name(node) else node
        for key in self._grouped.keys:
            if key.node == meant or any(_is_name(one) and fold(key.name) == fold(one.name) for one in (node, meant)):
                return key.name
        return None

    def test(self, node: Node) -> Test:
        """A condition on answers."""
        node = unwrapped(node)
        if isinstance(node, exp.And | exp.Or):
            return "and" if isinstance(node, exp.And) else "or", (self.test(node.this), self.test(node.expression))
        if isinstance(node, exp.Not):
            return "not", self.test(node.this)
        if isinstance(node, exp.Between):
            low, high = (
                self._compared(node, node.this, node.args[end], s) for end, s in (("low", ">="), ("high", "<="))
            )
            return "and", (low, high)
        if type(node) not in _COMPARISONS:
            remedy = "compare an answer with a number, like HAVING COUNT(*) >= 100"
            raise self._scope.refusal(node, "not a condition on answers", remedy)
        sign = _COMPARISONS[type(node)]
        if is_constant(node.this):
            return self._compared(node, node.expression, node.this, _MIRRORED.get(sign, sign))
        return self._compared(node, node.this, node.expression, sign)

    def _compared(self, node: Node, own: Node, number: Node, sign: str) -> Test:
        name = self._answer(unwrapped(own))
        if name is None and self._key(unwrapped(own)) is not None:
            raise self._scope.refusal(node, "HAVING about what is grouped by", "write it in WHERE")
        if name is None:
            remedy = "add it to the SELECT, and compare it by its name"
            raise self._scope.refusal(own, "HAVING about an answer that is not among the items", remedy)
        if not is_constant(number):
            raise self._scope.refusal(number, "not a number", "compare an answer with a number")
        return sign, name, float(constant_of(self._scope, number))


def _is_name(node: Node) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is None
