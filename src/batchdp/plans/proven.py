"""What is proven about a plan's strategy, in its file, so that nobody has to solve for it again.

It says how good the strategy is; no privacy rests on it. Whoever edits a file can write any bound into it: one that
cannot be true, or is about another batch, is left out, and proven anew when it is asked for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from batchdp import archive
from batchdp.bounds.optimality import OptimalityBound
from batchdp.checks import check_finite
from batchdp.linalg.matrix import plain
from batchdp.outcome import Outcome
from batchdp.portfolio.options import OBJECTIVES
from batchdp.strategies.pair import PairStrategy
from batchdp.workloads.workload import MatrixWorkload

ROUNDING = 1e-9
"""By how much a bound may be above the error that it bounds, relative."""
FIGURES = ("objective", "lower_bound", "upper_bound", "rounds", "outcome")
KEYS = {"workload": None, "bounds": (dict.fromkeys(FIGURES),) * len(OBJECTIVES)}
ARRAYS = tuple(f"proven_{objective}_{end}" for objective in OBJECTIVES for end in "vw")
"""All that a file may have of it, also where it is not believed."""


def written(strategy: PairStrategy) -> tuple[dict[str, Any], dict[str, Any]]:
    """What goes into a file's header and its arrays: every bound that is known and finite."""
    bounds, arrays = [], {}
    for bound in strategy.proven:
        if not math.isfinite(bound.upper_bound):
            continue
        arrays[f"proven_{bound.objective}_v"] = bound.weights
        if bound.query_weights is not None:
            arrays[f"proven_{bound.objective}_w"] = bound.query_weights
        figures = {"lower_bound": bound.lower_bound, "upper_bound": bound.upper_bound, "rounds": bound.rounds}
        bounds.append({"objective": bound.objective, **figures, "outcome": bound.outcome})
    return ({"workload": _digest(strategy.workload), "bounds": bounds} if bounds else {}), arrays


def read(content: Any, arrays: Mapping[str, Any], workload: MatrixWorkload) -> tuple[OptimalityBound, ...]:
    """The bounds of a file that are about this workload; none where anything is amiss."""
    try:
        if content["workload"] != _digest(workload):
            return ()
        return tuple(_read(content["bounds"], arrays))
    except Exception:  # whatever somebody wrote there
        return ()


def credible(strategy: PairStrategy) -> tuple[OptimalityBound, ...]:
    """Those of its bounds that its own error does not refute."""
    reference = strategy.noise.reference
    errors = {"sum": strategy.expected_squared_error, "max": strategy.largest_variance}
    if strategy.shape is not None:  # whose error may be below what is proven of pairs
        return strategy.proven
    return tuple(
        bound
        for bound in strategy.proven
        if reference.variance(bound.lower_bound) <= errors[bound.objective](**reference.arguments) * (1 + ROUNDING)
    )


def _read(bounds: Any, arrays: Mapping[str, Any]) -> Iterator[OptimalityBound]:
    for one in bounds:
        objective = one["objective"]
        if objective not in OBJECTIVES:
            raise ValueError("another objective")
        lower = check_finite("lower_bound", one["lower_bound"], least=0)
        yield OptimalityBound(
            objective,
            lower,
            check_finite("upper_bound", one["upper_bound"], least=lower * (1 - ROUNDING)),
            weights=archive.read_numbers(f"proven_{objective}_v", arrays),
            query_weights=archive.read_numbers("proven_max_w", arrays) if objective == "max" else None,
            rounds=int(one["rounds"]),
            outcome=Outcome.read(one["outcome"]),
        )


def _digest(workload: MatrixWorkload) -> str:
    """A fingerprint of what a bound depends on: the matrix, the weights of the queries, the blocks."""
    digest = hashlib.sha256(repr(workload.blocks).encode())
    weights = {} if workload.weights is None else {"weights": workload.weights}
    for name, part in sorted({**archive.split_matrix("W", plain(workload.matrix)), **weights}.items()):
        array = np.ascontiguousarray(part, dtype=np.float64 if part.dtype.kind == "f" else np.int64)
        digest.update(f"{name} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
