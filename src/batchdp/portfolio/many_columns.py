"""Batches over many columns: by components with Gaussian noise, by weighted tables with Laplace noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from batchdp.components.optimizing import optimize_products as by_components
from batchdp.components.strategy import ResidualStrategy
from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense, dense
from batchdp.portfolio.options import Options
from batchdp.portfolio.sums import optimize_sum
from batchdp.privacy import GAUSSIAN, LAPLACE, Noise
from batchdp.strategies.account import Account
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.strategy import Strategy
from batchdp.weighted.optimizing import optimize_products as by_weighted_tables
from batchdp.weighted.strategy import MarginalStrategy
from batchdp.workloads.structure import KroneckerWorkload
from batchdp.workloads.workload import MatrixWorkload

SECONDS_A_COLUMN = 2.0
"""For the strategy of one column by itself."""
MOST_ENTRIES = 20_000_000
"""Of weighted tables that are multiplied out for a batch that came as a matrix too."""
PART = 0.3
"""Of the caller's seconds, for weighted tables beside all other methods."""


def _by_components(workload: KroneckerWorkload, options: Options) -> ResidualStrategy:
    return by_components(workload, **vars(options))


def _by_weighted_tables(workload: KroneckerWorkload, options: Options) -> MarginalStrategy:
    solver = _ColumnStrategies(None if options.seconds is None else options.seconds / 10, options.seed)
    return by_weighted_tables(
        workload,
        objective=options.objective,
        seconds=options.seconds,
        seed=options.seed,
        progress=options.progress,
        solver=solver,
    )


OVER_COLUMNS: dict[Noise, Callable[[KroneckerWorkload, Options], Strategy]] = {
    LAPLACE: _by_weighted_tables,
    GAUSSIAN: _by_components,
}
"""The searches over many columns, by the noise."""


class _ColumnStrategies:
    """From the queries on one column to what is measured of it, each asked once."""

    def __init__(self, seconds: float | None, seed: int) -> None:
        self.seconds, self.seed = SECONDS_A_COLUMN if seconds is None else min(seconds, SECONDS_A_COLUMN), seed
        self.known: dict[bytes, Dense] = {}

    def __call__(self, queries: Dense, account: Account) -> Dense | None:
        size = float(np.linalg.norm(queries))
        gram = np.round(queries.T @ queries / size**2, 9)
        key = gram.tobytes()
        if key not in self.known:
            account.charge(self.seconds)
            found = optimize_sum(MatrixWorkload(queries / size), self.seconds, self.seed, None)
            self.known[key] = dense(found.measurement)
        return self.known[key]


def as_tables(workload: MatrixWorkload, options: Options) -> PairStrategy | None:
    """Weighted tables for a batch that came as products, multiplied out; None where it did not, or they do not fit."""
    batch, seconds = workload.structure, options.seconds
    if batch is None or len(workload.blocks) > 1 or len(batch.sizes) < 2:
        return None
    part = None if seconds is None else PART * seconds
    found = by_weighted_tables(batch, seconds=part, seed=options.seed, progress=options.progress)
    if found.measurements * workload.cells > MOST_ENTRIES or found.measurements * workload.queries > MOST_ENTRIES:
        return None
    try:
        return PairStrategy(
            workload,
            sparse.csr_array(found.measure),
            sparse.csr_array(found.reconstruct),
            method=found.method,
            privacy=found.privacy,
            status=found.status,
        )
    except StrategyError:  # which misses its workload by rounding; the other methods remain
        return None
