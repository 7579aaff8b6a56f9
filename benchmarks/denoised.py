"""Denoised answers beside raw ones: the error that is left, how well it is estimated, and where anything is lost.

    python benchmarks/denoised.py adult FOLDER [--runs N] [--rho R …]
    python benchmarks/denoised.py shapes FOLDER [--runs N] [--records N …] [--workloads ranges|totals …]
    python benchmarks/denoised.py three [--rho R …]
    python benchmarks/denoised.py random [--cases N] [--runs N] [--kinds matrices|tables …]
    python benchmarks/denoised.py extremes [--runs N]
    python benchmarks/denoised.py constants

`adult`: all 91 tables of two columns of UCI Adult (adult.csv.gz and adult-domain.json in the folder), by plans made for
estimates; the mean over tables of the L1 distance over the number of records, and the share of tables
whose squared error, over all runs, is more than 3 % above that of the raw ones. `shapes`: 256 ranges over 1,024 cells
and running totals over 256 at ε = 0.1, of records drawn by every shape-*.csv; how many times smaller the mean squared
error is. `three`: all tables of up to three of the fourteen invented columns of benchmarks/consistency.py. `random`:
small matrices and tables of both noises that nothing was chosen by. `extremes`: spikes, nobody, a few records and one
cell, then a million cells, also stopped after two seconds as Ctrl-C does. `constants`: invented populations, half of
them without classes, and invented histograms, with other constants than those in use. Noise comes from a seed, with
the law of the release. What no mix of the estimates could do better is said of `shapes`: the same mix for all draws of
a shape, chosen by the truth. There the estimated risk is compared with the true one by regression on the raw errors,
whose mean is known: few directions carry the error, so chance moves raw and denoised ones alike.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.stats import norm

import batchdp
from batchdp.plans.for_estimates import VARIANCES, weights_by
from batchdp.privacy import GAUSSIAN, Budget
from batchdp.release.consistency.faces import split_table
from batchdp.release.denoise import smooth, tables, target
from batchdp.release.denoise.mixing import best_mix

ADULT = (0.000177, 0.014973, 0.1, 0.5)
"""ρ."""
EPSILON = 0.1
WORSE = 1.03
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


def release_of(strategy: Any, data: Any, **budget: Any) -> batchdp.Release:
    """With real noise."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = batchdp.Ledger.create(Path(folder) / "ledger.db", **budget)
        done = batchdp.answer(strategy, data, ledger=ledger, **budget)
    assert isinstance(done, batchdp.Release)
    return done


def exact(codes: Codes, sizes: Sequence[int], columns: Sequence[int]) -> Floats:
    """The true table over these columns."""
    place = np.zeros(len(codes), dtype=np.int64)
    for i in columns:
        place = place * sizes[i] + codes[:, i]
    shape = [sizes[i] for i in columns]
    return np.bincount(place, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)


def invented(sizes: Sequence[int], count: int, rng: np.random.Generator) -> Codes:
    """Records of a dozen classes with skewed columns."""
    classes = int(rng.integers(3, 20))
    own, columns = rng.choice(classes, count, p=rng.dirichlet(np.ones(classes))), []
    for n in sizes:
        base = np.arange(1, n + 1.0) ** -rng.uniform(0, 2)
        base = rng.permutation(base) if rng.random() < 0.5 else base
        within = rng.dirichlet(np.maximum(base / base.sum() * n * rng.uniform(0.2, 3), 1e-3), size=classes)
        columns.append((rng.random(count)[:, None] > within.cumsum(axis=1)[own]).sum(axis=1).clip(max=n - 1))
    return np.column_stack(columns)


def adult(folder: Path, runs: int, budgets: Sequence[float]) -> None:
    """Print the figures of UCI Adult."""
    known = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv.gz")[list(known)]
    codes, sizes = frame.to_numpy(), tuple(known.values())
    domain = {
        "table": "adult",
        "columns": {name: {"integers": [0, n - 1], "other": "drop"} for name, n in known.items()},
    }
    truth = {A: exact(codes, sizes, A) for A in combinations(range(len(sizes)), 2)}
    for rho in budgets:
        start = time.process_time()
        planned = batchdp.plan(
            None, domain, marginals=2, privacy="zcdp", rho=rho, for_estimates=True, records=len(codes), cache=False
        )
        print(f"planned in {time.process_time() - start:.1f} s: {planned.options.for_estimates}", flush=True)
        distances, seconds, said, errors = [], [], [], np.zeros((len(truth), 2))
        for _ in range(runs):
            release = release_of(planned.strategy, codes, rho=rho)
            start = time.process_time()
            found = release.denoised()
            seconds.append(time.process_time() - start)
            own, off = [], np.zeros((len(truth), 2))
            for k, (A, x) in enumerate(truth.items()):
                t = release.find(*A)
                ours = found.array(t)
                own.append(np.abs(ours - x).sum() / len(codes))
                off[k] = np.square(ours - x).sum(), np.square(release.array(t) - x).sum()
            cells = sum(x.size for x in truth.values())
            places = [release.find(*A) for A in truth]
            guess = sum(found.risks[t] * x.size for t, x in zip(places, truth.values(), strict=True)) / cells
            said.append(guess / (off[:, 0].sum() / cells))
            errors += off
            distances.append(np.mean(own))
        worse = errors[:, 0] / errors[:, 1]
        print(
            f"rho {rho:g}, {runs} runs: L1/N {np.mean(distances):.4f} (sd {np.std(distances):.4f}), squared error / "
            f"raw {errors[:, 0].sum() / errors[:, 1].sum():.4f}, tables worse by 3 % {np.mean(worse > WORSE):.1%} (most"
            f" {worse.max():.2f}), estimated / true risk {np.mean(said):.2f}, {np.mean(seconds):.1f} s",
            flush=True,
        )


def drawn(first: batchdp.Release, counts: Codes, rng: np.random.Generator) -> batchdp.Release:
    """The release of other counts, with noise from a seed."""
    reader: Any = first.reader
    scale, size = reader.noise_law.scale, len(first.noisy)
    laplace = reader.noise.privacy == "pure"
    noise = rng.laplace(scale=scale, size=size) if laplace else rng.normal(scale=scale, size=size)
    return replace(first, noisy=np.rint((reader.measure @ counts + noise) * 2.0**reader.bits), given=None)


def shapes(folder: Path, runs: int, records: Sequence[int], asked: Sequence[str]) -> None:
    """Print the gains on ordinary releases of records that have the shapes in a folder."""
    found = {path.stem.removeprefix("shape-"): np.loadtxt(path, skiprows=1) for path in folder.glob("shape-*.csv")}
    for name, workload in (
        ("ranges", batchdp.workloads.ranges(256, 1024, 0)),
        ("totals", batchdp.workloads.prefix(256)),
    ):
        if name not in asked:
            continue
        first = release_of(batchdp.optimize(workload), np.zeros(workload.cells, dtype=np.int64), epsilon=EPSILON)
        for count in records:
            rng, gains, errors_of, every, known = np.random.default_rng(0), [], [], [], []
            for label, shape in sorted(found.items()):
                merged = shape.reshape(workload.cells, -1).sum(axis=1)
                errors, products, towards = np.zeros((runs, 3)), np.zeros(()), np.zeros(())
                for k in range(runs):
                    counts = rng.multinomial(count, merged / merged.sum())
                    release, truth = drawn(first, counts, rng), workload.matrix @ counts
                    with patch.object(smooth, "_mixed", wraps=smooth._mixed) as mixed:
                        ours = release.denoised()
                    ways = mixed.call_args.args[2]
                    products, towards = products + ways @ ways.T, towards + ways @ (truth - release.values)
                    errors[k] = [np.square(one - truth).mean() for one in (release.values, ours.values)] + [ours.risk]
                raw, left, _ = errors.mean(axis=0)
                spread = np.std(errors[:, 0] / raw - errors[:, 1] / left) / max(1, runs - 1) ** 0.5 * raw / left
                mix = best_mix(products, towards)
                best = raw + float(mix @ products @ mix - 2 * towards @ mix) / (runs * len(truth))
                gains.append(raw / left)
                known.append(raw / best)
                errors_of.append(spread)
                every.append(errors / np.square(first.standard_errors).mean())
                print(
                    f"  {name} {count:,} {label:<12} {raw / left:.2f} (se {spread:.2f}); best mix {raw / best:.2f}",
                    flush=True,
                )
            of_raw, of_left, of_guess = np.concatenate(every).T
            slope = float(np.polyfit(of_raw, of_left, 1)[0])
            risk = of_guess.mean() / (of_left.mean() - slope * (of_raw.mean() - 1))
            print(
                f"{name}, {count:,} records: median {np.median(gains):.2f}, least {min(gains):.2f} (se "
                f"{errors_of[int(np.argmin(gains))]:.2f}); estimated / true risk {risk:.2f}; best mixes: "
                f"median {np.median(known):.2f}, least {min(known):.2f}",
                flush=True,
            )


def three(budgets: Sequence[float]) -> None:
    """Print the mean absolute errors of all tables of up to three columns."""
    import consistency as other

    codes = other.records(48_842)
    strategy = batchdp.optimize(batchdp.workloads.marginals(other.SIZES, [0, 1, 2, 3]), privacy="zcdp")
    for rho in budgets:
        release = release_of(strategy, codes, rho=rho)
        start = time.process_time()
        found = release.denoised()
        seconds, errors = time.process_time() - start, np.zeros((4, 3))
        for t, table in enumerate(release.tables):
            x = other.exact(codes, tuple(release.column_names.index(one) for one in table.columns))
            off = found.array(t) - x
            errors[x.ndim] += x.size, np.abs(off).sum(), np.square(off).sum()
        print(
            f"rho {rho:g}: mean absolute error, three columns {errors[3, 1] / errors[3, 0]:.3f}, two "
            f"{errors[2, 1] / errors[2, 0]:.2f}; estimated / true risk "
            f"{found.risk / (errors[:, 2].sum() / errors[:, 0].sum()):.2f}; {seconds:.0f} s",
            flush=True,
        )


def random_case(case: int) -> tuple[Any, Any, list[Floats], dict[str, float]]:
    """A strategy, data, true tables and a budget that nothing was chosen by."""
    rng = np.random.default_rng(10_000 + case)
    privacy: Any = ("pure", "zcdp")[case % 2]
    budget = {"epsilon": 10 ** rng.uniform(-2, 0.5)} if privacy == "pure" else {"rho": 10 ** rng.uniform(-4, 0.5)}
    if case % 4 < 2:
        n, made = int(rng.integers(8, 80)), rng.choice(["ranges", "prefix", "discrete", "related"])
        workload: Any = getattr(batchdp.workloads, made)(*((n,) if made == "prefix" else (n // 2, n)))
        strategy: Any = batchdp.optimize(workload, privacy=privacy, seconds=0.3)
        counts = rng.multinomial(int(10 ** rng.uniform(1.5, 6)), rng.dirichlet(np.full(n, 10 ** rng.uniform(-1, 1))))
        return strategy, counts, [workload.matrix @ counts], budget
    sizes = tuple(int(k) for k in rng.integers(2, 15, int(rng.integers(2, 6))))
    order = [1, 2] if rng.random() < 0.5 or len(sizes) < 3 else [3]
    batch: Any = batchdp.workloads.marginals(sizes, order)
    batch = getattr(batch, "structure", None) or batch
    strategy = batchdp.optimize(batch, privacy=privacy, seconds=1)
    codes = invented(sizes, int(10 ** rng.uniform(1.5, 5)), rng)
    return strategy, codes, [exact(codes, sizes, table.columns).reshape(-1) for table in batch.tables], budget


def random(cases: int, runs: int, kinds: Sequence[str]) -> None:
    """Print total errors, in units of the raw risk of every case, by classes of cases."""
    found: dict[str, list[Floats]] = {}
    single: dict[str, list[float]] = {}
    for case in range(cases):
        of = "matrices" if case % 4 < 2 else "tables"
        if of not in kinds:
            continue
        strategy, data, truth, budget = random_case(case)
        ends = np.cumsum([0, *map(len, truth)])
        errors, said, unit = np.zeros((2, len(truth))), 0.0, 0.0
        for _ in range(runs):
            release = release_of(strategy, data, **budget)
            ours = release.denoised()
            for k, values in enumerate((ours.values, release.values)):
                squares = np.square(values - np.concatenate(truth))
                errors[k] += np.add.reduceat(squares, ends[:-1])
            said, unit = said + ours.risk * ends[-1], unit + ours.raw_risk * ends[-1]
        kind = f"{of}, {release.reader.noise.name}"
        found.setdefault(kind, []).append(np.array([*errors.sum(axis=1), said]) / unit)
        single.setdefault(kind, []).extend((errors[0] / errors[1]).tolist())
    for kind, each in found.items():
        ours_, raw, guess = np.sum(each, axis=0)
        worse = np.array(single[kind])
        print(
            f"{kind}: {len(each)} cases, squared error / raw {ours_ / raw:.3f}; of {len(worse)} single tables over "
            f"{runs} draws {np.mean(worse > WORSE):.1%} lose more than 3 % (most {worse.max():.2f}); estimated "
            f"/ true risk {guess / ours_:.2f}",
            flush=True,
        )


def extremes(runs: int) -> None:
    """Print errors where there is next to nothing to know, and the seconds of a million cells."""
    rng, spike = np.random.default_rng(0), np.eye(1, 64, 20, dtype=np.int64)[0] * 10_000
    nobody, few = np.zeros(64, dtype=np.int64), np.eye(1, 64, 3, dtype=np.int64)[0] * 5
    pairs, codes = batchdp.workloads.marginals((64, 12), 2), np.tile([[20, 3]], (10_000, 1))
    for what, workload, data in (
        ("running totals, one spike", batchdp.workloads.prefix(64), spike),
        ("running totals, nobody", batchdp.workloads.prefix(64), nobody),
        ("running totals, 5 records", batchdp.workloads.prefix(64), few),
        ("one cell, 7 records", np.ones((1, 1)), np.array([7])),
        ("one cell, nobody", np.ones((1, 1)), np.array([0])),
        ("64 × 12, all records in one cell", pairs, codes),
        ("64 × 12, nobody", pairs, codes[:0]),
    ):
        for privacy, budget in (("pure", {"epsilon": 0.1}), ("zcdp", {"rho": 0.005})):
            extreme(f"{what}, {privacy}", workload, data, privacy, budget, runs)
    smooth_ages = rng.multinomial(500_000, histogram(1_000_000, 0, rng))
    for what, workload, data in (
        ("30 ranges over 1,000,000 cells", batchdp.workloads.ranges(30, 1_000_000, seed=0), smooth_ages),
        ("1,000,000 values of one column", batchdp.workloads.marginals((1_000_000,), 1), None),
        ("1,000 × 1,000", batchdp.workloads.marginals((1000, 1000), 2), None),
    ):
        if data is None:
            data = invented((1000, 1000), 500_000, rng) if "×" in what else np.repeat(np.arange(10**6), smooth_ages)
            data = data.reshape(-1, 1) if data.ndim == 1 else data
        for seconds in (None, 2.0):
            extreme(what, workload, data, "zcdp", {"rho": 0.005}, 1, seconds)


def extreme(
    what: str,
    workload: Any,
    data: Any,
    privacy: Any,
    budget: dict[str, float],
    runs: int,
    stopped_after: float | None = None,
) -> None:
    """Print errors, the estimated one too, and seconds."""
    batch: Any = getattr(workload, "structure", None) or workload
    strategy: Any = batchdp.optimize(batch, privacy=privacy, seconds=5)
    errors, start = np.zeros((runs, 3)), 0.0
    for k in range(runs):
        release = release_of(strategy, data, **budget)
        if hasattr(batch, "sizes"):
            truth = np.concatenate([exact(data, batch.sizes, table.columns).reshape(-1) for table in batch.tables])
        else:
            truth = np.asarray(getattr(batch, "matrix", batch) @ data, dtype=np.float64)
        start = time.monotonic()
        if stopped_after is not None:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, stopped_after)
        ours = release.denoised()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert np.all(np.isfinite(ours.values))
        errors[k] = [np.square(one - truth).mean() for one in (release.values, ours.values)] + [ours.risk]
    raw, left, guess = errors.mean(axis=0)
    stopped = "" if stopped_after is None else f", stopped after {stopped_after:g} s: {ours.status}"
    print(
        f"{what}{stopped}: squared error / raw {left / raw:.3g}, estimated / raw {guess / raw:.3g}, least answer "
        f"{ours.values.min():.3g}, {ours.method}, {time.monotonic() - start:.1f} s",
        flush=True,
    )


OF_TABLES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (target, {"CLASSES": target.CLASSES}),
    *((target, {"CLASSES": k}) for k in (8, 32)),
    *((target, {"PULL": pull}) for pull in (10.0, 100.0)),
    *((tables, {"TOO_CLOSE": k}) for k in (1.0, 2.0, 4.0)),
)
OF_CELLS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (smooth, {"SHY": smooth.SHY}),
    *((smooth, {"SHY": k}) for k in (0.0, 2.0)),
    *((smooth, {"COST": k}) for k in (0.0, 4.0)),
    *((smooth, {"EVEN": k}) for k in (0.03, 0.3)),
)
"""Other constants than those in use, by the module that has them."""


def constants() -> None:
    """Print what other constants do to estimates of invented pairs and histograms, relative to those in use."""
    for what, choices, figures in (("pairs", OF_TABLES, _of_tables()), ("totals", OF_CELLS, _of_cells())):
        usual: Floats | None = None
        for module, values in choices:
            with patch.multiple(module, **values):
                found, said = np.array([one() for one in figures]).T
            usual = found if usual is None else usual
            change, risk = np.exp(np.log([found / usual, said]).mean(axis=1))
            print(
                f"{what}, {values}: error {change:.4f}, at most {(found / usual).max():.3f}; estimated"
                f" / true risk {risk:.2f}, of single ones {np.sort(said).round(2)}",
                flush=True,
            )


def _of_tables() -> list[Callable[[], tuple[float, float]]]:
    """The distance of denoised pairs of invented populations, and the estimated over the true risk."""

    def one(k: int) -> tuple[float, float]:
        rng = np.random.default_rng(3000 + k)
        sizes = tuple(int(n) for n in np.exp(rng.uniform(np.log(2), np.log(40), int(rng.integers(5, 11)))))
        count, rho = int(10 ** rng.uniform(3.5, 5)), 10 ** rng.uniform(-4, -0.5)
        codes = invented(sizes, count, rng) if k % 2 else in_common(sizes, count, rng)
        batch: Any = batchdp.workloads.marginals(sizes, [0, 1, 2])
        batch = getattr(batch, "structure", None) or batch
        t = VARIANCES["Gaussian"](batch, Budget(GAUSSIAN, rho))(weights_by((100.0, 100.0, 1.0), 0.75, batch))
        truth = {A: exact(codes, sizes, A) for A in combinations(range(len(sizes)), 2)}
        parts = {C: z for A, x in truth.items() for C, z in split_table(x, A).items()}
        noisy = {C: z + split_table(rng.standard_normal(z.shape), C)[C] * t[C] ** 0.5 for C, z in parts.items()}
        made = tables.denoise_tables(noisy, t, list(truth), sizes, 1)
        off = [made.fitted.table(A) - x for A, x in truth.items()]
        risk = sum(made.risks(A)[0] for A in truth) / sum(float(np.square(x).sum()) for x in off)
        return float(sum(np.abs(x).sum() for x in off)), risk

    return [partial(one, k) for k in range(8)]


def _of_cells() -> list[Callable[[], tuple[float, float]]]:
    """The squared error of running totals of invented histograms, and the estimated over the true risk."""
    workload = batchdp.workloads.prefix(256)
    first = release_of(batchdp.optimize(workload), np.zeros(workload.cells, dtype=np.int64), epsilon=EPSILON)

    def one(k: int) -> tuple[float, float]:
        rng = np.random.default_rng(4000 + k)
        shape = histogram(workload.cells, k, rng)
        counts, error, said = rng.multinomial(int(10 ** rng.uniform(3, 5.5)), shape), 0.0, 0.0
        for _ in range(2):
            ours = drawn(first, counts, rng).denoised()
            error += float(np.square(ours.values - workload.matrix @ counts).mean())
            said += ours.risk
        return error, said / error

    return [partial(one, k) for k in range(18)]


def histogram(cells: int, kind: int, rng: np.random.Generator) -> Floats:
    """Shares of an invented column: bumps, a power law, steps, spikes on a bump, round numbers, or rough ones."""
    x = np.linspace(0, 1, cells)
    bump = np.exp(-np.square((x - rng.random()) / rng.uniform(0.05, 0.3)) / 2)
    cuts = np.sort(rng.integers(0, cells, int(rng.integers(3, 15))))
    spikes = np.zeros(cells)
    spikes[rng.integers(0, cells, 8)] = rng.gamma(1, size=8)
    every = np.where(np.arange(cells) % int(rng.integers(5, 20)), 1.0, rng.uniform(2, 8))
    found = (
        bump + np.exp(-np.square((x - rng.random()) / rng.uniform(0.01, 0.1)) / 2),
        np.arange(1, cells + 1.0) ** -rng.uniform(0.5, 2),
        rng.gamma(0.5, size=len(cuts) + 1)[np.searchsorted(cuts, np.arange(cells), side="right")],
        bump / bump.sum() + rng.uniform(0.2, 2) * spikes / spikes.sum(),
        bump * every,
        np.exp(np.cumsum(rng.standard_normal(cells)) * rng.uniform(0.05, 0.4)),
    )[kind % 6]
    return np.asarray(found / found.sum())


def in_common(sizes: Sequence[int], count: int, rng: np.random.Generator) -> Codes:
    """Records that share two factors and have no classes."""
    mixed = rng.standard_normal((count, 2)) @ rng.standard_normal((2, len(sizes)))
    ranks = norm.cdf((mixed + rng.standard_normal(mixed.shape)) / (1 + mixed.var(axis=0)) ** 0.5)
    places = ranks ** rng.uniform(0.7, 3, len(sizes)) * sizes
    found: Codes = np.minimum(places.astype(np.int64), np.array(sizes) - 1)
    return found


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["adult", "shapes", "three", "random", "extremes", "constants"])
    parser.add_argument("folder", type=Path, nargs="?", help="with the data, of adult and shapes")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rho", type=float, nargs="+")
    parser.add_argument("--records", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--workloads", nargs="+", choices=["ranges", "totals"], default=["ranges", "totals"])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=["matrices", "tables"], default=["matrices", "tables"])
    options = parser.parse_args()
    if options.what in ("adult", "shapes") and options.folder is None:
        parser.error("give the folder with the data")
    if options.what == "adult":
        adult(options.folder, options.runs, options.rho or list(ADULT))
    elif options.what == "shapes":
        shapes(options.folder, options.runs, options.records, options.workloads)
    elif options.what == "three":
        three(options.rho or [0.5, 0.01])
    elif options.what == "extremes":
        extremes(options.runs)
    elif options.what == "constants":
        constants()
    else:
        random(options.cases, options.runs, options.kinds)


if __name__ == "__main__":
    main()
