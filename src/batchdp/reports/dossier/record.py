"""The record for OpenDP's public registry of deployments: its fields and no others, filled or said to be missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batchdp.reports.dossier.about import About
from batchdp.reports.dossier.facts import Facts, TableFacts
from batchdp.reports.dossier.note import COVARIANCE

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
    c, curators = facts.certificate, [one for one in about.basic.data_curators if one]
    content = {
        "$schema": "https://datapackage.org/profiles/1.0/datapackage.json",
        "name": "batchdp-release",
        "id": c.release_id,
        "title": about.basic.name or f"Private answers about {c.table}",
        **({"description": about.basic.description} if about.basic.description else {}),
        **({"contributors": [{"title": one} for one in curators]} if curators else {}),
        "differential_privacy": _guarantee(facts),
        "resources": list(_resources(facts, files, order)),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _guarantee(facts: Facts) -> dict[str, Any]:
    c = facts.certificate
    return {
        "release_id": c.release_id,
        "noise": facts.distribution,
        facts.noise.unit: facts.budget,
        "neighbours": c.neighbours,
        "privacy_unit": c.privacy_unit,
        "confidence": facts.release.confidence,
        "plan_sha256": c.plan_digest,
        **({"counted": list(facts.release.notes)} if facts.release.notes else {}),
    }


def _resources(facts: Facts, files: Mapping[str, str], order: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, (path, table) in enumerate(zip(order, facts.tables, strict=True), start=1):
        kinds = zip(table.columns, table.kinds, strict=True)
        named = [{"name": name, "type": kind, "description": "the group"} for name, kind in kinds]
        meanings = MEANINGS | (DERIVED if table.derived else {})
        made = [{"name": name, "type": "number", "description": text} for name, text in meanings.items()]
        yield {
            **_file(f"table-{number}", path, files[path]),
            "title": table.name,
            "schema": {"fields": [*named, *made], **({"primaryKey": list(table.columns)} if table.columns else {})},
            "rows": table.rows,
            "noise": _noise(facts, table),
        }
    if COVARIANCE in files:
        fields = [{"name": "answer", "type": "string", "description": "the name of an answer"}]
        size = len(facts.linear)
        fields += [{"name": f"{i}", "type": "number"} for i in range(1, size + 1)]
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
SECOND_TIER = (
    "privacy_loss",
    "deployment_model.model_name",
    "deployment_model.release_type",
)


def record(facts: Facts, about: About) -> dict[str, Any]:
    """The record as nested mappings; its tier is what the answers given reach."""
    deployment = {
        "basic": _basic(about),
        "dp_variant": {
            "variant_name": "Pure DP" if facts.noise.is_pure else "Zero-concentrated DP",
            "data_domain": _asked(about, "dp_variant.data_domain"),
            "unprotected_quantities": _asked(about, "dp_variant.unprotected_quantities"),
        },
        "privacy_loss": _privacy_loss(facts, about),
        "deployment_model": _model(facts, about),
        "accounting": _accounting(facts, about),
        "implementation": _implementation(facts, about),
        "administrative": _administrative(facts, about),
    }
    written = facts.certificate.release_id.lower()
    slug = "-".join("".join(one if one.isascii() and one.isalnum() else " " for one in written).split())
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


def _asked(about: About, place: str) -> str:
    section, name = place.split(".")
    answer: str = getattr(getattr(about, section), name)
    return _text(answer) if answer else f"{MISSING}[{section}] {name}"


def _asked_list(about: About, place: str) -> list[str]:
    section, name = place.split(".")
    answers: list[str] = [one for one in getattr(getattr(about, section), name) if one]
    return answers or [f"{MISSING}[{section}] {name}"]


def _known(lines: Sequence[str], said: str = "") -> str:
    """What follows from the files, one point a line, and then what people add."""
    points = [*lines, *([" ".join(said.split())] if said else [])]
    return points[0] if len(points) == 1 else "".join(f"- {point}\n" for point in points)


def _text(said: str) -> str:
    """Of several lines it ends with one, as YAML's own texts do."""
    return "\n".join(line.rstrip() for line in said.splitlines() if line.strip()) + ("\n" if "\n" in said else "")


def _basic(about: About) -> dict[str, Any]:
    return {
        "name": _asked(about, "basic.name"),
        "data_curators": _asked_list(about, "basic.data_curators"),
        "description": _asked(about, "basic.description"),
        "intended_use": _asked(about, "basic.intended_use"),
        "data_product_type": "Summary statistics",
        "data_product_region": _asked(about, "basic.data_product_region"),
        "publication_date": _asked(about, "basic.publication_date"),
        "data_product_sector": _asked(about, "basic.data_product_sector"),
    }


def _privacy_loss(facts: Facts, about: About) -> dict[str, Any]:
    details = [f"The whole batch of {facts.answers:,} answers together is released with {facts.strength}."]
    if facts.noise.is_pure:
        details.append("Pure differential privacy: δ is 0.")
    for epsilon, delta in facts.epsilons:
        details.append(f"Implies (ε, δ)-differential privacy with ε = {epsilon:.4f} at δ = {delta:g}.")
    if facts.books is not None:
        details.append(f"The ledger at that time: {facts.spent}.")
    return {
        "privacy_unit": facts.whose,
        "privacy_unit_details": _known(
            [f"Neighbouring tables differ by {facts.certificate.neighbours}."], about.privacy_loss.privacy_unit_details
        ),
        "privacy_parameters": {facts.noise.unit: facts.budget},
        "privacy_parameters_details": _known(details),
    }


def _model(facts: Facts, about: About) -> dict[str, Any]:
    said = about.deployment_model
    if facts.books is not None:
        kind = "One release" if facts.books.released <= 1 else "Many releases"
        many = facts.books.released
        which = "batches; this record is about one of them" if many != 1 else "batch, which this record is about"
        known = [f"The ledger has {many:,} released {which}."]
    else:
        kind, known = _asked(about, "deployment_model.release_type"), []
    return {
        "model_name": "Central",
        "model_name_details": "The curator holds the records; batchdp adds noise before it writes anything about them.",
        "actors": _asked(about, "deployment_model.actors"),
        "release_type": kind,
        "release_type_details": _known(known, said.release_type_details)
        or _asked(about, "deployment_model.release_type_details"),
        "data_source_type": _asked(about, "deployment_model.data_source_type"),
        "data_source_type_details": _asked(about, "deployment_model.data_source_type_details"),
        "access_type": "Non-interactive",
        "access_type_details": _known(
            [f"{facts.answers:,} answers in {len(facts.tables):,} tables are published as files with intervals."],
            said.access_type_details,
        ),
    }


def _accounting(facts: Facts, about: About) -> dict[str, Any]:
    kept = ["A fixed linear combination of the noisy measurements, neither rounded nor cut off at 0: "]
    linear = facts.answers - facts.derived
    kept[0] += "every answer." if not facts.derived else f"{linear:,} of the answers."
    if facts.derived:
        kept.append(
            f"Computed from such combinations: {facts.derived:,} of the answers, which are averages, shares, other "
            "expressions of several, or quantiles."
        )
    if facts.books is None:
        together = _asked(about, "accounting.composition")
    else:
        rule = "ε" if facts.books.noise.is_pure else "ρ"
        lines = [
            f"A ledger that is charged before any record is read adds up {rule} over all its releases: {facts.spent}.",
            f"Its head, a hash that vouches for every entry: {facts.books.head}.",
        ]
        together = _known(lines, about.accounting.composition)
    return {"post_processing": _known(kept, about.accounting.post_processing), "composition": together}


def _implementation(facts: Facts, about: About) -> dict[str, Any]:
    c = facts.certificate
    return {
        "preprocessing_and_hyperparameter_tuning": _asked(
            about, "implementation.preprocessing_and_hyperparameter_tuning"
        ),
        "mechanisms": _known(
            [
                *facts.release.notes,
                f"{facts.noise_drawn}.",
                f"Sensitivity: {facts.sensitivity}.",
                f"Floating point: {facts.lattice}.",
                f"{facts.loss}.",
                "What is measured was chosen from queries and domain alone, before any record was read; SHA-256 of the "
                f"plan {c.plan_digest}.",
            ]
        ),
        "justification": _asked(about, "implementation.justification"),
    }


def _administrative(facts: Facts, about: About) -> dict[str, Any]:
    c = facts.certificate
    drafted = [f"Drafted by batchdp {facts.versions['batchdp']} from release {c.release_id}, table {c.table}."]
    return {
        "registry_authors": _asked_list(about, "administrative.registry_authors"),
        "sources": _asked(about, "administrative.sources"),
        "notes": _known(drafted, about.administrative.notes),
    }
