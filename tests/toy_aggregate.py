"""An aggregate in one file: COUNT_IF, as the amount that every record adds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from sqlglot import exp

from batchdp.queries.query import Amount, Choice, Constant
from batchdp.sql.amounts import AGGREGATES
from batchdp.sql.conditions import condition
from batchdp.sql.refusals import Node
from batchdp.sql.syntax import PARTS, Scope


def count_if(scope: Scope, node: Node, factor: Fraction) -> Amount:
    """1 for every record that fulfils the condition."""
    return Choice(condition(scope, node.this), Constant(float(factor)), Constant(0.0))


def register(patch: pytest.MonkeyPatch) -> None:
    """Until the test ends: other tests expect a refusal of COUNT_IF."""
    patch.setitem(AGGREGATES, exp.CountIf, count_if)
    patch.setitem(PARTS, exp.CountIf, frozenset({"this", "big_int"}))
