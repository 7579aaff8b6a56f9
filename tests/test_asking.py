"""Queries as answers of tables over atoms say the same as the cells that they are counted in."""

from __future__ import annotations

import numpy as np
import pytest

from batchdp.domain import as_domain
from batchdp.errors import QueryError
from batchdp.optimizer.residual.optimizing import optimize_products
from batchdp.plans.componentwise import QueryTables, query_tables
from batchdp.sql.script import Batch, read_selections
from batchdp.workloads.encode import tables_of
from batchdp.workloads.encode.batch import query_of_answer
from batchdp.workloads.encode.classes import classes_of
from batchdp.workloads.encode.demands import alive_of
from cases import read_batch

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
[columns.charge]
range = [0, 3]
step = 0.5
"""
)
SQL = """
SELECT COUNT(*) AS everybody FROM visits;
SELECT state, COUNT(*) AS by_state FROM visits GROUP BY state;
SELECT age, state, COUNT(*) AS ill FROM visits WHERE ill = 'yes' GROUP BY age, state;
SELECT SUM(children) AS children FROM visits WHERE age >= 18 AND state <> 'CA';
SELECT 2 * COUNT(*) AS twice FROM visits;
"""
TIED = SQL + "SELECT COUNT(*) AS either FROM visits WHERE age < 18 OR children IS NULL;"
DERIVED = (
    SQL
    + """
SELECT state, AVG(charge) AS cost, MEDIAN(children) AS middle FROM visits GROUP BY CUBE (state);
SELECT COUNT(*) FILTER (WHERE ill = 'yes') / COUNT(*) AS share FROM visits;
SELECT ill, SUM(children) / COUNT(*) AS each FROM visits GROUP BY ill;
SELECT CASE WHEN age < 18 THEN 'young' WHEN state = 'NY' THEN 'here' END AS kind, children, COUNT(*) AS kinds
FROM visits GROUP BY kind, children;
"""
)


def adds(found: QueryTables, batch: Batch, records: int = 300) -> None:
    """For random records, what each adds to every query: by the tables, and by the queries' own classes."""
    rng = np.random.default_rng(0)
    encoded, workload = found.encoded, found.workload
    codes = np.stack([rng.choice(alive_of(atoms), records) for atoms in encoded.atoms], axis=1)
    values = encoded.values(codes)
    assert np.all(values >= 0)
    for query, (table, place) in zip(batch.queries, found.places, strict=True):
        factors = workload.factors_of(table)
        rows = np.unravel_index(place, [factor.rows for factor in factors.values()]) if factors else ()
        ours = np.ones(records)
        for (c, factor), row in zip(factors.items(), rows, strict=True):
            ours = ours * factor.matrix[row][values[:, c]]
        classes = classes_of(query, encoded.atoms, 10_000)
        states = np.zeros(records, dtype=np.int64)
        for i, transition in enumerate(classes.transitions):
            if transition is not None:
                states = transition[states, codes[:, i]].astype(np.int64)
        assert np.allclose(ours, classes.amounts[[0]].toarray()[0][states]), query.name


def test_conjunctions_and_amounts_are_products() -> None:
    batch = read_batch(SQL, DOMAIN)
    found = query_tables(batch, DOMAIN)
    assert [table.name for table in found.workload.tables] == ["everybody", "by_state", "ill", "children", "twice"]
    assert [column.atoms for column in found.encoded.columns] == [(0,), (1,), (2,), (3,)]
    assert found.workload.queries == len(batch.queries)
    assert found.workload.tables[2].shape == (3, 4, 1)
    adds(found, batch)


def test_columns_that_an_or_ties_together_are_one() -> None:
    batch = read_batch(TIED, DOMAIN)
    found = query_tables(batch, DOMAIN)
    assert [column.atoms for column in found.encoded.columns] == [(0,), (1, 2), (3,)]
    adds(found, batch)
    strategy = optimize_products(found.workload)
    assert strategy.total <= strategy.limit * 1.002


def test_columns_that_are_too_many_to_tie_together_are_refused() -> None:
    domain = as_domain('table = "t"\n[columns.a]\nintegers = [0, 200]\n[columns.b]\nintegers = [0, 200]')
    sql = "SELECT a, b, COUNT(*) AS n FROM t WHERE a = 1 OR b = 1 GROUP BY a, b"
    few = "SELECT SUM(a) AS s FROM t WHERE b = 1; SELECT SUM(a) + SUM(b) AS both FROM t"
    for text in (sql, few):
        with pytest.raises(QueryError, match="a, b are tied together"):
            tables_of(read_selections(text, domain), None, domain)


def test_every_answer_of_a_table_is_a_query_and_every_query_an_answer() -> None:
    batch = read_batch(DERIVED, DOMAIN)
    found = query_tables(batch, DOMAIN)
    adds(found, batch)
    home = query_of_answer(batch, found.encoded.asked)
    assert set(home.tolist()) == set(range(len(batch.queries)))
    assert len(home) == found.workload.queries > len(batch.queries)  # that of the ill is in two tables
    # A table's answers are in the order of its columns, queries in that of the statement.
    batch = read_batch(SQL, DOMAIN)
    home = query_of_answer(batch, query_tables(batch, DOMAIN).encoded.asked)
    names = [batch.queries[q].name for q in home.tolist()]
    bins = ("0 to under 18", "18 to under 40", "40 to under 65", "65 to 120")
    assert names[4:8] == [f"ill[age={title}, state=NY]" for title in bins]
    assert names[8] == "ill[age=0 to under 18, state=NJ]"


def test_weights_are_those_of_the_queries() -> None:
    """Tables fall into pieces where their answers count unlike; in all, every query counts as much as it should."""
    batch = read_batch(DERIVED, DOMAIN)
    rng = np.random.default_rng(0)
    given = rng.choice([1.0, 2.0, 5.0], len(batch.queries))
    found = query_tables(batch, DOMAIN, lambda _: given)
    adds(found, batch)
    assert found.weights is given
    assert len({table.name for table in found.workload.tables}) == len(found.workload.tables)
    assert float(found.workload.table_sizes() @ found.workload.weights) == pytest.approx(given.sum())
    own = found.workload.weights[[table for table, _ in found.places]]
    times = np.bincount(query_of_answer(batch, found.encoded.asked))
    assert own * times == pytest.approx(given)
    sizes = []
    query_tables(batch, DOMAIN, lambda tops: sizes.append(tops))
    tops = dict(zip([query.name for query in batch.queries], sizes[0].tolist(), strict=True))
    assert (tops["children"], tops["twice"], tops["cost.numerator[state=all]"]) == (4, 2, 1.5)
