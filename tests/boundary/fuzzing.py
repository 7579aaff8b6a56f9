"""The loop: a case, a table, some of its neighbours, and the verdicts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from boundary.adapters import Adapter
from boundary.checking import PART, Outcome, Verdict, compared, outcome
from boundary.domains import Case, random_case, random_codes
from boundary.neighbours import Change, Generator, Row, Storages
from boundary.storages import ARROW_WHOLE

CASES = 48
"""So many domains with their batches; each is used for many tables."""
NEIGHBOURS = 4
"""Of each table, which is counted once for all of them."""


@dataclass
class Tally:
    """What was found in an engine."""

    pairs: int = 0
    refused: int = 0
    closest: float = 0.0
    """The largest distance, as a share of what is allowed."""
    problems: list[str] = field(default_factory=list)


@cache
def case(number: int) -> Case:
    """The same domain and batch for every engine and seed."""
    return random_case(Random(number))


@cache
def codes_case(number: int) -> Case:
    """The same columns of codes for every library and seed."""
    return random_codes(Random(number))


def fuzz(adapter: Adapter, seed: int, pairs: int, *, cases: int = CASES) -> Iterator[Tally]:
    """The tally after every table."""
    tally = Tally()
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        while tally.pairs < pairs:
            try_table(adapter, Path(folder), seed, number, tally, cases)
            number += 1
            yield tally


def try_table(adapter: Adapter, folder: Path, seed: int, number: int, tally: Tally, cases: int = CASES) -> None:
    """One table with its neighbours. `seed` and `number` give the same ones again."""
    rng = Random(f"{adapter.name} {seed} {number}")
    # Ids are changed where several tables are stacked, so they must not be counted there too.
    fitting = [i for i in range(cases) if adapter.together == 1 or case(i).unit not in case(i).domain.columns]
    chosen = (codes_case if adapter.codes else case)(rng.choice(fitting))
    storages = adapter.storages(rng, chosen)
    generator = Generator.of(rng, chosen, storages)
    manner = adapter.manner(rng)

    def seen(tables: list[list[Row]]) -> list[Outcome]:
        rows, types = (tables[0], storages) if len(tables) == 1 else stacked(tables, chosen, storages)
        table = adapter.table(rows, types, folder, manner)
        try:
            return outcome(chosen, table, len(tables))
        finally:
            adapter.close(table)

    if adapter.together > 1:
        bases = [generator.table() for _ in range(adapter.together)]
        changes = [generator.neighbour(rows) for rows in bases]
        here, there = seen(bases), seen([change.rows for change in changes])
    else:
        bases = [generator.table()] * NEIGHBOURS
        changes = [generator.neighbour(rows) for rows in bases]
        here = seen(bases[:1]) * NEIGHBOURS
        there = [seen([change.rows])[0] for change in changes]
    for rows, change, one, other in zip(bases, changes, here, there, strict=True):
        verdict = compared(chosen, one, other, change.factor, measured=adapter.measured)
        tally.pairs += 1
        tally.refused += verdict.refused
        tally.closest = max(tally.closest, verdict.distance / verdict.allowed)
        if verdict.problem is not None:
            tally.problems.append(_told(adapter, seed, number, chosen, storages, rows, change, verdict))


def stacked(tables: list[list[Row]], case: Case, storages: Storages) -> tuple[list[Row], Storages]:
    """Several tables as one; nobody is in two of them."""
    unit = case.unit

    def moved(row: Row, part: int) -> Row:
        who = None if unit is None else row[unit]
        return {**row, PART: part} | ({} if who is None else {str(unit): f"{part}:{who}"})

    rows = [moved(row, part) for part, table in enumerate(tables) for row in table]
    return rows, {**storages, PART: ARROW_WHOLE[0]}


def _told(
    adapter: Adapter,
    seed: int,
    number: int,
    case: Case,
    storages: Any,
    rows: list[Row],
    change: Change,
    verdict: Verdict,
) -> str:
    """Everything to see the problem again."""
    types = ", ".join(f"{name}: {storage.name}" for name, storage in storages.items())
    here, there = set(map(id, rows)), set(map(id, change.rows))  # some objects do not want to be compared
    fewer = [row for row in rows if id(row) not in there]
    more = [row for row in change.rows if id(row) not in here]
    return (
        f"{adapter.name}, seed {seed}, table {number} of {len(rows)} rows, {change.what}: {verdict.problem}\n"
        f"    columns {types}; privacy {case.domain.privacy}\n    less {_short(fewer)}\n    more {_short(more)}"
    )


def _short(rows: list[Row]) -> str:
    text = repr(rows)
    return text if len(text) < 600 else f"{text[:600]}…"
