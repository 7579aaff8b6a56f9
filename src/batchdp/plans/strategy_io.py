"""Strategies in plan files: what is measured, and nothing that follows from it.

Columns, inverses and sensitivities are worked out anew from the batch and from what is measured; a strategy is refused
unless it reproduces its batch, and over many columns unless its errors add up to what the file says. What is proven of
a pair tells how good it is and no more; see `proven` for when it is believed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.errors import PlanError, check_finite
from batchdp.linalg.matrix import Dense, plain
from batchdp.optimizer.marginal.problem import largest_change, sub_batch
from batchdp.optimizer.marginal.search import grams_of
from batchdp.optimizer.options import OBJECTIVES
from batchdp.optimizer.residual.optimizing import added_up, of_whole_tables
from batchdp.optimizer.residual.splits import Batch
from batchdp.strategies.bounds.convex import OptimalityBound
from batchdp.strategies.marginal.columns import ColumnStrategy, by_strategy, each_value
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy, Results, TableGroup
from batchdp.strategies.marginal.weights import Tables
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.residual.columns import Column, columns_of
from batchdp.strategies.residual.strategy import ListedParts, ResidualStrategy, WholeParts, closure, is_whole
from batchdp.strategies.residual.terms import ResidualFactor, TermGroup
from batchdp.strategies.shape import Shape, check_sample
from batchdp.strategies.strategy import TOLERANCE, FactoredStrategy, Strategy
from batchdp.text import Outcome
from batchdp.workloads.kronecker import Factor, KroneckerWorkload
from batchdp.workloads.matrix import MatrixWorkload

ROUNDING = 1e-9
"""By how much a bound may be above the error that it bounds, relative."""
FIGURES = ("objective", "lower_bound", "upper_bound", "rounds", "outcome")
KEYS = {"workload": None, "bounds": (dict.fromkeys(FIGURES),) * len(OBJECTIVES)}
ARRAYS = tuple(f"proven_{objective}_{end}" for objective in OBJECTIVES for end in "vw")
"""All that a file may have of it, also where it is not believed."""
PAIR = "pair"
OF_PAIR = ("method", "privacy", "rounds", "status", "reason")
"""What is stored of a pair besides its matrices."""
OF_WEIGHTED = ("theta", "apart", "difference", "insides")
"""The arrays of weighted tables."""
SAYS = ("method", "total", "limit", "largest", "status", "reason")
MOST_ADDED = 2_000_000
"""Answers up to which the variances of all are added up again."""
MOST_PARTS = 1_000_000
"""Of a strategy that is not of whole tables."""

Arrays = dict[str, NDArray[Any]]


def _write_bounds(strategy: PairStrategy) -> tuple[dict[str, Any], Arrays]:
    """What goes into a file's header and its arrays: every bound that is known and finite."""
    bounds = [bound for bound in strategy.proven if math.isfinite(bound.upper_bound)]
    arrays = {f"proven_{bound.objective}_v": bound.weights for bound in bounds}
    arrays |= {f"proven_{one.objective}_w": one.query_weights for one in bounds if one.query_weights is not None}
    content = [{name: getattr(bound, name) for name in FIGURES} for bound in bounds]
    return ({"workload": _digest(strategy.workload), "bounds": content} if bounds else {}), arrays


def _read_bounds(content: Any, arrays: Mapping[str, Any], workload: MatrixWorkload) -> tuple[OptimalityBound, ...]:
    """The bounds of a file that are about this workload; none where anything is amiss."""
    found = []
    try:
        for one in content["bounds"] if content["workload"] == _digest(workload) else ():
            objective, lower = one["objective"], check_finite("lower_bound", one["lower_bound"], least=0)
            if objective not in OBJECTIVES:
                return ()
            upper = check_finite("upper_bound", one["upper_bound"], least=lower * (1 - ROUNDING))
            weights = archive.read_numbers(f"proven_{objective}_v", arrays)
            of_queries = archive.read_numbers("proven_max_w", arrays) if objective == "max" else None
            outcome = Outcome.read(one["outcome"])
            found.append(OptimalityBound(objective, lower, upper, weights, of_queries, int(one["rounds"]), outcome))
    except Exception:  # whatever somebody wrote there
        return ()
    return tuple(found)


def _credible_bounds(strategy: PairStrategy) -> tuple[OptimalityBound, ...]:
    """Those of its bounds that its own error does not refute."""
    if strategy.shape is not None:  # whose error may be below what is proven of pairs
        return strategy.proven
    reference = strategy.noise.reference
    errors = {"sum": strategy.expected_squared_error, "max": strategy.largest_variance}

    def is_credible(bound: OptimalityBound) -> bool:
        error = errors[bound.objective](**reference.arguments)
        return reference.variance(bound.lower_bound) <= error * (1 + ROUNDING)

    return tuple(filter(is_credible, strategy.proven))


def _digest(workload: MatrixWorkload) -> str:
    """A fingerprint of what a bound depends on: the matrix, the queries' weights, the blocks, the kinds of records."""
    digest = hashlib.sha256(repr(workload.blocks).encode())
    parts: Arrays = dict(archive.split_matrix("W", plain(workload.matrix)))
    parts |= {} if workload.weights is None else {"weights": workload.weights}
    parts |= {} if workload.records is None else {"records": workload.records}
    for name, part in sorted(parts.items()):
        array = np.ascontiguousarray(part, dtype=np.float64 if part.dtype.kind == "f" else np.int64)
        digest.update(f"{name} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


@singledispatch
def described(strategy: Any) -> tuple[dict[str, Any], Arrays]:
    """What is kept of a strategy, as entries of a header and arrays."""
    raise PlanError(f"strategy is a {type(strategy).__name__}, which no file can hold")


@described.register
def _(strategy: PairStrategy) -> tuple[dict[str, Any], Arrays]:
    proof, of_bounds = _write_bounds(strategy)
    header = {"strategy": {"kind": PAIR, **{name: getattr(strategy, name) for name in OF_PAIR}}, "proven": proof}
    matrices = {"L": strategy.measurement, "B": strategy.reconstruction}
    arrays = {key: part for name, M in matrices.items() for key, part in archive.split_matrix(name, plain(M)).items()}
    if strategy.shape is not None:
        header["shape"], of_shape = strategy.shape.written()
        arrays |= of_shape
    return header, arrays | of_bounds


@described.register
def _(strategy: MarginalStrategy) -> tuple[dict[str, Any], Arrays]:
    kept = [_weighted(group) for group in strategy.groups]
    arrays = {name: np.concatenate([own.get(name, np.zeros(0)) for _, own in kept]) for name in OF_WEIGHTED}
    return _header(strategy, "weighted", groups=[header for header, _ in kept]), arrays


@described.register
def _(strategy: ResidualStrategy) -> tuple[dict[str, Any], Arrays]:
    if isinstance(strategy.parts, WholeParts):
        return _header(strategy, "whole"), {"shares": strategy.parts.shares}
    assert isinstance(strategy.parts, ListedParts)
    groups = strategy.parts.groups
    pieces = [piece for group in groups for own in group.lists for piece in own]
    arrays = {"averages": strategy.averages}
    arrays |= {name: tuple(getattr(one, name).reshape(-1) for one in pieces) for name in ("measure", "recover")}
    joined = {name: np.concatenate([np.zeros(0), *own]) for name, own in arrays.items()}
    return _header(strategy, "listed", groups=[_listed(group) for group in groups]), joined


def _header(strategy: FactoredStrategy, kind: str, **more: Any) -> dict[str, Any]:
    return {"strategy": {"says": {name: getattr(strategy, name) for name in SAYS}, "kind": kind, **more}}


def _listed(group: TermGroup) -> dict[str, Any]:
    return {
        "number": group.number,
        "scale": group.scale,
        "tables": None if group.tables is None else sorted(group.tables),
        "lists": [[[p.matrix, p.spread, len(p.measure)] for p in own] for own in group.lists],
    }


@singledispatch
def _weighted(group: TableGroup) -> tuple[dict[str, Any] | None, Arrays]:
    return None, {}  # results follow from the batch


@_weighted.register
def _(group: MarginalGroup) -> tuple[dict[str, Any] | None, Arrays]:
    measures = [inside.measure for inside in group.insides]
    header = {
        "tables": len(group),
        "serves": None if group.serves is None else sorted(group.serves),
        "insides": [None if L is None else len(L) for L in measures],
    }
    return header, {
        "theta": group.theta,
        "apart": group.tables.apart.astype(np.float64).reshape(-1),
        "difference": group.tables.difference.astype(np.float64).reshape(-1),
        "insides": np.concatenate([np.zeros(0), *(L.reshape(-1) for L in measures if L is not None)]),
    }


def read(
    header: Mapping[str, Any], arrays: Mapping[str, Any], workload: Any, most_bytes: int | None = None
) -> Strategy:
    """The strategy of a file for this batch; refused unless it answers it as it says."""
    kind = header["strategy"]["kind"]
    if kind == PAIR:
        return read_pair(header, arrays, workload, most_bytes)
    strategy: FactoredStrategy = _READ[kind](header["strategy"], arrays, workload)
    if strategy.residual > TOLERANCE:
        raise PlanError("its strategy does not reproduce its tables")
    claimed, added = strategy.total, add_up(strategy)
    if added is not None and abs(claimed - added) > 1e-6 * added:
        raise PlanError("its strategy does not have the error that it says")
    if strategy.limit > claimed * (1 + ROUNDING):  # which cannot be
        strategy = replace(strategy, limit=0.0)
    return strategy


def read_pair(
    header: Mapping[str, Any], arrays: Mapping[str, Any], workload: MatrixWorkload, most_bytes: int | None
) -> PairStrategy:
    """The pair of a file whose batch is one matrix."""
    shape = header.get("shape")
    strategy = PairStrategy(
        workload,
        archive.join_matrix("L", arrays, most_bytes),
        archive.join_matrix("B", arrays, most_bytes),
        **{name: header["strategy"][name] for name in OF_PAIR},  # never a relaxation, which would let B L miss W
        proven=_read_bounds(header["proven"], arrays, workload),
        # What it says of errors is believed after a look; no privacy rests on it.
        shape=None if shape is None else Shape.read(shape, lambda name: archive.read_numbers(name, arrays)),
    )
    if strategy.shape is not None:
        check_sample(strategy.shape, strategy.shape.columns(strategy.measure))
    believed = _credible_bounds(strategy)
    return strategy if believed == strategy.proven else replace(strategy, proven=believed)


def add_up(strategy: FactoredStrategy) -> float | None:
    """The weighted sum of all variances in the strategy's own unit; None where that takes too long."""
    batch = strategy.workload
    if batch.queries > MOST_ADDED and not is_whole(batch):
        return None
    return added_up(strategy)


def _says(header: Mapping[str, Any]) -> dict[str, Any]:
    says = header["says"]
    largest = says["largest"]
    return {
        "method": str(says["method"])[:100],
        "total": check_finite("total", says["total"], least=0),
        "limit": check_finite("limit", says["limit"], least=0),
        "largest": None if largest is None else tuple(check_finite("largest", one, least=0) for one in largest),
        "status": Outcome.read(says["status"]),
        "reason": str(says["reason"])[:1000],
    }


def _read_whole(header: Mapping[str, Any], arrays: Mapping[str, Any], workload: KroneckerWorkload) -> ResidualStrategy:
    if not is_whole(workload):
        raise PlanError("its tables are not whole")
    found, shares = closure(workload), np.asarray(archive.read_numbers("shares", arrays), dtype=np.float64)
    if len(shares) != found.size or np.any(shares <= 0) or float(shares.sum()) > 1 + ROUNDING:
        raise PlanError("its shares are not those of its components")
    return of_whole_tables(workload, WholeParts(found, shares), _says(header))


def _read_listed(header: Mapping[str, Any], arrays: Mapping[str, Any], workload: KroneckerWorkload) -> ResidualStrategy:
    columns = Batch(workload).columns
    averages = _Reading("averages", arrays)
    measures = tuple(averages.next(len(column.orbit)) for column in columns)
    measure, recover = _Reading("measure", arrays), _Reading("recover", arrays)
    groups = tuple(_group(one, columns, len(workload.tables), measure, recover) for one in header["groups"])
    _check_ended(averages, measure, recover)
    if sum(prod(map(len, group.lists)) for group in groups) > MOST_PARTS:
        raise PlanError("it has more components than any plan")
    parts = ListedParts(groups)
    if float(parts.shares.sum()) > 1 + ROUNDING:
        raise PlanError("its shares are more than the budget")
    return ResidualStrategy(workload=workload, columns=columns, averages=measures, parts=parts, **_says(header))


def _group(
    content: Mapping[str, Any], columns: tuple[Column, ...], tables: int, measure: _Reading, recover: _Reading
) -> TermGroup:
    lists = []
    for own in content["lists"]:
        pieces = []
        for matrix, spread, rows in own:
            looked = [*matrix, *(i for i, _ in spread)]
            fits = len(set(looked)) == len(looked) and list(matrix) == sorted(matrix)
            fits = fits and all(isinstance(i, int) and 0 <= i < len(columns) for i in looked)
            if not (fits and all(isinstance(o, int) and 0 <= o < columns[i].orbits for i, o in spread)):
                raise PlanError("a component does not fit its columns")
            orbits = prod(columns[i].orbits for i in matrix)
            shape = measure.next(rows, orbits), recover.next(orbits, rows)
            pieces.append(ResidualFactor(tuple(matrix), tuple((i, o) for i, o in spread), *shape))
        lists.append(tuple(pieces))
    served = content["tables"]
    if served is not None and not all(isinstance(t, int) and 0 <= t < tables for t in served):
        raise PlanError("a component serves a table that is not there")
    scale, number = check_finite("scale", content["scale"], above=0), content["number"]
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 10**6:
        raise PlanError("a group has no number")
    return TermGroup(tuple(lists), scale, None if served is None else frozenset(served), number)


def _read_weighted(
    header: Mapping[str, Any], arrays: Mapping[str, Any], workload: KroneckerWorkload
) -> MarginalStrategy:
    reading = {name: _Reading(name, arrays) for name in OF_WEIGHTED}
    groups: list[TableGroup] = []
    for one in header["groups"]:
        if one is None:
            batch = Batch(workload)
            groups.append(Results(workload, 1 / largest_change(batch, batch.terms(workload.weights))))
        else:
            groups.append(_weighted_group(one, workload, reading))
    _check_ended(*reading.values())
    served = [group.serves for group in groups]
    every = set(range(len(workload.tables)))
    if not (None in served or every == set().union(*(own for own in served if own is not None))):
        raise PlanError("a table is served by no group")
    sensitivity = sum(group.share for group in groups)
    if abs(sensitivity - 1) > ROUNDING:
        raise PlanError("its weights do not add up to its sensitivity")
    return MarginalStrategy(workload=workload, groups=tuple(groups), sensitivity=1.0, **_says(header))


def _weighted_group(
    one: Mapping[str, Any], workload: KroneckerWorkload, reading: Mapping[str, _Reading]
) -> MarginalGroup:
    tables, served = one["tables"], one["serves"]
    every = range(len(workload.tables))
    if served is not None and not all(isinstance(t, int) and t in every for t in served):
        raise PlanError("a group serves a table that is not there")
    own = workload if served is None else sub_batch(workload, served)
    columns = columns_of(own)
    theta = reading["theta"].next(tables)
    apart, difference = (reading[name].next(tables, len(columns)) for name in ("apart", "difference"))
    flags = np.concatenate([apart, difference])
    if np.any(theta < 0) or not np.all((flags == 0) | (flags == 1)) or np.any(apart * difference):
        raise PlanError("its tables have no weights")
    if any(len(c.orbit) != 2 and difference[:, i].any() for i, c in enumerate(columns)):
        raise PlanError("a difference is taken of a column that does not have two values")
    insides = [
        each_value(c) if rows is None else _inside(reading["insides"].next(rows, len(c.orbit)), c, own.factors[i])
        for i, (c, rows) in enumerate(zip(columns, one["insides"], strict=True))
    ]
    chosen = Tables(apart.astype(bool), difference.astype(bool))
    return MarginalGroup(columns, tuple(insides), chosen, theta, None if served is None else frozenset(served))


def _inside(measure: Dense, column: Column, factors: Sequence[Factor]) -> ColumnStrategy:
    """A column's own strategy, whose norm is at most 1."""
    found = by_strategy(measure, grams_of(column, factors))
    if found is None or float(np.abs(measure).sum(axis=0).max()) > 1 + 1e-12:
        raise PlanError("the strategy of a column does not determine it, or has a norm above 1")
    return replace(found, measure=measure)


class _Reading:
    """An array that is read from its beginning, piece by piece."""

    def __init__(self, name: str, arrays: Mapping[str, Any]) -> None:
        self._content, self._at = np.asarray(archive.read_numbers(name, arrays), dtype=np.float64), 0

    def next(self, *shape: int) -> Dense:
        """The next entries, in this shape."""
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape):
            raise PlanError("an array has no shape")
        size = prod(shape)
        if self._at + size > len(self._content):
            raise PlanError("an array is shorter than it should be")
        self._at += size
        return self._content[self._at - size : self._at].reshape(shape)

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._content)


def _check_ended(*arrays: _Reading) -> None:
    if not all(one.ended for one in arrays):
        raise PlanError("an array is longer than it should be")


_READ: dict[str, Any] = {"whole": _read_whole, "listed": _read_listed, "weighted": _read_weighted}
