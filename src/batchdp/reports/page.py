"""`report`: the whole page, from its parts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from batchdp.archive import write_atomically
from batchdp.errors import ReleaseError
from batchdp.ledger import AnyLedger, Ledger, as_ledger
from batchdp.release import Beside, Release
from batchdp.release.verify import check_charged, check_release
from batchdp.reports.answers import answers_section, derived_section, shown_section
from batchdp.reports.matrices import counts_among, matrices_section
from batchdp.reports.rendering import decimals_for, number, render, render_part
from batchdp.reports.sections import (
    Compared,
    budget_left,
    budget_section,
    certificate_section,
    counted_section,
    guarantee,
    methods_section,
    privacy_section,
)
from batchdp.reports.tables import Tables, files_beside, fits_inside, identity, tables_of_page
from batchdp.text import Progress


def report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    beside: Beside | None = None,
    ledger: AnyLedger | None = None,
    methods: Iterable[Compared] = (),
    lower_bound: float | None = None,
    title: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the release as an HTML page that needs no network and no fonts: one file, up to some thousand answers.

    The tables of a larger release are in a folder beside the page, `page_files` for `page.html`, and are read when
    somebody opens one. The page shows what the release holds, all of which is public already; it costs no privacy.

    Args:
        release: from `answer` or `load_release`.
        path: where to write the page. A file of that name is replaced at once, never half; so is the folder.
        beside: what `release.denoised()` or `release.consistent()` returns, to be shown beside the answers.
        ledger: what the release was charged to, or the path of its file; its history becomes the budget's timeline. If
            the ledger and the release contradict each other, nothing is written.
        methods: rows with a `name`, an `expected_squared_error` at ε = 1 and a `residual`, such as
            `compare(plan).methods`; they become a bar chart of methods.
        lower_bound: what no method can be below, drawn into that chart.
        title: the title of the page; how many answers there are if left out.
        progress: called with (share done, what is being done).
    """
    target = Path(path)
    books = None if ledger is None else as_ledger(ledger)
    if books is not None:
        books.verify()
    _check(release, books, beside)
    if fits_inside(release):
        tables = tables_of_page(release, beside)
    else:
        folder = target.with_name(f"{target.stem}_files")
        with files_beside(release, folder, identity(release)) as put:
            tables = tables_of_page(release, beside, folder=folder.name, put=put, progress=progress)
    content = _page(release, tables, beside, ledger=books, methods=methods, lower_bound=lower_bound, title=title)
    write_atomically(target, content.encode(), ReleaseError)
    return target


def page(
    release: Release,
    *,
    beside: Beside | None = None,
    ledger: AnyLedger | None = None,
    methods: Iterable[Compared] = (),
    lower_bound: float | None = None,
    title: str | None = None,
) -> str:
    """The page that `report` writes, as text; the same release always gives the same page."""
    books = None if ledger is None else as_ledger(ledger)
    _check(release, books, beside)
    if not fits_inside(release):
        raise ReleaseError("release has more answers than one page holds; report(release, path) writes files beside it")
    tables = tables_of_page(release, beside)
    return _page(release, tables, beside, ledger=books, methods=methods, lower_bound=lower_bound, title=title)


def _check(release: Any, ledger: Ledger | None, beside: Any) -> None:
    if not isinstance(release, Release):
        raise ReleaseError(f"release is a {type(release).__name__}; a report needs one from answer or load_release")
    check_release(release)
    if ledger is not None:
        check_charged(release, ledger)
    if beside is not None and getattr(beside, "release", None) is not release:
        raise ReleaseError("beside is of another release; give what denoised() or consistent() of this release returns")


def _page(
    release: Release,
    tables: Tables,
    beside: Beside | None,
    *,
    ledger: Ledger | None,
    methods: Iterable[Compared],
    lower_bound: float | None,
    title: str | None,
) -> str:
    sections = {
        "shown": ("Shown", shown_section(release)),
        "answers": ("Answers", answers_section(release, beside)),
        "tables": ("Tables", tables.section),
        "derived": ("Derived", derived_section(release, beside)),
        "counted": ("Counted", counted_section(release.notes)),
        "privacy": ("Privacy", privacy_section(release)),
        "budget": ("Budget", budget_section(ledger, release.certificate.release_id) if ledger else None),
        "methods": ("Methods", methods_section(list(methods), lower_bound)),
        "strategy": (
            "Strategy",
            matrices_section(release.reader, derived=bool(release.asked), blocks=release.kinds is not None),
        ),
        "certificate": ("Certificate", certificate_section(release.certificate)),
    }
    scripts = [render_part("reports/page.js")] + [render_part("reports/tables.js")] * (tables.count > 0)
    return join_page(
        sections,
        scripts,
        title=title or _title(release),
        lead=guarantee(release),
        facts=_facts(release, tables, ledger),
        folder=tables.folder,
    )


def join_page(sections: Mapping[str, tuple[str, object]], scripts: Sequence[str], **head: object) -> str:
    """A page of those sections that there are, with what stands above them."""
    content = render(
        "reports/page.html",
        policy=_policy(scripts, beside=bool(head["folder"])),
        sections={name: section for name, section in sections.items() if section[1] is not None},
        version=version("batchdp"),
        style=render_part("reports/page.css"),
        scripts=scripts,
        **head,
    )
    return str(content)


def _policy(scripts: Iterable[str], *, beside: bool) -> str:
    """What the browser is told to refuse: all but the page's own style, pictures and scripts, and what these load."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = [f"'sha256-{digest}'" for digest in digests] + ["'strict-dynamic'"] * beside
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {' '.join(allowed)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _title(release: Release) -> str:
    m, table = len(release.answers), release.certificate.table
    about = "" if table == "counts" else f" about {table}"  # "counts" is what `answer` says where nobody said more
    return f"{m:,} private answer{'s' if m > 1 else ''}{about}"


def _facts(release: Release, tables: Tables, ledger: Ledger | None) -> list[tuple[str, str, str]]:
    """The few figures that a reader looks for first."""
    c = release.certificate
    facts = [
        ("Answers", f"{len(release.answers):,}", f"from {c.measurements:,} noisy measurements"),
        ("Privacy budget", c.strength, "for the whole batch"),
        *_typical(release, tables),
    ]
    if len(release.tables) > 1:
        facts.insert(1, ("Tables", f"{len(release.tables):,}", "one per statement or set of columns"))
    return facts + budget_left(ledger)


def _typical(release: Release, tables: Tables) -> list[tuple[str, str, str]]:
    """The margin of a typical count: answers in other units would make a median that means nothing."""
    counts, lazy = counts_among(release), release.layout.is_lazy
    if not counts.any():
        return []
    half = np.array([tables.half_width]) if lazy else release.half_widths[~release.is_derived][counts]
    of = "" if counts.all() and not release.certificate.derived else "of the counts; "
    shown = f"± {number(float(np.median(half)), decimals_for(half))}"
    return [("Typical margin", shown, f"{of}half of a {100 * release.confidence:g} % interval")]
