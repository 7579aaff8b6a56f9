"""What the tests of the boundary share: a domain in one line, a table counted, and nothing on the error stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from batchdp.domain import Domain, as_domain
from batchdp.engines import count, open_table
from batchdp.queries.query import Cut
from batchdp.workloads.encode.atoms import Atoms, LineAtoms

AGES = LineAtoms("age", "number", (Cut(15),), None)
MANY = tuple((value,) for value in range(40))


def domain(unit: str | None = None, **columns: Any) -> Domain:
    return as_domain({"table": "t", "privacy": {"unit": unit} if unit else {}, "columns": columns})


def counted(table: Any, declared: Domain, *atoms: Atoms, rows_per_unit: int = 1) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    with open_table(table, declared) as source:
        for codes, counts in count(source, atoms, unit=declared.privacy.unit, rows_per_unit=rows_per_unit):
            for row, number in zip(codes.tolist(), counts.tolist(), strict=True):
                found[tuple(row)] = found.get(tuple(row), 0) + number
    return found


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing about values is written anywhere; warnings are errors already."""
    yield
    assert "31337" not in capfd.readouterr().err
