"""Every text of a dossier as a function of the release, the ledger at one moment, the answers of people and versions.

`dossier` writes these files; `verify` makes them again and compares. So nothing else may go into them: no clock, no
path, no order of a set.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from batchdp.archive import open_regular
from batchdp.release.exports import no_formula
from batchdp.reports.dossier.about import read_about
from batchdp.reports.dossier.document import as_markdown, as_page, as_yaml
from batchdp.reports.dossier.facts import Facts
from batchdp.reports.dossier.note import COMPOSITION, COVARIANCE, checklist, note
from batchdp.reports.dossier.record import datapackage, record

RELEASE, ABOUT, EVIDENCE, SUMS = "answers.release", "ABOUT.toml", "evidence.json", "SHA256SUMS"
RECORD, PACKAGE, TABLES = "record.yaml", "datapackage.json", "tables"
FORMAT = "batchdp-dossier-1"


def texts(
    facts: Facts,
    about_text: str,
    order: Sequence[str],
    tables: Mapping[str, str],
    release_digest: str,
    *,
    picture: str | None = None,
) -> dict[str, str]:
    """Every text file by its path, apart from the tables and the list of digests.

    Args:
        facts: of the release and the ledger.
        about_text: ABOUT.toml as it stands.
        order: the paths of the tables, in the order of the release.
        tables: SHA-256 of the tables' files by path.
        release_digest: SHA-256 of the release's file.
        picture: of the ledger's releases together, if it is not to be drawn.
    """
    about = read_about(about_text)
    made = {ABOUT: about_text, RECORD: as_yaml(record(facts, about))}
    pictures = {COMPOSITION: drawn(facts) if picture is None else picture} if facts.curves else {}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in pictures.items()}
    for name, document in (("note", note(facts, about)), ("checklist", checklist(facts, about))):
        made |= {f"{name}.md": as_markdown(document), f"{name}.html": as_page(document, encoded)}
    made |= pictures
    if facts.covariance is not None:
        made[COVARIANCE] = _covariances(facts)
    known = {**tables, **{name: sha256(made[name].encode()) for name in (COVARIANCE,) if name in made}}
    made[PACKAGE] = datapackage(facts, about, known, order)
    made[EVIDENCE] = json.dumps(evidence(facts, release_digest), indent=1, ensure_ascii=False) + "\n"
    return {name: text.encode(errors="replace").decode() for name, text in made.items()}


def evidence(facts: Facts, release_digest: str) -> dict[str, Any]:
    """Certificate, ledger, digests and versions."""
    c = facts.certificate
    return {
        "format": FORMAT,
        "release_sha256": release_digest,
        "certificate": c.as_dict(),
        **({"parts": [part.certificate.as_dict() for part in facts.release.parts]} if facts.release.parts else {}),
        "ledger_head": c.ledger_head,
        "ledger": None if facts.books is None else facts.books.as_dict(),
        "versions": dict(facts.versions),
    }


def drawn(facts: Facts) -> str:
    """What the ledger's spends amount to, as SVG: the same figures give the same picture."""
    import matplotlib

    from batchdp.reports.plots import plot_curves

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "batchdp", "svg.fonttype": "none"}):
        sheet = plot_curves(facts.curves)
        sheet.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().decode()


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sums(digests: Mapping[str, str]) -> str:
    """The list of digests, as `sha256sum --check` reads it."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests))


def _covariances(facts: Facts) -> str:
    """One row and one column for each answer, to twelve digits: the order of sums does not show."""
    assert facts.covariance is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("answer", *range(1, len(facts.covariance) + 1)))
    sigma = np.sqrt(np.diag(facts.covariance))  # counts stand beside sums of amounts, which are far larger
    C = np.where(np.abs(facts.covariance) <= 1e-12 * np.outer(sigma, sigma), 0.0, facts.covariance)
    for name, row in zip(facts.linear, C.tolist(), strict=True):
        writer.writerow((no_formula(name), *(f"{one:.9g}" for one in row)))
    return text.getvalue()
