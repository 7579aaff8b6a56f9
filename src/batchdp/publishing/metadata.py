"""Metadata for programs: a Frictionless Data Package with a Table Schema for every CSV and Parquet file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batchdp.publishing.about import About
from batchdp.publishing.facts import Facts, TableFacts
from batchdp.publishing.note import COVARIANCE

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
        "least_standard_error": _known(table.least_error),
        "typical_standard_error": _known(table.typical_error),
        "largest_standard_error": _known(table.largest_error),
        "typical_half_width": _known(table.typical_margin),
        "confidence": facts.release.confidence,
        **({"derived": True} if table.derived else {}),
    }


def _known(figure: float) -> float | None:
    return None if math.isnan(figure) else figure
