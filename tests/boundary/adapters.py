"""An engine as the fuzzer sees it: types of columns, and a table made of rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from boundary.domains import Case
from boundary.neighbours import Row, Storages
from boundary.storages import Storage


class Adapter:
    """One way to hand over a table."""

    kinds: ClassVar[Mapping[str, tuple[Storage, ...]]]
    """By the kind that a column is declared to hold, the types that it can have."""
    units: ClassVar[tuple[Storage, ...]]
    """Types of a unit that is not declared otherwise."""
    measured: ClassVar[bool] = True
    """Whether neighbours have the same types whatever their records, so that their distance is asked for."""

    codes: ClassVar[bool] = False
    """Whether the table is one of codes, without a domain."""

    together: ClassVar[int] = 1
    """So many tables are counted at once, told apart by a column, where starting a query takes long."""

    def __init__(self, name: str) -> None:
        self.name = name

    def storages(self, rng: Random, case: Case) -> Storages:
        """A type for every column: mostly one that fits, now and then one that has to be refused."""

        def storage(name: str) -> Storage:
            kind: str | None = case.kind(name)
            if kind is None:
                return rng.choice(self.units)
            if rng.random() < 0.04:
                kind = rng.choice(sorted(self.kinds))
            return rng.choice(self.kinds[kind])

        return {name: storage(name) for name in case.names}

    def manner(self, rng: Random) -> Any:
        """What else there is to choose, alike for neighbours."""
        return None

    def table(self, rows: list[Row], storages: Storages, folder: Path, manner: Any) -> Any:
        """The rows as something that `open_table` takes, at the same place as its neighbours."""
        raise NotImplementedError

    def close(self, table: Any) -> None:
        """Give back what the table holds."""
