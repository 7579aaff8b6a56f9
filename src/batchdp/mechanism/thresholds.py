"""Values that are found by a threshold: seen only where enough units have them, with noise. No data is seen here.

*Guarantee.* Every value that any unit has is counted, discrete Laplace noise of scale b is added, and the value is seen
if that reaches τ. A unit moves at most k counts by 1. Values that other units have too are ε-private with ε = k/b. A
value that is that unit's alone is never seen without it, and with it by chance q^(τ−1)/(1 + q), q = e^(−1/b): any of k
by at most δ = k q^(τ−1)/(1 + q). Not seeing such a value is certain without the unit, and with it has a chance of at
least q where q^(τ−1)/(1 + q) ≤ 1 − q, as is seen to: that is within its e^(1/b). Replacing a unit moves 2k counts
and has at most k values alone on either side: ε = 2k/b, and the same δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from batchdp.accounting import least_threshold
from batchdp.errors import PrivacyParameterError
from batchdp.mechanism.calibrate import calibrate_counts
from batchdp.mechanism.measurement import Neighbours


@dataclass(frozen=True)
class Threshold:
    """The noise of the counts of a column's values, and how many it takes to be seen."""

    scale: float
    least: int
    """τ, of counts with their noise."""
    epsilon: Fraction
    delta: Fraction


def threshold_for(epsilon: Fraction, delta: Fraction, neighbours: Neighbours) -> Threshold:
    """The least noise and threshold with which values of texts that units have are (ε, δ)-private."""
    if not (epsilon > 0 and 0 < delta < 1):
        raise PrivacyParameterError(f"epsilon={float(epsilon)!r} and delta={float(delta)!r} must be above 0")
    scale = calibrate_counts(neighbours.factor, epsilon).scale
    least = least_threshold(neighbours.rows_per_unit, Fraction(scale), delta)
    return Threshold(scale, least, epsilon, delta)
