"""Tables that agree and are not negative: their error beside that of the noisy ones, and of those cut at 0.

    python benchmarks/consistency.py [--runs N] [--order K …] [--rho R …] [--records N]
    python benchmarks/consistency.py --shapes FOLDER [--runs N] [--real]

All tables of so many of fourteen columns, of as many records as the Adult data set has, released anew in every run with
real noise. Printed for every ρ, of the tables of the most columns: the mean absolute error of the noisy answers, of the
same cut at 0 and of consistent ones; the worst run's ratios; the mean error by the true count, which is the bias.
Seconds of processor time, memory, and how well shared margins agree. The records are invented: skewed columns that hang
together, so that most cells are nearly empty.

With --shapes, ordinary releases instead: 256 ranges over 1,024 cells at ε = 0.1, of records drawn by every
shape-*.csv in the folder (a heading, then 1,024 counts). Printed for every shape and number of records: the mean
squared error of the noisy answers, and that of consistent ones over it, of all ranges and of the one where it is
largest; the median and the worst of the shapes. Noise comes from a seed, with the law of the release; --real releases
anew instead, at some 3 s each: the same but for chance.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import batchdp

SIZES = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CLASSES = ((0, 0), (1, 9), (10, 99), (100, 10**9))
"""True counts between which the bias is averaged."""
RANGES, CELLS, EPSILON = 256, 1024, 0.1
DRAWN = (1_000, 10_000, 100_000)
"""Records, in ordinary releases."""
Counts = NDArray[np.int64]


def records(count: int, seed: int = 0) -> Counts:
    """Codes, record × column: ranks of columns that share a part, skewed by a power."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(count)
    columns = []
    for i, n in enumerate(SIZES):
        mixed = 0.5 * common + rng.standard_normal(count)
        ranks = mixed.argsort().argsort() / count
        columns.append(np.minimum((n * ranks ** (1.5 + 0.25 * (i % 5))).astype(np.int64), n - 1))
    return np.column_stack(columns)


def exact(codes: Counts, columns: tuple[int, ...]) -> Counts:
    """The true table over these columns."""
    place = np.zeros(len(codes), dtype=np.int64)
    for i in columns:
        place = place * SIZES[i] + codes[:, i]
    shape = [SIZES[i] for i in columns]
    return np.bincount(place, minlength=prod(shape)).reshape(shape)


def one_run(strategy: batchdp.ResidualStrategy, codes: Counts, rho: float) -> tuple[NDArray[np.float64], float, str]:
    """Per class of true counts: cells, then absolute errors (raw, cut, consistent), then errors (raw, consistent)."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = batchdp.Ledger.create(Path(folder) / "ledger.db", rho=rho)
        release = batchdp.answer(strategy, codes, rho=rho, ledger=ledger)
    assert isinstance(release, batchdp.Release)
    start = time.process_time()
    consistent = release.consistent()
    seconds = time.process_time() - start
    found = np.zeros((len(CLASSES), 6))
    most = max(len(table.columns) for table in release.tables)
    for t, table in enumerate(release.tables):
        if len(table.columns) < most:
            continue
        truth, raw, ours = (
            exact(codes, tuple(release.column_names.index(one) for one in table.columns)),
            release.array(t),
            consistent.array(t),
        )
        assert ours.min() >= 0
        each = (np.ones(truth.shape), abs(raw - truth), abs(np.maximum(raw, 0) - truth), abs(ours - truth))
        for c, (low, high) in enumerate(CLASSES):
            there = (truth >= low) & (truth <= high)
            found[c] += [float(one[there].sum()) for one in (*each, raw - truth, ours - truth)]
    how = f"gap {consistent.gap:.0e}, lifted {consistent.lifted:.0e}"
    said = f"{consistent.status}, {how}, margins agree to {disagreement(consistent):.0e}"
    return found, seconds, said


def disagreement(consistent: batchdp.Consistent) -> float:
    """The largest difference between what two tables say of a margin over all their columns but one, as a share of it
    or of one record where it is less."""
    margins: dict[tuple[str, ...], NDArray[np.float64]] = {}
    worst = 0.0
    for t, table in enumerate(consistent.tables):
        values = consistent.array(t)
        for axis in range(values.ndim):
            own = table.columns[:axis] + table.columns[axis + 1 :]
            margin = values.sum(axis=axis)
            known = margins.setdefault(own, margin)
            worst = max(worst, float((abs(margin - known) / np.maximum(1, known)).max()))
    return worst


def release_of(strategy: batchdp.PairStrategy, counts: Counts) -> batchdp.Release:
    """With real noise."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = batchdp.Ledger.create(Path(folder) / "ledger.db", epsilon=EPSILON)
        done = batchdp.answer(strategy, counts, epsilon=EPSILON, ledger=ledger)
    assert isinstance(done, batchdp.Release)
    return done


def by_shape(folder: Path, runs: int, *, real: bool) -> None:
    """Print the errors of ordinary releases of records that have the shapes in a folder."""
    rng = np.random.default_rng(0)
    workload = batchdp.workloads.ranges(RANGES, CELLS, 0)
    strategy = batchdp.optimize(workload)
    shapes = {path.stem.removeprefix("shape-"): np.loadtxt(path, skiprows=1) for path in folder.glob("shape-*.csv")}
    if not shapes:
        raise SystemExit(f"{folder} has no shape-*.csv")
    first = release_of(strategy, np.zeros(CELLS, dtype=np.int64))
    for records in DRAWN:
        ratios = []
        for name, shape in sorted(shapes.items()):
            errors = np.zeros((2, RANGES))
            for _ in range(runs):
                counts = rng.multinomial(records, shape / shape.sum())
                if real:
                    done = release_of(strategy, counts)
                else:
                    reader: Any = first.reader
                    y = reader.measure @ counts + rng.laplace(scale=reader.noise_law.scale, size=len(first.noisy))
                    done = replace(first, noisy=np.rint(y * 2.0**reader.bits), given=None)
                truth = workload.matrix @ counts
                errors += [np.square(own - truth) / runs for own in (done.values, done.consistent().values)]
            noisy, consistent = errors.mean(axis=1)
            worse = errors[1] / errors[0]
            ratios.append(consistent / noisy)
            print(
                f"{records:>7,} records, {name:<12} noisy {noisy:8,.0f}, consistent / noisy {ratios[-1]:.2f}; "
                f"{(worse > 1).mean():.0%} of the ranges are worse, one by {worse.max():.1f}",
                flush=True,
            )
        print(f"{records:>7,} records: median {np.median(ratios):.2f}, worst {max(ratios):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=48_842)
    parser.add_argument("--order", type=int, nargs="+", default=[2], help="tables of so many columns")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.5, 0.01])
    parser.add_argument("--runs", type=int, help="20, or 10 for every shape")
    parser.add_argument(
        "--shapes", type=Path, metavar="FOLDER", help="ordinary releases instead, of records like these"
    )
    parser.add_argument("--real", action="store_true", help="with --shapes: release anew in every run")
    options = parser.parse_args()
    if options.shapes is not None:
        by_shape(options.shapes, options.runs or 10, real=options.real)
        return
    codes = records(options.records)
    batch = batchdp.workloads.marginals(SIZES, options.order)
    strategy = batchdp.optimize(batch, privacy="zcdp")
    assert isinstance(strategy, batchdp.ResidualStrategy)
    print(batch)
    for rho in options.rho:
        runs = [one_run(strategy, codes, rho) for _ in range(options.runs or 20)]
        of_all = np.array([found.sum(axis=0) for found, _, _ in runs])
        raw, cut, ours = (of_all[:, 1:4] / of_all[:, :1]).T
        print(
            f"rho {rho:g}, {len(runs)} runs: mean absolute error raw {raw.mean():.3f}, cut at 0 {cut.mean():.3f}, "
            f"consistent {ours.mean():.3f}; consistent/raw {ours.mean() / raw.mean():.3f} (worst run "
            f"{(ours / raw).max():.3f}), consistent/cut {ours.mean() / cut.mean():.3f} (worst {(ours / cut).max():.3f})"
        )
        together = np.sum([found for found, _, _ in runs], axis=0)
        for (low, high), own in zip(CLASSES, together, strict=True):
            if own[0]:
                print(
                    f"  true count {low} to {high}: {own[0] / len(runs):,.0f} cells, bias raw {own[4] / own[0]:+.3f}, "
                    f"consistent {own[5] / own[0]:+.3f}; error raw {own[1] / own[0]:.2f}, consistent "
                    f"{own[3] / own[0]:.2f}"
                )
        seconds = [one for _, one, _ in runs]
        print(f"  {min(seconds):.1f} to {max(seconds):.1f} s of processor time; {runs[-1][2]}")
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
