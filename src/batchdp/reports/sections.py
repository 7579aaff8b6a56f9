"""Sections of the page: budget, certificate, rules of counting, guarantee, and methods, each with its residual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import accumulate
from typing import Protocol

from markupsafe import Markup

from batchdp.ledger import Ledger
from batchdp.mechanism.conversion import describe_charges
from batchdp.mechanism.measurement import EVERY_ROW, describe_neighbours
from batchdp.privacy import LETTERS, Budget
from batchdp.release import Release
from batchdp.release.certificate import CertifiedGroup, PrivacyCertificate
from batchdp.reports.rendering import render, rounded_up

MOST_ROWS = 100


def budget_section(ledger: Ledger, release_id: str) -> Markup:
    """What was spent on what, and what is left."""
    now = ledger.standing()
    spends, total = now.entries, now.total
    skipped = max(0, len(spends) - MOST_ROWS)
    starts = list(accumulate((one.charged for one in spends), initial=0.0))
    return render(
        "reports/budget.html",
        ledger=ledger,
        unit=LETTERS[now.unit],
        total=total,
        spent=now.spent,
        remaining=now.remaining,
        promise=None if ledger.delta is None else now.promise,
        spends=len(spends),
        this=release_id,
        known=any(one.release_id == release_id for one in spends),
        skipped=skipped,
        skipped_charge=starts[skipped],
        rows=list(zip(spends, starts, strict=False))[skipped:],
        end=starts[-1],
    )


def budget_left(ledger: Ledger | None) -> list[tuple[str, str, str]]:
    """What a page says at its head of the ledger that is given with it."""
    if ledger is None:
        return []
    now = ledger.standing()
    kept = "in the ledger" if ledger.delta is None else f"in a ledger of {now.promise}"
    return [("Budget left", f"{LETTERS[now.unit]} = {now.remaining:g}", f"of {now.total:g} {kept}")]


MEANINGS = {
    "release_id": ("Release", "asking again with this id returns the same answers"),
    "privacy": ("Kind of privacy", "pure: ε and Laplace noise; zcdp: ρ and Gaussian noise"),
    "budget": ("Budget", "ε or ρ that was charged"),
    "neighbours": ("Neighbours", "what two tables that must not be told apart differ by"),
    "privacy_unit": ("Privacy unit", "whose privacy: the column with one value per unit, or what is said instead"),
    "shape": ("Shape of the noise", "measurements that share a body, the hull of ± their columns, and its share of ε"),
    "distribution": ("Noise", "the distribution that it was drawn from, discrete or rounded to whole numbers"),
    "loss": ("Privacy loss", "what all groups of measurements lose together; at most the budget"),
    "largest_total": ("Cap on records", "public; with more, answers stay private but may be far off"),
    "bias_share": ("Bias", "the most that the lattice moves any count or sum, as a share of its standard error"),
    "measurements": ("Measurements", "noisy whole numbers that all answers are read from"),
    "groups": ("Groups", "measurements that were drawn with one noise each; SHA-256 of the list of them"),
    "plan_digest": (
        "Plan digest",
        "fingerprint of what is asked and measured, on which lattice and for at most how many records; not of the data",
    ),
    "table": ("Table", "what the ledger calls the data"),
    "snapshot": ("Snapshot", "which state of the table was counted"),
    "ledger_head": ("Ledger head", "the ledger’s hash right after the charge; ledger.verify looks for it"),
    "opendp": ("OpenDP", "version of the library that drew the noise"),
    "derived": ("Derived answers", "computed from noisy counts and sums of this release, at no cost of privacy"),
}


def certificate_section(certificate: PrivacyCertificate) -> Markup:
    """Every field, also those that this page does not know by name; of many groups a summary."""
    values = {field.name: getattr(certificate, field.name) for field in fields(certificate)}
    values = {name: value for name, value in values.items() if value or name not in ("shape", "snapshot")}
    values["groups"] = f"{len(certificate.groups):,}; {certificate.groups_digest}"
    listed = _by_columns(certificate)
    rows = [_group_row(name, value) for name, value in values.items()]
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


def _group_row(name: str, value: object) -> tuple[str, str, str]:
    label, meaning = MEANINGS.get(name, (name.replace("_", " ").capitalize(), ""))
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.10g}" if isinstance(value, float) else str(value)
    return label, shown, meaning


def counted_section(sentences: Sequence[str]) -> Markup | None:
    """The rules, a point each; None where there are none."""
    return render("reports/counted.html", sentences=sentences) if sentences else None


DELTAS = (1e-5, 1e-6, 1e-9)


def guarantee(release: Release) -> str:
    """One sentence for the head of the page."""
    c = release.certificate
    whose = describe_neighbours(c.privacy_unit)
    strength = c.strength if c.noise.is_pure else f"{c.strength} (zCDP)"
    return (
        f"The answers carry random noise, which limits what the page tells about any one unit: {whose}. "
        f"Differentially private with {strength}; the exact counts appear nowhere."
    )


def privacy_section(release: Release) -> Markup:
    """What is promised, for whom, in numbers, and what is not promised."""
    c = release.certificate
    pure = c.noise.is_pure
    return render(
        "reports/privacy.html",
        **(_pure(release) if pure else _concentrated(release)),
        budget=c.budget,
        neighbours=c.neighbours,
        every_row=c.privacy_unit == EVERY_ROW,
        whose=describe_neighbours(c.privacy_unit),
        capped=release.counted is not None and release.counted.unit is not None,
        growth="k times ε" if pure else "k² times ρ",
        beside=describe_charges(Budget(c.noise, c.budget), 1e-6, c.least_scale),
    )


def _pure(release: Release) -> dict[str, object]:
    epsilon = release.certificate.budget
    sure = math.ceil(1e4 / (1 + math.exp(-epsilon))) / 100
    neighbours = release.certificate.neighbours
    one = "record is" if neighbours.endswith(" 1 row") else "rows are"
    return {
        "deltas": (),
        "factor": _factor(epsilon),
        "certainty": f"{sure:g} % sure" if sure < 100 else "as good as certain",
        "belief": f"one unit’s {one} one thing or another"
        if neighbours.startswith("replac")
        else "one unit is in the table or not",
    }


def _concentrated(release: Release) -> dict[str, object]:
    epsilons = [release.epsilon_at(delta) for delta in DELTAS]
    rows = zip(DELTAS, epsilons, strict=True)
    return {"deltas": [(f"{delta:g}", f"{rounded_up(epsilon, 3):.3f}", _factor(epsilon)) for delta, epsilon in rows]}


def _factor(epsilon: float) -> str:
    """e^ε with three digits, rounded up."""
    factor = math.exp(min(epsilon, 700))
    step = 10.0 ** (math.floor(math.log10(factor)) - 2)
    shown = math.ceil(factor / step - 1e-9) * step
    return f"{shown:,.3g}" if epsilon < 7 else f"{shown:.2e}"


class Compared(Protocol):
    """A method's figures; the rows of `batchdp.plans.comparison` are such."""

    @property
    def name(self) -> str:
        """The name of the method."""

    @property
    def expected_squared_error(self) -> float:
        """The total over all queries at ε = 1."""

    @property
    def residual(self) -> float:
        """‖W − B L‖_F / ‖W‖_F: how far the method is from answering what was asked."""


def methods_section(methods: Sequence[Compared], lower_bound: float | None) -> Markup | None:
    """A bar chart, the best first; None if there is nothing to compare."""
    kept = sorted(
        (one for one in methods if math.isfinite(one.expected_squared_error) and math.isfinite(one.residual)),
        key=lambda one: one.expected_squared_error,
    )
    if not kept:
        return None
    least = kept[0].expected_squared_error
    longest = max(kept[-1].expected_squared_error, lower_bound or 0.0) or 1.0
    bound = lower_bound if lower_bound is not None and math.isfinite(lower_bound) else None
    return render("reports/methods.html", bound=bound, rows=kept, least=least, longest=longest)
