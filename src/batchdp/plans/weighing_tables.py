"""How much every table's squared errors count in a plan of tables: by its objective and by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from batchdp.asking import TableBatch
from batchdp.plans.options import FAIR, Options
from batchdp.plans.statements import Statement
from batchdp.plans.weighing import Weighing, within

if TYPE_CHECKING:
    from batchdp.sql.selections import Selection


def weighed(batch: TableBatch, selections: Sequence[Selection], options: Options) -> TableBatch:
    """The tables with their weights: of a statement alike, and every table of the domain is a statement of its own."""
    names = [table.name for table in batch.workload.tables]
    statements = tuple(_statements(selections, names))
    weights = Weighing(tuple(names), statements, options).by_hand()
    if options.objective == FAIR:
        sizes, tops = batch.workload.table_sizes(), batch.workload.table_tops()
        tops[tops == 0] = 1.0  # no record changes it, and no weight its error
        for statement in statements:
            own = list(statement.queries)
            weights[own] /= sizes[own].sum() * tops[own] ** 2
    if (weights == 1).all():
        return batch
    return replace(batch, workload=replace(batch.workload, weights=within(weights)))


def _statements(selections: Sequence[Selection], names: Sequence[str]) -> Iterator[Statement]:
    """Items of a SELECT with a table for each of their sets, in the order of the tables; then the domain's own."""
    start = 0
    for selected in selections:
        for item in selected.counted:
            end = start + len(selected.grouping.sets)
            yield Statement(item.name, tuple(range(start, end)), selected.statement.weight)
            start = end
    for t in range(start, len(names)):
        yield Statement(names[t], (t,))
