"""Noise in the shape of a body has the law that it says, whatever number of bits it starts with."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from batchdp.errors import PrivacyParameterError
from batchdp.mechanism.knorm import body as bodies
from batchdp.mechanism.knorm import drawing
from batchdp.mechanism.knorm.ball import Bits, Box, Gamma, Uniform, below, box, exponential
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.drawing import Point, _accepted, draws
from batchdp.mechanism.knorm.gauge import Found
from batchdp.privacy import LAPLACE
from mechanisms import calibrated
from mechanisms import drawn as drawn_by_opendp
from shaped_truth import Law, cube, differences, facets, flags, gaussian, law_by_integral, rounded_laplace, surprise

COUNT = int(os.environ.get("BATCHDP_EXAMPLES", "2000"))
STARTS = [4, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (8, 16)), 64]
FALSE_ALARM = 1e-6


def bits(start: int = 64, seed: int = 0) -> Bits:
    """The same in every run, for tests alone."""
    return Bits(np.random.default_rng(seed).bytes, start)


def drawn(vertices: Any, epsilon: Fraction, start: int, count: int = COUNT) -> list[tuple[int, ...]]:
    return [tuple(z) for z in draws(Body(vertices), epsilon, count, _bits=bits(start))]


@pytest.mark.parametrize("start", STARTS)
def test_rank_one_is_rounded_laplace_noise(start: int) -> None:
    law: Law = {(n,): p for n, p in rounded_laplace(1.75, 60).items()}
    assert surprise(drawn([[7]], Fraction(4), start, 2 * COUNT), law) > FALSE_ALARM


@pytest.mark.parametrize("start", STARTS)
def test_a_cross_polytope_is_independent_laplace_noise(start: int) -> None:
    x, y = rounded_laplace(0.5, 15), rounded_laplace(1.0, 25)
    law: Law = {(a, b): x[a] * y[b] for a in x for b in y}
    assert surprise(drawn(np.diag([1, 2]), Fraction(2), start), law) > FALSE_ALARM


BODIES = {
    "square": (cube(2), 4.0),
    "hexagon": (differences(2), 3.0),
    "cube": (cube(3), 8.0),
    "simplex differences": (differences(3), 20 / 6),  # binomial(2k, k) / k!, of a simplex of 1 / k!
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_known_volume_have_the_law_of_their_norm(name: str, start: int) -> None:
    vertices, volume = BODIES[name]
    law = law_by_integral(
        facets(vertices), volume, 1.5, 7 if len(vertices) == 2 else 3, 24 if len(vertices) == 2 else 12
    )
    assert surprise(drawn(vertices, Fraction(3, 2), start), law) > FALSE_ALARM


@pytest.mark.parametrize("start", STARTS)
def test_opendp_draws_the_same_from_a_cross_polytope_on_a_fine_lattice(start: int) -> None:
    scale = 2**20
    ours = np.array(drawn(np.eye(3, dtype=int) * scale, Fraction(1, 2), start, 3 * COUNT // 10), dtype=float).ravel()
    theirs = np.array(drawn_by_opendp(LAPLACE, calibrated(LAPLACE, scale, 0.5).scale, 10 * COUNT), dtype=float)
    edges = np.quantile(theirs, np.linspace(0, 1, 21)[1:-1])
    table = [np.bincount(np.searchsorted(edges, sample), minlength=20) for sample in (ours, theirs)]
    assert chi2_contingency(table).pvalue > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "start"), [(4, 4), (4, 64), (5, 16), (6, 64), (9, 64)])
def test_the_norm_of_a_draw_has_its_gamma_law(rank: int, start: int) -> None:
    body = Body(flags(rank) * 2**24 if rank < 7 else gaussian(rank, 30))
    count = COUNT // 8
    found = draws(body, Fraction(1, 3), count, _bits=bits(start))
    # ‖z‖ has the density t^(k-1) exp(−ε t): 2 ε ‖z‖ is a chi-square of 2 k degrees, here in ten equal parts.
    norms = [float(body.norm(z)) * 2 / 3 for z in found]
    parts = np.bincount((np.asarray(chi2.cdf(norms, 2 * rank)) * 10).astype(int), minlength=10)
    assert chi2.sf(float(np.sum((parts - count / 10) ** 2)) / (count / 10), 9) > FALSE_ALARM


@pytest.mark.parametrize("start", [1, *STARTS])
def test_exponential_numbers_by_comparisons(start: int) -> None:
    stream = bits(start)
    parts = [exponential(stream) for _ in range(COUNT)]
    for part in parts:
        part.fraction.refine(stream, 60)
    values = np.array([part.whole + part.fraction.value / 2**part.fraction.bits for part in parts])
    seen = np.bincount(((1 - np.exp(-values)) * 20).astype(int), minlength=20)
    assert chi2.sf(float(np.sum((seen - COUNT / 20) ** 2)) / (COUNT / 20), 19) > FALSE_ALARM


def test_refining_a_number_keeps_what_is_known_of_it() -> None:
    stream = bits(4)
    gamma = Gamma(3, stream)
    low, high = gamma.interval(stream, 8)
    for more in (9, 64, 300):
        finer = gamma.interval(stream, more)
        assert low << more - 8 <= finer[0] < finer[1] <= high << more - 8
    one, other = Uniform(stream), Uniform(stream)
    first = below(one, other, stream)
    one.refine(stream, 200)
    other.refine(stream, 100)
    assert below(one, other, stream) == first == (not below(other, one, stream))


@pytest.mark.parametrize("vertices", [cube(2), differences(3), gaussian(4, 9)])
def test_a_cell_is_taken_if_all_of_it_is_inside_and_left_if_none_is(vertices: Any) -> None:
    body, stream = Body(vertices), bits(4)
    seen = []
    for _ in range(150):
        point = Point([stream.take(4) for _ in range(body.rank)], 4)
        seen.append(_accepted(body, point, stream))
        while point.bits < 128:
            point.refine(stream)
        found = box(point.cell, point.bits)
        assert (isinstance(found, Box) and body.place(found)) == seen[-1]
    assert {True, False} <= set(seen)


def test_refined_cells_have_fresh_bits() -> None:
    points = [Point([5, 6], 4) for _ in range(40)]
    for point in points:
        point.refine(bits(4, id(point)))
        assert [value >> 4 for value in point.cell] == [5, 6]
        assert point.bits == 8
    assert len({value & 15 for point in points for value in point.cell}) >= 8


def test_points_of_the_ball_are_uniform() -> None:
    for rank in (2, 4, 6):
        stream = bits(64, rank)
        found: list[list[float]] = []
        while len(found) < COUNT // 2:
            one = box([stream.take(64) for _ in range(rank)], 64)
            if isinstance(one, Box):
                found.append([x / 2**one.bits for x in one.centre])
        points = np.array(found)
        # Radius^k is uniform; and so is the direction: every half-space through the centre holds half of them.
        radii = np.bincount((np.linalg.norm(points, axis=1) ** rank * 10).astype(int), minlength=10)
        assert chi2.sf(float(np.sum((radii - len(found) / 10) ** 2)) / (len(found) / 10), 9) > FALSE_ALARM
        for normal in np.random.default_rng(1).standard_normal((20, rank)):
            along = points @ normal / np.linalg.norm(normal)
            assert abs(np.sum(along > 0) - len(found) / 2) < 5.5 * math.sqrt(len(found)) / 2
            assert abs(np.mean(along**2) * (rank + 2) - 1) < 5.5 * math.sqrt(2 / len(found)) * 2


def few_directions(patch: pytest.MonkeyPatch) -> None:
    """Other half-spaces, from which searches start elsewhere."""
    patch.setattr(bodies, "SEED", 1)
    patch.setattr(bodies, "DIRECTIONS", 7)


def nothing_rejected_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drawing, "surely_outside", lambda body, cells: np.zeros(len(cells), dtype=bool))


def searches_in_vain(patch: pytest.MonkeyPatch) -> None:
    """Floats find nothing at all."""
    nothing_rejected_early(patch)
    zeros = np.zeros
    patch.setattr(
        Body,
        "search",
        lambda self, point, until=None: Found(
            np.array(self._reference), zeros(self.rank), zeros(self.rank), 0.0, np.inf
        ),
    )


@pytest.mark.parametrize("worse", [few_directions, nothing_rejected_early, searches_in_vain])
@pytest.mark.parametrize("vertices", [flags(3), gaussian(4, 9)])
def test_the_same_bits_are_the_same_noise_whatever_floats_find(
    vertices: Any, worse: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Body, "proposals", 30)  # what is looked at together; simulated, so it would differ
    expected = drawn(vertices, Fraction(1, 2), 64, 25)
    worse(monkeypatch)
    assert drawn(vertices, Fraction(1, 2), 64, 25) == expected


def test_nothing_can_be_seeded_and_no_process_repeats_another() -> None:
    body = Body(np.eye(2, dtype=int) * 2**40)
    seen: list[Any] = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        seen.append(draws(body, Fraction(1), 1)[0])
    program = (
        "from fractions import Fraction; from batchdp.mechanism.knorm.body import Body; "
        "from batchdp.mechanism.knorm.drawing import draws; "
        f"print(draws(Body([[{2**40}, 0], [0, {2**40}]]), Fraction(1), 1)[0])"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seen.append(done.stdout.strip())
    read, write = os.pipe()
    children = []
    for _ in range(2):  # forked in the middle: what a generator had in store would come twice
        child = os.fork()
        if child == 0:
            os.write(write, f"{draws(body, Fraction(1), 1)[0]}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        seen += pipe.read().splitlines()
    assert len(seen) == 6
    assert len(set(map(str, seen))) == 6


def test_all_bits_are_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def urandom(count: int, original: Any = os.urandom) -> bytes:
        asked.append(count)
        return bytes(original(count))

    monkeypatch.setattr(os, "urandom", urandom)
    body = Body(np.eye(2, dtype=int))
    draws(body, Fraction(1), 1)[0]
    # Cells of the cube, and at least two numbers of 64 bits for each of three exponential numbers.
    assert len(asked) >= 7
    assert sum(asked) >= 16 + 6 * 8


@pytest.mark.parametrize("epsilon", [0, -1, Fraction(0), 0.5, True, "1", None, math.nan])
def test_impossible_budgets_are_refused(epsilon: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="epsilon="):
        draws(Body(np.array([[1]])), epsilon, 1)


def test_very_large_and_very_small_noise() -> None:
    body = Body(np.diag([2**60, 1]))
    large = draws(body, Fraction(1, 10**30), 1)[0]
    assert max(map(abs, large)) > 10**25
    assert draws(body, Fraction(10**40), 1)[0] == [0, 0]


def test_a_long_draw_says_how_far_it_is_and_can_be_interrupted() -> None:
    said: list[str] = []

    def stop(share: float, text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    body = Body(gaussian(12, 60))
    with pytest.raises(KeyboardInterrupt):
        draws(body, Fraction(1), 1, stop)
    assert said[0].startswith("drawing noise: 0 tried, one of ")
    assert 0 < body.seconds < 5


def test_the_share_of_the_ball_is_right() -> None:
    # A cross-polytope of rank 6 in its ball: 2^6 / 6! over π³ / 6.
    body = Body(np.eye(6, dtype=int) * 1000)
    assert body.survey.share == pytest.approx(64 / 720 / (math.pi**3 / 6), rel=0.3)
    assert body.proposals == pytest.approx(1 / body.survey.share / (math.pi / 4) ** 3)
