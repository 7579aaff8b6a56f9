"""One small strategy of every kind of measurement and noise, with data: what is promised of releases holds for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from batchdp import Ledger, MatrixWorkload, optimize, workloads
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Group, Shape
from test_components import structure

SIZES = (4, 3, 5)


@dataclass(frozen=True)
class Kind:
    """A strategy, what it is given, and a budget."""

    strategy: Any
    data: Any
    budget: dict[str, Any]

    def ledger(self, folder: Path, times: float = 2) -> Ledger:
        """A ledger with room for so many releases."""
        return Ledger.create(folder / "budget.db", **{unit: times * own for unit, own in self.budget.items()})


def _pair(privacy: str) -> Any:
    return optimize(workloads.ranges(5, 8, 0), privacy=privacy, seconds=0.2)  # type: ignore[call-overload]


def _amounts() -> Any:
    """Ten steps between two cells, one of them with a record's count beside."""
    W = MatrixWorkload(np.array([[0.0, 10.0], [1.0, 1.0]]), ends=[(0, 1, 10)])
    return optimize(W, seconds=0.2)


def _blocks() -> Any:
    W = MatrixWorkload(np.eye(5), blocks=(2, 3), meetings=[(0, 1)])
    return optimize(W, seconds=0.2)


def _shaped() -> Any:
    """Three columns and their negatives span a hexagon; its sample is of its corners."""
    L = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    found: Any = optimize(L, shape="any", seconds=0.2)
    if found.shape is None:
        points = np.vstack([L.T, -L.T])
        shape = Shape((Group(_one(), points, np.full(6, 1 / 6)),))
        found = PairStrategy(MatrixWorkload(L), L, np.eye(2), shape=shape)
    return found


def _one() -> Any:
    from fractions import Fraction

    return Fraction(1)


def _tables(privacy: str) -> Any:
    return optimize(structure(workloads.marginals(SIZES, [0, 1, 2])), privacy=privacy)  # type: ignore[call-overload]


MAKERS: dict[str, Callable[[], Kind]] = {
    "pair, Laplace": lambda: Kind(_pair("pure"), np.arange(8), {"epsilon": 0.5}),
    "pair, Gaussian": lambda: Kind(_pair("zcdp"), np.arange(8), {"rho": 0.125}),
    "blocks": lambda: Kind(_blocks(), np.arange(5), {"epsilon": 0.5}),
    "amounts": lambda: Kind(_amounts(), [3, 4], {"epsilon": 0.5}),
    "K-norm": lambda: Kind(_shaped(), [5, 6, 7], {"epsilon": 0.5}),
    "tables, Gaussian": lambda: Kind(_tables("zcdp"), np.zeros((7, 3), dtype=np.int64), {"rho": 0.125}),
    "tables, Laplace": lambda: Kind(_tables("pure"), np.zeros((7, 3), dtype=np.int64), {"epsilon": 0.5}),
}


@cache
def kind(name: str) -> Kind:
    """By its name, made once."""
    return MAKERS[name]()
