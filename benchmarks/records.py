"""Synthetic records of UCI Adult: how far their tables are from the true ones, and what a classifier learns from them.

    python benchmarks/records.py FOLDER [--rho R …] [--seed N] [--classify] [--mbi]

The folder holds adult.csv.gz and adult-domain.json. Printed are, over all 91 tables of two columns, the mean L1
distance to the true table over the number of records, of denoised tables and of the records, with processor time.
`--classify` needs scikit-learn (`pip install scikit-learn`): income from all other columns by gradient boosting,
trained on the records and on the data, tested on a fifth of the data that the second was not trained on. `--mbi` needs
mbi (`pip install mbi`): the same junction tree fitted by it, and how far the tables of either are off.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import batchdp
from batchdp.release.records.tree import JunctionTree, choose_tables
from denoised import Codes, exact

MBI_STEPS = 300


def accuracy(train: Codes, test: Codes) -> float:
    """The share of incomes that are told right."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise SystemExit("--classify needs scikit-learn: pip install scikit-learn") from None
    model = HistGradientBoostingClassifier(random_state=0).fit(train[:, :-1], train[:, -1])
    return float(model.score(test[:, :-1], test[:, -1]))


def compare_fits(found: batchdp.Records) -> None:
    """Print how far the tables of the junction tree are off, fitted by us and by mbi, with processor time."""
    try:
        import jax
        import mbi
    except ImportError:
        raise SystemExit("--mbi needs mbi: pip install mbi") from None
    settings: Any = jax.config
    settings.update("jax_enable_x64", True)
    margins, known, n = found.fitting.margins(), found.fitting.together(), len(found)
    chosen, order = choose_tables(found.fitting.sizes, known, n)
    tables = {C: known[C].shares(margins) for C in chosen}
    start = time.process_time()
    model = JunctionTree(margins, tables, order)
    model.fit()
    seconds = time.process_time() - start
    last = {column: k for k, (column, _) in enumerate(order)}
    off = [np.abs(model.margin(min(last[i] for i in C), C) - own).sum() for C, own in tables.items()]
    print(
        f"our fit: {seconds:.1f} s; {len(tables)} tables off by {np.mean(off):.4f}, at most {max(off):.4f}", flush=True
    )
    named = {C: tuple(f"c{i}" for i in C) for C in tables}
    domain = mbi.Domain([f"c{i}" for i in range(len(margins))], list(found.fitting.sizes))
    measured = [mbi.LinearMeasurement((own * n).reshape(-1), named[C], stddev=1.0) for C, own in tables.items()]
    start = time.process_time()
    theirs: Any = mbi.estimation.MirrorDescent().estimate(domain, measured, float(n), iters=MBI_STEPS)
    seconds = time.process_time() - start
    off = [
        np.abs(np.asarray(theirs.marginals[named[C]].datavector(flatten=False)) / n - own).sum()
        for C, own in tables.items()
    ]
    print(
        f"mbi's fit, {MBI_STEPS} steps: {seconds:.0f} s; off by {np.mean(off):.4f}, at most {max(off):.4f}", flush=True
    )


def adult(folder: Path, rho: float, seed: int, *, classify: bool, mbi: bool) -> None:
    """Print the figures at a budget."""
    known: dict[str, int] = json.loads((folder / "adult-domain.json").read_text())
    frame, sizes = pd.read_csv(folder / "adult.csv.gz")[list(known)], tuple(known.values())
    codes = frame.to_numpy()
    columns: Any = {name: {"integers": [0, n - 1], "other": "drop"} for name, n in known.items()}
    plan = batchdp.plan(
        None, {"table": "adult", "columns": columns}, privacy="zcdp", rho=rho, for_records=True, records=len(codes)
    )
    with tempfile.TemporaryDirectory() as where:
        ledger = batchdp.Ledger.create(Path(where) / "ledger.db", rho=rho)
        release = batchdp.answer(plan, frame, rho=rho, ledger=ledger)
    start = time.process_time()
    found = batchdp.draw_records(release, seed=seed)
    seconds, drawn, denoised = time.process_time() - start, found.to_frame().to_numpy(), release.denoised()
    off = np.zeros((91, 2))
    for k, pair in enumerate(combinations(range(len(sizes)), 2)):
        truth = exact(codes, sizes, pair) / len(codes)
        table = denoised.array(release.find(*pair))
        off[k] = [np.abs(own - truth).sum() for own in (table / len(codes), exact(drawn, sizes, pair) / len(drawn))]
    print(
        f"rho {rho:g}: L1/N of denoised tables {off[:, 0].mean():.4f}, of records {off[:, 1].mean():.4f}; "
        f"{found.method}, {found.status}, {seconds:.0f} s of processor time, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB",
        flush=True,
    )
    if mbi:
        compare_fits(found)
    if classify:
        order = np.random.default_rng(1).permutation(len(codes))
        test, train = codes[order[: len(codes) // 5]], codes[order[len(codes) // 5 :]]
        print(
            f"rho {rho:g}: accuracy {accuracy(drawn, test):.4f} trained on the records, {accuracy(train, test):.4f} "
            f"on the data; the more frequent income alone {max(np.bincount(test[:, -1])) / len(test):.4f}",
            flush=True,
        )


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.014973, 0.5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classify", action="store_true")
    parser.add_argument("--mbi", action="store_true")
    asked = parser.parse_args()
    for rho in asked.rho:
        adult(asked.folder, rho, asked.seed, classify=asked.classify, mbi=asked.mbi)


if __name__ == "__main__":
    main()
