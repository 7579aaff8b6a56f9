"""Files of plans of tables: the SQL, the domain, and what the strategy measures.

As in `file`, nothing that the guarantee rests on is believed: statements are parsed again, tables and values found
again, and the strategy is refused unless it reproduces them.
"""

from __future__ import annotations

import os
from typing import Any

from batchdp import archive
from batchdp.asking import checked_orders, tables_of
from batchdp.domain import as_domain
from batchdp.errors import BatchDPError, PlanError
from batchdp.plans import keeping
from batchdp.plans.options import Options
from batchdp.plans.tabled import TablePlan
from batchdp.plans.weighing_tables import weighed
from batchdp.sql import read_selections

FORMAT = "batchdp-table-plan-0.3"


def save_table_plan(plan: TablePlan, path: str | os.PathLike[str]) -> None:
    """Write the plan, in one piece or not at all."""
    archive.save(path, *written(plan), PlanError)


def written(plan: TablePlan) -> tuple[dict[str, Any], dict[str, Any]]:
    """What its file holds: a header and arrays."""
    strategy, arrays = keeping.described(plan.strategy)
    header: dict[str, Any] = {
        "format": FORMAT,
        "planner": plan.planner,
        "sql": plan.sql,
        "marginals": plan.marginals,
        "domain": plan.domain.model_dump(mode="json", exclude_none=True),
        "options": plan.options.as_dict(),
        "strategy": strategy,
    }
    return header, arrays


def load_table_plan(path: str | os.PathLike[str], most_bytes: int | None = None) -> TablePlan:
    """A plan of tables that was saved; nothing in the file is executed, and every sensitivity is computed anew."""
    header, arrays = archive.load(path, FORMAT, PlanError, "plan", most_bytes)
    try:
        domain = as_domain(header["domain"], source=f"{path}: domain")
        sql, given = header["sql"], header["marginals"]
        if sql is None and given is None:
            raise PlanError("it asks for nothing")
        orders = None if given is None else checked_orders(given, domain)
        selections = () if sql is None else read_selections(sql, domain, source=f"{path}: queries")
        options = Options(**header["options"])
        batch = weighed(tables_of(selections, orders, domain, text=sql), options)
        strategy = keeping.read(header["strategy"], arrays, batch.workload)
        plan = TablePlan(sql, orders, domain, batch, strategy, options, str(header["planner"])[:50])
        archive.check_known(header, arrays, *written(plan))
        return plan
    except BatchDPError as error:
        raise PlanError(f"{path} cannot be used, plan again: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise PlanError(f"{path} is not a plan, or is damaged ({type(error).__name__})") from error
