"""`plan`: from SQL and a domain to a strategy, remembered so that the same batch is planned once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from platformdirs import user_cache_path

from batchdp.domain import Domain, as_domain
from batchdp.errors import BatchDPError, DomainError, PlanError, QueryError
from batchdp.optimizer import ShapeChoice, optimize
from batchdp.plans.componentwise import componentwise, limit_over_blocks
from batchdp.plans.criteria import statements_of
from batchdp.plans.encoding import CellBatch, Encoding, cells_in, check_of_one_table, counted_domain
from batchdp.plans.file import FORMAT, load_plan
from batchdp.plans.for_estimates import ForEstimates, can_be_weighed, choose_weights
from batchdp.plans.given import Earlier, check_alike, known_of, on_top, told
from batchdp.plans.options import FAIR, Options, PlanObjective, checked_weights, epsilon_of
from batchdp.plans.planned import PLANNER, Plan, declared_neighbours
from batchdp.plans.weighing import Weighing, weighed, weighing
from batchdp.privacy import GAUSSIAN, NOISES, Privacy
from batchdp.sql.script import batch_of, is_many, load_text, read_selections
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shaped import DEFAULT, ShapeLimits
from batchdp.strategies.strategy import Strategy
from batchdp.text import LOG, Outcome, Progress, timed
from batchdp.workloads.encode import checked_orders, tables_of
from batchdp.workloads.encode.cells import MOST_CELLS
from batchdp.workloads.encode.demands import Orders
from batchdp.workloads.encode.several import SeveralCells

FOR_RECORDS = 2
"""Columns of the largest tables that synthetic records are drawn from, if nothing else is said."""


def plan(
    sql: str | os.PathLike[str] | None = None,
    domain: Domain | dict[str, Any] | str | os.PathLike[str] | None = None,
    *,
    marginals: int | Iterable[int] | None = None,
    privacy: Privacy | Literal["auto"] = "pure",
    objective: PlanObjective = FAIR,
    weights: Mapping[str, float] | None = None,
    seconds: float | None = None,
    seed: int = 0,
    epsilon: float = 1.0,
    rho: float | None = None,
    delta: float | None = None,
    max_cells: int = MOST_CELLS,
    shape: ShapeChoice = "pair",
    limits: ShapeLimits = DEFAULT,
    given: Sequence[Any] = (),
    for_estimates: bool = False,
    for_records: bool = False,
    records: int | None = None,
    cache: bool = True,
    prove: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Find the plan that answers the queries with the least noise. No data is read, and no budget is spent.

    Args:
        sql: SELECT statements over the domain's table: the text, or the path of a .sql file.
        domain: what is public about the table: a path, TOML text, a dictionary or a `Domain`.
        marginals: ask for all tables of up to this many of the domain's columns, the total included; given a list, for
            the tables of these numbers of columns. They come on top of `sql`. Every declared value is a group; so are
            anything else and NULL.
        privacy, seconds, seed, delta: as in `optimize`.
        epsilon: the budget that `privacy="auto"`, `given` and `for_estimates` plan for; other plans are the same at
            every ε.
        rho: this budget for Gaussian noise, where it is not the ρ = ε²/2 that `epsilon` implies.
        objective: what is made small. "fair" counts every statement alike, and takes each query's error relative to the
            most that one record can change it. "sum" is the sum of all squared errors, as in the paper; "max" is the
            largest of them.
        weights: by the name of a statement or query, how much its squared error counts on top of that; 1 if left out.
            `SELECT /*+ weight(3) */ …` says the same in SQL.
        max_cells: a batch that tells more classes of records apart than this is split into blocks.
        shape, limits: as in `optimize`.
        given: releases about the same records, of which only what they measured is looked at. The plan minimises the
            error of its answers once they are combined with these, after a release at this budget. It is never worse
            than the plan without them, combined in the same way.
        for_estimates: weigh tables for answers that will be denoised, by simulations on invented populations at this
            budget. Raw answers get worse, and the plan says by how much.
        for_records: the same for a release from which synthetic records will be drawn; `marginals` is then 2 if left
            out.
        records: roughly how many records the table has, for these two; the domain's max_rows if left out.
        cache: keep plans in the user's cache folder (or in $BATCHDP_CACHE), so that the same batch is planned only
            once.
        prove: compute the lower bound now, which `strategy.lower_bound` otherwise does when it is first asked.
        progress: called with (share done, what is being done).
    """
    if for_records:
        marginals, for_estimates = FOR_RECORDS if marginals is None else marginals, True
    (text, source), domain, orders = asked_of(sql, domain, marginals)
    known = known_of(given)
    options = Options(
        privacy, objective, seconds, seed, epsilon_of(privacy, epsilon, rho), delta, max_cells,
        checked_weights(weights or {}), shape=shape, limits=limits,
        for_estimates=estimates_of(domain, records, wanted=for_estimates), given=told(known),
    )  # fmt: skip
    entry = _cached(text, orders, domain, options) if cache else None
    made = None if entry is None else _remembered(entry, text, orders, domain, options)
    if made is not None:
        LOG.debug("the same batch was planned before: taken from the cache")
    else:
        with timed("read the queries"):
            batch = encode(text, orders, domain, options, source=source, progress=progress)
        made = _made(text, orders, domain, batch, options, known, progress)
        _keep(made, entry)
    if prove:
        with timed("looked for a proven limit"):
            proven = made.strategy.prove(options.searched)
        if proven:
            _keep(made, entry)
    return made


def _made(
    text: str | None,
    orders: Orders | None,
    domain: Domain,
    batch: Encoding,
    options: Options,
    known: Sequence[Earlier],
    progress: Progress | None,
) -> Plan:
    """A new plan; one for estimates knows what the raw answers lose against the plan that would be made otherwise."""
    if known:
        check_alike(known, domain, options)
    if options.for_estimates is None or not can_be_weighed(batch.workload):
        return Plan(text, orders, domain, *_found(batch, domain, options, known, progress))
    plain = replace(options, for_estimates=None)
    workload, noise = weighed(batch, plain), NOISES[options.privacy]
    budget = noise.implied_by(options.epsilon / declared_neighbours(domain).factor)
    chosen = choose_weights(
        workload.structure,
        budget,
        options.for_estimates.records,
        workload.weights,
        seed=options.seed,
        progress=progress,
    )
    best = search(batch, domain, plain, progress)[1]
    made = _found(batch, domain, replace(options, for_estimates=chosen), known, progress)
    totals = [float((workload.weights * workload.table_sizes()) @ one.mean_variances()) for one in (made[1], best)]
    chosen = replace(chosen, raw_loss=(totals[0] / totals[1]) ** 0.5)
    return Plan(text, orders, domain, *made[:2], replace(made[2], for_estimates=chosen))


def _found(
    batch: Encoding, domain: Domain, options: Options, known: Sequence[Earlier], progress: Progress | None
) -> tuple[Encoding, Strategy, Options]:
    """The batch as it is counted, the best strategy that is found on top of what is known, and how good that is."""
    counted, strategy = search(batch, domain, options, progress)
    if not known:
        return counted, strategy, options
    if progress is not None:
        progress(1.0, "Optimising on top of what is given")
    found, given = on_top(counted, strategy, known, counted_domain(counted, domain), options)
    return counted, found, replace(options, given=given)


def estimates_of(domain: Domain, records: int | None, *, wanted: bool) -> ForEstimates | None:
    """What a plan for estimates is asked for: roughly how many records there will be."""
    if not wanted:
        if records is not None:
            raise PlanError("records is for plans whose answers will be denoised; give for_estimates=True too")
        return None
    known = domain.privacy.max_rows if records is None else records
    if known is None:
        raise PlanError("for_estimates needs records, roughly how many there will be, or max_rows in the domain")
    return ForEstimates(known)


def asked_of(
    sql: str | os.PathLike[str] | None,
    domain: Domain | dict[str, Any] | str | os.PathLike[str] | None,
    marginals: int | Iterable[int] | None,
) -> tuple[tuple[str | None, str], Domain, Orders | None]:
    """The SQL with what errors call it, the domain, and how many columns its tables have."""
    if sql is None and marginals is None:
        raise QueryError(
            "sql and marginals are both left out; give SELECT statements, or marginals=2 for all tables of up to two "
            "columns, or both"
        )
    if domain is None:
        raise DomainError("domain is left out; give what is public about the table: a path, TOML text or dictionary")
    text = (None, "") if sql is None else text_of(sql)
    domain = as_domain(domain)
    return text, domain, None if marginals is None else checked_orders(marginals, domain)


def encode(
    text: str | None,
    orders: Orders | None,
    domain: Domain,
    options: Options,
    *,
    source: str = "queries",
    progress: Progress | None = None,
) -> Encoding:
    """The batch as it will be counted: over cells, or as tables where marginals or very many answers are asked."""
    selections = () if text is None else read_selections(text, domain, source=source)
    if text is None or orders is not None or is_many(selections):
        check_of_one_table(selections, domain)
        tables = tables_of(selections, orders, domain, text=text, joint=options.privacy == GAUSSIAN.privacy)
        weighing(tables, options)  # which refuses unknown names before anything takes long, as the next does
        return tables
    asked = batch_of(selections)
    Weighing([query.name for query in asked.queries], statements_of(asked.queries), options)
    cells = cells_in(asked.queries, domain, most=options.max_cells, progress=progress, relations=asked.relations)
    return CellBatch(cells, asked)


def search(
    batch: Encoding, domain: Domain, options: Options, progress: Progress | None = None
) -> tuple[Encoding, Strategy]:
    """The best strategy that is found for a batch, and the batch as that counts it."""
    watch = None if progress is None else lambda share, trying, _: progress(share, f"Optimising: {trying}")
    workload = weighed(batch, options)
    strategy: Strategy = optimize(workload, **options.of_search(), progress=watch)
    if not isinstance(batch, CellBatch) or len(workload.blocks) < 2 or isinstance(batch.cells, SeveralCells):
        return batch, strategy
    if strategy.status is Outcome.OPTIMAL:  # over all kinds of records
        return batch, strategy
    if options.privacy == GAUSSIAN.privacy and options.searched == "sum":
        by = weighing(batch, options)
        other = componentwise(batch.statements, domain, options.max_cells, options.seconds, options.seed, by)
        budget = GAUSSIAN.reference.arguments
        if other is not None and other[1].expected_squared_error(**budget) < strategy.expected_squared_error(**budget):
            return replace(batch, cells=other[0]), other[1]
    if options.searched == "sum" and workload.kinds is None:  # else what is proven of the kinds is better
        limit = limit_over_blocks(batch.statements, domain, weighing(batch, options), options.seed)
        if limit is not None:
            cast(PairStrategy, strategy).know_limit(limit)
    return batch, strategy


def _remembered(entry: Path, text: str | None, orders: Orders | None, domain: Domain, options: Options) -> Plan | None:
    """What the cache has for exactly this; None where it is missing, damaged, or from another version."""
    with suppress(BatchDPError):
        found = load_plan(entry)
        same = (found.sql, found.marginals, found.domain, found.options, found.planner)
        if same == (text, orders, domain, options, PLANNER):
            return found
    return None


def _keep(made: Plan, entry: Path | None) -> None:
    """Into the cache, if there is one; a cache that cannot be written is no reason to fail."""
    if entry is not None:
        with suppress(BatchDPError, OSError):
            entry.parent.mkdir(parents=True, exist_ok=True)
            made.save(entry)


def text_of(sql: str | os.PathLike[str]) -> tuple[str, str]:
    """The SQL and what errors call it."""
    if isinstance(sql, os.PathLike) or (isinstance(sql, str) and sql.endswith(".sql") and len(sql.split()) == 1):
        return load_text(sql), str(sql)
    if not isinstance(sql, str):
        raise QueryError(f"sql is a {type(sql).__name__}; give SELECT statements as a text, or the path of a .sql file")
    return sql, "queries"


def _cached(sql: str | None, orders: Orders | None, domain: Domain, options: Options) -> Path | None:
    """Where a plan for exactly this is remembered; None where nothing can be."""
    content: list[Any] = [FORMAT, PLANNER, sql, domain.model_dump(mode="json"), options.as_dict()]
    content += [] if orders is None else [orders]
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    if folder := os.environ.get("BATCHDP_CACHE"):
        return Path(folder) / f"{name}.plan"
    try:
        base = user_cache_path("batchdp", appauthor=False)
    except RuntimeError:  # a user without a home
        return None
    return base / f"{name}.plan" if base.is_absolute() else None
