"""Batches over many columns with Gaussian noise, beside what other programs publish.

    python benchmarks/structured.py [--only TEXT] [--csv FILE]

Found and limit are root mean squared errors a query at ρ = ½ (dashboard: the total; "largest": the largest variance).
The ratio is that of the squared errors; seconds are those of making the batch and planning it. No data, no noise.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from batchdp.components.optimizing import optimize_products
from batchdp.plans import plan
from published import PUBLISHED, Published

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Line:
    workload: str
    queries: int
    found: float
    limit: float
    ratio: float
    seconds: float
    others: float | None
    source: str


def measured(one: Published) -> Line:
    start = time.monotonic()
    batch = one.make()
    strategy = optimize_products(batch, objective="max" if one.largest else "sum")
    seconds = time.monotonic() - start
    if one.largest:
        found, limit = strategy.largest_variance(rho=0.5), strategy.largest_variance_bound(rho=0.5)
        return Line(f"{one.name}, largest", batch.queries, found, limit, found / limit, seconds, one.figure, one.source)
    total, least = strategy.expected_squared_error(rho=0.5), strategy.lower_bound(rho=0.5)
    found, limit = (total / batch.queries) ** 0.5, (least / batch.queries) ** 0.5
    return Line(one.name, batch.queries, found, limit, total / least, seconds, one.figure, one.source)


def dashboard() -> Line:
    """From SQL to the plan that is answered."""
    start = time.monotonic()
    made = plan(HERE / "dashboard.sql", HERE / "dashboard.toml", privacy="zcdp", objective="sum", cache=False)
    seconds = time.monotonic() - start
    total, least = made.strategy.expected_squared_error(rho=0.5), made.strategy.lower_bound(rho=0.5)
    return Line("dashboard, total", len(made.names), total, least, total / least, seconds, None, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="batches whose name has this text")
    parser.add_argument("--csv", type=Path, help="write the table to this file as well")
    options = parser.parse_args()
    table = Table("batch", "queries", "found", "limit", "ratio", "seconds", "others", "")
    lines = []
    for one in (*PUBLISHED, None):
        if options.only.lower() not in (one.name.lower() if one else "dashboard"):
            continue
        line = measured(one) if one else dashboard()
        lines.append(line)
        others = "" if line.others is None else f"{line.others:,.3f}"
        figures = (f"{line.found:,.3f}", f"{line.limit:,.3f}", f"{line.ratio:.4f}", f"{line.seconds:.2f}")
        table.add_row(line.workload, f"{line.queries:,}", *figures, others, line.source)
    Console(width=120).print(table)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Line)])
            writer.writeheader()
            writer.writerows(asdict(line) for line in lines)


if __name__ == "__main__":
    main()
