"""What every search can be asked for, checked in one place: for `optimize`, and for plans, which keep it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from batchdp.errors import StrategyError, check_finite, check_whole
from batchdp.privacy import GAUSSIAN, LAPLACE, NOISES
from batchdp.strategies.account import Progress
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.shaped import ShapeLimits

AUTO = "auto"
"""Whichever noise has the smaller error at the same (ε, δ)."""
PRIVACIES = (*NOISES, AUTO)
OBJECTIVES: tuple[str, ...] = get_args(Objective)


@dataclass(frozen=True)
class Options:
    """What a search is asked for, checked: as in `optimize`."""

    objective: Objective = "sum"
    seconds: float | None = None
    """Nominal ones: what work is planned with, whatever the machine makes of it."""
    seed: int = 0
    tolerance: float = 1e-3
    progress: Progress | None = None

    def split(self, count: int, progress: Progress | None) -> Options:
        """What is asked of each of several searches: an even share of the seconds, if there are any, an observer."""
        return replace(self, seconds=None if self.seconds is None else self.seconds / count, progress=progress)


USUAL = Options()
"""Where nothing is asked for."""
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


def checked_search(
    privacy: Any, objective: Any, seconds: Any, seed: Any, tolerance: Any = 1e-3, progress: Progress | None = None
) -> Options:
    """Refuse a privacy, objective, time, seed or tolerance that cannot be meant."""
    if privacy not in PRIVACIES:
        kinds = f'"{LAPLACE.privacy}" ({LAPLACE.name}), "{GAUSSIAN.privacy}" ({GAUSSIAN.name}) or "{AUTO}"'
        raise StrategyError(f"privacy={privacy!r} must be {kinds}")
    if objective not in OBJECTIVES:
        raise StrategyError(f"objective={objective!r} must be {' or '.join(map(repr, OBJECTIVES))}")
    return Options(
        objective,
        None if seconds is None else check_finite("seconds", seconds, above=0),
        check_whole("seed", seed, 0),
        check_finite("tolerance", tolerance, above=0, below=1),
        progress,
    )
