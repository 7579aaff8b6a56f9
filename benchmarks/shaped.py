"""The exact sampler of shaped noise: what a draw takes by rank, and the long versions of its tests of exactness.

`make audit` runs both; without `--exactness` only draws are timed, by the clock and by the processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.drawing import draws


def flags(rank: int) -> Any:
    """Counts of independent flags."""
    return np.array([column for column in product((0, 1), repeat=rank) if any(column)]).T


def related(rank: int, cells: int) -> Any:
    """As a group of WRelated's measurements: Gaussian, on a lattice of 30 bits."""
    return np.rint(np.random.default_rng(rank).standard_normal((rank, cells)) * 2**30).astype(np.int64)


def random_counts(rank: int, cells: int, share: float) -> Any:
    """Queries of 0 and 1."""
    return (np.random.default_rng(rank).random((rank, cells)) < share).astype(np.int64)


BODIES = {
    "4 flags": flags(4),
    "7 flags": flags(7),
    "10 flags": flags(10),
    "10 random 0/1 queries": random_counts(10, 64, 0.5),
    "12 random 0/1 queries, a fifth ones": random_counts(12, 200, 0.2),
    "10 prefixes": np.tril(np.ones((10, 10), dtype=np.int64)),
    "WRelated-like, rank 8": related(8, 400),
    "WRelated-like, rank 10": related(10, 600),
    "WRelated-like, rank 12": related(12, 800),
    "WRelated-like, rank 13": related(13, 1024),
    "WRelated-like, rank 14": related(14, 1024),
    "WRelated-like, rank 16": related(16, 1024),
    "WRelated-like, rank 18": related(18, 1024),
}


def timed(count: int, most_rank: int) -> None:
    """One line a body."""
    print("body | rank | columns | survey s | share of ball | cells a draw | nominal s | mean s | worst s | mean CPU s")
    for name, vertices in BODIES.items():
        if len(vertices) > most_rank:
            continue
        body = Body(vertices)
        start = time.perf_counter()
        nominal = body.seconds
        survey = time.perf_counter() - start
        draws(body, Fraction(1), 1)
        clock, cpu = [], time.process_time()
        for _ in range(count):
            start = time.perf_counter()
            draws(body, Fraction(1), 1)
            clock.append(time.perf_counter() - start)
        cpu = (time.process_time() - cpu) / count
        share = body.survey.share
        print(
            f"{name} | {body.rank} | {vertices.shape[1]} | {survey:.2f} | {share:.1e} | {body.proposals:,.0f} | "
            f"{nominal:.3f} | {np.mean(clock):.3f} | {max(clock):.3f} | {cpu:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20, help="of every body")
    parser.add_argument("--most-rank", type=int, default=18)
    parser.add_argument(
        "--exactness", type=int, default=0, metavar="N", help="points and draws of the long tests, 100000"
    )
    options = parser.parse_args()
    timed(options.draws, options.most_rank)
    if options.exactness:
        command = [sys.executable, "-m", "pytest", "-n0", "tests/test_shaped_body.py", "tests/test_shaped_draws.py"]
        subprocess.run(command, env={**os.environ, "BATCHDP_EXAMPLES": str(options.exactness)}, check=True)


if __name__ == "__main__":
    main()
