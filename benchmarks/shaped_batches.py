"""Noise in the shape of a batch: its errors beside the best pairs', and whether what is said of it holds.

    python benchmarks/shaped_batches.py table | random | draws | coverage | derived | attack [--runs N] [--only TEXT]

`table`: expected squared errors at ε = 1 of the best pair and of shaped noise, the latter simulated, with its standard
error, and what a draw takes. `random`: gains over several draws of random batches. `draws`: the simulated total error
against exact draws, at rank 6. `coverage`: how often 95 % intervals hold the truth, by exact draws. `derived`: the same
for an average and a share, by whole releases. `attack`: what exact draws on neighbouring tables prove of ε, for the
noise as it is and for noise that is 2 % too small.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count, islice, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame  # type: ignore[import-untyped]

import batchdp
from batchdp.audits.attack import proven_between
from batchdp.audits.knorm import evidence_of, telling_shift
from batchdp.mechanism.knorm.lattice import InBodies
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.sample import sample_bodies
from batchdp.optimizer.shapes import shaped_noise
from batchdp.privacy import KNORM, Budget
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shaped import ShapeLimits
from batchdp.workloads.matrix import MatrixWorkload, as_workload
from batchdp.workloads.reduction import reduce

Matrix = NDArray[np.float64]


def flags(number: int) -> Matrix:
    """Counts of independent flags: a record has any of them."""
    return np.array([one for one in product((0, 1), repeat=number) if any(one)], dtype=float).T


def one_way(*sizes: int) -> Matrix:
    """All tables of one column."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    return np.array([cells[a] == v for a, size in enumerate(sizes) for v in range(size)], dtype=float)


def sums_and_counts(groups: int) -> Matrix:
    """The sum of values 0 and 1, and the count, of every group."""
    return np.kron(np.eye(groups), np.array([[0.0, 1.0], [1.0, 1.0]]))


def random_counts(queries: int, cells: int, share: float, seed: int = 0) -> Matrix:
    return (np.random.default_rng(seed).random((queries, cells)) < share).astype(float)


def totals(seed: int = 0) -> Matrix:
    """8 weighted totals of 300 cells; weights have either sign."""
    return np.random.default_rng(seed).normal(0, 3, (8, 300))


def positive_totals(seed: int) -> Matrix:
    """The same with weights of 0 to 9, as amounts in classes."""
    return np.random.default_rng(seed).integers(0, 10, (8, 300)).astype(float)


def ranges_with(columns: int, seed: int) -> MatrixWorkload:
    """The seed-th draw of 10 ranges of 64 cells that are independent and tell so many classes of cells apart."""
    found = (batchdp.workloads.ranges(10, 64, one) for one in count())
    small = (one for one in found if reduce(one).reduced.shape == (10, columns))
    return next(islice(small, seed, None))


def in_blocks(part: Matrix, number: int, meetings: list[list[int]] | None = None) -> MatrixWorkload:
    """The same queries in each of several blocks of cells."""
    return MatrixWorkload(np.kron(np.eye(number), part), blocks=[part.shape[1]] * number, meetings=meetings)


def sums_in_blocks() -> MatrixWorkload:
    """A count, and the sums of three columns of amounts of 0 to 1 in 100 steps, a block each."""
    W = np.kron(np.eye(3), np.array([[1.0, 1.0], [0.0, 1.0]]))[[0, 1, 3, 5]]
    return MatrixWorkload(W, blocks=(2, 2, 2), ends=[(2 * b, 2 * b + 1, 100) for b in range(3)])


OVERLAP = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
BATCHES: dict[str, Callable[[], object]] = {
    **{f"{k} flags": partial(flags, k) for k in (4, 7, 10)},
    "10 random queries of 64 cells": lambda: random_counts(10, 64, 0.5),
    "12 random queries of 200 cells, a fifth ones": lambda: random_counts(12, 200, 0.2),
    "one-way tables of 3 × 3 × 2": lambda: one_way(3, 3, 2),
    "8 weighted totals of 300 cells": totals,
    "10 random ranges, 16 classes of 64 cells": lambda: ranges_with(16, 0),
    "WRelated 20 × 400, s = 8": lambda: batchdp.workloads.related(20, 400, 8, 0),
    "WRelated 64 × 1024, s = 10": lambda: batchdp.workloads.related(64, 1024, 10, 0),
    "WRelated 64 × 1024, s = 12": lambda: batchdp.workloads.related(64, 1024, 12, 0),
    "WRelated 128 × 1024, s = 14": lambda: batchdp.workloads.related(128, 1024, 14, 0),
    "WRelated 256 × 1024, s = 26": lambda: batchdp.workloads.related(256, 1024, 26, 0),
    "prefix 10": lambda: batchdp.workloads.prefix(10),
    "sums and counts of 4 groups": lambda: sums_and_counts(4),
    "3 blocks with 2 overlapping counts each": lambda: in_blocks(OVERLAP, 3),
    "3 blocks that exclude each other": lambda: in_blocks(OVERLAP, 3, [[0], [1], [2]]),
    "one-way tables of 3, 3 and 2 values, in 3 blocks": lambda: MatrixWorkload(np.eye(8), blocks=(3, 3, 2)),
    "one-way tables of 6, 5 and 4 values, in 3 blocks": lambda: MatrixWorkload(np.eye(15), blocks=(6, 5, 4)),
    "7 flags in each of 2 blocks": lambda: in_blocks(flags(7), 2),
    "a count and the sums of 3 columns, in 3 blocks": sums_in_blocks,
}
RANDOM: dict[str, Callable[[int], object]] = {
    "10 random queries of 64 cells": partial(random_counts, 10, 64, 0.5),
    "12 random queries of 200 cells, a fifth ones": partial(random_counts, 12, 200, 0.2),
    "8 weighted totals of 300 cells": totals,
    "8 totals of 300 cells with weights of 0 to 9": positive_totals,
    "10 random ranges, 16 classes of 64 cells": partial(ranges_with, 16),
    "WRelated 64 × 400, s = 8": partial(batchdp.workloads.related, 64, 400, 8),
    "WRelated 64 × 600, s = 10": partial(batchdp.workloads.related, 64, 600, 10),
    "WRelated 128 × 800, s = 12": partial(batchdp.workloads.related, 128, 800, 12),
    "WRelated 128 × 1024, s = 14": partial(batchdp.workloads.related, 128, 1024, 14),
}
"""Batches of which one draw says little, by their seeds."""
REGIONS = ("north", "south", "west")
DOMAIN = {
    "table": "people",
    "columns": {
        "region": {"values": list(REGIONS), "other": "drop"},
        "employed": {"values": ["yes", "no"], "other": "drop"},
        "children": {"values": [0, 1, 2, 3], "other": "drop"},
    },
}
SQL = """
SELECT
    1.0 * SUM(CASE WHEN children = 1 THEN 1 WHEN children = 2 THEN 2 WHEN children = 3 THEN 3 END) / COUNT(*) AS mean,
    100.0 * COUNT(*) FILTER (WHERE employed = 'yes') / COUNT(*) AS share,
    COUNT(*) FILTER (WHERE region = 'north') AS north, COUNT(*) FILTER (WHERE region = 'south') AS south
FROM people
"""
PART = 50_000
"""Draws that are made at a time."""
COVERED = ("4 flags", "7 flags", "one-way tables of 3 × 3 × 2", "WRelated 20 × 400, s = 8", "prefix 10")


def ready(strategy: PairStrategy, epsilon: float) -> tuple[InBodies, Mechanism, ShapedLaw]:
    made = prepare(strategy, Neighbours(), Budget(KNORM, epsilon), None)
    lattice, law = made.measurement, made.reader
    assert isinstance(lattice, InBodies)
    assert isinstance(law, ShapedLaw)
    return lattice, made, law


def drawn(made: Mechanism, runs: int) -> Matrix:
    """Exact noise for so many releases, one a row, in steps of the lattice."""
    return np.array(sample_bodies(made.measurement.groups, made.noises, runs), dtype=float)


def table(only: str, seconds: float) -> None:
    for name, make in BATCHES.items():
        if only not in name:
            continue
        workload = as_workload(make())
        start = time.perf_counter()
        found = shaped_noise(workload, ShapeLimits())
        took = time.perf_counter() - start
        pair = batchdp.optimize(workload, seconds=seconds)
        error, best = (one.expected_squared_error(epsilon=1.0) for one in (found, pair))
        assert found.shape is not None
        _, made, _ = ready(found, 1.0)
        start = time.process_time()
        drawn(made, 1)
        first = time.process_time() - start
        start = time.process_time()
        drawn(made, 3)
        later = (time.process_time() - start) / 3
        print(
            f"{name}: groups {found.shape.ranks}, best pair {best:.5g} ({pair.method}), shaped {error:.5g} ± "
            f"{error * found.simulation_error:.2g}, gain {best / error:.2f}, {error / workload.queries:.5g} a query; "
            f"planned in {took:.1f} s; a draw {later:.3f} s CPU, the first {first:.2f}, {found.shape.seconds:.2g} said",
            flush=True,
        )


def over_draws(only: str, number: int, seconds: float) -> None:
    """Gains over the best pair in several draws of every random batch."""
    for name, make in RANDOM.items():
        if only not in name:
            continue
        found = []
        for seed in range(number):
            workload = as_workload(make(seed))
            pair, shaped = batchdp.optimize(workload, seconds=seconds), shaped_noise(workload, ShapeLimits())
            found.append([one.expected_squared_error(epsilon=1.0) for one in (pair, shaped)])
        pairs, shapes = np.array(found).T
        gains = pairs / shapes
        print(f"{name}, {number} draws: best pair {pairs.mean():.4g} on average, shaped {shapes.mean():.4g}, gain "
              f"{gains.mean():.2f} ({gains.min():.2f} to {gains.max():.2f})", flush=True)  # fmt: skip


def draws(runs: int) -> None:
    """The total squared error of exact draws, against what was simulated, in standard errors of both."""
    found = shaped_noise(as_workload(one_way(3, 3, 2)), ShapeLimits())
    lattice, made, _ = ready(found, 1.0)
    z = drawn(made, runs) / 2.0**lattice.bits
    totals = np.square(z @ np.asarray(lattice.reconstruct).T).sum(axis=1)
    said = found.expected_squared_error(epsilon=1.0)
    off = math.hypot(float(totals.std(ddof=1)) / math.sqrt(runs), said * found.simulation_error)
    apart = (totals.mean() - said) / off
    print(
        f"rank 6, {runs:,} exact draws: {totals.mean():.4g}, simulated {said:.4g}, {apart:+.2f} standard errors apart"
    )


def coverage(runs: int) -> None:
    """How often 95 % intervals hold the truth, over all queries."""
    for name in COVERED:
        found = shaped_noise(as_workload(BATCHES[name]()), ShapeLimits())
        lattice, made, law = ready(found, 0.7)
        z = drawn(made, runs) / 2.0**lattice.bits
        inside = np.abs(z @ np.asarray(lattice.reconstruct).T) <= law.half_widths(0.95)
        each = 100 * inside.mean(axis=0)
        print(f"{name}: {100 * inside.mean():.2f} % of {inside.size:,} ({each.min():.2f} to {each.max():.2f} by query)",
              flush=True)  # fmt: skip


def derived(runs: int, epsilon: float = 0.5) -> None:
    """How often 95 % intervals of an average and of a share hold the truth, from SQL to the release and its file."""
    plan = batchdp.plan(SQL, DOMAIN, shape="any", seconds=2, cache=False)
    assert plan.strategy.shape is not None
    rng = np.random.default_rng(0)
    for people in (60, 500):
        table = {
            "region": rng.choice(REGIONS, people),
            "employed": rng.choice(["yes", "no"], people, p=[0.7, 0.3]),
            "children": rng.choice(4, people, p=[0.5, 0.2, 0.2, 0.1]),
        }
        truth = [table["children"].mean(), 100 * np.mean(table["employed"] == "yes")]
        truth += [np.sum(table["region"] == one) for one in REGIONS[:2]]
        held = np.zeros((runs, len(truth)))
        with TemporaryDirectory() as folder:
            ledger = batchdp.Ledger.create(Path(folder) / "budget.db", epsilon=2 * epsilon * runs)
            for run in range(runs):
                batchdp.answer(plan, DataFrame(table), epsilon=epsilon, ledger=ledger).save(Path(folder) / "release")
                answers = batchdp.load_release(Path(folder) / "release").answers
                held[run] = [one.low <= true <= one.high for one, true in zip(answers, truth, strict=True)]
        each = ", ".join(
            f"{one.name} {100 * share:.1f} %" for one, share in zip(answers, held.mean(axis=0), strict=True)
        )
        print(f"{people} people, {runs} releases at ε = {epsilon}: {each}, "
              f"± {100 * math.sqrt(0.05 * 0.95 / runs):.1f}", flush=True)  # fmt: skip


def attack(only: str, runs: int, epsilon: float = 2.0) -> int:
    """Exact draws on both sides; noise that is 2 % too small is the same draws, made smaller. 1 if more is proven."""
    broken = 0
    for rank in (2, 3):
        if only not in f"rank {rank}":
            continue
        lattice, made, _ = ready(shaped_noise(as_workload(flags(rank)), ShapeLimits()), epsilon)
        start = time.process_time()
        sides = [many_draws(made, runs) for _ in range(2)]
        took = time.process_time() - start
        shift = telling_shift(lattice, [epsilon], sides[0])
        for factor, said in ((1.0, "as it is"), (1 / 1.02, "loss × 1.02")):
            here, there = (np.rint(factor * side) for side in sides)
            assert len(here) == len(there) == runs
            bound = proven_between(
                KNORM,
                evidence_of(lattice, [epsilon], here, shift),
                evidence_of(lattice, [epsilon], there + shift, shift),
            )
            verdict = "above the charge: noticed" if bound > epsilon else "within the charge"
            broken |= factor == 1 and bound > epsilon
            print(f"rank {rank}, {said}: {bound:.4f} proven of {epsilon} charged by {runs:,} runs a side, {verdict} "
                  f"({took:.0f} s of draws)", flush=True)  # fmt: skip
    return broken


def many_draws(made: Mechanism, runs: int) -> Matrix:
    """As many as asked for; not all of them as Python's numbers at a time."""
    return np.concatenate([drawn(made, min(PART, runs - done)) for done in range(0, runs, PART)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "random", "draws", "coverage", "derived", "attack"))
    parser.add_argument("--runs", type=int, help="8 for random, 300 for derived, 1 200 000 for attack, else a thousand")
    parser.add_argument("--only", default="", help="batches whose name holds this; rank 2 or rank 3 for attack")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the search for the best pair")
    given = parser.parse_args()
    if given.what == "table":
        table(given.only, given.seconds)
    elif given.what == "random":
        over_draws(given.only, given.runs or 8, given.seconds)
    elif given.what == "derived":
        derived(given.runs or 300)
    elif given.what == "attack":
        sys.exit(attack(given.only, given.runs or 1_200_000))
    else:
        {"draws": draws, "coverage": coverage}[given.what](given.runs or 1000)


if __name__ == "__main__":
    main()
