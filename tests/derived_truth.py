"""What averages, ratios and quantiles mean, to compare with: statements about awkward amounts, and DuckDB."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import duckdb
import numpy as np

from amount_truth import CUTS, domain, exact_answers, ours, theirs
from batchdp.engines import count, open_table
from batchdp.mechanism.derived import evaluated
from batchdp.queries.expressions import Asked
from batchdp.workloads.encode.cells import cells_of
from cases import read_batch

STATES = ("NY", "NJ", "CA")
RATIOS = (
    "AVG({x})",
    "AVG(-2 * {x}) / 4",
    "AVG({x}) FILTER (WHERE {c})",
    "AVG(CASE WHEN {c} THEN {x} WHEN {d} THEN 7 END)",
    "AVG(CASE WHEN {c} THEN 1 ELSE 0 END)",
    "100.0 * COUNT(*) FILTER (WHERE {c}) / COUNT(*)",
    "1 - COUNT(*) FILTER (WHERE {c}) / COUNT(*)",
    "SUM({x}) / NULLIF(COUNT(*), 0)",
    "(SUM({x}) - 5 * COUNT(*)) / (COUNT(*) + 1)",
    "COUNT(*) FILTER (WHERE {c}) / COUNT(*) FILTER (WHERE {d})",
    "AVG({x}) - AVG({x}) FILTER (WHERE {c})",
    "AVG({x}) + COUNT(*) FILTER (WHERE {c}) / COUNT(*) - COUNT(*) FILTER (WHERE {d}) / COUNT(*)",
    "(COUNT(*) FILTER (WHERE {c}) + 5) * 2",
    "CAST(COUNT(*) FILTER (WHERE {c}) AS DOUBLE) / COUNT(*)",
)
QUANTILES = (
    "MEDIAN({y})",
    "MEDIAN({y}) FILTER (WHERE {c})",
    "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {y})",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY {y} DESC)",
    "APPROX_QUANTILE({y}, 0.1)",
)
SHARES = (0.5, 0.5, 0.9, 0.75, 0.1)


def condition(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return chance.choice(["state = 'NY'", "state <> 'NJ'", "state IS NOT NULL", "NOT state IN ('NY', 'CA')"])
    name = chance.choice(list(CUTS))
    low = chance.choice(CUTS[name])
    return chance.choice([f"{name} > {low}", f"{name} <= {low}", f"{name} IS NOT NULL"])


def ratio_statement(seed: int) -> str:
    chance = random.Random(f"ratio {seed}")
    name = chance.choice(list(CUTS))
    item = RATIOS[seed % len(RATIOS)].replace("{x}", f"<{name}>")
    item = item.replace("{c}", condition(chance)).replace("{d}", condition(chance))
    where, group = _rest(chance)
    return f"SELECT {{key}}{item} AS r{seed} FROM patients WHERE {where}{group}".replace(" WHERE TRUE", "")


def quantile_statement(seed: int) -> tuple[str, str, float, str]:
    """The statement, its column, the share, and what its records fulfil."""
    chance = random.Random(f"quantile {seed}")
    name, kind = chance.choice(list(CUTS)), seed % len(QUANTILES)
    holds, (where, group) = condition(chance), _rest(chance)
    item = QUANTILES[kind].replace("{y}", name).replace("{c}", holds)
    sql = f"SELECT {{key}}{item} AS q{seed} FROM patients WHERE {where}{group}".replace(" WHERE TRUE", "")
    return sql, name, SHARES[kind], f"({where}) AND ({holds if 'FILTER' in item else 'TRUE'})"


def _rest(chance: random.Random) -> tuple[str, str]:
    return condition(chance) if chance.random() < 0.5 else "TRUE", chance.choice(["", " GROUP BY state"])


def counted(table: Any, statements: list[str]) -> tuple[tuple[Asked[int], ...], np.ndarray[Any, Any]]:
    """The answers without noise, from what an engine counts."""
    batch = read_batch(";\n".join(ours(sql.replace("{key}", "")) for sql in statements), domain())
    cells = cells_of(batch.queries, domain(), partition=[[q] for q in range(len(batch.queries))])
    with open_table(table, domain(), columns=[one.column for one in cells.atoms]) as source:
        values = exact_answers(cells, cells.counts(count(source, cells.atoms)))
    return batch.asked, evaluated(batch.asked, np.array(values))


def expected(engine: duckdb.DuckDBPyConnection, sql: str) -> list[float | None]:
    """DuckDB's answers in the order of ours; None for NULL and divisions by 0. A sum over nothing is 0, as for us."""
    asked = re.sub(r"SUM\((\w+)\)", r"COALESCE(SUM(\1), 0)", theirs(sql.replace("{key}", "")))
    whole, _, group = asked.partition(" GROUP BY ")
    joined = " AND" if " FROM patients WHERE " in whole else " WHERE"
    each = [f"{whole}{joined} state = '{state}'" for state in STATES] if group else [whole]
    found = [engine.execute(one).fetchall()[0][0] for one in each]
    return [None if value is None or not math.isfinite(value) else float(value) for value in found]


def ordered(engine: duckdb.DuckDBPyConnection, sql: str, name: str, holds: str) -> list[list[float]]:
    """The values that a quantile is of, in order, for every group of ours."""
    low, high = domain().columns[name].ends()  # type: ignore[union-attr]
    asked = f"SELECT {name} FROM patients WHERE {holds} AND {name} BETWEEN {low} AND {high}"
    groups = [f" AND state = '{state}'" for state in STATES] if "GROUP BY" in sql else [""]
    return [sorted(float(row[0]) for row in engine.execute(asked + group).fetchall()) for group in groups]
