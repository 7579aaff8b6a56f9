"""How many units have each value of texts that nobody declared: values and counts alike are secret."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ibis  # type: ignore[import-untyped]
import numpy as np

from batchdp.domain.columns import LONGEST
from batchdp.engines.columns import BYTES, identify, is_missing, read_column, spell
from batchdp.engines.counting import bound_units, draw_lot
from batchdp.engines.source import Query, Source, shield, shield_all
from batchdp.private import TextCounts


def prepare_values(
    source: Source, columns: Sequence[str], *, unit: str | None = None, rows_per_unit: int = 1
) -> Callable[[], list[TextCounts]]:
    """What counts every column's values, once the engine has accepted the query; no record is read before.

    A unit is counted by at most `rows_per_unit` of its records, drawn by lot, and so in at most as many values of a
    column, once in each. Texts longer than any that can be declared are left out.
    """
    task = f"counting values in {source.description}"
    query = shield(lambda: _query(source, columns, unit, rows_per_unit), task)
    shield(lambda: source.engine.check(query), f"preparing the count of values in {source.description}")

    def run() -> list[TextCounts]:
        texts: list[list[str]] = [[] for _ in columns]
        counts: list[list[int]] = [[] for _ in columns]
        for *values, n in shield_all(iter(source.engine.rows(query)), task):
            place = next((i for i, value in enumerate(values) if value is not None), None)
            text = None if place is None else _decode(values[place])
            if place is not None and text is not None:
                texts[place].append(text)
                counts[place].append(n)
        return [TextCounts(t, np.array(n, dtype=np.int64)) for t, n in zip(texts, counts, strict=True)]

    return run


def _query(source: Source, columns: Sequence[str], unit: str | None, rows_per_unit: int) -> Query:
    engine = source.engine
    read = [read_column(source.column(name), "text", engine.dialect) for name in columns]
    short = [ibis.ifelse(text.length() <= LONGEST, text, ibis.null("string")) for text in read]
    # By bytes, for a collation could take two values for one and show either.
    keys = [BYTES[engine.dialect](text) if engine.collates else text for text in short]
    named = {f"t{i}": key for i, key in enumerate(keys)}
    sets = tuple((name,) for name in named)
    if unit is None:
        return Query(source.table.select(**named), sets=sets, persons="COUNT(*)")
    lot = draw_lot(spell(source.unit, engine.dialect), [ibis.coalesce(text, "") for text in short])
    rows = source.table.select(**named, unit=identify(source.unit, engine.dialect, engine.collates), lot=lot)
    rows = bound_units(rows.filter(~is_missing(rows["unit"])), ["lot", *named], rows_per_unit)
    # Of one row each a unit is counted once; of several it may have a value more than once.
    return Query(rows, sets=sets, persons="COUNT(*)" if rows_per_unit == 1 else "COUNT(DISTINCT unit)")


def _decode(value: str | bytes | bytearray | memoryview) -> str | None:
    """The text; None of bytes that are no UTF-8."""
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return None
