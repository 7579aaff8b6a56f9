"""Ten million records are counted in seconds on two cores, as CSV in at most three times DuckDB's own time.

    python benchmarks/counting.py                      10 000 000 records, 200 queries
    python benchmarks/counting.py --records 1000000 --queries 50

Makes a Parquet and a CSV file of five columns and a unit in a temporary folder, takes the atoms of random ranges and
counts, each time in a process of its own so that its peak memory can be told. DuckDB's parallel CSV reader counts the
same atoms beside it; it guesses where lines start, so that a line break in a field can move other records. Ends with 1
if a claim fails at the full size.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import duckdb

from batchdp.domain import Domain, as_domain
from batchdp.engines import count, open_table
from batchdp.queries.query import Cut, Place
from batchdp.workloads.encode.atoms import Atoms, LineAtoms, ListedAtoms

SECONDS = 10.0
MEGABYTES = {"Parquet, every record": 1000.0, "Parquet, one record a person": 1500.0}
"""Of memory at the peak; a person's records are told apart by texts, which take more."""
TIMES = 3.0
"""What CSV may take of DuckDB's parallel reader's time."""
STATES = [f"state {i:02}" for i in range(50)]
FIRST = date(2020, 1, 1).toordinal()
DAYS = 2192


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--count", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows-per-unit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--in-parallel", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.count:
        counting = counted_in_parallel if asked.in_parallel else counted
        print(json.dumps(counting(asked.count, asked.queries, asked.rows_per_unit)))
        return 0
    failed = False
    taken = {}
    with tempfile.TemporaryDirectory() as folder:
        parquet, csv = Path(folder) / "patients.parquet", Path(folder) / "patients.csv"
        generate(parquet, csv, asked.records)
        for title, path, more in (
            ("Parquet, every record", parquet, []),
            ("Parquet, one record a person", parquet, ["--rows-per-unit", "1"]),
            ("Parquet, three records a person", parquet, ["--rows-per-unit", "3"]),
            ("CSV, every record", csv, []),
            ("CSV by DuckDB's parallel reader", csv, ["--in-parallel"]),
        ):
            command = [sys.executable, __file__, "--count", str(path), "--queries", str(asked.queries), *more]
            figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            taken[title], megabytes = figures["seconds"], figures["megabytes"]
            combinations = f"{figures['combinations']} combinations"
            print(f"{title}: {taken[title]:.1f} s, {megabytes:.0f} MB, {combinations}", flush=True)
            failed |= title in MEGABYTES and (taken[title] > SECONDS or megabytes > MEGABYTES[title])
    times = taken["CSV, every record"] / taken["CSV by DuckDB's parallel reader"]
    print(f"CSV takes {times:.2f} times as long as DuckDB's parallel reader")
    return 1 if (failed or times > TIMES) and asked.records >= 10_000_000 else 0


def generate(parquet: Path, csv: Path, records: int) -> None:
    """Ages and numbers of children as people have them, incomes with a long tail, three records a person."""
    with duckdb.connect(config={"preserve_insertion_order": False}) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"""
            COPY (
                SELECT hash(range // 3) AS patient_id,
                       least(100, floor(-ln(random() * random()) * 20))::INTEGER AS age,
                       exp(10 + sqrt(-2 * ln(random())) * cos(2 * pi() * random())) AS income,
                       'state ' || lpad(floor(50 * random() * random())::INTEGER::VARCHAR, 2, '0') AS state,
                       DATE '2020-01-01' + floor(random() * {DAYS})::INTEGER AS visited,
                       least(12, floor(-ln(random()) * 1.5))::INTEGER AS children
                FROM range({records})
            ) TO '{parquet}'
            """
        )
        connection.execute(f"COPY (FROM '{parquet}') TO '{csv}' (HEADER)")


def domain() -> Domain:
    return as_domain(
        {
            "table": "patients",
            "privacy": {"unit": "patient_id"},
            "columns": {
                "age": {"range": [0, 120]},
                "income": {"range": [0, 1_000_000]},
                "state": {"values": STATES},
                "visited": {"dates": ["2020-01-01", "2025-12-31"]},
                "children": {"integers": [0, 12]},
            },
        }
    )


def atoms(queries: int) -> list[Atoms]:
    """What so many random ranges cut the columns into: each query cuts one column twice."""
    rng = random.Random(0)
    each = max(1, queries // 10)

    def cuts(low: int, high: int) -> list[Cut]:
        places: set[Place] = {rng.randint(low, high) for _ in range(2 * each)}
        return [Cut(place) for place in sorted(places)]

    return [
        LineAtoms("age", "number", tuple(cuts(1, 100)), None),
        LineAtoms("income", "number", tuple(cuts(2_000, 200_000)), None),
        ListedAtoms("state", "text", tuple((state,) for state in STATES), None),
        LineAtoms("visited", "date", tuple(cuts(FIRST + 1, FIRST + DAYS - 1)), None),
        LineAtoms("children", "number", tuple(Cut(i) for i in range(1, 13)), None),
    ]


def counted(path: Path, queries: int, rows_per_unit: int | None) -> dict[str, float]:
    start = time.perf_counter()
    combinations = 0
    unit = None if rows_per_unit is None else "patient_id"
    with open_table(path, domain()) as source:
        for _, counts in count(source, atoms(queries), unit=unit, rows_per_unit=rows_per_unit or 1):
            combinations += len(counts)
    return {
        "seconds": time.perf_counter() - start,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "combinations": combinations,
    }


def counted_in_parallel(path: Path, queries: int, _: int | None) -> dict[str, float]:
    """The same by DuckDB alone: its CSV reader, and the same query over what it reads."""
    start = time.perf_counter()
    combinations = 0
    names = ("patient_id", "age", "income", "state", "visited", "children")
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    options = f"columns = {{{columns}}}, header = true, auto_detect = false, delim = ',', quote = '\"', parallel = true"
    with duckdb.connect(config={"preserve_insertion_order": False}) as connection:
        connection.execute(f"CREATE VIEW patients AS FROM read_csv('{path}', {options})")
        with open_table(connection, domain()) as source:
            for _codes, counts in count(source, atoms(queries)):
                combinations += len(counts)
    return {
        "seconds": time.perf_counter() - start,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "combinations": combinations,
    }


if __name__ == "__main__":
    sys.exit(main())
