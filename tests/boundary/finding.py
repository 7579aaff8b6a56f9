"""Neighbours as `discover` and `check` count them: kinds of values, bins, rows of a unit, texts, and what is declared.

What `discover` looks at next is decided by noisy answers; here it is decided by lot, alike for both neighbours.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import batchdp
from batchdp import engines
from batchdp.domain import as_domain
from batchdp.errors import BatchDPError
from batchdp.plans.finding import Kinds
from batchdp.private import CellCounts, Records, Tallies, TextCounts
from batchdp.release import discovering
from batchdp.release.checking import plan_check
from batchdp.release.counts import reading
from batchdp.release.discovering import _Steps
from batchdp.release.sought import Search, prepare
from boundary.adapters import Adapter
from boundary.checking import NAMES, overheard
from boundary.domains import TABLE
from boundary.fuzzing import NEIGHBOURS, Tally, case
from boundary.neighbours import Generator, Row

CASES = 16
KINDS = ("whole", "number", "date", "text")
Counts = dict[Any, int]


@dataclass
class Seen:
    """What somebody sees of a table, and its exact counts by step and column, which nobody sees."""

    said: list[str] = field(default_factory=list)
    outlook: str = ""
    """What is told before: it depends on the types, which neighbours need not share where a library guesses them."""
    counts: dict[str, Counts] = field(default_factory=dict, compare=False)


@cache
def check_plan(number: int) -> Any:
    """The plan of a check of a case."""
    return plan_check(case(number).domain)


@cache
def planned(domain: str) -> Any:
    """A plan of one table a column, made once."""
    return batchdp.plan(domain=as_domain(json.loads(domain)), marginals=1, seconds=0.2, cache=False)


def fuzz(adapter: Adapter, seed: int, pairs: int, *, cases: int = CASES) -> Tally:
    """So many pairs of tables of this engine."""
    tally, number = Tally(), 0
    with tempfile.TemporaryDirectory() as folder:
        while tally.pairs < pairs:
            _try_table(adapter, Path(folder), Random(f"find {adapter.name} {seed} {number}"), tally, cases)
            number += 1
    return tally


def _try_table(adapter: Adapter, folder: Path, rng: Random, tally: Tally, cases: int) -> None:
    number = rng.randrange(cases)
    chosen = case(number)
    storages, lot = adapter.storages(rng, chosen), rng.random()
    generator, manner = Generator.of(rng, chosen, storages), adapter.manner(rng)

    def seen(rows: list[Row]) -> Seen:
        found = Seen()
        for step in (_discovered, _checked):
            table = adapter.table(rows, storages, folder, manner)
            try:
                with overheard() as heard:
                    step(found, table, number, Random(lot))
                    found.said.append(heard())
            finally:
                adapter.close(table)
        return found

    rows = generator.table()
    here, cap = seen(rows), chosen.domain.privacy.rows_per_unit
    for _ in range(NEIGHBOURS):
        change = generator.neighbour(rows)
        there = seen(change.rows)
        tally.pairs += 1
        tally.refused += not here.counts
        problem = _differs(here, there, cap * change.factor, tally, measured=adapter.measured)
        if problem:
            types = ", ".join(f"{name}: {storage.name}" for name, storage in storages.items())
            told = f"{adapter.name}, {change.what}: {problem}\n    {types}\n"
            tally.problems.append(f"{told}    {rows}\n    {change.rows}")


def _differs(here: Seen, there: Seen, allowed: int, tally: Tally, *, measured: bool) -> str | None:
    """How two neighbours can be told apart other than by counts that are as far apart as the cap says."""
    if here.said != there.said:
        return f"{here.said} against {there.said}"
    if measured and here.outlook != there.outlook:
        return f"{here.outlook} against {there.outlook}"
    if broken := [said for said in here.said if said.startswith("raised")]:
        return broken[0]
    for name in here.counts.keys() | there.counts.keys() if measured else ():
        one, other = here.counts.get(name, {}), there.counts.get(name, {})
        steps = [one.get(key, 0) - other.get(key, 0) for key in one.keys() | other.keys()]
        # A text moves by one person: one that comes, one that goes, or both where one is replaced.
        if name.startswith("texts") and any(abs(step) > 1 for step in steps):
            return f"{name}: a value moves by {max(map(abs, steps))}"
        moved = Fraction(sum(map(abs, steps)))
        tally.closest = max(tally.closest, float(moved / allowed))
        if moved > allowed:
            return f"{name} moves by {moved}, allowed {allowed}"
    return None


def _said(found: Seen, do: Callable[[], None]) -> None:
    """Do it; what is refused or raised is seen."""
    try:
        do()
    except BatchDPError as error:
        found.said.append(f"refused: {NAMES.sub('…', str(error))}")
    except Exception as error:
        found.said.append(f"raised {type(error).__name__}: {error}")


# ── discover ──


def _discovered(found: Seen, table: Any, number: int, lot: Random) -> None:
    privacy = case(number).domain.privacy.model_dump(exclude_none=True)
    given = {key: privacy.get(key) for key in ("unit", "rows_per_unit", "neighbours")}

    def run() -> None:
        search = prepare(table, 1.0, Fraction(1, 1000), given, None, TABLE, header=True)
        found.outlook = " ".join(search.outlook)
        with _watched(found):
            steps = _Steps(search, SimpleNamespace(reserve=lambda *_, **__: None), "", None)  # type: ignore[arg-type]
            steps.kinds(lambda _: True)
            steps.find(_by_lot(search, lot))

    _said(found, run)


def _by_lot(search: Search, lot: Random) -> dict[str, Kinds]:
    """A kind for every column, as if it had been found."""
    chosen = {one.name: lot.choice(KINDS) for one in search.asked}
    return {name: Kinds({kind: 1000.0 * (kind == own) for kind in KINDS}, 0.0, 1.0) for name, own in chosen.items()}


@contextmanager
def _watched(found: Seen) -> Iterator[None]:
    """Counts are kept, and noise is none: every answer is 0, and no text is shown."""
    inner, step = engines.prepare_values, iter(["kinds", "lines"])

    def answered(plan: Any, table: Any, **_: Any) -> Any:
        name = next(step)
        with ExitStack() as opened:
            counts = reading(plan.batch, plan, opened, table, None)()
        for column in range(len(plan.domain.columns)):
            records = counts.seen_by((column,)) if isinstance(counts, Records | Tallies) else None
            assert records is not None
            times = [1] * len(records.codes) if records.times is None else records.times.tolist()
            own = found.counts.setdefault(f"{name} {column}", {})
            for code, n in zip(records.codes[:, column].tolist(), times, strict=True):
                own[code] = own.get(code, 0) + n
        sizes = dict(zip(plan.domain.columns, plan.workload.sizes, strict=True))
        return SimpleNamespace(
            table=lambda name: pd.DataFrame({"value": np.zeros(sizes[name]), "standard_error": np.ones(sizes[name])})
        )

    def texts(source: Any, columns: Any, **given: Any) -> Callable[[], list[TextCounts]]:
        read = inner(source, columns, **given)

        def run() -> list[TextCounts]:
            values = read()
            for name, one in zip(columns, values, strict=True):
                found.counts[f"texts {name}"] = dict(zip(one.texts, one.counts.tolist(), strict=True))
            return [TextCounts([], np.zeros(0, dtype=np.int64)) for _ in values]

        return run

    with (
        mock.patch.object(discovering, "answer", answered),
        mock.patch.object(discovering, "plan", lambda domain, **_: planned(json.dumps(domain.model_dump(mode="json")))),
        mock.patch.object(engines, "prepare_values", texts),
    ):
        yield


# ── check ──


def _checked(found: Seen, table: Any, number: int, _: Random) -> None:
    plan: Any = check_plan(number)

    def run() -> None:
        with ExitStack() as opened:
            counts: Any = reading(plan.batch, plan, opened, table, None)()
        if not isinstance(counts, CellCounts):
            raise TypeError("a check is counted by cells")
        start, cells = 0, plan.batch.cells
        for block, size in enumerate(cells.sizes):
            found.counts[f"check {block}"] = dict(enumerate(counts.counts[start : start + size].tolist()))
            start += size

    _said(found, run)
