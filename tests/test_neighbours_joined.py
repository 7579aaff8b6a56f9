"""One person more or less in two tables that are joined moves every relation by its cap at most, in every engine."""

from __future__ import annotations

import pytest

from boundary.joined import WAYS, fuzz
from engines import ON_SPARK

QUICK = ("duckdb", "pandas")
"""Those that `make test` goes through; others are with the slow ones."""


def marks(way: str) -> list[pytest.MarkDecorator]:
    if "spark" in way:
        return list(ON_SPARK)
    grouped = [pytest.mark.xdist_group("postgres")] if way == "postgres" else []
    return grouped if way in QUICK else [*grouped, pytest.mark.slow]


@pytest.mark.parametrize("way", [pytest.param(way, marks=marks(way)) for way in WAYS])
def test_joined_neighbours_look_alike(way: str) -> None:
    """`benchmarks/neighbours.py` tries many more."""
    tally = fuzz(way, seed=0, pairs=6)
    assert tally.pairs >= 6
    assert not tally.problems, "\n".join(tally.problems[:3])
    assert tally.closest > 0
