"""One person more or less moves the counts by what is declared, and nothing else."""

from __future__ import annotations

import pytest

from boundary import ADAPTERS
from boundary.fuzzing import fuzz
from engines import ON_SPARK

PAIRS = 12
CASES = 16
QUICK = ("csv", "csv.gz", "parquet", "pandas of objects", "polars", "pyarrow", "duckdb connection", "postgres")
"""One way into every engine; the other ways into the same engines are slow, as all on Spark are."""
assert set(QUICK) <= set(ADAPTERS)


def marks(name: str) -> list[pytest.MarkDecorator]:
    if "spark" in name:
        return list(ON_SPARK)
    grouped = [pytest.mark.xdist_group("postgres")] if "postgres" in name else []
    return grouped if name in QUICK else [*grouped, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ADAPTERS])
def test_neighbours_look_alike(name: str) -> None:
    """`benchmarks/neighbours.py` tries many more."""
    *_, tally = fuzz(ADAPTERS[name], seed=0, pairs=PAIRS, cases=CASES)
    assert tally.pairs >= PAIRS
    assert not tally.problems, "\n".join(tally.problems[:3])
