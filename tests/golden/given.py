"""What the golden cases give: batches, strategies for them, neighbours, caps, budgets, data.

Strategies are made by hand, or found by a search, once: from then on they are the numbers that stand in the files. None
of them has to be good, only to be of a kind that a release can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import linprog

from golden import adapter
from golden.adapter import Given

Dense = NDArray[np.float64]
Named = tuple[str, str, Given]
"""A case's name, what it is about, and what it gives."""

POINTS = 48
"""Of the sample that says how noise in a shape is distributed."""
ADD, REPLACE = "add-remove", "replace"


def everything() -> Iterator[Named]:
    """All cases."""
    for cases in (pairs, blocks, amounts, shaped, residuals, marginals):
        for name, about, given in cases():
            yield f"{cases.__name__}-{name}", about, {**given, "noise_step": _step(given)}


def _settings(noise: str, budget: float, neighbours: str, rows: int, cap: int | None) -> Given:
    return {
        "noise": noise,
        "budget": budget,
        "neighbours": neighbours,
        "rows_per_unit": rows,
        "max_rows": cap,
        "confidence": 0.95,
    }


def _step(given: Given) -> int:
    """Noise of up to some records."""
    made = adapter.quantise(adapter.rebuild(given), given)
    bits: int = adapter.calibrate(made)[0]["bits"]
    return int(max(1, 2**bits // 500))


def _pair(W: Dense, L: Dense, settings: Given, counts: Sequence[int], **workload: Any) -> Given:
    """B is W L⁺, in floats."""
    return {
        **settings,
        "workload": {"matrix": W.tolist(), **workload},
        "strategy": {"measure": L.tolist(), "reconstruct": (W @ np.linalg.pinv(L)).tolist()},
        "data": {"counts": [int(count) for count in counts]},
    }


def _counts(cells: int, seed: int, most: int = 5000) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, most, cells)]


def _shared(cells: int, queries: int, seed: int) -> Dense:
    """Every cell by itself and some shared queries, as p-Identity has them, of column norm 1."""
    rng = np.random.default_rng(seed)
    L = np.vstack([np.eye(cells), rng.random((queries, cells))])
    return np.asarray(L / L.sum(axis=0))


def _tree(cells: int) -> Dense:
    """Sums of halves, quarters and so on."""
    rows, width = [], cells
    while width >= 1:
        rows += [np.repeat(np.eye(cells // width)[i], width) for i in range(cells // width)]
        width //= 2
    return np.array(rows)


def pairs() -> Iterator[Named]:
    """Pairs on one block."""
    prefix, rng = np.tril(np.ones((8, 8))), np.random.default_rng(0)
    yield (
        "whole-laplace",
        "Each cell by itself: integers that the lattice holds exactly.",
        _pair(prefix, np.eye(8), _settings("laplace", 0.5, ADD, 1, None), _counts(8, 1)),
    )
    yield (
        "whole-gaussian",
        "The same with Gaussian noise, three rows a person, and a cap.",
        _pair(prefix, np.eye(8), _settings("gaussian", 0.1, ADD, 3, 10_000), _counts(8, 1)),
    )
    yield (
        "tree-laplace",
        "More measurements than their rank, of whole numbers.",
        _pair(prefix, _tree(8), _settings("laplace", 0.1, REPLACE, 3, None), _counts(8, 2)),
    )
    yield (
        "tree-gaussian",
        "The same times a number that the lattice cannot hold, so that rounding makes rows independent.",
        _pair(prefix, _tree(8) * 0.3, _settings("gaussian", 0.3, ADD, 1, None), _counts(8, 2)),
    )
    shared = _shared(12, 4, 3)
    ranges = np.array([[float(a <= i < b) for i in range(12)] for a, b in combinations(range(0, 13, 2), 2)])
    for neighbours, rows, cap in ((ADD, 1, None), (ADD, 3, 100_000), (REPLACE, 1, 10**9), (REPLACE, 3, None)):
        kind = f"{neighbours}-{rows}-{'cap' if cap else 'default'}"
        yield (
            f"shared-laplace-{kind}",
            "Cells and shared queries, in floats.",
            _pair(ranges, shared, _settings("laplace", 1.0, neighbours, rows, cap), _counts(12, 4)),
        )
    for neighbours, rows, cap in ((ADD, 1, None), (REPLACE, 3, 20_000), (REPLACE, 1, None)):
        turned = np.linalg.qr(rng.standard_normal((12, 12)))[0][:6]
        kind = f"{neighbours}-{rows}-{'cap' if cap else 'default'}"
        yield (
            f"turned-gaussian-{kind}",
            "Fewer measurements than cells, of both signs.",
            _pair(
                rng.standard_normal((5, 6)) @ turned,
                turned,
                _settings("gaussian", 0.25, neighbours, rows, cap),
                _counts(12, 5),
                weights=[1.0, 2.0, 0.5, 1.0, 3.0],
            ),
        )
    yield from _other_pairs(rng)


def _other_pairs(rng: np.random.Generator) -> Iterator[Named]:
    awkward = np.array([[1, 0.5, -2, 0, 0], [0, 0, 0, 0, 0], [0.1, 0.2, 0.3, 0, 0.7]])
    yield (
        "results-laplace",
        "Noise on the queries themselves, a row and a column of zeros among them.",
        _pair(awkward, np.delete(awkward, 1, 0), _settings("laplace", 0.1, ADD, 1, 1_000_000), _counts(5, 6)),
    )
    yield (
        "clamped-laplace",
        "Counts far beyond the cap: measurements stop at a fixed magnitude.",
        _pair(
            np.tril(np.ones((4, 4))),
            _shared(4, 2, 7),
            _settings("laplace", 0.5, ADD, 1, 1000),
            [2**61, 5, 2**40, 2**59],
        ),
    )
    own = np.random.default_rng(0)
    M, A, C = (own.standard_normal(shape) for shape in ((4, 2), (2, 6), (5, 2)))
    given = _pair(C @ A, M @ A, _settings("laplace", 60_000.0, ADD, 1, 1_000_000), _counts(6, 13))
    given["strategy"]["reconstruct"] = (C @ np.linalg.pinv(M)).tolist()
    given["close"] = 0.01  # floats that rest on differences of 2⁻⁴⁰
    yield "exactly-laplace", "So little noise that answers must rest on what rounding alone tells apart.", given
    W, L, cells = rng.integers(-2, 3, (5, 4)).astype(float), _shared(4, 2, 8), [3, 0, 0, 2, 1, 1, 3, 1, 2]
    for noise, neighbours, rows, cap in (("laplace", ADD, 1, None), ("gaussian", REPLACE, 3, 50_000)):
        given = _pair(W, L, _settings(noise, 0.5, neighbours, rows, cap), _counts(9, 9))
        given["workload"]["matrix"] = {"columns": given["workload"]["matrix"], "cells": cells}
        given["strategy"]["measure"] = {"columns": given["strategy"]["measure"], "cells": cells}
        yield f"merged-{noise}", "Nine cells that queries tell four apart of.", given
    given = _pair(W, L, _settings("laplace", 0.5, REPLACE, 1, 10_000), [2**62, 5, 2**62, 2**62, 1, 2**40, 0, 3, 2**61])
    for part, name in (("workload", "matrix"), ("strategy", "measure")):
        given[part][name] = {"columns": given[part][name], "cells": cells}
    yield "merged-beyond-laplace", "The same with counts whose sums have more than 64 bits.", given
    wide = np.tril(np.ones((64, 64)))[3::4]
    given = _pair(wide, _tree(64)[:31], _settings("laplace", 0.2, REPLACE, 1, None), _counts(64, 10))
    given["workload"]["matrix"] = _sparse(wide)
    given["strategy"] = {name: _sparse(np.array(given["strategy"][name])) for name in ("measure", "reconstruct")}
    yield "sparse-laplace", "Sparse matrices, of more cells.", given
    edges = [float(edge) for edge in range(0, 90, 10)]
    given = _pair(np.tril(np.ones((8, 8))), _shared(8, 3, 11), _settings("laplace", 1.0, ADD, 1, None), _counts(8, 12))
    median = {
        "kind": "quantile",
        "share": 0.5,
        "edges": edges,
        "below": list(range(7)),
        "total": 7,
        "step": None,
        "start": 0.0,
    }
    given["answers"] = [{"name": "all", "of": 7}, {"name": "median", "of": median}]
    yield "median-laplace", "A quantile from running totals.", given


def blocks() -> Iterator[Named]:
    """Pairs on several blocks, of which a record has a cell in some."""
    own = [np.tril(np.ones((4, 4))), np.eye(3), np.tril(np.ones((3, 3)))]
    parts = [_shared(4, 2, 20), _shared(3, 1, 21), _shared(3, 2, 22)]
    cases = (
        ("laplace", ADD, 1, None, None),
        ("laplace", REPLACE, 3, 100_000, [[0, 1], [2]]),
        ("gaussian", ADD, 3, None, None),
        ("gaussian", REPLACE, 1, 10_000, [[0, 1], [1, 2]]),
        ("laplace", REPLACE, 1, None, [[0], [1, 2]]),
        ("gaussian", ADD, 1, 100_000, [[0, 2], [1]]),
    )
    for noise, neighbours, rows, cap, meetings in cases:
        yield (
            f"apart-{noise}-{neighbours}-{'cap' if cap else 'default'}",
            "Three blocks, each measured by itself, " + ("of which some meet." if meetings else "which all meet."),
            _pair(
                block_diag(*own),
                block_diag(*parts),
                _settings(noise, 0.5, neighbours, rows, cap),
                _counts(10, 23),
                blocks=[4, 3, 3],
                **({} if meetings is None else {"meetings": meetings}),
            ),
        )
    W = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 1, -1.0]])
    for noise, neighbours, rows, cap in (("laplace", ADD, 3, 1_000_000), ("gaussian", REPLACE, 1, None)):
        yield (
            f"spanning-{noise}",
            "Measurements that see two blocks at once.",
            _pair(W, W * 0.7, _settings(noise, 0.5, neighbours, rows, cap), _counts(5, 24), blocks=[3, 2]),
        )


def _ratio(above: int, below: int) -> Given:
    sides = [{"constant": 0.0, "terms": [[1.0, part]]} for part in (above, below)]
    return {"kind": "sum", "plain": {"constant": 0.0, "terms": []}, "ratios": [sides]}


def amounts() -> Iterator[Named]:
    """Sums of amounts, which lie between the two ends of a stretch."""
    # Cells: both ends of 0 to 9.99 and of 10 to 500 in steps of 0.01, and what has no amount.
    sums = np.array([[0, 9.99, 10, 500, 0], [0, 0, 10, 500, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 0]])
    ends, counts = [[0, 1, 999], [2, 3, 49_000]], [40, 0, 700, 0, 9, 12_345, 9_876_543]
    asked = [
        {"name": "sum", "of": 0},
        {"name": "persons", "of": 2},
        {"name": "mean", "of": _ratio(0, 2)},
        {"name": "mean of the large", "of": _ratio(1, 3)},
    ]
    results = np.array([sums[0] / 500, sums[1] / 500, sums[2], sums[3]])
    for noise, neighbours, rows, cap in (
        ("laplace", ADD, 1, None),
        ("laplace", REPLACE, 3, 100_000),
        ("gaussian", ADD, 1, 5_000),
        ("gaussian", REPLACE, 3, None),
    ):
        settings = _settings(noise, 0.5, neighbours, rows, cap)
        given = _pair(sums, results, settings, counts, ends=ends)
        if neighbours == ADD:
            given["answers"] = asked
        about = "SUM beside counts" + (", and AVG from both." if neighbours == ADD else ".")
        yield f"stretches-{noise}-{neighbours}", about, given
    given = _pair(sums, results, _settings("laplace", 0.5, ADD, 1, 5_000), counts, ends=ends)
    given["strategy"]["measure"].append([0.0, 0.0, 0.0, 5 * 2.0**-120, 0.0])
    given["strategy"]["reconstruct"] = [[*row, 0.0] for row in given["strategy"]["reconstruct"]]
    yield (
        "smallest-laplace",
        "A measurement of nearly nothing: five measurements that are cut may move by five steps together.",
        given,
    )
    W = block_diag(sums[[0, 2]], np.array([[-3.0, 0, 4], [1, 1, 1]]))
    L = np.vstack([W / np.abs(W).max(axis=1, keepdims=True), np.array([[0.3, 0.1, 0.3, -0.2, 0.3, 0.2, 0.2, 0.1]])])
    both, far = [[0, 1, 999], [2, 3, 49_000], [5, 7, 7]], [40, 0, 700, 0, 9, 3, 100, 50, 12_345, 9_876_543, 321]
    for noise, neighbours, rows, cap, kept in (
        ("laplace", REPLACE, 3, None, 4),
        ("laplace", ADD, 1, 20_000, 5),
        ("gaussian", REPLACE, 1, 20_000, 5),
        ("gaussian", ADD, 3, None, 4),
    ):
        yield (
            f"blocks-{noise}-{neighbours}",
            "Amounts in two blocks, measured " + ("apart." if kept == 4 else "together."),
            _pair(W, L[:kept], _settings(noise, 0.5, neighbours, rows, cap), far, blocks=[5, 3], ends=both),
        )


def shaped() -> Iterator[Named]:
    """Noise in the shape of the columns."""
    flags = np.array([[float(bit) for bit in f"{n:03b}"] for n in range(1, 8)]).T
    turned = np.array([[1, 0.5, 0], [-0.25, 1, 0.3], [0.1, 0, 1]]) @ flags
    round_ = np.array([[np.cos(a), np.sin(a)] for a in np.arange(7) * np.pi / 7]).T
    for name, L, groups, neighbours, rows, cap in (
        ("round", round_, [(2, "1")], ADD, 1, None),
        ("flags", flags, [(3, "1")], REPLACE, 3, 100_000),
        ("turned", turned, [(3, "1")], ADD, 3, None),
        ("groups", turned, [(2, "5/8"), (1, "3/8")], REPLACE, 1, 10_000),
    ):
        given = _pair(flags[:, :7], L, _settings("k-norm", 0.5, neighbours, rows, cap), _counts(7, 30))
        if name == "round":  # of which any two rows say all
            given = _pair(
                np.array([[1, 2], [1, -1], [0.5, 3]]) @ L, L, _settings("k-norm", 0.5, ADD, 1, None), _counts(7, 30)
            )
        given["strategy"]["bodies"] = _bodies(L, groups)
        yield name, f"Noise in the shape of {len(groups)} bod{'y' if len(groups) == 1 else 'ies'}.", given
    given = _pair(flags, turned, _settings("k-norm", 0.5, ADD, 1, 1000), [2**60, 5, 2**45, 2**61, 0, 1, 2])
    given["strategy"]["bodies"] = _bodies(turned, [(3, "1")])
    yield "beyond", "Counts far beyond the cap: never clamped, which could move neighbours apart.", given
    cells = [0, 6, 5, 5, 2, 1, 3, 4, 4, 0]
    given = _pair(flags, turned, _settings("k-norm", 1.0, REPLACE, 1, None), _counts(10, 31))
    given["strategy"]["bodies"] = _bodies(turned, [(3, "1")])
    for part, name in (("workload", "matrix"), ("strategy", "measure")):
        given[part][name] = {"columns": given[part][name], "cells": cells}
    yield "merged", "Ten cells that queries tell seven apart of.", given


def _bodies(L: Dense, groups: Sequence[tuple[int, str]]) -> list[Given]:
    """A sample of every group's body: points of its boundary in random directions, weighted by ‖d‖^-k."""
    found, start, rng = [], 0, np.random.default_rng(0)
    for rank, share in groups:
        V = np.unique(L[start : start + rank], axis=1)
        start += rank
        directions = rng.standard_normal((POINTS, rank))
        costs = np.ones(2 * V.shape[1])
        norms = np.array([linprog(costs, A_eq=np.hstack([V, -V]), b_eq=d).fun for d in directions])
        weights = (np.linalg.norm(directions, axis=1) / norms) ** rank
        points = directions / norms[:, None]
        found.append({"share": share, "points": points.tolist(), "weights": (weights / weights.sum()).tolist()})
    return found


def _tables(sizes: Sequence[int], tables: Sequence[Sequence[Any]], settings: Given, seed: int, **more: Any) -> Given:
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, n, 60) for n in sizes])
    return {
        **settings,
        "workload": {"sizes": list(sizes), "tables": [list(own) for own in tables], **more},
        "data": {"codes": codes.tolist(), "times": _counts(60, seed)},
    }


def _margins(sizes: Sequence[int], orders: Sequence[int]) -> Tables:
    own = [kept for order in orders for kept in combinations(range(len(sizes)), order)]
    return [["each" if i in kept else None for i in range(len(sizes))] for kept in own]


Tables = list[list[Any]]
PREFIX = np.tril(np.ones((5, 5))).tolist()
TAILS = [[1.0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]
SEVERAL: Tables = [[PREFIX, None, None, PREFIX], [None, "each", None, TAILS], [TAILS, "each", "each", None]]
MIXED: Tables = [[PREFIX, "each", None], [None, "each", "each"], [TAILS, None, [[1.0, 1, 0, 0]]], [None, None, None]]


def residuals() -> Iterator[Named]:
    """Residuals of tables over many columns, with Gaussian noise: as a search found them."""
    two, three = _margins((3, 2, 4, 3), (0, 1, 2)), _margins((2, 3, 2, 3), (1, 2, 3))
    cases: list[tuple[str, str, Given]] = [
        (
            "margins-of-two",
            "All tables of up to two of four columns.",
            _tables((3, 2, 4, 3), two, _settings("gaussian", 0.5, ADD, 1, None), 40),
        ),
        (
            "margins-of-three",
            "Tables of one to three columns, some of which count more.",
            _tables(
                (2, 3, 2, 3), three, _settings("gaussian", 0.1, REPLACE, 3, 100_000), 41,
                weights=[1.0 + t % 3 for t in range(len(three))],
            ),
        ),
        (
            "many-columns",
            "Tables of up to two of nine columns: no cell is looked at by itself.",
            _tables((4,) * 9, _margins((4,) * 9, (1, 2))[:30], _settings("gaussian", 0.5, REPLACE, 1, None), 42),
        ),
        (
            "products",
            "Running totals, tails and single values, multiplied.",
            _tables((5, 3, 4), MIXED, _settings("gaussian", 0.5, ADD, 1, None), 43),
        ),
        (
            "products-capped",
            "The same for three rows a person, and with a cap.",
            _tables((5, 3, 4), MIXED, _settings("gaussian", 2.0, REPLACE, 3, 1_000_000), 43),
        ),
        (
            "products-of-totals",
            "Running totals by running totals.",
            _tables(
                (5, 5), [[PREFIX, PREFIX], [PREFIX, TAILS], [TAILS, None]],
                _settings("gaussian", 0.1, ADD, 3, None), 44,
            ),
        ),
        (
            "split",
            "Averages and rests of every column apart, centred in whole numbers.",
            _tables((5, 3, 4), MIXED, _settings("gaussian", 0.5, REPLACE, 1, None), 45),
        ),
        (
            "split-capped",
            "The same of more columns, with a cap that leaves few bits.",
            _tables((5, 4, 3, 5), SEVERAL, _settings("gaussian", 0.5, ADD, 3, 10**9), 46),
        ),
        (
            "split-unevenly",
            "Averages by uneven measures, which integers are centred by.",
            _tables((5, 4, 3, 5), SEVERAL, _settings("gaussian", 0.5, REPLACE, 1, 100_000), 48),
        ),
        (
            "split-unevenly-default",
            "The same at the first default of the cap, which leaves too few bits for that.",
            _tables((5, 4, 3, 5), SEVERAL, _settings("gaussian", 0.5, ADD, 1, None), 48),
        ),
        (
            "tied-unevenly",
            "Two columns that are measured together, without either's average.",
            _tables(
                (5, 5), [[PREFIX, PREFIX], [TAILS, TAILS], [TAILS, None]],
                _settings("gaussian", 0.5, ADD, 1, 100_000), 49,
            ),
        ),
        (
            "apart",
            "Every table by itself.",
            _tables((5, 3, 4), MIXED, _settings("gaussian", 0.5, ADD, 1, 100_000), 47),
        ),
    ]  # fmt: skip
    cases[4][2]["data"]["by"] = [[0, 1, 2]]
    cases[1][2]["data"]["by"] = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    for name, about, given in cases:
        way = next((way for way in ("unevenly", "split", "apart") if way in name), "best")
        stored = adapter.search(given, way)
        # A little less than the whole budget: that the shares add up to no more than 1 must not rest on a last bit.
        for group in stored.get("groups", ()):
            group["scale"] *= 1 - 1e-12
        if "shares" in stored:
            stored["shares"] = [share * (1 - 1e-12) for share in stored["shares"]]
        yield name, about, {**given, "strategy": stored}


def marginals() -> Iterator[Named]:
    """Weighted tables over many columns, with Laplace noise."""
    sizes = (3, 2, 4, 2)
    two, three = _margins(sizes, (0, 1, 2)), _margins(sizes, (1, 2, 3))
    yield _weighted(
        "margins-of-two",
        "All tables of up to two of four columns, from tables of one to three.",
        _tables(sizes, two, _settings("laplace", 0.5, ADD, 1, None), 50),
        [_group(three, 51)],
    )
    yield _weighted(
        "margins-of-three",
        "Tables of one to three columns, from some of three and four.",
        _tables(sizes, three, _settings("laplace", 1.0, REPLACE, 3, 100_000), 52),
        [_group([*_margins(sizes, (3, 4)), *two[5:8]], 53)],
    )
    yield _weighted(
        "differences",
        "Columns of two values of which the difference is measured.",
        _tables(sizes, two, _settings("laplace", 0.5, ADD, 3, None), 54),
        [_group([*_margins(sizes, (2,)), [None, "less", None, None], ["each", None, None, "less"]], 55)],
    )
    inside = [_shared(5, 2, 56), None, _shared(3, 1, 57)]
    whole: Tables = [["each", "each", "each"], [None, "each", "each"], ["each", None, None]]
    for neighbours, rows, cap in ((ADD, 1, None), (REPLACE, 1, 1_000_000)):
        yield _weighted(
            f"insides-{neighbours}",
            "Tables whose columns are measured by strategies of their own.",
            _tables((5, 3, 3), MIXED_THREE, _settings("laplace", 0.5, neighbours, rows, cap), 58),
            [_group(whole, 59, insides=inside)],
        )
    yield _weighted(
        "insides-little-noise",
        "The same at a budget whose noise asks for a lower cap than the first.",
        _tables((5, 3, 3), MIXED_THREE, _settings("laplace", 400.0, ADD, 1, None), 58),
        [_group(whole, 59, insides=inside)],
    )
    given = _tables(sizes, two, _settings("laplace", 0.0001, ADD, 3, 1000), 66)
    given["data"]["by"] = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    yield _weighted("much-noise", "Noise that needs the bits of the lattice.", given, [_group(three, 67)])
    first: Tables = [["each", "each", None], [None, "each", None]]
    second: Tables = [[None, "each", "each"], ["each", None, "each"], [None, None, None]]
    yield _weighted(
        "groups",
        "Two groups of tables, each of which serves some.",
        _tables((5, 3, 3), MIXED_THREE, _settings("laplace", 0.5, REPLACE, 3, None), 60),
        [
            _group(first, 61, share=0.625, serves=[0], insides=[_shared(5, 2, 62), None, None]),
            _group(second, 63, share=0.375, serves=[1, 2, 3]),
        ],
    )
    rough = np.random.default_rng(64).random((2, 3)).tolist()
    for name, tables, cap in (("queries", MIXED_THREE, None), ("queries-in-floats", [[PREFIX, rough, rough]], 10_000)):
        yield _weighted(
            name,
            "Noise on the queries themselves" + (", which are no whole numbers of anything." if cap else "."),
            _tables((5, 3, 3), tables, _settings("laplace", 0.5, ADD, 3, cap), 65),
            [adapter.QUERIES],
        )


MIXED_THREE: Tables = [[PREFIX, "each", None], [None, "each", "each"], [TAILS, None, [[1.0, 1, 0]]], [None, None, None]]


def _weighted(name: str, about: str, given: Given, groups: Sequence[Any]) -> Named:
    given = {**given, "strategy": {"kind": "marginals", "groups": list(groups)}}
    given["strategy"]["total"] = adapter.total_of(given)
    return name, about, given


def _group(
    measured: Tables,
    seed: int,
    *,
    share: float = 1.0,
    serves: Sequence[int] | None = None,
    insides: Sequence[Dense | None] | None = None,
) -> Given:
    """Tables with weights that add up to the share, in steps of 2⁻²⁰."""
    whole = round(share * 2**20)
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, whole), len(measured) - 1, replace=False))
    weights = np.diff([0, *cuts.tolist(), whole]) / 2**20
    width = len(measured[0])
    return {
        "serves": None if serves is None else list(serves),
        "weights": weights.tolist(),
        "apart": [[int(one == "each") for one in own] for own in measured],
        "difference": [[int(one == "less") for one in own] for own in measured],
        "insides": [None if L is None else L.tolist() for L in (insides or [None] * width)],
    }


def _sparse(matrix: Dense) -> Given:
    rows, places = np.nonzero(matrix)
    values = matrix[rows, places].tolist()
    return {"shape": list(matrix.shape), "rows": rows.tolist(), "places": places.tolist(), "values": values}
