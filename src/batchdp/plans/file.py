"""Plan files: what is asked, the domain, how the strategy was looked for, and what it measures.

Nothing that the guarantee rests on is believed: statements are parsed again, cells or tables found again, and the
strategy is refused unless it reproduces them. Sensitivities are never stored.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from batchdp import archive
from batchdp.domain import Domain, as_domain
from batchdp.errors import BatchDPError, PlanError, check_finite
from batchdp.plans import strategy_io
from batchdp.plans.componentwise import ComponentCells, bounds_of, query_tables
from batchdp.plans.criteria import statements_of
from batchdp.plans.encoding import CellBatch, Encoding, cells_in, check_of_one_table
from batchdp.plans.options import Options
from batchdp.plans.planned import Plan
from batchdp.plans.source import cells_by_components
from batchdp.plans.weighing import Weighing, weighed
from batchdp.privacy import GAUSSIAN
from batchdp.sql.script import Batch, batch_of, read_selections
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.encode import checked_orders, tables_of
from batchdp.workloads.encode.classes import MOST_AMOUNTS

FORMAT = "batchdp-plan-0.3"


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the plan, in one piece or not at all."""
    archive.save(path, *_written(plan), PlanError)


def _written(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file holds: a header and arrays."""
    of_strategy, arrays = strategy_io.described(plan.strategy)
    # What the batch is found by again, besides the SQL, the marginals and the domain: nothing for tables.
    of_batch: dict[str, Any] = {}
    cells = plan.batch.cells if isinstance(plan.batch, CellBatch) else None
    if isinstance(cells, ComponentCells):
        of_batch = {"components": cells.sets, "measures": [len(mu) for mu in cells.averages]}
        of_batch["limit"] = plan.strategy.limit
        arrays["averages"] = np.concatenate(cells.averages)
    elif cells is not None:
        of_batch = {"blocks": [list(block.queries) for block in cells.blocks]}
    header: dict[str, Any] = {
        "format": FORMAT,
        "planner": plan.planner,
        "sql": plan.sql,
        "marginals": plan.marginals,
        "domain": plan.domain.model_dump(mode="json", exclude_none=True),
        "options": plan.options.as_dict(),
        **of_batch,
        **of_strategy,
    }
    return header, arrays


def load_plan(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Plan:
    """Read a plan that was saved. Nothing in the file is executed, and every sensitivity is computed anew.

    Args:
        path: the file.
        most_bytes: the most that it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    header, arrays = archive.load(path, FORMAT, PlanError, "plan", most_bytes)
    most = archive.allowance(Path(path).stat().st_size, most_bytes)
    limit = MOST_AMOUNTS.set(most // 12)  # an entry of W takes so many bytes
    try:
        domain = as_domain(header["domain"], source=f"{path}: domain")
        sql, given = header["sql"], header["marginals"]
        if sql is None and given is None:
            raise PlanError("it asks for nothing")
        selections = () if sql is None else read_selections(sql, domain, source=f"{path}: queries")
        if given is not None or header["strategy"]["kind"] != strategy_io.PAIR:
            check_of_one_table(selections, domain)
        orders = None if given is None else checked_orders(given, domain)
        options = Options(**header["options"])
        if header["strategy"]["kind"] == strategy_io.PAIR:
            if sql is None or orders is not None:
                raise PlanError("its strategy is over cells, and it asks for tables")
            batch, strategy = _over_cells(header, arrays, batch_of(selections), domain, options, most_bytes)
        else:
            batch = tables_of(selections, orders, domain, text=sql, joint=options.privacy == GAUSSIAN.privacy)
            strategy = strategy_io.read(header, arrays, weighed(batch, options))
        plan = Plan(sql, orders, domain, batch, strategy, options, str(header["planner"])[:50])
        known, parts = _written(plan)
        archive.check_known(header, arrays, {**known, "proven": strategy_io.KEYS}, {*parts, *strategy_io.ARRAYS})
        return plan
    except BatchDPError as error:
        raise PlanError(f"{path} cannot be used, plan again: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise PlanError(f"{path} is not a plan, or is damaged ({type(error).__name__})") from error
    finally:
        MOST_AMOUNTS.reset(limit)


def _over_cells(
    header: Any, arrays: Any, found: Batch, domain: Domain, options: Options, most_bytes: int | None
) -> tuple[Encoding, Strategy]:
    """The queries over the cells of a file, and the pair for them."""
    if "components" not in header:
        counted = cells_in(
            found.queries, domain, most=options.max_cells, partition=header["blocks"], relations=found.relations
        )
        batch = CellBatch(counted, found)
        return batch, strategy_io.read(header, arrays, weighed(batch, options), most_bytes)
    ends = np.cumsum(header["measures"])
    averages = np.split(archive.read_numbers("averages", arrays), ends[:-1])
    sets = [[int(c) for c in own] for own in header["components"]]
    # Weighed by the most that a record can change a query, which the blocks of components do not show.
    by = Weighing([query.name for query in found.queries], statements_of(found.queries), options)
    factored = query_tables(found, domain, by)
    batch = CellBatch(cells_by_components(found, domain, factored, sets, averages, options.max_cells), found)
    weighted = replace(batch.workload, weights=factored.weights)
    strategy = strategy_io.read_pair(header, arrays, weighted, most_bytes)
    # A limit is kept unless its own error refutes it: to prove it again would be to plan again, and what could be
    # proven of the blocks' matrix is not about the queries.
    total = strategy.expected_squared_error(**strategy.noise.reference.arguments)
    lower = check_finite("limit", header["limit"], least=0)
    kept = lower if lower <= total * (1 + 1e-9) else 0.0
    return batch, replace(strategy, proven=bounds_of(kept, total, strategy.workload.queries))
