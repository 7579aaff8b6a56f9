"""An open table: what it looks like, and the engine that counts in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from batchdp.domain.names import folded
from batchdp.errors import TableError
from batchdp.tables.compiling import Query
from batchdp.tables.shield import shielded

UNKNOWN_PROGRESS = math.nan

Columns = list[npt.NDArray[np.int64]]
"""One array for each column of a query's result."""


def as_columns(batch: Any) -> Columns:
    """An Arrow record batch of integers."""
    return [np.asarray(column, np.int64) for column in batch.columns]


class Engine(Protocol):
    """Whatever runs a query."""

    dialect: str
    """Whose SQL it speaks."""
    collates: bool
    """Whether its texts may have a collation, under which two of them can be equal that are not."""

    def check(self, query: Query) -> None:
        """Let the engine refuse the query before anything is charged, without reading a record."""

    def batches(self, query: Query) -> Iterator[Columns]:
        """The columns of a query's result, batch by batch; the query is over the source's table."""

    def progress(self) -> float:
        """The share of the running query that is done, or NaN where the engine does not say."""

    def close(self) -> None:
        """Put everything back as it was: close what was opened, drop what was made."""


Units = Mapping[str, Any]
"""By column: what tells privacy units apart, as an expression, where that is not the column as it is read."""


def mended(table: Any, columns: Mapping[str, Any], units: Mapping[str, Any]) -> tuple[Any, Units]:
    """The ibis table with some columns replaced, and with what tells units apart beside them."""
    if not columns and not units:
        return table, {}
    places = {name: f"{name} as a privacy unit" for name in units}
    changed = table.mutate(**columns, **{places[name]: unit for name, unit in units.items()})
    return changed, {name: changed[place] for name, place in places.items()}


@dataclass(frozen=True)
class Opened:
    """A table in an engine, before its schema is compared with a domain."""

    description: str
    table: Any
    units: Units
    engine: Engine


@dataclass(frozen=True, repr=False)
class Source:
    """A table that is open for reading. Use it in a `with` block, or close it."""

    description: str
    """What it is, for messages; without passwords."""
    table: Any
    """An ibis table, whose schema is all that has been looked at."""
    engine: Engine
    names: Mapping[str | None, str]
    """What is wanted of it, as the user's table spells it: declared columns, and under None the privacy unit."""
    places: Mapping[str | None, str]
    """The same as `table` calls it."""
    unit: Any = None
    """Who a record belongs to, as an expression over `table`; None where nobody asked."""

    def column(self, name: str) -> Any:
        """The table's column of a declared name."""
        place = next((self.places[key] for key in self.places if key and folded(key) == folded(name)), None)
        if place is None:
            raise TableError(f"column {name!r} was not asked for when {self.description} was opened")
        return self.table[place]

    def close(self) -> None:
        """Leave the engine as it was."""
        shielded(self.engine.close, f"closing {self.description}")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Source: {self.description}, columns {', '.join(dict.fromkeys(self.names.values()))}>"
