"""Plans on top of what is known: the least error of the answers that earlier releases and the new one give together.

What earlier releases measured, and with how much noise, is public; what they found is never looked at. The plan that
would be made without them is always among those that are compared, by the exact errors of the least squares over all
measurements. So no plan is worse than that one with `combine` afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, cast

import numpy as np

from batchdp.domain import Database, Domain
from batchdp.errors import BatchDPError, PlanError, QueryError, ReleaseError
from batchdp.linalg.matrix import Dense, Indices, dense
from batchdp.mechanism.functions import Rows, inverse, placed, stacked, tied, within
from batchdp.mechanism.prepare import prepare
from batchdp.optimizer import optimize
from batchdp.optimizer.informed import Informed, gaussian, laplace
from batchdp.plans.designs import Columns, Design, counted_cells
from batchdp.plans.encoding import CellBatch, Encoding
from batchdp.plans.options import LARGEST, Given, Options
from batchdp.plans.planned import declared_neighbours
from batchdp.privacy import GAUSSIAN, NOISES, Budget
from batchdp.strategies.pair import PairStrategy, least_reconstruct
from batchdp.strategies.strategy import FactoredStrategy, Strategy
from batchdp.workloads.kronecker import KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload

MOST_SOLVED = 600
"""Cells of a batch for which a strategy is looked for from scratch; beyond, queries are weighed anew."""
MOST_TOLD = 2_500
"""Coordinates in which these cells and what is known of them can be told."""
MIXTURES = (0.0, 0.02, 0.2)
"""Of the plan without, in a strategy that could not answer the batch by itself."""
ROUNDS = 3
"""Of weights."""
LEAST_WEIGHT = 1e-4
"""Of what is known, in proportion to what it had."""
MOST_ENTRIES = 100_000_000
"""Answers times coordinates that are tied together."""
PUBLIC = {"bins", "groupings", "groups"}
"""What a domain says of a column that decides what it is grouped by, and not what is counted."""
Unlike = tuple[str, Any, Any, str]
FOREIGN = "they are about different records"


@dataclass(frozen=True, eq=False)
class Earlier:
    """A release without its answers: what was measured of which records, with how much noise."""

    name: str
    snapshot: str
    domain: Domain
    design: Design
    digest: str
    """Of what was measured and how."""


@singledispatch
def earlier(release: Any) -> Sequence[Earlier]:
    """What a release has measured, of every part."""
    raise PlanError(f"given holds a {type(release).__name__}; give releases, from answer, combine or load_release")


@earlier.register
def _(release: Earlier) -> Sequence[Earlier]:
    return (release,)


def known_of(given: Sequence[Any]) -> tuple[Earlier, ...]:
    """All parts of the releases that are given; refused where one comes twice, or they cannot be combined."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise PlanError("given must be a list of releases, like plan(sql, domain, given=[release])")
    found = tuple(part for release in given for part in earlier(release))
    seen: set[str] = set()
    for part in found:
        if part.name in seen:
            raise PlanError(f"given: release {part.name!r} comes twice; a measurement counts once")
        seen.add(part.name)
        if part.snapshot != found[0].snapshot:
            raise PlanError(
                f"given: releases {found[0].name!r} and {part.name!r} are of the snapshots {found[0].snapshot!r} and "
                f"{part.snapshot!r}; nothing is combined across snapshots"
            )
    return found


def told(known: Sequence[Earlier]) -> Given | None:
    """What a plan keeps of them."""
    if not known:
        return None
    digest = hashlib.sha256("\n".join(part.digest for part in known).encode()).hexdigest()
    return Given(tuple(part.name for part in known), known[0].snapshot, digest)


def check_alike(known: Sequence[Earlier], domain: Domain, options: Options) -> None:
    """Refuse what could not be combined with the answers of a plan."""
    if options.shape != "pair":
        raise PlanError("given: noise in the shape of a batch is not combined; leave out shape, or given")
    for part in known:
        here, there = str(declared_neighbours(part.domain)), str(declared_neighbours(domain))
        noise = part.design.reader.noise
        for what, old, new, why in (
            ("table", part.domain.table, domain.table, FOREIGN),
            ("unit", part.domain.privacy.unit, domain.privacy.unit, "they count other persons"),
            ("the cap on a person's rows", here, there, "other rows of a person are counted"),
            ("privacy", noise.privacy, options.privacy, "two kinds of noise are not combined"),
            *other_columns(part.domain, domain),
        ):
            if old != new:
                raise PlanError(
                    f"given: {what} is {old!r} in release {part.name!r} and {new!r} in the plan; {why}, so that their "
                    "answers could not be combined"
                )


def other_columns(one: Domain, other: Domain) -> Iterator[Unlike]:
    """Columns that are declared in two ways, or that decide which rows are counted and stand in one domain alone."""
    tables = [own.tables if isinstance(own, Database) else {"": own} for own in (one, other)]
    for name in sorted(tables[0].keys() | tables[1].keys()):
        here, there = (own.get(name) for own in tables)
        if here is None or there is None:
            yield f"table {name}", here is not None, there is not None, "a person's rows in it count in one alone"
            continue
        if here.privacy.unit != there.privacy.unit:
            yield f"unit of table {name}", here.privacy.unit, there.privacy.unit, "they count other persons"
        for column in sorted(here.columns.keys() | there.columns.keys()):
            said = [own.columns.get(column) for own in (here, there)]
            held = [None if own is None else own.model_dump(mode="json", exclude=PUBLIC) for own in said]
            # Which rows of a person are counted is a lot over all declared columns; and some leave rows out.
            matters = here.privacy.unit is not None or any(own is not None and own.other == "drop" for own in said)
            if held[0] != held[1] and (matters or None not in held):
                yield f"column {column}", held[0], held[1], "other rows are counted in each"


def on_top(
    batch: Encoding, strategy: Strategy, known: Sequence[Earlier], domain: Domain, options: Options
) -> tuple[Strategy, Given]:
    """The strategy with the least error of what it and the earlier releases tell together, and how good that is."""
    made = told(known)
    assert made is not None
    problem = _Together([part.design for part in known], batch, domain, options)
    first = problem.tried(strategy)
    best, bound = first, 0.0
    solved = problem.informed(strategy)
    if solved is None:
        found = problem.weighed(first)
    else:
        found, bound = problem.solved(cast(PairStrategy, strategy), solved)
    for one in found:
        best = min(best, one, key=lambda tried: tried.together)
    made = replace(
        made,
        alone=first.alone,
        without=first.together,
        together=best.together,
        bound=min(max(bound, problem.limit(best)), best.together),
    )
    return best.strategy, made


@singledispatch
def _answering(made: Any, other: Strategy) -> Strategy:
    """What a strategy measures, for the batch of another, which has other weights."""
    raise PlanError(f"given: a {type(made).__name__} cannot be planned on top of releases")


@_answering.register
def _(made: PairStrategy, other: Strategy) -> Strategy:
    return replace(made, workload=cast(MatrixWorkload, other.workload), proven=())


@_answering.register
def _(made: FactoredStrategy, other: Strategy) -> Strategy:
    own: Any = replace(made, workload=cast(KroneckerWorkload, other.workload), limit=other.limit, largest=None)
    total = float((own.mean_variances() * own.workload.table_sizes()) @ own.workload.weights)
    return cast(Strategy, replace(own, total=total, limit=min(own.limit, total)))


@dataclass(frozen=True, eq=False)
class _Tried:
    """A strategy, and its errors beside what is known: of what the plan minimises, and by answer."""

    strategy: Any
    rows: Rows
    """What it measures, in units of its noise."""
    alone: float
    together: float
    needed: Dense
    """Of every table, what share of the error that it has alone the new measurements have in the joint answers."""


class _Together:
    """The answers of a batch, read from what is known and from what a strategy measures."""

    def __init__(self, known: Sequence[Design], batch: Encoding, domain: Domain, options: Options) -> None:
        self.batch, self.domain, self.options = batch, domain, options
        self.noise = NOISES[options.privacy]
        self.budget: Budget = self.noise.implied_by(options.epsilon)
        self.neighbours = declared_neighbours(domain)
        self.scale = self.noise.scale(self.neighbours.factor, float(self.budget))
        try:
            self.among = Columns([*(one.batch for one in known), batch])
            self.known = stacked([one.measured(self.among) for one in known])
        except (QueryError, ReleaseError) as error:
            raise PlanError(f"given: {error}; plan without given, and combine the releases if they can be") from error

    def tried(self, strategy: Any) -> _Tried:
        """The errors of a strategy: exactly those that `combine` will have."""
        made = prepare(strategy, self.neighbours, self.budget, self.domain.privacy.max_rows)
        design = Design(self.batch, made.reader)
        rows, asked = design.measured(self.among), design.asked(self.among)
        alone, together, needed = (np.zeros(asked.count) for _ in range(3))
        for own, K, L, W in self._parts(rows, asked):
            new = L.T @ L
            WX = W @ inverse(K.T @ K + new)
            np.add.at(together, own, (WX * W).sum(axis=1))
            np.add.at(needed, own, ((WX @ new) * WX).sum(axis=1))
            np.add.at(alone, own, ((W @ inverse(new)) * W).sum(axis=1))
        unit = self.noise.variance_at_one
        sizes = strategy.workload.table_sizes().astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        share = np.add.reduceat(needed, starts) / np.maximum(np.add.reduceat(alone, starts), np.finfo(float).tiny)
        alone_, together_ = (self._minimised(strategy, sizes, unit * one) for one in (alone, together))
        return _Tried(strategy, rows, alone_, together_, share)

    def _parts(self, rows: Rows, asked: Rows) -> Iterator[tuple[Indices, Dense, Dense, Dense]]:
        """What is tied together: numbers of answers; what is known, measured and asked, in coordinates.

        Over all kinds of records alike, these are independent and have the mean square 1.
        """
        for part in tied(stacked([self.known, rows])):
            (_, K), (_, L), (own, W) = self.known.on(part), rows.on(part), asked.on(part)
            if W.size > MOST_ENTRIES:
                raise PlanError(f"given: {len(W):,} answers are too many to be looked at together; plan fewer at once")
            root = np.concatenate(
                [np.full(at.stop - at.start, self.among.mean_square(one) ** 0.5) for one, at in part.items()]
            )
            both, W = within(np.concatenate([K, L]) * root, W * root)
            yield own, both[: len(K)], both[len(K) :], W

    def _minimised(self, strategy: Any, sizes: Any, variances: Dense) -> float:
        """What the plan minimises, of these variances of all answers."""
        weights = strategy.workload.weights
        weighed = variances if weights is None else variances * np.repeat(weights, sizes)
        return float(weighed.max() if self.options.objective == LARGEST else weighed.sum())

    # ── Cells: from scratch.

    def informed(self, strategy: Strategy) -> Informed | None:
        """The batch over its cells, with what is known of these; None where that is too much."""
        workload = strategy.workload
        if not isinstance(self.batch, CellBatch) or not isinstance(workload, MatrixWorkload):
            return None
        n = workload.cells
        if n > MOST_SOLVED:
            return None
        cells = counted_cells(self.batch, self.among)
        both = stacked([self.known, cells])
        try:
            found = [part for part in tied(both) if part.keys() & cells.components.keys()]
        except BatchDPError:
            return None
        places = placed({one: both.components[one] for part in found for one in part})
        (both_rows,) = within(np.concatenate([cells.matrix(places).toarray(), self.known.on(places)[1]]))
        if both_rows.shape[1] > MOST_TOLD:
            return None
        E, K = both_rows[:n], both_rows[n:]
        M = K.T @ K
        U, sizes, Vt = np.linalg.svd(E)
        rank = int((sizes > 1e-10 * sizes[0]).sum())
        back, rest = Vt[:rank].T / sizes[:rank], Vt[rank:].T
        beside = M @ rest  # what is not about these cells has to be found out from the same measurements
        J = back.T @ (M - beside @ inverse(rest.T @ beside) @ beside.T) @ back
        return Informed(
            dense(workload.weighted), U[:, :rank], self.scale**2 * (J + J.T) / 2, workload.blocks, workload.meetings
        )

    def solved(self, strategy: PairStrategy, problem: Informed) -> tuple[list[_Tried], float]:
        """Strategies from scratch, and a limit where the sum is minimised."""
        start = dense(strategy.measurement) / strategy.sensitivity
        certified = gaussian(problem, start, turns=None if self.noise == GAUSSIAN else 1)
        if self.noise == GAUSSIAN:
            measures = [certified.measure]
        else:
            measures = [laplace(problem, start)]
            with suppress(BatchDPError):
                again = self._again(problem, measures[0], strategy.workload)
                measures.append(laplace(problem, again))
        bound = 0.0 if self.options.objective == LARGEST else self._in_records(certified.bound)
        made = (self._pair(strategy, start, L) for L in measures)
        return [one for one in made if one is not None], bound

    def _in_records(self, error: float) -> float:
        return self.noise.variance_at_one * self.scale**2 * error

    def _again(self, problem: Informed, L: Dense, workload: MatrixWorkload) -> Dense:
        """What would be measured for what the new measurements are needed for."""
        needed = problem.needed(L)
        kept = np.abs(needed).max(axis=1) > LEAST_WEIGHT * np.abs(needed).max()
        asked = MatrixWorkload(needed[kept], blocks=workload.blocks, meetings=workload.meetings)
        found = optimize(asked, self.noise.privacy, seconds=self.options.seconds, seed=self.options.seed)
        return dense(found.measurement) / found.sensitivity

    def _pair(self, strategy: PairStrategy, start: Dense, L: Dense) -> _Tried | None:
        """What measures L and can answer the batch by itself."""
        W = dense(strategy.workload.matrix)
        for share in MIXTURES:
            both = L
            if share:
                parts = (1 - share, share) if self.noise.norm == 1 else ((1 - share) ** 0.5, share**0.5)
                both = np.vstack([parts[0] * L, parts[1] * start])
            with suppress(BatchDPError, np.linalg.LinAlgError):
                made = PairStrategy(
                    strategy.workload,
                    both,
                    least_reconstruct(W, both),
                    method=f"{strategy.method}, on top of what is given",
                    privacy=strategy.privacy,
                    proven=strategy.proven,
                )
                return self.tried(made)
        return None

    # ── Anything else: tables and queries weighed by what is still needed of them.

    def weighed(self, first: _Tried) -> list[_Tried]:
        """Strategies for what is still needed of every table."""
        found, best = [], first
        for _ in range(ROUNDS):
            workload = best.strategy.workload
            before = np.ones(len(best.needed)) if workload.weights is None else workload.weights
            weights = before * np.maximum(best.needed, LEAST_WEIGHT * best.needed.max())
            with suppress(BatchDPError):
                found.append(self.tried(self._with(replace(workload, weights=weights), first.strategy)))
                best = found[-1]
        return found

    def _with(self, workload: Any, without: Strategy) -> Strategy:
        """The strategy for these weights, as one for those of the plan."""
        return _answering(optimize(workload, **self.options.of_search()), without)

    def limit(self, tried: _Tried) -> float:
        """No strategy has a smaller sum of errors together, whatever it measures; 0 where nothing is proven.

        Φ = X⁻¹WᵀWX⁻¹ is at most its largest eigenvalue times the mean over all kinds of records of what each adds.
        """
        if self.options.objective == LARGEST or isinstance(self.domain, Database):
            return 0.0
        strategy = tried.strategy
        asked = Design(self.batch, prepare(strategy, self.neighbours, self.budget, self.domain.privacy.max_rows).reader)
        sizes = strategy.workload.table_sizes().astype(np.int64)
        weights = np.ones(len(sizes)) if strategy.workload.weights is None else strategy.workload.weights
        roots = np.sqrt(np.repeat(weights, sizes))
        W = asked.asked(self.among)
        error = inner = most = 0.0
        for own, K, L, w in self._parts(tried.rows, W):
            V = (roots[own][:, None] * w).T @ (roots[own][:, None] * w)
            new = L.T @ L
            X = inverse(K.T @ K + new)
            Phi = X @ V @ X
            error += float((X * V).sum())
            inner += float((Phi * new).sum())
            most = max(most, float(np.linalg.eigvalsh(Phi)[-1]))
        rest = error - inner + most / self.scale**2
        return self.noise.variance_at_one * error**2 / rest if rest > 0 else 0.0
