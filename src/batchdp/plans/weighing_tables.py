"""How much every table's squared errors count in a plan of tables: by its objective and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchdp.asking import TableBatch
from batchdp.plans.options import FAIR, Options
from batchdp.plans.statements import Statement
from batchdp.plans.weighing import Weighing, within


def weighed(batch: TableBatch, options: Options) -> TableBatch:
    """The tables with their weights: of a statement alike, and every table of the domain is a statement of its own."""
    names = tuple(table.name for table in batch.workload.tables)
    statements = [Statement(item.name, own, item.weight, item.of, item.share) for item, own in batch.statements]
    weights = Weighing(names, tuple(statements), options).by_hand()
    if options.objective == FAIR:
        sizes, tops = batch.workload.table_sizes(), batch.workload.table_tops()
        tops[tops == 0] = 1.0  # no record changes it, and no weight its error
        fair = np.zeros(len(names))
        for statement in statements:  # a table that several need counts for each of them
            own = list(statement.queries)
            fair[own] += statement.share / sizes[own].sum()
        weights *= np.where(fair > 0, fair, 1 / sizes) / tops**2
    if (weights == 1).all():
        return batch
    return replace(batch, workload=replace(batch.workload, weights=within(weights)))
