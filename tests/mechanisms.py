"""Mechanisms from plain numbers, and measurements as plain lists, as tests like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from batchdp.mechanism.calibrate import least_noise
from batchdp.mechanism.measure import measure
from batchdp.mechanism.measurement import GroupNoise, Neighbours
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.sample import sample_independent
from batchdp.privacy import Budget, Noise
from batchdp.private import CellCounts
from batchdp.release.answering import Request, release


def prepared(
    strategy: Any, neighbours: Neighbours, amount: float, max_rows: int | None, *, exactly: bool | None = None
) -> Mechanism:
    """What `answer` would prepare at this ε or ρ."""
    return prepare(strategy, neighbours, Budget(strategy.noise, amount), max_rows, exactly=exactly)


@dataclass(frozen=True)
class Moved:
    """A group of which nothing is known but how much a record changes it."""

    moved: int


def calibrated(noise: Noise, moved: int, amount: float) -> GroupNoise:
    """The least noise for a group that a record changes by this much, to the power of the norm."""
    return least_noise(noise, Moved(moved), 1, Fraction(amount))


def drawn(noise: Noise, scale: float, count: int) -> list[int]:
    """So much noise of this scale."""
    return [int(z) for z in sample_independent(noise, np.array([scale]), np.array([count], dtype=np.int64))]


def measured(measurement: Any, counts: Any) -> list[int]:
    """All measurements of counts of cells, or of records, as whole numbers in their order."""
    given = CellCounts(np.asarray(counts)) if isinstance(counts, (np.ndarray, Sequence)) else counts
    found: list[int] = []
    for _, start, part in measure(measurement, given):
        assert start == len(found)
        found += [int(z) for z in part]
    return found


def no_noise(measurement: Any, noises: Any, progress: Any) -> Any:
    """A draw that adds nothing."""
    return np.zeros(int(measurement.sizes.sum()), dtype=np.int64)


def released(
    strategy: Any,
    read: Any,
    ledger: Any,
    amount: float,
    *,
    neighbours: Neighbours | None = None,
    max_rows: int | None = None,
    label: str = "records",
    draw: Any = no_noise,
    names: Any = None,
    legend: Any = None,
    **options: Any,
) -> Any:
    """What `answer` does with what `read` counts, at this ε or ρ, with a test's own noise: none, unless it is given."""
    request = Request(strategy, read, neighbours or Neighbours(), max_rows, label, column_names=names, legend=legend)
    return release(request, Budget(strategy.noise, amount), ledger=ledger, draw=draw, **options)


def reread(release: Any, law: dict[str, Any] | None = None, **reader: Any) -> Any:
    """A release of measured cells that is read otherwise: with another law of the noise, or other matrices."""
    own = {"noise_law": replace(release.reader.noise_law, **law)} if law else {}
    return replace(release, reader=replace(release.reader, **own, **reader), given=None)
