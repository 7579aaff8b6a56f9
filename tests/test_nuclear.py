"""Nuclear norms of tables of up to two columns at a product of measures, against those of the matrix."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from batchdp.optimizer.residual import nuclear
from batchdp.optimizer.residual.limits import in_full
from batchdp.optimizer.residual.nuclear import norm_of_pairs
from batchdp.optimizer.residual.splits import Batch
from batchdp.workloads.kronecker import in_factors

Dense = NDArray[np.float64]
SIZES = (3, 4, 2, 5)


def tables(kind: str, rng: np.random.Generator) -> list[Any]:
    """The same product for every two columns, products that differ, or queries on both together; and others."""
    same = [rng.normal(size=(4, n)) for n in SIZES]
    found: list[Any] = [((), (), 0.7)]
    for c, n in enumerate(SIZES):
        found += [((c,), (same[c],), 1.3), ((c,), (rng.normal(size=(2, n)),), 0.5)]
    for a, b in combinations(range(len(SIZES)), 2):
        if kind == "joint" and (a + b) % 2:
            found.append(((a, b), (rng.normal(size=(6, SIZES[a] * SIZES[b])),), 0.9))
        elif kind == "different":
            found.append(((a, b), (rng.normal(size=(2, SIZES[a])), rng.normal(size=(3, SIZES[b]))), 1.1))
        found.append(((a, b), (same[a], same[b]), 0.4))
    return found


def by_matrix(asked: list[Any], measures: dict[int, Dense]) -> float:
    """Of W itself."""
    rows = []
    for columns, factors, weight in asked:
        M = np.ones((1, 1))
        if len(factors) < len(columns):
            a, b = columns
            wide = np.zeros((len(factors[0]), *SIZES)) + factors[0].reshape(
                -1, *(n if c in (a, b) else 1 for c, n in enumerate(SIZES))
            )
            M = wide.reshape(len(wide), -1)
        else:
            for c, n in enumerate(SIZES):
                M = np.kron(M, factors[columns.index(c)] if c in columns else np.ones((1, n)))
        rows.append(np.sqrt(weight) * M)
    mass: Any = np.ones(1)
    for own in measures.values():
        mass = np.kron(mass, own)
    return float(np.linalg.svd(np.concatenate(rows) * np.sqrt(mass), compute_uv=False).sum())


@pytest.mark.parametrize("kind", ["same", "different", "joint"])
@pytest.mark.parametrize("seed", range(4))
def test_the_norm_is_that_of_the_matrix(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = tables(kind, rng)
    measures = {c: rng.dirichlet(np.ones(n)) for c, n in enumerate(SIZES)}
    exact = by_matrix(asked, measures)
    found = norm_of_pairs(asked, measures)
    assert found is not None
    assert (1 - 3e-5) * exact <= found <= exact


def test_queries_that_say_nothing_new_and_none_at_all() -> None:
    measures = {0: np.full(3, 1 / 3), 1: np.full(4, 1 / 4)}
    each = [((0,), (np.eye(3),), 1.0), ((0, 1), (np.eye(3), np.ones((1, 4))), 2.0), ((0, 1), (np.zeros((1, 12)),), 1.0)]
    assert norm_of_pairs(each, measures) == pytest.approx(3**0.5 * 3 * 3**-0.5, rel=2e-5)
    assert norm_of_pairs([((0,), (np.zeros((1, 3)),), 1.0)], measures) == 0
    assert norm_of_pairs([], measures) == 0


def test_what_is_too_wide_is_left_to_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    measures = {c: np.full(n, 1 / n) for c, n in enumerate(SIZES)}
    assert norm_of_pairs([((0, 1, 2), tuple(np.eye(n) for n in SIZES[:3]), 1.0)], measures) is None
    monkeypatch.setattr(nuclear, "MOST_TOGETHER", 2)
    assert norm_of_pairs(tables("different", rng), measures) is None
    three = in_factors((3, 3, 3), [dict.fromkeys(range(3), np.tril(np.ones((3, 3))))])
    batch = Batch(three)
    limit = in_full(batch, batch.terms(three.weights), {i: batch.uniform(i) for i in batch.wide()})
    assert limit == pytest.approx(np.linalg.svd(three.matrix.toarray(), compute_uv=False).sum() ** 2 / 27, rel=1e-9)
