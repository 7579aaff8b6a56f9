"""How many records there are of every combination of atoms: one query in the engine.

When a unit has too many records, every record draws a lot and the least ones win. The lot depends on the unit and
on the record's atoms and summed amounts alone, so it is the same every time and in every engine, and one unit's
records never decide about another's. It takes no side: of two combinations of atoms, each wins for about half of
the units that have both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from batchdp.engines.coding import (
    build_lookup,
    code,
    constant,
    count_limbs,
    join_limbs,
    join_lookup,
    keeps,
    pack,
    place_on_grid,
    sum_limbs,
    take_limb,
    unpack,
)
from batchdp.engines.columns import engine_function, identify, is_missing, read_column, spell
from batchdp.engines.source import Query, Source, shield, shield_all
from batchdp.errors import TableError
from batchdp.progress import Progress
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms

DIGITS = 12
"""Of the digest: 48 bits tell nearly all of a unit's records apart."""


_md5 = engine_function("md5", lambda text: None, (str,), str)
"""A digest that all engines have and agree on; it only has to spread, not to withstand anybody."""


def draw_lot(spelled_unit: Any, codes: Sequence[Any]) -> Any:
    """What decides between a unit's records."""
    own = reduce(add, (":" + code.cast("string") for code in codes))
    # The codes behind the digits decide where these are the same, so that the records' order never does.
    return _md5(spelled_unit + own).substr(0, DIGITS) + own


POLL_SECONDS = 0.2
Counted = tuple[npt.NDArray[np.int32], npt.NDArray[Any]]
"""Atoms' numbers, and how often; in further columns, whole numbers of any size, the steps of every summed column."""


def count(
    source: Source,
    atoms: Sequence[Atoms],
    *,
    unit: str | None = None,
    rows_per_unit: int = 1,
    progress: Progress | None = None,
) -> Iterator[Counted]:
    """`prepare_count`, checked and run at once."""
    yield from prepare_count(source, atoms, unit=unit, rows_per_unit=rows_per_unit)(progress)


def prepare_count(
    source: Source,
    atoms: Sequence[Atoms],
    *,
    sets: Sequence[Sequence[int]] = (),
    unit: str | None = None,
    rows_per_unit: int = 1,
) -> Callable[[Progress | None], Iterator[Counted]]:
    """What counts the records, once the engine has accepted the query; no record is read before it is called.

    It gives batches of (codes, counts): a row of atoms' numbers for every combination that occurs, and how often. Where
    columns are summed by their ends, the counts have a column more for each: the sum of the records' steps.
    By `sets` of columns instead of all of them, each set is a table that is counted in the engine; codes are −1 in the
    columns that a row is not counted by: they tell the set.
    With a unit, at most `rows_per_unit` records of each are counted, drawn by a lot that depends on the unit and the
    record's atoms alone. Records that the domain drops are dropped before; so are records whose unit is NULL.

    The counts are exact, hence secret: add noise before anybody sees them.
    """
    packs = pack([one.size for one in atoms])
    task = f"counting in {source.description}"
    query = shield(lambda: _query(source, atoms, packs, unit, rows_per_unit, sets), task)
    shield(lambda: source.engine.check(query), f"preparing the count in {source.description}")
    wanted = sorted({i for own in sets for i in own})
    sizes = [atoms[i].size + 1 for i in wanted]

    def run(progress: Progress | None) -> Iterator[Counted]:
        with _report(source, progress):
            for columns in shield_all(source.engine.batches(query), task):
                if sets:
                    codes = np.full((len(columns[-1]), len(atoms)), -1, dtype=np.int32)
                    codes[:, wanted] = unpack(columns[:-1], pack(sizes), sizes) - 1
                    yield codes, columns[-1]
                elif len(columns[0]):
                    codes = unpack(columns[: len(packs)], packs, [one.size for one in atoms])
                    yield codes, _add_sums(columns[len(packs) :], atoms)

    return run


def _add_sums(columns: Sequence[npt.NDArray[np.int64]], atoms: Sequence[Atoms]) -> npt.NDArray[Any]:
    """The counts; beside them, where there are any, the sums of steps, from their pieces."""
    counts, *pieces = columns
    if not pieces:
        return counts
    sums = [counts.astype(object)]
    for one in find_summed(atoms).values():
        sums.append(join_limbs(pieces[: count_limbs(one.grid)]))
        del pieces[: count_limbs(one.grid)]
    return np.stack(sums, axis=1)


def find_summed(atoms: Sequence[Atoms]) -> dict[int, AmountAtoms]:
    """The columns of which sums are asked for, by position."""
    return {i: one for i, one in enumerate(atoms) if isinstance(one, AmountAtoms) and one.summed}


def _query(
    source: Source,
    atoms: Sequence[Atoms],
    packs: Sequence[Sequence[tuple[int, int]]],
    unit: str | None,
    rows_per_unit: int,
    sets: Sequence[Sequence[int]],
) -> Query:
    """Columns p0, p1, … with the packed codes, then n with the count, then sums of the pieces of steps.

    By sets, columns g0, g1, … with single codes.
    """
    engine = source.engine
    columns = {f"c{i}": read_column(source.column(one.column), one.kind, engine.dialect) for i, one in enumerate(atoms)}
    if unit is not None:
        if source.unit is None:
            raise TableError(f"the privacy unit {unit!r} was not asked for when {source.description} was opened")
        columns["unit"] = identify(source.unit, engine.dialect, engine.collates)
        columns["spelled"] = spell(source.unit, engine.dialect)
    rows = source.table.select(**columns) if columns else source.table
    tables = {
        i: table
        for i, one in enumerate(atoms)
        if (table := build_lookup(one, f"batchdp_values_{i}", rows[f"c{i}"].type(), engine.dialect, engine.collates))
    }
    for i, table in tables.items():
        rows = join_lookup(rows, f"c{i}", table, f"a{i}", engine.collates)
    amounts = {i: one for i, one in enumerate(atoms) if isinstance(one, AmountAtoms)}
    if amounts:
        rows = rows.mutate(**{f"a{i}": place_on_grid(rows[f"c{i}"], one, engine.dialect) for i, one in amounts.items()})
    looked_up = {i: rows[f"a{i}"] for i in (*tables, *amounts)}
    conditions = [keeps(rows[f"c{i}"], one, looked_up.get(i)) for i, one in enumerate(atoms)]
    conditions = [condition for condition in conditions if condition is not None]
    if unit is not None:
        conditions.append(~is_missing(rows["unit"]))
    if conditions:
        rows = rows.filter(*conditions)
        looked_up = {i: rows[f"a{i}"] for i in looked_up}
    names = [f"p{i}" for i in range(len(packs))]
    codes = {
        name: reduce(add, (code(rows[f"c{i}"], atoms[i], stride, looked_up.get(i)) for i, stride in pack), constant(0))
        for name, pack in zip(names, packs, strict=True)
    }
    steps = {f"s{i}": ibis.coalesce(looked_up[i], constant(0)) for i in find_summed(atoms)}
    wanted = sorted({i for own in sets for i in own})
    single = {f"g{i}": code(rows[f"c{i}"], atoms[i], 1, looked_up.get(i)) for i in wanted}
    who = {} if unit is None else {"unit": rows["unit"], "spelled": rows["spelled"]}
    rows = rows.select(**codes, **single, **steps, **who)
    if unit is not None:
        rows = _bound_units(rows, [*names, *steps], rows_per_unit, whole=bool(sets))
    if sets:
        named = tuple(tuple(f"g{i}" for i in own) for own in sets)
        packed = pack([atoms[i].size + 1 for i in wanted])
        inside = tuple(tuple((f"g{wanted[place]}", stride) for place, stride in pack) for pack in packed)
        return Query(rows.select(*(single or names)), tuple(tables.values()), named, inside)
    sums = {
        f"{name}_{i}": sum_limbs(take_limb(rows[name], i))
        for name, one in zip(steps, find_summed(atoms).values(), strict=True)
        for i in range(count_limbs(one.grid))
    }
    return Query(rows.group_by(names).aggregate(n=rows.count(), **sums), tuple(tables.values()))


def _bound_units(rows: Any, names: Sequence[str], rows_per_unit: int, *, whole: bool) -> Any:
    """At most so many rows of each unit, `whole` or these columns, by lot: the same every time, and in every engine."""
    rows = rows.mutate(lot=draw_lot(rows["spelled"], [rows[name] for name in names]))
    if rows_per_unit == 1 and len(names) == 1 and not whole:
        return rows.group_by("unit").aggregate(**{names[0]: rows[names[0]].argmin(rows["lot"])})
    order = [rows["lot"], *(rows[name] for name in names)]
    place = ibis.row_number().over(group_by=rows["unit"], order_by=order)
    placed = rows.mutate(place=place)
    return placed.filter(placed["place"] < rows_per_unit)


@contextmanager
def _report(source: Source, progress: Progress | None) -> Iterator[None]:
    """Tell how far the engine is, from a thread, until the block ends. Says nothing about the records."""
    if progress is None:
        yield
        return
    ended = threading.Event()
    text = f"counting in {source.description}"

    def report() -> None:
        while not ended.wait(POLL_SECONDS):
            progress(source.engine.progress(), text)

    progress(source.engine.progress(), text)
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(1.0, text)
