"""Grouping sets, labels and groupings mean here what they mean to DuckDB, whichever engine counts the records."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

from batchdp.domain import Domain, read_domain
from batchdp.engines import open_table, prepare_count
from batchdp.sql.script import batch_of, read_selections
from batchdp.workloads.encode import TableBatch, tables_of
from batchdp.workloads.encode.atoms import Atoms, ListedAtoms, split_by
from batchdp.workloads.encode.cells import cells_of
from batchdp.workloads.encode.demands import looking
from engines import ALIKE, ENGINES, every_engine
from sql_truth import GROUPED_DOMAIN, connection, grouped_statement, records

ROWS, SEED, STATEMENTS = 400, 5, 200
Answers = dict[tuple[str, ...], float]
"""By the titles of a row's groups, "all" for keys that it adds up over."""


@cache
def domain() -> Domain:
    return read_domain(GROUPED_DOMAIN)


@cache
def people() -> Any:
    """The awkward records, but for the empty text, which is NULL in a CSV file."""
    found = records(ROWS, SEED)
    states = found["state"]
    return found.set_column(0, "state", pc.if_else(pc.equal(states, ""), "elsewhere", states))


@cache
def statements() -> list[tuple[str, str, list[str]]]:
    chance = random.Random(1)
    return [grouped_statement(chance, number) for number in range(STATEMENTS)]


@cache
def theirs() -> list[list[Answers]]:
    """For every statement and item the rows that DuckDB gives; those of no group are left out."""
    engine = connection(people())
    found = []
    for _, sql, keys in statements():
        rows = engine.execute(sql).fetchall()
        items = len(engine.description or ()) - 2 * len(keys)
        own: list[Answers] = [{} for _ in range(items)]
        for row in rows:
            groups, summed, values = row[: len(keys)], row[len(keys) : 2 * len(keys)], row[2 * len(keys) :]
            if any(group is None and not over for group, over in zip(groups, summed, strict=True)):
                continue
            place = tuple("all" if over else group for group, over in zip(groups, summed, strict=True))
            for answers, value in zip(own, values, strict=True):
                answers[place] = 0.0 if value is None else float(value)
        found.append(own)
    return found


@cache
def asked() -> list[tuple[TableBatch, list[str]]]:
    """Every statement as tables, and its keys."""
    return [(tables_of(read_selections(sql, domain()), None, domain()), keys) for sql, _, keys in statements()]


def ours(batch: TableBatch, keys: list[str], codes: Any, times: Any) -> dict[str, Answers]:
    """By item: its tables from records that were counted, without noise."""
    values = batch.values(codes)
    found: dict[str, Answers] = {}
    for t, table in enumerate(batch.workload.tables):
        product: NDArray[np.float64] = times.astype(np.float64)[None]
        for c, factor in batch.workload.factors_of(t).items():
            product = (product[:, None] * factor.matrix[:, values[:, c]]).reshape(-1, len(times))
        titled = list(product_of(*(key.titles for key in batch.legend.keys_of(batch.workload, t))))
        headings = [key.heading for key in batch.legend.keys_of(batch.workload, t)]
        columns = dict(zip(headings, zip(*titled, strict=True), strict=True))
        own = found.setdefault(table.name.split(" by ")[0], {})
        for k, value in enumerate(product.sum(axis=1).tolist()):
            own[tuple(columns[key][k] if key in columns else "all" for key in keys)] = value
    return found


def coarser(fine: Atoms, coarse: Atoms) -> NDArray[np.int64]:
    """The atom of a coarser splitting that every atom lies in."""
    if isinstance(fine, ListedAtoms):
        assert isinstance(coarse, ListedAtoms)
        home = {value: i for i, group in enumerate(coarse.groups) for value in group}
        other = len(coarse.groups)
        return np.array([*(home.get(group[0], other) for group in fine.groups), other, other + 1])
    assert not isinstance(coarse, ListedAtoms)
    return np.array([0, *(bisect_right(coarse.cuts, cut) for cut in fine.cuts), len(coarse.cuts) + 1])


@cache
def finest() -> tuple[Atoms, ...]:
    """Of all statements together."""
    every = ";".join(sql for sql, _, _ in statements())
    return split_by(looking(read_selections(every, domain()), None), domain())


def moved(atoms: tuple[Atoms, ...], codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Codes of the finest atoms as codes of some."""
    place = {one.column: i for i, one in enumerate(finest())}
    columns = [coarser(finest()[place[one.column]], one)[codes[:, place[one.column]]] for one in atoms]
    return np.column_stack(columns) if columns else np.zeros((len(codes), 0), dtype=np.int64)


@every_engine(slow=ALIKE)
def test_generated_statements_are_answered_as_duckdb_answers_them(engine: str, tmp_path: Path) -> None:
    with open_table(ENGINES[engine](people(), tmp_path), domain()) as source:
        counted = list(prepare_count(source, finest())(None))
    codes = np.concatenate([part for part, _ in counted])
    times = np.concatenate([numbers for _, numbers in counted])
    for (batch, keys), expected in zip(asked(), theirs(), strict=True):
        found = ours(batch, keys, moved(batch.atoms, codes), times)
        for mine, truth in zip(found.values(), expected, strict=True):
            assert truth.keys() <= mine.keys()
            for place, value in mine.items():
                assert value == pytest.approx(truth.get(place, 0.0), rel=1e-9, abs=1e-6)


def enumerated(number: int) -> Iterator[tuple[str, float]]:
    """The same statement one query at a time, by cells."""
    sql, _, _ = statements()[number]
    cells = cells_of(batch_of(read_selections(sql, domain())).queries, domain(), most=100_000)
    with open_table(people(), domain()) as source:
        counts = cells.counts(prepare_count(source, cells.atoms)(None))
    return zip(cells.names, map(float, cells.answers(counts)), strict=True)


@pytest.mark.parametrize("number", range(0, STATEMENTS, 8))
def test_tables_have_the_answers_and_names_of_single_queries(number: int) -> None:
    """Rolled-up rows say all of a key where SQL engines have NULL."""
    _, _, keys = statements()[number]
    truth = dict(enumerated(number))
    expected = {
        f"n{number}_{i}[{', '.join(f'{key}={title}' for key, title in zip(keys, place, strict=True))}]": value
        for i, own in enumerate(theirs()[number])
        for place, value in own.items()
    }
    assert expected.keys() <= truth.keys()
    for name, value in truth.items():
        assert value == pytest.approx(expected.get(name, 0.0), rel=1e-9, abs=1e-6)


def test_the_statements_are_of_all_kinds() -> None:
    every = " ".join(sql for sql, _, _ in statements())
    for word in ("ROLLUP", "CUBE", "GROUPING SETS", "CASE", "coast", "age_twenty", "period", "WHERE", "FILTER", "SUM"):
        assert every.count(word) > 5
    assert sum(len(own) for answers in theirs() for own in answers) > 2000
