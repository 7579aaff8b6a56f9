from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

import batchdp
from batchdp import DossierError, Ledger, Release, answer, dossier, load_release, verify
from batchdp.cli.example import DOMAIN, QUERIES, invent_records
from batchdp.release.exports import tables_of
from batchdp.reports.dossier import writing
from batchdp.reports.dossier.about import Books, read_about, template
from batchdp.reports.dossier.contents import SUMS, sums
from batchdp.reports.dossier.document import Document, Grid, Section, as_markdown, as_page, as_yaml
from batchdp.reports.dossier.facts import DELTAS, Facts, installed
from batchdp.reports.dossier.record import MISSING, missing, record
from batchdp.reports.rendering import render_part
from commands import refused, succeeds
from test_components import structure

ABOUT = """
[basic]
name = "Patients of eight states"
data_curators = ["City Hospital"]
description = '''Counts of patients
by state, age and diagnosis.'''
intended_use = "Planning: <b>beds</b> & | staff"
data_product_region = "United States"
publication_date = 2026-11-30
data_product_sector = "Healthcare"
[dp_variant]
data_domain = "One row a patient"
unprotected_quantities = "none"
[privacy_loss]
privacy_unit_details = "A patient has one number."
[deployment_model]
actors = "The hospital holds the records."
release_type_details = "Once more next year."
data_source_type = "Static"
data_source_type_details = "The year before."
access_type_details = "On the web."
[accounting]
post_processing = "none"
composition = "none"
[implementation]
preprocessing_and_hyperparameter_tuning = "none"
justification = "Accurate enough for planning."
[administrative]
registry_authors = ["A. Author"]
sources = "https://example.org"
notes = "A trial."
[checklist]
side_channels = "One machine, nobody else on it."
data_collection = "By the hospital."
access = "Two people."
review = "The board."
"""
TEXT, LIST, NUMBER = "text", "list of texts", "number"
SCHEMA: dict[str, Any] = {
    "url_slug": TEXT,
    "status": {"Draft"},
    "tier": {1, 2, 3},
    "deployment": {
        "basic": {
            "name": TEXT,
            "data_curators": LIST,
            "description": TEXT,
            "intended_use": TEXT,
            "data_product_type": {"Summary statistics"},
            "data_product_region": TEXT,
            "publication_date": "day",
            "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"},
        },
        "dp_variant": {
            "variant_name": {"Pure DP", "Zero-concentrated DP"},
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        },
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": NUMBER, "delta": NUMBER, "rho": NUMBER},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": {"Central"},
            "model_name_details": TEXT,
            "actors": TEXT,
            "release_type": {"One release", "Many releases"},
            "release_type_details": TEXT,
            "data_source_type": {"Static", "Dynamic"},
            "data_source_type_details": TEXT,
            "access_type": {"Non-interactive"},
            "access_type_details": TEXT,
        },
        "accounting": {"post_processing": TEXT, "composition": TEXT},
        "implementation": {"preprocessing_and_hyperparameter_tuning": TEXT, "mechanisms": TEXT, "justification": TEXT},
        "administrative": {"registry_authors": LIST, "sources": TEXT, "notes": TEXT},
    },
}
"""The fields of OpenDP's registry, and no others."""


def violations(content: Any, schema: Any, place: str = "") -> Iterator[str]:
    """Every place at which a record does not fit the schema."""
    if isinstance(schema, Mapping):
        if not isinstance(content, dict):
            yield place
            return
        optional = place.endswith("privacy_parameters")  # those that the variant has
        if set(content) - set(schema) or (set(schema) - set(content) and not (optional and content)):
            yield place
        for name in content:
            if name in schema:
                yield from violations(content[name], schema[name], f"{place}.{name}".strip("."))
    elif isinstance(schema, set):
        if content not in schema:
            yield place
    elif schema == LIST:
        if not (isinstance(content, list) and content and all(isinstance(one, str) and one for one in content)):
            yield place
    elif schema == NUMBER:
        if isinstance(content, bool) or not isinstance(content, int | float) or not math.isfinite(content):
            yield place
    elif not isinstance(content, str) or not content.strip():
        yield place
    elif schema == "day":
        try:
            date.fromisoformat(content)
        except ValueError:
            yield place


ALWAYS = ("the versions in evidence.json, which nothing else knows", "what people declared in ABOUT.toml")
"""What no check can look at."""


@dataclass(frozen=True)
class Study:
    folder: Path
    ledger: Ledger
    release: Release
    about: Path

    def dossier(self, folder: Path, **more: Any) -> writing.Dossier:
        return dossier(self.release, folder, ledger=self.ledger, about=self.about, **more)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The demonstration's release, from a plan that was looked for in less time."""
    folder = tmp_path_factory.mktemp("study")
    invent_records(folder / "patients.parquet")
    plan = batchdp.plan(QUERIES, DOMAIN, seconds=0.2, cache=False)
    ledger = Ledger.create(folder / "budget.db", epsilon=3.0)
    releases = [answer(plan, folder / "patients.parquet", epsilon=epsilon, ledger=ledger) for epsilon in (1.0, 0.1)]
    (folder / "ABOUT.toml").write_text(ABOUT)
    releases[1].save(folder / "answers.release")
    return Study(folder, ledger, releases[1], folder / "ABOUT.toml")


@pytest.fixture(scope="module")
def written(study: Study) -> Path:
    return study.dossier(study.folder / "dossier").folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Ledger]:
    """A release over several columns, with Gaussian noise."""
    folder = tmp_path_factory.mktemp("tables")
    strategy = batchdp.optimize(structure(batchdp.workloads.marginals((3, 2, 4), [0, 1, 2])), privacy="zcdp")
    ledger = Ledger.create(folder / "budget.db", rho=1.0)
    records = np.random.default_rng(0).integers(0, 2, size=(500, 3))
    release: Any = answer(strategy, records, rho=0.5, ledger=ledger, release_id="a/../b")
    assert isinstance(release, Release)
    return release, ledger


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def resummed(folder: Path) -> None:
    """A list of digests that fits whatever is there."""
    digests = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != SUMS
    }
    (folder / SUMS).write_text(sums(digests))


def test_the_record_of_the_demos_release_fits_the_registry(study: Study, written: Path) -> None:
    content = yaml.safe_load((written / "record.yaml").read_text())
    assert list(violations(content, SCHEMA)) == []
    assert content["tier"] == 3
    assert content["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1}
    assert content["deployment"]["basic"]["publication_date"] == "2026-11-30"
    assert content["deployment"]["deployment_model"]["release_type"] == "Many releases"
    assert "MISSING" not in (written / "record.yaml").read_text()
    broken = {**content, "author": "x", "tier": 4}
    assert list(violations(broken, SCHEMA)) == ["", "tier"]  # so the schema can fail


def test_what_nobody_has_said_is_said_to_be_missing_and_nothing_else(study: Study, tmp_path: Path) -> None:
    done = dossier(study.release, tmp_path / "out", about=tmp_path / "ABOUT.toml")
    assert (tmp_path / "ABOUT.toml").read_text() == template() == (tmp_path / "out" / "ABOUT.toml").read_text()
    content = yaml.safe_load((tmp_path / "out" / "record.yaml").read_text())
    assert content["tier"] == 1
    asked = [f"deployment.{section}.{name}" for section, own in _questions() for name in own]
    allowed = {"publication_date", "data_product_sector", "release_type", "data_source_type"}
    for place in violations(content, SCHEMA):
        assert place in done.missing
        assert place.rpartition(".")[2] in allowed
    assert set(done.missing) <= set(asked)
    assert len(done.missing) == 19
    checklist = (tmp_path / "out" / "checklist.md").read_text()
    assert checklist.count("| open |") == 8
    assert "not checked against a ledger" in checklist
    assert verify(tmp_path / "out").unchecked[0] == "against a ledger"


def _questions() -> Iterator[tuple[str, list[str]]]:
    for section, own in read_about(ABOUT).items():
        yield section, list(own)


def test_the_template_asks_every_question_and_answers_none() -> None:
    about = read_about(template())
    for section, names in _questions():
        for name in names:
            assert re.search(rf"^{name} = ", template(), re.MULTILINE), name
            assert not about[section][name]
    assert str(render_part("reports/dossier/about.toml")) == template()


NUMBERS = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
WORDS = {"800", "226", "256", "2", "0", "1e-06"}
"""Of the texts themselves: NIST SP 800-226, SHA-256, 2 to the minus …, δ is 0, ε at δ = 1e-06."""


def known(study: Study) -> set[float]:
    """Every figure that the release and the ledger hold, computed here again."""
    release, ledger, c = study.release, study.ledger, study.release.certificate
    entries = ledger.history()
    found: list[float] = [len(release.answers), len(release.noisy), 0.1, 100 * release.confidence]
    (group,) = c.groups
    found += [c.loss, c.budget, c.bias_share, group.moved, group.scale, group.bits, group.scale / 2.0**group.bits]
    found += [ledger.total, ledger.spent, ledger.remaining, len(entries), *(one.charged for one in entries)]
    found += [ledger.epsilon_at(1e-6), *(one.requested for one in entries), len(release.tables)]
    found += [c.budget - 1 + math.exp(-c.budget)]  # what ε costs in ρ, of the noise that was drawn
    found += [*release.standard_errors.tolist(), *release.half_widths.tolist()]
    for _, columns in tables_of(release):
        errors, half = columns["standard_error"], columns["high"] - columns["value"]
        found += [len(errors), np.median(errors), np.median(half), *errors.tolist()]
    found.append((1 - release.confidence) * len(release.answers))
    assert release.counted is not None
    ends = [end for one in release.counted.columns for end in (one.low, one.high, one.step)]
    found += [c.largest_total, *(end for end in ends if isinstance(end, int | float))]
    C = release.covariance
    shared = np.abs(C) / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    pairs = [pair for one in release.tables for pair in combinations(one.answers, 2)]
    i, j = max(pairs, key=lambda pair: round(float(shared[pair]), 3))
    found += [math.sqrt(C[i, i] + C[j, j] + sign * 2 * C[i, j]) for sign in (1, -1)]
    found += [i + 1, j + 1]
    return {float(one) for one in found}


def test_every_figure_comes_from_the_release_or_the_ledger(study: Study, written: Path) -> None:
    figures, names = sorted(known(study)), {one for each in study.release.answers for one in NUMBERS.findall(each.name)}
    hashes = re.compile(r"\b[0-9a-f]{32,64}\b|\d{4}\\?-\d\d-\d\d(T[\d:]+)?|OpenDP \S+|batchdp \S+|```.*?```", re.DOTALL)
    looked_at = 0
    for file in ("record.yaml", "checklist.md", "note.md"):
        text = hashes.sub(" ", (written / file).read_text())
        counts = {str(text.count(f"| {state} |")) for state in ("checked by the tool", "declared by the custodian")}
        for found in NUMBERS.findall(text):
            if found in names | WORDS | counts:
                continue
            value = float(found.replace(",", ""))
            written_digits = found.partition("e")[0].replace(",", "").lstrip("0.")
            if len(written_digits) > 4 and "." not in written_digits:  # large figures are rounded to four digits
                written_digits = max(written_digits.rstrip("0"), written_digits[:4], key=len)
            digits = len(written_digits.replace(".", ""))
            rounding = abs(value) * 0.5 * 10.0 ** (1 - max(1, min(digits, 12)))
            near = [one for one in figures if abs(one - value) <= rounding]
            assert near, f"{file}: {found}"
            looked_at += 1
    assert looked_at > 100


def test_the_metadata_and_the_evidence_are_those_of_the_release(study: Study, written: Path) -> None:
    package = json.loads((written / "datapackage.json").read_text())
    release, c = study.release, study.release.certificate
    assert package["differential_privacy"]["release_id"] == c.release_id
    expected = list(tables_of(release))
    resources = package["resources"]
    assert [one["title"] for one in resources[:-1]] == [name for name, _ in expected]
    for resource, (_, columns) in zip(resources, expected, strict=False):
        assert [field["name"] for field in resource["schema"]["fields"]] == list(columns)
        assert resource["rows"] == len(columns["value"])
        assert resource["noise"]["typical_standard_error"] == pytest.approx(np.median(columns["standard_error"]), 1e-5)
        assert resource["noise"]["epsilon"] == 0.1
    for resource in resources:
        content = (written / resource["path"]).read_bytes()
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        head = content.decode().partition("\n")[0]
        assert head == ",".join(field["name"] for field in resource["schema"]["fields"])
    covered = {one["path"] for one in resources}
    assert covered == {path.relative_to(written).as_posix() for path in written.rglob("*.csv")}
    evidence = json.loads((written / "evidence.json").read_text())
    assert evidence["certificate"] == c.as_dict()
    assert evidence["ledger"]["head"] == study.ledger.head
    assert [one["release_id"] for one in evidence["ledger"]["entries"]] == [
        one.release_id for one in study.ledger.history()
    ]
    with (written / "covariance.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    assert [row[0] for row in rows] == [one.name for one in release.answers]
    table = np.array([row[1:] for row in rows], dtype=float)
    sigma = release.standard_errors
    assert np.all(np.abs(table - release.covariance) <= 1e-8 * np.outer(sigma, sigma))


def test_a_dossier_is_what_it_claims_to_be(study: Study, written: Path) -> None:
    found = verify(written, ledger=study.ledger)
    assert found.unchecked == ALWAYS
    assert any("spends until then: 2, later: 0" in line for line in found.checked)
    assert found.digest == hashlib.sha256((written / SUMS).read_bytes()).hexdigest()
    assert "against a ledger" in verify(written).unchecked


def test_a_later_spend_is_no_contradiction(study: Study, written: Path, tmp_path: Path) -> None:
    shutil.copy(study.ledger.path, tmp_path / "budget.db")
    later = Ledger.open(tmp_path / "budget.db")
    later.reserve("later", epsilon=0.5, plan_digest="x", table="t")
    assert any("spends until then: 2, later: 1" in line for line in verify(written, ledger=later).checked)


EDITED = (
    "record.yaml",
    "checklist.md",
    "checklist.html",
    "note.md",
    "note.html",
    "datapackage.json",
    "covariance.csv",
    "evidence.json",
    "composition.svg",
    "tables/tables.json",
    "tables/08-patients.csv",
    "answers.release",
)


@pytest.mark.parametrize("file", EDITED)
def test_an_edited_file_is_refused_also_with_new_digests(
    written: Path, study: Study, tmp_path: Path, file: str
) -> None:
    place = copied(written, tmp_path / "edited")
    content = (place / file).read_bytes()
    digit = next(i for i in range(len(content) // 2, len(content)) if content[i : i + 1] in b"123456789")
    (place / file).write_bytes(content[:digit] + b"7" * (content[digit : digit + 1] != b"7") + content[digit + 1 :])
    if (place / file).read_bytes() == content:
        (place / file).write_bytes(content[:digit] + b"3" + content[digit + 1 :])
    with pytest.raises(DossierError, match=re.escape(file)):
        verify(place)
    resummed(place)
    with pytest.raises(DossierError):  # of other releases' spends the ledger alone knows
        verify(place, ledger=study.ledger if file == "evidence.json" else None)


def test_added_and_missing_files_and_links_are_refused(written: Path, tmp_path: Path) -> None:
    place = copied(written, tmp_path / "edited")
    (place / "more.txt").write_text("x")
    with pytest.raises(DossierError, match=r"more.txt is not in SHA256SUMS"):
        verify(place)
    resummed(place)
    with pytest.raises(DossierError, match="not part of a dossier"):
        verify(place)
    (place / "more.txt").unlink()
    (place / "note.md").unlink()
    (place / "note.md").symlink_to(written / "note.md")
    with pytest.raises(DossierError, match="link"):
        verify(place)
    (place / "note.md").unlink()
    with pytest.raises(DossierError, match=r"note.md is not in the folder|note.md is in SHA256SUMS"):
        verify(_without(written, tmp_path, "note.md"))
    lines = (written / SUMS).read_text()
    for wrong in (lines + lines, "x\n", f"{'0' * 64}  ../../etc/passwd\n{lines}", ""):
        (place / SUMS).write_text(wrong)
        with pytest.raises(DossierError):
            verify(place)
    (place / SUMS).unlink()
    with pytest.raises(DossierError, match="never finished"):
        verify(place)


def _without(written: Path, tmp_path: Path, file: str) -> Path:
    place = copied(written, tmp_path / "without")
    (place / file).unlink()
    return place


def forged(release: Release) -> Release:
    """One that hangs together, with other measurements."""
    (group,) = release.certificate.groups
    return replace(release, noisy=release.noisy + 100 * 2**group.bits, given=None)


def test_a_made_up_release_is_refused_by_the_ledger(study: Study, tmp_path: Path) -> None:
    fake = forged(study.release)
    with pytest.raises(batchdp.ReleaseError, match="measurements"):
        dossier(fake, tmp_path / "no", ledger=study.ledger)
    assert not (tmp_path / "no").exists()
    dossier(fake, tmp_path / "fake")
    verify(tmp_path / "fake")  # it hangs together
    with pytest.raises(DossierError, match="measurements are not those"):
        verify(tmp_path / "fake", ledger=study.ledger)


def test_an_edited_release_with_new_digests_is_refused_by_the_ledger(
    study: Study, written: Path, tmp_path: Path
) -> None:
    place = copied(written, tmp_path / "edited")
    forged(study.release).save(place / "answers.release")
    resummed(place)
    with pytest.raises(DossierError):
        verify(place, ledger=study.ledger)


def test_another_ledger_is_refused(study: Study, written: Path, tmp_path: Path) -> None:
    other = Ledger.create(tmp_path / "other.db", epsilon=3.0)
    with pytest.raises(DossierError, match=r"other.db"):
        verify(written, ledger=other)
    with pytest.raises((DossierError, batchdp.LedgerError), match=r"other.db|not in its chain"):
        dossier(study.release, tmp_path / "out", ledger=other)
    assert not (tmp_path / "out").exists()


def test_the_spends_in_the_evidence_are_those_of_the_ledger(study: Study, written: Path, tmp_path: Path) -> None:
    place = copied(written, tmp_path / "edited")
    evidence = json.loads((place / "evidence.json").read_text())
    evidence["ledger"]["entries"][0]["table"] = "nothing"
    (place / "evidence.json").write_text(json.dumps(evidence, indent=1, ensure_ascii=False) + "\n")
    resummed(place)
    with pytest.raises(DossierError):  # the checklist does not follow from it
        verify(place)
    evidence["ledger"]["spent"] = 0.5
    (place / "evidence.json").write_text(json.dumps(evidence))
    resummed(place)
    with pytest.raises(DossierError, match="do not add up"):
        verify(place)


def test_another_version_compares_figures_and_says_that_words_were_not(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study
) -> None:
    later = {**installed(), "batchdp": "9.9.9"}
    monkeypatch.setattr("batchdp.reports.dossier.verifying.installed", lambda: later)
    found = verify(written, ledger=study.ledger)
    assert any(
        "record.yaml" in line and "checklist.md" in line and "the words of batchdp" in line for line in found.unchecked
    )
    drawn = {**installed(), "matplotlib": "1.0"}
    monkeypatch.setattr("batchdp.reports.dossier.verifying.installed", lambda: drawn)
    assert "composition.svg, which another matplotlib drew" in verify(written).unchecked
    place = copied(written, tmp_path / "edited")
    page = place / "checklist.html"
    page.write_text(page.read_text().replace("checked by the tool", "checked by us", 1))
    resummed(place)
    with pytest.raises(DossierError, match=r"checklist\.html does not follow"):
        verify(place)
    figures = copied(written, tmp_path / "figures") / "covariance.csv"
    figures.write_text(figures.read_text().replace("1", "2"))
    resummed(figures.parent)
    monkeypatch.setattr("batchdp.reports.dossier.verifying.installed", lambda: later)
    with pytest.raises(DossierError, match=r"covariance\.csv"):
        verify(figures.parent)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_tables_of_many_columns_have_a_dossier_too(tables: tuple[Release, Ledger], tmp_path: Path, format: Any) -> None:
    release, ledger = tables
    done = dossier(release, tmp_path / "out", ledger=ledger, format=format)
    found = verify(tmp_path / "out", ledger=ledger)
    assert found.unchecked == ALWAYS
    content = yaml.safe_load((tmp_path / "out" / "record.yaml").read_text())
    assert content["url_slug"] == "batchdp-a-b"
    assert content["deployment"]["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    assert content["deployment"]["privacy_loss"]["privacy_parameters"] == {"rho": 0.5}
    details = content["deployment"]["privacy_loss"]["privacy_parameters_details"]
    for delta in DELTAS:
        assert f"ε = {math.ceil(1e4 * release.epsilon_at(delta)) / 1e4:.4f} at δ = {delta:g}" in details
    assert set(violations(content, SCHEMA)) <= set(done.missing)
    path = next((tmp_path / "out" / "tables").glob(f"?-*.{format}"))
    path.write_bytes(path.read_bytes()[:-3] + b"9\n9")
    resummed(tmp_path / "out")
    with pytest.raises(DossierError, match="tables/"):
        verify(tmp_path / "out")


def test_names_are_only_text_whatever_they_hold(tmp_path: Path) -> None:
    names = ("../../etc/passwd", "<script>alert(1)</script>", "| a | b\n# c `x`", "=1+1", "\x1b[31m\u202e")
    W = batchdp.MatrixWorkload(np.eye(5), names=names)
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0)
    release = answer(batchdp.STRATEGIES["noise-on-data"](W), [1, 2, 3, 4, 5], epsilon=1.0, ledger=ledger)
    done = dossier(release, tmp_path / "out", ledger=ledger)
    assert verify(done.folder, ledger=ledger).checked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["budget.db", "out"]
    assert "<script>alert" not in (tmp_path / "out" / "note.html").read_text()
    assert "\x1b" not in "".join((tmp_path / "out" / name).read_text() for name in ("note.md", "checklist.md"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("basic = 3", "basic"),
        ("[basic]\nname = 3", "basic.name"),
        ("[basic]\nname = ['a']", "basic.name"),
        ("[basic]\ndata_curators = 'me'", "data_curators"),
        ("[basic]\npublication_date = '1/1/2026'", "publication_date"),
        ("[basic]\npublication_date = '2026-02-31'", "publication_date"),
        ("[basic]\npublication_date = 2026-02-01T10:00:00", "publication_date"),
        ("[basic]\ndata_product_sector = 'Sport'", "data_product_sector"),
        ("[basic]\nauthor = 'me'", "not asked for"),
        ('[basic]\nname = "a\\u001b[31m"', "U+001B"),
        ('[basic]\nname = "a\\u202eb"', "U+202E"),
        (f"[basic]\nname = '{'x' * 5001}'", "5000"),
        ("a" + ".a" * 5000 + " = 1", "many parts"),
        ("[basic", "not TOML"),
        ("x = " + "[" * 5000 + "]" * 5000, "ABOUT"),
    ],
)
def test_answers_that_cannot_be_meant_are_refused(tmp_path: Path, study: Study, text: str, said: str) -> None:
    (tmp_path / "ABOUT.toml").write_text(text)
    with pytest.raises(DossierError, match=re.escape(said)):
        dossier(study.release, tmp_path / "out", about=tmp_path / "ABOUT.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["ABOUT.toml"]


def test_a_file_of_answers_that_is_none_is_refused(tmp_path: Path, study: Study) -> None:
    (tmp_path / "huge.toml").write_text("# x\n" * 100_000)
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    (tmp_path / "dangling.toml").symlink_to(tmp_path / "nowhere")
    for name, said in (("huge", "larger"), ("latin", "UTF-8"), ("dangling", "cannot read")):
        with pytest.raises(DossierError, match=said):
            dossier(study.release, tmp_path / "out", about=tmp_path / f"{name}.toml")
    with pytest.raises(DossierError, match="cannot"):
        dossier(study.release, tmp_path / "out", about=tmp_path)


def test_folders_that_hold_something_are_kept(tmp_path: Path, study: Study) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    for more in ({}, {"overwrite": True}):
        with pytest.raises(DossierError, match="holds files"):
            study.dossier(tmp_path / "mine", **more)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("file", "link", "missing/out", "..", ""):
        with pytest.raises(DossierError):
            study.dossier(tmp_path / name if name else Path())
    first = study.dossier(tmp_path / "out")
    with pytest.raises(DossierError, match="already holds files"):
        study.dossier(tmp_path / "out")
    again = study.dossier(tmp_path / "out", overwrite=True)
    assert first.files == again.files
    if os.geteuid() != 0:
        (tmp_path / "mine").chmod(0o500)
        with pytest.raises(DossierError, match="cannot write"):
            study.dossier(tmp_path / "mine" / "out")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_what_is_broken_off_leaves_nothing(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(writing, "texts", broken)
    with pytest.raises((error, DossierError)):
        study.dossier(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_half_written_folder_does_not_verify(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchdp.archive.shutil.rmtree", lambda *_, **__: None)  # as if killed before

    def broken(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "sums", broken)
    with pytest.raises(KeyboardInterrupt):
        study.dossier(tmp_path / "out")
    (left,) = tmp_path.iterdir()
    with pytest.raises(DossierError, match="never finished"):
        verify(left)


def test_no_exact_count_stands_anywhere(study: Study, written: Path) -> None:
    truth = {100_000}  # of the invented patients, which no query's noise leaves as it is
    for path in written.rglob("*"):
        if path.suffix in (".md", ".yaml", ".json", ".csv", ".html"):
            found = {float(one.replace(",", "")) for one in NUMBERS.findall(path.read_text())}
            assert not truth & found, path


texts_of_any_kind = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


values = st.one_of(
    texts_of_any_kind,
    st.lists(texts_of_any_kind, max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**9), 10**9),
    st.lists(texts_of_any_kind, min_size=2, max_size=4).map(lambda lines: "\n".join(lines) + "\n"),
)


@given(st.lists(values, min_size=1, max_size=5))
def test_yaml_is_read_as_it_was_meant(content: list[Any]) -> None:
    kept = {f"key_{i}": value for i, value in enumerate(content)}
    assert yaml.safe_load(as_yaml({"outer": kept, "last": "x"})) == {"outer": kept, "last": "x"}


@given(texts_of_any_kind)
def test_text_is_only_text_in_markdown_and_on_a_page(text: str) -> None:
    document = Document("a", text, (Section("b", (text, Grid(("h",), ((text,),)))),), "c")
    shown = as_markdown(document)
    assert len(re.findall(r"^#", shown, re.MULTILINE)) == 2
    assert not re.search(r"(?<!\\)[<`]", shown)
    assert all(one.isprintable() or one == "\n" for one in shown)
    page = as_page(document, {})
    assert page.count("<section>") == 1
    assert "<script" not in page


def test_a_missing_answer_is_found_wherever_it_stands(study: Study) -> None:
    facts = Facts(study.release, None, installed())
    content = record(facts, read_about(ABOUT))
    assert list(missing(content)) == ["deployment.deployment_model.release_type"]
    assert content["tier"] == 1
    said = ABOUT.replace("[deployment_model]", "[deployment_model]\nrelease_type = 'One release'")
    assert record(facts, read_about(said))["tier"] == 3
    without = record(facts, read_about(said.replace('justification = "Accurate enough for planning."', "")))
    assert without["tier"] == 2
    assert without["deployment"]["implementation"]["justification"].startswith(MISSING)


def test_the_command_line_writes_and_verifies(study: Study, tmp_path: Path) -> None:
    source, ledger = study.folder / "answers.release", study.ledger.path
    out = succeeds("dossier", source, "--ledger", ledger, "--about", tmp_path / "A.toml", "-o", tmp_path / "out")
    assert "Still to be said" in out
    assert (tmp_path / "A.toml").is_file()
    (tmp_path / "A.toml").write_text(ABOUT)
    again = ("dossier", source, "-l", ledger, "--about", tmp_path / "A.toml", "-o", tmp_path / "out")
    assert "already holds files" in refused(*again)
    assert "Still to be said" not in succeeds(*again, "--overwrite")
    assert "charged to budget.db" in succeeds("verify", tmp_path / "out", "--ledger", ledger)
    assert "not checked against a ledger" in succeeds("verify", tmp_path / "out")
    assert json.loads(succeeds("verify", tmp_path / "out", "--json"))["unchecked"][0] == "against a ledger"
    (tmp_path / "out" / "note.md").write_text("x")
    assert "note.md was changed" in refused("verify", tmp_path / "out")
    assert "there is no ledger" in refused("verify", tmp_path / "out", "--ledger", tmp_path / "none.db")
    assert "is not a folder" in refused("verify", tmp_path / "nowhere")
    assert "parquet or csv" in refused("dossier", source, "-o", tmp_path / "x", "--format", "xls", code=2)
    assert "cannot read" in refused("dossier", tmp_path / "no.release", "-o", tmp_path / "x")


def test_a_dossier_can_be_written_from_its_own_answers(study: Study, tmp_path: Path) -> None:
    done = study.dossier(tmp_path / "out")
    again = dossier(
        load_release(done.folder / "answers.release"),
        done.folder,
        ledger=study.ledger,
        about=done.folder / "ABOUT.toml",
        overwrite=True,
    )
    assert again.missing == ()
    verify(done.folder, ledger=study.ledger)


Change = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.pop("versions"),
        lambda e: e.update(versions=3),
        lambda e: e.update(ledger=[]),
        lambda e: e["ledger"].update(unit="grams"),
        lambda e: e["ledger"].update(entries=[{}]),
        lambda e: e["ledger"].update(entries=[]),
        lambda e: e["ledger"]["entries"][0].update(requested=None),
        lambda e: e.update(format="another"),
    ],
)
def test_evidence_of_something_else_is_refused(written: Path, tmp_path: Path, change: Change) -> None:
    place = copied(written, tmp_path / "edited")
    evidence = json.loads((place / "evidence.json").read_text())
    change(evidence)
    (place / "evidence.json").write_text(json.dumps(evidence))
    resummed(place)
    with pytest.raises(DossierError):
        verify(place)


@pytest.mark.parametrize(("twice", "field"), [(True, "99999,"), (False, "x,")])
def test_tables_with_more_than_their_columns_are_refused(
    written: Path, tmp_path: Path, twice: bool, field: str
) -> None:
    place = copied(written, tmp_path / "edited")
    table = place / "tables/08-patients.csv"
    first, *rows = table.read_text().splitlines()
    names = f"value,{first}" if twice else first
    table.write_text("\n".join([names, *(field + row for row in rows), ""]))
    resummed(place)
    with pytest.raises(DossierError, match="cannot be read as a table"):
        verify(place)


def test_a_file_of_nobody_is_refused_whatever_version_the_evidence_names(written: Path, tmp_path: Path) -> None:
    place = copied(written, tmp_path / "edited")
    evidence = json.loads((place / "evidence.json").read_text())
    evidence["versions"]["batchdp"] = "0.0.9"
    (place / "evidence.json").write_text(json.dumps(evidence))
    (place / "exact.csv").write_text("1\n")
    resummed(place)
    with pytest.raises(DossierError, match=r"exact.csv is not part of a dossier"):
        verify(place)


PEOPLE = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 7]})
ONES = {"table": "t", "columns": {"a": {"values": ["x", "y"]}, "b": {"integers": [0, 8]}}}


@pytest.mark.parametrize(
    ("sql", "example"),
    [
        ("SELECT COUNT(*) AS n FROM t; SELECT AVG(b) AS mean FROM t", None),
        ("SELECT AVG(b) AS mean FROM t", None),
        ("SELECT COUNT(*) AS n FROM t", None),
        ("SELECT COUNT(*) AS n FROM t; SELECT COUNT(*) AS x FROM t WHERE a = 'x'", "two answers of the table"),
        (
            "SELECT AVG(b) AS mean FROM t; SELECT COUNT(*) AS n FROM t; SELECT COUNT(*) AS x FROM t WHERE a = 'x'",
            "two answers that are not derived of the table",
        ),
    ],
)
def test_statements_of_one_answer_each(sql: str, example: str | None, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1)
    made = batchdp.plan(sql, ONES, seconds=0.2)
    release = answer(made, PEOPLE, epsilon=1, ledger=ledger)
    done = dossier(release, tmp_path / "out", ledger=ledger)
    verify(done.folder, ledger=ledger)
    note = (done.folder / "note.md").read_text()
    assert ("For example two answers" in note) == (example is not None)
    if example is not None:
        assert example in note
        said = re.search(r"their standard errors are ([0-9.]+) and ([0-9.]+);", note)
        assert said is not None
        expected = release.standard_errors[~release.is_derived][:2]
        assert [float(said[1]), float(said[2])] == pytest.approx(expected.tolist(), rel=0.01)


@pytest.mark.parametrize(("unit", "spends"), [("epsilon", (500.0, 60_000.0)), ("rho", (125_000.0, 999_000_000.0))])
def test_spends_that_protect_nothing_are_in_a_dossier_too(unit: str, spends: tuple[float, ...], tmp_path: Path) -> None:
    total: dict[str, Any] = {unit: 1e9}
    ledger = Ledger.create(tmp_path / "budget.db", **total)
    for spend in spends:
        asked: dict[str, Any] = {unit: spend}
        ledger.reserve(f"of {spend}", plan_digest="p", table="t", **asked)
    release = answer(batchdp.plan("SELECT COUNT(*) FROM t", ONES), PEOPLE, epsilon=1, ledger=ledger)
    done = dossier(release, tmp_path / "out", ledger=ledger)
    verify(done.folder, ledger=ledger)
    curves = Facts(release, Books.of(ledger), installed()).curves
    assert all(math.isfinite(one) for curve in curves for one in curve.epsilons)
    assert curves[0].epsilons[0] >= spends[0]  # pure: ε itself; otherwise more than ρ
    assert all(a <= b for curve in curves for a, b in zip(curve.epsilons, curve.epsilons[1:], strict=False))


@pytest.mark.parametrize("where", ["empty", "tables/empty", "one/in/another"])
def test_an_empty_folder_that_was_added_is_refused(where: str, written: Path, tmp_path: Path) -> None:
    place = copied(written, tmp_path / "copy")
    (place / where).mkdir(parents=True)
    with pytest.raises(DossierError, match="is an empty folder, which no dossier holds"):
        verify(place)
