"""Readers in files: what is measured in whole numbers, from which all else is computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
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
from batchdp.mechanism.tables import TableLattice
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.file import DECODERS, Arrays, Content, Encoded, Header, encode, whole_numbers
from batchdp.release.verify import Described, describe
from batchdp.strategies.marginal.weights import Tables
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.strategy import closure, is_whole
from batchdp.strategies.shape import Shape
from batchdp.workloads.kronecker import MOST_VALUES, Factor, KroneckerWorkload, column_sizes

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


# ── Tables of many columns: of every kind the batch, then what is measured by its own description.

TABLES, RESULTS = "weighted", "results"
"""What a file calls weighted tables: measured for all, or for each that is asked for."""
WHOLE, LISTED = "whole", "listed"
"""What a file calls residual measurements: of whole tables, or of listed ones."""
PIECES = {
    TABLES: (("integers", "weighed", "value", "apart", "difference"), ("given",)),
    RESULTS: (("integers", "weighed"), ("given", "scaled")),
    WHOLE: (("value", "orbit"), ("given", "averages")),
    LISTED: (("value", "orbit", "integers"), ("given", "averages", "recover")),
}
"""By kind the arrays in which one thing comes after the other: of whole numbers, and of finite ones."""
LARGEST = 2**41
"""Of an entry."""
MOST_BITS = 60
ROOM, RATIO = 2**16, 8
"""How many combinations a file may ask to be gone through: so many, and so many for every number that it holds."""


@encode.register(TableReader)
@encode.register(WeightedReader)
def _(reader: Any) -> Encoded:
    header, arrays = describe(reader.lattice)
    return header, arrays | {"scales": reader.scales}


def _join(parts: Iterable[NDArray[Any]], kind: type = np.int64) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *(one.reshape(-1) for one in parts)])


def _describe_batch(lattice: TableLattice) -> Described:
    batch = lattice.workload
    header: dict[str, Any] = {
        "sizes": batch.sizes,
        "factors": [[None if f.given is None else len(f.given) for f in own] for own in batch.factors],
        "names": batch.names,
        "largest_total": lattice.largest_total,
        "tables_by": batch.column_names,
    }
    if batch.joint:
        header["together"] = batch.joint
    arrays = {name: getattr(batch, name) for name in ("starts", "columns", "chosen", "weights")}
    return header, arrays | {
        "given": _join((f.given for own in batch.factors for f in own if f.given is not None), float)
    }


@describe.register
def _(lattice: WeightedLattice) -> Described:
    header, arrays = _describe_batch(lattice)
    header["bits"] = lattice.bits
    first = lattice.measures[0]
    pieces: list[IntegerInside | IntegerFactor]
    if isinstance(first, IntegerResults):
        pieces, joint = [one for own in first.factors for one in own], list(first.joint.values())
        header |= {"kind": RESULTS, "joint": list(first.joint)}
        arrays["scaled"] = np.array([*(one.scale for own in first.factors for one in own), first.joint_scale])
    else:
        groups = [own for own in lattice.measures if isinstance(own, IntegerTables)]
        pieces, joint = [one for own in groups for one in own.insides], []
        header |= {"kind": TABLES, "groups": [_describe_tables(own) for own in groups]}
        arrays["value"] = np.concatenate([c.value for own in groups for c in own.columns])
        for name in ("apart", "difference"):
            arrays[name] = np.concatenate([np.packbits(getattr(own.tables, name)) for own in groups])
    arrays["weighed"] = np.concatenate([own.weights for own in lattice.measures])
    arrays["integers"] = _join([*(one.integers for one in pieces if one.integers is not None), *joint])
    return header, arrays


def _describe_tables(own: IntegerTables) -> dict[str, Any]:
    return {
        "tables": len(own),
        "serves": None if own.serves is None else sorted(own.serves),
        "columns": [[one.values, None if one.integers is None else one.rows, one.bits] for one in own.insides],
    }


@describe.register
def _(lattice: ComponentLattice) -> Described:
    header, arrays = _describe_batch(lattice)
    header["distinct"] = [len(c.orbit) for c in lattice.columns]
    arrays["value"] = np.concatenate([c.value for c in lattice.columns])
    arrays["orbit"] = np.concatenate([c.orbit for c in lattice.columns])
    arrays["averages"] = np.concatenate(lattice.averages)
    groups = lattice.groups
    if isinstance(groups, WholeGroups):
        return header | {"kind": WHOLE}, arrays | {"bits": groups.bits, "shares": groups.shares}
    pieces = [piece for group in groups for own in group.lists for piece in own]
    header |= {"kind": LISTED, "groups": [_describe_group(group) for group in groups]}
    arrays["integers"] = _join(p.measure for p in pieces)
    arrays["recover"] = _join((p.recover for p in pieces), float)
    return header, arrays


def _describe_group(group: IntegerGroup) -> dict[str, Any]:
    return {
        "bits": group.bits,
        "share": group.share,
        "tables": None if group.tables is None else sorted(group.tables),
        "lists": [[[p.matrix, p.spread, p.measure.shape] for p in own] for own in group.lists],
    }


def _decode_tables(header: Header, arrays: Arrays, certificate: PrivacyCertificate, most_bytes: int | None) -> Reader:
    scales, (whole, finite) = archive.read_numbers("scales", arrays), PIECES[header["kind"]]
    content = Content(arrays, whole=whole, finite=finite)
    batch, cap = _read_batch(header, arrays, content), header["largest_total"]
    if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
        raise ReleaseError("largest_total is not a cap")
    lattice: TableLattice
    if header["kind"] in (TABLES, RESULTS):
        lattice = _read_weighted(header, content, batch, cap)
    else:
        lattice = _read_residual(header, arrays, content, batch, cap)
    content.check_ended()
    if len(scales) != len(lattice.groups):
        raise ReleaseError("its noise is not that of its groups")
    return lattice.reader(scales)


DECODERS |= dict.fromkeys(PIECES, _decode_tables)


def _read_served(served: Any, tables: int, noun: str) -> frozenset[int] | None:
    """The tables that something serves; None where it is all of them."""
    if served is not None and not all(0 <= t < tables for t in served):
        raise ReleaseError(f"a {noun} serves a table that is not there")
    return None if served is None else frozenset(served)


def _read_weighted(header: Header, content: Content, batch: KroneckerWorkload, cap: int) -> WeightedLattice:
    measures: Any = (_read_results(header, content, batch),) if header["kind"] == RESULTS else None
    if measures is None:
        measures = tuple(_read_tables(one, content, batch) for one in header["groups"])
        listed = [t for own in measures for t in own.serves or ()]
        everything = len(measures) == 1 and measures[0].serves is None
        if not everything and sorted(listed) != list(range(len(batch.tables))):
            raise ReleaseError("a table is served by none of the groups, or by several")
    lattice = WeightedLattice(batch, measures, int(header["bits"]), cap)
    if not 0 <= lattice.bits <= MOST_BITS:
        raise ReleaseError("its lattice has no such bits")
    return lattice


def _read_entries(content: Content, rows: int, columns: int) -> NDArray[np.int64]:
    found = content.next("integers", rows, columns)
    if rows < 1 or rows >= 2**20 or max(int(found.max()), -int(found.min())) >= LARGEST:
        raise ReleaseError("its whole numbers are larger than any lattice has")
    return found


def _read_weights(content: Content, tables: int) -> NDArray[np.int64]:
    weights = content.next("weighed", tables)
    if tables < 1 or weights.min() < 0 or weights.max() >= LARGEST:
        raise ReleaseError("its tables have weights that no table has")
    return weights


def _read_results(header: Header, content: Content, batch: KroneckerWorkload) -> IntegerResults:
    def read(one: Factor) -> IntegerFactor:
        entries = None if one.given is None else _read_entries(content, one.rows, one.size)
        return IntegerFactor(one, entries, float(content.next("scaled", 1)[0]))

    factors = tuple(tuple(map(read, own)) for own in batch.factors)
    joint_scale = float(content.next("scaled", 1)[0])
    if joint_scale <= 0 or any(one.scale <= 0 for own in factors for one in own):
        raise ReleaseError("its factors have no scale")
    joint: dict[int, NDArray[np.int64]] = {}
    for k in header["joint"]:
        if k not in range(len(batch.tables)) or k in joint:
            raise ReleaseError("a table is multiplied out that is not there")
        table = batch.tables[k]
        joint[k] = _read_entries(content, table.queries, prod(batch.sizes[i] for i in table.columns))
    weights = _read_weights(content, len(batch.tables))
    if weights.min() < 1:
        raise ReleaseError("a table has no weight")
    return IntegerResults(batch, factors, weights, joint, joint_scale)


def _read_tables(header: Header, content: Content, batch: KroneckerWorkload) -> IntegerTables:
    insides = []
    for n, (distinct, rows, bits) in zip(batch.sizes, header["columns"], strict=True):
        own = content.next("value", n)
        if not np.array_equal(np.unique(own), np.arange(distinct)) or not 0 <= bits <= MOST_BITS:
            raise ReleaseError("its columns do not fit together")
        column = Column(n, own, np.zeros(distinct, np.int64), (np.ones((1, 1)),), np.zeros((1, 1)))
        insides.append(IntegerInside(column, None if rows is None else _read_entries(content, rows, distinct), bits))
    weights = _read_weights(content, header["tables"])
    shape = len(weights), len(insides)
    packed = (content.next(name, -(-prod(shape) // 8)).astype(np.uint8) for name in ("apart", "difference"))
    apart, difference = (np.unpackbits(one, count=prod(shape)).reshape(shape) > 0 for one in packed)
    two = np.array([one.values == 2 and one.integers is None for one in insides])
    if np.any(apart & difference) or np.any(difference & ~two):
        raise ReleaseError("a table takes a difference where there is none")
    serves = _read_served(header["serves"], len(batch.tables), "group")
    return IntegerTables(tuple(insides), Tables(apart, difference), weights, serves)


def _read_residual(
    header: Header, arrays: Arrays, content: Content, batch: KroneckerWorkload, cap: int
) -> ComponentLattice:
    columns, averages, measurements = [], [], len(arrays["noisy"])
    for n, k in zip(batch.sizes, header["distinct"], strict=True):
        own, home = content.next("value", n), content.next("orbit", k)
        orbits = int(home.max()) + 1
        if not (np.array_equal(np.unique(own), np.arange(k)) and np.array_equal(np.unique(home), np.arange(orbits))):
            raise ReleaseError("its columns do not fit together")
        columns.append(Column(n, own, home, (np.ones((1, orbits)),), np.zeros((1, orbits))))
        averages.append(content.next("averages", k))
    groups: Any
    if header["kind"] == WHOLE:
        groups = _read_whole(arrays, batch, tuple(columns), measurements)
    else:
        if sum(prod(map(len, one["lists"])) for one in header["groups"]) > measurements:
            raise ReleaseError("it has more components than measurements")
        groups = tuple(_read_group(one, content, tuple(columns), len(batch.tables)) for one in header["groups"])
    return ComponentLattice(batch, tuple(columns), tuple(averages), cap, groups)


def _read_whole(
    arrays: Arrays, batch: KroneckerWorkload, columns: tuple[Column, ...], measurements: int
) -> WholeGroups:
    if not is_whole(batch):
        raise ReleaseError("its tables are not whole")
    # Every component has a measurement, and a table as many components as its columns have subsets.
    if np.exp2(np.minimum(np.diff(batch.starts), 60)).sum() > ROOM + RATIO * measurements:
        raise ReleaseError("its tables have more components than it has measurements")
    found, bits, shares = closure(batch), whole_numbers("bits", arrays), archive.read_numbers("shares", arrays)
    if not len(bits) == len(shares) == found.size or np.any((bits < 0) | (bits > MOST_BITS)):
        raise ReleaseError("its components are not those of its tables")
    return WholeGroups(found, shares, columns, bits)


def _read_group(header: Header, content: Content, columns: tuple[Column, ...], tables: int) -> IntegerGroup:
    lists, squares = [], 1
    seen: set[int] = set()
    for own in header["lists"]:
        pieces = []
        for matrix, spread, (rows, combinations) in own:
            looked = [*matrix, *(i for i, _ in spread)]
            fits = list(matrix) == sorted(set(matrix)) and len(set(looked)) == len(looked)
            fits = fits and all(0 <= i < len(columns) for i in looked)
            fits = fits and all(0 <= o < columns[i].orbits for i, o in spread)
            if not fits or combinations != prod(columns[i].orbits for i in matrix) or rows < 1:
                raise ReleaseError("a component does not fit its columns")
            read = content.next("integers", rows, combinations), content.next("recover", combinations, rows)
            pieces.append(IntegerPiece(tuple(matrix), tuple((i, o) for i, o in spread), *read, None))
        looked_at = {i for p in pieces for i in (*p.matrix, *(c for c, _ in p.spread))}
        if looked_at & seen:
            raise ReleaseError("two lists of a component look at the same column")
        if prod(columns[i].orbits for i in looked_at) > ROOM + RATIO * sum(p.measure.size for p in pieces):
            raise ReleaseError("a component tells more records apart than it has numbers for")
        seen |= looked_at
        lists.append(tuple(pieces))
        squares *= largest_squares(pieces, columns)
    serves = _read_served(header["tables"], tables, "component")
    return IntegerGroup(tuple(lists), int(header["bits"]), squares, float(header["share"]), serves)


def _read_batch(header: Header, arrays: Arrays, content: Content) -> KroneckerWorkload:
    sizes = column_sizes("sizes", header["sizes"])
    joint = _read_joint(header.get("together", ()), sizes)
    axes = [*((i,) for i in range(len(sizes))), *joint]
    factors = tuple(
        tuple(Factor(n) if rows is None else Factor(n, content.next("given", rows, n)) for rows in own)
        for n, own in zip((prod(sizes[c] for c in looked) for looked in axes), header["factors"], strict=True)
    )
    starts, columns, chosen = (whole_numbers(name, arrays) for name in ("starts", "columns", "chosen"))
    weights, names = archive.read_numbers("weights", arrays), header["names"]
    counts = np.array([len(own) for own in factors])
    fits = (
        len(starts) > 1
        and starts[0] == 0
        and starts[-1] == len(columns) == len(chosen)
        and np.all(np.diff(starts) >= 0)
        and np.all((columns >= 0) & (columns < len(axes)))
        and all(one.given is not None for own in factors[len(sizes) :] for one in own)
        and np.all((chosen >= 0) & (chosen < counts[columns]))
        and len(weights) == len(starts) - 1
        and (names is None or (len(names) == len(weights) and all(isinstance(name, str) for name in names)))
    )
    if not fits or not _in_order(starts, columns, axes):
        raise ReleaseError("its tables do not fit together")
    called = header["tables_by"]
    if called is not None and (len(called) != len(sizes) or not all(isinstance(name, str) for name in called)):
        raise ReleaseError("its columns have no names")
    names, called = (None if one is None else tuple(one) for one in (names, called))
    return KroneckerWorkload(sizes, factors, starts, columns, chosen, weights, names, called, joint)


def _read_joint(given: Any, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The columns of every joint axis."""
    found = tuple(map(tuple, given))
    for looked in found:
        known = all(isinstance(c, int) and not isinstance(c, bool) and 0 <= c < len(sizes) for c in looked)
        if len(looked) < 2 or not known or any(a >= b for a, b in pairwise(looked)):
            raise ReleaseError("its tables look at no columns together")
        if prod(sizes[c] for c in looked) > MOST_VALUES:
            raise ReleaseError("its tables look at too many values together")
    if len(set(found)) < len(found):
        raise ReleaseError("its tables look at the same columns together twice")
    return found


def _in_order(starts: NDArray[np.int64], columns: NDArray[np.int64], axes: Sequence[tuple[int, ...]]) -> bool:
    """Whether every table's axes are in the order of their first columns, and none looks at another's."""
    rising = np.append(np.diff(np.array([looked[0] for looked in axes])[columns]) > 0, True)
    rising[starts[1:][starts[1:] > 0] - 1] = True
    joint = np.flatnonzero(columns >= sum(len(looked) == 1 for looked in axes))
    for t in np.unique(np.searchsorted(starts, joint, side="right") - 1).tolist():
        own = [c for axis in columns[starts[t] : starts[t + 1]].tolist() for c in axes[axis]]
        if len(set(own)) < len(own):
            return False
    return bool(np.all(rising[: len(columns)]))
