"""`plan`: from SQL and a domain to a strategy, remembered so that the same batch is planned once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_cache_path

from batchdp.cells import MOST_CELLS, cells_of
from batchdp.domain import Domain, as_domain
from batchdp.errors import BatchDPError, QueryError
from batchdp.plans.file import FORMAT, load_plan, save_plan
from batchdp.plans.planned import PLANNER, Options, Plan
from batchdp.portfolio import optimize
from batchdp.sql import load_text, read_queries
from batchdp.strategies.strategy import Privacy
from batchdp.workloads.workload import Workload

Progress = Callable[[float, str], object]


def plan(
    sql: str | os.PathLike[str],
    domain: Domain | dict[str, Any] | str | os.PathLike[str],
    *,
    privacy: Privacy | Literal["auto"] = "pure",
    objective: Literal["sum", "max"] = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    max_cells: int = MOST_CELLS,
    cache: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """A plan for answering the queries with the least noise that can be found. No data is read, no budget spent.

    Args:
        sql: SELECT statements over the domain's table, as a text, or the path of a .sql file.
        domain: what is public about the table: a path, TOML text, dictionary or `Domain`.
        privacy, objective, seconds, seed, epsilon, delta: as in `optimize`.
        max_cells: the most classes of records in one block; a batch with more is split into blocks.
        cache: keep plans in the user's cache folder (or in $BATCHDP_CACHE), so that the same batch is planned once.
        progress: called with (share, what is being done).
    """
    text, source = _text(sql)
    domain = as_domain(domain)
    options = Options(privacy, objective, seconds, seed, epsilon, delta, max_cells)
    queries = read_queries(text, domain, source=source)
    remembered = _cached(text, domain, options) if cache else None
    if remembered is not None:
        with suppress(BatchDPError):  # missing, damaged, or from another version: plan again
            found = load_plan(remembered)
            if (found.sql, found.domain, found.options, found.planner) == (text, domain, options, PLANNER):
                return found
    cells = cells_of(queries, domain, most=options.max_cells, progress=progress)
    strategy = optimize(
        Workload(cells.matrix, cells.names, blocks=cells.sizes, meetings=cells.meetings),
        options.privacy,
        objective=options.objective,
        seconds=options.seconds,
        seed=options.seed,
        epsilon=options.epsilon,
        delta=options.delta,
        progress=None if progress is None else lambda share, trying, _: progress(share, f"Optimising: {trying}"),
    )
    made = Plan(text, domain, cells, strategy, options)
    if remembered is not None:
        with suppress(BatchDPError, OSError):  # a cache that cannot be written is no reason to fail
            remembered.parent.mkdir(parents=True, exist_ok=True)
            save_plan(made, remembered)
    return made


def _text(sql: str | os.PathLike[str]) -> tuple[str, str]:
    """The SQL and what errors call it."""
    if isinstance(sql, os.PathLike) or (isinstance(sql, str) and sql.endswith(".sql") and len(sql.split()) == 1):
        return load_text(sql), str(sql)
    if not isinstance(sql, str):
        raise QueryError(f"sql is a {type(sql).__name__}; give SELECT statements as a text, or the path of a .sql file")
    return sql, "queries"


def _cached(sql: str, domain: Domain, options: Options) -> Path | None:
    """Where a plan for exactly this is remembered; None where nothing can be."""
    content = [FORMAT, PLANNER, sql, domain.model_dump(mode="json"), options.as_dict()]
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    if folder := os.environ.get("BATCHDP_CACHE"):
        return Path(folder) / f"{name}.plan"
    try:
        base = user_cache_path("batchdp", appauthor=False)
    except RuntimeError:  # a user without a home
        return None
    return base / f"{name}.plan" if base.is_absolute() else None
