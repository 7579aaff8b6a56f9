"""What `optimize` reaches on the contract workloads beside other programs, and what it costs.

Errors are per query at ε = 1; time is also a multiple of one SVD of the workload taken in the same run. With
`--low-rank` the paper's own algorithm and the fast one are measured too, with `--gaussian` the optimum under Gaussian
noise.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from batchdp import Strategy, Workload, low_rank, optimize, workloads
from batchdp.matrix import dense

PEERS = Path(__file__).parent / "peers.csv"
CASES = [
    ("WDiscrete", 64, 128, 0, 52.61),
    ("WRange", 64, 128, 0, 32.45),
    ("WRelated", 64, 128, 32, 7995.3),
    ("WDiscrete", 64, 256, 0, 82.73),
    ("WRange", 64, 256, 0, 37.06),
    ("WRelated", 64, 256, 32, 15958.5),
    ("WDiscrete", 256, 256, 0, 96.9),
    ("WRange", 256, 256, 0, 59.05),
    ("WRelated", 256, 256, 128, 65556.1),
    ("WDiscrete", 256, 512, 0, 167.0),
    ("WRange", 256, 512, 0, 71.72),
    ("WRelated", 256, 512, 128, 131300.3),
    ("WDiscrete", 256, 1024, 0, 290.5),
    ("WRange", 256, 1024, 0, 81.13),
    ("WRelated", 256, 1024, 128, 266449.2),
    ("WRelated", 256, 1024, 26, 25302.0),
    ("Prefix", 256, 256, 0, 53.9),
]
"""Workload, m, n, s, and the error to reach."""


def make(kind: str, m: int, n: int, s: int) -> Workload:
    match kind:
        case "WDiscrete":
            return workloads.discrete(m, n, 0)
        case "WRange":
            return workloads.ranges(m, n, 0)
        case "WRelated":
            return workloads.related(m, n, s, 0)
        case _:
            return workloads.prefix(n)


def peers() -> dict[tuple[str, int, int, int, str], float]:
    with PEERS.open() as file:
        return {
            (row["workload"], int(row["m"]), int(row["n"]), int(row["s"] or 0), row["peer"]): float(
                row["error_per_query"]
            )
            for row in csv.DictReader(file)
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--low-rank", action="store_true", help="the low-rank mechanism, printed and fast")
    parser.add_argument("--gaussian", action="store_true", help="the optimum under Gaussian noise")
    parser.add_argument("--largest", type=int, default=1024, help="leave out workloads with more cells")
    options = parser.parse_args()
    methods: dict[str, Callable[[Workload], Strategy]] = {"optimize": optimize}
    if options.low_rank:
        methods["low-rank"] = low_rank
        methods["low-rank as printed"] = lambda workload: low_rank(workload, algorithm="paper")
    if options.gaussian:
        methods["gaussian"] = lambda workload: optimize(workload, privacy="zcdp")
    known = peers()
    table = Table("workload", "method", "error", "to reach", "authors", "HDMM", "bound", "residual", "s", "÷ SVD")
    for kind, m, n, s, goal in CASES:
        if n > options.largest:
            continue
        workload = make(kind, m, n, s)
        start = time.perf_counter()
        np.linalg.svd(dense(workload.matrix), full_matrices=False)
        svd = time.perf_counter() - start
        for name, method in methods.items():
            start = time.perf_counter()
            strategy = method(workload)
            seconds = time.perf_counter() - start
            budget = {"epsilon": 1.0} if strategy.privacy == "pure" else {"rho": 0.5}
            error = strategy.expected_squared_error(**budget) / m
            ours = name == "optimize"
            table.add_row(
                f"{kind} {m}×{n}" + (f" s={s}" if s else ""),
                f"{name}: {strategy.method}" if ours else name,
                f"{error:,.2f}",
                f"{goal:,.2f}{' ok' if error <= goal else ' MISSED'}" if ours else "",
                f"{known.get((kind, m, n, s, 'authors-lrm'), np.nan):,.1f}",
                f"{known.get((kind, m, n, s, 'hdmm-p-identity-best-of-3'), np.nan):,.2f}",
                f"{strategy.lower_bound(**budget) / m:,.2f}",
                f"{strategy.residual:.0e}",
                f"{seconds:.2f}",
                f"{seconds / svd:,.0f}",
            )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
