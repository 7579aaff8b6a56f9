"""The drawings in the documentation, from real strategies, cells and noise: docs/images/*.svg.

    .venv/bin/python benchmarks/pictures.py

Every figure in them is computed here by batchdp, or is the paper's and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from batchdp import STRATEGIES, MatrixWorkload, PairStrategy, optimize, workloads
from batchdp.domain import read_domain
from batchdp.linalg.matrix import Dense, dense
from batchdp.mechanism.knorm.law import noise_of
from batchdp.optimizer.shapes import shaped_noise
from batchdp.sql import read_queries
from batchdp.strategies.shaped import ShapeLimits
from batchdp.workloads.encode.cells import cells_of
from denoised import drawn, release_of

matplotlib.rcParams.update({"svg.hashsalt": "batchdp", "font.size": 9, "font.family": "DejaVu Sans"})

IMAGES = Path(__file__).parent.parent / "docs" / "images"
STATES = ("NY", "NJ", "CA", "WA")
EXAMPLE_1 = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
EXAMPLE_2 = [[0, 2, 1, 1], [0, 1, 0, 2], [1, 0, 2, 2]]
PAPER_MEASURES = [[0, 1, 0, 0], [0, 0, 0, 1], [1 / 3, 0, 1, 0], [2 / 3, 0, 0, 0]]
PAPER_RECONSTRUCTS = [[2, 1, 1, -1 / 2], [1, 2, 0, 0], [0, 2, 2, 1 / 2]]
"""The strategy that Section 1 of the paper calls optimal for its second example."""
QUERIES = ("q1", "q2", "q3")
INK, SOFT, BLUE, ORANGE = "#222222", "#777777", "#2b6cb0", "#c05621"


def save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / name, metadata={"Date": None}, bbox_inches="tight", facecolor="white")


def grid(axes: Axes, matrix: Dense, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    """A small matrix with its entries written in."""
    top = max(1.0, float(np.abs(matrix).max()))
    axes.pcolormesh(matrix, cmap="RdBu_r", vmin=-top, vmax=top, edgecolors="white", linewidth=2, alpha=0.75)
    for (i, j), entry in np.ndenumerate(matrix):
        if abs(entry) > 1e-3:
            colour = "white" if abs(entry) > 0.75 * top else INK
            text = f"{entry:.3g}"
            size = 8 if len(text) < 5 else 6
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=colour, fontsize=size)
    axes.set(aspect="equal", title=title, xticks=np.arange(len(columns)) + 0.5, yticks=np.arange(len(rows)) + 0.5)
    axes.set_xticklabels(columns)
    axes.set_yticklabels(rows)
    axes.title.set_fontsize(9)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def measured(L: Dense) -> list[str]:
    """Rows of L as sums of states."""
    names = []
    for row in L:
        parts = [
            ("−" if entry < 0 else "+", "" if abs(abs(entry) - 1) < 1e-3 else f"{abs(entry):.3g} ", state)
            for entry, state in zip(row, STATES, strict=True)
            if abs(entry) > 1e-3
        ]
        parts.sort(key=lambda part: part[0] == "−")
        names.append(" ".join(f"{sign} {factor}{state}" for sign, factor, state in parts).removeprefix("+ "))
    return names


def tidy(strategy: PairStrategy) -> tuple[Dense, Dense]:
    """L and B without unused measurements, the largest entry of each measurement positive."""
    L, B = np.array(strategy.measure), np.array(strategy.reconstruct)
    kept = (B**2).sum(axis=0) * (L**2).sum(axis=1) > 1e-6
    L, B = L[kept], B[:, kept]
    signs = np.sign(L[np.arange(len(L)), np.abs(L).argmax(axis=1)])
    return L * signs[:, None], B * signs


def example(name: str, W: list[list[int]], shown: Sequence[tuple[str, PairStrategy]]) -> None:
    """One row a mechanism: W = B L, with its total error."""
    figure = Figure(figsize=(9.4, 1.9 * len(shown)))
    figure.subplots_adjust(wspace=1.15, hspace=0.75)
    for i, (title, strategy) in enumerate(shown):
        error = strategy.expected_squared_error(epsilon=1.0)
        L, B = tidy(strategy)
        names = measured(L)
        parts = [figure.add_subplot(len(shown), 3, 3 * i + k + 1) for k in range(3)]
        grid(parts[0], np.array(W, float), QUERIES, STATES, "queries W")
        grid(parts[1], B, QUERIES, [f"m{k + 1}" for k in range(len(L))], "=  reconstruct B")
        rows = [f"m{k + 1}:  {text}" for k, text in enumerate(names)]
        grid(parts[2], L, rows, STATES, "×  measure L")
        label = f"{title}:  Δ = {strategy.sensitivity:.4g},  total error {error:.4g} / ε²"
        parts[0].text(0, 1.32, label, transform=parts[0].transAxes, fontsize=10.5, color=INK, weight="bold")
    save(figure, name)


def ranges() -> None:
    """Heat maps of 64 random ranges, and of what is measured instead."""
    workload = workloads.ranges(64, 128, seed=0)
    best = optimize(workload)
    L, B = tidy(best)
    order = np.argsort(np.abs(L) @ np.arange(L.shape[1]) / np.abs(L).sum(axis=1))
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[128, 60, 128])
    for axes, matrix, title in (
        (left, dense(workload.matrix), "W: 64 ranges over 128 cells"),
        (middle, B[:, order], "=  B"),
        (right, L[order], f"×  L: {len(L)} measurements"),
    ):
        top = float(np.quantile(np.abs(matrix), 0.995))
        axes.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
        axes.set(title=title, xticks=[], yticks=[])
        axes.title.set_fontsize(9)
    simple = STRATEGIES["noise-on-data"](workload).expected_squared_error(epsilon=1.0) / 64
    found = best.expected_squared_error(epsilon=1.0) / 64
    text = f"error per query at ε = 1: {simple:.1f} with noise on data, {found:.1f} with this pair ({best.method})"
    figure.supxlabel(text, fontsize=9, color=INK)
    save(figure, "ranges.svg")


def cells() -> None:
    """Three queries over two columns: the atoms of each column and the classes of records."""
    domain = read_domain(
        """
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA", "WA"]
[columns.age]
range = [0, 120]
"""
    )
    sql = """
SELECT COUNT(*) AS "18 and over" FROM patients WHERE age >= 18;
SELECT COUNT(*) AS "NY or NJ, under 65" FROM patients WHERE state IN ('NY', 'NJ') AND age < 65;
SELECT COUNT(*) AS "CA" FROM patients WHERE state = 'CA';
"""
    made = cells_of(read_queries(sql, domain), domain)
    (block,) = made.blocks
    place = {atoms.column: i for i, atoms in enumerate(made.atoms)}
    states, ages = ("NY, NJ", "CA", "anything\nelse", "NULL"), ("under 18", "18 to\nunder 65", "65 and\nover", "NULL")
    codes = np.zeros((16, 2), dtype=int)
    codes[:, place["age"]] = np.repeat(np.arange(4), 4)
    codes[:, place["state"]] = np.tile(np.arange(4), 4)
    found = block.classes.of(codes).reshape(4, 4)
    W = dense(block.classes.matrix)
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    shades = matplotlib.colormaps["Set2"](np.linspace(0, 1, 8))
    for (i, j), cell in np.ndenumerate(found):
        left.fill_between([j, j + 1], i, i + 1, color=shades[cell] if cell >= 0 else "#eeeeee", ec="white", lw=2)
        left.text(j + 0.5, i + 0.5, f"c{cell + 1}" if cell >= 0 else "–", ha="center", va="center", color=INK)
    left.set(xlim=(0, 4), ylim=(4, 0), xticks=np.arange(4) + 0.5, yticks=np.arange(4) + 0.5)
    left.set_title(f"atoms of state × atoms of age: {len(set(found.ravel()) - {-1})} cells (– counts nowhere)")
    left.set_xticklabels(states)
    left.set_yticklabels(ages)
    grid(right, W, made.names, [f"c{j + 1}" for j in range(W.shape[1])], "the matrix W that follows")
    for axes in (left, right):
        axes.title.set_fontsize(9)
        axes.tick_params(length=0)
    save(figure, "cells.svg")


def lattice() -> None:
    """Discrete Laplace noise on neighbouring counts, and their ratio."""
    epsilon, scale = 0.5, 2.0
    values = np.arange(-9, 12)
    lines = [np.exp(-np.abs(values - centre) / scale) * math.tanh(1 / (2 * scale)) for centre in (0, 1)]
    figure = Figure(figsize=(8.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(values - 0.2, lines[0], 0.4, color=BLUE, label="the person is not in the table")
    left.bar(values + 0.2, lines[1], 0.4, color=ORANGE, label="the person is")
    left.set(title="probability of every published value", xlabel="published − count without the person")
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    right.step(values, lines[1] / lines[0], where="mid", color=INK)
    for bound, text in ((math.exp(epsilon), "e^ε"), (math.exp(-epsilon), "e^−ε")):
        right.axhline(bound, color=SOFT, ls="--", lw=1)
        right.text(values[0], bound * 1.02, text, va="bottom", color=SOFT)
    right.set(title=f"ratio of the two, ε = {epsilon}", ylim=(0.4, 2.0), xlabel="published − count without the person")
    for axes in (left, right):
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "lattice.svg")


def flow() -> None:
    """Where data goes, and where it cannot."""
    figure = Figure(figsize=(9, 2.9))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 18), ylim=(0, 5.8))
    axes.axis("off")

    def box(x: float, y: float, width: float, text: str, colour: str) -> None:
        style = FancyBboxPatch((x, y), width, 1.1, boxstyle="round,pad=0.08", fc=colour, ec=SOFT, lw=0.8)
        axes.add_patch(style)
        axes.text(x + width / 2, y + 0.55, text, ha="center", va="center", color=INK, fontsize=8.5)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        style: dict[str, Any] = {"arrowstyle": "-|>", "color": SOFT, "lw": 1}
        axes.annotate("", xy=end, xytext=start, arrowprops=style)

    public, secret, spent = "#e6f0fa", "#fde8e4", "#fdf5dc"
    box(0.3, 4.2, 2.6, "queries.sql", public)
    box(0.3, 2.6, 2.6, "domain.toml", public)
    box(4.3, 3.4, 2.7, "cells and W", public)
    box(8.1, 3.4, 2.9, "strategy B, L\n= the plan", public)
    box(0.3, 0.5, 2.6, "your table", secret)
    box(8.1, 0.5, 2.9, "counts x,\nthen L x exactly", secret)
    box(11.9, 0.5, 2.2, "+ noise", spent)
    box(11.9, 3.4, 2.2, "ledger:\nspend first", spent)
    box(15.2, 1.9, 2.5, "answers,\nintervals, page", public)
    arrow((3.0, 4.6), (4.2, 4.2))
    arrow((3.0, 3.2), (4.2, 3.7))
    arrow((7.1, 3.95), (8.0, 3.95))
    arrow((3.0, 1.05), (8.0, 1.05))
    arrow((9.5, 3.3), (9.5, 1.7))
    arrow((11.1, 1.05), (11.8, 1.05))
    arrow((11.1, 3.95), (11.8, 3.95))
    arrow((13.0, 3.3), (13.0, 1.7))
    arrow((14.2, 1.05), (15.1, 2.0))
    axes.text(7.0, 5.35, "public: chosen without the data", ha="center", color=BLUE, fontsize=9)
    axes.text(5.5, 0.15, "secret: never shown, logged or stored", ha="center", color=ORANGE, fontsize=9)
    save(figure, "flow.svg")


def shaped() -> None:
    """Two overlapping counts: what one record can do, the body that this spans, and both kinds of noise."""
    W = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    strategy, pair = shaped_noise(MatrixWorkload(W), ShapeLimits()), optimize(W)
    assert strategy.shape is not None
    (group,) = strategy.shape.groups
    rng = np.random.default_rng(0)
    own = noise_of(group, 2000, rng) @ np.array(strategy.reconstruct).T
    scale = pair.sensitivity
    laplace = rng.laplace(scale=scale, size=(2000, pair.measurements)) @ np.array(pair.reconstruct).T
    errors = [one.expected_squared_error(epsilon=1.0) for one in (pair, strategy)]
    body = np.array([[1, 0], [1, 1], [0, 1], [-1, 0], [-1, -1], [0, -1], [1, 0]])
    figure = Figure(figsize=(9.6, 3.3), dpi=150, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.fill(*body.T, color=BLUE, alpha=0.15)
    left.plot(*body.T, color=BLUE)
    for x, y, name in ((1, 0, "only A"), (0, 1, "only B"), (1, 1, "A and B")):
        left.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK})
        left.text(x + 0.06, y + 0.1, name, fontsize=8, color=INK)
    left.text(-0.95, -1.3, "K, the hull of ± these", color=BLUE, fontsize=8, ha="center")
    left.set(xlim=(-1.9, 1.9), ylim=(-1.9, 1.9), title="What one record can do to two counts")
    for axes, noise, colour, title in (
        (middle, laplace, ORANGE, f"Laplace noise, best pair: squared error {errors[0]:.1f}"),
        (right, own, BLUE, f"Noise in the shape of K: {errors[1]:.1f}"),
    ):
        axes.scatter(*noise.T, s=2, color=colour, alpha=0.4, linewidths=0, rasterized=True)
        axes.set(xlim=(-8, 8), ylim=(-8, 8), title=title)
    for level in (1, 2, 3, 4):
        right.plot(*(level * body).T, color=INK, linewidth=0.7)
    for axes in (left, middle, right):
        axes.set(aspect="equal", xlabel="count of A", ylabel="count of B")
        axes.title.set_fontsize(9)
        axes.axhline(0, color=SOFT, linewidth=0.5, zorder=0)
        axes.axvline(0, color=SOFT, linewidth=0.5, zorder=0)
    save(figure, "shaped-noise.svg")


def denoised() -> None:
    """Histograms of invented ages: true, raw and denoised, with few records and with more."""
    rng, places = np.random.default_rng(4), np.arange(64)
    ages = np.exp(-np.square((places - 22) / 14)) + 0.5 * np.exp(-np.square((places - 48) / 5))
    first = release_of(optimize(np.eye(64)), np.zeros(64, dtype=np.int64), epsilon=0.1)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, count in zip(figure.subplots(1, 2), (1_000, 5_000), strict=True):
        counts = rng.multinomial(count, ages / ages.sum())
        release = drawn(first, counts, rng)
        raw, ours = release.values, release.denoised().values
        errors = [float(np.square(values - counts).mean()) ** 0.5 for values in (raw, ours)]
        axes.bar(places, counts, width=1.0, color="#dddddd", label="true (invented)")
        axes.plot(places, raw, ".", color=ORANGE, markersize=4, label=f"raw, off by {errors[0]:.0f}")
        axes.plot(places, ours, "-", color=BLUE, linewidth=1.5, label=f"denoised, off by {errors[1]:.0f}")
        axes.axhline(0, color=INK, linewidth=0.5)
        axes.set(xlabel="age", title=f"{count:,} records, ε = 0.1")
        axes.title.set_fontsize(9)
        axes.legend(frameon=False, fontsize=8)
    save(figure, "denoised.svg")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    one = MatrixWorkload(EXAMPLE_1)
    pairs = [
        ("Noise on results", STRATEGIES["noise-on-results"](one)),
        ("Noise on data", STRATEGIES["noise-on-data"](one)),
        ("batchdp", optimize(one)),
    ]
    example("example-1.svg", EXAMPLE_1, pairs)
    two = MatrixWorkload(EXAMPLE_2)
    printed = PairStrategy(two, np.array(PAPER_MEASURES), np.array(PAPER_RECONSTRUCTS))
    pairs = [
        ("Noise on data", STRATEGIES["noise-on-data"](two)),
        ("The paper's strategy", printed),
        ("batchdp", optimize(two)),
    ]
    example("example-2.svg", EXAMPLE_2, pairs)
    ranges()
    cells()
    lattice()
    flow()
    shaped()
    denoised()


if __name__ == "__main__":
    main()
