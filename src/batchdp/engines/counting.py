"""How many records there are of every combination of atoms: one query in the engine.

When a unit has too many records, every record draws a lot and the least ones win. The lot depends on the unit and on
what the record has in the declared columns, never on what is asked: so it is the same for every plan of a domain, every
time and in every engine, and one unit's records never decide about another's. It takes no side: of two records with
different values, each wins for about half of the units that have both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import ibis  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from batchdp.engines.coding import (
    Lookup,
    build_lookup,
    code,
    constant,
    count_limbs,
    join_limbs,
    join_lookup,
    keeps,
    pack,
    place_on_grid,
    spell_declared,
    sum_limbs,
    take_limb,
    unpack,
)
from batchdp.engines.columns import engine_function, identify, is_missing, kind_of, known, read_column, spell
from batchdp.engines.source import Engine, Query, Source, shield, shield_all
from batchdp.errors import TableError
from batchdp.text import Progress, timed
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms

_md5 = engine_function("md5", lambda text: None, (str,), str)
"""A digest that all engines have and agree on; it only has to spread, not to withstand anybody."""


def draw_lot(spelled_unit: Any, keys: Sequence[Any]) -> Any:
    """What decides between a unit's records: a digest of who it is and of what the record has."""
    return _md5(reduce(add, (":" + key for key in keys), spelled_unit))


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
    With a unit, at most `rows_per_unit` records of each are counted, drawn by a lot that depends on the unit and on the
    columns that the source was opened with. Records that the domain drops are dropped before; so are records whose unit
    is NULL.

    The counts are exact, hence secret: add noise before anybody sees them.
    """
    packs = pack([one.size for one in atoms])
    made = shield(lambda: _query(source, atoms, packs, unit, rows_per_unit, sets), f"counting in {source.description}")
    return ready(source.engine, source.description, made, atoms, sets)


def ready(
    engine: Engine, description: str, query: Query, atoms: Sequence[Atoms], sets: Sequence[Sequence[int]] = ()
) -> Callable[[Progress | None], Iterator[Counted]]:
    """What runs a counting query, once the engine has accepted it."""
    packs = pack([one.size for one in atoms])
    task = f"counting in {description}"
    shield(lambda: engine.check(query), f"preparing the count in {description}")
    wanted = sorted({i for own in sets for i in own})
    sizes = [atoms[i].size + 1 for i in wanted]

    def run(progress: Progress | None) -> Iterator[Counted]:
        with timed(task), _report(engine, description, progress):
            for columns in shield_all(engine.batches(query), task):
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
    dialect = source.engine.dialect
    columns = {f"c{i}": read_column(source.column(one.column), one.kind, dialect) for i, one in enumerate(atoms)}
    who: list[str] = []
    if unit is not None:
        if source.unit is None:
            raise TableError(f"the privacy unit {unit!r} was not asked for when {source.description} was opened")
        drawn = lots(source)
        who = ["unit", *drawn]
        columns |= {"unit": identify(source.unit, dialect, source.engine.collates), **drawn}
    rows = source.table.select(**columns) if columns else source.table
    told = tell_apart(rows, [f"c{i}" for i in range(len(atoms))], atoms, source.engine)
    if unit is not None:
        told = told.where(~is_missing(told.rows["unit"]))
    names = [f"p{i}" for i in range(len(packs))]
    wanted = sorted({i for own in sets for i in own})
    single = {f"g{i}": told.code(i) for i in wanted}
    steps = told.steps()
    rows = told.rows.select(**told.packed(packs), **single, **steps, **{name: told.rows[name] for name in who})
    if unit is not None:
        rows = bound_units(rows, [*who[1:], *names, *steps], rows_per_unit)
    if sets:
        named = tuple(tuple(f"g{i}" for i in own) for own in sets)
        packed = pack([atoms[i].size + 1 for i in wanted])
        inside = tuple(tuple((f"g{wanted[place]}", stride) for place, stride in pack) for pack in packed)
        return Query(rows.select(*(single or names)), told.tables, named, inside)
    return Query(counted_by(rows, names, atoms), told.tables)


def lots(source: Source) -> dict[str, Any]:
    """What decides between the records of a unit, in this order, of a source that was opened with all columns."""
    dialect, declared = source.engine.dialect, source.declared
    read = {name: read_column(source.column(name), kind_of(own), dialect) for name, own in declared.items()}
    keys = {name: spell_declared(read[name], own, dialect) for name, own in declared.items()}
    assert source.unit is not None
    # Lots are the same for numbers and days beyond what is declared, and can be for texts that hold a colon, which a
    # condition may tell apart. Rows that are alike in all of this are alike in everything that is counted.
    apart = {name: kind_of(own) for name, own in declared.items() if kind_of(own) in ("number", "date", "text")}
    return {
        "lot": draw_lot(spell(source.unit, dialect), [*keys.values()]),
        **{
            f"v{i}": identify(keys[name], dialect, source.engine.collates) if kind == "text" else known(read[name])
            for i, (name, kind) in enumerate(apart.items())
        },
    }


@dataclass(frozen=True)
class Told:
    """Rows in which the atoms of some columns can be told, without those that the domain drops."""

    rows: Any
    columns: Sequence[str]
    """What the rows call the column of every atoms."""
    atoms: Sequence[Atoms]
    looked: dict[int, str]
    """Where the number of a listed value's atom or of an amount's step stands, by place."""
    tables: tuple[Lookup, ...]

    def _looked(self, i: int) -> Any:
        return self.rows[self.looked[i]] if i in self.looked else None

    def code(self, i: int, stride: int = 1) -> Any:
        """The number of a column's atom, times a stride."""
        return code(self.rows[self.columns[i]], self.atoms[i], stride, self._looked(i))

    def packed(self, packs: Sequence[Sequence[tuple[int, int]]]) -> dict[str, Any]:
        """All numbers of atoms in few integers."""
        return {
            f"p{place}": reduce(add, (self.code(i, stride) for i, stride in own), constant(0))
            for place, own in enumerate(packs)
        }

    def steps(self) -> dict[str, Any]:
        """The steps of every summed column."""
        return {f"s{i}": ibis.coalesce(self._looked(i), constant(0)) for i in find_summed(self.atoms)}

    def where(self, *conditions: Any) -> Told:
        """Only the rows that fulfil conditions on them."""
        return replace(self, rows=self.rows.filter(*conditions)) if conditions else self

    def kept(self) -> Told:
        """Without the rows that the domain drops."""
        found = (keeps(self.rows[self.columns[i]], one, self._looked(i)) for i, one in enumerate(self.atoms))
        return self.where(*(condition for condition in found if condition is not None))


def tell_apart(rows: Any, columns: Sequence[str], atoms: Sequence[Atoms], engine: Engine, mark: str = "") -> Told:
    """Rows with columns that are read as declared, ready to be told apart; a mark keeps names of stages apart."""
    dialect, collates = engine.dialect, engine.collates
    tables, looked = [], {}
    for i, (name, one) in enumerate(zip(columns, atoms, strict=True)):
        table = build_lookup(one, f"batchdp_values_{mark}{i}", rows[name].type(), dialect, collates)
        if table is not None:
            looked[i] = f"a{mark}{i}"
            rows = join_lookup(rows, name, table, looked[i], collates)
            tables.append(table)
    amounts = {i: one for i, one in enumerate(atoms) if isinstance(one, AmountAtoms)}
    looked |= {i: f"a{mark}{i}" for i in amounts}
    if amounts:
        rows = rows.mutate(**{looked[i]: place_on_grid(rows[columns[i]], one, dialect) for i, one in amounts.items()})
    return Told(rows, columns, atoms, looked, tuple(tables)).kept()


def counted_by(rows: Any, names: Sequence[str], atoms: Sequence[Atoms]) -> Any:
    """How many rows there are of every combination of codes, and the sums of the pieces of their steps."""
    sums = {
        f"s{place}_{i}": sum_limbs(take_limb(rows[f"s{place}"], i))
        for place, one in find_summed(atoms).items()
        for i in range(count_limbs(one.grid))
    }
    return rows.group_by(names).aggregate(n=rows.count(), **sums)


def bound_units(rows: Any, names: Sequence[str], rows_per_unit: int) -> Any:
    """At most so many rows of each unit, by these columns, the lot first: the same every time, and in every engine."""
    order = [rows[name] for name in names]
    placed = rows.mutate(place=ibis.row_number().over(group_by=rows["unit"], order_by=order))
    return placed.filter(placed["place"] < rows_per_unit)


@contextmanager
def _report(engine: Engine, description: str, progress: Progress | None) -> Iterator[None]:
    """Tell how far the engine is, from a thread, until the block ends. Says nothing about the records."""
    if progress is None:
        yield
        return
    ended = threading.Event()
    text = f"counting in {description}"

    def report() -> None:
        while not ended.wait(POLL_SECONDS):
            progress(engine.progress(), text)

    progress(engine.progress(), text)
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(1.0, text)
