"""The residual of strategies over many columns is measured: that of explicit matrices, also of spoiled ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchdp import optimize, workloads
from batchdp.optimizer.marginal.search import optimize_products as weigh_products
from batchdp.optimizer.options import Options
from batchdp.optimizer.residual.optimizing import optimize_products
from batchdp.strategies.marginal.strategy import MarginalGroup, MarginalStrategy
from batchdp.strategies.residual.strategy import ListedParts, ResidualStrategy
from batchdp.strategies.strategy import FactoredStrategy
from batchdp.workloads.kronecker import in_factors
from test_components import batch_of, structure


def explicit(strategy: FactoredStrategy) -> float:
    assert isinstance(strategy, ResidualStrategy | MarginalStrategy)
    W = strategy.workload.matrix.toarray()
    return float(np.linalg.norm(W - strategy.reconstruct @ strategy.measure) / np.linalg.norm(W))


def spoiled(strategy: FactoredStrategy) -> FactoredStrategy:
    """The same with one thing that is recovered, or weighed, wrongly."""
    if isinstance(strategy, ResidualStrategy):
        assert isinstance(strategy.parts, ListedParts)
        groups = list(strategy.parts.groups)
        first = groups[0].lists[0]
        lists = ((replace(first[0], recover=2 * first[0].recover), *first[1:]), *groups[0].lists[1:])
        groups[0] = replace(groups[0], lists=lists)
        return replace(strategy, parts=ListedParts(tuple(groups)))
    assert isinstance(strategy, MarginalStrategy)
    kept = strategy.groups[0]
    assert isinstance(kept, MarginalGroup)
    worse = tuple(replace(own, tau=1.5 * own.tau) for own in kept.insides)
    return replace(strategy, groups=(replace(kept, insides=worse), *strategy.groups[1:]))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.booleans())
def test_it_is_that_of_the_explicit_matrices(seed: int, laplace: bool) -> None:
    batch = batch_of(seed)
    if not np.any(batch.matrix.toarray()):
        return
    strategy: FactoredStrategy = weigh_products(batch, Options(seconds=0.2)) if laplace else optimize_products(batch)
    assert strategy.residual <= 1e-9
    assert explicit(strategy) <= 1e-9


def test_a_spoiled_strategy_shows_the_residual_that_it_has() -> None:
    # Prefixes are no whole tables, so that parts are listed.
    ranges = in_factors((4, 3), [[np.tri(4), np.eye(3)], [None, np.eye(3)]])
    marginals = structure(workloads.marginals((3, 4, 2), [0, 1, 2]))
    for strategy in (optimize_products(ranges), weigh_products(marginals)):
        worse = spoiled(strategy)
        assert worse.residual > 0.01
        assert worse.residual == pytest.approx(explicit(worse), rel=1e-9)


def test_some_tables_and_records_of_a_large_batch_are_looked_at() -> None:
    batch = workloads.marginals((5,) * 12, [0, 1, 2])
    for privacy in ("zcdp", "pure"):
        assert 0 < optimize(batch, privacy=privacy).residual <= 1e-12
    weighed = optimize(batch, privacy="pure")
    assert isinstance(weighed, MarginalStrategy)
    assert spoiled(weighed).residual > 0.01
