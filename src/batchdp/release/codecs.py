"""Weighted tables in files: what is measured in whole numbers, from which all else is computed anew."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp import archive
from batchdp.errors import ReleaseError
from batchdp.mechanism.knorm.law import ShapedLaw
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.marginal.lattice import (
    IntegerFactor,
    IntegerInside,
    IntegerResults,
    IntegerTables,
    WeightedLattice,
)
from batchdp.mechanism.marginal.tables import WeightedReader
from batchdp.mechanism.reader import CellReader, Reader
from batchdp.mechanism.residual.integers import IntegerPiece
from batchdp.mechanism.residual.lattice import ComponentLattice, IntegerGroup, WholeGroups
from batchdp.mechanism.residual.tables import TableReader
from batchdp.mechanism.sensitivity import largest_squares
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import DECODERS, Arrays, Encoded, Header, Reading, encode, whole_numbers
from batchdp.release.verify import Described, describe
from batchdp.strategies.marginal.weights import Tables
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.strategy import closure, is_whole
from batchdp.strategies.shape import Shape
from batchdp.workloads.kronecker import Factor, KroneckerWorkload, column_sizes

KIND = "cells"
"""What a file calls releases of measured cells."""


@encode.register
def _(reader: CellReader) -> Encoded:
    law = reader.noise_law
    shape, points = law.shape.written() if isinstance(law, ShapedLaw) else (None, {})
    arrays = {
        **archive.split_matrix("B", reader.reconstruct),
        **archive.split_matrix("L", reader.measure),
        **archive.split_matrix("W", reader.workload),
        **points,
    }
    header = {"kind": KIND, "names": list(reader.names), "scale": law.scale, "bits": reader.bits, "shape": shape}
    return header, arrays


def _decode(header: Header, arrays: Arrays, certificate: PrivacyCertificate, most_bytes: int | None) -> Reader:
    names, bits = header["names"], header["bits"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ReleaseError("names must be texts")
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise ReleaseError("bits must be a whole number")
    law = NoiseLaw(archive.join_matrix("B", arrays, most_bytes), float(header["scale"]), certificate.noise)
    if header["shape"] is not None:
        shape = Shape.read(header["shape"], lambda name: archive.read_numbers(name, arrays))
        law = ShapedLaw(law.reconstruct, law.scale, law.noise, shape=shape)
    measure, workload = (sparse.csr_array(archive.join_matrix(name, arrays, most_bytes)) for name in ("L", "W"))
    return CellReader(tuple(names), measure, workload, law, bits)


DECODERS[KIND] = _decode


NewArrays = dict[str, NDArray[Any]]

TABLES, RESULTS = "weighted", "results"
WEIGHTED = (TABLES, RESULTS)
"""What a file calls its kind."""
LARGEST = 2**41
"""Of an entry."""


def described_weighted(lattice: WeightedLattice) -> tuple[dict[str, Any], NewArrays]:
    """What is measured, as a header and arrays."""
    first = lattice.measures[0]
    header: dict[str, Any] = {"bits": lattice.bits}
    weights = np.concatenate([own.weights for own in lattice.measures])
    if isinstance(first, IntegerResults):
        made = [one for own in first.factors for one in own]
        header |= {"kind": RESULTS, "joint": list(first.joint)}
        arrays: NewArrays = {"scaled": np.array([*(one.scale for one in made), first.joint_scale])}
    else:
        groups = [own for own in lattice.measures if isinstance(own, IntegerTables)]
        header |= {"kind": TABLES, "groups": [_marginal_header(own) for own in groups]}
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


def _marginal_header(own: IntegerTables) -> dict[str, Any]:
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


WHOLE, LISTED = "whole", "listed"
"""What a file calls residual measurements: of whole tables, or of listed ones."""
ROOM, RATIO = 2**16, 8
"""How many combinations a file may ask to be gone through: so many, and so many for every number that it holds."""


@encode.register(TableReader)
@encode.register(WeightedReader)
def _(reader: Any) -> Encoded:
    header, arrays = describe(reader.lattice)
    return header, arrays | {"scales": reader.scales}


@describe.register(ComponentLattice)
@describe.register(WeightedLattice)
def _(lattice: Any) -> Described:
    batch = lattice.workload
    header: dict[str, Any] = {
        "sizes": batch.sizes,
        "factors": [[None if f.given is None else len(f.given) for f in own] for own in batch.factors],
        "names": batch.names,
        "largest_total": lattice.largest_total,
        "tables_by": batch.column_names,
    }
    given = [f.given.reshape(-1) for own in batch.factors for f in own if f.given is not None]
    arrays: dict[str, NDArray[Any]] = {
        "starts": batch.starts,
        "columns": batch.columns,
        "chosen": batch.chosen,
        "weights": batch.weights,
        "given": np.concatenate([np.zeros(0), *given]),
    }
    own = _components(lattice) if isinstance(lattice, ComponentLattice) else described_weighted(lattice)
    return header | own[0], arrays | own[1]


def _components(lattice: ComponentLattice) -> Described:
    """What components are measured by."""
    header: dict[str, Any] = {"distinct": [len(c.orbit) for c in lattice.columns]}
    arrays: dict[str, NDArray[Any]] = {
        "value": np.concatenate([c.value for c in lattice.columns]),
        "orbit": np.concatenate([c.orbit for c in lattice.columns]),
        "averages": np.concatenate(lattice.averages),
    }
    groups = lattice.groups
    if isinstance(groups, WholeGroups):
        return header | {"kind": WHOLE}, arrays | {"bits": groups.bits, "shares": groups.shares}
    pieces = [piece for group in groups for own in group.lists for piece in own]
    header |= {"kind": LISTED, "groups": [_residual_header(group) for group in groups]}
    arrays["integers"] = np.concatenate([np.zeros(0, np.int64), *(p.integers.reshape(-1) for p in pieces)])
    arrays["recover"] = np.concatenate([np.zeros(0), *(p.recover.reshape(-1) for p in pieces)])
    return header, arrays


def _residual_header(group: IntegerGroup) -> dict[str, Any]:
    return {
        "bits": group.bits,
        "share": group.share,
        "tables": None if group.tables is None else sorted(group.tables),
        "lists": [[[p.matrix, p.spread, p.integers.shape] for p in own] for own in group.lists],
    }


def _decode_tables(header: Header, arrays: Arrays, certificate: PrivacyCertificate, most_bytes: int | None) -> Reader:
    scales = archive.read_numbers("scales", arrays)
    lattice = _lattice(header, arrays, len(arrays["noisy"]))
    if len(scales) != len(lattice.groups):
        raise ReleaseError("its noise is not that of its groups")
    return lattice.reader(scales)


def _lattice(header: Header, arrays: Mapping[str, Any], measurements: int) -> ComponentLattice | WeightedLattice:
    batch = _batch(header, arrays)
    cap = header["largest_total"]
    if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
        raise ReleaseError("largest_total is no cap")
    if header["kind"] in WEIGHTED:
        return read_weighted(header, arrays, batch, cap)
    columns, averages = _columns(header, arrays, batch.sizes)
    if header["kind"] == WHOLE:
        if not is_whole(batch):
            raise ReleaseError("its tables are not whole")
        # Every component has a measurement, and a table as many components as its columns have subsets.
        if np.exp2(np.minimum(np.diff(batch.starts), 60)).sum() > ROOM + RATIO * measurements:
            raise ReleaseError("its tables have more components than it has measurements")
        found, bits = closure(batch), whole_numbers("bits", arrays)
        shares = archive.read_numbers("shares", arrays)
        if not len(bits) == len(shares) == found.size or np.any((bits < 0) | (bits > 60)):
            raise ReleaseError("its components are not those of its tables")
        return ComponentLattice(batch, columns, averages, cap, WholeGroups(found, shares, columns, bits))
    K, recover = Reading(whole_numbers("integers", arrays)), Reading(archive.read_numbers("recover", arrays))
    if sum(prod(map(len, one["lists"])) for one in header["groups"]) > measurements:
        raise ReleaseError("it has more components than measurements")
    groups = tuple(_group(one, columns, len(batch.tables), K, recover) for one in header["groups"])
    K.check_ended()
    recover.check_ended()
    return ComponentLattice(batch, columns, averages, cap, groups)


def _batch(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> KroneckerWorkload:
    sizes = column_sizes("sizes", header["sizes"])
    given = Reading(archive.read_numbers("given", arrays))
    factors = tuple(
        tuple(Factor(n) if rows is None else Factor(n, given.next(rows, n)) for rows in own)
        for n, own in zip(sizes, header["factors"], strict=True)
    )
    given.check_ended()
    starts, columns, chosen = (whole_numbers(name, arrays) for name in ("starts", "columns", "chosen"))
    weights, names = archive.read_numbers("weights", arrays), header["names"]
    counts = np.array([len(own) for own in factors])
    fits = (
        len(starts) > 1
        and starts[0] == 0
        and starts[-1] == len(columns) == len(chosen)
        and np.all(np.diff(starts) >= 0)
        and np.all((columns >= 0) & (columns < len(sizes)))
        and np.all((chosen >= 0) & (chosen < counts[columns]))
        and len(weights) == len(starts) - 1
        and (names is None or (len(names) == len(weights) and all(isinstance(name, str) for name in names)))
    )
    if not fits or not _ascending(starts, columns):
        raise ReleaseError("its tables do not hang together")
    called = header["tables_by"]
    if called is not None and (len(called) != len(sizes) or not all(isinstance(name, str) for name in called)):
        raise ReleaseError("its columns have no names")
    by = None if called is None else tuple(called)
    return KroneckerWorkload(
        sizes, factors, starts, columns, chosen, weights, None if names is None else tuple(names), by
    )


def _ascending(starts: NDArray[np.int64], columns: NDArray[np.int64]) -> bool:
    """Whether every table's columns are."""
    rising = np.append(np.diff(columns) > 0, True)
    rising[starts[1:][starts[1:] > 0] - 1] = True
    return bool(np.all(rising[: len(columns)]))


def _columns(
    header: Mapping[str, Any], arrays: Mapping[str, Any], sizes: tuple[int, ...]
) -> tuple[tuple[Column, ...], tuple[NDArray[np.float64], ...]]:
    value, orbit = Reading(whole_numbers("value", arrays)), Reading(whole_numbers("orbit", arrays))
    averages = Reading(archive.read_numbers("averages", arrays))
    columns, measures = [], []
    for n, k in zip(sizes, header["distinct"], strict=True):
        own, home = value.next(n), orbit.next(k)
        orbits = int(home.max()) + 1
        if not (np.array_equal(np.unique(own), np.arange(k)) and np.array_equal(np.unique(home), np.arange(orbits))):
            raise ReleaseError("its columns do not hang together")
        columns.append(Column(n, own, home, (np.ones((1, orbits)),), np.zeros((1, orbits))))
        measures.append(averages.next(k))
    for one in (value, orbit, averages):
        one.check_ended()
    return tuple(columns), tuple(measures)


def _group(
    content: Mapping[str, Any], columns: tuple[Column, ...], tables: int, K: Reading, recover: Reading
) -> IntegerGroup:
    lists, squares = [], 1
    seen: set[int] = set()
    for own in content["lists"]:
        pieces = []
        for matrix, spread, (rows, combinations) in own:
            looked = [*matrix, *(i for i, _ in spread)]
            fits = list(matrix) == sorted(set(matrix)) and len(set(looked)) == len(looked)
            fits = fits and all(0 <= i < len(columns) for i in looked)
            fits = fits and all(0 <= o < columns[i].orbits for i, o in spread)
            if not fits or combinations != prod(columns[i].orbits for i in matrix) or rows < 1:
                raise ReleaseError("a component does not fit its columns")
            read = K.next(rows, combinations), recover.next(combinations, rows)
            pieces.append(IntegerPiece(tuple(matrix), tuple((i, o) for i, o in spread), *read, None))
        looked_at = {i for p in pieces for i in (*p.matrix, *(c for c, _ in p.spread))}
        if looked_at & seen:
            raise ReleaseError("two lists of a component look at the same column")
        if prod(columns[i].orbits for i in looked_at) > ROOM + RATIO * sum(p.integers.size for p in pieces):
            raise ReleaseError("a component tells more records apart than it has numbers for")
        seen |= looked_at
        lists.append(tuple(pieces))
        squares *= largest_squares(pieces, columns)
    served = content["tables"]
    if served is not None and not all(0 <= t < tables for t in served):
        raise ReleaseError("a component serves a table that is not there")
    serves = None if served is None else frozenset(served)
    return IntegerGroup(tuple(lists), int(content["bits"]), squares, float(content["share"]), serves)


DECODERS |= dict.fromkeys((WHOLE, LISTED, *WEIGHTED), _decode_tables)
