"""Workloads that every method has to cope with, and the figures that other programs reach."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from batchdp import MatrixWorkload, workloads
from batchdp.domain import Domain
from batchdp.linalg.product import CellMap, Product
from batchdp.queries.query import Query
from batchdp.sql import read_queries
from batchdp.sql.script import Batch, batch_of, load_text, read_selections
from batchdp.workloads.encode.atoms import split
from batchdp.workloads.encode.cells import MOST_CELLS, Cells, blocks
from batchdp.workloads.matrix import as_workload
from contract import contract_workload as contract_workload
from contract import peer_figures as peer_figures


def read_batch(sql: str, domain: Domain, *, source: str = "queries") -> Batch:
    """What some SQL asks for."""
    return batch_of(read_selections(sql, domain, source=source))


def load_queries(path: str | os.PathLike[str], domain: Domain) -> tuple[Query, ...]:
    """Those in a file."""
    return read_queries(load_text(path), domain, source=str(path))


EXAMPLE_1 = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
EXAMPLE_2 = np.array([[0, 2, 1, 1], [0, 1, 0, 2], [1, 0, 2, 2]])


def small_workloads() -> dict[str, MatrixWorkload]:
    """One of each kind that could trip a method."""
    rng = np.random.default_rng(0)
    repeated = rng.integers(-2, 3, size=(4, 5)).astype(float)
    return {
        "example 1": MatrixWorkload(EXAMPLE_1),
        "example 2": MatrixWorkload(EXAMPLE_2),
        "discrete": workloads.discrete(6, 9),
        "ranges": workloads.ranges(7, 11),
        "related": workloads.related(8, 12, 3),
        "prefix": workloads.prefix(9),
        "all ranges": workloads.all_ranges(6),
        "sliding": workloads.sliding(8, 3),
        "marginals": as_workload(workloads.marginals((2, 3, 2), 2)),
        "one query": MatrixWorkload([[1.0, 2.0, -3.0]]),
        "one cell": MatrixWorkload([[2.0], [-1.0]]),
        "one by one": MatrixWorkload([[3.0]]),
        "rank one": MatrixWorkload(np.outer([1.0, -2.0, 0.5], [1, 2, 3, 4])),
        "zero row": MatrixWorkload([[1, 1, 0], [0, 0, 0], [0, 1, 1]]),
        "zero column": MatrixWorkload([[1, 0, 2], [1, 0, -1]]),
        "all zero": MatrixWorkload(np.zeros((2, 3))),
        "repeated": MatrixWorkload(np.vstack([np.hstack([repeated, -repeated]), np.hstack([repeated, -repeated])])),
        "tall": MatrixWorkload(rng.standard_normal((20, 3))),
        "wide": MatrixWorkload(rng.standard_normal((3, 20))),
        "weighted": MatrixWorkload(rng.standard_normal((5, 7)), weights=[1, 10, 0.1, 3, 1]),
        "sparse": MatrixWorkload(sparse.random_array((6, 15), density=0.3, rng=rng)),
        "tiny numbers": MatrixWorkload(rng.standard_normal((3, 4)) * 1e-20),
        "huge numbers": MatrixWorkload(rng.standard_normal((3, 4)) * 1e20),
        "blocks": MatrixWorkload(sparse.block_diag([np.tril(np.ones((4, 4))), np.eye(2)]), blocks=[4, 2]),
        "spanning": MatrixWorkload(
            [[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 1, -1]], blocks=[3, 2]
        ),
        "product": MatrixWorkload(
            Product(repeated, CellMap(np.array([4, 0, 0, 2, 1, 1, 3, 1]), np.ones(8), 5).matrix())
        ),
    }


def every_number(
    queries: Sequence[Query],
    domain: Domain,
    *,
    most: int = MOST_CELLS,
    partition: Sequence[Sequence[int]] | None = None,
) -> Cells:
    """As `cells_of`, with summed columns as where one query sums several: every number by itself, not by ends."""
    atoms = split(queries, domain)
    return Cells(tuple(query.name for query in queries), atoms, blocks(queries, atoms, most, None, partition))
