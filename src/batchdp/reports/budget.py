"""The budget's timeline: every spend begins where the one before ended."""

from __future__ import annotations

from markupsafe import Markup

from batchdp.ledger import Entry, Ledger
from batchdp.markup import render
from batchdp.privacy import UNITS
from batchdp.reports.figures import percent

MOST_ROWS = 100


def budget_section(ledger: Ledger, release_id: str) -> Markup:
    """What was spent on what, and what is left."""
    spends, total = ledger.history(), ledger.total
    skipped = max(0, len(spends) - MOST_ROWS)
    spent = sum(one.charged for one in spends[:skipped])
    earlier = {"count": skipped, "charged": spent, "bar": _bar(0, spent, total, "other")} if skipped else None
    rows = []
    for one in spends[skipped:]:
        rows.append(_spend(one, spent, total, this=one.release_id == release_id))
        spent += one.charged
    return render(
        "reports/budget.html",
        unit=UNITS[ledger.unit].letter,
        spent=ledger.spent,
        total=total,
        remaining=ledger.remaining,
        spends=len(spends),
        known=any(one.release_id == release_id for one in spends),
        earlier=earlier,
        rows=rows,
        left=_bar(spent, ledger.remaining, total, "left"),
    )


def _spend(one: Entry, before: float, total: float, *, this: bool) -> dict[str, object]:
    interrupted = one.state == "reserved"
    kind = "stopped" if interrupted else "this" if this else "other"
    return {
        "this": this,
        "interrupted": interrupted,
        "day": one.time[:10],
        "minute": one.time[11:16],
        "table": one.table,
        "release": one.release_id if len(one.release_id) <= 24 else one.release_id[:12] + "…",
        "charged": one.charged,
        "bar": _bar(before, one.charged, total, kind),
    }


def _bar(start: float, length: float, total: float, kind: str) -> dict[str, str]:
    return {"x": percent(start / total), "width": percent(length / total), "kind": kind}
