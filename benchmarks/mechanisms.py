"""Every registered mechanism on the paper's workloads: expected squared error per query at ε = 1, and time.

Time is a multiple of one SVD of the workload taken in the same run, so that machines can be compared.
"""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

from batchdp import STRATEGIES, Workload, workloads
from batchdp.matrix import dense

CASES: dict[str, Workload] = {
    "WDiscrete 64×128": workloads.discrete(64, 128),
    "WRange 64×128": workloads.ranges(64, 128),
    "WRelated 64×128": workloads.related(64, 128, 32),
    "WDiscrete 256×256": workloads.discrete(256, 256),
    "WRange 256×256": workloads.ranges(256, 256),
    "WRelated 256×256": workloads.related(256, 256, 128),
    "Prefix 256": workloads.prefix(256),
}


def main() -> None:
    table = Table("workload", "method", "error per query", "residual", "seconds", "÷ one SVD")
    for title, workload in CASES.items():
        start = time.perf_counter()
        np.linalg.svd(dense(workload.matrix), full_matrices=False)
        svd = time.perf_counter() - start
        for name, method in STRATEGIES.items():
            start = time.perf_counter()
            strategy = method(workload)
            seconds = time.perf_counter() - start
            budget = {"epsilon": 1.0} if strategy.privacy == "pure" else {"rho": 0.5}
            error = strategy.expected_squared_error(**budget) / workload.queries
            table.add_row(
                title,
                name,
                f"{error:,.2f}",
                f"{strategy.residual:.0e}",
                f"{seconds:.3f}",
                f"{seconds / svd:.1f}",
            )
        bound = strategy.certificate.lower_bound * 2 / workload.queries
        table.add_row(title, "no strategy is below", f"{bound:,.2f}", end_section=True)
    Console().print(table)


if __name__ == "__main__":
    main()
