"""Coverage and width of the intervals of averages, shares, their differences, and medians.

    python benchmarks/derived.py [--runs N] [--epsilon E] [--sizes N …] [--bins K …] [--seed S] [--json FILE]

Log-normal incomes in groups of 10, 100 and 10 000 people, clipped to a declared range. The strategies are those that
`optimize` finds for the parts: the sum, the count and the count of the rich of every group; the running totals over
bins. Groups have no record in common, so that one strategy serves them all. Only the noise is drawn again, as many
times as there are runs. An interval covers if it holds the answer over the data: there is no sampling error in it. One
of a median covers if it holds both the lower and the upper median.

Printed for every answer and size of the group:

- determined: how many of the runs have an interval at all;
- coverage: how many of these intervals hold the truth;
- wrong: how many of all runs have an interval that does not, at most 5 % by Fieller's method;
- width: for ratios over that of the delta method, the median of all runs; for medians in bins, the mean, and by how
  many bins it is wider than where the simultaneous band, read linearly, holds 0: the mean and the largest.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

import batchdp
from batchdp.engines import count, open_table
from batchdp.linalg.matrix import dense
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measure import add
from batchdp.mechanism.prepare import prepare
from batchdp.mechanism.sample import sample
from batchdp.plans.planned import settle
from batchdp.privacy import LAPLACE, Budget
from batchdp.private import CellCounts
from batchdp.queries.intervals import combined_intervals, quantile

Dense = NDArray[np.float64]

SIZES = (10, 100, 10_000)
BINS = (16, 64, 128)
LARGEST = 200_000
"""The upper end of the declared range."""
RICH = 60_000
CONFIDENCE = 0.95
OVER_THE_GROUP = ("AVG", "share", "AVG − AVG", "share − share")
"""Answers whose denominators are the sizes of the groups; that of the others is the number of the rich."""


STEPS = 32
"""Bins of the released medians."""
EDGE = 62_500
"""The rich of the released shares start at the edge of a bin."""
GROUPS = {"ten": 10, "hundred": 100, "many": 10_000}
DOMAIN = f"""
table = "people"
[columns.region]
values = {list(GROUPS)}
other = "drop"
[columns.income]
range = [0, {LARGEST}]
step = 1
bins = {[k * LARGEST // STEPS for k in range(STEPS)]}
other = "drop"
"""
SQL = f"""
SELECT region, AVG(income) AS mean, 100.0 * COUNT(*) FILTER (WHERE income >= {EDGE}) / COUNT(*) AS share,
    MEDIAN(income) AS half
FROM people GROUP BY region;
SELECT AVG(income) FILTER (WHERE region = 'many') - AVG(income) FILTER (WHERE region = 'hundred') AS gap FROM people
"""


@dataclass(frozen=True)
class Row:
    """What is measured of one answer."""

    answer: str
    size: int
    determined: float
    coverage: float
    wrong: float
    width: float
    beyond: tuple[float, float] | None = None
    """For medians: mean and largest width beyond the band's, in bins."""


def incomes(size: int, seed: int) -> Dense:
    """Log-normal, as skewed as wages are, in whole units within the declared range."""
    drawn = np.random.default_rng([seed, size]).lognormal(mean=np.log(32_000), sigma=0.8, size=size)
    return np.clip(np.rint(drawn), 0, LARGEST)


def law_of(workload: batchdp.MatrixWorkload, epsilon: float) -> NoiseLaw:
    """The noise of the best strategy."""
    strategy = batchdp.optimize(workload, privacy="pure")
    return NoiseLaw(dense(strategy.reconstruct), strategy.sensitivity / epsilon, LAPLACE)


@cache
def parts(epsilon: float) -> NoiseLaw:
    """The noise of sum, count and count of the rich of a group: records below RICH or not, at an end of a stretch."""
    W = np.array([[0, RICH - 1, RICH, LARGEST], [1, 1, 1, 1], [0, 0, 1, 1]], dtype=np.float64)
    ends = ((0, 1, RICH - 1), (2, 3, LARGEST - RICH))
    return law_of(batchdp.MatrixWorkload(W, ("sum", "count", "rich"), (LARGEST**-2.0, 1, 1), ends=ends), epsilon)


@cache
def running_totals(bins: int, epsilon: float) -> NoiseLaw:
    """The noise of all running totals over the bins of a group."""
    return law_of(batchdp.MatrixWorkload(np.tril(np.ones((bins, bins)))), epsilon)


@dataclass(frozen=True, eq=False)
class Together:
    """Independent groups, each with the same parts: margin and deviation of the noise in combinations of them.

    A term's numerator and denominator are rows over the parts of its own group; one term for each group.
    """

    law: NoiseLaw
    numerators: tuple[Dense, ...]
    denominator: Dense

    def rows(self, a: Dense, b: Dense) -> NoiseLaw:
        B = dense(self.law.reconstruct)
        weights = [
            a[j][:, None] * (N @ B) + b[j][:, None] * (self.denominator @ B) for j, N in enumerate(self.numerators)
        ]
        return replace(self.law, reconstruct=np.concatenate(weights, axis=1))

    def margin(self, a: Dense, b: Dense) -> Dense:
        return self.rows(a, b).half_widths(CONFIDENCE)

    def deviation(self, a: Dense, b: Dense) -> Dense:
        return self.rows(a, b).standard_errors


def ratios(size: int, runs: int, epsilon: float, seed: int) -> Iterator[Row]:
    """Averages, shares and differences of averages between two groups of this size."""
    law = parts(epsilon)
    B = dense(law.reconstruct)
    rng = np.random.default_rng([seed, size, 1])
    data = [incomes(size, seed + j) for j in range(2)]
    truth = np.array([[v.sum(), float(len(v)), (v >= RICH).sum()] for v in data])
    noise = rng.laplace(scale=law.scale, size=(2, runs, B.shape[1])) @ B.T
    private = truth[:, None, :] + noise
    s, n, r = np.eye(3)
    for name, numerators in {
        "AVG": (s,),
        "share": (100 * r,),
        "sum per rich": (s,),
        "AVG − AVG": (s, -s),
        "share − share": (100 * r, -100 * r),
    }.items():
        below = r if name == "sum per rich" else n
        J = len(numerators)
        N = np.array([private[j] @ numerators[j] for j in range(J)])
        D = np.array([private[j] @ below for j in range(J)])
        together = Together(law, numerators, below)
        low, high = combined_intervals(N, D, together.margin, deviation=together.deviation)
        with np.errstate(divide="ignore"):  # where nobody is rich the truth is infinite, and every interval wrong
            true = sum(float(truth[j] @ numerators[j] / (truth[j] @ below)) for j in range(J))
        known = ~np.isnan(low)
        inside = (low <= true) & (true <= high)
        with np.errstate(all="ignore"):
            delta = 2 * together.margin(1 / D, -N / D**2)
            width = np.median((high - low)[known] / delta[known]) if known.any() else np.nan
        yield Row(
            name, size, float(known.mean()), float(inside[known].mean()), float((known & ~inside).mean()), float(width)
        )


def medians(size: int, bins: int, runs: int, epsilon: float, seed: int) -> Row:
    """Of incomes in so many bins of equal width."""
    law = running_totals(bins, epsilon)
    B = np.vstack([np.zeros(law.reconstruct.shape[1]), dense(law.reconstruct)])
    compared = replace(law, reconstruct=B - 0.5 * B[-1])
    alone, together = compared.half_widths(CONFIDENCE), compared.simultaneous_half_widths(CONFIDENCE)
    of_total = float(law.half_widths(CONFIDENCE)[-1])
    edges = np.linspace(0, LARGEST, bins + 1)
    data = np.sort(incomes(size, seed))
    truth = np.searchsorted(data, edges, side="left")
    truth[-1] = size
    lower, upper = data[(size - 1) // 2], data[size // 2]
    noise = np.random.default_rng([seed, size, bins]).laplace(scale=law.scale, size=(runs, B.shape[1])) @ B.T
    private = truth + noise
    found = [quantile(c, edges, 0.5, alone, margin_of_total=of_total) for c in private]
    known = [(c, one) for c, one in zip(private, found, strict=True) if one is not None]
    inside = np.array([one.low <= lower and upper <= one.high for _, one in known])
    widths = np.array([one.high - one.low for _, one in known]) * bins / LARGEST
    bands = np.array([band_width(c - 0.5 * c[-1], together, edges) for c, _ in known]) * bins / LARGEST
    beyond = (float((widths - bands).mean()), float((widths - bands).max()))
    determined = len(known) / runs
    coverage = float(inside.mean())
    return Row(
        f"median, {bins} bins", size, determined, coverage, determined * (1 - coverage), float(widths.mean()), beyond
    )


def band_width(middle: Dense, half: Dense, edges: Dense) -> float:
    """How wide the stretch is in which a band, linear between the edges and never falling, holds 0."""
    upper, lower = np.maximum.accumulate(middle + half), np.minimum.accumulate((middle - half)[::-1])[::-1]
    upper[-1], lower[0] = max(upper[-1], 0), min(lower[0], 0)
    start = 0.0 if upper[0] >= 0 else np.interp(0.0, upper, edges)
    end = edges[-1] if lower[-1] <= 0 else np.interp(0.0, lower, edges)
    return float(max(end - start, 0.0))


def released(runs: int, epsilon: float, seed: int) -> Iterator[Row]:
    """The whole way from SQL and a table to derived answers, with OpenDP's noise; only the ledger is left out."""
    columns = [(name, incomes(size, seed)) for name, size in GROUPS.items()]
    frame = pd.DataFrame([(name, int(v)) for name, values in columns for v in values], columns=["region", "income"])
    plan = batchdp.plan(SQL, DOMAIN, cache=False)
    batch: Any = plan.batch
    with open_table(frame, plan.domain, columns=[one.column for one in batch.atoms]) as source:
        counts = CellCounts(batch.cells.counts(count(source, batch.atoms)))
    strategy, relation, cap = settle(plan, None, None, None)
    made = prepare(strategy, relation, Budget(LAPLACE, epsilon), cap)
    lattice: Any = made.measurement
    B = dense(made.reader.reconstruct)
    found = []
    for _ in range(runs):
        values = B @ (add(lattice, counts, sample(lattice, made.noises)) / 2.0**lattice.bits)
        one = estimates(plan.asked, values, made.reader, CONFIDENCE)
        found.append((one.low, one.high, one.standard_errors))
    low, high, errors = np.moveaxis(np.array(found), 1, 0)
    groups = dict(columns)
    for k, asked in enumerate(plan.asked):
        item, _, name = asked.name.rstrip("]").partition("[region=")
        own = np.sort(groups.get(name, np.zeros(1)))
        lower, upper = {
            "mean": (own.mean(), own.mean()),
            "share": (100 * (own >= EDGE).mean(),) * 2,
            "half": (own[(len(own) - 1) // 2], own[len(own) // 2]),
            "gap": (groups["many"].mean() - groups["hundred"].mean(),) * 2,
        }[item]
        known = ~np.isnan(low[:, k])
        inside = (low[:, k] <= lower) & (upper <= high[:, k])
        widths = (high[:, k] - low[:, k])[known]
        if item == "half":
            width = np.mean(widths) * STEPS / LARGEST
        else:  # over the delta method's for Gaussian noise; that of a sum of Laplace draws is a little wider
            width = np.median(widths / (2 * 1.96 * errors[known, k]))
        yield Row(
            f"{item}, released",
            GROUPS.get(name, GROUPS["hundred"]),
            float(known.mean()),
            float(inside[known].mean()),
            float((known & ~inside).mean()),
            float(width),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--bins", type=int, nargs="+", default=BINS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--released", type=int, default=200, help="runs of the whole way from SQL to answers")
    asked = parser.parse_args()
    found: list[Row] = []
    for size in asked.sizes:
        start = time.process_time()
        found += ratios(size, asked.runs, asked.epsilon, asked.seed)
        found += [medians(size, bins, asked.runs, asked.epsilon, asked.seed) for bins in asked.bins]
        print(f"group of {size}: {time.process_time() - start:.1f} s of processor time", flush=True)
    found += released(asked.released, asked.epsilon, asked.seed)
    print("| answer | group | determined | coverage | wrong | width | beyond the band |")
    print("|---|---|---|---|---|---|---|")
    for row in found:
        beyond = "" if row.beyond is None else "{:.2f}, at most {:.2f}".format(*row.beyond)
        figures = " | ".join(f"{100 * x:.1f} %" for x in (row.determined, row.coverage, row.wrong))
        print(f"| {row.answer} | {row.size} | {figures} | {row.width:.2f} | {beyond} |")
    if asked.json is not None:
        rows: list[dict[str, Any]] = [asdict(row) for row in found]
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
