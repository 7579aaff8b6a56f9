"""Mutants of the exact sampler: each gives away the guarantee in its own way, and each is caught."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import test_shaped_body as bodies
import test_shaped_draws as drawing_tests
from batchdp.mechanism.knorm import ball, body, drawing
from batchdp.mechanism.knorm import ball as bits
from batchdp.mechanism.knorm.ball import Bits, Box
from batchdp.mechanism.knorm.body import Body
from batchdp.mechanism.knorm.gauge import Cut
from shaped_truth import differences, polygon

Patch = pytest.MonkeyPatch


def believed_float(patch: Patch) -> None:
    patch.setattr(
        Body, "place", lambda self, box: self.search(np.array([x / 2**box.bits for x in box.centre])).high <= 1
    )


def missing_rest_forgotten(patch: Patch) -> None:
    """Weights that nearly make up the point pass for weights that do."""
    patch.setattr(body, "residual", lambda *_: 0)


def box_without_radius(patch: Patch) -> None:
    """Inside by its centre."""
    place = Body.place
    patch.setattr(Body, "place", lambda self, box: place(self, replace(box, radius=0)))


def inward_box(patch: Patch) -> None:
    original = ball.box

    def smaller(cell: list[int], bits: int) -> Box | bool:
        found = original(cell, bits)
        return replace(found, radius=found.radius // 2) if isinstance(found, Box) else found

    for module in (ball, drawing, bodies):
        patch.setattr(module, "box", smaller)


def inward_root(patch: Patch) -> None:
    """Rounded down on both sides."""
    patch.setattr(ball, "isqrt", lambda number, original=math.isqrt: original(number) - 1)


def inward_ball(patch: Patch) -> None:
    """The smallest ellipsoid, and a little smaller."""
    original = body.rounded

    def shrunk(columns: Any) -> Any:
        found = original(columns)
        return replace(found, change=found.change * 2, columns=found.columns * 2, divisor=found.divisor * 2)

    patch.setattr(body, "rounded", shrunk)


def small_unit(patch: Patch) -> None:
    patch.setattr(Body, "unit", property(lambda self: 1))


def seeded_bits(patch: Patch) -> None:
    original = Bits.__init__
    patch.setattr(Bits, "__init__", lambda self, source=None, start=64: original(self, random.randbytes, start))


def bits_in_store(patch: Patch) -> None:
    """From a generator of the process, which a fork copies."""
    generator, original = np.random.default_rng(), Bits.__init__
    patch.setattr(Bits, "__init__", lambda self, source=None, start=64: original(self, generator.bytes, start))


def wrong_shape(patch: Patch) -> None:
    """R is the sum of k exponential numbers."""
    patch.setattr(drawing, "Gamma", lambda shape, stream: bits.Gamma(shape - 1, stream))


def unverified_certificate(patch: Patch) -> None:
    """The bound of a half-space is what floats said."""

    def believed(columns: Any, prices: Any) -> Cut:
        normal = tuple(round(x) for x in (prices * 2.0**20).tolist())
        return Cut(normal, round(2.0**20 * float(max(1, np.abs(columns).max())) / 2))

    patch.setattr(body, "cut", believed)


def one_column_outside(patch: Patch) -> None:
    original = Body._places.func  # type: ignore[attr-defined]
    patch.setattr(Body, "_places", property(lambda self: original(self)[:-1] if self.rank > 1 else original(self)))


def straddling_accepted(patch: Patch) -> None:
    place = Body.place
    patch.setattr(Body, "place", lambda self, box: place(self, box) is not False)


def straddling_rejected(patch: Patch) -> None:
    place = Body.place
    patch.setattr(Body, "place", lambda self, box: place(self, box) is True)


def margin_inside(patch: Patch) -> None:
    """Floats may reject what is barely inside."""
    patch.setattr(body, "MARGIN", -body.MARGIN)


def no_margin(patch: Patch) -> None:
    """Floats are believed to the last bit."""
    patch.setattr(body, "MARGIN", 0.0)


def margin_of_one_operation(patch: Patch) -> None:
    """As if floats were off by one rounding, and no square root had made that more."""
    patch.setattr(body, "MARGIN", 2.0**-50)


def no_doubt(patch: Patch) -> None:
    """The order of two numbers that floats cannot tell apart is believed."""
    original = ball.nearly
    patch.setattr(drawing, "nearly", lambda cells: (*original(cells)[:2], np.zeros(len(cells), dtype=bool)))


def short_comparisons(patch: Patch) -> None:
    """Numbers whose first bits are the same are not looked at further."""
    patch.setattr(bits, "below", lambda one, other, stream: one.value < other.value)


def stale_bits(patch: Patch) -> None:
    """A cell is refined with the bits that it has."""

    def refine(self: Any, stream: Bits) -> None:
        self.cell, self.bits = [value << self.bits | value for value in self.cell], 2 * self.bits

    patch.setattr(drawing.Point, "refine", refine)


def rounded_down(patch: Patch) -> None:
    patch.setattr(drawing, "_nearest", lambda top, bottom: top // bottom)


def near_the_boundary() -> None:
    bodies.test_membership_is_what_all_facets_say("gaussian")


def cells() -> None:
    drawing_tests.test_a_cell_is_taken_if_all_of_it_is_inside_and_left_if_none_is(differences(3))


def law(name: str, start: int) -> Callable[[], None]:
    return lambda: drawing_tests.test_bodies_of_known_volume_have_the_law_of_their_norm(name, start)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (believed_float, near_the_boundary),
    (missing_rest_forgotten, near_the_boundary),
    (box_without_radius, lambda: bodies.test_all_of_a_box_is_inside_or_all_of_it_outside("cross")),
    (inward_box, lambda: bodies.test_the_box_of_a_cell_holds_the_point_of_every_finer_cell(4, 8)),
    (inward_root, lambda: bodies.test_the_box_of_a_cell_holds_the_point_of_every_finer_cell(4, 8)),
    (inward_ball, lambda: bodies.test_the_ball_holds_every_column_and_its_coordinates_can_be_undone("flags")),
    (inward_ball, law("square", 64)),
    (small_unit, lambda: bodies.test_the_unit_is_above_the_norms_of_the_unit_vectors("cross")),
    (seeded_bits, drawing_tests.test_nothing_can_be_seeded_and_no_process_repeats_another),
    (bits_in_store, drawing_tests.test_nothing_can_be_seeded_and_no_process_repeats_another),
    (wrong_shape, lambda: drawing_tests.test_the_norm_of_a_draw_has_its_gamma_law(4, 64)),
    (wrong_shape, lambda: drawing_tests.test_rank_one_is_rounded_laplace_noise(64)),
    (unverified_certificate, lambda: bodies.test_every_half_space_holds_every_column_and_touches_one("flags")),
    (unverified_certificate, near_the_boundary),
    (one_column_outside, bodies.test_every_column_is_in_its_body),
    (straddling_accepted, cells),
    (straddling_rejected, cells),
    (margin_inside, lambda: bodies.test_what_floats_reject_is_outside(polygon(60))),
    (no_margin, bodies.test_floats_do_not_reject_what_is_barely_inside),
    (margin_of_one_operation, bodies.test_floats_do_not_reject_what_is_barely_inside),
    (no_doubt, bodies.test_floats_do_not_reject_what_depends_on_the_order_of_two_nearly_equal_numbers),
    (short_comparisons, lambda: drawing_tests.test_exponential_numbers_by_comparisons(1)),
    (stale_bits, drawing_tests.test_refined_cells_have_fresh_bits),
    (rounded_down, lambda: drawing_tests.test_rank_one_is_rounded_laplace_noise(64)),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=[f"{i}-{one[0].__name__}" for i, one in enumerate(MUTANTS)])
def test_every_mutant_is_killed(mutant: Callable[[Patch], None], check: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            check()
