"""Who is inside a body: proven in whole numbers, and equal to what all its facets say."""

from __future__ import annotations

import os
from fractions import Fraction
from functools import cache
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
import pytest

from batchdp.errors import LatticeError
from batchdp.mechanism.knorm.ball import ERROR, Box, box, nearly
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.drawing import surely_outside
from shaped_truth import cube, differences, facets, flags, gaussian, norm_by, polygon

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "2000"))
SMALL = {
    "line": np.array([[3, -2, 0]]),
    "cross": np.diag([1, 2, 5]),
    "cube": cube(3),
    "differences": differences(3),
    "flags": flags(4),
    "gaussian": gaussian(3, 9),
    "thin": np.array([[10**6, 999_999, 1], [1, 1, 0]]),
    "flat": np.array([[1, 0, 10**9], [0, 10**12, 1], [1, 1, 1]]).T,
}


def points_of(rank: int, known: Any, count: int, seed: int) -> list[list[Fraction]]:
    """Some anywhere, some on the boundary, and some so near to it that no float could tell."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        point = [Fraction(int(x)) for x in rng.integers(-(2**40), 2**40, rank)]
        norm = norm_by(known, point)
        away = Fraction(int(rng.integers(-3, 4)), 10 ** int(rng.integers(1, 45))) if i % 4 else Fraction(1, 2)
        found.append([x / norm * (1 + away) for x in point])
    return found


@pytest.mark.parametrize("name", SMALL)
def test_membership_is_what_all_facets_say(name: str) -> None:
    body, known = Body(SMALL[name]), facets(SMALL[name])
    for point in points_of(body.rank, known, max(2000, EXAMPLES) // len(SMALL), seed=1):
        norm = norm_by(known, point)
        assert body.contains(point) == (norm <= 1)


@pytest.mark.parametrize("name", SMALL)
def test_norms_and_their_weights_are_exact(name: str) -> None:
    body, known = Body(SMALL[name]), facets(SMALL[name])
    for point in points_of(body.rank, known, max(80, EXAMPLES // 100), seed=2):
        weights = body.combination(point)
        assert body.norm(point) == norm_by(known, point) == sum(map(abs, weights.values()))
        total = [sum(w * int(body.vertices[i, j]) for j, w in weights.items()) for i in range(body.rank)]
        assert total == point
        assert body.contains(point, times=body.norm(point))
        assert not body.contains(point, times=body.norm(point) * (1 - Fraction(1, 10**30)))


@pytest.mark.parametrize("vertices", [flags(6), gaussian(7, 40), gaussian(9, 200)])
def test_at_a_higher_rank_membership_is_the_exact_norm(vertices: Any) -> None:
    body = Body(vertices)
    rng = np.random.default_rng(3)
    for i in range(max(10, EXAMPLES // 200)):
        point = [Fraction(int(x)) for x in rng.integers(-(2**30), 2**30, body.rank)]
        norm = body.norm(point)
        away = Fraction(i % 3 - 1, 10 ** int(rng.integers(9, 40)))
        assert body.contains([x / norm * (1 + away) for x in point]) == (away <= 0)


def test_every_column_is_in_its_body() -> None:
    checked = 0
    for seed, (rank, count) in enumerate([(2, 50), (4, 100), (6, 100), (8, 150)] * max(1, EXAMPLES // 2000)):
        vertices = gaussian(rank, count, 2 ** (10 + 5 * seed % 30), seed)
        body = Body(vertices)
        for column in vertices.T.tolist():
            weights = body.combination(column)
            assert [sum(w * int(body.vertices[i, j]) for j, w in weights.items()) for i in range(rank)] == column
            assert sum(map(abs, weights.values())) <= 1
            assert body.contains(column)
            checked += 1
    assert checked >= min(10_000, EXAMPLES // 5)


@pytest.mark.parametrize("name", SMALL)
def test_all_of_a_box_is_inside_or_all_of_it_outside(name: str) -> None:
    body = Body(SMALL[name])
    S, rng = body.rounded, np.random.default_rng(4)
    seen = set()
    for _ in range(max(60, EXAMPLES // 100)):
        bits = int(rng.integers(3, 12))
        centre = [int(x) for x in rng.integers(-(3 << bits), 3 << bits, body.rank) // 2]
        placed = body.place(Box(centre, 1, bits))
        seen.add(placed)
        corners = [[x + d for x, d in zip(centre, way, strict=True)] for way in product((-1, 1), repeat=body.rank)]
        inside = [body.contains(_back(S, corner, bits)) for corner in [centre, *corners]]
        if placed is not None:
            assert set(inside) == {placed}
    assert seen >= {True, False}


def _back(rounded: Any, point: list[int], bits: int) -> list[Fraction]:
    """A point of the ball in the coordinates of the vertices."""
    scale = Fraction(2**rounded.bits, 2**bits * rounded.divisor)
    return [scale * int(x) for x in rounded.inverse @ np.array(point, dtype=object)]


@pytest.mark.parametrize("name", SMALL)
def test_the_ball_holds_every_column_and_its_coordinates_can_be_undone(name: str) -> None:
    body = Body(SMALL[name])
    S = body.rounded
    assert all(sum(int(x) ** 2 for x in column) <= 4**S.bits for column in S.columns.T)
    assert np.array_equal(S.inverse @ S.change, np.diag([S.divisor] * body.rank).astype(object))
    # A symmetric body holds the ellipsoid divided by √k, so that nearly as much of the ball is accepted.
    assert body.survey.share >= 0.99 * 1.01**-body.rank * body.rank ** (-body.rank / 2)


@pytest.mark.parametrize("name", [*SMALL, "many"])
def test_every_half_space_holds_every_column_and_touches_one(name: str) -> None:
    body = Body(SMALL.get(name, flags(7)))
    for one in body.survey.cuts:
        sides = [
            abs(sum(y * int(x) for y, x in zip(one.normal, column, strict=True))) for column in body.rounded.columns.T
        ]
        assert max(sides) == one.bound


@pytest.mark.parametrize("name", SMALL)
def test_the_unit_is_above_the_norms_of_the_unit_vectors(name: str) -> None:
    body = Body(SMALL[name])
    axes = [_back(body.rounded, [int(i == j) for j in range(body.rank)], 0) for i in range(body.rank)]
    true = sum(body.norm(axis) for axis in axes)
    assert true <= body.unit <= true + 1


def exact_point(cell: list[int], bits: int) -> list[Fraction]:
    """The point of the lowest corner of a cell, to 200 digits and more."""
    fine = 10**200
    numbers = [Fraction(2 * value, 2**bits) - 1 for value in cell]
    pairs = sorted(zip(numbers[0::2], numbers[1::2], strict=False), key=lambda pair: pair[0] ** 2 + pair[1] ** 2)
    found, before = [], Fraction(0)
    for u, v in pairs:
        t = u * u + v * v
        factor = Fraction(isqrt(int((1 - before / t) * fine**2)), fine) if before else Fraction(1)
        found += [u * factor, v * factor]
        before = t
    return found + numbers[len(numbers) // 2 * 2 :]


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("bits", [4, 8, 16, 64])
def test_the_box_of_a_cell_holds_the_point_of_every_finer_cell(rank: int, bits: int) -> None:
    rng = np.random.default_rng(rank)
    boxes = 0
    for i in range(max(150, EXAMPLES // 20)):
        cell = [int.from_bytes(rng.bytes(8), "big") >> 64 - bits for _ in range(rank)]
        more = [[0] * rank, [255] * rank, rng.integers(256, size=rank).tolist()][i % 3]
        found = box(cell, bits)
        if not isinstance(found, Box):
            continue
        boxes += 1
        # Inside of the finer cell: two pairs may be equally far out at its corner, which is never drawn.
        point = exact_point([(value << 8 | m) << 1 | 1 for value, m in zip(cell, more, strict=True)], bits + 9)
        slack = Fraction(1, 10**150)  # of the root
        for x, centre in zip(point, found.centre, strict=True):
            assert abs(x * 2**found.bits - centre) <= found.radius + slack
    assert boxes >= (10 if bits >= 8 or rank < 5 else 0)


def test_a_cell_outside_every_disc_makes_no_point_and_one_across_may() -> None:
    assert box([0, 0], 4) is False
    assert box([15, 15, 8, 8], 4) is False
    assert box([13, 13], 4) is True  # from 10/16 to 12/16 in both
    assert box([12, 12, 12, 3], 4) is True  # both at the same distance: in what order?
    assert isinstance(box([8, 8], 4), Box)


@pytest.mark.parametrize("rank", [2, 3, 5, 9, 14])
def test_points_in_floats_are_within_their_bound(rank: int) -> None:
    rng = np.random.default_rng(rank)
    cells = np.frombuffer(rng.bytes(8 * rank * 600), dtype=np.uint64).reshape(600, rank).copy()
    cells[1::4] //= np.uint64(2**13)  # crowded in a corner; and around the centre, where the square root is steepest
    cells[2::4] = cells[2::4] // np.uint64(2**20) + np.uint64(2**63)
    cells[3::4] = cells[3::4] // np.uint64(2**34) + np.uint64(2**63)
    points, outside, doubtful = nearly(cells)
    seen = 0
    for cell, point, out, doubt in zip(cells.tolist(), points, outside, doubtful, strict=True):
        found = box(cell, 64)
        assert not out or found is False
        if not doubt and isinstance(found, Box):
            seen += 1
            for x, centre in zip(point.tolist(), found.centre, strict=True):
                off = abs(Fraction(x) * 2**found.bits - centre) + found.radius
                assert off <= Fraction(ERROR) * 2**found.bits
    assert seen >= 20


@pytest.mark.parametrize(
    ("vertices", "what"),
    [
        ([[1, 2], [2, 4]], "rank 1, below their 2 rows"),
        ([[1, 0, 1], [0, 1, 1], [1, 1, 2]], "rank 2"),
        (np.zeros((2, 3), dtype=int), "rank 0"),
        (np.zeros((0, 0), dtype=int), "matrix of whole numbers"),
        ([[1.0, 0.0], [0.0, 1.0]], "matrix of whole numbers"),
        ([1, 2, 3], "matrix of whole numbers"),
        ([[1, 2], [3]], "matrix of whole numbers"),
        ([["a"]], "matrix of whole numbers"),
        (np.eye(21, dtype=int), "rank above 20"),
        (np.array([[2**300]], dtype=object), "256 bits"),
    ],
)
def test_what_is_no_body_is_refused(vertices: Any, what: str) -> None:
    with pytest.raises(LatticeError, match=what):
        Body(vertices)


def test_zero_and_repeated_columns_change_nothing() -> None:
    plain = Body(np.diag([1, 2]))
    crowded = Body(np.array([[0, 1, 0, -1, 0, 1], [0, 0, 2, 0, -2, 0]]))
    point = [Fraction(1, 3), Fraction(4, 3)]
    assert plain.norm(point) == crowded.norm(point) == 1
    assert crowded.combination(point) == {1: Fraction(1, 3), 2: Fraction(2, 3)}
    assert np.array_equal(plain.rounded.columns, crowded.rounded.columns)


@pytest.mark.parametrize("ratio", [10**3, 10**6, 10**9, 10**15])
def test_columns_of_very_different_size_are_right_or_refused(ratio: int) -> None:
    rng = np.random.default_rng(5)
    vertices = rng.integers(-5, 6, (4, 12)).astype(object) * np.array([1, ratio, ratio**2, 7], dtype=object)[:, None]
    vertices[:, :6] *= ratio
    body, known = Body(vertices[:, :8]), facets(vertices[:, :8])
    for point in points_of(4, known, 20, seed=6):
        assert body.contains(point) == (norm_by(known, point) <= 1)
    assert body.survey.share > 1e-3


def test_a_point_of_another_rank_is_refused() -> None:
    with pytest.raises(LatticeError, match="3 coordinates in a body of rank 2"):
        Body(np.eye(2, dtype=int)).contains([0, 0, 0])


def test_nothing_is_in_no_times_a_body_but_zero() -> None:
    body = Body(np.eye(2, dtype=int))
    assert body.contains([0, 0], times=0)
    assert not body.contains([0, 1], times=0)
    assert not body.contains([0, 0], times=-1)


def cells_beside(body: Body, count: int) -> Any:
    """Of the cube of rank 2, where cells are points: along the boundary, a little inside and a little outside."""
    angles = np.random.default_rng(8).uniform(0, 2 * np.pi, count)
    ways = [[Fraction(float(np.cos(angle))), Fraction(float(np.sin(angle)))] for angle in angles]
    ways += [[Fraction(int(x), 2**body.rounded.bits) for x in column] for column in body.rounded.columns.T]
    for way in ways:
        norm = body.norm(_back(body.rounded, [int(x * 2**60) for x in way], 60))
        for away in (0, 3, 200, 2**40, -3, -100, -200, -500):
            point = [x / norm * (1 + Fraction(away, 2**62)) for x in way]
            yield [int((x + 1) * 2**63) for x in point]


@pytest.mark.parametrize("vertices", [np.eye(2, dtype=int), gaussian(2, 7), polygon(60)])
def test_what_floats_reject_is_outside(vertices: Any) -> None:
    body = Body(vertices)
    near = np.array(list(cells_beside(body, 60)), dtype=np.uint64)
    cells = np.vstack([near, np.random.default_rng(9).integers(0, 2**64, (400, 2), dtype=np.uint64)])
    rejected = surely_outside(body, cells)
    assert 20 < rejected.sum() < len(cells)
    for cell in cells[rejected].tolist():
        found = box(cell, 64)
        assert found is False or (isinstance(found, Box) and body.place(found) is False)


def test_floats_do_not_reject_what_depends_on_the_order_of_two_nearly_equal_numbers() -> None:
    body = Body(np.eye(4, dtype=int) * 1000)
    centre, side = 2**63, int(0.95 * 2**63)
    half = isqrt(side * side // 2)
    cells = []
    for more in range(-6, 7):
        # A point of the first axis, if that pair comes first, and far outside on a diagonal, if the other does.
        cells += [[centre + side, centre, centre + half + more, centre + half]]
        cells += [[centre + half + more, centre + half, centre + side, centre]]
    rejected = surely_outside(body, np.array(cells, dtype=np.uint64))
    places = [box(cell, 64) for cell in cells]
    inside = [isinstance(one, Box) and body.place(one) is True for one in places]
    assert any(inside)
    assert not any(rejected[i] for i, one in enumerate(inside) if one)


def cell_of(signs: list[int], x: int, y: int, way: Fraction, farther: int) -> list[int]:
    """A cell of rank 4 in which the second pair is farther out than the first by a little: its root is inexact."""
    t = x * x + y * y + farther
    u = int(way * isqrt(t))
    return [2**63 + s * value for s, value in zip(signs, (x, y, u, isqrt(t - u * u)), strict=True)]


@cache
def barely_inside(count: int) -> Any:
    """The last cells on their way out of a cross-polytope that are proven inside: the next one is not."""
    body, rng, one = Body(np.eye(4, dtype=int) * 1000), np.random.default_rng(10), 2**63
    cells = []
    for _ in range(count):
        signs = rng.choice((-1, 1), 4).tolist()
        y, way = int(rng.uniform(0.05, 0.45) * one), Fraction(float(np.cos(rng.uniform(0.1, 1.4))))

        def inside(x: int, signs: list[int] = signs, y: int = y, way: Fraction = way) -> bool:
            found = box(cell_of(signs, x, y, way, one * one >> 28), 64)
            return isinstance(found, Box) and body.place(found) is True

        low, high = 0, one // 100 * 99
        assert inside(low)
        assert not inside(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if inside(middle) else (low, middle)
        cells.append(cell_of(signs, low, y, way, one * one >> 28))
    return np.array(cells, dtype=np.uint64)


def test_floats_do_not_reject_what_is_barely_inside() -> None:
    body, cells = Body(np.eye(4, dtype=int) * 1000), barely_inside(20)
    points, _, doubtful = nearly(cells)
    # What makes it a test: some of these are behind a half-space if floats are believed.
    assert (np.abs(points @ body.survey.normals.T).max(axis=1) > 1 + 2**-45).sum() >= 3
    assert not doubtful.any()
    assert not surely_outside(body, cells).any()


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_where_every_cell_is_in_no_disc_none_is_left(rank: int) -> None:
    body, corners = Body(np.eye(rank, dtype=int)), np.zeros((5, rank), dtype=np.uint64)
    assert surely_outside(body, corners).all()
    assert len(surely_outside(body, corners[:0])) == 0
