"""The certificate as a table: each figure with what it means."""

from __future__ import annotations

from dataclasses import fields

from markupsafe import Markup

from batchdp.markup import rendered
from batchdp.release.certificate import PrivacyCertificate

MEANINGS = {
    "release_id": ("Release", "asking again with this id returns the same answers"),
    "privacy": ("Kind of privacy", "pure: ε and Laplace noise; zcdp: ρ and Gaussian noise"),
    "budget": ("Budget", "ε or ρ that was charged"),
    "neighbours": ("Neighbours", "what two tables that must not be told apart differ by"),
    "privacy_unit": ("Privacy unit", "whose privacy: the column with one value a person, or what is said instead"),
    "sensitivity": ("Sensitivity", "how far one unit can move the integer measurements, exactly"),
    "scale": ("Noise scale", "of the discrete noise, in lattice steps"),
    "loss": ("Privacy loss", "OpenDP’s privacy map of the sensitivity; at most the budget"),
    "bits": ("Lattice bits", "a step of the measurements is 2 to the minus this"),
    "largest_total": ("Cap on records", "public; with more, answers stay private but may be too low"),
    "bias_bound": ("Bias bound", "the most that any answer is off apart from noise"),
    "plan_digest": ("Plan digest", "fingerprint of everything that decides what is released"),
    "table": ("Table", "what the ledger calls the data"),
    "ledger_head": ("Ledger head", "the ledger’s hash right after the charge; ledger.verify looks for it"),
    "opendp": ("OpenDP", "version of the library that drew the noise"),
}


def certificate_section(certificate: PrivacyCertificate) -> Markup:
    """Every field, also those that this page does not know by name."""
    rows = [_row(field.name, getattr(certificate, field.name)) for field in fields(certificate)]
    return rendered("reports/certificate.html", rows=rows)


def _row(name: str, value: object) -> tuple[str, str, str]:
    label, meaning = MEANINGS.get(name, (name.replace("_", " ").capitalize(), ""))
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.10g}" if isinstance(value, float) else str(value)
    return label, shown, meaning
