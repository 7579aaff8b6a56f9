"""The guarantee in plain words: what is promised, to whom, and what is not."""

from __future__ import annotations

import math

from markupsafe import Markup

from batchdp.markup import render
from batchdp.mechanism.measurement import EVERY_ROW, describe_neighbours
from batchdp.release import Release

DELTAS = (1e-5, 1e-6, 1e-9)


def guarantee(release: Release) -> str:
    """One sentence for the head of the page."""
    c = release.certificate
    strength = c.strength if c.noise.is_pure else f"{c.strength} (zCDP)"
    return (
        "The answers carry random noise, which limits what the page tells about any one person. "
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
        "belief": f"one person’s {one} one thing or another"
        if neighbours.startswith("replac")
        else "one person is in the table or not",
    }


def _concentrated(release: Release) -> dict[str, object]:
    epsilons = [release.epsilon_at(delta) for delta in DELTAS]
    rows = zip(DELTAS, epsilons, strict=True)
    return {"deltas": [(f"{delta:g}", f"{epsilon:.3f}", _factor(epsilon)) for delta, epsilon in rows]}


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):,.3g}" if epsilon < 7 else f"{math.exp(min(epsilon, 700)):.2e}"
