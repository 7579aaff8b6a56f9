"""What a release says of its answers beside their queries, as it is serialised and digested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchdp.domain.counted import Counted
from batchdp.plans.source import Source
from batchdp.queries.expressions import Asked, written
from batchdp.queries.views import View
from batchdp.workloads.encode import AskedTables, Legend, write_runs


@dataclass(frozen=True, eq=False)
class Said:
    """What is said of answers beside their queries: what columns and rows are called, what is shown, what is counted.

    Args:
        column_names, asked, legend, counted, views, source: as in `Release`.
    """

    column_names: tuple[str, ...] = ()
    asked: Sequence[Asked[int]] = ()
    legend: Legend | None = None
    counted: Counted | None = None
    views: tuple[View, ...] = ()
    source: Source | None = None

    def header(self) -> dict[str, Any]:
        """As it is serialised, beside the legend's array."""
        return {
            "column_names": list(self.column_names),
            "asked": write_runs(self.asked.runs) if isinstance(self.asked, AskedTables) else written(self.asked),
            "legend": self.legend and self.legend.header(),
            "counted": self.counted and self.counted.header(),
            **({"views": [one.header() for one in self.views]} if self.views else {}),
            **({} if self.source is None else {"source": self.source.header()}),
        }

    def told(self) -> dict[str, Any]:
        """For digests: with the digest of the legend in the place of all of it."""
        return self.header() | {"legend": self.legend and self.legend.digest}
