"""From queries to cells: counts of cells times W are what DuckDB answers, and there are no more cells than needed."""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp import Domain, QueryError
from batchdp.domain import as_domain, read_domain
from batchdp.engines import count, open_table
from batchdp.queries.query import Choice, Scaled, Total, Truth, ValueOf
from batchdp.sql import read_queries
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms, LineAtoms
from batchdp.workloads.encode.cells import Cells, cells_of
from cases import every_number
from sql_truth import (
    DOMAIN,
    battery,
    conditions,
    connection,
    domain,
    grouped_battery,
    holds,
    records,
    statements,
    worth,
)

ROWS, SEED = 400, 5
EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "20"))


# ── the truth ──


def counted(cells: Cells, table: Any, described: Domain) -> np.ndarray:
    """W x with x counted in an engine."""
    with open_table(table, described, columns=[one.column for one in cells.atoms]) as source:
        return cells.answers(cells.counts(count(source, cells.atoms)))


@cache
def engine() -> duckdb.DuckDBPyConnection:
    return connection(records(ROWS, SEED))


def theirs(sql: str, table: duckdb.DuckDBPyConnection | None = None) -> list[float | None]:
    row = (table or engine()).execute(sql).fetchone()
    assert row is not None
    return [None if value is None else float(value) for value in row]


def numbered(sql: list[str]) -> list[str]:
    """The same statements, each under a name of its own."""
    return [one.replace(" AS n ", f" AS number_{i} ") for i, one in enumerate(sql) if " AS n " in one]


@cache
def batch() -> list[str]:
    return numbered(battery())


@cache
def truth() -> list[float]:
    return [value or 0.0 for sql in batch() for value in theirs(sql)]


def by_duckdb(sql: list[str], most: int = 8192, described: Domain | None = None, table: Any = None) -> np.ndarray:
    described = described or domain()
    cells = cells_of(read_queries(";\n".join(sql), described), described, most=most)
    return counted(cells, records(ROWS, SEED) if table is None else table, described)


@pytest.mark.parametrize("most", [pytest.param(8192, marks=pytest.mark.slow), 200])
def test_the_whole_battery_in_blocks_is_answered_as_duckdb_answers_it(most: int) -> None:
    assert len(batch()) >= 150
    cells = cells_of(read_queries(";\n".join(batch()), domain()), domain(), most=most)
    assert len(cells.blocks) > 1
    assert max(cells.sizes) <= most
    ours = counted(cells, records(ROWS, SEED), domain())
    assert ours == pytest.approx(truth(), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("start", range(0, 240, 30))
def test_parts_of_the_battery_are_answered_as_duckdb_answers_them(start: int) -> None:
    part = slice(start, start + 30)
    assert by_duckdb(batch()[part]) == pytest.approx(truth()[part], rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("grouped", "split"), grouped_battery())
def test_groups_are_answered_as_duckdb_answers_them(grouped: str, split: str) -> None:
    assert by_duckdb([grouped]) == pytest.approx([value or 0.0 for value in theirs(split)], rel=1e-12)


@settings(max_examples=EXAMPLES, deadline=None)
@given(sql=st.lists(statements(), min_size=1, max_size=2), most=st.sampled_from([8192, 60]))
def test_generated_batches_are_answered_as_duckdb_answers_them(sql: list[str], most: int) -> None:
    named = [one.replace(" AS n", f" AS s{i}_") for i, one in enumerate(sql)]
    queries = read_queries("; ".join(named), domain())
    try:
        cells = cells_of(queries, domain(), most=most)
    except QueryError as error:
        assert most == 60 or "more than 8192" in str(error)  # noqa: PT017
        return
    ours = counted(cells, records(ROWS, SEED), domain())
    for mine, value in zip(ours, (value for one in sql for value in theirs(one)), strict=True):
        # DuckDB has NULL for a whole expression of which one SUM is over nothing.
        if value is not None:
            assert mine == pytest.approx(value, rel=1e-9, abs=1e-6)


KEPT = {
    "state": "state IN ('NY', 'NJ', 'CA', 'WA')",
    "grade": "grade IN (1, 2, 3, -4)",
    "smoker": "smoker IN (TRUE, FALSE)",
    "age": "age BETWEEN 0 AND 120",
    "floor": "floor BETWEEN -3 AND 40 AND floor = FLOOR(floor)",
    "visited": "visited BETWEEN DATE '2020-01-01' AND DATE '2025-12-31'",
}


def dropping(columns: tuple[str, ...]) -> Domain:
    text = DOMAIN
    for column in columns:
        text = text.replace(f"[columns.{column}]\n", f'[columns.{column}]\nother = "drop"\n')
    return read_domain(text)


@pytest.mark.parametrize("columns", [("state", "floor"), ("age", "smoker"), tuple(KEPT)])
def test_dropped_records_are_left_out_as_duckdb_leaves_them_out(columns: tuple[str, ...]) -> None:
    table = connection(records(4 * ROWS, SEED))
    table.execute(f"DELETE FROM patients WHERE NOT COALESCE({' AND '.join(KEPT[name] for name in columns)}, FALSE)")
    expected = [value or 0.0 for sql in batch() for value in theirs(sql, table)]
    assert expected[0] > 0
    ours = by_duckdb(batch(), 200, dropping(columns), records(4 * ROWS, SEED))
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_a_column_that_no_query_looks_at_still_drops() -> None:
    table = pa.table({"a": [1, 2, 9], "b": ["x", "z", "x"]})
    described = as_domain(
        {"table": "t", "columns": {"a": {"values": [1, 2], "other": "drop"}, "b": {"values": ["x"], "other": "drop"}}}
    )
    assert by_duckdb(["SELECT COUNT(*) AS n FROM t"], 8192, described, table).tolist() == [1]


# ── the fewest classes, and the right ones ──

SMALL = """
table = "t"
[columns.a]
values = ["x", "y", "z"]
[columns.b]
range = [0, 10]
[columns.c]
integers = [0, 3]
[columns.d]
dates = ["2024-01-01", "2024-01-04"]
"""
SMALL_VALUES = {
    "a": ["'x'", "'y'", "'z'"],
    "b": ["0", "2.5", "7", "10"],
    "c": ["0", "1", "3"],
    "d": ["'2024-01-01'", "'2024-01-03'", "'2024-01-04'"],
}


@st.composite
def small_batches(draw: st.DrawFn) -> tuple[str, Domain]:
    """Queries over a small table, some columns of which drop what is not declared."""
    text = SMALL
    for column in draw(st.sets(st.sampled_from("abcd"))):
        text = text.replace(f"[columns.{column}]\n", f'[columns.{column}]\nother = "drop"\n')

    def condition() -> str:
        column = draw(st.sampled_from("abcd"))
        value = draw(st.sampled_from(SMALL_VALUES[column]))
        signs = ["=", "<>"] + ["<", "<=", ">", ">="] * (column != "a")
        negation = draw(st.sampled_from(["", "NOT "]))
        return draw(
            st.sampled_from([f"{negation}{column} {draw(st.sampled_from(signs))} {value}", f"{column} IS NULL"])
        )

    sql = []
    for i in range(draw(st.integers(1, 5))):
        joined = draw(st.sampled_from([" AND ", " OR "])).join(condition() for _ in range(draw(st.integers(0, 3))))
        item = draw(st.sampled_from(["COUNT(*)", "SUM(c)", "COUNT(a) - 3 * COUNT(*)", "COUNT(*) * 0.5 - SUM(c)"]))
        sql.append(f"SELECT {item} AS q{i} FROM t" + f" WHERE {joined}" * bool(joined))
    return "; ".join(sql), read_domain(text)


def examples_of(atoms: Atoms) -> list[Any]:
    """For every atom a value in it, or ... where no record that is kept has one; NULL is None."""
    alive = atoms.possible
    if isinstance(atoms, AmountAtoms):
        return amounts_of(atoms)
    if not isinstance(atoms, LineAtoms):
        rest = set(atoms.declared or {"elsewhere"}) - {value for group in atoms.groups for value in group}
        values: list[Any] = [group[0] for group in atoms.groups] + [next(iter(rest), ...), None]
        return [value if kept else ... for value, kept in zip(values, alive, strict=True)]
    steps = 1 if atoms.kind == "date" or (atoms.whole and atoms.declared) else 4
    low, high = atoms.declared or (min([c.value for c in atoms.cuts], default=0) - 2, 800_000)
    found: list[Any] = [...] * len(alive)
    found[-1] = ... if atoms.declared else None
    places = [low + k / steps for k in range(int(min(high - low, 40) * steps) + 1)]
    for value in reversed([*places, high]):
        place = sum(value > cut.value or (value == cut.value and not cut.after) for cut in atoms.cuts)
        found[place] = value
    return found


def amounts_of(atoms: AmountAtoms) -> list[Any]:
    """Both ends of every stretch, and a number beside the whole ones."""
    found: list[Any] = [...] * atoms.size
    for i, stretch in enumerate(atoms.stretches):
        for atom, step in ((stretch.low, stretch.first), (stretch.high, stretch.last)):
            if atom is not None:
                found[atom] = float(atoms.grid.value(step))
        if stretch.beside is not None:
            low = atoms.cuts[i - 1].value if i else atoms.cuts[0].value - 2
            found[stretch.beside] = low + 0.5
    found[-1] = ... if atoms.dropping else None
    return found


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(case=small_batches())
def test_there_are_as_many_cells_as_different_columns_of_w(case: tuple[str, Domain]) -> None:
    sql, described = case
    queries = read_queries(sql, described)
    cells = cells_of(queries, described)
    assert len(cells.blocks) == 1
    samples = [examples_of(atoms) for atoms in cells.atoms]
    for values, atoms in zip(samples, cells.atoms, strict=True):
        assert [value is not ... for value in values] == atoms.possible.tolist()  # impossible atoms, and only those
    codes = [list(code) for code in product(*(range(len(values)) for values in samples))]
    codes = [code for code in codes if all(values[i] is not ... for values, i in zip(samples, code, strict=True))]
    columns = []
    for code in codes:
        record: dict[str, Any] = dict.fromkeys("abcd")
        record |= {atoms.column: values[i] for atoms, values, i in zip(cells.atoms, samples, code, strict=True)}
        summed = {**record, "c": record["c"] if record["c"] in (0, 1, 2, 3) else 0}
        columns.append([_worth(query.amount, record, summed) for query in queries])
    distinct = {tuple(column) for column in columns if any(column)}
    assert cells.sizes == (max(1, len(distinct)),)

    W = cells.matrix.toarray()
    of = cells.blocks[0].classes.of(np.array(codes).reshape(len(codes), len(cells.atoms)))
    for cell, column in zip(of, columns, strict=True):
        assert (W[:, cell].tolist() if cell >= 0 else [0.0] * len(queries)) == column


def _worth(amount: Any, record: dict[str, Any], summed: dict[str, Any]) -> float:
    """What a record adds, where a number in c that is not declared is there for conditions but not for sums."""
    match amount:
        case ValueOf():
            return worth(amount, summed)
        case Choice(condition, then, otherwise):
            return _worth(then if holds(condition, record) is Truth.TRUE else otherwise, record, summed)
        case Scaled(factor, inner):
            return float(factor * _worth(inner, record, summed))
        case Total(parts):
            return sum(_worth(part, record, summed) for part in parts)
    return worth(amount, record)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=small_batches(), order=st.randoms(use_true_random=False))
def test_the_order_of_queries_and_columns_does_not_change_the_matrix(
    case: tuple[str, Domain], order: random.Random
) -> None:
    sql, described = case
    W = cells_of(read_queries(sql, described), described).matrix.toarray()
    names = list(described.columns)
    order.shuffle(names)
    turned = as_domain({"table": "t", "columns": {name: described.columns[name] for name in names}})
    assert np.array_equal(cells_of(read_queries(sql, turned), turned).matrix.toarray(), W)
    rows = list(range(len(W)))
    order.shuffle(rows)
    shuffled = cells_of([read_queries(sql, described)[row] for row in rows], described).matrix.toarray()
    assert sorted(shuffled.T.tolist()) == sorted(W[rows].T.tolist())


def test_a_partition_given_back_gives_the_same_matrix() -> None:
    queries = read_queries(";".join(batch()), domain())
    first = cells_of(queries, domain(), most=300)
    again = cells_of(queries, domain(), most=300, partition=[list(block.queries) for block in first.blocks])
    assert again.sizes == first.sizes
    assert abs(again.matrix - first.matrix).nnz == 0
    codes = np.array([[0] * len(first.atoms), [one.size - 1 for one in first.atoms]])
    for one, other in zip(first.blocks, again.blocks, strict=True):
        assert np.array_equal(one.classes.of(codes), other.classes.of(codes))


@pytest.mark.parametrize("partition", [[], [[0]], [[0, 0], [1]], [[0, 1], []], [[0, 1, 2]], [[0], [1], [1]]])
def test_a_partition_that_is_none_is_refused(partition: list[list[int]]) -> None:
    queries = read_queries("SELECT COUNT(*) AS n, COUNT(age) AS a FROM patients", domain())
    with pytest.raises(QueryError, match="every query once"):
        cells_of(queries, domain(), partition=partition)


def test_a_partition_with_too_many_classes_is_refused() -> None:
    queries = read_queries("SELECT COUNT(*) AS n, COUNT(age) AS a FROM patients", domain())
    with pytest.raises(QueryError, match="more than 1 classes"):
        cells_of(queries, domain(), most=1, partition=[[0, 1]])


@pytest.mark.parametrize(
    ("sql", "W"),
    [
        ("SELECT COUNT(*) AS n FROM patients", [[1]]),
        ("SELECT COUNT(*) AS n FROM patients WHERE FALSE", [[0]]),
        ("SELECT COUNT(*) AS n FROM patients WHERE smoker AND NOT smoker", [[0]]),
        ("SELECT 0 * COUNT(*) AS n, COUNT(*) FILTER (WHERE FALSE) AS m FROM patients", [[0], [0]]),
        ("SELECT COUNT(*) AS n, -COUNT(*) FILTER (WHERE age < 0 AND age > 1) AS m FROM patients", [[1], [0]]),
        ("SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker) AS m FROM patients", [[1, 1], [0, 1]]),
        (
            # −0 and 0 are one class.
            "SELECT -COUNT(*) FILTER (WHERE smoker) - COUNT(*) FILTER (WHERE age < 9) AS n, SUM(1) AS m FROM patients",
            [[-2, -1, 0], [1, 1, 1]],
        ),
        ("SELECT SUM(CASE WHEN age < 18 THEN 0.5 WHEN age >= 65 THEN -2 END) AS n FROM patients", [[-2, 0.5]]),
    ],
)
def test_small_batches_have_the_matrix_that_one_writes_by_hand(sql: str, W: list[list[float]]) -> None:
    assert cells_of(read_queries(sql, domain()), domain()).matrix.toarray().tolist() == W


def test_no_queries_are_no_batch() -> None:
    with pytest.raises(QueryError, match="no queries"):
        cells_of([], domain())


def test_where_every_declared_value_is_asked_for_dropping_leaves_no_other_cell() -> None:
    described = as_domain({"table": "t", "columns": {"a": {"values": [1, 2], "other": "drop"}}})
    sql = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE a = 1) AS one, COUNT(*) FILTER (WHERE a = 2) AS two FROM t"
    cells = cells_of(read_queries(sql, described), described)
    assert cells.matrix.toarray().tolist() == [[1, 1], [0, 1], [1, 0]]


def test_a_zero_below_and_a_zero_above_are_one_class() -> None:
    """−(0 + 0) is −0 and −(−3 + 3) is 0; floats that are equal must not be two cells."""
    sql = "SELECT -SUM(floor) - SUM(children) AS n, COUNT(*) AS m FROM patients"
    W = cells_of(read_queries(sql, domain()), domain()).matrix.toarray()
    assert W.tolist() == [list(range(-52, 4)), [1] * 56]


def test_a_sum_of_many_counts_tells_apart_only_how_many_of_them_count() -> None:
    described = as_domain({"table": "t", "columns": {f"c{i}": {"values": ["x"]} for i in range(26)}})
    terms = " + ".join(f"COUNT(*) FILTER (WHERE c{i} = 'x')" for i in range(26))
    (block,) = cells_of(read_queries(f"SELECT {terms} AS n FROM t", described), described).blocks
    assert block.classes.matrix.toarray().tolist() == [list(range(1, 27))]
    assert [len(table) for table in block.classes.transitions if table is not None] == list(range(1, 27))


# ── many columns ──

WIDE = {"table": "t", "columns": {f"c{i}": {"integers": [0, 9]} for i in range(20)}}


def wide_batch(queries: int, seed: int = 0) -> str:
    """Conjunctions of 1, 2, 3, 5 or 10 conditions on different columns."""
    chance = random.Random(seed)
    sql = []
    for q in range(queries):
        columns = chance.sample(range(20), (1, 2, 3, 5, 10)[q % 5])
        holds = " AND ".join(f"c{i} {chance.choice(['=', '<', '>='])} {chance.randint(1, 8)}" for i in columns)
        sql.append(f"SELECT COUNT(*) AS q{q} FROM t WHERE {holds}")
    return ";\n".join(sql)


def wide_table(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({f"c{i}": rng.integers(0, 10, rows) for i in range(20)})


@pytest.mark.slow
def test_300_conjunctions_over_20_columns_need_no_product_of_domains() -> None:
    described = as_domain(WIDE)
    queries = read_queries(wide_batch(300), described)
    tracemalloc.start()
    started = time.process_time()
    cells = cells_of(queries, described)
    seconds = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 120
    assert peak < 2 * 2**30
    table = wide_table(2000)
    where = [sql.partition(" AS ")[2].partition(" FROM ")[2] for sql in wide_batch(300).split(";\n")]
    engine = duckdb.connect()
    engine.register("t", table)
    expected = [(engine.execute(f"SELECT COUNT(*) FROM {one}").fetchone() or (None,))[0] for one in where]
    assert counted(cells, table, described).tolist() == expected


def test_a_query_with_too_many_classes_is_refused_by_its_widest_columns() -> None:
    described = as_domain({"table": "t", "columns": {"big": {"integers": [0, 99]}, "small": {"values": ["x"]}}})
    sql = "SELECT SUM(big) - 200 * COUNT(*) FILTER (WHERE small = 'x') AS n FROM t"
    with pytest.raises(QueryError, match=r"'n' tells more than 50 classes.*big \(202 pieces\), small \(3 pieces\)"):
        every_number(read_queries(sql, described), described, most=50)
    assert every_number(read_queries(sql, described), described, most=199).sizes == (199,)
    assert cells_of(read_queries(sql, described), described, most=50).sizes == (3,)


def test_a_query_with_astronomically_many_classes_is_refused_in_time() -> None:
    described = as_domain({"table": "t", "columns": {f"c{i}": {"values": ["x"]} for i in range(60)}})
    terms = " + ".join(f"{2 ** (i % 50)} * COUNT(*) FILTER (WHERE c{i} = 'x')" for i in range(60))
    queries = read_queries(f"SELECT {terms} AS n FROM t", described)
    with pytest.raises(QueryError, match="widest columns"):
        cells_of(queries, described, most=100)


def test_what_is_unknown_and_what_is_false_are_one_class_on_the_way() -> None:
    """With three truth values a column, ten pairs would pass through 3^10 states; they pass through 2^10."""
    described = as_domain({"table": "t", "columns": {f"c{i}": {"values": ["x", "y"]} for i in range(20)}})
    pairs = " OR ".join(f"(c{i} = 'x' AND NOT c{19 - i} = 'y')" for i in range(10))
    (block,) = cells_of(read_queries(f"SELECT COUNT(*) AS n FROM t WHERE {pairs}", described), described).blocks
    assert block.classes.size == 1
    assert max(len(table) for table in block.classes.transitions if table is not None) <= 2**10


@settings(max_examples=EXAMPLES, deadline=None)
@given(condition=conditions())
def test_not_of_a_condition_and_the_condition_share_no_record(condition: str) -> None:
    sql = f"SELECT COUNT(*) FILTER (WHERE {condition}) AS yes, COUNT(*) FILTER (WHERE NOT ({condition})) AS no"
    W = cells_of(read_queries(f"{sql} FROM patients", domain()), domain()).matrix.toarray()
    assert np.all(W.sum(axis=0) <= 1)
