"""How much noise other methods would have needed: a bar each, never without its residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from markupsafe import Markup

from batchdp.markup import render
from batchdp.reports.figures import percent, significant


class Compared(Protocol):
    """A method's figures; the rows of `batchdp.studies.comparison` are such."""

    @property
    def name(self) -> str:
        """Of the method."""

    @property
    def expected_squared_error(self) -> float:
        """The total over all queries at ε = 1."""

    @property
    def residual(self) -> float:
        """‖W − B L‖_F / ‖W‖_F: how far the method is from answering what was asked."""


def methods_section(methods: Sequence[Compared], lower_bound: float | None) -> Markup | None:
    """A bar chart, the best first; None if there is nothing to compare."""
    kept = sorted(
        (one for one in methods if math.isfinite(one.expected_squared_error) and math.isfinite(one.residual)),
        key=lambda one: one.expected_squared_error,
    )
    if not kept:
        return None
    least = kept[0].expected_squared_error
    longest = max(kept[-1].expected_squared_error, lower_bound or 0.0) or 1.0
    bound = lower_bound if lower_bound is not None and math.isfinite(lower_bound) else None
    return render(
        "reports/methods.html",
        bound=None if bound is None else significant(bound),
        line=None if bound is None else percent(bound / longest),
        rows=[_row(one, least, longest) for one in kept],
    )


def _row(one: Compared, least: float, longest: float) -> dict[str, str]:
    error = one.expected_squared_error
    return {
        "name": one.name,
        "error": significant(error),
        "ratio": f"{error / least:,.2f}" if least > 0 else "—",
        "residual": "0" if one.residual == 0 else f"{one.residual:.0e}",
        "width": percent(error / longest),
    }
