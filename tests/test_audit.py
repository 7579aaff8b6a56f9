"""The audit passes what is right and catches what is wrong: each mutant breaks one thing, and each must be caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from audit import honest
from batchdp import STRATEGIES, MatrixWorkload, PairStrategy, audit, optimize, workloads
from batchdp.audits.attack import attack
from batchdp.audits.exact import exact
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.measure import Measured, measure
from batchdp.mechanism.measurement import GroupNoise, Integers, Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample_independent
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise
from batchdp.private import CellCounts
from mechanisms import prepared

RUNS = 100_000

Draw = Callable[[NDArray[np.float64], Integers], NDArray[Any]]
Subject = tuple[Mechanism, Draw | None]
"""What is released, and the noise that is really drawn; the right one if None."""


MIXED = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.6], [0.0, 0.6, -0.6]])
"""One cell measured by itself, and two by a sum and a difference."""


def subject(privacy: Any = "pure", rows_per_unit: int = 1, budget: float = 1.0, L: np.ndarray = MIXED) -> Mechanism:
    strategy = PairStrategy(MatrixWorkload(L), L, np.eye(len(L)), privacy=privacy)
    made = prepared(strategy, Neighbours("add-remove", rows_per_unit), budget, 10**6)
    assert isinstance(made.measurement, Lattice)
    return made


def broken(made: Mechanism, draw: Draw | None = None, runs: int = 20_000) -> set[str]:
    return {finding.check for finding in (*exact(made), *attack(made, runs, draw)) if not finding.held}


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_what_is_right_passes(privacy: Any, rows_per_unit: int) -> None:
    assert broken(subject(privacy, rows_per_unit)) == set()


def test_the_audit_of_a_strategy_passes_and_can_be_read() -> None:
    found = audit(optimize(workloads.ranges(4, 6)), epsilon=0.5, runs=5_001)
    assert found.passed
    assert str(found).count("ok ") == len(found.findings)
    assert audit(STRATEGIES["gaussian"](workloads.prefix(3)), rho=0.1, neighbours="replace", runs=5_000).passed


@pytest.mark.slow  # with all checks, one of the mutants below
def test_a_privacy_loss_of_ten_percent_more_is_noticed_by_the_attack_alone() -> None:
    made = subject(L=np.eye(1))
    attacks = [f for f in attack(made, RUNS, shrunk(LAPLACE, 1 / 1.10)) if f.check.startswith("attack")]
    assert attacks
    assert not all(finding.held for finding in attacks)
    honest = [f for f in attack(made, RUNS) if f.check.startswith("attack")]
    assert honest
    assert all(finding.held for finding in honest)


@pytest.mark.parametrize(("excess", "runs"), [(1.10, RUNS), (1.02, 1_000_000)])
def test_noise_of_a_larger_mu_is_noticed_in_the_profile(excess: float, runs: int) -> None:
    """At the ε whose δ is a tenth; on NumPy's draws, which are quick. benchmarks/audit.py takes those of releases."""
    made, rng = honest(GAUSSIAN, 0.5), np.random.default_rng(37)

    def drawn(factor: float) -> Draw:
        return lambda scales, sizes: np.rint(factor * np.repeat(scales, sizes) * rng.normal(size=sizes.sum()))

    for factor, held in ((1.0, True), (1 / excess, False)):
        (found,) = (one for one in attack(made, runs, drawn(factor)) if one.check.startswith("profile"))
        assert found.held == held, found


def shrunk(noise: Noise, factor: float) -> Draw:
    """Noise that is smaller than it says."""
    return lambda scales, sizes: np.rint(factor * sample_independent(noise, scales, sizes)).astype(np.int64)


def none_at_all(scales: NDArray[np.float64], sizes: Integers) -> Integers:
    return np.zeros(int(sizes.sum()), dtype=np.int64)


def shared(scales: NDArray[np.float64], sizes: Integers) -> Integers:
    """One draw for two measurements."""
    half = sample_independent(LAPLACE, scales, (sizes + 1) // 2)
    return np.repeat(half, 2)[: int(sizes.sum())]


def seeded(scales: NDArray[np.float64], sizes: Integers) -> Integers:
    scale = np.repeat(scales, sizes)
    return np.random.default_rng(7).laplace(scale=scale).astype(np.int64)


class Wrapping(Lattice):
    """Computes Q x in 64 bits whatever the counts are."""


@measure.register
def _(measurement: Wrapping, counts: CellCounts, *, exact: bool = False) -> Measured:
    with np.errstate(over="ignore"):
        yield 0, 0, measurement.integers @ counts.counts


class Swallowing(Lattice):
    """Computes Q x in floats, which stop counting at 2^53."""


@measure.register
def _(measurement: Swallowing, counts: CellCounts, *, exact: bool = False) -> Measured:
    product = measurement.integers.astype(float) @ counts.counts.astype(float)
    yield 0, 0, np.array([max(-(2**61), min(2**61, int(z))) for z in product])


def _as(kind: type[Lattice], made: Mechanism, **changes: Any) -> Mechanism:
    names = ("workload", "integers", "reconstruct", "bits", "largest_total", "noise")
    lattice = kind(**{**{name: getattr(made.measurement, name) for name in names}, **changes})
    return replace(made, measurement=lattice)


def mutants(made: Mechanism) -> dict[str, Subject]:
    lattice: Any = made.measurement
    (noise,) = made.noises
    Q = lattice.integers.toarray()
    grown = sparse.csr_array(np.where(Q > 0, Q + 1, Q))  # rounded away from zero, sensitivity as before

    def noised(**changes: Any) -> Mechanism:
        return replace(made, noises=(replace(noise, **changes),))

    return {
        "scale times 0.9": (made, shrunk(LAPLACE, 0.9)),
        "no noise at all": (made, none_at_all),
        "L2 in place of L1": (noised(moved=math.isqrt(lattice.column_squares)), None),
        "one draw for two measurements": (made, shared),
        "two rows a person, noise for one": (replace(made, neighbours=Neighbours("add-remove", 2)), None),
        "replacing, noise for adding": (replace(made, neighbours=Neighbours("replace", 1)), None),
        "wrapped around 64 bits": (_as(Wrapping, made), None),
        "floats that stop counting": (_as(Swallowing, made), None),
        "scale not a number": (noised(scale=math.nan), None),
        "scale zero": (noised(scale=0.0), None),
        "scale halved": (noised(moved=noise.moved // 2, scale=noise.scale / 2), None),
        "seeded, so forks repeat": (made, seeded),
        "rounded away from zero": (_as(Lattice, made, integers=grown), None),
        "charged half": (replace(made, budget=Budget(LAPLACE, 0.5)), None),
        "map above the charge": (noised(loss=1.01), None),
        "map below the loss": (noised(loss=0.99), None),
        "no noise is said to be needed": (replace(made, noises=(GroupNoise(0, 0.0, 0.0),)), None),
        "answers that miss the workload": (_as(Lattice, made, reconstruct=np.eye(3) * (1 + 1e-6)), None),
        "answers that are no numbers": (_as(Lattice, made, reconstruct=np.full((3, 3), math.nan)), None),
    }


@pytest.mark.parametrize("name", mutants(subject()))
def test_every_mutant_is_caught(name: str) -> None:
    assert broken(*mutants(subject())[name])


def test_there_are_at_least_twelve_mutants() -> None:
    assert len(mutants(subject())) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_gaussian_scale_is_checked_too(factor: float) -> None:
    assert "noise scale" in broken(subject("zcdp", budget=0.5), shrunk(GAUSSIAN, factor))
