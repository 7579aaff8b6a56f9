"""The least noise that is certified for a measurement and a budget. It exists once, for every kind of measurement.

Nothing is calibrated unless OpenDP's own privacy map of the exact sensitivity is at most the group's part of the
budget, the theorem behind the map agrees in fractions, and the exact sum of all losses is at most what is charged.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np

from batchdp.accounting import LEAST_SCALE
from batchdp.errors import LatticeError, PrivacyParameterError
from batchdp.mechanism.measurement import NOTHING, GroupNoise, IntegerMeasurement, total_loss
from batchdp.privacy import LAPLACE, Budget, Gaussian, KNorm, Laplace, Noise

LARGEST_SCALE = 2.0**55
"""Noise beyond this could leave 64 bits."""
LARGEST_BODIES = 2**100
"""Of noise in the shape of a body: beyond this it protects nothing that anybody could read."""
ATTEMPTS = 100


def calibrate(measurement: IntegerMeasurement, factor: int, budget: Budget) -> tuple[GroupNoise, ...]:
    """The least noise of every group for neighbours that differ by `factor` records.

    Guarantee: measurements with this noise are `budget`-private between tables that differ by so many records.
    """
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise PrivacyParameterError(f"factor={factor!r} must be a whole number of at least 1")
    if budget.noise.unit != measurement.noise.unit:
        raise PrivacyParameterError(f"{budget} is not the budget of {measurement.noise.name} noise")
    shares = [group.share for group in measurement.groups]
    exact = all(isinstance(share, Fraction) for share in shares)
    whole = max(1, sum(shares) if exact else float(np.sum(shares))) * (1 + measurement.slack)
    charged = float_below(budget.amount)
    if charged == 0:
        raise PrivacyParameterError(f"{budget.noise.unit}={budget.amount} is too small for any noise; raise it")
    noises = tuple(
        least_noise(measurement.noise, group, factor, _part_of(charged, group.share, whole)) if group.moved else NOTHING
        for group in measurement.groups
    )
    if total_loss(noises) > Fraction(charged):
        lost = f"{float(total_loss(noises))!r}"
        raise LatticeError(f"the measurements lose {lost} in all, more than {budget.noise.unit}={charged!r}")
    return noises


def _part_of(charged: float, share: Fraction | float, whole: Fraction | float) -> Fraction:
    """A group's part of what is charged; exact where its share is a fraction."""
    if isinstance(share, Fraction):
        return Fraction(charged) * share / Fraction(whole)
    return Fraction(charged * float(share) / float(whole))


@singledispatch
def least_noise(noise: Noise, group: Any, factor: int, budget: Fraction) -> GroupNoise:
    """The least noise of a group within its part of the budget; a new kind of noise registers its own."""
    raise LatticeError(f"{noise.name} noise has no calibration")


@least_noise.register
def _(noise: Laplace, group: Any, factor: int, budget: Fraction) -> GroupNoise:
    moved = _check_whole(group.moved) * factor
    if moved >= 2**62:
        raise LatticeError(f"neighbours change the measurements by {moved:.3g} steps, more than fits; lower max_rows")
    return _certify(noise, moved, moved, budget)


@least_noise.register
def _(noise: Gaussian, group: Any, factor: int, budget: Fraction) -> GroupNoise:
    moved = _check_whole(group.moved) * factor**2
    return _certify(noise, moved, root_above(moved), budget)


@least_noise.register
def _(noise: KNorm, group: Any, factor: int, budget: Fraction) -> GroupNoise:
    """One person moves a group by at most `factor` columns of its body, each of norm at most 1, proven here."""
    if (outside := group.column_outside()) is not None:
        raise LatticeError(f"column {outside} of the measurements is outside of its body")
    loss = float_below(budget)
    if loss == 0 or factor / Fraction(loss) > LARGEST_BODIES:
        raise PrivacyParameterError(
            f"epsilon={float(budget)!r} asks for noise of more than {float(LARGEST_BODIES):.0e} bodies; raise epsilon"
        )
    scale = float(factor / Fraction(loss))
    if Fraction(scale) * Fraction(loss) < factor:
        scale = math.nextafter(scale, math.inf)
    if scale * group.thinnest < LEAST_SCALE:
        raise _refuse_budget(noise, loss, scale * group.thinnest)
    return GroupNoise(factor, scale, loss)


def _check_whole(moved: int) -> int:
    """What a record changes, if it is one of Python's own whole numbers: others wrap around, or are rounded."""
    if isinstance(moved, bool) or not isinstance(moved, int) or moved < 1:
        raise PrivacyParameterError(f"moved={moved!r} must be a whole number above 0")
    return moved


def calibrate_counts(values: int, epsilon: Fraction) -> GroupNoise:
    """The least discrete Laplace noise on counts that one unit moves by `values` in all; they are no lattice."""
    return _certify(LAPLACE, _check_whole(values), values, epsilon, least=0)


def _certify(noise: Noise, moved: int, change: float, budget: Fraction, least: float = LEAST_SCALE) -> GroupNoise:
    """The least scale at which OpenDP's map of the change is within the budget, checked against its theorem."""
    most = float_below(budget)
    if not 0 < most < math.inf:
        raise PrivacyParameterError(f"{noise.unit}={most!r} must be finite and above 0")
    scale = noise.scale(change, most)
    if scale < least:
        raise _refuse_budget(noise, most, scale)
    for _ in range(ATTEMPTS):
        if not scale <= LARGEST_SCALE:
            raise LatticeError(
                f"{noise.unit}={most!r} asks for noise of {scale:.3g} lattice steps, more than fits; raise "
                f"{noise.unit}, or lower the public cap max_rows"
            )
        loss = float(opendp_noise(noise, scale).map(change))
        if loss <= most:
            if Fraction(loss) < noise.loss(moved, scale):  # the theorem behind the map
                raise PrivacyParameterError(f"OpenDP's map says {loss} for noise that loses more; do not release")
            return GroupNoise(moved, scale, loss)
        scale = math.nextafter(scale, math.inf)
    raise PrivacyParameterError(f"{noise.unit}={most!r}: no scale satisfies OpenDP's privacy map; choose another one")


def _refuse_budget(noise: Noise, budget: float, scale: float) -> LatticeError:
    return LatticeError(
        f"a budget of {budget:.3g} leaves noise of {scale:.2g} lattice steps, too little to hide behind; lower "
        f"{noise.unit}"
    )


def opendp_noise(noise: Noise, scale: float) -> Any:
    """OpenDP's measurement: adds noise to integer vectors, and has a privacy map of their L1 or L2 distance."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if isinstance(noise, Laplace):
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    if isinstance(noise, Gaussian):
        return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    raise LatticeError(f"OpenDP has no {noise.name} noise")


def float_above(number: int) -> float:
    """The least float that is not below a whole number; beyond 2^53 the nearest one may be."""
    nearest = float(number)
    return nearest if int(nearest) >= number else math.nextafter(nearest, math.inf)


def float_below(amount: Fraction) -> float:
    """The largest float that is not above a fraction."""
    nearest = float(amount)
    return nearest if Fraction(nearest) <= amount else math.nextafter(nearest, -math.inf)


def root_above(squares: int) -> float:
    """The least float that is not below the root of a whole number."""
    shift = max(0, 60 - squares.bit_length() // 2)  # so many bits of the root behind the point
    root = math.isqrt((squares << 2 * shift) - 1) + 1
    found = float_above(root) / 2.0**shift
    assert Fraction(found) ** 2 >= squares
    return found
