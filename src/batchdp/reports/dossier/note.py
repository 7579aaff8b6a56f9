"""The note for data users: what the numbers are, how wide, how to add and compare them, and what not to do."""

from __future__ import annotations

import math

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import CALLER, EVERY_ROW
from batchdp.release.exports import derived_in
from batchdp.reports.dossier.about import About
from batchdp.reports.dossier.document import Block, Bullets, Code, Document, Grid, Picture, Section
from batchdp.reports.dossier.facts import Facts
from batchdp.reports.matrices import counts_among
from batchdp.reports.rendering import rounded_up, significant

CHECKED, DECLARED, OPEN = "checked by the tool", "declared by the custodian", "open"
COMPOSITION = "composition.svg"
"""The picture of what the ledger's releases amount to."""
MOST_SPENDS = 100


Item = tuple[str, str, str]
"""One question of the guidelines, how it stands, and the figure or the words for it."""


def items(facts: Facts, about: About) -> tuple[Item, ...]:
    """Every question, in the order of the guidelines: guarantee, algorithm, deployment."""
    c, said = facts.certificate, about["checklist"]
    counted = " ".join(facts.release.notes) or "every row, as it is"
    return (
        _unit(facts, about),
        ("What do neighbouring tables differ by?", DECLARED, f"{c.neighbours}; enforced by the tool"),
        ("What is counted?", OPEN if facts.release.counted is None else CHECKED, counted),
        ("Which parameters?", CHECKED, _parameters(facts)),
        ("Is the loss within the budget?", CHECKED, facts.loss),
        _composition(facts, about),
        ("Which mechanism?", CHECKED, facts.noise_drawn),
        ("Is the sensitivity right?", CHECKED, facts.sensitivity),
        ("Floating point?", CHECKED, facts.lattice),
        ("How accurate is it?", CHECKED, _accuracy(facts)),
        (
            "Is what is measured chosen without the data?",
            CHECKED,
            f"what is measured follows from queries, domain and budget alone; fingerprint of it: {c.plan_digest}",
        ),
        _asked("Was anything chosen by looking at the data?", about["dp_variant"]["unprotected_quantities"]),
        _asked(
            "How was the table prepared, how were parameters tuned?",
            about["implementation"]["preprocessing_and_hyperparameter_tuning"],
        ),
        _asked("Whom must one trust?", about["deployment_model"]["actors"]),
        _asked("Side channels, such as the time that answering took?", said["side_channels"]),
        _asked("How are the data collected, and who sees them as they are?", said["data_collection"]),
        _asked("Who has access to the table, the ledger and the machine?", said["access"]),
        _asked("Who approved the release?", said["review"]),
    )


def checklist(facts: Facts, about: About) -> Document:
    """The checklist as a document."""
    found = items(facts, about)
    states = [state for _, state, _ in found]
    counts = ", ".join(f"{states.count(state)} {state}" for state in (CHECKED, DECLARED, OPEN))
    sections = [Section("Questions", (Grid(("question", "state", "what is known"), found, texts=3),))]
    if facts.books is not None:
        sections.append(Section("All releases in the ledger", tuple(_together(facts))))
    return Document(
        title="Checklist along NIST SP 800-226",
        lead=f"Release {facts.certificate.release_id} of table {facts.certificate.table}: {counts}.",
        sections=tuple(sections),
        made_by=f"Written by batchdp {facts.versions['batchdp']}.",
    )


def _asked(question: str, answer: str) -> Item:
    return (question, DECLARED if answer else OPEN, answer or "nobody has said; see ABOUT.toml")


def _unit(facts: Facts, about: About) -> Item:
    """Who is a person is declared, if anything is: the tool caps the rows of a value, and cannot see whose it is."""
    unit, said = facts.certificate.privacy_unit, about["privacy_loss"]["privacy_unit_details"]
    question = "Whose privacy is protected?"
    if unit == EVERY_ROW or unit.startswith(CALLER):
        return (question, DECLARED if said else OPEN, f"{unit}; {said or 'who stands behind a row nobody has said'}")
    capped = "the tool caps the rows of each value, and does not know whether a person has several values"
    return (question, DECLARED, f"{facts.whose}; {capped}" + (f"; {said}" if said else ""))


def _parameters(facts: Facts) -> str:
    same = "; ".join(f"ε = {rounded_up(epsilon):.4f} at δ = {delta:g}" for epsilon, delta in facts.epsilons)
    return facts.strength + (", pure: δ is 0" if facts.noise.is_pure else f", which implies {same}")


def _composition(facts: Facts, about: About) -> Item:
    question, said = "What do all releases that this ledger knows add up to?", about["accounting"]["composition"]
    if facts.books is None:
        return (question, DECLARED if said else OPEN, said or "not checked against a ledger")
    return (question, CHECKED, f"{facts.spent}; head {facts.books.head}" + (f"; {said}" if said else ""))


def _accuracy(facts: Facts) -> str:
    known = [table for table in facts.tables if not math.isnan(table.least_error)]
    if not known:  # quantiles alone
        return f"intervals at {facts.confidence}, of the noise, around {facts.intervals:,} answers"
    least, largest = min(table.least_error for table in known), max(table.largest_error for table in known)
    mixed = bool(facts.derived) or not counts_among(facts.release).all()
    without = ", where they have one" * (len(known) < len(facts.tables))
    units = ", each in its own unit; note.md has every table's" * mixed
    return f"standard errors of the noise from {least:g} to {largest:g}, of {facts.answers:,} answers{without}{units}"


def _together(facts: Facts) -> list[Block]:
    books = facts.books
    assert books is not None
    *each, every = [(one.name, f"{rounded_up(one.epsilons[3]):.4f}") for one in facts.curves] or [("", "")]
    at = dict(each)  # at the fourth δ of the curves, 10⁻⁶
    rows = tuple(
        (one.release_id, one.table, one.time[:19], one.state, f"{one.charged:g}", at.get(one.release_id, ""))
        for one in books.entries[-MOST_SPENDS:]
    )
    blocks: list[Block] = [
        f"The ledger that this release was charged to: {facts.spent}. Spends that were interrupted count as well.",
        Grid(("release", "table", "when (UTC)", "state", books.letter, "ε at δ = 1e-06"), rows, texts=4),
    ]
    if len(books.entries) > MOST_SPENDS:
        blocks.append(f"The latest {MOST_SPENDS:,} of {len(books.entries):,} are listed.")
    if facts.curves:
        blocks.append(f"Together they are (ε, δ)-differentially private with ε = {every[1]} at δ = 1e-06.")
        blocks.append(Picture(COMPOSITION, "The ε of each release and of all together, by δ"))
    return blocks


MOST_TABLES = 50
SLIGHT = 1e-3
"""A correlation that shows in no figure."""
FIRST = 40
"""Answers of a table among which two are looked for that share noise."""
COVARIANCE = "covariance.csv"
EXAMPLE = """\
import batchdp

release = batchdp.load_release("answers.release")
C = release.covariance                         # a row and a column for each of them
i, j = {i}, {j}
print((C[i, i] + C[j, j] + 2 * C[i, j]) ** 0.5)  # standard error of answer i + answer j
print((C[i, i] + C[j, j] - 2 * C[i, j]) ** 0.5)  # standard error of answer i - answer j
"""


ESTIMATES = (
    "No value in the tables is smoothed or shrunk. From answers.release anybody can compute denoised ones without any "
    "budget (batchdp export answers.release --denoised): estimates whose errors are smaller on average, by as much as "
    "their notes estimate. They are biased and have no interval of their own. Do not use them for rare cells or few "
    "records, and never with the standard errors and intervals here, which belong to the raw values."
)


def note(facts: Facts, about: About) -> Document:
    """The note as a document."""
    c = facts.certificate
    name = about["basic"]["name"] or f"Table {c.table}"
    return Document(
        title=f"{name}: how to use these numbers",
        lead=(
            f"{facts.answers:,} answers in {len(facts.tables):,} tables. They are counts and sums with noise"
            f"{', or computed from such' if facts.derived else ''}, which limits what the numbers tell about any one "
            f"unit: {facts.whose}."
        ),
        sections=(
            Section("What the numbers are", _what(facts, about)),
            *([Section("What is counted", (Bullets(facts.release.notes),))] if facts.release.notes else []),
            Section("How wide they are", tuple(_width(facts))),
            Section("How to add and compare them", tuple(_adding(facts))),
            Section("Estimates with smaller errors", (ESTIMATES,)),
            Section("What not to do", (_never(facts),)),
            Section("Where the rest is", (_files(facts),)),
        ),
        made_by=f"Written by batchdp {facts.versions['batchdp']}; release {c.release_id}.",
    )


def _what(facts: Facts, about: About) -> tuple[Block, ...]:
    c = facts.certificate
    kind = "pure differential privacy" if facts.noise.is_pure else "zero-concentrated differential privacy"
    said = tuple(one for one in (about["basic"]["description"], about["basic"]["intended_use"]) if one)
    computed = (
        f"{facts.derived:,} of the answers are derived: averages, shares or quantiles that were computed from private "
        "counts and sums, which costs no privacy. Their intervals take the noise of all of these into account, and "
        "their standard errors are approximations, of which quantiles have none. They are not unbiased. Where the "
        "size of a group cannot be told from 0 they are not determined, and their fields are empty.",
    )
    together = (
        f"It was combined from {len(facts.parts)} releases about the same records, by least squares over all that was "
        f"measured, which costs no privacy beyond theirs: {'; '.join(facts.parts)}.",
    ) * bool(facts.parts)
    return (
        *said,
        *(computed if facts.derived else ()),
        *together,
        f"The release has {kind} with {facts.strength}. It compares any two tables that differ by {c.neighbours}; "
        f"whose privacy: {facts.whose}.",
        f"{'A count or sum' if facts.derived else 'Every value'} is what is counted plus noise whose law is known. The "
        "noise is as likely to be above as below 0, so that on average it adds nothing; the lattice that it is drawn "
        "on moves a value by less than 1 % of its standard error. No count or sum was rounded to a whole number or cut "
        "off at 0, so that a count can be negative or a fraction; that is not an error, and cutting off would make "
        "sums too large.",
    )


def _width(facts: Facts) -> list[Block]:
    rows = tuple(
        (
            f"{one.title}{' (derived)' * one.derived}",
            f"{one.rows:,}",
            *(_figure(figure) for figure in (one.typical_error, one.largest_error, one.typical_margin)),
        )
        for one in facts.tables[:MOST_TABLES]
    )
    headings = ("table", "answers", "typical standard error", "largest standard error")
    missed = (1 - facts.release.confidence) * facts.intervals
    blocks: list[Block] = [
        "The columns low and high are an interval that holds what the answer is without noise with "
        f"{facts.confidence} confidence, one answer at a time: of {facts.intervals:,} intervals "
        f"at most about {missed:.2g} can be expected to miss."
        + " They cover the noise and not the rules above."
        * bool(facts.release.notes),
        Grid((*headings, f"half of a typical {facts.confidence} interval"), rows),
    ]
    if len(facts.tables) > MOST_TABLES:
        blocks.append(f"The first {MOST_TABLES:,} of {len(facts.tables):,} tables; datapackage.json has all.")
    return blocks


def _figure(figure: float) -> str:
    return "" if math.isnan(figure) else significant(figure)


def _adding(facts: Facts) -> list[Block]:
    blocks: list[Block] = [
        "Answers of this release may share their noise. The standard error of a sum or a difference is then not the "
        "root of the sum of squares: it needs the covariance of the answers."
    ]
    (i, j), example = _example(facts)
    if example:
        blocks.append(example)
        which = "answer that is not derived" if facts.derived else "answer"
        blocks.append(f"All covariances are in {COVARIANCE}, one row and one column for each {which}.")
    if facts.covariance is not None:
        blocks.append(Code(EXAMPLE.format(i=i, j=j)))
        if facts.derived:
            blocks.append(
                "Derived answers have no covariances here: a sum or difference of two is best asked for as an answer "
                "of its own."
            )
    elif facts.derived == facts.answers:
        blocks.append("All answers are derived; none of them may be added up.")
    else:
        blocks.append(
            "There are too many answers for a list of all covariances. Where a sum of answers is itself an answer of a "
            "coarser table, take that one; it is more accurate than adding up."
        )
    blocks.append(
        "A difference of two answers of less than twice its standard error may well be noise alone. Among many "
        "pairs some will differ by more than that by chance."
    )
    return blocks


def _example(facts: Facts) -> tuple[tuple[int, int], str]:
    """Two answers of a table by their places, those that share most of their noise, added and compared."""
    C = facts.covariance
    if C is None:
        return (0, 1), ""
    found = [(own, number) for number in range(len(facts.tables)) if (own := _places(facts, number)) is not None]
    if not found:
        return (0, 1), ""
    (i, j), number = max(found, key=lambda one: round(shared_noise(C, *one[0]), 3))
    a, b, both = float(C[i, i]), float(C[j, j]), float(C[i, j])
    some = " that are not derived" if derived_in(facts.release, number) else ""
    none = ", which share none," * (shared_noise(C, i, j) < SLIGHT)
    return (i, j), (
        f"For example two answers{some} of the table {facts.tables[number].title}{none or ','} those in the rows "
        f"{i + 1} and {j + 1} of {COVARIANCE}: their standard errors are {significant(math.sqrt(a))} and "
        f"{significant(math.sqrt(b))}; that of their sum is {significant(math.sqrt(max(0.0, a + b + 2 * both)))}, that "
        f"of their difference {significant(math.sqrt(max(0.0, a + b - 2 * both)))}."
    )


def shared_noise(C: Dense, i: int, j: int) -> float:
    """How far the noise of two answers goes together: the correlation, whatever its sign."""
    both = math.sqrt(C[i, i] * C[j, j])
    return abs(float(C[i, j])) / both if both > 0 else 0.0


def _places(facts: Facts, number: int) -> tuple[int, int] | None:
    """Which linear answers two of a table are, if it has two: among its first ones, those that share most noise."""
    release, C = facts.release, facts.covariance
    linear = np.flatnonzero(~release.is_derived).tolist()
    own = [linear.index(q) for q in release.tables[number].answers if q in linear][:FIRST]
    if len(own) < 2 or C is None:
        return None
    errors = np.sqrt(np.diag(C)[own])
    shared = np.triu(np.abs(C[np.ix_(own, own)]) / np.outer(errors, errors), 1)
    i, j = divmod(int(np.argmax(np.round(shared, 6))), len(own))
    return (own[i], own[j]) if j > i else (own[0], own[1])


def _never(facts: Facts) -> Bullets:
    return Bullets(
        (
            "Do not set negative values to 0 before adding or averaging: that makes sums too large.",
            "Do not leave out small values, or those whose interval holds 0: the rest would be too large on average.",
            "Do not read a value without its interval, and do not rank values whose intervals overlap.",
            "Do not treat the noise of different answers as independent: use the covariances, where there are any.",
            f"Do not expect every interval to hold: {facts.confidence} of them are meant to.",
            "Do not take a value of 0, or near 0, as proof that nobody is there, nor a positive one as proof that "
            "somebody is.",
            "Do not try to find out about single persons, whether from these numbers alone or with other sources.",
        )
    )


def _files(facts: Facts) -> Bullets:
    which = "answer that is not derived" if facts.derived else "answer"
    covariance = (f"{COVARIANCE}: the covariances of every {which}.",) if facts.covariance is not None else ()
    return Bullets(
        (
            "tables: one file per table, with its group columns, value, standard_error, low and high.",
            "datapackage.json: what every column of every table is, for programs (Frictionless Table Schema).",
            *covariance,
            "answers.release: measurements, answers and certificate, for batchdp; batchdp verify on this folder, with "
            "--ledger, computes again what follows from the measurements.",
            "checklist.md: what was checked, what is declared, what is open.",
            "evidence.json: certificate, digests, versions.",
        )
    )
