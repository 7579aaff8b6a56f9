"""The contract workloads: the paper's and running totals, what has to be reached on them, and what others reach."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from batchdp import workloads

if TYPE_CHECKING:
    from batchdp import MatrixWorkload  # a name that the trees of `regression.py` need not have

PEERS = Path(__file__).parent / "peers.csv"

# (workload, m, n, s): expected squared error per query at ε = 1, and nothing above it.
TO_REACH = {
    ("WDiscrete", 64, 128, 0): 52.61,
    ("WRange", 64, 128, 0): 32.45,
    ("WRelated", 64, 128, 32): 7995.3,
    ("WDiscrete", 64, 256, 0): 82.73,
    ("WRange", 64, 256, 0): 37.06,
    ("WRelated", 64, 256, 32): 15958.5,
    ("WDiscrete", 256, 256, 0): 96.9,
    ("WRange", 256, 256, 0): 59.05,
    ("WRelated", 256, 256, 128): 65556.1,
    ("WDiscrete", 256, 512, 0): 167.0,
    ("WRange", 256, 512, 0): 71.72,
    ("WRelated", 256, 512, 128): 131300.3,
    ("WDiscrete", 256, 1024, 0): 290.5,
    ("WRange", 256, 1024, 0): 81.13,
    ("WRelated", 256, 1024, 128): 266449.2,
    ("WRelated", 256, 1024, 26): 25302.0,
    ("Prefix", 256, 256, 0): 53.9,
}


def contract_workload(kind: str, m: int, n: int, s: int, seed: int = 0) -> MatrixWorkload:
    """A contract workload; the figures here and in peers.csv speak of seed 0."""
    match kind:
        case "WDiscrete":
            return workloads.discrete(m, n, seed)
        case "WRange":
            return workloads.ranges(m, n, seed)
        case "WRelated":
            return workloads.related(m, n, s, seed)
        case "Prefix":
            return workloads.prefix(n)
        case "AllRange":
            return workloads.all_ranges(n)
    raise AssertionError(kind)


def peer_figures(largest_n: int) -> list[tuple[str, int, int, int, str, float]]:
    """Rows of (workload, m, n, s, peer, expected squared error per query at ε = 1)."""
    with PEERS.open() as file:
        return [
            (row["workload"], int(row["m"]), n, int(row["s"] or 0), row["peer"], float(row["error_per_query"]))
            for row in csv.DictReader(file)
            if (n := int(row["n"])) <= largest_n and not row["workload"].startswith("Intro")
        ]
