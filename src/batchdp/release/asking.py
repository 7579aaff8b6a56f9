"""`ask`: more answers from what a release has measured, at no cost; and what the others would cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from batchdp.errors import QueryError, ReleaseError
from batchdp.mechanism.reader import LawReader
from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.making import plan, text_of
from batchdp.plans.source import Source
from batchdp.privacy import Noise
from batchdp.queries.expressions import Asked, parts_of
from batchdp.release.answers import renumber
from batchdp.release.file import Encoded, encode
from batchdp.release.following import follow
from batchdp.release.release import Release
from batchdp.sql.script import Batch, batch_of, read_selections
from batchdp.sql.selections import Selection
from batchdp.workloads.encode.atoms import parts_of as looks_of

if TYPE_CHECKING:
    from batchdp.plans import Plan


TABLES = 200
"""Whose errors are looked at."""


@dataclass(frozen=True)
class Missing:
    """A statement of which something does not follow from what was measured."""

    statement: str
    names: tuple[str, ...]
    """Of the answers that do not follow."""
    columns: tuple[str, ...]
    """That they look at."""

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1:,} more" if len(self.names) > 1 else ""
        looked = " and ".join(self.columns)
        together = f"{looked} together" if len(self.columns) > 1 else looked or "the records"
        return f"{self.names[0]}{more}: what was measured does not tell enough about {together}"


@dataclass(frozen=True, eq=False)
class FreeAnswers(Release):
    """Answers that follow from an earlier release, whose certificate they have, and what does not follow."""

    missing: tuple[Missing, ...] = field(default=(), repr=False)

    typical: float = field(default=1.0, repr=False)
    """The median standard error of the release."""

    def plan_missing(self, *, seconds: float | None = None) -> Plan:
        """A plan for the statements of which something does not follow, with the noise of the release."""
        if not self.missing or self.source is None:
            raise ReleaseError("nothing is missing, so there is nothing to plan")
        return _plan(self.missing, self.source, self.certificate.noise, seconds)

    def cost_missing(self, standard_error: float | None = None, *, seconds: float | None = None) -> float:
        """The ε, or ρ, at which a new release gives what is missing with no larger standard error of counts and sums.

        Args:
            standard_error: the largest that is good enough; the median one of the release if left out.
            seconds: for the search.
        """
        return epsilon_for(self.plan_missing(seconds=seconds), standard_error=standard_error or self.typical)

    def price(self, standard_error: float | None = None) -> str:
        """The same in a sentence."""
        return _priced(self.cost_missing(standard_error), self.certificate.noise, standard_error or self.typical)


def _plan(missing: Sequence[Missing], source: Source, noise: Noise, seconds: float | None = None) -> Plan:
    text = ";\n".join(one.statement for one in missing)
    return plan(text, source.domain, privacy=noise.privacy, seconds=seconds)


def _priced(cost: float, noise: Noise, error: float) -> str:
    return (
        f"A new release of what is missing costs {noise.letter} = {cost:.4g} at standard errors of counts and sums of "
        f"at most {error:.4g}"
    )


def ask(release: Release, sql: str | os.PathLike[str]) -> FreeAnswers:
    """What of some statements follows from the measurements of a release.

    No table is read and nothing is charged: everything is computed from what was released. The answers are the least
    squares of the noisy measurements, with intervals by the law of their noise.

    Args:
        release: what was measured, of a plan.
        sql: SELECT statements over the domain of the release, as a text or the path of a .sql file.
    """
    from batchdp.release.verify import check_release

    source = release.source
    if source is None:
        raise ReleaseError(
            "this release has no domain to ask SQL about: it was made from a strategy, or by an earlier "
            "version; release a plan to ask it more"
        )
    check_release(release)
    text, name = text_of(sql)
    selections = read_selections(text, source.domain, source=name)
    batch = batch_of(selections, batch_of(source.selections).relations)
    read = follow(release.reader, release.noisy, source, batch.queries)
    known = [all(read.follows[part] for part in parts_of(one.of)) for one in batch.asked]
    missing = tuple(_missing(selections, batch, known))
    typical, noise = _typical(release), release.certificate.noise
    if not any(known):
        price = _priced(epsilon_for(_plan(missing, source, noise), standard_error=typical), noise, typical)
        raise QueryError(*(f"{one}; only a new release can answer it" for one in missing), price)
    parts, asked = renumber([one for one, own in zip(batch.asked, known, strict=True) if own])
    law = release.reader.law(sparse.csr_array(read.rows[parts]))
    reader = LawReader(tuple(batch.queries[part].name for part in parts), read.values[parts], law)
    plain = all(one.of == i for i, one in enumerate(asked)) and len(asked) == len(parts)
    derived = sum(one.derived for one in asked)
    return FreeAnswers(
        reader,
        np.zeros(reader.measurements, dtype=np.int64),
        replace(release.certificate, derived=derived),
        confidence=release.confidence,
        asked=() if plain else tuple(asked),
        counted=release.counted,
        views=() if missing else batch.views,
        source=replace(source, sql=text, marginals=None, blocks=None),
        missing=missing,
        typical=typical,
    )


def _typical(release: Release) -> float:
    """The median standard error of the first tables."""
    tables = range(min(len(release.reader.sizes), TABLES))
    return float(np.median([np.median(release.reader.errors_of(t)) for t in tables]))


def _missing(selections: Sequence[Selection], batch: Batch, known: Sequence[bool]) -> list[Missing]:
    """The statements of which some answers are not known."""
    found, start = [], 0
    for selected in selections:
        size = len(selected.counted) * selected.grouping.size
        names = [
            one
            for one, own in zip(batch.asked[start : start + size], known[start : start + size], strict=True)
            if not own
        ]
        start += size
        if names:
            found.append(Missing(_written(selected), tuple(one.name for one in names), _columns(batch, names)))
    return found


def _written(selected: Selection) -> str:
    """The statement as it stands in its text."""
    one = selected.statement
    lexemes = one.script.lexemes
    return one.script.text[lexemes[one.first].start : lexemes[one.last - 1].end]


def _columns(batch: Batch, asked: Sequence[Asked[int]]) -> tuple[str, ...]:
    """That some answers look at, in their order."""
    looks = (look.column for one in asked for part in parts_of(one.of) for look in looks_of(batch.queries[part].amount))
    return tuple(dict.fromkeys(looks))


@encode.register
def _(reader: LawReader) -> Encoded:
    raise ReleaseError("what follows from a release is not saved as one; save the release, and ask it again")
