"""The checklist along NIST SP 800-226: what the tool checked, what the custodian declares, what is open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from batchdp.mechanism.measurement import CALLER, EVERY_ROW
from batchdp.publishing.about import About
from batchdp.publishing.document import Block, Document, Grid, Picture, Section
from batchdp.publishing.facts import Facts

State = Literal["checked by the tool", "declared by the custodian", "open"]
CHECKED: State = "checked by the tool"
DECLARED: State = "declared by the custodian"
OPEN: State = "open"
COMPOSITION = "composition.svg"
"""The picture of what the ledger's releases amount to."""
MOST_SPENDS = 100


@dataclass(frozen=True)
class Item:
    """One question of the guidelines, how it stands, and the figure or the words for it."""

    question: str
    state: State
    known: str


def items(facts: Facts, about: About) -> tuple[Item, ...]:
    """Every question, in the order of the guidelines: guarantee, algorithm, deployment."""
    c, said = facts.certificate, about.checklist
    return (
        _unit(facts, about),
        Item("What do neighbouring tables differ by?", CHECKED, c.neighbours),
        Item("What is counted?", CHECKED if facts.release.counted is not None else OPEN, facts.counted),
        Item("Which parameters?", CHECKED, _parameters(facts)),
        Item("Is the loss within the budget?", CHECKED, facts.loss),
        _composition(facts, about),
        Item("Which mechanism?", CHECKED, facts.noise_drawn),
        Item("Is the sensitivity right?", CHECKED, facts.sensitivity),
        Item("Floating point?", CHECKED, facts.lattice),
        Item("How accurate is it?", CHECKED, _accuracy(facts)),
        Item(
            "Is what is measured chosen without the data?",
            CHECKED,
            f"what is measured follows from queries and domain alone, SHA-256 of the plan {c.plan_digest}",
        ),
        _asked("Was anything chosen by looking at the data?", about.dp_variant.unprotected_quantities),
        _asked(
            "How was the table prepared, how were parameters tuned?",
            about.implementation.preprocessing_and_hyperparameter_tuning,
        ),
        _asked("Whom must one trust?", about.deployment_model.actors),
        _asked("Side channels, such as the time that answering took?", said.side_channels),
        _asked("How are the data collected, and who sees them as they are?", said.data_collection),
        _asked("Who has access to the table, the ledger and the machine?", said.access),
        _asked("Who approved the release?", said.review),
    )


def checklist(facts: Facts, about: About) -> Document:
    """The checklist as a document."""
    found = items(facts, about)
    counts = ", ".join(f"{sum(one.state == state for one in found)} {state}" for state in (CHECKED, DECLARED, OPEN))
    rows = tuple((one.question, one.state, one.known) for one in found)
    sections = [Section("Questions", (Grid(("question", "state", "what is known"), rows, texts=3),))]
    if facts.books is not None:
        sections.append(Section("All releases in the ledger", tuple(_together(facts))))
    return Document(
        title="Checklist along NIST SP 800-226",
        lead=f"Release {facts.certificate.release_id} of table {facts.certificate.table}: {counts}.",
        sections=tuple(sections),
        made_by=f"Written by batchdp {facts.versions['batchdp']}.",
    )


def _asked(question: str, answer: str) -> Item:
    return Item(question, DECLARED if answer else OPEN, answer or "nobody has said; see ABOUT.toml")


def _unit(facts: Facts, about: About) -> Item:
    """Who is a person is declared, if anything is: the tool caps the rows of a value, and cannot see whose it is."""
    unit, said = facts.certificate.privacy_unit, about.privacy_loss.privacy_unit_details
    question = "Whose privacy is protected?"
    if unit == EVERY_ROW or unit.startswith(CALLER):
        return Item(
            question, DECLARED if said else OPEN, f"{unit}; {said or 'who stands behind a row nobody has said'}"
        )
    capped = "the tool caps the rows of each value, and does not know whether a person has several values"
    return Item(question, DECLARED, f"{facts.whose}; {capped}" + (f"; {said}" if said else ""))


def _parameters(facts: Facts) -> str:
    same = "; ".join(f"ε = {epsilon:.4f} at δ = {delta:g}" for epsilon, delta in facts.epsilons)
    return facts.strength + (", pure: δ is 0" if facts.noise.is_pure else f", which implies {same}")


def _composition(facts: Facts, about: About) -> Item:
    question, said = "What do all releases that this ledger knows add up to?", about.accounting.composition
    if facts.books is None:
        return Item(question, DECLARED if said else OPEN, said or "not checked against a ledger")
    return Item(question, CHECKED, f"{facts.spent}; head {facts.books.head}" + (f"; {said}" if said else ""))


def _accuracy(facts: Facts) -> str:
    known = [table for table in facts.tables if not math.isnan(table.least_error)]
    if not known:  # quantiles alone
        return f"intervals at {facts.confidence}, of the noise, around {facts.intervals:,} answers"
    least, largest = min(table.least_error for table in known), max(table.largest_error for table in known)
    without = ", where they have one" * (len(known) < len(facts.tables))
    units = ", each in its own unit; note.md has every table's" * facts.mixed
    return f"standard errors of the noise from {least:g} to {largest:g}, of {facts.answers:,} answers{without}{units}"


def _together(facts: Facts) -> list[Block]:
    books = facts.books
    assert books is not None
    shown = books.entries[-MOST_SPENDS:]
    rows = tuple(
        (one.release_id, one.table, one.time[:19], one.state, f"{one.charged:g}", _own(facts, one.release_id))
        for one in shown
    )
    blocks: list[Block] = [
        f"The ledger that this release was charged to: {facts.spent}. Spends that were interrupted count as well.",
        Grid(("release", "table", "when (UTC)", "state", books.noise.letter, "ε at δ = 1e-06"), rows, texts=4),
    ]
    if len(books.entries) > MOST_SPENDS:
        blocks.append(f"The latest {MOST_SPENDS:,} of {len(books.entries):,} are listed.")
    if facts.curves:
        every = facts.curves[-1]
        blocks.append(
            f"Together they are (ε, δ)-differentially private with ε = {_at(every.epsilons):.4f} at δ = 1e-06."
        )
        blocks.append(Picture(COMPOSITION, "The ε of each release and of all together, for every δ"))
    return blocks


def _own(facts: Facts, release_id: str) -> str:
    found = next((one for one in facts.curves[:-1] if one.name == release_id), None)
    return "" if found is None else f"{_at(found.epsilons):.4f}"


def _at(epsilons: tuple[float, ...]) -> float:
    """At δ = 10⁻⁶, the fourth of the curves' δ."""
    return epsilons[3]
