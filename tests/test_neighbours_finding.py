"""One person more or less, as `discover` and `check` count them, in every engine."""

from __future__ import annotations

import pytest

from boundary import ADAPTERS
from boundary.finding import fuzz
from engines import ON_SPARK

QUICK = ("csv", "parquet", "polars", "duckdb connection")
"""One way into every reader; the rest is slow, and `benchmarks/neighbours.py` tries many more."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    if "spark" in name:
        return list(ON_SPARK)
    grouped = [pytest.mark.xdist_group("postgres")] if "postgres" in name else []
    return grouped if name in QUICK else [*grouped, pytest.mark.slow]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name)) for name, one in ADAPTERS.items() if not one.codes]
)
def test_neighbours_look_alike_to_discover_and_check(name: str) -> None:
    pairs = 8 if name in QUICK else 4
    tally = fuzz(ADAPTERS[name], seed=0, pairs=pairs, cases=3)
    assert tally.pairs >= pairs
    assert not tally.problems, "\n".join(tally.problems[:3])
    assert tally.closest == 1 or name not in QUICK  # a person who moves counts by all that is allowed
