"""A family is registered once, and everything that tries, compares, measures or tests families knows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import comparison
from batchdp import STRATEGIES, MatrixWorkload, StrategyError, compare, optimize
from batchdp.optimizer.families import FAMILIES, Family, FunctionFamily, register, unregister
from cases import EXAMPLE_1
from toy_family import TOY

TESTS = Path(__file__).parent
SPANNING = MatrixWorkload(np.outer([1.0, 2.0, 3.0], np.ones(7)), blocks=[4, 3])
"""Every query is a multiple of one that spans two blocks: who measures that one alone is best."""


@pytest.fixture
def toy() -> Iterator[Family]:
    yield register(TOY)
    unregister(TOY.name)


def test_users_and_the_comparison_find_it(toy: Family) -> None:
    assert STRATEGIES[toy.name] is toy.method
    assert toy.name in [row.name for row in compare(EXAMPLE_1).methods]


@pytest.mark.parametrize("objective", ["sum", "max"])
def test_optimize_takes_it_where_it_wins(toy: Family, objective: str) -> None:
    found = optimize(SPANNING, objective=objective, seconds=0.5)  # type: ignore[call-overload]
    assert found.method == toy.name
    unregister(toy.name)
    without = optimize(SPANNING, objective=objective, seconds=0.5)  # type: ignore[call-overload]
    register(toy)
    assert found.expected_squared_error(epsilon=1.0) < 0.9 * without.expected_squared_error(epsilon=1.0)


def test_the_benchmark_measures_it(toy: Family) -> None:
    assert toy in comparison.measured_families()


@pytest.mark.slow
def test_the_shared_tests_run_over_it() -> None:
    """In a run of its own, since tests are collected before they run."""
    ended = subprocess.run(
        [
            sys.executable,
            *["-m", "pytest", "-p", "toy_family", "-p", "no:cacheprovider", "-rA", "-k", "toy", "test_strategies.py"],
        ],
        cwd=TESTS,
        env={"PYTHONPATH": str(TESTS), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    passed = [line for line in ended.stdout.splitlines() if line.startswith("PASSED")]
    for name in ("reproduces_the_workload", "matches_the_formula", "below_the_lower_bound", "are_the_same_to_a_method"):
        assert any(name in line and "toy" in line for line in passed), name


def test_a_family_without_a_name_is_refused() -> None:
    with pytest.raises(StrategyError, match="name"):
        register(FunctionFamily(" ", TOY.method))


@pytest.mark.parametrize("name", FAMILIES)
def test_settings_are_frozen_and_every_one_is_explained(name: str) -> None:
    settings = FAMILIES[name].settings
    if settings is None:
        assert not FAMILIES[name].searches or "optimum" in vars(type(FAMILIES[name]))
        return
    with pytest.raises(AttributeError):
        setattr(settings, fields(settings)[0].name, 1)
    for kind in type(settings).__mro__[:-1]:
        text = Path(sys.modules[kind.__module__].__file__ or "").read_text().split(f"class {kind.__name__}")[1]
        own = [field.name for field in fields(kind) if field.name in kind.__annotations__]
        for one, following in zip(own, [*own[1:], None], strict=True):
            body = text.split(f"    {one}: ")[1].split(f"    {following}: " if following else "\n\n")[0]
            assert '"""' in body, f"{kind.__module__}: {one}"


def test_a_class_is_abstract_or_final() -> None:
    for family in FAMILIES.values():
        assert type(family).__bases__ == (Family,), family.name
        assert getattr(type(family), "__final__", False), family.name
    with pytest.raises(TypeError, match="abstract"):
        Family("nothing", TOY.method)  # type: ignore[abstract]
