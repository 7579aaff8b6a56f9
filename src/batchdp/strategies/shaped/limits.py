"""Up to where noise is shaped: what a draw may take, and how carefully its error is simulated."""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.checks import check_finite, check_whole


@dataclass(frozen=True)
class ShapeLimits:
    """Limits of `shape="any"`; a batch beyond them is answered by the best pair."""

    rank: int = 16
    """Measurements that share one body at the most: with every one more a draw takes two or three times as long."""
    groups: int = 3
    """Bodies at the most; a batch of a higher rank than `rank` times this is left to pairs."""
    columns: int = 5000
    """Different columns of what is measured, up to which a body is built from them."""
    seconds: float = 60.0
    """What one draw of all noise may take, by the estimate of a plan."""
    directions: int = 4096
    """In which the body is looked at for its error: the standard error goes with one over the root of them."""
    clearly: float = 3.0
    """Standard errors of the simulated error by which a shape must be better than the best pair to be taken."""

    def __post_init__(self) -> None:
        checked: dict[str, int | float] = {
            name: check_whole(name, getattr(self, name), least)
            for name, least in (("rank", 1), ("groups", 1), ("columns", 1), ("directions", 100))
        }
        checked["seconds"] = check_finite("seconds", self.seconds, above=0)
        checked["clearly"] = check_finite("clearly", self.clearly, least=0)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


DEFAULT = ShapeLimits()
