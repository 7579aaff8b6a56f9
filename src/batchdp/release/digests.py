"""What a release is about, as digests that the ledger keeps from the time of the charge.

A plan's digest covers what decides what is measured, and SQL and domain as they were asked, which a release of cells
does not hold: nobody could compute it again from the release. The answers' digest is of what the release itself says,
so that a ledger tells one whose names or queries were exchanged. Of cells, neither has B in it, whose last bits differ
from one processor to the next: the ledger keeps the answers that it gave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.linalg.matrix import plain
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.components.tables import TableReader
from batchdp.mechanism.knorm.lattice import ShapedAmounts, ShapedLattice
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.measurement import IntegerMeasurement
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.weighted.tables import WeightedReader

Described = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""A header, and arrays by their names."""


@singledispatch
def describe(measurement: IntegerMeasurement) -> Described:
    """What is measured and how it is read, apart from data and budget; each kind registers its own."""
    raise TypeError(f"nothing says how a {type(measurement).__name__} is described")


@describe.register
def _(measurement: Lattice) -> Described:
    merging = {} if measurement.merging is None else _parts("merging", sparse.csr_array(measurement.merging))
    return _cells(measurement), _matrices(measurement) | merging


@describe.register
def _(measurement: ShapedLattice) -> Described:
    header, arrays = describe.dispatch(Lattice)(measurement)
    return header | {"shape": measurement.shape.groups_text}, arrays


@describe.register
def _(measurement: ShapedAmounts) -> Described:
    header, arrays = describe.dispatch(AmountLattice)(measurement)
    return header | {"shape": measurement.shape.groups_text}, arrays


@describe.register
def _(measurement: AmountLattice) -> Described:
    columns = [sorted(column.items()) for column in (*measurement.levels, *measurement.slopes)]
    exact = {"fine": measurement.fine, "ends": measurement.workload.ends, "columns": columns}
    return _cells(measurement) | exact, _matrices(measurement)


def _cells(measurement: Lattice | AmountLattice) -> dict[str, Any]:
    workload = measurement.workload
    return {
        "noise": measurement.noise.name,
        "bits": measurement.bits,
        "largest_total": measurement.largest_total,
        "blocks": workload.blocks,
        "meetings": workload.meetings,
    }


def _matrices(measurement: Lattice | AmountLattice) -> dict[str, NDArray[Any]]:
    W = sparse.csr_array(plain(measurement.workload.matrix))
    return _parts("integers", measurement.integers) | _parts("workload", W)


def _parts(name: str, matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    shape = np.array(matrix.shape, dtype=np.int64)
    parts = {"data": matrix.data, "indices": matrix.indices.astype(np.int64), "indptr": matrix.indptr.astype(np.int64)}
    return {f"{name}.{part}": own for part, own in parts.items()} | {f"{name}.shape": shape}


def plan_digest(measurement: IntegerMeasurement, neighbours: str, names: Sequence[str], asked: str = "") -> str:
    """SHA-256 of everything that decides what is released and how it is read, apart from the data and the budget.

    Args:
        measurement: what is measured.
        neighbours: whose privacy.
        names: of the answers, or of the columns.
        asked: what cells and columns stand for.
    """
    header, arrays = describe(measurement)
    arrays.pop("bits", None)  # of whole tables, which follow from the budget
    digest = hashlib.sha256(json.dumps([header, neighbours, list(names), asked]).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@singledispatch
def answers_digest(reader: Any, told: Mapping[str, Any], neighbours: str) -> str:
    """SHA-256 of what answers are called, over which queries, from which measurements; each kind registers its own.

    Args:
        reader: of the answers.
        told: what is said of them beside their queries, as it is serialised.
        neighbours: whose privacy.
    """
    raise TypeError(f"nothing says what the answers of a {type(reader).__name__} are")


@answers_digest.register
def _(reader: CellReader, told: Mapping[str, Any], neighbours: str) -> str:
    return digest_of({"names": list(reader.names), **told}, (reader.measure, reader.workload))


@answers_digest.register(TableReader)
@answers_digest.register(WeightedReader)
def _(reader: Any, told: Mapping[str, Any], neighbours: str) -> str:
    return plan_digest(reader.lattice, neighbours, told["column_names"], json.dumps(told))


def digest_of(said: Mapping[str, Any], matrices: Iterable[Any] = ()) -> str:
    """SHA-256 of something that is serialised, and of matrices by the numbers that they hold, however they are stored.

    Args:
        said: what a release says of its answers, such as their names.
        matrices: L and W, as a release of cells has them.
    """
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    for matrix in matrices:
        rows = sparse.csr_array(matrix, copy=True).astype(np.float64)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        digest.update(json.dumps([*(int(size) for size in rows.shape), int(rows.nnz)]).encode())
        for part, kind in ((rows.data, "<f8"), (rows.indices, "<i8"), (rows.indptr, "<i8")):
            digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()
