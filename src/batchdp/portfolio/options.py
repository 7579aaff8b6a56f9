"""What every search can be asked for, checked in one place: for `optimize`, and for plans, which keep it."""

from __future__ import annotations

from typing import Any, get_args

from batchdp.bounds.optimality import Objective
from batchdp.checks import finite, whole
from batchdp.errors import StrategyError
from batchdp.privacy import GAUSSIAN, LAPLACE, NOISES
from batchdp.strategies.shaped import ShapeLimits

AUTO = "auto"
"""Whichever noise has the smaller error at the same (ε, δ)."""
PRIVACIES = (*NOISES, AUTO)
OBJECTIVES: tuple[str, ...] = get_args(Objective)


PAIR, ANY = "pair", "any"
SHAPES = (PAIR, ANY)
"""Of noise: Laplace noise on a pair, or whichever is better, that or noise in the shape of the batch."""


def checked_shape(shape: Any, privacy: Any, limits: Any) -> ShapeLimits:
    """The limits of a shape; refused if one cannot be meant, or there is no noise of this privacy."""
    if shape not in SHAPES:
        raise StrategyError(f"shape={shape!r} must be {' or '.join(map(repr, SHAPES))}")
    if shape == ANY and privacy == GAUSSIAN.privacy:
        raise StrategyError(
            f"shape={shape!r}: noise in the shape of a batch has pure ε, and there is no {GAUSSIAN.name} noise of that "
            f'kind; leave out shape, or ask for privacy="{LAPLACE.privacy}"'
        )
    if not isinstance(limits, ShapeLimits):
        raise StrategyError(f"limits={limits!r} must be ShapeLimits, such as ShapeLimits(rank=10)")
    return limits


def checked_search(privacy: Any, objective: Any, seconds: Any, seed: Any) -> tuple[float | None, int]:
    """Refuse a privacy, objective, time or seed that cannot be meant; the last two as plain numbers."""
    if privacy not in PRIVACIES:
        kinds = f'"{LAPLACE.privacy}" ({LAPLACE.name}), "{GAUSSIAN.privacy}" ({GAUSSIAN.name}) or "{AUTO}"'
        raise StrategyError(f"privacy={privacy!r} must be {kinds}")
    if objective not in OBJECTIVES:
        raise StrategyError(f"objective={objective!r} must be {' or '.join(map(repr, OBJECTIVES))}")
    return None if seconds is None else finite("seconds", seconds, above=0), whole("seed", seed, 0)
