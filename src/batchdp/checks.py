"""Checks of options at the door: each names the argument, the value and the remedy."""

from __future__ import annotations

import math
import operator
from numbers import Real

from batchdp.errors import BatchDPError, StrategyError


def check_whole(name: str, value: object, least: int, error: type[BatchDPError] = StrategyError) -> int:
    """A whole number of at least `least`."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise error(f"{name}={value!r} must be a whole number of at least {least}")
    return number


def check_finite(
    name: str, value: object, *, least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> float:
    """A finite number of at least `least`, above `above` and below `below`."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not (math.isfinite(number) and number >= least and number > above and number < below):
        bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
        bounds += [f"below {below:g}"] * (below < math.inf)
        raise StrategyError(f"{name}={value!r} must be a finite number {' and '.join(bounds)}".rstrip())
    return number
