"""`dossier`: what a publication needs, in one folder that appears whole or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batchdp.archive import check_folder, write_folder
from batchdp.errors import DossierError
from batchdp.ledger import AnyLedger, Ledger, as_ledger
from batchdp.release import Release, export
from batchdp.release.verify import check_charged, check_release
from batchdp.reports.dossier.about import Books, about_text, read_about
from batchdp.reports.dossier.contents import EVIDENCE, RELEASE, SUMS, TABLES, digest_of, sha256, sums, texts
from batchdp.reports.dossier.facts import Facts, installed
from batchdp.reports.dossier.record import missing, record
from batchdp.text import Progress


@dataclass(frozen=True)
class Dossier:
    """What was written, and what is still missing."""

    folder: Path
    files: tuple[str, ...]
    """Their paths in the folder."""
    missing: tuple[str, ...]
    """Fields of the registry record that only people can fill, and have not."""
    digest: str
    """SHA-256 of the list of digests: it stands for the whole folder."""


def dossier(
    release: Release,
    folder: str | os.PathLike[str],
    *,
    ledger: AnyLedger | None = None,
    about: str | os.PathLike[str] | None = None,
    format: Literal["csv", "parquet"] = "csv",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Dossier:
    """Write what a publication needs: tables with metadata, a registry record, a checklist, a note and the evidence.

    All of it follows from the release, the ledger and what people say; it costs no privacy.

    Args:
        release: from `answer` or `load_release`.
        folder: made if it does not exist; refused if it holds anything.
        ledger: what the release was charged to, or the path of its file; refused if it says anything else about the
            release. The dossier names all of its spends.
        about: a TOML file with what only people know; if there is no such file, a template is written there.
        format: "csv" or "parquet", for the tables.
        overwrite: replace a folder that holds an earlier dossier.
        progress: called with (share done, what is being done).
    """
    target = check_folder(folder, "dossier", EVIDENCE, DossierError, overwrite=overwrite)
    if not isinstance(release, Release):
        raise DossierError(f"release is a {type(release).__name__}; a dossier needs a Release")
    if format not in ("csv", "parquet"):
        raise DossierError(f'format={format!r} must be "csv" or "parquet"')
    books = _books(release, None if ledger is None else as_ledger(ledger))
    said = about_text(None if about is None else Path(about))
    answers = read_about(said, source="ABOUT.toml" if about is None else str(about))
    facts = Facts(release, books, installed())
    with write_folder(target, DossierError, overwrite=overwrite) as beside:
        release.save(beside / RELEASE)
        order = [f"{TABLES}/{one.name}" for one in export(release, beside / TABLES, format=format, progress=progress)]
        digests = {
            path.relative_to(beside).as_posix(): digest_of(path) for path in beside.rglob("*") if not path.is_dir()
        }
        for name, text in texts(facts, said, order, digests, digests[RELEASE]).items():
            content = text.encode()
            (beside / name).write_bytes(content)
            digests[name] = sha256(content)
        listed = sums(digests).encode()
        (beside / SUMS).write_bytes(listed)  # last: what lacks it was never finished
    return Dossier(target, tuple(sorted(digests)), tuple(missing(record(facts, answers))), sha256(listed))


def _books(release: Release, ledger: Ledger | None) -> Books | None:
    """The ledger at this moment, once it is known to have charged this very release."""
    check_release(release)
    if ledger is None:
        return None
    check_against(release, ledger)
    return Books.of(ledger)


def check_against(release: Release, ledger: Ledger) -> None:
    """Refuse a release that this ledger did not charge, or says anything else about."""
    for part in release.charged:
        ledger.verify(part.certificate.ledger_head)
        if not check_charged(part, ledger):
            raise DossierError(
                f"release {part.certificate.release_id!r} was not charged to {ledger.path.name}; give the ledger that "
                "it was charged to"
            )
