"""Every registered mechanism and `optimize` on the contract workloads: error, residual and time, beside other programs.

    python benchmarks/comparison.py [--largest 256] [--csv FILE] [--all]

Errors are expected squared errors per query at ε = 1 (Gaussian noise: ρ = 1/2). Time is with one BLAS thread, and also
a multiple of one SVD of the workload taken in the same run, so that machines can be compared. Progress goes to stderr,
a line a mechanism.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from batchdp import low_rank, optimize
from batchdp.linalg.matrix import dense
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.families import FAMILIES, Family, FunctionFamily
from contract import TO_REACH, contract_workload, peer_figures

AS_PRINTED = FunctionFamily(
    "low-rank as printed", lambda workload: low_rank(workload, algorithm="paper"), searches=True, slow_beyond=256
)


def measured_families() -> list[Family]:
    """Every registered family, the paper's own algorithm, and `optimize`."""
    return [*FAMILIES.values(), AS_PRINTED, FunctionFamily("optimize", optimize, searches=True)]


PEERS = {"authors-lrm": "the authors' program", "hdmm-p-identity-best-of-3": "HDMM OPT₀, best of 3"}


@dataclass(frozen=True)
class Measured:
    """A line of the table; no figure where there is none."""

    workload: str
    m: int
    n: int
    s: int
    method: str
    error: float | None = None
    residual: float | None = None
    seconds: float | None = None
    svds: float | None = None
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.workload} {self.m} × {self.n}" + (f", s = {self.s}" if self.s else "")


def measure(case: tuple[str, int, int, int], *, everything: bool) -> Iterator[Measured]:
    """All lines of a workload, from the mechanisms here to the bound."""
    _, m, n, _ = case
    workload = contract_workload(*case)
    start = time.perf_counter()
    one_thread(np.linalg.svd)(dense(workload.matrix), full_matrices=False)
    svd = time.perf_counter() - start
    bound = 0.0
    for family in measured_families():
        name, slow_beyond = family.name, family.slow_beyond
        if slow_beyond is not None and n > slow_beyond and not everything:  # it takes minutes there
            yield Measured(*case, name, note="not measured: takes minutes here; --all")
            continue
        start = time.perf_counter()
        strategy = one_thread(family.method)(workload)
        seconds = time.perf_counter() - start
        budget = strategy.noise.reference.arguments
        error = strategy.expected_squared_error(**budget) / m
        note = ""
        if name == "optimize":
            goal = TO_REACH[case]
            note = f"{strategy.method}; {'reaches' if error <= goal else 'MISSES'} {goal:,.2f}"
            bound = strategy.lower_bound(**budget) / m
        yield Measured(*case, name, error, strategy.residual, seconds, seconds / svd, note)
    for *where, peer, error in peer_figures(n):
        if tuple(where) == case and peer in PEERS:
            yield Measured(*case, PEERS[peer], error, note="from peers.csv")
    yield Measured(*case, "no Laplace strategy is below", bound)


def printed(lines: list[Measured]) -> Table:
    table = Table("workload", "method", "error per query", "residual", "seconds", "÷ one SVD", "")
    for _, of_workload in groupby(lines, key=lambda line: line.title):
        for line in of_workload:
            figures = (
                "" if value is None else format(value, form)
                for value, form in (
                    (line.error, ",.2f"),
                    (line.residual, ".0e"),
                    (line.seconds, ".2f"),
                    (line.svds, ",.1f"),
                )
            )
            table.add_row(line.title, line.method, *figures, line.note)
        table.add_section()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="leave out workloads with more cells")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="the same table for machines, written line by line")
    parser.add_argument("--all", action="store_true", help="measure also what takes minutes")
    options = parser.parse_args()
    cases = [case for case in TO_REACH if case[2] <= options.largest]
    lines: list[Measured] = []
    with options.csv.open("w", newline="") if options.csv else open(os.devnull, "w") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measured)])
        writer.writeheader()
        for i, case in enumerate(cases, start=1):
            for line in measure(case, everything=options.all):
                lines.append(line)
                writer.writerow(asdict(line))
                file.flush()
                if line.seconds is not None:
                    print(f"{i} of {len(cases)}: {line.title}, {line.method}: {line.seconds:.1f} s", file=sys.stderr)
    Console(width=150).print(printed(lines))


if __name__ == "__main__":
    main()
