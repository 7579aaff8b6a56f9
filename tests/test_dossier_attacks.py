"""What a forger could do to a dossier, with every digest computed anew, and what tells it."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import batchdp
from batchdp import (
    BudgetError,
    DossierError,
    Ledger,
    MatrixWorkload,
    Release,
    ReleaseError,
    answer,
    archive,
    dossier,
    load_release,
    report,
    verify,
)
from batchdp.ledger import Reservation
from batchdp.mechanism.prepare import prepare
from batchdp.release.exports import tables_of
from batchdp.release.file import Stored, decoded, encoded
from batchdp.release.verify import answers_digest, check_charged, check_release
from batchdp.reports.dossier.contents import SUMS, sums
from batchdp.reports.dossier.contents import drawn as draw
from batchdp.reports.dossier.facts import Facts
from batchdp.reports.rendering import significant
from mechanisms import reread as exchange

NAMES = ("young", "old", "all", "young again")
W = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
STRATEGY = batchdp.STRATEGIES["noise-on-results"](MatrixWorkload(W, names=NAMES))
"""Four measurements of two cells: what is measured twice leaves a forger a choice of how to read it."""


DRAWN: dict[str, str] = {}


@dataclass(frozen=True)
class Case:
    ledger: Ledger
    release: Release
    folder: Path
    """Of the dossier."""


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures give the same picture, which takes longer than all else."""

    def drawn(facts: Facts) -> str:
        key = repr(facts.curves)
        if key not in DRAWN:
            DRAWN[key] = draw(facts)
        return DRAWN[key]

    monkeypatch.setattr("batchdp.reports.dossier.contents.drawn", drawn)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A release between two others, and its dossier."""
    place = tmp_path_factory.mktemp("attacks")
    ledger = Ledger.create(place / "budget.db", epsilon=3.0)
    releases = [
        answer(STRATEGY, [10, 20], epsilon=epsilon, ledger=ledger, release_id=name)
        for name, epsilon in (("first", 0.5), ("second", 0.25), ("third", 0.125))
    ]
    dossier(releases[1], place / "out", ledger=ledger)
    return Case(ledger, releases[1], place / "out")


@pytest.fixture
def case(made: Case, tmp_path: Path) -> Case:
    """Copies that may be edited."""
    shutil.copy(made.ledger.path, tmp_path / "budget.db")
    return Case(
        Ledger.open(tmp_path / "budget.db"), made.release, Path(shutil.copytree(made.folder, tmp_path / "copy"))
    )


def resummed(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != SUMS]
    (folder / SUMS).write_text(
        sums({p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
    )


def plain_b(release: Release) -> Any:
    reader: Any = release.reader
    return sparse.csr_array(reader.reconstruct).toarray()


def moved(release: Release) -> Release:
    (group,) = release.certificate.groups
    return replace(release, noisy=release.noisy + 2**group.bits, given=None)


def renamed(release: Release) -> Any:
    reader: Any = release.reader
    return exchange(release, names=("old", "young", *reader.names[2:]))


def exchanged(release: Release) -> Any:
    """Other queries under the same names, each answered as it should be."""
    rows = [1, 0, 2, 3]
    reader: Any = release.reader
    return exchange(release, {"reconstruct": plain_b(release)[rows]}, queries=reader.workload[rows])


def reread(release: Release) -> Any:
    """The same measurements, read as a forger likes."""
    reader: Any = release.reader
    B, L = plain_b(release), reader.measure.toarray()
    free = np.eye(4) - L @ np.linalg.pinv(L)  # what sees no record, noise alone
    B[0] += 5 * free[0]
    return exchange(release, {"reconstruct": B})


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (renamed, "its queries, or what they are called"),
        (exchanged, "its queries, or what they are called"),
        (reread, "its standard errors"),
        (moved, "its measurements"),
    ],
)
def test_a_forged_release_that_hangs_together_is_told_by_the_ledger(
    forge: Any, said: str, case: Case, tmp_path: Path
) -> None:
    fake = forge(case.release)
    check_release(fake)
    dossier(fake, tmp_path / "fake")
    verify(tmp_path / "fake")  # nothing but the ledger knows
    with pytest.raises(DossierError, match=said):
        verify(tmp_path / "fake", ledger=case.ledger)
    for use in (
        lambda: report(fake, tmp_path / "page.html", ledger=case.ledger),
        lambda: dossier(fake, tmp_path / "no", ledger=case.ledger),
    ):
        with pytest.raises(ReleaseError, match=said):
            use()
    assert not (tmp_path / "page.html").exists()


def test_the_same_id_under_other_names_is_refused(case: Case) -> None:
    other = batchdp.STRATEGIES["noise-on-results"](MatrixWorkload(W, names=("a", "b", "c", "d")))
    with pytest.raises(BudgetError, match=r"plan_digest|answers_digest"):
        answer(other, [10, 20], epsilon=0.25, ledger=case.ledger, release_id="second")


def test_the_digest_is_of_numbers_and_names_not_of_how_they_are_kept(case: Case, tmp_path: Path) -> None:
    release = case.release
    release.save(tmp_path / "r")
    again = load_release(tmp_path / "r")
    told, whose = release.said.told(), release.certificate.neighbours
    digests = {answers_digest(one.reader, one.said.told(), whose) for one in (release, again)}
    assert digests == {case.ledger.history()[1].answers_digest}
    assert answers_digest(release.reader, {**told, "asked": ["x"]}, whose) not in digests
    reader: Any = release.reader
    assert answers_digest(replace(reader, queries=2 * reader.queries), told, whose) not in digests


def test_an_entry_that_does_not_say_what_the_answers_are_is_refused(case: Case, tmp_path: Path) -> None:
    """As somebody would make it who has exchanged names, and left out the digest that tells."""
    ledger = Ledger.create(tmp_path / "old.db", epsilon=1.0)
    c = case.release.certificate
    reserved = ledger.reserve(
        "old", epsilon=0.25, plan_digest=c.plan_digest, table=c.table, privacy_unit=c.privacy_unit
    )
    assert isinstance(reserved, Reservation)
    own = replace(c, release_id="old", ledger_head=reserved.head)
    figures = case.release.values, case.release.standard_errors
    ledger.complete(reserved, encoded(Stored(own, case.release.noisy, *figures)))
    release = replace(case.release, certificate=own)
    with pytest.raises(ReleaseError, match="its queries, or what they are called, are not those"):
        check_charged(release, ledger)
    with pytest.raises(ReleaseError, match="its queries"):
        dossier(release, tmp_path / "out", ledger=ledger)


def shaken(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """B as another processor would fit it."""

    def elsewhere(*given: Any, **more: Any) -> Any:
        made = prepare(*given, **more)
        measured: Any = made.measurement
        B = sparse.csr_array(measured.reconstruct).toarray() * (1 + by)
        return replace(made, measurement=replace(measured, reconstruct=B))

    monkeypatch.setattr("batchdp.release.answering.prepare", elsewhere)


def test_a_repeat_elsewhere_gives_the_answers_that_were_given_to_the_last_bit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaken(monkeypatch, 1e-13)
    again = answer(STRATEGY, [0, 0], epsilon=0.25, ledger=case.ledger, release_id="second")
    assert not np.array_equal(plain_b(again), plain_b(case.release))
    assert again.values.tolist() == case.release.values.tolist()
    assert case.ledger.spent == 0.875
    dossier(again, tmp_path / "out", ledger=case.ledger)
    verify(tmp_path / "out", ledger=case.ledger)


def test_a_repeat_that_would_read_its_measurements_otherwise_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaken(monkeypatch, 1e-5)
    with pytest.raises(ReleaseError):
        answer(STRATEGY, [0, 0], epsilon=0.25, ledger=case.ledger, release_id="second")


def test_what_the_ledger_stores_is_read_as_it_was_written(case: Case) -> None:
    stored = case.ledger.stored("second")
    assert stored is not None
    kept = decoded(stored.output, "second")
    assert kept.values is not None
    assert kept.standard_errors is not None
    assert kept.values.tolist() == case.release.values.tolist()
    assert kept.standard_errors.tolist() == case.release.standard_errors.tolist()
    for wrong in (
        stored.output[:-8],
        stored.output + bytes(8),
        stored.output.replace(b'"answers": 4', b'"answers": -4'),
    ):
        with pytest.raises(batchdp.LedgerError, match="not a release"):
            decoded(wrong, "second")


# The ledger that the evidence names


def test_an_older_copy_of_the_ledger_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    release = answer(STRATEGY, [10, 20], epsilon=0.5, ledger=ledger)
    shutil.copy(ledger.path, tmp_path / "older.db")
    answer(STRATEGY, [10, 20], epsilon=0.5, ledger=ledger)
    dossier(release, tmp_path / "out", ledger=ledger)
    older = Ledger.open(tmp_path / "older.db")
    with pytest.raises(DossierError, match=r"older\.db.* is not in its chain"):
        verify(tmp_path / "out", ledger=older)
    answer(STRATEGY, [10, 20], epsilon=0.5, ledger=older, release_id="another history")
    with pytest.raises(DossierError, match=r"older\.db.* is not in its chain"):
        verify(tmp_path / "out", ledger=older)
    verify(tmp_path / "out", ledger=ledger)


def with_books(case: Case, ledger: Any) -> Path:
    """The dossier with this ledger in its evidence, every text and digest made to fit."""
    from batchdp.reports.dossier import writing
    from batchdp.reports.dossier.about import Books

    target = case.folder.with_name("remade")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "_books", lambda *_: Books.read(ledger))
        dossier(case.release, target)
    return target


@pytest.mark.parametrize("kept", [(1,), (0, 1), (1, 2)])
def test_spends_left_out_of_the_evidence_are_told_by_the_ledger_at_its_head(kept: tuple[int, ...], case: Case) -> None:
    books = json.loads((case.folder / "evidence.json").read_text())["ledger"]
    books["entries"] = [books["entries"][i] for i in kept]
    books["spent"] = sum(one["charged"] for one in books["entries"])
    books["remaining"] = books["total"] - books["spent"]
    place = with_books(case, books)
    verify(place)  # it hangs together
    answer(STRATEGY, [10, 20], epsilon=0.5, ledger=case.ledger, release_id="later")
    with pytest.raises(DossierError, match="are not those that budget"):
        verify(place, ledger=case.ledger)


def test_an_earlier_head_with_the_spends_until_then_is_the_truth_of_then(case: Case) -> None:
    then = case.ledger.standing(case.ledger.standing().entries[2].head)
    assert [one.state for one in then.entries] == ["released", "released", "reserved"]
    early = case.ledger.standing(case.ledger.history()[0].head)
    assert (early.spent, early.remaining, len(early.entries)) == (0.5, 2.5, 1)
    with pytest.raises(batchdp.LedgerError, match="another ledger's"):
        case.ledger.standing("0" * 64)


# Every field of every file


def leaves(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from leaves(content[key], (*place, key))
    else:
        yield place


def flipped(content: Any, place: tuple[Any, ...]) -> Any:
    edited = copy.deepcopy(content)
    inner = edited
    for key in place[:-1]:
        inner = inner[key]
    value = inner[place[-1]]
    inner[place[-1]] = f"{value}x" if isinstance(value, str) else "x" if value is None else value + 1
    return edited


def written(file: str, content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n" * (file != "tables/tables.json")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["evidence.json", "datapackage.json", "tables/tables.json"])
def test_every_field_of_every_list_is_compared(file: str, case: Case) -> None:
    before = (case.folder / file).read_text()
    content = json.loads(before)
    assert before == written(file, content)
    places = list(leaves(content))
    assert len(places) >= 5
    for place in places[:: 12 if file == "datapackage.json" else 1]:  # which is compared as one text
        if place[0] == "versions" and place[1] not in ("batchdp", "matplotlib"):
            continue  # named as not checked
        (case.folder / file).write_text(written(file, flipped(content, place)))
        resummed(case.folder)
        if place[0] == "versions":
            assert any(place[1] in line for line in verify(case.folder, ledger=case.ledger).unchecked)
            continue
        with pytest.raises(DossierError):
            verify(case.folder, ledger=case.ledger)


@pytest.mark.parametrize("file", ["evidence.json", "datapackage.json", "tables/tables.json"])
@pytest.mark.parametrize("place", ["beside", "inside", "twice"])
def test_more_than_there_should_be_is_refused(file: str, place: str, case: Case) -> None:
    text = (case.folder / file).read_text()
    content = json.loads(text)
    if place == "beside":
        content["exact"] = 17
    elif place == "inside":
        inside = {"evidence.json": "versions", "datapackage.json": "differential_privacy"}
        (content[inside[file]] if file in inside else content["tables"][0])["exact"] = "17"
    twice = text.replace("{", '{"release_id": "17", "format": "17",', 1)
    (case.folder / file).write_text(twice if place == "twice" else written(file, content))
    resummed(case.folder)
    with pytest.raises(DossierError):
        verify(case.folder)


@pytest.mark.parametrize("where", ["header", "array"])
def test_a_release_with_more_in_it_is_refused(where: str, case: Case) -> None:
    path = case.folder / "answers.release"
    header, arrays = archive.load(path, "batchdp-release-0.3", ReleaseError, "release")
    if where == "header":
        header["exact"] = [10, 20]
    else:
        arrays["exact"] = np.array([10, 20])
    archive.save(path, header, arrays, ReleaseError)
    resummed(case.folder)
    with pytest.raises(DossierError, match="holds 'exact', which this version does not know"):
        verify(case.folder)


def test_parquet_with_metadata_of_its_own_is_refused(case: Case, tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    done = dossier(case.release, tmp_path / "out", format="parquet")
    verify(done.folder)
    path = next((done.folder / "tables").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"exact": "17"}), path)
    resummed(done.folder)
    with pytest.raises(DossierError, match="cannot be read as a table"):
        verify(done.folder)


@pytest.mark.parametrize("figure", ["1_0", "١٠", " 10", "0x1", "nan", "inf", ""])
def test_figures_that_people_would_read_otherwise_are_refused(figure: str, case: Case) -> None:
    path = next((case.folder / "tables").glob("*.csv"))
    head, first, *rest = path.read_text().splitlines()
    cells = first.split(",")
    cells[-4] = figure
    path.write_text("\n".join([head, ",".join(cells), *rest, ""]))
    resummed(case.folder)
    with pytest.raises(DossierError, match="tables/"):
        verify(case.folder)


# Tables of many columns


@pytest.mark.parametrize("privacy", ["pure", "zcdp"])
def test_a_dossier_of_tables_says_what_their_release_says(privacy: Any, tmp_path: Path) -> None:
    domain = 'table = "t"\n[columns.a]\nvalues = ["x", "y"]\n[columns.b]\nvalues = ["u", "v", "w"]\n'
    plan = batchdp.plan(domain=domain, marginals=2, privacy=privacy, cache=False)
    (tmp_path / "t.csv").write_text("a,b\n" + "x,u\ny,w\n" * 50)
    budget: dict[str, Any] = {"epsilon" if privacy == "pure" else "rho": 0.5}
    ledger = Ledger.create(tmp_path / "budget.db", **budget)
    release: Any = answer(plan, tmp_path / "t.csv", **budget, ledger=ledger, release_id="tables")
    done = dossier(release, tmp_path / "out", ledger=ledger)
    found = verify(done.folder, ledger=ledger)
    assert len(found.unchecked) == 2
    resources = json.loads((done.folder / "datapackage.json").read_text())["resources"]
    note = (done.folder / "note.md").read_text()
    for resource, (name, columns) in zip(resources, tables_of(release), strict=False):
        errors, half = columns["standard_error"], columns["high"] - columns["value"]
        figures = resource["noise"]
        assert resource["title"] == name
        assert resource["rows"] == len(errors)
        assert figures["least_standard_error"] == pytest.approx(errors.min(), rel=1e-5)
        assert figures["largest_standard_error"] == pytest.approx(errors.max(), rel=1e-5)
        assert figures["typical_half_width"] == pytest.approx(np.median(half), rel=1e-5)
        assert significant(figures["typical_standard_error"]) in note
    c = release.certificate
    groups = c.groups_digest if len(c.groups) > 1 else str(c.groups[0].moved)
    checklist = (done.folder / "checklist.md").read_text()
    for said in (repr(c.loss), repr(c.budget), c.plan_digest, groups, ledger.head):
        assert said in checklist.replace("\\", "")
    renamed = replace(release, column_names=("b", *release.column_names[1:]))
    with pytest.raises(ReleaseError, match="not those of its certificate"):
        dossier(renamed, tmp_path / "no")
