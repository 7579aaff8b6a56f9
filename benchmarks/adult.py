"""A release end to end: all tables of up to three of fourteen columns, of as many records as the Adult data set has.

    python benchmarks/adult.py [--records N] [--order K] [--folder FOLDER]

Planned, drawn, counted, stored in a ledger and written as Parquet; then the error against the exact tables, and how
long it takes to read one back. The records are invented: skewed columns that hang together.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import batchdp

SIZES = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
RHO = 0.5


def records(count: int, seed: int = 1) -> NDArray[np.int64]:
    """Codes, record × column: every column leans on a common one, and its small codes are the frequent ones."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(size=count)
    own = rng.uniform(size=(count, len(SIZES)))
    mixed = np.where(rng.uniform(size=own.shape) < 0.4, common[:, None], own)
    powers = 1.5 + 0.25 * (np.arange(len(SIZES)) % 5)
    codes: NDArray[np.int64] = np.minimum((mixed**powers * SIZES).astype(np.int64), np.array(SIZES) - 1)
    return codes


def squared_error(release: batchdp.Release, codes: NDArray[np.int64]) -> float:
    """Over all answers, against the exact tables."""
    total = 0.0
    for t, table in enumerate(release.tables):
        place = np.zeros(len(codes), dtype=np.int64)
        for i, n in zip(table.columns, table.shape, strict=True):
            place = place * n + codes[:, release.column_names.index(i)]
        exact = np.bincount(place, minlength=table.queries).reshape(table.shape)
        total += float(np.square(release.array(t) - exact).sum())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=48_842)
    parser.add_argument("--order", type=int, default=3, help="tables of up to so many columns")
    parser.add_argument("--folder", type=Path, help="keep what is written there")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    codes = records(options.records)
    start = time.monotonic()
    before = os.times()
    batch = batchdp.workloads.marginals(SIZES, list(range(options.order + 1)))
    strategy = batchdp.optimize(batch, privacy="zcdp")
    assert isinstance(strategy, batchdp.ResidualStrategy)
    planned = time.monotonic()
    ledger = batchdp.Ledger.create(folder / "ledger.db", rho=RHO)
    release = batchdp.answer(strategy, codes, rho=RHO, ledger=ledger)
    answered = time.monotonic()
    batchdp.export(release, folder / "tables")
    written = time.monotonic()
    used = os.times()
    expected = (strategy.expected_squared_error(rho=RHO) / batch.queries) ** 0.5
    found = (squared_error(release, codes) / batch.queries) ** 0.5
    reading = time.monotonic()
    release.table(*range(options.order))
    read = time.monotonic() - reading
    size = sum(file.stat().st_size for file in (folder / "tables").iterdir())
    print(batch)
    print(
        f"planned {planned - start:.2f} s, drawn, counted and stored {answered - planned:.1f} s, written "
        f"{written - answered:.1f} s, in all {written - start:.1f} s "
        f"({used.user + used.system - before.user - before.system:.0f} s of processor time)"
    )
    print(f"rmse {found:.3f}, expected {expected:.3f}, ratio {found / expected:.5f}")
    print(
        f"largest table read back in {read:.2f} s; Parquet {size / 1e6:,.0f} MB; "
        f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"
    )


if __name__ == "__main__":
    main()
