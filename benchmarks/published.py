"""Batches over many columns with the best figure that others publish for each, and some that nobody has one for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchdp.workloads.kronecker import KroneckerWorkload
from reproduction.peers import figures
from reproduction.peers.batches import BATCHES, census

__all__ = ["PUBLISHED", "PURE", "Published", "census"]


@dataclass(frozen=True)
class Published:
    """A batch, what is minimised, and the figure of the best other program."""

    name: str
    make: Callable[[], KroneckerWorkload]
    figure: float | None
    source: str
    largest: bool = False


def _best(noise: str) -> tuple[Published, ...]:
    """One a task."""
    known = [figure for figure in figures.published() if figure.task.noise == noise]
    best = {one.task: one for one in sorted(known, key=lambda one: -one.value)}
    return tuple(
        Published(task.batch, BATCHES[task.batch], one.value, one.program, task.measure == figures.LARGEST)
        for task, one in ((task, best[task]) for task in dict.fromkeys(one.task for one in known))
    )


PUBLISHED = (*_best("gaussian"), Published("10^100 ≤ 3-way", BATCHES["10^100 ≤ 3-way"], None, "", largest=True))
PURE = (*_best("laplace"), *(Published(name, BATCHES[name], None, "") for name in ("10^100 ≤ 3-way", "2^10 2-way")))
