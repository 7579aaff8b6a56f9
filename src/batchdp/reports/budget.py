"""The budget's timeline: every spend begins where the one before ended."""

from __future__ import annotations

from batchdp.ledger import Entry, Ledger
from batchdp.markup import escaped, isolated
from batchdp.privacy import UNITS
from batchdp.reports.figures import percent

MOST_ROWS = 100


def budget_section(ledger: Ledger, release_id: str) -> str:
    """What was spent on what, and what is left."""
    spends, total = ledger.history(), ledger.total
    letter = UNITS[ledger.unit].letter
    skipped = max(0, len(spends) - MOST_ROWS)
    spent = sum(one.charged for one in spends[:skipped])
    rows = [_earlier(skipped, spent, total)] if skipped else []
    for one in spends[skipped:]:
        rows.append(_spend(one, spent, total, this=one.release_id == release_id))
        spent += one.charged
    rows.append(_left(spent, ledger.remaining, total))
    known = any(one.release_id == release_id for one in spends)
    note = "" if known else "<p><strong>This release was not charged to this ledger.</strong></p>"
    return f"""
<h2>Budget</h2>
<p>{letter} = {ledger.spent:g} of {total:g} is spent, in {len(spends):,} spend{"s" if len(spends) != 1 else ""},
{ledger.remaining:g} is left. What was spent cannot be had back.</p>{note}
<div class="box" tabindex="0" role="region" aria-label="Timeline of the budget">
<table class="timeline">
<caption>Every spend, oldest first; each bar begins where the one before ended</caption>
<thead><tr><th scope="col">When (UTC)</th><th scope="col" class="text">Table and release</th>
<th scope="col">{letter} charged</th><th scope="col" class="wide">0 to {total:g}</th></tr></thead>
<tbody>{"".join(rows)}</tbody>
</table>
</div>"""


def _spend(one: Entry, before: float, total: float, *, this: bool) -> str:
    tag = '<span class="tag">this release</span>' if this else ""
    if one.state == "reserved":
        tag += '<span class="tag warn">interrupted, no answers</span>'
    kind = "stopped" if one.state == "reserved" else "this" if this else "other"
    return (
        f"<tr{' class=this' if this else ''}><td>{escaped(one.time[:10])}"
        f'<span class="extra"> {escaped(one.time[11:16])}</span></td>'
        f'<td class="text">{isolated(one.table)} <code>{isolated(_brief(one.release_id))}</code> {tag}</td>'
        f"<td>{one.charged:g}</td><td>{_bar(before, one.charged, total, kind)}</td></tr>"
    )


def _earlier(count: int, charged: float, total: float) -> str:
    bar = _bar(0, charged, total, "other")
    return f'<tr><td colspan="2">{count:,} earlier spends</td><td>{charged:g}</td><td>{bar}</td></tr>'


def _left(spent: float, left: float, total: float) -> str:
    return f'<tr><td colspan="2">Left</td><td>{left:g}</td><td>{_bar(spent, left, total, "left")}</td></tr>'


def _bar(start: float, length: float, total: float, kind: str) -> str:
    x, width = percent(start / total), percent(length / total)
    return (
        f'<svg aria-hidden="true"><rect class="track" x="0" y="30%" width="100%" height="40%" rx="2"/>'
        f'<rect class="{kind}" x="{x}" y="15%" width="{width}" height="70%" rx="2"/></svg>'
    )


def _brief(release_id: str) -> str:
    return release_id if len(release_id) <= 24 else release_id[:12] + "…"
