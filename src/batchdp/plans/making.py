"""`plan`: from SQL and a domain to a strategy, remembered so that the same batch is planned once."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_cache_path

from batchdp.bounds.optimality import Objective
from batchdp.cells import MOST_CELLS, cells_of
from batchdp.domain import Domain, as_domain
from batchdp.errors import BatchDPError, QueryError
from batchdp.plans.componentwise import componentwise
from batchdp.plans.file import FORMAT, load_plan, save_plan
from batchdp.plans.options import Options
from batchdp.plans.planned import PLANNER, Plan
from batchdp.portfolio import optimize
from batchdp.privacy import GAUSSIAN, Privacy
from batchdp.progress import Progress
from batchdp.sql import load_text, read_queries
from batchdp.workloads.workload import Workload


def plan(
    sql: str | os.PathLike[str],
    domain: Domain | dict[str, Any] | str | os.PathLike[str],
    *,
    privacy: Privacy | Literal["auto"] = "pure",
    objective: Objective = "sum",
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float | None = None,
    max_cells: int = MOST_CELLS,
    cache: bool = True,
    prove: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """A plan for answering the queries with the least noise that can be found. No data is read, no budget spent.

    Args:
        sql: SELECT statements over the domain's table, as a text, or the path of a .sql file.
        domain: what is public about the table: a path, TOML text, dictionary or `Domain`.
        privacy, objective, seconds, seed, epsilon, delta: as in `optimize`.
        max_cells: the most classes of records in one block; a batch with more is split into blocks.
        cache: keep plans in the user's cache folder (or in $BATCHDP_CACHE), so that the same batch is planned once.
        prove: solve for the lower bound too, as `strategy.lower_bound` does when it is first asked; files and the cache
            keep it.
        progress: called with (share, what is being done).
    """
    text, source = _text(sql)
    domain = as_domain(domain)
    options = Options(privacy, objective, seconds, seed, epsilon, delta, max_cells)
    entry = _cached(text, domain, options) if cache else None
    found = None if entry is None else _remembered(entry, text, domain, options)
    made = found or _made(text, source, domain, options, progress)
    if found is None:
        _keep(made, entry)
    known = made.strategy.proven
    if prove and made.strategy.optimality not in known:  # which the strategy keeps
        _keep(made, entry)
    return made


def _made(text: str, source: str, domain: Domain, options: Options, progress: Progress | None) -> Plan:
    """The plan, from scratch."""
    queries = read_queries(text, domain, source=source)
    cells = cells_of(queries, domain, most=options.max_cells, progress=progress)
    strategy = optimize(
        Workload(cells.matrix, cells.names, blocks=cells.sizes, meetings=cells.meetings, ends=cells.ends),
        **options.of_search(),
        progress=None if progress is None else lambda share, trying, _: progress(share, f"Optimising: {trying}"),
    )
    if options.privacy == GAUSSIAN.privacy and options.objective == "sum" and len(cells.blocks) > 1:
        other = componentwise(queries, domain, options.max_cells, options.seconds, options.seed)
        budget = GAUSSIAN.reference.arguments
        if other is not None and other[1].expected_squared_error(**budget) < strategy.expected_squared_error(**budget):
            cells, strategy = other
    return Plan(text, domain, cells, strategy, options)


def _remembered(entry: Path, text: str, domain: Domain, options: Options) -> Plan | None:
    """What the cache has for exactly this; None where it is missing, damaged, or from another version."""
    with suppress(BatchDPError):
        found = load_plan(entry)
        if (found.sql, found.domain, found.options, found.planner) == (text, domain, options, PLANNER):
            return found
    return None


def _keep(made: Plan, entry: Path | None) -> None:
    """Into the cache, if there is one; a cache that cannot be written is no reason to fail."""
    if entry is not None:
        with suppress(BatchDPError, OSError):
            entry.parent.mkdir(parents=True, exist_ok=True)
            save_plan(made, entry)


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
