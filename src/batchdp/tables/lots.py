"""Which records of a unit are counted when it has too many: every record draws a lot, the least ones win.

The lot depends on the unit and on the record's atoms and summed amounts alone, so it is the same every time and in
every engine, and one unit's records never decide about another's. It takes no side: of two combinations of atoms, each
wins for about half of the units that have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import ibis  # type: ignore[import-untyped]

DIGITS = 12
"""Of the digest: 48 bits tell nearly all of a unit's records apart."""


@ibis.udf.scalar.builtin(name="md5")  # type: ignore[untyped-decorator]
def _md5(text: str) -> str:
    """A digest that all engines have and agree on; it only has to spread, not to withstand anybody."""
    raise NotImplementedError


def lot(spelled_unit: Any, codes: Sequence[Any]) -> Any:
    """What decides between a unit's records."""
    own = reduce(add, (":" + code.cast("string") for code in codes))
    # The codes behind the digits decide where these are the same, so that the records' order never does.
    return _md5(spelled_unit + own).substr(0, DIGITS) + own
