"""What is counted: the rules by which rows are left out and values count as others, which no interval covers."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from batchdp.markup import render


def counted_section(sentences: Sequence[str]) -> Markup | None:
    """The rules, a point each; None where there are none."""
    return render("reports/counted.html", sentences=sentences) if sentences else None
