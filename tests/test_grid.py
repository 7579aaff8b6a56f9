"""Everything works with everything: every kind of batch, with every noise and objective, goes through every step.

A row is a batch, a noise and an objective; a step is something that people do with a plan or a release. A new kind of
batch or noise is a line here, and a seam between kinds is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from matplotlib import pyplot

import batchdp

mpl.use("Agg")

DOMAIN = {
    "table": "t",
    "columns": {
        "g": {"values": ["a", "b", "c"]},
        "h": {"values": ["x", "y"], "other": "drop"},
        "v": {"integers": [0, 40], "bins": [0, 10, 20, 30], "outside": "clip"},
    },
}
LARGE = {
    "table": "t",
    "columns": {
        "p": {"integers": [0, 199], "bins": list(range(200))},
        "q": {"integers": [0, 99], "bins": list(range(100))},
        "v": {"integers": [0, 40], "outside": "clip"},
    },
}
COUNTS = "SELECT g, COUNT(*) AS n FROM t GROUP BY g; SELECT COUNT(*) AS late FROM t WHERE v > 20 AND h = 'x'"
DERIVED = f"{COUNTS}; SELECT g, AVG(v) AS mean FROM t GROUP BY g; SELECT MEDIAN(v) AS middle FROM t"
MANY = "SELECT p, q, COUNT(*) AS n FROM t GROUP BY p, q"
MANY_DERIVED = f"{MANY}; SELECT p, AVG(v) AS mean FROM t GROUP BY p"

BATCHES: dict[str, dict[str, Any]] = {
    "sql": {"sql": COUNTS, "domain": DOMAIN},
    "sql with averages": {"sql": DERIVED, "domain": DOMAIN},
    "marginals": {"marginals": 2, "domain": DOMAIN},
    "sql beside marginals": {"sql": COUNTS, "marginals": 2, "domain": DOMAIN},
    "averages beside marginals": {"sql": DERIVED, "marginals": 2, "domain": DOMAIN},
    "20 000 answers": {"sql": MANY, "domain": LARGE},
    "20 000 answers with averages": {"sql": MANY_DERIVED, "domain": LARGE},
}
NOISES: dict[str, dict[str, Any]] = {
    "laplace": {"privacy": "pure"},
    "gaussian": {"privacy": "zcdp"},
    "k-norm": {"privacy": "pure", "shape": "any"},
}
ROWS = [
    (batch, noise, objective)
    for batch in BATCHES
    for noise in NOISES
    for objective in (("fair",) if batch.startswith("20 000") else ("fair", "max"))
]
BUDGET = 2.0
RUNS = 50
"""Of an attack: those in the shape of a body draw half a second each, and this is no test of the attack."""


def _records(domain: dict[str, Any]) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {
        name: rng.choice(one["values"], 600)
        if "values" in one
        else rng.integers(one["integers"][0], one["integers"][1] + 1, 600)
        for name, one in domain["columns"].items()
    }
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Walk:
    """One row, whose plan and release are made when a step first needs them."""

    batch: str
    noise: str
    objective: Any
    folder: Path

    @cached_property
    def plan(self) -> batchdp.Plan:
        asked = BATCHES[self.batch]
        return batchdp.plan(**asked, **NOISES[self.noise], objective=self.objective, seconds=1, cache=False)

    @property
    def budget(self) -> dict[str, Any]:
        return {"rho" if self.noise == "gaussian" else "epsilon": BUDGET}

    @cached_property
    def ledger(self) -> batchdp.Ledger:
        total: dict[str, Any] = dict.fromkeys(self.budget, 100.0)
        return batchdp.Ledger.create(self.folder / "budget.db", **total)

    @cached_property
    def release(self) -> batchdp.Release:
        table = _records(BATCHES[self.batch]["domain"])
        return batchdp.answer(self.plan, table, **self.budget, ledger=self.ledger)

    @cached_property
    def consistent(self) -> Any:
        return self.release.consistent()

    @cached_property
    def expected(self) -> int:
        """How many answers were asked for."""
        derived = "averages" in self.batch
        if self.batch.startswith("20 000"):
            return 20_000 + 200 * derived
        tables = _answers_of_marginals() if "marginals" in self.batch else 0
        return tables + (0 if self.batch == "marginals" else 4 + 4 * derived)


GROUPS = {"g": 5, "h": 2, "v": 5}
"""Of a marginal: g has one for anything else and one for what is missing, v for the latter, and h drops both."""


def _answers_of_marginals() -> int:
    g, h, v = GROUPS.values()
    return 1 + g + h + v + g * h + g * v + h * v


def _is(value: Any, kind: type) -> None:
    assert type(value) is kind, type(value)


def step_plan(walk: Walk) -> None:
    _is(walk.plan, batchdp.Plan)


def step_noise(walk: Walk) -> None:
    strategy = walk.plan.strategy
    names = {"laplace": "Laplace", "gaussian": "Gaussian", "k-norm": "K-norm"}
    if walk.noise == "k-norm" and strategy.noise.name == "Laplace":
        assert len(strategy.reason.split()) > 3
    else:
        assert strategy.noise.name == names[walk.noise]


def step_outlook(walk: Walk) -> None:
    seen = batchdp.outlook(walk.plan)
    assert seen.tables
    assert len(seen.summary()) > 50
    assert bool(seen.derived) == ("averages" in walk.batch)


def step_epsilon_for(walk: Walk) -> None:
    least = batchdp.epsilon_for(walk.plan, standard_error=50.0)
    assert np.isfinite(least)
    assert least > 0
    assert batchdp.epsilon_for(walk.plan, standard_error=5.0) > least


def step_estimate(walk: Walk) -> None:
    needed = batchdp.estimate(walk.plan, **walk.budget)
    assert needed.measurements > 0
    assert needed.answers >= len(walk.release.answers) - sum(one.derived for one in walk.release.answers)


def step_report_plan(walk: Walk) -> None:
    page = batchdp.report_plan(walk.plan, walk.folder / "plan.html").read_text()
    assert 'type="range"' in page
    assert "mean" in page or "averages" not in walk.batch


def step_audit(walk: Walk) -> None:
    found = batchdp.audit(walk.plan, **walk.budget, runs=RUNS)
    assert found.passed, found


def step_compare(walk: Walk) -> None:
    # Searches of all methods take long and look at the batch alone, whatever its noise: once is enough.
    simple = {name: batchdp.STRATEGIES[name] for name in ("noise-on-data", "noise-on-results")}
    found = batchdp.compare(walk.plan, None if walk.noise == "laplace" else simple)
    assert {*simple, *(["optimize"] if walk.noise == "laplace" else [])} <= {row.name for row in found.methods}
    assert all(row.expected_squared_error > 0 for row in found.methods)


def step_save_plan(walk: Walk) -> None:
    path = walk.folder / "x.plan"
    walk.plan.save(path)
    again = batchdp.load_plan(path)
    _is(again, batchdp.Plan)
    assert np.array_equal(again.standard_errors(**walk.budget), walk.plan.standard_errors(**walk.budget))


def step_answer(walk: Walk) -> None:
    _is(walk.release, batchdp.Release)


def step_values(walk: Walk) -> None:
    release = walk.release
    for one in (release.values, release.standard_errors, release.half_widths):
        assert isinstance(one, np.ndarray)
        assert one.shape == (len(release.answers),)
    errors = release.standard_errors[~np.isnan(release.standard_errors)]
    assert len(errors) > 0
    assert np.all(errors > 0)


def step_answers(walk: Walk) -> None:
    answers = walk.release.answers
    assert len(answers) == walk.expected
    first = answers[0]
    assert first.low < first.value < first.high
    assert any(one.derived for one in answers) == ("averages" in walk.batch)
    named = answers[0].name
    assert isinstance(named, str)


def step_table(walk: Walk) -> None:
    name = next((one.name for one in walk.release.tables if one.name in ("mean", "n")), None)
    frame = walk.release.table("g") if name is None else walk.release.table(name)
    assert list(frame.columns[1:])[-4:] == ["value", "standard_error", "low", "high"]
    assert len(frame) == {"n": 20_000 if walk.batch.startswith("20 000") else 3, "mean": 3, None: GROUPS["g"]}[name]


def step_plot(walk: Walk) -> None:
    figure = walk.release.plot()
    assert figure.axes
    pyplot.close(figure)


def step_simultaneous(walk: Walk) -> None:
    together = walk.release.simultaneous()
    assert len(together) == len(walk.release.answers)
    one, other = walk.release.answers[0], together[0]
    assert other.value == one.value
    assert other.low <= one.low
    assert one.high <= other.high


def step_to_frame(walk: Walk) -> None:
    frame = walk.release.to_frame()
    assert len(frame) == len(walk.release.answers)
    assert {"name", "value", "standard_error", "low", "high", "derived"} <= set(frame.columns)
    assert np.array_equal(frame["value"], walk.release.values, equal_nan=True)


def step_consistent(walk: Walk) -> None:
    values = walk.consistent.values
    assert values.shape == (len(walk.release.answers),)
    assert np.nanmin(values) >= -1e-6


def step_whole(walk: Walk) -> None:
    whole = walk.release.consistent(whole=True)
    derived = np.array([one.derived for one in walk.release.answers])
    counts = whole.values[~derived]
    assert np.array_equal(counts, np.rint(counts))
    assert counts.min() >= 0


def step_denoised(walk: Walk) -> None:
    found = walk.release.denoised()
    derived = np.array([one.derived for one in walk.release.answers])
    assert found.values.shape == (len(walk.release.answers),)
    if found.method == "raw":
        assert found.notes[-1].endswith("all answers are raw.")
    else:
        assert found.values[~derived].min() >= -1e-6
    assert 0 <= found.risk <= found.raw_risk or np.isnan(found.risk)
    assert found.method in repr(found)


def step_export(walk: Walk) -> None:
    paths = batchdp.export(walk.consistent, walk.folder / "tables", format="parquet")
    assert len([path for path in paths if path.suffix == ".parquet"]) == len(walk.release.tables)
    assert all("consistent" in pd.read_parquet(path).columns for path in paths[:2] if path.suffix == ".parquet")


def step_report(walk: Walk) -> None:
    page = batchdp.report(walk.release, walk.folder / "page.html", beside=walk.consistent, ledger=walk.ledger)
    assert walk.release.certificate.release_id in page.read_text()


def step_dossier(walk: Walk) -> None:
    assert batchdp.dossier(walk.release, walk.folder / "dossier", ledger=walk.ledger)


def step_verify(walk: Walk) -> None:
    folder = walk.folder / "published"
    batchdp.dossier(walk.release, folder, ledger=walk.ledger)
    assert batchdp.verify(folder, ledger=walk.ledger).checked


def step_save_release(walk: Walk) -> None:
    path = walk.folder / "x.release"
    walk.release.save(path)
    again = batchdp.load_release(path)
    _is(again, batchdp.Release)
    assert np.array_equal(again.values, walk.release.values, equal_nan=True)
    assert np.array_equal(again.half_widths, walk.release.half_widths, equal_nan=True)


def step_notebook(walk: Walk) -> None:
    assert "<table" in walk.plan._repr_html_()
    assert "<table" in walk.release._repr_html_()


STEPS: dict[str, Callable[[Walk], None]] = {
    name.removeprefix("step_"): one for name, one in globals().copy().items() if name.startswith("step_")
}


def _is_fast(batch: str, noise: str) -> bool:
    """Whether a row takes few seconds; of 20 000 answers with averages no row does, and the fastest is taken."""
    few = batch.startswith("sql") and (batch, noise) != ("sql with averages", "k-norm")
    return noise == "gaussian" or (few and not (batch == "sql beside marginals" and noise == "laplace"))


def _parameter(row: tuple[str, str, str]) -> Any:
    name = ", ".join(row)
    return pytest.param(row, id=name, marks=() if _is_fast(*row[:2]) else pytest.mark.slow)


def test_the_grid_has_36_rows_and_25_steps() -> None:
    assert (len(ROWS), len(STEPS)) == (36, 25)


@pytest.mark.parametrize("row", [_parameter(row) for row in ROWS])
def test_every_step_of_a_row(row: tuple[str, str, str], tmp_path: Path) -> None:
    walk, broken = Walk(*row, tmp_path), []
    for name, step in STEPS.items():
        try:
            step(walk)
        except Exception as error:  # whatever it is, the next step is tried
            error.add_note(f"step {name!r}")
            broken.append(error)
    if broken:
        raise ExceptionGroup(f"{', '.join(row)}: {len(STEPS) - len(broken)} of {len(STEPS)} steps work", broken)
