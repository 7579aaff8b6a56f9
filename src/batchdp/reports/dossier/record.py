"""The record for OpenDP's public registry of deployments: its fields and no others, filled or said to be missing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batchdp.reports.dossier.about import About
from batchdp.reports.dossier.facts import Facts, TableFacts
from batchdp.reports.dossier.note import COVARIANCE
from batchdp.reports.rendering import rounded_up

MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
MEANINGS = {
    "value": "the private answer: what is counted, plus noise",
    "standard_error": "of the noise in value",
    "low": "lower end of the interval around value, which is of the noise alone",
    "high": "upper end of the interval around value, which is of the noise alone",
}
DERIVED = {
    "value": "the private answer: computed from counts or sums with noise",
    "standard_error": "of the noise in value, approximately; a quantile has none",
}


def datapackage(facts: Facts, about: About, files: Mapping[str, str], order: Sequence[str]) -> str:
    """The package as JSON.

    Args:
        facts: of the release.
        about: what people say.
        files: SHA-256 of every file by its path in the folder.
        order: the paths of the tables, in the order of the release.
    """
    c, basic = facts.certificate, about["basic"]
    curators = [one for one in basic["data_curators"] if one]
    content = {
        "$schema": "https://datapackage.org/profiles/1.0/datapackage.json",
        "name": "batchdp-release",
        "id": c.release_id,
        "title": basic["name"] or f"Private answers about {c.table}",
        **({"description": basic["description"]} if basic["description"] else {}),
        **({"contributors": [{"title": one} for one in curators]} if curators else {}),
        "differential_privacy": _guarantee(facts),
        "resources": list(_resources(facts, files, order)),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _guarantee(facts: Facts) -> dict[str, Any]:
    c = facts.certificate
    return {
        "release_id": c.release_id,
        **({"snapshot": c.snapshot} if c.snapshot else {}),
        **({"combined_from": facts.parts} if facts.parts else {}),
        "noise": facts.distribution,
        facts.noise.unit: facts.budget,
        "neighbours": c.neighbours,
        "privacy_unit": c.privacy_unit,
        "confidence": facts.release.confidence,
        "plan_digest": c.plan_digest,
        **({"counted": list(facts.release.notes)} if facts.release.notes else {}),
    }


def _resources(facts: Facts, files: Mapping[str, str], order: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, (path, table) in enumerate(zip(order, facts.tables, strict=True), start=1):
        kinds = zip(table.columns, table.kinds, strict=True)
        named = [
            {"name": name, "type": kind, "description": "the group; empty where a row is a total"}
            for name, kind in kinds
        ]
        whole = table.columns and facts.release.tables[number - 1].groups.axes() is not None  # no totals in it
        meanings = MEANINGS | (DERIVED if table.derived else {})
        made = [{"name": name, "type": "number", "description": text} for name, text in meanings.items()]
        yield {
            **_file(f"table-{number}", path, files[path]),
            "title": table.name,
            "schema": {"fields": [*named, *made], **({"primaryKey": list(table.columns)} if whole else {})},
            "rows": table.rows,
            "noise": _noise(facts, table),
        }
    if COVARIANCE in files:
        fields = [{"name": "answer", "type": "string", "description": "the name of an answer"}]
        size = len(facts.linear)
        fields += [
            {"name": f"{i}", "type": "number", "description": f"covariance with the answer in row {i}"}
            for i in range(1, size + 1)
        ]
        yield {
            **_file("covariance", COVARIANCE, files[COVARIANCE]),
            "title": f"Covariances of the noise in all answers{' that are not derived' * bool(facts.derived)}, in "
            "the order of the answers of the release",
            "schema": {"fields": fields},
            "rows": size,
            "noise": {"release_id": facts.certificate.release_id},
        }


def _file(name: str, path: str, digest: str) -> dict[str, Any]:
    ending = path.rpartition(".")[2]
    return {
        "name": name,
        "path": path,
        "format": ending,
        "mediatype": MEDIA[ending],
        **({"encoding": "utf-8"} if ending == "csv" else {}),
        "hash": f"sha256:{digest}",
    }


def _noise(facts: Facts, table: TableFacts) -> dict[str, Any]:
    return {
        "release_id": facts.certificate.release_id,
        "distribution": f"{facts.distribution}, on the measurements",
        facts.noise.unit: facts.budget,
        "least_standard_error": _or_none(table.least_error),
        "typical_standard_error": _or_none(table.typical_error),
        "largest_standard_error": _or_none(table.largest_error),
        "typical_half_width": _or_none(table.typical_margin),
        "confidence": facts.release.confidence,
        **({"derived": True} if table.derived else {}),
    }


def _or_none(figure: float) -> float | None:
    return None if math.isnan(figure) else figure


MISSING = "MISSING: say it in ABOUT.toml, "
"""How a text begins where people have not answered."""
SECOND_TIER = ("privacy_loss", "deployment_model.model_name", "deployment_model.release_type")


def record(facts: Facts, about: About) -> dict[str, Any]:
    """The record as nested mappings; its tier is what the answers given reach."""
    c, asked = facts.certificate, {section: _asked(section, said) for section, said in about.items()}
    basic = list(asked["basic"].items())
    basic.insert(4, ("data_product_type", "Summary statistics"))
    drafted = [f"Drafted by batchdp {facts.versions['batchdp']} from release {c.release_id}, table {c.table}."]
    deployment = {
        "basic": dict(basic),
        "dp_variant": {
            "variant_name": "Pure DP" if facts.noise.is_pure else "Zero-concentrated DP",
            **asked["dp_variant"],
        },
        "privacy_loss": _privacy_loss(facts, about["privacy_loss"]),
        "deployment_model": _model(facts, about["deployment_model"], asked["deployment_model"]),
        "accounting": _accounting(facts, about["accounting"], asked["accounting"]),
        "implementation": _implementation(facts, **asked["implementation"]),
        "administrative": {**asked["administrative"], "notes": _known(drafted, about["administrative"]["notes"])},
    }
    slug = "-".join(re.findall("[a-z0-9]+", c.release_id.lower()))
    return {
        "url_slug": f"batchdp-{slug}"[:80].rstrip("-"),
        "status": "Draft",
        "tier": _tier(deployment),
        "deployment": deployment,
    }


def missing(content: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Every field that says that it is missing, by its place."""
    for name, value in content.items():
        here = f"{place}.{name}".strip(".")
        if isinstance(value, Mapping):
            yield from missing(value, here)
        elif any(str(text).startswith(MISSING) for text in (value if isinstance(value, list) else [value])):
            yield here


def _tier(deployment: Mapping[str, Any]) -> int:
    """1 with the basics alone, 2 with variant, loss and model, 3 with everything; a record is never below 1."""
    lacking = list(missing(deployment))
    if not lacking:
        return 3
    return 1 if any(one.startswith(("basic", *SECOND_TIER)) for one in lacking) else 2


def _asked(section: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """What people answered, and where they did not, that it is missing."""
    found: dict[str, Any] = {}
    for name, answer in said.items():
        absent = f"{MISSING}[{section}] {name}"
        if isinstance(answer, list):
            found[name] = [one for one in answer if one] or [absent]
        else:
            found[name] = _text(answer) if answer else absent
    return found


def _known(lines: Sequence[str], said: str = "") -> str:
    """What follows from the files, one point per line, and then what people add."""
    points = [*lines, *([" ".join(said.split())] if said else [])]
    return points[0] if len(points) == 1 else "".join(f"- {point}\n" for point in points)


def _text(said: str) -> str:
    """Of several lines it ends with one, as YAML's own texts do."""
    return "\n".join(line.rstrip() for line in said.splitlines() if line.strip()) + ("\n" if "\n" in said else "")


def _privacy_loss(facts: Facts, said: Mapping[str, Any]) -> dict[str, Any]:
    details = [f"The whole batch of {facts.answers:,} answers together is released with {facts.strength}."]
    if facts.noise.is_pure:
        details.append("Pure differential privacy: δ is 0.")
    for epsilon, delta in facts.epsilons:
        details.append(f"Implies (ε, δ)-differential privacy with ε = {rounded_up(epsilon):.4f} at δ = {delta:g}.")
    details.append(f"In every currency, beside each other: {facts.beside}.")
    if facts.books is not None:
        details.append(f"The ledger at that time: {facts.spent}.")
    neighbours = f"Neighbouring tables differ by {facts.certificate.neighbours}."
    return {
        "privacy_unit": facts.whose,
        "privacy_unit_details": _known([neighbours], said["privacy_unit_details"]),
        "privacy_parameters": {facts.noise.unit: facts.budget},
        "privacy_parameters_details": _known(details),
    }


def _model(facts: Facts, said: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    known = {}
    if facts.books is not None:
        many = facts.books.released
        which = "batches; this record is about one of them" if many != 1 else "batch, which this record is about"
        known = {
            "release_type": "One release" if many <= 1 else "Many releases",
            "release_type_details": _known(
                [f"The ledger has {many:,} released {which}."], said["release_type_details"]
            ),
        }
    files = f"{facts.answers:,} answers in {len(facts.tables):,} tables are published as files with intervals."
    return {
        "model_name": "Central",
        "model_name_details": "The curator holds the records; batchdp adds noise before it writes anything about them.",
        **{name: known.get(name, answer) for name, answer in asked.items() if name != "access_type_details"},
        "access_type": "Non-interactive",
        "access_type_details": _known([files], said["access_type_details"]),
    }


def _accounting(facts: Facts, said: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    linear = f"{facts.answers - facts.derived:,} of the answers" if facts.derived else "every answer"
    kept = [f"A fixed linear combination of the noisy measurements, neither rounded nor cut off at 0: {linear}."]
    if facts.derived:
        kept.append(
            f"Computed from such combinations: {facts.derived:,} of the answers, which are averages, shares, other "
            "expressions of several, or quantiles."
        )
    together = asked["composition"]
    if facts.books is not None:
        rule = facts.books.letter
        lines = [
            f"A ledger that is charged before any record is read adds up {rule} over all its releases: {facts.spent}.",
            f"Its head, a hash that vouches for every entry: {facts.books.head}.",
        ]
        together = _known(lines, said["composition"])
    return {"post_processing": _known(kept, said["post_processing"]), "composition": together}


def _implementation(facts: Facts, justification: str, **before: str) -> dict[str, Any]:
    mechanisms = [
        *facts.release.notes,
        f"{facts.noise_drawn}.",
        f"Sensitivity: {facts.sensitivity}.",
        f"Floating point: {facts.lattice}.",
        f"{facts.loss}.",
        "What is measured was chosen from queries, domain and budget alone, before any record was read; fingerprint "
        f"of it {facts.certificate.plan_digest}.",
    ]
    return {**before, "mechanisms": _known(mechanisms), "justification": justification}
