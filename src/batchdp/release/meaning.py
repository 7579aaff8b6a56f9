"""What a release is about, as digests that the ledger keeps from the time of the charge.

A plan's digest covers SQL and domain as they were asked, which a release does not hold: nobody could compute it again
from the release. The answers' digest is of what the release itself says, so that a ledger tells one whose names or
queries were exchanged. Neither has B in it, whose last bits differ from one processor to the next: the ledger keeps the
answers that it gave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.linalg.matrix import plain
from batchdp.measuring.amounts import AmountLattice
from batchdp.measuring.lattice import Lattice
from batchdp.measuring.law import NoiseLaw
from batchdp.measuring.mechanism import Mechanism
from batchdp.measuring.neighbours import Neighbours
from batchdp.measuring.preparing import prepared
from batchdp.measuring.shaping.lattice import ShapedLattice
from batchdp.release.certificate import PrivacyCertificate
from batchdp.strategies.strategy import Strategy


def answers_digest(said: Mapping[str, Any], measure: sparse.csr_array, workload: sparse.csr_array) -> str:
    """SHA-256 of what answers are called, over which queries, from which measurements.

    Matrices enter by the numbers that they hold, however they are stored.

    Args:
        said: what the release's file says of its answers, such as their names, as it is serialised.
        measure: L, as the release has it.
        workload: W, likewise.
    """
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    for matrix in (measure, workload):
        rows = sparse.csr_array(matrix, copy=True).astype(np.float64)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        digest.update(json.dumps([*(int(size) for size in rows.shape), int(rows.nnz)]).encode())
        for part, kind in ((rows.data, "<f8"), (rows.indices, "<i8"), (rows.indptr, "<i8")):
            digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()


def plan_digest(lattice: Lattice | AmountLattice, neighbours: Neighbours, asked: str = "") -> str:
    """A fingerprint of everything that decides what is measured, apart from the data and the budget.

    Args:
        lattice: what is measured.
        neighbours: whose privacy.
        asked: what the cells stand for.
    """
    digest = hashlib.sha256()
    Q = lattice.integers
    workload = lattice.workload
    settings: list[Any] = [lattice.privacy, lattice.bits, lattice.largest_total, str(neighbours), Q.shape]
    header = [*settings, workload.names, workload.blocks, asked]
    digest.update(json.dumps(header).encode())
    merging: tuple[sparse.csr_array, ...] = ()
    if isinstance(lattice, AmountLattice):
        exact = [lattice.fine, workload.ends, [sorted(column.items()) for column in (*lattice.levels, *lattice.slopes)]]
        digest.update(json.dumps(exact).encode())
    elif lattice.merging is not None:
        merging = (sparse.csr_array(lattice.merging),)
    if isinstance(lattice, ShapedLattice):
        digest.update(lattice.shape.groups_text.encode())
    for matrix in (Q, sparse.csr_array(plain(lattice.workload.matrix)), *merging):
        for part in (matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def prepared_as_asked(
    strategy: Strategy,
    neighbours: Neighbours,
    budget: float,
    max_rows: int | None,
    asked: str,
    before: PrivacyCertificate | None,
) -> tuple[Lattice | AmountLattice, Mechanism, NoiseLaw, str]:
    """The lattice, the noise on it, its law and the plan's digest; for a repeat, as they were `before`."""
    if before is None:
        made = prepared(strategy, neighbours, budget, max_rows)
        return *made, plan_digest(made[0], neighbours, asked)
    cap = before.largest_total if max_rows is None else max_rows  # a later version may need less noise, and try another
    made = prepared(strategy, neighbours, budget, cap, drawn=True)
    return *made, plan_digest(made[0], neighbours, asked)
