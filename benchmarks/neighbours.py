"""No record decides how, or whether, another is counted: neighbouring tables in every engine.

    python benchmarks/neighbours.py                                2 000 pairs an engine
    python benchmarks/neighbours.py --engine CSV --engine Polars --pairs 100
    python benchmarks/neighbours.py --seed 7 --engine Parquet      the pairs of a run that printed this seed
    python benchmarks/neighbours.py --engine "finding, CSV"        as discover and check count them, 100 pairs

The pairs of an engine are shared out among the ways to hand it a table: a file, a folder, a frame of objects, …

Every pair differs in one record or in all records of one person. Both are accepted or both are refused with the same
words; nothing is raised once the schema is accepted; standard error, warnings and logs are the same; and the exact
counts of every block are at most as far apart as the domain declares. Ends with 1 if a pair fails.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from boundary import ADAPTERS, finding, joined
from boundary.fuzzing import Tally, fuzz
from boundary.joined import WAYS

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
    "codes in pandas": tuple(name for name in ADAPTERS if name.startswith("codes in pandas")),
    "codes in Polars": ("codes in polars",),
    "codes in PyArrow": tuple(name for name in ADAPTERS if name.startswith("codes in pyarrow")),
    "codes in NumPy": ("codes in NumPy arrays",),
    "codes, types guessed": tuple(name for name in ADAPTERS if name.startswith(("codes guessed", "codes in what"))),
}
assert sorted(ADAPTERS) == sorted(name for ways in ENGINES.values() for name in ways)
JOINED = {f"joins, {way}": way for way in WAYS}
"""Two tables with rows of the same persons, in every way to hand over both."""
FINDING = {f"finding, {engine}": ways for engine, ways in ENGINES.items() if not engine.startswith("codes")}
"""What `discover` and `check` count of a table, each pair of which takes a second."""
FEWER = 20
"""Times as few pairs of these."""
SHOWN = 5
"""Failures of an engine that are printed."""
LINE = "{:<28} {:>6} {:>8} {:>18} {:>9} {:>8}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*ENGINES, *JOINED, *FINDING]
    parser.add_argument("--engine", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--pairs", type=int, default=2_000, help="of neighbours in each engine")
    parser.add_argument("--seed", type=int, help="of an earlier run; drawn if left out")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="engines that are tried at once")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    engines = asked.engine or names
    print(
        f"seed {seed}\n{LINE.format('engine', 'pairs', 'refused', 'largest distance', 'failures', 'time')}", flush=True
    )
    failed = False
    # A process an engine, started afresh: servers and sessions are not for sharing.
    with ProcessPoolExecutor(asked.workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        for found in as_completed([pool.submit(tried, engine, seed, asked.pairs) for engine in engines]):
            line, problems = found.result()
            print("\n".join([line, *problems[:SHOWN]]), flush=True)
            failed |= bool(problems)
    return 1 if failed else 0


def tried(engine: str, seed: int, pairs: int) -> tuple[str, list[str]]:
    """One engine: its line of the table, and what failed."""
    started = time.monotonic()
    tallies: list[Tally] = []
    for name in ENGINES.get(engine, FINDING.get(engine, (engine,))):
        if engine in JOINED:
            tally = joined.fuzz(JOINED[engine], seed, pairs)
        elif engine in FINDING:
            tally = finding.fuzz(ADAPTERS[name], seed, -(-pairs // FEWER // len(FINDING[engine])))
        else:
            *_, tally = fuzz(ADAPTERS[name], seed, -(-pairs // len(ENGINES[engine])))
        tallies.append(tally)
        print(f"{name}: {tally.pairs} pairs, {len(tally.problems)} failures", file=sys.stderr, flush=True)
    problems = [problem for tally in tallies for problem in tally.problems]
    line = LINE.format(
        engine,
        sum(tally.pairs for tally in tallies),
        sum(tally.refused for tally in tallies),
        f"{max(tally.closest for tally in tallies):.2f} of allowed",
        len(problems),
        f"{time.monotonic() - started:.0f} s",
    )
    return line, problems


if __name__ == "__main__":
    sys.exit(main())
