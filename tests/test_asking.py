"""Queries as products over atoms say the same as the cells that they are counted in."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from batchdp.cells.classes import classes_of
from batchdp.components.asking import Asked, asked
from batchdp.components.optimizing import optimize_products
from batchdp.domain import as_domain
from batchdp.errors import QueryError
from batchdp.queries import Query
from batchdp.sql import read_queries

DOMAIN = as_domain(
    """
table = "visits"
[columns.state]
values = ["NY", "NJ", "CA"]
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
[columns.children]
integers = [0, 4]
[columns.ill]
values = ["yes", "no"]
other = "drop"
"""
)
SQL = """
SELECT COUNT(*) AS everybody FROM visits;
SELECT state, COUNT(*) AS by_state FROM visits GROUP BY state;
SELECT state, age, COUNT(*) AS ill FROM visits WHERE ill = 'yes' GROUP BY state, age;
SELECT SUM(children) AS children FROM visits WHERE age >= 18 AND state <> 'CA';
SELECT 2 * COUNT(*) AS twice FROM visits;
"""
TIED = SQL + "SELECT COUNT(*) AS either FROM visits WHERE age < 18 OR children IS NULL;"


def adds(found: Asked, queries: tuple[Query, ...], records: int = 300) -> None:
    """For random records, what each adds to every query: by the tables, and by the queries' own classes."""
    rng = np.random.default_rng(0)
    codes = np.stack([rng.choice(alive, records) for alive in found.alive], axis=1)
    values = []
    for own in found.columns:
        at = [np.searchsorted(found.alive[i], codes[:, i]) for i in own]
        values.append(np.ravel_multi_index(at, [len(found.alive[i]) for i in own]))
    for query, (table, place) in zip(queries, found.places, strict=True):
        factors = found.batch.factors_of(table)
        rows = np.unravel_index(place, [factor.rows for factor in factors.values()]) if factors else ()
        ours = np.ones(records)
        for (c, factor), row in zip(factors.items(), rows, strict=True):
            ours = ours * factor.matrix[row][values[c]]
        classes = classes_of(query, found.atoms, 10_000)
        states = np.zeros(records, dtype=np.int64)
        for i, transition in enumerate(classes.transitions):
            if transition is not None:
                states = transition[states, codes[:, i]]
        assert np.allclose(ours, classes.amounts[[0]].toarray()[0][states]), query.name


def test_conjunctions_and_amounts_are_products() -> None:
    queries = read_queries(SQL, DOMAIN)
    found = asked(queries, DOMAIN)
    assert [table.name for table in found.batch.tables] == ["everybody", "by_state", "ill", "children", "twice"]
    assert found.columns == ((0,), (1,), (2,), (3,))
    assert found.batch.queries == len(queries)
    assert found.batch.tables[2].shape == (3, 4, 1)
    adds(found, queries)


def test_columns_that_an_or_ties_together_are_one() -> None:
    queries = read_queries(TIED, DOMAIN)
    found = asked(queries, DOMAIN)
    assert found.columns == ((0,), (1, 2), (3,))
    adds(found, queries)
    strategy = optimize_products(found.batch)
    assert strategy.total <= strategy.limit * 1.002


def test_columns_that_are_too_many_to_tie_together_are_refused() -> None:
    domain = as_domain('table = "t"\n[columns.a]\nintegers = [0, 200]\n[columns.b]\nintegers = [0, 200]')
    sql = "SELECT a, b, COUNT(*) AS n FROM t WHERE a = 1 OR b = 1 GROUP BY a, b"
    few = "SELECT SUM(a) AS s FROM t WHERE b = 1; SELECT SUM(a) + SUM(b) AS both FROM t"
    with pytest.raises(QueryError, match="a, b are tied together"):
        asked(read_queries(few, domain), domain)
    with pytest.raises(QueryError):
        asked(read_queries(sql, domain), domain)


def test_the_whole_is_a_workload_of_its_own_cells() -> None:
    queries = read_queries(SQL, DOMAIN)
    found = asked(queries, DOMAIN)
    assert found.batch.cells == prod(len(alive) for alive in found.alive)
    order = np.argsort([table * 1000 + place for table, place in found.places])
    assert [queries[q].name for q in order] == [query.name for query in queries]
