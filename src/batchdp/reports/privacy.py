"""The guarantee in plain words: what is promised, to whom, and what is not."""

from __future__ import annotations

import math

from batchdp.markup import escaped, isolated
from batchdp.measuring.neighbours import EVERY_ROW, NOT_RECORDED, in_words
from batchdp.privacy import LAPLACE
from batchdp.release import Release

DELTAS = (1e-5, 1e-6, 1e-9)


def guarantee(release: Release) -> str:
    """One sentence for the head of the page."""
    c = release.certificate
    strength = c.strength if c.noise == LAPLACE else f"{c.strength} (zCDP)"
    return (
        "Every answer carries random noise, so that the page tells hardly anything about any one person. "
        f"Differentially private with {strength}; the exact counts appear nowhere."
    )


def privacy_section(release: Release) -> str:
    """What is promised, for whom, in numbers, and what is not promised."""
    c = release.certificate
    pure = c.noise == LAPLACE
    return f"""
<h2>What is guaranteed</h2>
<div class="columns">
<div>
<h3>The promise</h3>
{_pure(release) if pure else _concentrated(release)}
<h3>For whom</h3>
<p>The promise compares any two tables that differ by <em>{escaped(c.neighbours)}</em>. {_whose(c.privacy_unit)}</p>
</div>
<div>
<h3>What is not promised</h3>
<ul>
<li>Facts about groups are not hidden: they are what the answers are for, and they hold with or without any one
person.</li>
<li>{_groups(pure)}</li>
<li>Other releases about the same people add up with this one. The ledger counts those that were charged to it, and no
others.</li>
<li>Whoever can read the table, or the memory of the program that answered, can read the counts. How long the answers
took is not hidden.</li>
<li>Choices that were made by looking at the data, such as the ranges of columns or the cap on rows, are not
covered.</li>
</ul>
</div>
</div>"""


def _pure(release: Release) -> str:
    epsilon = release.certificate.budget
    factor, sure = _factor(epsilon), math.ceil(1e4 / (1 + math.exp(-epsilon))) / 100
    certainty = f"{sure:g} % sure" if sure < 100 else "as good as certain"
    belief = (
        "one person’s record is one thing or another" if _replaces(release) else "one person is in the table or not"
    )
    return f"""<p>The answers are <strong>ε-differentially private with ε = {epsilon:g}</strong>. Whatever a reader
knows already, and whatever the data are, one unit changes the probability of any set of answers by a factor of at most
e<sup>ε</sup> ≈ {factor}.</p>
<p>Put differently: whoever held it equally likely that {belief} can be at most
<strong>{certainty}</strong> after reading the answers.</p>"""


def _concentrated(release: Release) -> str:
    rows = "".join(
        f'<tr><th scope="row">{delta:g}</th><td>{epsilon:.3f}</td><td>{_factor(epsilon)}</td></tr>'
        for delta, epsilon in ((delta, release.epsilon_at(delta)) for delta in DELTAS)
    )
    return f"""<p>The answers are <strong>ρ-zero-concentrated differentially private with
ρ = {release.certificate.budget:g}</strong>. Read as (ε, δ)-differential privacy: whatever a reader knows already, and
whatever the data are, one unit changes the probability of any set of answers by a factor of at most e<sup>ε</sup>, and
by δ beyond that.</p>
<div class="box"><table class="small"><caption>The same promise as (ε, δ)</caption>
<thead><tr><th scope="col">δ</th><th scope="col">ε</th><th scope="col">factor e<sup>ε</sup></th></tr></thead>
<tbody>{rows}</tbody></table></div>"""


def _whose(privacy_unit: str) -> str:
    if privacy_unit == EVERY_ROW:
        return "The unit: <strong>every row is a person</strong>. Who has several rows is protected less."
    if privacy_unit == NOT_RECORDED:
        return "Which unit was protected is <strong>not recorded</strong>: the release was made by an older version."
    return f"The unit: <strong>{isolated(in_words(privacy_unit))}</strong>."


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):,.3g}" if epsilon < 7 else f"{math.exp(min(epsilon, 700)):.2e}"


def _replaces(release: Release) -> bool:
    return release.certificate.neighbours.startswith("replac")


def _groups(pure: bool) -> str:
    growth = "k times ε" if pure else "k² times ρ"
    return f"A family or another group is protected less than one person: for k of them together, {growth} holds."
