"""What the spends of a ledger amount to as (ε, δ)-differential privacy: each by itself, and all together.

Pure guarantees add up in ε; every guarantee implies one in ρ, which add up too, and convert to an ε for every δ. Both
hold at once, so the smaller one is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchdp.ledger.chain import Entry
from batchdp.mechanism.conversion import by_theorem, epsilons_at
from batchdp.privacy import MOST, UNITS, Budget

DELTAS = tuple(10.0**-power for power in range(3, 13))
MOST_CURVES = 20
"""Spends that get a curve of their own: the latest ones."""


@dataclass(frozen=True)
class Curve:
    """The ε of a guarantee for each δ."""

    name: str
    epsilons: tuple[float, ...]


def list_curves(entries: Sequence[Entry], deltas: Sequence[float] = DELTAS) -> tuple[Curve, ...]:
    """One curve for each of the latest spends, and the last one for all together; none where nothing was spent."""
    if not entries:
        return ()
    guarantees = [_guarantee(entry) for entry in entries]
    shown = [
        Curve(entry.release_id, _curve(*guarantee, deltas))
        for entry, guarantee in list(zip(entries, guarantees, strict=True))[-MOST_CURVES:]
    ]
    epsilon, rho = (math.fsum(one) for one in zip(*guarantees, strict=True))
    return (*shown, Curve(f"all {len(entries):,}", _curve(epsilon, rho, deltas)))


def _guarantee(entry: Entry) -> tuple[float, float]:
    """The ε, infinite where there is none, and the ρ of a spend."""
    asked = Budget(UNITS[entry.unit], entry.requested)
    if asked.noise.is_pure:
        return float(asked), float(asked.noise.charge(asked.amount, "rho") or 0)
    return math.inf, float(asked)


def _curve(epsilon: float, rho: float, deltas: Sequence[float]) -> tuple[float, ...]:
    converted = epsilons_at if rho <= MOST else by_theorem
    return tuple(min(epsilon, one) for one in converted(rho, deltas))
