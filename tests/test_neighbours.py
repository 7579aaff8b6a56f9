"""One person more or less moves the counts by what is declared, and nothing else."""

from __future__ import annotations

import pytest

from boundary import ADAPTERS
from boundary.fuzzing import fuzz
from engines import ON_SPARK

PAIRS = 12
MANY_PAIRS = 120
"""Of codes, which take a fraction of the time."""
CASES = 16
QUICK = ("csv", "csv.gz", "parquet", "pandas of objects", "polars", "pyarrow", "duckdb connection", "postgres")
"""One way into every engine, and all for codes; the other ways into the same engines are slow, as all on Spark are."""
assert set(QUICK) <= set(ADAPTERS)


def marks(name: str) -> list[pytest.MarkDecorator]:
    if "spark" in name:
        return list(ON_SPARK)
    grouped = [pytest.mark.xdist_group("postgres")] if "postgres" in name else []
    return grouped if name in QUICK or ADAPTERS[name].codes else [*grouped, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ADAPTERS])
def test_neighbours_look_alike(name: str) -> None:
    """`benchmarks/neighbours.py` tries many more."""
    pairs = MANY_PAIRS if ADAPTERS[name].codes else PAIRS
    *_, tally = fuzz(ADAPTERS[name], seed=0, pairs=pairs, cases=CASES)
    assert tally.pairs >= pairs
    assert not tally.problems, "\n".join(tally.problems[:3])
    assert not (ADAPTERS[name].codes and tally.refused)  # whose types may all be guessed from records
