"""Plan files: the SQL, the domain, the strategy's two matrices and what is proven about it.

Nothing that the guarantee rests on is believed: the queries are parsed again, the cells built again, and the strategy
is refused unless its matrices reproduce their workload. Sensitivities are never stored. What is proven tells how good
the strategy is and no more; see `proven` for when it is believed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from batchdp import archive
from batchdp.cells import Cells, cells_of
from batchdp.cells.classes import MOST_AMOUNTS
from batchdp.checks import check_finite
from batchdp.domain import Domain, as_domain
from batchdp.errors import BatchDPError, PlanError
from batchdp.linalg.matrix import Dense, plain
from batchdp.plans import proven
from batchdp.plans.componentwise import ComponentCells, bounds_of, component_cells, query_tables
from batchdp.plans.options import Options
from batchdp.plans.planned import Plan
from batchdp.plans.tabled_file import FORMAT as TABLES
from batchdp.plans.tabled_file import load_table_plan
from batchdp.plans.weighing import own_sensitivities, weighing
from batchdp.sql import Batch, read_batch
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Shape, check_sample
from batchdp.workloads.workload import MatrixWorkload

FORMAT = "batchdp-plan-0.3"
DESCRIBED = ("method", "privacy", "rounds", "status", "reason")
"""What is stored of a strategy besides its matrices."""


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the plan, in one piece or not at all."""
    archive.save(path, *_written(plan), PlanError)


def _written(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """What its file holds: a header and arrays."""
    strategy = plan.strategy
    proof, of_bounds = proven.written(strategy)
    header: dict[str, Any] = {
        "format": FORMAT,
        "planner": plan.planner,
        "sql": plan.sql,
        "domain": plan.domain.model_dump(mode="json", exclude_none=True),
        "options": plan.options.as_dict(),
        **_described(plan),
        "strategy": {name: getattr(strategy, name) for name in DESCRIBED},
        "proven": proof,
    }
    arrays = {
        **archive.split_matrix("L", plain(strategy.measurement)),
        **archive.split_matrix("B", plain(strategy.reconstruction)),
    }
    if strategy.shape is not None:
        header["shape"], of_shape = strategy.shape.written()
        arrays |= of_shape
    if isinstance(plan.cells, ComponentCells):
        arrays["averages"] = np.concatenate(plan.cells.averages)
    return header, arrays | of_bounds


def _described(plan: Plan) -> dict[str, Any]:
    """What the cells are found by again: the blocks' queries, or their columns and the measures of these."""
    if not isinstance(plan.cells, ComponentCells):
        return {"blocks": [list(block.queries) for block in plan.cells.blocks]}
    return {
        "components": plan.cells.sets,
        "measures": [len(mu) for mu in plan.cells.averages],
        "limit": plan.strategy.optimality.lower_bound,
    }


def _cells(header: Any, arrays: Any, asked: Batch, domain: Domain, options: Options) -> tuple[Cells, Dense | None]:
    """The cells, and the weights of the queries."""
    queries = asked.queries
    weigh = weighing(queries, options)
    if "components" not in header:
        cells = cells_of(queries, domain, most=options.max_cells, partition=header["blocks"])
        return cells, weigh(own_sensitivities(cells))
    ends = np.cumsum(header["measures"])
    averages = np.split(archive.read_numbers("averages", arrays), ends[:-1])
    sets = tuple(tuple(int(c) for c in own) for own in header["components"])
    batch = query_tables(asked, domain, weigh)
    found = component_cells(queries, batch, sets, averages, options.max_cells)
    if found is None:
        raise PlanError("its blocks are larger than max_cells")
    return found, batch.weights


def _limited(strategy: PairStrategy, limit: Any) -> PairStrategy:
    """With the limit of a plan by components, or none where its own error refutes it.

    To prove it again would be to plan again. What could be proven of the blocks' matrix is not about the queries.
    """
    total = strategy.expected_squared_error(**strategy.noise.reference.arguments)
    lower = check_finite("limit", limit, least=0)
    return replace(
        strategy, proven=bounds_of(lower if lower <= total * (1 + 1e-9) else 0.0, total, len(strategy.workload.names))
    )


def _shape(content: Any, arrays: Any) -> Shape | None:
    """Of the noise, where it has one. What it says of errors is believed after a look; no privacy rests on it."""
    return None if content is None else Shape.read(content, lambda name: archive.read_numbers(name, arrays))


def load_plan(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Any:
    """A plan that was saved; nothing in the file is executed, and every sensitivity is computed anew.

    Returns: a `Plan`, or a `TablePlan` where that was saved.

    Args:
        path: of the file.
        most_bytes: what it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    if archive.read_format(path) == TABLES:
        return load_table_plan(path, most_bytes)
    header, arrays = archive.load(path, FORMAT, PlanError, "plan", most_bytes)
    most = archive.allowance(Path(path).stat().st_size, most_bytes)
    limit = MOST_AMOUNTS.set(most // 12)  # an entry of W takes so many bytes
    try:
        domain = as_domain(header["domain"], source=f"{path}: domain")
        asked = read_batch(header["sql"], domain, source=f"{path}: queries")
        options = Options(**header["options"])
        cells, weights = _cells(header, arrays, asked, domain, options)
        met = None if isinstance(cells, ComponentCells) else cells.meetings
        workload = MatrixWorkload(cells.matrix, cells.names, weights, blocks=cells.sizes, meetings=met, ends=cells.ends)
        strategy = PairStrategy(
            workload,
            archive.join_matrix("L", arrays, most_bytes),
            archive.join_matrix("B", arrays, most_bytes),
            **{name: header["strategy"][name] for name in DESCRIBED},  # never a relaxation, which would let B L miss W
            proven=proven.read(header["proven"], arrays, workload),
            shape=_shape(header.get("shape"), arrays),
        )
        if strategy.shape is not None:
            check_sample(strategy.shape, strategy.shape.columns(strategy.measure))
        if isinstance(cells, ComponentCells):
            strategy = _limited(strategy, header["limit"])
        elif (believed := proven.credible(strategy)) != strategy.proven:
            strategy = replace(strategy, proven=believed)
        plan = Plan(header["sql"], domain, cells, strategy, options, str(header["planner"])[:50])
        known, parts = _written(plan)
        archive.check_known(header, arrays, {**known, "proven": proven.KEYS}, {*parts, *proven.ARRAYS})
        return plan
    except BatchDPError as error:
        raise PlanError(f"{path} cannot be used, plan again: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise PlanError(f"{path} is not a plan, or is damaged ({type(error).__name__})") from error
    finally:
        MOST_AMOUNTS.reset(limit)
