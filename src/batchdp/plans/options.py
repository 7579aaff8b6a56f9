"""How a strategy is looked for: the options of `plan`, with their defaults, checked once and kept in the plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from batchdp.bounds.optimality import Objective
from batchdp.cells import MOST_CELLS
from batchdp.checks import whole
from batchdp.measuring.conversion import checked_delta
from batchdp.portfolio.options import checked_search
from batchdp.privacy import LAPLACE, Budget, Privacy


@dataclass(frozen=True)
class Options:
    """How the strategy was looked for; every field is an argument of `plan`, and all but the last of `optimize`."""

    privacy: Privacy | Literal["auto"] = LAPLACE.privacy
    objective: Objective = "sum"
    seconds: float | None = None
    seed: int = 0
    epsilon: float = 1.0
    delta: float | None = None
    max_cells: int = MOST_CELLS

    def __post_init__(self) -> None:
        seconds, seed = checked_search(self.privacy, self.objective, self.seconds, self.seed)
        checked = {
            "seconds": seconds,
            "seed": seed,
            "epsilon": float(Budget(LAPLACE, self.epsilon)),
            "delta": None if self.delta is None else checked_delta(self.delta),
            "max_cells": whole("max_cells", self.max_cells, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """For files and digests."""
        return asdict(self)

    def of_search(self) -> dict[str, Any]:
        """The arguments of `optimize` among them."""
        return {name: value for name, value in self.as_dict().items() if name != "max_cells"}
