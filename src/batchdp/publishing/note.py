"""The note for data users: what the numbers are, how wide, how to add and compare them, and what not to do."""

from __future__ import annotations

import math

import numpy as np

from batchdp.publishing.about import About
from batchdp.publishing.document import Block, Bullets, Code, Document, Grid, Section
from batchdp.publishing.facts import Facts
from batchdp.release.exporting import derived_in
from batchdp.reports.figures import significant

MOST_TABLES = 50
COVARIANCE = "covariance.csv"
EXAMPLE = """\
import batchdp

release = batchdp.load_release("answers.release")
C = release.covariance                         # a row and a column for each of them
i, j = 0, 1
print((C[i, i] + C[j, j] + 2 * C[i, j]) ** 0.5)  # standard error of answer i + answer j
print((C[i, i] + C[j, j] - 2 * C[i, j]) ** 0.5)  # standard error of answer i - answer j
"""


def note(facts: Facts, about: About) -> Document:
    """The note as a document."""
    c = facts.certificate
    name = about.basic.name or f"Table {c.table}"
    return Document(
        title=f"{name}: how to use these numbers",
        lead=(
            f"{facts.answers:,} answers in {len(facts.tables):,} tables. They are counts and sums with noise"
            f"{', or computed from such' if facts.derived else ''}, which limits what the numbers tell about any one "
            "person."
        ),
        sections=(
            Section("What the numbers are", _what(facts, about)),
            *([Section("What is counted", (Bullets(facts.release.notes),))] if facts.release.notes else []),
            Section("How wide they are", tuple(_width(facts))),
            Section("How to add and compare them", tuple(_adding(facts))),
            Section("What not to do", (_never(facts),)),
            Section("Where the rest is", (_files(facts),)),
        ),
        made_by=f"Written by batchdp {facts.versions['batchdp']}; release {c.release_id}.",
    )


def _what(facts: Facts, about: About) -> tuple[Block, ...]:
    c = facts.certificate
    kind = "pure differential privacy" if facts.noise.is_pure else "zero-concentrated differential privacy"
    said = tuple(one for one in (about.basic.description, about.basic.intended_use) if one)
    computed = (
        f"{facts.derived:,} of the answers are derived: averages, shares or quantiles that were computed from private "
        "counts and sums, which costs no privacy. Their intervals take the noise of all of these into account, and "
        "their standard errors are approximations. They are not unbiased. Where the size of a group cannot be told "
        "from 0 they are not determined, and their fields are empty.",
    )
    return (
        *said,
        *(computed if facts.derived else ()),
        f"The release has {kind} with {facts.strength}. It compares any two tables that differ by {c.neighbours}; "
        f"whose privacy: {facts.whose}.",
        f"{'A count or sum' if facts.derived else 'Every value'} is what is counted plus noise whose law is known. The "
        "noise is as likely to be above as below 0, so that on average it adds nothing; the lattice that it is drawn "
        "on moves a value by less than 1 % of its standard error. No count or sum was rounded to a whole number or cut "
        "off at 0, so that a count can be negative or a fraction; that is no error, and cutting off would make sums "
        "too large.",
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
        "root of the sum of squares: it needs the covariance of the answers.",
    ]
    if (example := _example(facts)) is not None:
        blocks.append(example)
        blocks.append(f"All covariances are in {COVARIANCE}, one row and one column for each {_added(facts)}.")
    if facts.covariance is not None:
        blocks.append(Code(EXAMPLE))
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
        "A difference of two answers of less than twice its standard error may well be noise alone. Who compares many "
        "pairs will find some such differences by chance."
    )
    return blocks


def _example(facts: Facts) -> str | None:
    """The first two answers of one table, added and compared."""
    C = facts.covariance
    for number, table in enumerate(facts.tables) if C is not None else ():
        if C is not None and (places := _places(facts, number)) is not None:
            i, j = places
            some = " that are not derived" if derived_in(facts.release, number) else ""
            a, b, both = float(C[i, i]), float(C[j, j]), float(C[i, j])
            return (
                f"For example the first two answers{some} of the table {table.title}: their standard errors are "
                f"{significant(math.sqrt(a))} and {significant(math.sqrt(b))}; that of their sum is "
                f"{significant(math.sqrt(max(0.0, a + b + 2 * both)))}, that of their difference "
                f"{significant(math.sqrt(max(0.0, a + b - 2 * both)))}."
            )
    return None


def _places(facts: Facts, number: int) -> tuple[int, int] | None:
    """Which linear answers the first two of a table are, if it has two: statements may lie across one another."""
    release = facts.release
    linear = np.flatnonzero(~release.is_derived).tolist()
    own = [linear.index(q) for q in release.tables[number].answers if q in linear][:2]
    return (own[0], own[1]) if len(own) == 2 else None


def _added(facts: Facts) -> str:
    """What can be added up."""
    return "answer that is not derived" if facts.derived else "answer"


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
            "Do not try to find out about single persons, also not together with other sources.",
        )
    )


def _files(facts: Facts) -> Bullets:
    covariance = (f"{COVARIANCE}: the covariances of every {_added(facts)}.",) if facts.covariance is not None else ()
    return Bullets(
        (
            "tables: one file a table, with its group columns, value, standard_error, low and high.",
            "datapackage.json: what every column of every file is, for programs (Frictionless Table Schema).",
            *covariance,
            "answers.release: everything, for batchdp; batchdp verify computes it again.",
            "checklist.md: what was checked, what is declared, what is open.",
            "evidence.json: certificate, digests, versions.",
        )
    )
