from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import sparse

import batchdp
from batchdp import STRATEGIES, Ledger, MatrixWorkload, PairStrategy, Release, answer, workloads
from batchdp.linalg.matrix import shrunk
from batchdp.reports.notebook import Excerpt, summary
from batchdp.reports.plots import LONGEST_LABEL, Scale, plot_ledger, plot_strategy, scale_for, shortened
from batchdp.text import NOTEBOOK, excerpt
from cases import small_workloads

NASTY = "<script>alert(\"x\")</script> & 'quoted' $\\frac$ $5"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "<b>budget.db", rho=1000)


def noise_on_data(workload: MatrixWorkload, **options: Any) -> PairStrategy:
    return PairStrategy(workload, np.eye(workload.cells), workload.matrix, **options)


def released(workload: MatrixWorkload, ledger: Ledger) -> Release:
    return answer(noise_on_data(workload), np.arange(workload.cells), epsilon=1.0, ledger=ledger, label=NASTY)


def drawn(figure: Figure) -> str:
    """Every text of a figure that could be drawn without a warning."""
    figure.canvas.draw()
    return " ".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


def test_matplotlib_is_loaded_only_by_those_who_draw() -> None:
    code = "import batchdp, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", small_workloads())
def test_every_strategy_can_be_drawn_and_shown(name: str) -> None:
    strategy = STRATEGIES["noise-on-data"](small_workloads()[name])
    texts = drawn(strategy.plot())
    assert f"{strategy.workload.queries:,} queries" in texts
    assert f"{strategy.workload.cells:,} cells" in texts
    assert f"{strategy.residual:.1e}" in strategy._repr_html_()


def test_large_sparse_matrices_are_drawn_without_a_dense_one() -> None:
    large = sparse.eye_array(200_000, format="csr")  # 300 GB if it were dense
    strategy: Any = SimpleNamespace(measurement=large, reconstruction=large, method="")
    assert "200,000 cells" in drawn(plot_strategy(strategy))


@pytest.mark.parametrize("name", [name for name in small_workloads() if "numbers" not in name])
def test_every_release_can_be_drawn_and_shown(name: str, ledger: Ledger) -> None:
    release = released(small_workloads()[name], ledger)
    texts = drawn(release.plot())
    assert all(name in texts for name in [one.name for one in release.answers])
    assert "95 % interval" in texts
    shown = release._repr_html_()
    assert f"{release.answers[0].high:,.6g}" in shown
    rows = len(release.answers) if len(release.answers) <= NOTEBOOK else excerpt([len(release.answers)], NOTEBOOK)[0]
    assert shown.count("<tr>") == 7 + 1 + rows


@pytest.mark.parametrize("queries", [1, 5, 60, 61, 100, 240, 241])
def test_few_and_many_answers_can_be_drawn(queries: int, ledger: Ledger) -> None:
    names = [f"q{i}" for i in range(queries)]
    release = released(MatrixWorkload(np.diag(np.geomspace(1, 5, queries)), names=names), ledger)
    figure = release.plot()
    labels = [text.get_text() for axes in figure.findobj(Axes) for text in axes.get_yticklabels()]
    assert labels[:queries] == (names if queries <= 240 else [])
    assert f"{queries} queries" in drawn(figure) or labels
    assert max(figure.get_size_inches()) < 18


def test_tables_are_panels_with_labels_and_scales_of_their_own(ledger: Ledger) -> None:
    sql = """
    SELECT COUNT(*) AS everybody FROM t; SELECT SUM(w) AS amount FROM t; SELECT MEDIAN(v) AS middle FROM t;
    SELECT g, COUNT(*) AS many, AVG(v) AS mean FROM t GROUP BY g; SELECT v, COUNT(*) AS each FROM t GROUP BY v
    """
    columns = {"g": {"values": ["a", "b"]}, "v": {"integers": [0, 70]}, "w": {"integers": [0, 9000]}}
    plan = batchdp.plan(sql, {"table": "t", "columns": columns}, seconds=0.3, cache=False)
    frame = pd.DataFrame({"g": ["a", "b"] * 4000, "v": [3, 40] * 4000, "w": [9000] * 8000})
    release = answer(plan, frame, epsilon=2.0, ledger=ledger)
    figure = release.plot()
    found: list[Any] = figure.findobj(Axes)
    panels = {axes.get_title(loc="left").removesuffix(", logarithmic scale"): axes for axes in found}
    rows = {title: [text.get_text() for text in axes.get_yticklabels()] for title, axes in panels.items()}
    assert "everybody" in rows["Single answers"]
    assert "amount" not in rows["Single answers"]
    assert {text.get_text() for axes in found for text in axes.get_yticklabels()} >= {"amount", "middle (derived)"}
    assert rows["many by g"] == rows["mean by g, derived"] == ["a", "b"]
    assert rows["each by v"] + rows["each by v, continued"] == [str(v) for v in range(71)]
    low, high = panels["mean by g, derived"].get_xlim()
    assert low > -60
    assert high < 100
    lines = [line for line in panels["many by g"].lines if len(line.get_xdata()) == 2]
    assert np.asarray(lines[0].get_xdata()) == pytest.approx(release.table("many")["value"].to_numpy())


def test_ledgers_can_be_drawn_and_shown(ledger: Ledger) -> None:
    assert "left" in drawn(ledger.plot())
    assert "Ledger" in ledger._repr_html_()
    for i in range(10):
        ledger.reserve(f"id {i}", rho=1.0, plan_digest="d", table=f"table {i}")
    texts = drawn(ledger.plot())
    assert "table 9" in texts
    assert "interrupted" in texts
    shown = ledger._repr_html_()
    assert "table 9" in shown
    assert "table 0" not in shown
    assert "2 more" in shown
    spends = [SimpleNamespace(charged=1.0, time="2026", table=f"s{i}", state="released") for i in range(100)]
    standing = SimpleNamespace(entries=spends, total=200.0, unit="epsilon")
    crowded: Any = SimpleNamespace(standing=lambda: standing)
    many = drawn(plot_ledger(crowded))
    assert "60 earlier spends" in many
    ledger.path.write_bytes(b"gone")
    assert "cannot be read" in ledger._repr_html_()


def test_all_can_be_drawn_onto_axes_of_ones_own(ledger: Ledger) -> None:
    own = Figure()
    axes = own.subplots(2, 2)
    release = released(workloads.prefix(3), ledger)
    assert noise_on_data(workloads.prefix(3)).plot(axes=axes[0]) is own
    assert release.plot(axes=axes[1, 0]) is own
    assert ledger.plot(axes=axes[1, 1]) is own
    drawn(own)


def test_names_are_text_and_nothing_else(ledger: Ledger) -> None:
    workload = MatrixWorkload(np.eye(2), names=[NASTY, "שלום 🦆 " * 40])
    release = released(workload, ledger)
    figure: Any = release.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")  # an emoji is no reason to warn or to fail
    assert shortened(NASTY) in " ".join(text.get_text() for text in figure.axes[0].get_yticklabels())
    assert len(shortened("long " * 100)) == LONGEST_LABEL
    for value in (workload, noise_on_data(workload, method=NASTY), release, ledger):
        shown = value._repr_html_()
        assert "<script" not in shown
        assert "<b>" not in shown
    assert "&lt;script&gt;" in release._repr_html_()
    shown = summary("a\x00b\ud800\"'", {})
    assert "a\ufffdb\ufffd&#34;&#39;" in shown
    assert '<bdi dir="auto">x</bdi>' in summary("", {"a": "x"})


def test_a_summary_is_a_well_formed_table() -> None:
    shown = summary("T", {"a": 1}, [Excerpt(("n", "v"), [("x", 2)], more=1234)])
    assert "1,234 more" in shown
    assert sorted(re.findall(r"<(\w+)", shown)) == sorted(re.findall(r"</(\w+)", shown))


def test_a_shrunk_matrix_keeps_the_largest_entry_of_every_block() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((10, 21))
    small = shrunk(matrix, rows=5, columns=7)
    blocks = matrix.reshape(5, 2, 7, 3).transpose(0, 2, 1, 3).reshape(5, 7, 6)
    assert np.array_equal(np.abs(small), np.abs(blocks).max(axis=2))
    assert all(value in matrix for value in small.ravel())
    assert np.array_equal(shrunk(sparse.csr_array(matrix), rows=5, columns=7), small)
    assert np.array_equal(shrunk(matrix, rows=100, columns=100), matrix)


@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [5.0, 5.0],
        [-3.0, 4.0, 1000.0, 2.0],
        [1e20, 1.0, 2.0, 3.0],
        [1e-20, 2e-20],
        [900, 950, 1100],
        [-1e6, -1, 0, 2],
    ],
)
@pytest.mark.parametrize("half", [0.0, 1.0])
def test_every_interval_and_tick_is_on_the_axis(values: list[float], half: float) -> None:
    numbers, halves = np.array(values, dtype=float), np.full(len(values), half * max(abs(np.array(values))) * 0.01)
    scale = scale_for(numbers, halves)
    ends = [scale.position(value) for value in (*(numbers - halves), *(numbers + halves))]
    assert all(-1e-9 <= end <= 1 + 1e-9 for end in ends)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(-1e-9 <= scale.position(tick) <= 1 + 1e-9 for tick in ticks)


def test_answers_of_different_sizes_get_a_logarithmic_axis() -> None:
    assert scale_for(np.array([10.0, 20, 30, 40]), np.ones(4)).unit is None
    assert scale_for(np.array([10.0, 20, 30, 1e6]), np.ones(4)).unit == 1.0
    assert Scale(0.0, 100.0).ticks(5) == [0, 20, 40, 60, 80, 100]
    assert Scale(-8.4, 8.4).ticks(3) == [-5, 0, 5]
    assert Scale(-20.0, 2000.0, 1.0).ticks() == [-10, -1, 0, 1, 10, 100, 1000]
