"""Which records of a unit are counted when it has too many: every record draws a lot, the least ones win.

The lot depends on the unit and on the record's atoms alone, so it is the same every time and in every engine, and one
unit's records never decide about another's. It takes no side: of two combinations of atoms, each wins for about half of
the units that have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis  # type: ignore[import-untyped]

DIGITS = 12
"""Of the digest: DuckDB keeps texts of this length without allocating, and 48 bits tell a unit's records apart."""


@ibis.udf.scalar.builtin(name="md5")  # type: ignore[untyped-decorator]
def _md5(text: str) -> str:
    """A digest that all engines have and agree on; it only has to spread, not to withstand anybody."""
    raise NotImplementedError


def lot(spelled_unit: Any, codes: Sequence[Any]) -> Any:
    """What decides between a unit's records."""
    text = spelled_unit
    for code in codes:
        text = text + ":" + code.cast("string")
    return _md5(text).substr(0, DIGITS)
