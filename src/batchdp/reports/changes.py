"""The page of what changed between two releases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchdp.reports.page import join_page
from batchdp.reports.rendering import render, significant

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

FIGURES = ["old", "new", "difference", "low", "high", "ratio", "ratio_low", "ratio_high"]


def change_page(found: pd.DataFrame) -> str:
    """One self-contained page of a frame that `change` returned."""
    said = found.attrs
    figures = found[FIGURES].itertuples(index=False)
    texts = (["" if math.isnan(one) else significant(one) for one in row] for row in figures)
    rows = list(zip(found["name"], texts, strict=True))
    section = render(
        "reports/changes.html", old=said["old"], new=said["new"], confidence=f"{100 * said['confidence']:g}", rows=rows
    )
    return join_page(
        {"changes": ("Changes", section)},
        [],
        kicker="Two differentially private releases",
        title=f"{said['old']} to {said['new']}",
        lead="What changed, from two releases alone: no record was read for this page, and nothing was spent.",
        facts=[("Charged", said["charges"], "")],
        folder=None,
    )
