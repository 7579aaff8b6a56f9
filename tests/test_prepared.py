"""What a strategy needs before it is measured: exact whatever way it is computed, and prepared once."""

from __future__ import annotations

import gc
from fractions import Fraction
from math import trunc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import batchdp
from batchdp.mechanism import amounts, lattice, prepare
from batchdp.mechanism.measurement import Neighbours
from batchdp.privacy import LAPLACE, Budget
from batchdp.strategies.pair import PairStrategy

SQL = "SELECT g, AVG(a) AS mean, COUNT(*) AS n FROM t GROUP BY g"
DOMAIN = "table = 't'\n[columns.a]\nintegers = [0, 20]\n[columns.g]\nvalues = ['x', 'y']\n"


@pytest.mark.parametrize("bits", [0, 3, 40, 52, 53, 54, 90])
def test_floats_become_whole_numbers_toward_zero_exactly(bits: int) -> None:
    rng = np.random.default_rng(bits)
    small = rng.normal(size=50) * 2.0 ** -rng.integers(1, 80, 50).astype(float)
    values = np.concatenate([rng.normal(size=200), small, [0, 1, -1, 0.1]])
    assert amounts._scaled(values, bits) == [trunc(Fraction(value) * 2**bits) for value in values.tolist()]


def test_whole_numbers_of_any_size_become_floats_that_are_rounded_once() -> None:
    plan = batchdp.plan(SQL, DOMAIN, cache=False)
    made = amounts.quantise_amounts(cast(PairStrategy, plan.strategy), largest_total=10**9)
    column = {0: 2**70 + 1, 1: -(2**61 - 1), 2: 3}
    found = made._matrix([column], 67).toarray()[:3, 0]
    assert found.tolist() == [value / 2**67 for value in column.values()]
    fresh = [made.upper(pair) for pair in range(len(made.slopes))]
    assert list(made.uppers) == fresh
    again = amounts.AmountLattice(**{name: getattr(made, name) for name in made.__dataclass_fields__})
    both = zip(made.extremes[:2], again.extremes[:2], strict=True)
    assert all(np.array_equal(one.toarray(), other.toarray()) for one, other in both)


def test_a_mechanism_is_prepared_once_and_kept_as_long_as_its_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = batchdp.plan(SQL, DOMAIN, cache=False).strategy
    whose, budget = Neighbours("add-remove"), Budget(LAPLACE, 0.5)
    first = prepare.prepare(strategy, whose, budget, None)
    monkeypatch.setattr(prepare, "calibrate", None)  # which nothing asks again
    second = prepare.prepare(strategy, whose, budget, None)
    assert second.measurement is first.measurement
    assert second.noises == first.noises
    assert second.reader is not first.reader
    with pytest.raises(TypeError):  # another budget is another mechanism
        prepare.prepare(strategy, whose, Budget(LAPLACE, 0.25), None)
    before = len(prepare._PREPARED)
    del strategy, first, second
    gc.collect()
    assert len(prepare._PREPARED) < before


def test_two_releases_of_one_plan_have_noise_of_their_own(tmp_path: Path) -> None:
    plan = batchdp.plan(SQL, DOMAIN, cache=False)
    table = {"a": np.arange(20), "g": np.array(["x", "y"] * 10)}
    import pandas as pd  # type: ignore[import-untyped]

    ledger = batchdp.Ledger.create(tmp_path / "ledger.db", epsilon=2.0)
    releases = [batchdp.answer(plan, pd.DataFrame(table), epsilon=1.0, ledger=ledger) for _ in range(2)]
    assert not np.array_equal(releases[0].values, releases[1].values)
    assert np.array_equal(releases[0].standard_errors[2:], releases[1].standard_errors[2:])


@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (7, 7)])
def test_b_is_fitted_to_what_is_measured_by_gram_matrices_as_by_singular_values(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    M, E = rng.normal(size=shape), rng.normal(size=(3, shape[1])) * 1e-9
    solved = lattice._solve_well(M, E, 1e-9)
    assert solved is not None
    assert np.allclose(solved, E @ np.linalg.pinv(M), rtol=1e-12, atol=1e-22)
    M[:, 0] = M[:, 1] * (1 + 1e-7)
    M[0] = M[1] * (1 + 1e-7)
    assert lattice._solve_well(M, E, 1e-9) is None  # what is left to singular values
    assert lattice._solve_well(rng.normal(size=shape), E, 1e3) is None


def test_b_is_fitted_by_one_thread_of_linear_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen: list[set[int]] = []
    solve = lattice._solve_well

    def noticed(*asked: Any) -> Any:
        seen.append(threads())
        return solve(*asked)

    monkeypatch.setattr(lattice, "_solve_well", noticed)
    rng = np.random.default_rng(0)
    with threadpool_limits(2, "blas"):
        before = threads()
        lattice.refit(rng.normal(size=(3, 4)), np.zeros((3, 4)), sparse.csr_array(np.eye(4)))
        assert threads() == before
    assert seen == [{1}]
