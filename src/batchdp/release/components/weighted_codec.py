"""Weighted tables in files: what is measured in whole numbers, from which all else is computed anew."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.components.columns import Column
from batchdp.errors import ReleaseError
from batchdp.mechanism.weighted.integers import IntegerFactor, IntegerInside, IntegerResults
from batchdp.mechanism.weighted.lattice import IntegerTables, WeightedLattice
from batchdp.release.components.arrays import Reading, whole_numbers
from batchdp.weighted.weights import Tables
from batchdp.workloads.structure import KroneckerWorkload

Arrays = dict[str, NDArray[Any]]

TABLES, RESULTS = "weighted", "results"
WEIGHTED = (TABLES, RESULTS)
"""What a file calls its kind."""
LARGEST = 2**41
"""Of an entry."""


def described_weighted(lattice: WeightedLattice) -> tuple[dict[str, Any], Arrays]:
    """What is measured, as a header and arrays."""
    first = lattice.measures[0]
    header: dict[str, Any] = {"bits": lattice.bits}
    weights = np.concatenate([own.weights for own in lattice.measures])
    if isinstance(first, IntegerResults):
        made = [one for own in first.factors for one in own]
        header |= {"kind": RESULTS, "joint": list(first.joint)}
        arrays: Arrays = {"scaled": np.array([*(one.scale for one in made), first.joint_scale])}
    else:
        groups = [own for own in lattice.measures if isinstance(own, IntegerTables)]
        header |= {"kind": TABLES, "groups": [_header(own) for own in groups]}
        arrays = {
            "value": np.concatenate([c.value for own in groups for c in own.columns]),
            "apart": np.concatenate([np.packbits(own.tables.apart) for own in groups]),
            "difference": np.concatenate([np.packbits(own.tables.difference) for own in groups]),
        }
    pieces = [one.integers.reshape(-1) for one in _pieces(lattice) if one.integers is not None]
    if isinstance(first, IntegerResults):
        pieces += [Q.reshape(-1) for Q in first.joint.values()]
    return header, arrays | {"weighed": weights, "integers": np.concatenate([np.zeros(0, np.int64), *pieces])}


def _pieces(lattice: WeightedLattice) -> list[IntegerInside | IntegerFactor]:
    found: list[IntegerInside | IntegerFactor] = []
    for own in lattice.measures:
        found += own.insides if isinstance(own, IntegerTables) else [one for f in own.factors for one in f]
    return found


def _header(own: IntegerTables) -> dict[str, Any]:
    return {
        "tables": len(own),
        "serves": None if own.serves is None else sorted(own.serves),
        "columns": [[one.values, None if one.integers is None else one.rows, one.bits] for one in own.insides],
    }


def read_weighted(
    header: Mapping[str, Any], arrays: Mapping[str, Any], batch: KroneckerWorkload, cap: int
) -> WeightedLattice:
    """What is measured, from a file."""
    K, weights = Reading(whole_numbers("integers", arrays)), Reading(whole_numbers("weighed", arrays))
    if header["kind"] == RESULTS:
        measures: Any = (_results(header, arrays, batch, K, weights),)
    else:
        measures = _groups(header, arrays, batch, K, weights)
    K.check_ended()
    weights.check_ended()
    lattice = WeightedLattice(batch, measures, int(header["bits"]), cap)
    if not 0 <= lattice.bits <= 60:
        raise ReleaseError("its lattice has no such bits")
    return lattice


def _entries(K: Reading, rows: int, columns: int) -> NDArray[np.int64]:
    found = K.next(rows, columns)
    if rows < 1 or rows >= 2**20 or max(int(found.max()), -int(found.min())) >= LARGEST:
        raise ReleaseError("its whole numbers are larger than any lattice has")
    return found


def _checked_weights(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(weights) < 1 or weights.min() < 0 or weights.max() >= LARGEST:
        raise ReleaseError("its tables have weights that no table has")
    return weights


def _results(
    header: Mapping[str, Any], arrays: Mapping[str, Any], batch: KroneckerWorkload, K: Reading, weights: Reading
) -> IntegerResults:
    scales = iter(archive.read_numbers("scaled", arrays).tolist())
    factors = tuple(
        tuple(
            IntegerFactor(one, None if one.given is None else _entries(K, one.rows, one.size), next(scales))
            for one in own
        )
        for own in batch.factors
    )
    joint_scale = next(scales)
    positive = joint_scale > 0 and all(one.scale > 0 for own in factors for one in own)
    if not positive or next(scales, None) is not None:
        raise ReleaseError("its factors have no scale")
    joint = {}
    for k in header["joint"]:
        if k not in range(len(batch.tables)) or k in joint:
            raise ReleaseError("a table is multiplied out that is not there")
        table = batch.tables[k]
        joint[k] = _entries(K, table.queries, prod(batch.sizes[i] for i in table.columns))
    own = _checked_weights(weights.next(len(batch.tables)))
    if own.min() < 1:
        raise ReleaseError("a table has no weight")
    return IntegerResults(batch, factors, own, joint, joint_scale)


def _groups(
    header: Mapping[str, Any], arrays: Mapping[str, Any], batch: KroneckerWorkload, K: Reading, weights: Reading
) -> tuple[IntegerTables, ...]:
    value = Reading(whole_numbers("value", arrays))
    flags = [Reading(whole_numbers(name, arrays).astype(np.uint8)) for name in ("apart", "difference")]
    found = []
    for content in header["groups"]:
        insides = []
        for n, (distinct, rows, bits) in zip(batch.sizes, content["columns"], strict=True):
            own = value.next(n)
            if not np.array_equal(np.unique(own), np.arange(distinct)) or not 0 <= bits <= 60:
                raise ReleaseError("its columns do not hang together")
            column = Column(n, own, np.zeros(distinct, np.int64), (np.ones((1, 1)),), np.zeros((1, 1)))
            insides.append(IntegerInside(column, None if rows is None else _entries(K, rows, distinct), bits))
        own = _checked_weights(weights.next(content["tables"]))
        shape = len(own), len(insides)
        bits_read = [one.next(-(-shape[0] * shape[1] // 8)) for one in flags]
        apart, difference = (np.unpackbits(one, count=shape[0] * shape[1]).reshape(shape) > 0 for one in bits_read)
        two = np.array([one.values == 2 and one.integers is None for one in insides])
        if np.any(apart & difference) or np.any(difference & ~two):
            raise ReleaseError("a table takes a difference where there is none")
        served = content["serves"]
        if served is not None and not all(0 <= t < len(batch.tables) for t in served):
            raise ReleaseError("a group serves a table that is not there")
        serves = None if served is None else frozenset(served)
        found.append(IntegerTables(tuple(insides), Tables(apart, difference), own, serves))
    for one in (value, *flags):
        one.check_ended()
    listed = [t for own in found for t in own.serves or ()]
    everything = len(found) == 1 and found[0].serves is None
    if not everything and sorted(listed) != list(range(len(batch.tables))):
        raise ReleaseError("a table is served by none of the groups, or by several")
    return tuple(found)
