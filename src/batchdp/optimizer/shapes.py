"""The best strategy with Laplace noise, or noise in the shape of the batch where that is clearly better.

What is multiplied out may have a shape, what is not says why it has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from batchdp.errors import LatticeError, StrategyError
from batchdp.linalg.matrix import Dense, plain
from batchdp.mechanism.knorm.body import Body
from batchdp.optimizer.blocks import is_large
from batchdp.optimizer.options import Options
from batchdp.strategies.account import Progress
from batchdp.strategies.blocks import error_of
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shaped import ShapeLimits, shaped
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload, as_workload

BITS = 20
"""Of the integers that the time of a draw is estimated with; it does not depend on them."""


def shaped_noise(
    workload: MatrixWorkload, limits: ShapeLimits, seed: int = 0, objective: Objective = "sum"
) -> PairStrategy:
    """Shaped noise for a workload, drawn within the limits; a StrategyError says why there is none."""
    if is_large(workload):
        raise StrategyError("noise is shaped for batches of moderate size, and this one is too large for any search")
    try:
        return shaped(workload, limits, objective=objective, seed=seed, price=seconds_of)
    except (LatticeError, np.linalg.LinAlgError) as problem:
        raise StrategyError(f"its body cannot be drawn from: {problem}") from problem


def add_shape(workload: Any, found: Any, options: Options, limits: ShapeLimits) -> Any:
    """The strategy, or noise in the shape of the batch where that is clearly better; `reason` says which."""
    if isinstance(workload, KroneckerWorkload):
        why = "tables of many columns are measured as products, and noise is shaped for single cells alone"
        return replace(found, reason=f"Laplace noise: {why}; ask for few answers, by SQL, instead.")
    return with_shape(as_workload(workload), found, options.objective, limits, options.seed, options.progress)


def with_shape(
    workload: MatrixWorkload,
    pair: PairStrategy,
    objective: Objective,
    limits: ShapeLimits,
    seed: int,
    progress: Progress | None = None,
) -> PairStrategy:
    """The pair, unless a shape is better by more than so many standard errors; with the reason."""
    if progress is not None and progress(1.0, "noise in the shape of the batch", error_of(pair, objective)):
        return pair
    try:
        found = shaped_noise(workload, limits, seed, objective)
    except StrategyError as problem:
        return replace(pair, reason=" ".join([pair.reason, f"Laplace noise: {problem}."]).strip())
    error, other = error_of(found, objective), error_of(pair, objective)
    spread = error * _relative_spread(found, objective)
    said = f"Noise in the shape of the batch has an expected squared error of {error:.4g} ± {spread:.2g} at ε = 1"
    said += ", simulated"
    if error + limits.clearly * spread < other:
        assert found.shape is not None
        takes = f"about {found.shape.seconds:.2g} seconds" if found.shape.seconds >= 1 else "less than a second"
        reason = f"{said}; the best pair, {pair.method}, has {other:.4g}. A draw takes {takes}."
        return replace(found, proven=pair.proven, reason=reason)
    return replace(pair, reason=f"{said}; this pair has {other:.4g}.")


def seconds_of(measure: Dense) -> float:
    """What a draw of the noise of a body takes, in nominal seconds."""
    top = float(np.abs(measure).max())
    return Body(np.trunc(measure / top * 2.0**BITS).astype(np.int64).astype(object)).seconds


def _relative_spread(found: PairStrategy, objective: Objective) -> float:
    """Of what is minimised: the total, or the worst query's error."""
    if objective == "sum":
        return found.simulation_error
    assert found.shape is not None
    variances, weights = found.per_query_variance(epsilon=1.0), found.workload.weights
    worst = int(np.argmax(variances if weights is None else variances * weights))
    return found.shape.relative_spread(plain(found.reconstruction)[[worst]])
