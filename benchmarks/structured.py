"""Batches over many columns, beside what other programs publish.

    python benchmarks/structured.py [--privacy pure] [--only TEXT] [--csv FILE]

Found and limit are root mean squared errors a query at ρ = ½, with `--privacy pure` at ε = √2 (dashboard: the total, at
ε = 1; "largest": the largest variance). The ratio is that of the squared errors; with Laplace noise the limit is loose.
Seconds are those of a processor, all threads together, for making the batch and planning it. No data, no noise.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from batchdp import optimize
from batchdp.plans import plan
from batchdp.privacy import LAPLACE, Noise, noise_of
from published import CONDITIONS, PUBLISHED, PURE, QUERYSMASHER, Published, census, pairs_in_sql
from reproduction.peers.measuring import COMPARED

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


def measured(one: Published, noise: Noise) -> Line:
    start = time.process_time()
    batch = one.make()
    strategy = optimize(batch, noise.privacy, objective="max" if one.largest else "sum")
    seconds = time.process_time() - start
    budget = COMPARED[noise].arguments
    if one.largest:
        found, limit = strategy.largest_variance(**budget), strategy.largest_variance_bound(**budget)
        return Line(f"{one.name}, largest", batch.queries, found, limit, found / limit, seconds, one.figure, one.source)
    total, least = strategy.expected_squared_error(**budget), strategy.lower_bound(**budget)
    found, limit = (total / batch.queries) ** 0.5, (least / batch.queries) ** 0.5
    return Line(one.name, batch.queries, found, limit, total / least, seconds, one.figure, one.source)


def dashboard(noise: Noise) -> Line:
    """From SQL to the plan that is answered."""
    start = time.process_time()
    made = plan(HERE / "dashboard.sql", HERE / "dashboard.toml", privacy=noise.privacy, objective="sum", cache=False)
    seconds = time.process_time() - start
    budget = noise.reference.arguments
    total, least = made.strategy.expected_squared_error(**budget), made.strategy.lower_bound(**budget)
    return Line("dashboard, total", len(made.names), total, least, total / least, seconds, None, "")


def in_sql(kind: str, noise: Noise) -> Line:
    """Conditions on two columns from SQL to the plan that is answered."""
    start = time.process_time()
    made = plan(*pairs_in_sql(kind), privacy=noise.privacy, objective="sum", cache=False)
    seconds = time.process_time() - start
    budget, queries = COMPARED[noise].arguments, len(made.names)
    total, least = made.strategy.expected_squared_error(**budget), made.strategy.lower_bound(**budget)
    found, limit = (total / queries) ** 0.5, (least / queries) ** 0.5
    return Line(
        f"10^10 pairs in SQL, {kind}", queries, found, limit, total / least, seconds, QUERYSMASHER[kind], "QuerySmasher"
    )


def census_matrix() -> Line:
    """The Census tables as somebody has them who knows nothing of products: a sparse matrix."""
    W = census().matrix
    start = time.process_time()
    strategy = optimize(W)
    seconds = time.process_time() - start
    found = (strategy.expected_squared_error(epsilon=2**0.5) / W.shape[0]) ** 0.5
    nan = float("nan")
    return Line("SF1 as a matrix", W.shape[0], found, nan, nan, seconds, None, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--privacy", choices=("pure", "zcdp"), default="zcdp", help="the kind of noise")
    parser.add_argument("--only", default="", help="batches whose name has this text")
    parser.add_argument("--csv", type=Path, help="write the table to this file as well")
    options = parser.parse_args()
    table = Table("batch", "queries", "found", "limit", "ratio", "seconds", "others", "")
    lines: list[Line] = []
    noise = noise_of(options.privacy)
    runs: list[tuple[str, Callable[[], Line]]] = [
        (one.name, partial(measured, one, noise)) for one in (PURE if noise == LAPLACE else PUBLISHED)
    ]
    runs.append(("dashboard", partial(dashboard, noise)))
    if noise == LAPLACE:
        runs.append(("SF1 as a matrix", census_matrix))
    else:
        runs += [(f"10^10 pairs in SQL, {kind}", partial(in_sql, kind, noise)) for kind in CONDITIONS]
    for name, run in runs:
        if options.only.lower() not in name.lower():
            continue
        line = run()
        lines.append(line)
        others = "" if line.others is None else f"{line.others:,.3f}"
        figures = (f"{line.found:,.3f}", f"{line.limit:,.3f}", f"{line.ratio:.4f}", f"{line.seconds:.2f}")
        table.add_row(line.workload, f"{line.queries:,}", *figures, others, line.source)
        if options.csv:
            _write(options.csv, lines)
    Console(width=120).print(table)


def _write(path: Path, lines: list[Line]) -> None:
    """What is there so far: a run of all takes minutes."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)])
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)


if __name__ == "__main__":
    main()
