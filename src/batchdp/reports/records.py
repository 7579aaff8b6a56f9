"""A page of synthetic records: what they are, how close they come to every table, and what is not preserved."""

from __future__ import annotations

import os
from pathlib import Path

from batchdp.archive import write_atomically
from batchdp.errors import ReleaseError
from batchdp.release.records.records import Records
from batchdp.reports.answers import box_for
from batchdp.reports.page import join_page
from batchdp.reports.rendering import render, significant
from batchdp.reports.sections import counted_section

MOST_SHOWN = 5000
"""Tables, and pairs of columns."""


def report_records(records: Records, path: str | os.PathLike[str]) -> Path:
    """Write as one HTML page how close synthetic records come to their release; the page holds no record.

    Args:
        records: from `draw_records`.
        path: where to write the page; a file of that name is replaced at once, never half.
    """
    if not isinstance(records, Records):
        raise ReleaseError(f"records is a {type(records).__name__}; give what draw_records returned")
    content = render(
        "reports/records.html",
        rows=records.distances[:MOST_SHOWN],
        more=max(0, len(records.distances) - MOST_SHOWN),
        unasked=records.unasked[:MOST_SHOWN],
        unasked_more=max(0, len(records.unasked) - MOST_SHOWN),
        box=box_for(records.distances),
    )
    certificate = records.release.certificate
    page = join_page(
        {
            "tables": ("Tables", content),
            "notes": ("What they are", counted_section(records.notes)),
            "counted": ("Counted", counted_section(records.release.notes)),
        },
        [],
        kicker="Synthetic records: nobody's, and not data",
        title=f"{len(records):,} synthetic records about {certificate.table}",
        lead=records.summary,
        facts=[
            ("Records", f"{len(records):,}", f"of {len(records.columns):,} columns, seed {records.seed}"),
            ("Privacy budget", certificate.strength, f"of release {certificate.release_id}; the records cost nothing"),
            ("Off the denoised", significant(max(one.denoised for one in records.distances)), "of all, at most"),
        ],
        folder=None,
    )
    write_atomically(Path(path), page.encode(), ReleaseError)
    return Path(path)
