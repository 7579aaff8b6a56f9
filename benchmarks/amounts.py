"""What sums of amounts cost: relative to the most that one record can change, in all, a group; and what planning takes.

    python benchmarks/amounts.py

COUNT and SUM by 16 groups at ε = 1. Splitting the budget between the two would cost 16 a group.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import batchdp

GROUPS = [f"g{i}" for i in range(16)]
COLUMNS: dict[str, dict[str, Any]] = {
    "integers = [0, 5000]": {"integers": [0, 5000]},
    "integers = [0, 1000000000]": {"integers": [0, 10**9]},
    "range = [0, 100000], step = 0.01": {"range": [0, 100_000], "step": 0.01},
    "integers = [4000, 5000]": {"integers": [4000, 5000]},
}
KINDS: tuple[tuple[Any, dict[str, Any]], ...] = (("pure", {"epsilon": 1.0}), ("zcdp", {"rho": 0.5}))
ONE = "SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g"
TWO = "SELECT g, COUNT(*) AS n, SUM(v) AS s, SUM(w) AS r FROM t GROUP BY g"


def main() -> None:
    """Print one line a column, for one amount and for two."""
    for sql, title in ((ONE, "COUNT, SUM(v)"), (TWO, "COUNT, SUM(v), SUM(w)")):
        for name, column in COLUMNS.items():
            own = {**column, "other": "drop"}
            domain = {"table": "t", "columns": {"g": {"values": GROUPS, "other": "drop"}, "v": own, "w": own}}
            found = []
            for privacy, budget in KINDS:
                start = time.process_time()
                plan = batchdp.plan(sql, domain, privacy=privacy, cache=False)
                seconds = time.process_time() - start
                variances = plan.strategy.per_query_variance(**budget)
                relative = float(np.sum(variances / np.square(plan.workload.table_tops()))) / len(GROUPS)
                found.append(f"{privacy} {relative:.4g} in {seconds:.1f} s")
            print(f"{title} by group, {name}: {', '.join(found)}; {plan.workload.cells} cells", flush=True)


if __name__ == "__main__":
    main()
