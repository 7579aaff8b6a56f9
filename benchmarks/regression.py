"""`optimize` of two source trees on the contract workloads, run in turn: is the second one worse, or slower?

    python benchmarks/regression.py --before ../base/src --after src --json runs.jsonl [--largest 256] [--times 3]

Every run is a process of its own and its time is that process's own processor time, the best of several, so that other
work on the machine hardly matters. Seed 0 is the published one; the others are fresh: neither a published table nor a
setting has seen them. What is in the JSON file already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

SEEDS = (0, 101, 102, 103)
MOST_ERROR = 1.001
"""After ÷ before, above which an error counts as worse."""
MOST_TIME = 1.1
"""After ÷ before, above which a time counts as slower."""

Case = tuple[str, int, int, int]


@dataclass(frozen=True)
class Run:
    """One call of `optimize`; the error is per query at ε = 1."""

    source: str
    case: Case
    seed: int
    error: float
    residual: float
    seconds: float
    method: str

    @property
    def key(self) -> tuple[str, Case, int]:
        return self.source, self.case, self.seed


def run_one(source: str, case: Case, seed: int) -> Run:
    """In this process, with whichever batchdp is on its path."""
    from batchdp import optimize
    from contract import contract_workload

    workload = contract_workload(*case, seed=seed)
    start = time.process_time()
    strategy = optimize(workload, seed=seed)
    seconds = time.process_time() - start
    error = strategy.expected_squared_error(epsilon=1.0) / workload.queries
    return Run(source, case, seed, error, strategy.residual, seconds, strategy.method)


def measured(source: str, case: Case, seed: int) -> Run:
    """In a process of its own, with the batchdp of a source tree."""
    command = [sys.executable, __file__, "--one", json.dumps([source, case, seed])]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, text=True, check=True
    )
    return _read(found.stdout)


def _read(line: str) -> Run:
    fields = json.loads(line)
    return Run(**{**fields, "case": tuple(fields["case"])})


def shown(runs: list[Run], before: str, after: str) -> tuple[Table, int]:
    """Both trees beside each other, and how many lines are worse or slower."""
    table = Table("workload", "seed", "error before", "after", "÷", "residual", "s before", "after", "÷", "")
    best: dict[tuple[str, Case, int], Run] = {}
    for run in runs:
        known = best.get(run.key)
        best[run.key] = run if known is None or run.seconds < known.seconds else known
    wrong = 0
    for (source, case, seed), old in best.items():
        new = best.get((after, case, seed))
        if source != before or new is None:
            continue
        error, seconds = new.error / old.error, new.seconds / old.seconds
        verdict = " ".join(
            word for word, bad in (("WORSE", error > MOST_ERROR), ("SLOWER", seconds > MOST_TIME)) if bad
        )
        wrong += bool(verdict)
        kind, m, n, s = case
        table.add_row(
            f"{kind} {m} × {n}" + (f", s = {s}" if s else ""),
            str(seed),
            f"{old.error:,.2f}",
            f"{new.error:,.2f}",
            f"{error:.4f}",
            f"{new.residual:.0e}",
            f"{old.seconds:.2f}",
            f"{new.seconds:.2f}",
            f"{seconds:.2f}",
            verdict,
        )
    return table, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the source folder to compare with")
    parser.add_argument("--after", help="the source folder that has changed")
    parser.add_argument("--json", type=Path, help="all runs, a line each; those that are there are kept")
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="leave out workloads with more cells")
    parser.add_argument("--times", type=int, default=3, help="how often each is run")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        source, case, seed = json.loads(options.one)
        print(json.dumps(asdict(run_one(source, tuple(case), seed))))
        return
    from contract import TO_REACH

    runs = [_read(line) for line in options.json.read_text().splitlines()] if options.json.exists() else []
    cases = [case for case in TO_REACH if case[2] <= options.largest]
    sources = [source for source in (options.before, options.after) if source]
    with options.json.open("a") as file:
        for time_, seed, case, source in product(range(options.times), options.seeds, cases, sources):
            if sum(run.key == (source, case, seed) for run in runs) > time_:
                continue
            runs.append(measured(source, case, seed))
            print(json.dumps(asdict(runs[-1])), file=file, flush=True)
    table, wrong = shown(runs, options.before, options.after)
    Console(width=150).print(table)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
