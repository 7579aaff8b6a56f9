"""The audit passes what is right and catches what is wrong: each mutant breaks one thing, and each must be caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from batchdp import STRATEGIES, Strategy, Workload, audit, optimize, workloads
from batchdp.audits.attack import attacked
from batchdp.audits.exact import exact
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.mechanism import Mechanism
from batchdp.mechanism.neighbours import Neighbours
from batchdp.mechanism.preparing import prepared

RUNS = 100_000

Subject = tuple[Lattice, Mechanism, NoiseLaw, Neighbours, float]


MIXED = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.6], [0.0, 0.6, -0.6]])
"""One cell measured by itself, and two by a sum and a difference."""


def subject(privacy: Any = "pure", rows_per_unit: int = 1, budget: float = 1.0, L: np.ndarray = MIXED) -> Subject:
    strategy = Strategy(Workload(L), L, np.eye(len(L)), privacy=privacy)
    neighbours = Neighbours("add-remove", rows_per_unit)
    lattice, noise, law = prepared(strategy, neighbours, budget, 10**6)
    assert isinstance(lattice, Lattice)
    return lattice, noise, law, neighbours, budget


def broken(checked: Subject, runs: int = 20_000) -> set[str]:
    lattice, noise, law, neighbours, budget = checked
    findings = [*exact(lattice, noise, law, neighbours, budget), *attacked(lattice, noise, neighbours, budget, runs)]
    return {finding.check for finding in findings if not finding.held}


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
    lattice, noise, _, neighbours, budget = subject(L=np.eye(1))
    weaker = _scaled(noise, 1 / 1.10)
    attacks = [f for f in attacked(lattice, weaker, neighbours, budget, RUNS) if f.check.startswith("attack")]
    assert not all(finding.held for finding in attacks)
    honest = [f for f in attacked(lattice, noise, neighbours, budget, RUNS) if f.check.startswith("attack")]
    assert all(finding.held for finding in honest)


def _scaled(noise: Mechanism, factor: float) -> Mechanism:
    """Noise that is smaller than it says."""

    def draw(values: Sequence[int]) -> list[int]:
        zero = noise.draw([0] * len(values))
        return [z + round(factor * eta) for z, eta in zip(values, zero, strict=True)]

    return replace(noise, draw=draw)


def _drawing(noise: Mechanism, draw: Callable[[Sequence[int]], list[int]]) -> Mechanism:
    return replace(noise, draw=draw)


def _shared_draw(values: Sequence[int], noise: Mechanism) -> list[int]:
    eta = [int(x) for x in np.repeat(noise.draw([0] * ((len(values) + 1) // 2)), 2)]
    return [z + e for z, e in zip(values, eta, strict=False)]


def _seeded(values: Sequence[int], scale: float) -> list[int]:
    rng = np.random.default_rng(7)
    return [z + int(e) for z, e in zip(values, rng.laplace(scale=scale, size=len(values)), strict=True)]


class Wrapping(Lattice):
    """Computes Q x in 64 bits whatever the counts are."""

    def measured(self, counts: np.ndarray) -> list[int]:
        with np.errstate(over="ignore"):
            return [int(z) for z in self.integers @ counts]


class Swallowing(Lattice):
    """Computes Q x in floats, which stop counting at 2^53."""

    def measured(self, counts: np.ndarray) -> list[int]:
        product = self.integers.astype(float) @ counts.astype(float)
        return [max(-(2**61), min(2**61, int(z))) for z in product]


def _as(kind: type[Lattice], lattice: Lattice, **changes: Any) -> Lattice:
    names = ("workload", "integers", "reconstruct", "bits", "largest_total", "privacy")
    return kind(**{**{name: getattr(lattice, name) for name in names}, **changes})


def mutants(checked: Subject) -> dict[str, Subject]:
    lattice, noise, law, neighbours, budget = checked
    Q = lattice.integers.toarray()
    grown = sparse.csr_array(np.where(Q > 0, Q + 1, Q))  # rounded away from zero, sensitivity as before
    half = replace(noise, sensitivity=noise.sensitivity // 2, scale=noise.scale / 2)
    return {
        "scale times 0.9": (lattice, _scaled(noise, 0.9), law, neighbours, budget),
        "no noise at all": (lattice, _drawing(noise, list), law, neighbours, budget),
        "L2 in place of L1": (
            lattice,
            replace(noise, sensitivity=math.isqrt(lattice.column_squares)),
            law,
            neighbours,
            budget,
        ),
        "one draw for two measurements": (
            lattice,
            _drawing(noise, lambda values: _shared_draw(values, noise)),
            law,
            neighbours,
            budget,
        ),
        "two rows a person, noise for one": (lattice, noise, law, Neighbours("add-remove", 2), budget),
        "replacing, noise for adding": (lattice, noise, law, Neighbours("replace", 1), budget),
        "wrapped around 64 bits": (_as(Wrapping, lattice), noise, law, neighbours, budget),
        "floats that stop counting": (_as(Swallowing, lattice), noise, law, neighbours, budget),
        "scale not a number": (lattice, replace(noise, scale=math.nan), law, neighbours, budget),
        "scale zero": (lattice, replace(noise, scale=0.0), law, neighbours, budget),
        "scale halved": (lattice, half, law, neighbours, budget),
        "seeded, so forks repeat": (
            lattice,
            _drawing(noise, lambda values: _seeded(values, noise.scale)),
            law,
            neighbours,
            budget,
        ),
        "rounded away from zero": (_as(Lattice, lattice, integers=grown), noise, law, neighbours, budget),
        "charged half": (lattice, noise, law, neighbours, budget / 2),
        "map above the charge": (lattice, replace(noise, loss=budget * 1.01), law, neighbours, budget),
        "answers that miss the workload": (
            _as(Lattice, lattice, reconstruct=np.eye(3) * (1 + 1e-6)),
            noise,
            law,
            neighbours,
            budget,
        ),
    }


@pytest.mark.parametrize("name", mutants(subject()))
def test_every_mutant_is_caught(name: str) -> None:
    lattice, noise, law, neighbours, budget = mutants(subject())[name]
    exactly = (finding.held for finding in exact(lattice, noise, law, neighbours, budget))
    by_attack = (finding.held for finding in attacked(lattice, noise, neighbours, budget, 20_000))
    assert not (all(exactly) and all(by_attack))


def test_there_are_at_least_twelve_mutants() -> None:
    assert len(mutants(subject())) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_gaussian_scale_is_checked_too(factor: float) -> None:
    lattice, noise, law, neighbours, budget = subject("zcdp", budget=0.5)
    assert "noise scale" in broken((lattice, _scaled(noise, factor), law, neighbours, budget))
