"""No record decides how, or whether, another is counted: neighbouring tables in every engine.

    python benchmarks/neighbours.py                                2 000 pairs an engine
    python benchmarks/neighbours.py --engine CSV --engine Polars --pairs 100
    python benchmarks/neighbours.py --seed 7 --engine Parquet      the pairs of a run that printed this seed

The pairs of an engine are shared out among the ways to hand it a table: a file, a folder, a frame of objects, …

Every pair differs in one record or in all records of one person. Both are accepted or both are refused with the same
words; nothing is raised once the schema is accepted; standard error, warnings and logs are the same; and the exact
counts of every block are at most as far apart as the domain declares. Ends with 1 if a pair fails.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from boundary import ADAPTERS
from boundary.fuzzing import Tally, fuzz

ENGINES = {
    "CSV": ("csv", "folder of csv"),
    "gzipped CSV": ("csv.gz",),
    "Parquet": ("parquet", "folder of parquet", "hive folder of parquet", "folder of parquet by pandas"),
    "pandas": tuple(name for name in ADAPTERS if name.startswith("pandas")),
    "Polars": ("polars", "polars lazy"),
    "PyArrow": tuple(name for name in ADAPTERS if name.startswith("pyarrow")),
    "DuckDB": ("duckdb connection", "duckdb relation", "duckdb file", "ibis on duckdb"),
    "PostgreSQL": ("postgres", "ibis on postgres"),
    "Spark": ("spark", "parquet on spark"),
}
assert sorted(ADAPTERS) == sorted(name for ways in ENGINES.values() for name in ways)
SHOWN = 5
"""Failures of an engine that are printed."""
LINE = "{:<28} {:>6} {:>8} {:>18} {:>9} {:>8}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=list(ENGINES), metavar="NAME", help=", ".join(ENGINES))
    parser.add_argument("--pairs", type=int, default=2_000, help="of neighbours in each engine")
    parser.add_argument("--seed", type=int, help="of an earlier run; drawn if left out")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    lines, failed = [], False
    for engine in asked.engine or ENGINES:
        started = time.monotonic()
        each = -(-asked.pairs // len(ENGINES[engine]))
        tallies = [tried(name, seed, each) for name in ENGINES[engine]]
        problems = [problem for tally in tallies for problem in tally.problems]
        lines.append(
            LINE.format(
                engine,
                sum(tally.pairs for tally in tallies),
                sum(tally.refused for tally in tallies),
                f"{max(tally.closest for tally in tallies):.2f} of allowed",
                len(problems),
                f"{time.monotonic() - started:.0f} s",
            )
        )
        failed |= bool(problems)
        for problem in problems[:SHOWN]:
            print(problem, flush=True)
        print(lines[-1], flush=True)
    print(LINE.format("engine", "pairs", "refused", "largest distance", "failures", "time"))
    print("\n".join(lines))
    return 1 if failed else 0


def tried(name: str, seed: int, pairs: int) -> Tally:
    """One engine, with a line that tells how far it is."""
    tally = Tally()
    shown = 0.0
    for tally in fuzz(ADAPTERS[name], seed, pairs):
        if sys.stderr.isatty() and time.monotonic() - shown > 1:
            shown = time.monotonic()
            print(
                f"\r{name}: {tally.pairs} of {pairs}, {len(tally.problems)} failures",
                end="",
                file=sys.stderr,
                flush=True,
            )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return tally


if __name__ == "__main__":
    sys.exit(main())
