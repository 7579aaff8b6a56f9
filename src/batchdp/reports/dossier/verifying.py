"""`verify`: everything in a dossier that can be computed again, compared; and what could not be, named."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.archive import open_regular, parse_json
from batchdp.errors import BatchDPError, DossierError
from batchdp.ledger import AnyLedger, Ledger, as_ledger
from batchdp.release import Release, load_release
from batchdp.release.exports import INDEX, derived_in, index_entry, index_text, no_formula, tables_of
from batchdp.release.file import unknown_parts
from batchdp.release.verify import answers_digest_of, differences
from batchdp.reports.dossier.about import Books
from batchdp.reports.dossier.contents import (
    ABOUT,
    EVIDENCE,
    FORMAT,
    RELEASE,
    SUMS,
    TABLES,
    digest_of,
    evidence,
    sha256,
    texts,
)
from batchdp.reports.dossier.facts import Facts, installed
from batchdp.reports.dossier.note import COMPOSITION, COVARIANCE
from batchdp.reports.dossier.record import MEDIA
from batchdp.reports.dossier.writing import check_against

LINE = re.compile(r"([0-9a-f]{64})  ([^\n\r\0]{1,1000})")
ROUNDING = 1e-9
"""Of figures, relative to the larger of an answer and its standard error."""
LARGEST_EVIDENCE = 100_000_000
"""Bytes."""
NOT_CHECKED = "against a ledger"
PEOPLE = "what people declared in ABOUT.toml"
VERSIONS = "the versions in evidence.json, which nothing else knows"
DERIVED = "how derived answers follow from their parts, which only a ledger knows"
PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")


@dataclass(frozen=True)
class Verified:
    """What was found to be right, and what could not be looked at."""

    digest: str
    """SHA-256 of the list of digests: it stands for the whole folder."""
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]


def verify(folder: str | os.PathLike[str], *, ledger: AnyLedger | None = None) -> Verified:
    """Compute again whatever can be computed of a dossier; a DossierError names the first thing that is wrong.

    Args:
        folder: the folder that `dossier` wrote.
        ledger: what the release was charged to, or the path of its file. Without it, somebody may have made up the
            whole folder, with a release that is consistent in itself.
    """
    books = None if ledger is None else as_ledger(ledger)
    place = _folder(folder)
    listed = read_sums(place / SUMS)
    _check_digests(place, listed)
    release = _release(place)
    facts = _facts(place, release, listed)
    measured = facts.certificate.measurements
    checked = [
        f"{len(listed):,} files: none added, missing or changed",
        f"answers and standard errors of {facts.answers:,} answers from {measured:,} measurements",
        "scale of the noise, loss and budget agree, and no measured cell or table changes by more than is said",
    ]
    order = _check_tables(place, release)
    checked.append(f"{len(order):,} tables against the release")
    unchecked = _check_texts(place, facts, order, listed, checked)
    if books is None:
        unchecked.append(NOT_CHECKED)
        if release.asked:
            unchecked.append(DERIVED)
    else:
        checked.append(_check_ledger(facts, books))
        if facts.books is None:
            unchecked.append("the releases of the ledger together: the dossier was written without one")
    return Verified(sha256((place / SUMS).read_bytes()), tuple(checked), (*unchecked, VERSIONS, PEOPLE))


def _folder(folder: str | os.PathLike[str]) -> Path:
    try:
        place = Path(folder)
        if not place.is_dir():
            raise DossierError(f"{place} is not a folder; give one that batchdp dossier wrote")
        return place
    except (TypeError, ValueError) as error:
        raise DossierError(f"folder={folder!r} is not the name of a folder") from error


def _check_digests(place: Path, listed: Mapping[str, str]) -> None:
    there = set(files_in(place)) - {SUMS}
    for path in sorted(there - set(listed)):
        raise DossierError(f"{path} is not in {SUMS}: it was added")
    for path in sorted(set(listed) - there):
        raise DossierError(f"{path} is in {SUMS} and not in the folder")
    for path in sorted(there):
        try:
            found = digest_of(place / path)
        except OSError as error:
            raise DossierError(f"cannot read {path}: {error.strerror or error}") from error
        if found != listed[path]:
            raise DossierError(f"{path} was changed after the dossier was written: its digest differs")


def _release(place: Path) -> Release:
    try:
        loaded = load_release(place / RELEASE)
        extra = unknown_parts(place / RELEASE, loaded)
    except BatchDPError as error:
        raise DossierError(f"{RELEASE}: {error}") from error
    if extra:
        raise DossierError(f"{RELEASE} holds {extra[0]!r}, which no release has, or has in another form: it was edited")
    return loaded


def _facts(place: Path, release: Release, listed: Mapping[str, str]) -> Facts:
    """The release with the ledger and versions that the evidence names, once the evidence follows from them."""
    try:
        content: Any = parse_json(read_text(place / EVIDENCE, LARGEST_EVIDENCE))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DossierError(f"{EVIDENCE} is not the evidence of a dossier that this version knows")
        versions = content["versions"]
        if not isinstance(versions, dict) or set(versions) != set(installed()):
            raise DossierError(f"{EVIDENCE}: versions of other programs than a dossier is written with")
        if not all(isinstance(one, str) and re.fullmatch(r"[\w.+!-]{1,50}", one) for one in versions.values()):
            raise DossierError(f"{EVIDENCE}: something that is not a version")
        books = None if content["ledger"] is None else Books.read(content["ledger"])
    except (ValueError, KeyError, RecursionError) as error:
        raise DossierError(f"{EVIDENCE} is not the evidence of a dossier ({type(error).__name__})") from error
    facts = Facts(release, books, versions)
    if content != json.loads(json.dumps(evidence(facts, listed[RELEASE]))):
        raise DossierError(f"{EVIDENCE} does not follow from {RELEASE}: one of them was edited")
    if books is not None:
        for part in release.charged:
            _check_entry(part, books)
    return facts


def _check_entry(release: Release, books: Books) -> None:
    """The spend of the release itself, as far as the release knows it."""
    entry = books.entry(release.certificate.release_id)
    for name, here, there in differences(release.certificate, entry, books.unit):
        raise DossierError(f"{EVIDENCE} has {name}={there!r} where {RELEASE} has {here!r}: one of them was edited")
    if entry.answers_digest != answers_digest_of(release):
        raise DossierError(f"{EVIDENCE} is about other answers than {RELEASE}: one of them was edited")
    if entry.state != "released":
        raise DossierError(f"{EVIDENCE} says that {release.certificate.release_id!r} has no answers: it was edited")


def _check_texts(
    place: Path, facts: Facts, order: list[str], listed: Mapping[str, str], checked: list[str]
) -> list[str]:
    """Every text made again; what another version wrote, or drew, cannot be."""
    mine = installed()
    unchecked = []
    try:
        # Another matplotlib draws another picture: the page around it is compared with the one that is there.
        redrawn = facts.books is None or facts.versions["matplotlib"] == mine["matplotlib"]
        picture = None if redrawn or COMPOSITION not in listed else read_text(place / COMPOSITION, LARGEST_EVIDENCE)
        made = texts(facts, read_text(place / ABOUT, LARGEST_EVIDENCE), order, listed, listed[RELEASE], picture=picture)
    except DossierError as error:
        raise DossierError(f"{ABOUT}: {error}") from error
    for path in sorted(set(listed) - {*made, *order, RELEASE, f"{TABLES}/{INDEX}"}):
        raise DossierError(f"{path} is not part of a dossier")
    wrote = facts.versions["batchdp"]
    if wrote != mine["batchdp"]:
        words = sorted(set(made) - {ABOUT, EVIDENCE, COVARIANCE})
        unchecked.append(f"{', '.join(words)}: the words of batchdp {wrote}, which this version does not write")
        made = {name: text for name, text in made.items() if name == COVARIANCE}
    elif picture is not None:
        made.pop(COMPOSITION)
        unchecked.append(f"{COMPOSITION}, which another matplotlib drew")
    for name, text in made.items():
        if listed.get(name) != sha256(text.encode()):
            raise DossierError(f"{name} does not follow from {RELEASE}, {EVIDENCE} and {ABOUT}: it was edited")
    checked.append(f"{len(made):,} texts made again: record, checklist, note, metadata, evidence")
    return unchecked


def _check_tables(place: Path, release: Release) -> list[str]:
    """The tables' paths in the order of the release, once each holds what the release says."""
    try:
        said = read_text(place / TABLES / INDEX, LARGEST_EVIDENCE)
        index: Any = json.loads(said)
        listed = index["tables"]
        format = str(listed[0]["file"]).rpartition(".")[2]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DossierError(f"{TABLES}/{INDEX} is not a list of tables ({type(error).__name__})") from error
    count, order = len(release.tables), []
    if index["release_id"] != release.certificate.release_id or len(listed) != count or format not in MEDIA:
        raise DossierError(f"{TABLES}/{INDEX} is about another release")
    for t, (entry, (name, columns)) in enumerate(zip(listed, tables_of(release), strict=True)):
        expected = index_entry(t, count, name, columns, format, derived_in(release, t))
        path = f"{TABLES}/{expected['file']}"
        if entry != expected:
            raise DossierError(f"{TABLES}/{INDEX} does not name {path} as the table that it is")
        if not _same(_columns(place / path, release.notes), columns, text=format == "csv"):
            raise DossierError(f"{path} does not hold the answers of {RELEASE}: it was edited")
        order.append(path)
    if said != index_text(release, listed, release.notes):
        raise DossierError(f"{TABLES}/{INDEX} says more than which tables there are: it was edited")
    return order


def _columns(path: Path, notes: Sequence[str]) -> dict[str, list[Any]]:
    """A table's columns; a Parquet file may say besides what an export says, and nothing else."""
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                head, *rows = csv.reader(file, strict=True)
            if len(set(head)) < len(head) or any(len(row) != len(head) for row in rows):
                raise ValueError("columns that are there twice, or fields without a column")
            return {name: [row[i] for row in rows] for i, name in enumerate(head)}
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        table = pq.read_table(path)
        said = {b"notes": " ".join(notes).encode()} if notes else {}
        held = pq.read_metadata(path).metadata
        if {key: held[key] for key in held if key != b"ARROW:schema"} != said or (table.schema.metadata or {}) != said:
            raise ValueError("metadata that is not an export's")
        return {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:  # whatever a damaged table makes csv or pyarrow say
        raise DossierError(f"{path} cannot be read as a table ({type(error).__name__})") from error


def _same(found: dict[str, list[Any]], columns: Mapping[str, NDArray[Any]], *, text: bool) -> bool:
    expected = {no_formula(name) if text else name: column for name, column in columns.items()}
    if list(found) != list(expected):
        return False
    # A derived answer may have an interval far wider than itself, and no standard error.
    size = np.fmax(np.fmax(np.abs(columns["value"]), columns["standard_error"]), columns["high"] - columns["low"])
    for number, (name, column) in enumerate(expected.items()):
        if number < len(expected) - 4:
            groups = [None if one is None else str(one) for one in column.tolist()]
            words = [no_formula(one) if text else str(one) for one in groups]
            if [str(one) for one in found[name]] != words:
                return False
            continue
        try:
            if text and not all(one == "" or PLAIN_NUMBER.fullmatch(one) for one in found[name]):
                return False
            figures = np.array([np.nan if text and one == "" else float(one) for one in found[name]])
        except (ValueError, TypeError):
            return False
        if figures.shape != column.shape:
            return False
        alike = (np.isnan(figures) & np.isnan(column)) | (np.abs(figures - column) <= ROUNDING * size)
        if not np.all(alike):
            return False
    return True


def _check_ledger(facts: Facts, ledger: Ledger) -> str:
    """That the ledger charged this very release, and stood as the dossier says when its head was the dossier's."""
    name = ledger.path.name
    try:
        check_against(facts.release, ledger)
        if facts.books is None:
            return f"charged to {name}, with these answers"
        ledger.verify(facts.books.head)
        then = Books.of(ledger, facts.books.head)
    except DossierError:
        raise
    except BatchDPError as error:
        raise DossierError(f"the ledger {name} and the dossier disagree: {error}") from error
    if facts.books != then:
        raise DossierError(
            f"the spends in {EVIDENCE} are not those that {name} had at head {then.head[:12]}…; one of them was edited"
        )
    later = len(ledger.history()) - len(then.entries)
    return f"charged to {name}, with these answers; spends until then: {len(then.entries):,}, later: {later:,}"


def files_in(folder: Path) -> Iterator[str]:
    """Every file by its path in the folder; links, devices and empty folders are refused."""
    for place, folders, names in os.walk(folder, followlinks=False, onerror=_refused):
        if not folders and not names:
            raise DossierError(f"{place} is an empty folder, which no dossier holds")
        for name in (*folders, *names):
            path = Path(place) / name
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise DossierError(f"{path} is a link or a device, which no dossier holds")
            if stat.S_ISREG(mode):
                yield path.relative_to(folder).as_posix()


def read_sums(path: Path) -> dict[str, str]:
    """The list of digests, by path."""
    found: dict[str, str] = {}
    for line in read_text(path, LARGEST_EVIDENCE).splitlines():
        fits = LINE.fullmatch(line)
        if fits is None or fits[2] in found:
            raise DossierError(f"{path} is not a list of digests, or names a file twice")
        found[fits[2]] = fits[1]
    return found


def read_text(path: Path, most: int) -> str:
    """A text of a limited length."""
    try:
        if path.is_symlink() or not path.is_file():
            raise DossierError(f"{path} is missing: the folder is not a dossier, or was never finished")
        with open_regular(path) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise DossierError(f"{path} is larger than {most:,} bytes, which no dossier needs")
        return content.decode()
    except OSError as error:
        raise DossierError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DossierError(f"{path} is not a text in UTF-8; it was edited") from error


def _refused(error: OSError) -> None:
    raise DossierError(f"cannot read {error.filename}: {error.strerror or error}") from error
