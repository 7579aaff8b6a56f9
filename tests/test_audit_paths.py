"""The audit runs what a release runs: mutants of drawing, of places and of adding are caught, whatever the kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchdp import audit
from batchdp.audits import attack, exact
from batchdp.mechanism import measure, sample
from batchdp.mechanism.residual.lattice import ComponentLattice
from kinds import MAKERS, kind

INDEPENDENT = [name for name in MAKERS if name != "K-norm"]
Patch = pytest.MonkeyPatch


def no_noise(patch: Patch) -> None:
    patch.setattr(attack, "sample", lambda made, noises: np.zeros(int(made.sizes.sum()), dtype=np.int64))


def one_draw_for_all(patch: Patch) -> None:
    really = sample.sample
    patch.setattr(attack, "sample", lambda made, noises: np.full(int(made.sizes.sum()), really(made, noises)[0]))


def everybody_twice(patch: Patch) -> None:
    really = measure.add
    patch.setattr(exact, "add", lambda made, counts, noise: really(made, counts, really(made, counts, noise)))


MUTANTS: list[Callable[[Patch], None]] = [no_noise, one_draw_for_all, everybody_twice]


@pytest.mark.parametrize("name", INDEPENDENT)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_a_release_draws_and_adds_is_seen(name: str, mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    own = kind(name)
    mutant(monkeypatch)
    assert not audit(own.strategy, **own.budget, runs=500).passed


def test_noise_of_the_wrong_group_is_caught(monkeypatch: Patch) -> None:
    own = kind("tables, Gaussian")
    really: Any = ComponentLattice.sizes.func  # type: ignore[attr-defined]
    monkeypatch.setattr(ComponentLattice, "sizes", property(lambda self: really(self)[::-1]))
    assert not audit(own.strategy, **own.budget, runs=500).passed


@pytest.mark.parametrize("name", ["tables, Gaussian", "tables, Laplace"])
def test_a_tally_that_exaggerates_is_caught(name: str, monkeypatch: Patch) -> None:
    really, own = measure.tally, kind(name)

    def wrong(*given: Any, **more: Any) -> Any:
        found = really(*given, **more)
        return np.where(found > 1, 5 * found, found)

    monkeypatch.setattr(measure, "tally", wrong)
    assert not audit(own.strategy, **own.budget, runs=500).passed
