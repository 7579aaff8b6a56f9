"""Files of released tables: the batch in its factors, the integer pieces, the noisy measurements; no answers.

Answers are made from these when somebody looks. Sensitivities are never believed: they are computed from the pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp import archive
from batchdp.components.columns import Column
from batchdp.components.whole import closure, is_whole
from batchdp.errors import ReleaseError
from batchdp.mechanism.components.integers import IntegerPiece
from batchdp.mechanism.components.lattice import ComponentLattice, IntegerGroup, WholeGroups
from batchdp.mechanism.components.tables import TableReader
from batchdp.mechanism.reader import Reader
from batchdp.mechanism.sensitivity import largest_squares
from batchdp.mechanism.weighted.lattice import WeightedLattice
from batchdp.mechanism.weighted.tables import WeightedReader
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.components.arrays import Reading, whole_numbers
from batchdp.release.components.weighted_codec import WEIGHTED, described_weighted, read_weighted
from batchdp.release.digests import Described, describe
from batchdp.release.file import DECODERS, Encoded, Header, encode
from batchdp.workloads.structure import Factor, KroneckerWorkload, column_sizes

WHOLE, LISTED = "whole", "listed"
"""What a file calls residual measurements: of whole tables, or of listed ones."""
ROOM, RATIO = 2**16, 8
"""How many combinations a file may ask to be gone through: so many, and so many for every number that it holds."""
Arrays = Mapping[str, NDArray[Any]]


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
    header |= {"kind": LISTED, "groups": [_header(group) for group in groups]}
    arrays["integers"] = np.concatenate([np.zeros(0, np.int64), *(p.integers.reshape(-1) for p in pieces)])
    arrays["recover"] = np.concatenate([np.zeros(0), *(p.recover.reshape(-1) for p in pieces)])
    return header, arrays


def _header(group: IntegerGroup) -> dict[str, Any]:
    return {
        "bits": group.bits,
        "share": group.share,
        "tables": None if group.tables is None else sorted(group.tables),
        "lists": [[[p.matrix, p.spread, p.integers.shape] for p in own] for own in group.lists],
    }


def _decode(header: Header, arrays: Arrays, certificate: PrivacyCertificate, most_bytes: int | None) -> Reader:
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


DECODERS |= dict.fromkeys((WHOLE, LISTED, *WEIGHTED), _decode)
