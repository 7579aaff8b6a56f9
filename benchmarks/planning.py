"""How long planning takes: 200 queries over five columns, and 300 conjunctive ones over twenty columns of ten values.

python benchmarks/planning.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from batchdp import Plan, plan
from batchdp.linalg.matrix import column_norms

STATES = [f"S{i:02d}" for i in range(50)]
FIVE = {
    "table": "people",
    "columns": {
        "age": {"range": [0, 120]},
        "income": {"range": [0, 250_000]},
        "state": {"values": STATES},
        "visited": {"dates": ["2020-01-01", "2025-12-31"]},
        "children": {"integers": [0, 12]},
    },
}
TWENTY = {"table": "t", "columns": {f"c{i}": {"values": [f"v{j}" for j in range(10)]} for i in range(20)}}


def single_ranges(seed: int) -> str:
    """Forty queries about each of the five columns."""
    rng = np.random.default_rng(seed)
    return "\n".join(f"SELECT COUNT(*) FROM people WHERE {_condition(rng, i % 5)};" for i in range(200))


def conjunctions(seed: int) -> str:
    """Two hundred queries with one to three conditions each on five columns."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(5, size=rng.integers(1, 4), replace=False) for _ in range(200)]
    return "\n".join(
        f"SELECT COUNT(*) FROM people WHERE {' AND '.join(_condition(rng, int(c)) for c in columns)};"
        for columns in chosen
    )


def _condition(rng: np.random.Generator, column: int) -> str:
    if column == 0:
        low, high = sorted(rng.integers(0, 121, size=2).tolist())
        return f"age BETWEEN {low} AND {high}"
    if column == 1:
        low, high = sorted((1000 * rng.integers(0, 251, size=2)).tolist())
        return f"income >= {low} AND income < {high}"
    if column == 2:
        listed = ", ".join(f"'{STATES[i]}'" for i in rng.choice(50, size=5, replace=False))
        return f"state IN ({listed})"
    if column == 3:
        year, month = rng.integers(2020, 2026), rng.integers(1, 13)
        return f"visited >= DATE '{year}-{month:02d}-01'"
    return f"children = {rng.integers(0, 13)}"


def twenty_columns(conditions: int) -> Callable[[int], str]:
    """Three hundred queries with equality conditions on some of twenty columns."""

    def written(seed: int) -> str:
        rng = np.random.default_rng(seed)
        queries = []
        for _ in range(300):
            columns = rng.choice(20, size=conditions, replace=False)
            queries.append(" AND ".join(f"c{c} = 'v{rng.integers(10)}'" for c in columns))
        return "\n".join(f"SELECT COUNT(*) FROM t WHERE {query};" for query in queries)

    return written


CASES = {
    "200 queries, one of five columns each": (single_ranges, FIVE),
    "200 queries, one to three of five columns": (conjunctions, FIVE),
    **{f"300 queries, {k} of twenty columns": (twenty_columns(k), TWENTY) for k in (1, 2, 3, 5, 10)},
}


def main() -> None:
    print(f"{'case':44} {'seconds':>8} {'blocks':>7} {'cells':>7} {'error/query':>12} {'on results':>11}  method")
    for name, (written, domain) in CASES.items():
        start = time.perf_counter()
        made = plan(written(0), domain, cache=False)
        seconds = time.perf_counter() - start
        print(f"{name:44} {seconds:8.1f} {_figures(made)}")


def _figures(made: Plan) -> str:
    W = made.workload
    error = made.strategy.expected_squared_error(epsilon=1.0) / W.queries
    on_results = 2 * float(W.largest_by_block(column_norms(W.matrix, 1)).sum()) ** 2
    return f"{len(W.blocks):7d} {W.cells:7d} {error:12.1f} {on_results:11.1f}  {made.strategy.method}"


if __name__ == "__main__":
    main()
