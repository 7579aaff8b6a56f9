"""Plan files: the SQL, the domain and the strategy's two matrices. Everything else is worked out again on loading.

Nothing that the guarantee rests on is believed: the queries are parsed again, the cells built again, and the strategy
is refused unless its matrices reproduce their workload. Sensitivities are never stored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from batchdp import archive
from batchdp.cells import cells_of
from batchdp.cells.classes import MOST_AMOUNTS
from batchdp.domain import as_domain
from batchdp.errors import BatchDPError, PlanError
from batchdp.linalg.matrix import plain
from batchdp.plans.planned import Options, Plan
from batchdp.sql import read_queries
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.workload import Workload

FORMAT = "batchdp-plan-1"
FIRST_PLANNER = "0.1.0"
"""Which did not write its version down."""
DESCRIBED = ("method", "privacy", "rounds", "status", "reason")
"""What is stored of a strategy besides its matrices."""


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the plan, in one piece or not at all."""
    strategy = plan.strategy
    header: dict[str, Any] = {
        "format": FORMAT,
        "planner": plan.planner,
        "sql": plan.sql,
        "domain": plan.domain.model_dump(mode="json", exclude_none=True),
        "options": plan.options.as_dict(),
        "blocks": [list(block.queries) for block in plan.cells.blocks],
        "strategy": {name: getattr(strategy, name) for name in DESCRIBED},
    }
    arrays = {**archive.parts("L", plain(strategy.measurement)), **archive.parts("B", plain(strategy.reconstruction))}
    archive.save(path, header, arrays, PlanError)


def load_plan(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Plan:
    """A plan that was saved; nothing in the file is executed, and every sensitivity is computed anew.

    Args:
        path: of the file.
        most_bytes: what it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    header, arrays = archive.load(path, FORMAT, PlanError, "plan", most_bytes)
    most = archive.allowance(Path(path).stat().st_size, most_bytes)
    limit = MOST_AMOUNTS.set(most // 12)  # an entry of W takes so many bytes
    try:
        domain = as_domain(header["domain"], source=f"{path}: domain")
        queries = read_queries(header["sql"], domain, source=f"{path}: queries")
        options = Options(**header["options"])
        cells = cells_of(queries, domain, most=options.max_cells, partition=header["blocks"])
        strategy = Strategy(
            Workload(cells.matrix, cells.names, blocks=cells.sizes, meetings=cells.meetings),
            archive.whole("L", arrays, most_bytes),
            archive.whole("B", arrays, most_bytes),
            **{name: header["strategy"][name] for name in DESCRIBED},  # never a relaxation, which would let B L miss W
        )
        return Plan(header["sql"], domain, cells, strategy, options, str(header.get("planner", FIRST_PLANNER))[:50])
    except BatchDPError as error:
        raise PlanError(f"{path} cannot be used, plan again: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise PlanError(f"{path} is not a plan, or is damaged ({type(error).__name__})") from error
    finally:
        MOST_AMOUNTS.reset(limit)
