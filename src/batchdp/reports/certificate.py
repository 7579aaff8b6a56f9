"""The certificate as a table: each figure with what it means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from fractions import Fraction

from markupsafe import Markup

from batchdp.markup import render
from batchdp.release.certificate import CertifiedGroup, PrivacyCertificate

MEANINGS = {
    "release_id": ("Release", "asking again with this id returns the same answers"),
    "privacy": ("Kind of privacy", "pure: ε and Laplace noise; zcdp: ρ and Gaussian noise"),
    "budget": ("Budget", "ε or ρ that was charged"),
    "neighbours": ("Neighbours", "what two tables that must not be told apart differ by"),
    "privacy_unit": ("Privacy unit", "whose privacy: the column with one value a person, or what is said instead"),
    "shape": ("Shape of the noise", "measurements that share a body, the hull of ± their columns, and its share of ε"),
    "distribution": ("Noise", "the distribution that it was drawn from, discrete or rounded to whole numbers"),
    "loss": ("Privacy loss", "what all groups of measurements lose together; at most the budget"),
    "largest_total": ("Cap on records", "public; with more, answers stay private but may be far off"),
    "bias_share": ("Bias", "the most that the lattice moves any count or sum, as a share of its standard error"),
    "measurements": ("Measurements", "noisy whole numbers that all answers are read from"),
    "groups": ("Groups", "measurements that were drawn with one noise each; SHA-256 of the list of them"),
    "plan_digest": ("Plan digest", "fingerprint of everything that decides what is released"),
    "table": ("Table", "what the ledger calls the data"),
    "ledger_head": ("Ledger head", "the ledger’s hash right after the charge; ledger.verify looks for it"),
    "opendp": ("OpenDP", "version of the library that drew the noise"),
    "derived": ("Derived answers", "computed from noisy counts and sums of this release, at no cost of privacy"),
}


def certificate_section(certificate: PrivacyCertificate) -> Markup:
    """Every field, also those that this page does not know by name; of many groups a summary."""
    values = {field.name: getattr(certificate, field.name) for field in fields(certificate)}
    if values.get("shape") == "":
        del values["shape"]
    values["groups"] = f"{len(certificate.groups):,}; {certificate.groups_digest}"
    listed = _by_columns(certificate)
    rows = [_row(name, value) for name, value in values.items()]
    return render("reports/certificate.html", rows=rows, groups=listed, letter=certificate.noise.letter)


def _by_columns(certificate: PrivacyCertificate) -> list[tuple[str, ...]]:
    """The groups together that look at so many columns: how many, what a unit moves, noise, and what they lose."""
    found: dict[int, list[CertifiedGroup]] = {}
    # In records; K-norm noise and what a unit moves are counted in bodies, which have no bits.
    norm, in_bodies = certificate.noise.norm, bool(certificate.shape)
    for one in certificate.groups:
        found.setdefault(len(one.columns), []).append(one)
    return [
        (
            "cells, or the total" if size == 0 else f"{size} column{'s' * (size > 1)}",
            f"{len(own):,}",
            _span(float(one.moved) ** (1 / norm) * (1.0 if in_bodies else 2.0**-one.bits) for one in own),
            _span(one.scale * (1.0 if in_bodies else 2.0**-one.bits) for one in own),
            _span(one.loss for one in own),
            f"{float(sum(Fraction(one.loss) for one in own)):.6g}",
        )
        for size, own in sorted(found.items())
    ]


def _span(values: Iterable[float]) -> str:
    found = list(values)
    low, high = f"{min(found):.4g}", f"{max(found):.4g}"
    return low if low == high else f"{low} to {high}"


def _row(name: str, value: object) -> tuple[str, str, str]:
    label, meaning = MEANINGS.get(name, (name.replace("_", " ").capitalize(), ""))
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.10g}" if isinstance(value, float) else str(value)
    return label, shown, meaning
