"""What a strategy costs as workloads grow: seconds, memory and error, case by case, each in a process of its own.

    python benchmarks/scale.py                          the cases beyond the paper's sizes, and the paper's default
    python benchmarks/scale.py --curves -o docs/images  cost against n, m and k, with slopes
    python benchmarks/scale.py --json now.json --against before.json

Seconds are also given as multiples of one SVD of the workload (dense ones) or of one product with a vector (others) in
the same process, so that machines and commits can be compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator
from rich.console import Console
from rich.table import Table
from scipy import sparse

from batchdp import MatrixWorkload, PairStrategy, optimize, workloads
from batchdp.linalg.matrix import dense
from batchdp.linalg.product import Product
from batchdp.optimizer.families.gaussian import gaussian
from batchdp.optimizer.families.wavelet import haar
from batchdp.reports.plots import BLUE, figure
from batchdp.workloads.reduction import reduce


@dataclass(frozen=True)
class Case:
    """A workload to make, and how to find a strategy for it."""

    name: str
    make: Callable[[], MatrixWorkload]
    method: str = "optimize"
    goal: str = ""
    rival: Callable[[MatrixWorkload], float] | None = None
    """The error per query of what has to be beaten."""


@dataclass(frozen=True)
class Result:
    """Errors are per query, at ε = 1 or ρ = ½; a gap is upper ÷ lower bound − 1, and loose for Laplace noise."""

    case: str
    method: str
    m: int
    n: int
    k: int
    columns: int
    seconds: float
    unit: str
    units: float
    """Seconds in units of one SVD or product."""
    gigabytes: float
    error: float
    residual: float
    gap: float | None
    rival: float | None
    goal: str = ""


def group_averages(m: int, n: int, groups: int, seed: int = 0) -> MatrixWorkload:
    """Every query is a multiple of the weighted average of one group of cells; sparse, of rank `groups`."""
    rng = np.random.default_rng(seed)
    group, weight = rng.integers(0, groups, size=n), rng.uniform(0.1, 1, size=n)
    members = [np.flatnonzero(group == g) for g in range(groups)]
    shares = [weight[cells] / weight[cells].sum() for cells in members]
    asked, factors = rng.integers(0, groups, size=m), rng.uniform(0.5, 2, size=m)
    ends = np.concatenate([[0], np.cumsum([len(members[g]) for g in asked])])
    indices, entries = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1])
    for i, (g, factor) in enumerate(zip(asked, factors, strict=True)):
        indices[ends[i] : ends[i + 1]] = members[g]
        np.multiply(shares[g], factor, out=entries[ends[i] : ends[i + 1]])
    return MatrixWorkload(sparse.csr_array((entries, indices, ends), shape=(m, n)))


def repeated(m: int, n: int, rank: int, distinct: int, seed: int = 0) -> MatrixWorkload:
    """m sparse queries of a given rank over n cells with a given number of distinct columns."""
    rng = np.random.default_rng(seed)
    base = (rng.random((rank, distinct)) < 0.1) * rng.integers(1, 4, size=(rank, distinct))
    mixed = sparse.csr_array(np.eye(rank)[rng.integers(0, rank, size=m)] * rng.integers(1, 4, size=(m, 1)))
    columns = sparse.csc_array(mixed @ sparse.csr_array(base.astype(float)))
    return MatrixWorkload(
        columns[:, np.concatenate([np.arange(distinct), rng.integers(0, distinct, size=n - distinct)])]
    )


def ends_of(workload: MatrixWorkload) -> tuple[np.ndarray, np.ndarray]:
    """First and last cell of every query of a workload of intervals."""
    assert isinstance(workload.matrix, Product)
    assert workload.matrix.cell_map is not None
    left, pieces = dense(workload.matrix.left), workload.matrix.cell_map.classes
    starts = np.searchsorted(pieces, np.arange(left.shape[1] + 1))
    first = left.argmax(axis=1)
    last = left.shape[1] - left[:, ::-1].argmax(axis=1)
    return starts[first], starts[last] - 1


def better_tree(workload: MatrixWorkload) -> float:
    """The better of wavelets and the binary tree on all cells of a workload of intervals, per query at ε = 1."""
    first, last = ends_of(workload)
    return min(wavelet_error(first, last, workload.cells), tree_error(first, last, workload.cells))


def wavelet_error(first: np.ndarray, last: np.ndarray, n: int) -> float:
    """2 Δ² ‖W H⁻¹‖² / m. The sum of the first cells takes one coefficient a level; intervals are two such."""
    L, inverse = haar(n)
    ends = np.unique(np.concatenate([[0], first, last + 1]))
    pieces = sparse.csr_array(
        (np.ones(ends[-1]), (np.searchsorted(ends, np.arange(ends[-1]), side="right") - 1, np.arange(ends[-1]))),
        shape=(len(ends) - 1, n),
    )
    by_piece = sparse.csr_array(pieces @ inverse)
    sums: list[dict[int, float]] = [{}]
    for i in range(len(ends) - 1):
        part = slice(by_piece.indptr[i], by_piece.indptr[i + 1])
        total = dict(sums[-1])
        for node, share in zip(by_piece.indices[part].tolist(), by_piece.data[part].tolist(), strict=True):
            total[node] = total.get(node, 0.0) + share  # dyadic numbers: what cancels does so exactly
            if total[node] == 0:
                del total[node]
        sums.append(total)
    squares = 0.0
    for low, high in zip(np.searchsorted(ends, first), np.searchsorted(ends, last + 1), strict=True):
        one, other = sums[high], sums[low]
        squares += sum((one.get(node, 0.0) - other.get(node, 0.0)) ** 2 for node in one.keys() | other.keys())
    sensitivity = int(np.diff(sparse.csc_array(L).indptr).max())
    return 2 * sensitivity**2 * squares / len(first)


def tree_error(first: np.ndarray, last: np.ndarray, n: int) -> float:
    """2 Δ² tr W (LᵀL)⁻¹ Wᵀ / m for the binary tree, from the leaves up: a node adds 1 1ᵀ to its children's blocks."""
    levels = int(np.ceil(np.log2(n))) + 1
    cell, total = np.arange(n), 0.0
    for low, high in zip(first, last, strict=True):
        a, s = np.ones(n), ((low <= cell) & (cell <= high)).astype(float)
        form = float(s.sum())
        while len(a) > 1:
            starts = np.arange(0, len(a), 2)
            a, s = np.add.reduceat(a, starts), np.add.reduceat(s, starts)
            form -= float(np.sum(s * s / (1 + a)))
            a, s = a / (1 + a), s / (1 + a)
        total += form
    return 2 * levels**2 * total / len(first)


LARGE = [
    Case("2,000 ranges of 1,000,000 cells", lambda: workloads.ranges(2000, 1_000_000), "optimize",
         "180 s, 4 GB, a fifth of wavelets and trees", better_tree),
    Case("WDiscrete 1024 × 8192", lambda: workloads.discrete(1024, 8192), "optimize", "180 s"),
    Case("WRelated 256 × 65536, s = 25", lambda: workloads.related(256, 65536, 25), "optimize",
         "120 s, 60 times below noise on data", lambda w: 2 * w.norm**2 / w.queries),
    Case("12 group averages, 10,000 × 100,000", lambda: group_averages(10_000, 100_000, 12), "optimize", "10 s"),
    Case("WDiscrete 1024 × 8192", lambda: workloads.discrete(1024, 8192), "gaussian", "180 s, gap 0.001"),
    Case("prefix 4096", lambda: workloads.prefix(4096), "gaussian 1 %", "180 s, gap 0.01"),
]  # fmt: skip
DEFAULT = [
    Case("WDiscrete 256 × 1024", lambda: workloads.discrete(256, 1024)),
    Case("WRange 256 × 1024", lambda: workloads.ranges(256, 1024)),
    Case("WRelated 256 × 1024", lambda: workloads.related(256, 1024, 128)),
    Case("WRelated 256 × 1024, s = 26", lambda: workloads.related(256, 1024, 26)),
]
"""The paper's."""
CURVES: dict[str, list[Case]] = {
    "n": [
        Case(f"n = {n}", partial(repeated, 500, n, 40, 120))
        for n in (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
    ],
    "m": [Case(f"m = {m}", partial(repeated, m, 20_000, 40, 120)) for m in (100, 300, 1_000, 3_000, 10_000)],
    "k": [Case(f"k = {k}", partial(workloads.discrete, k, 2048)) for k in (16, 32, 64, 128, 256, 512)],
}
"""One size varies, the others stay: 40 independent queries and 120 distinct columns, or 2 048 columns."""


def measured(case: Case, with_bound: bool) -> Result:
    """In a process of its own, so that its peak of memory is its own too."""
    theirs, ours = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(case, with_bound, ours))
    process.start()
    ours.close()
    try:
        result: Result = theirs.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"{case.name} ended with code {process.exitcode}; was there enough memory?") from None
    process.join()
    return result


def _measure(case: Case, with_bound: bool, results: Connection) -> None:
    workload = case.make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    strategy = _method(case.method)(workload)
    seconds = time.perf_counter() - start
    peak = max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    reduction = reduce(workload)
    unit, one = _unit(workload)
    budget = strategy.noise.reference.arguments
    error = strategy.expected_squared_error(**budget)
    gap = error / strategy.lower_bound(**budget) - 1 if with_bound or strategy.noise.bound_is_tight else None
    results.send(
        Result(
            case.name,
            f"{case.method}: {strategy.method}",
            workload.queries,
            workload.cells,
            reduction.rank,
            reduction.columns,
            seconds,
            unit,
            seconds / one,
            peak / 2**20,
            error / workload.queries,
            strategy.residual,
            gap,
            case.rival(workload) if case.rival else None,
            case.goal,
        )
    )


def _method(name: str) -> Callable[[MatrixWorkload], PairStrategy]:
    match name:
        case "optimize":
            return optimize
        case "gaussian":
            return gaussian
        case _:
            return lambda workload: gaussian(workload, tolerance=1e-2)


def _unit(workload: MatrixWorkload) -> tuple[str, float]:
    """One SVD of a dense workload, estimated from a part of a large one; one product with a vector otherwise."""
    W = workload.matrix
    if isinstance(W, np.ndarray):
        start = time.perf_counter()
        np.linalg.svd(W[:, : 4 * len(W)], full_matrices=False)
        return "SVD", (time.perf_counter() - start) * max(1.0, W.shape[1] / (4 * len(W)))
    x = np.ones(workload.cells)
    start = time.perf_counter()
    W @ x
    return "product", time.perf_counter() - start


def slope(results: list[Result], size: str) -> float:
    """Of log seconds against log size, over the upper half of the sizes, where overheads no longer count."""
    upper = results[len(results) // 2 :]
    return float(np.polyfit([np.log(getattr(r, size)) for r in upper], [np.log(r.seconds) for r in upper], 1)[0])


def draw(curves: dict[str, list[Result]], path: Path) -> None:
    sheet = figure(10, 3.4)
    panels = sheet.subplots(1, 3, sharey=True)
    words = {
        "n": "cells n (k = 40, 120 distinct columns)",
        "m": "queries m (k = 40, 120 distinct columns)",
        "k": "rank k (2,048 columns)",
    }
    for axes, (size, results) in zip(panels, curves.items(), strict=True):
        axes.loglog([getattr(r, size) for r in results], [r.seconds for r in results], color=BLUE, marker="o")
        axes.set_title(f"slope {slope(results, size):.2f}", loc="left", fontsize="medium")
        axes.set_xlabel(words[size])
        axes.grid(which="major", color="#d5d9e0", linewidth=0.6)
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if size == "k":
            axes.set_xticks([r.k for r in results], [str(r.k) for r in results])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_ylabel("seconds")
    sheet.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def shown(results: list[Result], before: dict[str, float]) -> Table:
    table = Table(
        "case", "method", "m", "n", "k", "columns", "s", "÷", "GB", "error", "residual", "gap", "rival ÷ error"
    )
    for r in results:
        known = before.get(f"{r.case} {r.method.split(':')[0]}")
        table.add_row(
            r.case,
            r.method,
            f"{r.m:,}",
            f"{r.n:,}",
            f"{r.k:,}",
            f"{r.columns:,}",
            f"{r.seconds:.2f}" + (f" ({known / r.seconds:.2f}× faster)" if known else ""),
            f"{r.units:,.0f} {r.unit}",
            f"{r.gigabytes:.2f}",
            f"{r.error:,.4g}",
            f"{r.residual:.0e}",
            "" if r.gap is None else f"{r.gap:.2g}",
            "" if r.rival is None else f"{r.rival / r.error:.1f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--curves", action="store_true", help="also cost against n, m and k")
    parser.add_argument("--bounds", action="store_true", help="also the bound for Laplace noise, which takes its time")
    parser.add_argument("--json", type=Path, help="a copy of the results for programs")
    parser.add_argument("--against", type=Path, help="such a copy of another commit, to compare with")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="the folder for scale.svg")
    options = parser.parse_args()
    console = Console(width=190)
    before = {}
    if options.against:
        known = [Result(**one) for one in json.loads(options.against.read_text())]
        before = {f"{r.case} {r.method.split(':')[0]}": r.seconds for r in known}
    results: list[Result] = []

    def run(case: Case) -> Result:
        with console.status(f"{case.name}, {case.method}"):
            results.append(measured(case, options.bounds))
        console.print(f"{results[-1].seconds:8.2f} s  {case.name}, {case.method}", highlight=False)
        return results[-1]

    for case in (*DEFAULT, *LARGE):
        if options.only in case.name:
            run(case)
    if options.curves:
        curves = {size: [run(case) for case in cases] for size, cases in CURVES.items()}
        draw(curves, options.output / "scale.svg")
        for size, found in curves.items():
            console.print(f"cost grows like {size}^{slope(found, size):.2f}")
    console.print(shown(results, before))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
