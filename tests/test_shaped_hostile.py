"""Shaped noise where somebody means harm, or something goes wrong: files, budgets, interruptions, processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchdp
from batchdp import Ledger, MatrixWorkload, PlanError, PrivacyParameterError, ShapeLimits, archive
from batchdp.audits.exact import exact
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.measurement import Neighbours
from batchdp.optimizer.shapes import shaped_noise
from batchdp.plans.file import FORMAT
from batchdp.privacy import KNORM
from mechanisms import prepared
from shaped_truth import epsilons_of

FLAGS = np.array([one for one in product((0, 1), repeat=3) if any(one)], dtype=float).T
FLAGGED = shaped_noise(MatrixWorkload(FLAGS), ShapeLimits(directions=300))
DOMAIN = {
    "table": "people",
    "columns": {"a": {"values": ["x", "y", "z"], "other": "drop"}, "b": {"values": ["u", "v"], "other": "drop"}},
}
SQL = "SELECT a, COUNT(*) AS n FROM people GROUP BY a; SELECT b, COUNT(*) AS n FROM people GROUP BY b"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "good.plan"
    plan = batchdp.plan(SQL, DOMAIN, shape="any", limits=ShapeLimits(directions=300), seconds=0.2, cache=False)
    assert plan.strategy.shape is not None
    plan.save(path)
    return path


def two_groups_of_everything(header: Any, arrays: Any) -> None:
    """Each with the whole ε."""
    k = len(arrays["shape_0_points"]) // len(arrays["shape_0_weights"])
    points = arrays["shape_0_points"].reshape(-1, k)
    arrays |= {"shape_0_points": points[:, :2].ravel(), "shape_1_points": points[:, 2:].ravel()}
    arrays["shape_1_weights"] = arrays["shape_0_weights"]
    header["shape"]["shares"] = ["1", "1"]


def a_share_of_nothing(header: Any, arrays: Any) -> None:
    header["shape"]["shares"] = ["0/1"]


def a_share_of_more(header: Any, arrays: Any) -> None:
    header["shape"]["shares"] = ["1000000000000001/1000000000000000"]


def no_groups(header: Any, arrays: Any) -> None:
    header["shape"]["shares"] = []


def shares_that_are_a_text(header: Any, arrays: Any) -> None:
    header["shape"]["shares"] = "12"


def fewer_measurements(header: Any, arrays: Any) -> None:
    """Those beyond the group would have no noise at all."""
    k = len(arrays["shape_0_points"]) // len(arrays["shape_0_weights"])
    arrays["shape_0_points"] = arrays["shape_0_points"].reshape(-1, k)[:, :-1].ravel()


def no_number(header: Any, arrays: Any) -> None:
    arrays["shape_0_points"] = arrays["shape_0_points"] * np.nan


def no_weight(header: Any, arrays: Any) -> None:
    arrays["shape_0_weights"] = arrays["shape_0_weights"] * 0


def negative_weights(header: Any, arrays: Any) -> None:
    arrays["shape_0_weights"] = arrays["shape_0_weights"] * np.array([-1.0, 3.0] * 150)


def far_points(header: Any, arrays: Any) -> None:
    arrays["shape_0_points"] = arrays["shape_0_points"] * 1e300


def shaped_gaussian(header: Any, arrays: Any) -> None:
    header["strategy"]["privacy"] = "zcdp"


def measured_nothing(header: Any, arrays: Any) -> None:
    arrays["L_data"] = arrays["L_data"] * 0


def measured_infinitely(header: Any, arrays: Any) -> None:
    arrays["L_data"] = arrays["L_data"] * 1e308 * 1e308


def another_measurement(header: Any, arrays: Any) -> None:
    """Of the second row twice the first: no noise in one direction."""
    rows, columns = arrays["L_shape"][:2]
    L = np.zeros((rows, columns))
    L[:] = np.arange(1, columns + 1)
    arrays |= archive.split_matrix("L", L)


REFUSED: list[Callable[[Any, Any], None]] = [
    two_groups_of_everything, a_share_of_nothing, a_share_of_more, no_groups, shares_that_are_a_text,
    fewer_measurements, no_number, no_weight, negative_weights, far_points, shaped_gaussian, measured_nothing,
    measured_infinitely, another_measurement,
]  # fmt: skip


@pytest.mark.parametrize("forge", REFUSED)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_crafted_plan_is_refused(planned: Path, tmp_path: Path, forge: Callable[[Any, Any], None]) -> None:
    header, arrays = archive.load(planned, FORMAT, PlanError, "plan")
    forge(header, arrays)
    archive.save(tmp_path / "forged.plan", header, arrays, PlanError)
    with pytest.raises(PlanError):
        batchdp.load_plan(tmp_path / "forged.plan")


@pytest.mark.parametrize("factor", [1e-9, 1e6, 1e150])
def test_measurements_in_other_units_are_as_private(planned: Path, tmp_path: Path, factor: float) -> None:
    # Noise is made for what is measured: a file that measures more, and says so of its sample, has more noise.
    header, arrays = archive.load(planned, FORMAT, PlanError, "plan")
    for name, by in (("L_data", factor), ("B_data", 1 / factor), ("shape_0_points", factor)):
        arrays[name] = arrays[name] * by
    archive.save(tmp_path / "other.plan", header, arrays, PlanError)
    made = prepared(batchdp.load_plan(tmp_path / "other.plan").strategy, Neighbours(), 1.0, None)
    lattice = made.measurement
    assert isinstance(lattice, ShapedLattice)
    assert made.noise is KNORM
    assert all(finding.held for finding in exact(made))
    columns = {tuple(map(abs, column)) for column in lattice.integers.toarray().T.tolist()}
    assert max(map(max, columns)) > 2**19
    body = lattice.groups[0].body
    assert all(any(tuple(map(abs, v)) == c for v in body.vertices.T.tolist()) for c in columns if any(c))


@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-300, 1e-31, 1e10, float("inf"), float("nan"), 0.0, -1.0])
def test_a_budget_beyond_reason_is_refused_and_costs_nothing(tmp_path: Path, epsilon: float) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    with pytest.raises(PrivacyParameterError, match="epsilon="):
        batchdp.answer(FLAGGED, np.arange(7), epsilon=epsilon, ledger=ledger)
    assert ledger.history() == ()


@pytest.mark.parametrize(("relation", "rows", "factor"), [("add-remove", 3, 3), ("replace", 1, 2), ("replace", 5, 10)])
def test_people_of_several_rows_have_the_noise_of_a_smaller_budget(relation: Any, rows: int, factor: int) -> None:
    made = prepared(FLAGGED, Neighbours(relation, rows), 0.7, None)
    lattice, (epsilon,) = made.measurement, epsilons_of(made)
    assert isinstance(lattice, ShapedLattice)
    assert made.noise is KNORM
    assert epsilon == Fraction(0.7) / factor
    # In the norm of the noise, whatever rows they have: ‖Σ a‖ ≤ factor, so that no density changes by more than e^ε.
    rng, (group,) = np.random.default_rng(0), lattice.groups
    columns = lattice.integers.toarray().T
    for _ in range(20):
        signs = rng.choice((-1, 1) if relation == "replace" else (1,), factor)
        moved = (signs[:, None] * columns[rng.integers(len(columns), size=factor)]).sum(axis=0)
        assert epsilon * group.body.norm(moved.tolist()) <= Fraction(0.7)


SLOW_BODY = "np.tril(np.ones((16, 16), dtype=int))"
"""A thin one, of which a draw takes minutes."""
INTERRUPTED = f"""
import sys, numpy as np, batchdp
from fractions import Fraction
from batchdp.mechanism import sample
from batchdp.mechanism.knorm.body import Body
from batchdp import Ledger, ShapeLimits, MatrixWorkload
from batchdp.optimizer.shapes import shaped_noise

real = sample.draws
def slow(body, epsilon, count, progress=None):
    print("drawing", flush=True)
    return real(Body({SLOW_BODY}), epsilon, count, progress)
sample.draws = slow
W = np.array({FLAGS.tolist()})
strategy = shaped_noise(MatrixWorkload(W), ShapeLimits(directions=300))
try:
    batchdp.answer(strategy, np.arange(7), epsilon=0.5, ledger=Ledger.open(sys.argv[1]), release_id="a")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_a_draw_that_is_interrupted_or_killed_has_spent_nothing(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0)
    assert Body(eval(SLOW_BODY)).seconds > 20
    for how, said in ((signal.SIGINT, "interrupted\n"), (signal.SIGKILL, "")):
        command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "budget.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "drawing\n"
            time.sleep(0.2)
            os.kill(child.pid, how)
            assert child.stdout.read() == said
    assert ledger.history() == ()
    assert ledger.remaining == 1.0
    done = batchdp.answer(FLAGGED, np.arange(7), epsilon=0.5, ledger=ledger, release_id="a")
    assert ledger.spent == 0.5
    assert done.certificate.release_id == "a"


TOGETHER = f"""
import sys, numpy as np, batchdp
from batchdp import Ledger, ShapeLimits, MatrixWorkload, BatchDPError
from batchdp.optimizer.shapes import shaped_noise
strategy = shaped_noise(MatrixWorkload(np.array({FLAGS.tolist()})), ShapeLimits(directions=300))
ledger = Ledger.open(sys.argv[1])
for name in ("same", sys.argv[2]):
    try:
        print(name, batchdp.answer(strategy, np.arange(7), epsilon=0.5, ledger=ledger, release_id=name).values.tolist())
    except BatchDPError as error:
        print(name, type(error).__name__)
"""


@pytest.mark.slow
def test_two_processes_have_noise_of_their_own_and_one_release_a_name(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.5)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(tmp_path / "budget.db"), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    said = [child.communicate()[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert ledger.spent == 1.5
    assert sorted(entry.release_id for entry in ledger.history()) == ["one", "same", "two"]
    values = {line for lines in said for line in lines if "[" in line}
    assert len({line for line in values if line.startswith("same")}) == 1  # once, or stored and the same again
    (one,), (two,) = ([line for line in values if line.startswith(name)] for name in ("one", "two"))
    assert one.removeprefix("one") != two.removeprefix("two")
