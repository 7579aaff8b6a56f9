"""`report`: the whole page, from its parts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from batchdp.archive import write_atomically
from batchdp.errors import ReleaseError
from batchdp.ledger import Ledger
from batchdp.markup import part, rendered
from batchdp.privacy import UNITS
from batchdp.release import Release
from batchdp.release.claims import check_charged, check_release
from batchdp.release.consistent.records import Consistent
from batchdp.reports.answers import answers_section
from batchdp.reports.budget import budget_section
from batchdp.reports.certificate import certificate_section
from batchdp.reports.figures import decimals_for, number
from batchdp.reports.matrices import matrices_section
from batchdp.reports.methods import Compared, methods_section
from batchdp.reports.privacy import guarantee, privacy_section


def report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    consistent: Consistent | None = None,
    ledger: Ledger | None = None,
    methods: Iterable[Compared] = (),
    lower_bound: float | None = None,
    title: str | None = None,
) -> Path:
    """Write the release as one HTML page that needs nothing else: no network, no fonts, no other file.

    It shows what the release holds, all of which is public already; it costs no privacy.

    Args:
        release: from `answer` or `load_release`.
        path: of the page; a file of that name is replaced at once, never half.
        consistent: what `release.consistent()` gives, to be shown beside the answers.
        ledger: what the release was charged to; its history becomes the budget's timeline. A release that says
            anything else about itself than this ledger does is refused.
        methods: rows with a `name`, an `expected_squared_error` at ε = 1 and a `residual`, such as those of
            `batchdp.studies.comparison.compare(workload).methods`; they become the bar chart of methods.
        lower_bound: what no method can be below, drawn into that chart.
        title: of the page; says how many answers there are if left out.
    """
    if ledger is not None:
        ledger.verify()
    content = page(release, consistent=consistent, ledger=ledger, methods=methods, lower_bound=lower_bound, title=title)
    write_atomically(Path(path), content.encode(), ReleaseError)
    return Path(path)


def page(
    release: Release,
    *,
    consistent: Consistent | None = None,
    ledger: Ledger | None = None,
    methods: Iterable[Compared] = (),
    lower_bound: float | None = None,
    title: str | None = None,
) -> str:
    """The page that `report` writes, as text; the same release always gives the same page."""
    if not isinstance(release, Release):
        raise ReleaseError(
            f"release is a {type(release).__name__}; a report needs a Release, from answer or load_release; batches "
            "over many columns have none yet"
        )
    check_release(release)
    if consistent is not None and consistent.release is not release:
        raise ReleaseError("consistent is of another release; give release.consistent() of the one that is shown")
    if ledger is not None:
        check_charged(release, ledger)
    sections = {
        "answers": ("Answers", answers_section(release, consistent)),
        "privacy": ("Privacy", privacy_section(release)),
        "budget": ("Budget", budget_section(ledger, release.certificate.release_id) if ledger else None),
        "methods": ("Methods", methods_section(list(methods), lower_bound)),
        "strategy": ("Strategy", matrices_section(release)),
        "certificate": ("Certificate", certificate_section(release.certificate)),
    }
    script = part("reports/page.js")
    content = rendered(
        "reports/page.html",
        policy=_policy(script),
        title=title or _title(release),
        lead=guarantee(release),
        facts=_facts(release, ledger),
        sections={name: section for name, section in sections.items() if section[1] is not None},
        version=version("batchdp"),
        style=part("reports/page.css"),
        script=script,
    )
    return str(content)


def _policy(script: str) -> str:
    """What the browser is told to refuse: everything but the page's own style, pictures and this one script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _title(release: Release) -> str:
    m, table = len(release.names), release.certificate.table
    about = "" if table == "counts" else f" about {table}"  # "counts" is what `answer` says where nobody said more
    return f"{m:,} private answer{'s' if m > 1 else ''}{about}"


def _facts(release: Release, ledger: Ledger | None) -> list[tuple[str, str, str]]:
    """The few figures that a reader looks for first."""
    c = release.certificate
    half = np.array([one.high - one.value for one in release.answers])
    facts = [
        ("Queries", f"{len(release.names):,}", f"from {release.measure.shape[0]:,} noisy measurements"),
        ("Privacy budget", c.strength, "for the whole batch"),
        ("Typical margin", f"± {number(float(np.median(half)), decimals_for(half))}", _percent(release.confidence)),
    ]
    if ledger is not None:
        letter = UNITS[ledger.unit].letter
        facts.append(("Budget left", f"{letter} = {ledger.remaining:g}", f"of {ledger.total:g} in the ledger"))
    return facts


def _percent(confidence: float) -> str:
    return f"half of a {100 * confidence:g} % interval"
