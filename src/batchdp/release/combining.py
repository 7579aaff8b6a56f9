"""`combine`: releases about the same records as one, by least squares over all that was measured.

Nothing is drawn and nothing is read but what was released, so it costs no privacy. The combination is a function of its
parts alone: its file holds them, and is combined again when it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Counted, Domain
from batchdp.domain.counted import ColumnRule
from batchdp.domain.relations import as_counted
from batchdp.errors import QueryError, ReleaseError
from batchdp.ledger import AnyLedger, Ledger, as_ledger
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.combined import CombinedReader
from batchdp.mechanism.functions import Rows, least_squares, placed, stacked
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.prepare import CAPS, MOST_BIAS
from batchdp.mechanism.reader import CellReader
from batchdp.mechanism.tables import LatticeReader
from batchdp.plans.designs import Columns, Design
from batchdp.plans.encoding import CellBatch, counted_domain
from batchdp.plans.given import FOREIGN, Earlier, Unlike, earlier, other_columns
from batchdp.plans.planned import called, declared_neighbours
from batchdp.privacy import Budget, round_up
from batchdp.queries.expressions import Asked
from batchdp.queries.query import GROUPED
from batchdp.queries.views import View
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.release import Release
from batchdp.release.verify import check_charged, check_release, contradictions
from batchdp.sql.persons import Relations

MOST_PARTS = 50
SAME = 1e-9
"""How far two queries may be apart that are one, relative to their size."""
SHORT = 12
"""Digits of the digests that a combination is called by."""


def combine(
    releases: Sequence[Release], *, ledger: AnyLedger | None = None, confidence: float | None = None
) -> Release:
    """Make one release of several about the same records, with smaller errors: least squares over all measurements.

    Guarantee: none is needed. It is computed from what was released. The privacy loss of the parts adds up, and the
    certificate says so. Intervals hold by the exact law of all the noise.

    Args:
        releases: releases of one snapshot of one table, made by plans with the same unit and caps. A combined release
            stands for its parts. No release may be given twice.
        ledger: what all of them were charged to, or the path of its file; refused if it says anything else about one of
            them. Without it, a release that somebody made up would not be noticed.
        confidence: the confidence of the intervals; that of the first release if left out.
    """
    parts = _listed(releases)
    _check_alike(parts)
    if ledger is not None:
        _check_paid(parts, as_ledger(ledger))
    designs = [_design(part) for part in parts]
    try:
        among = Columns(one.batch for one in designs)
        measured, asked = (stacked([getattr(one, what)(among) for one in designs]) for what in ("measured", "asked"))
    except QueryError as error:
        raise ReleaseError(f"releases: {error}; only what is counted alike can be combined") from error
    answers = _Answers(parts, asked)
    certificate = _together(parts)
    B, missed = least_squares(measured, answers.rows)
    law = NoiseLaw(B, 1.0, certificate.noise)
    places = placed(measured.components | answers.rows.components)
    reader = CombinedReader(
        tuple(answers.names),
        measured.matrix(places),
        answers.rows.matrix(places),
        law,
        bits=0,
        steps=np.concatenate([_steps(part.reader) for part in parts]),
    )
    cap, share = _bias(missed, law.standard_errors, certificate.largest_total)
    shown = answers.asked
    derived = sum(one.derived for one in shown)
    return Release(
        reader,
        np.concatenate([part.noisy for part in parts]),
        replace(certificate, largest_total=cap, bias_share=share, derived=derived),
        confidence=parts[0].confidence if confidence is None else confidence,
        asked=shown,
        counted=_counted(parts),
        kinds=among.kinds(answers.rows),
        views=answers.views,
        parts=tuple(parts),
    )


def _listed(releases: Sequence[Release]) -> list[Release]:
    """The releases, those of combined ones by themselves; refused where one is none, or comes twice."""
    if isinstance(releases, Release) or not isinstance(releases, Sequence):
        raise ReleaseError("releases must be a list of releases, like combine([first, second])")
    if wrong := next((one for one in releases if not isinstance(one, Release)), None):
        raise ReleaseError(f"releases holds a {type(wrong).__name__}; give releases from answer or load_release")
    parts = [part for one in releases for part in (one.parts or (one,))]
    if not 2 <= len(parts) <= MOST_PARTS:
        raise ReleaseError(f"releases holds {len(parts)}; give two releases or more, {MOST_PARTS} at the most")
    seen: set[str] = set()
    for part in parts:
        if (name := part.certificate.release_id) in seen:
            raise ReleaseError(f"release {name!r} is given twice; a measurement counts once")
        seen.add(name)
        check_release(part)
    return parts


def _check_alike(parts: Sequence[Release]) -> None:
    """Refuse releases that are not about the same records, counted alike."""
    first = parts[0]
    for part in parts:
        _check_says(part)
    for part in parts[1:]:
        both = f"releases {first.certificate.release_id!r} and {part.certificate.release_id!r}"
        for what, here, there, why in _unlike(first, part):
            raise ReleaseError(f"{both}: {what} is {here!r} in one and {there!r} in the other; {why}")


def _check_says(part: Release) -> None:
    if part.source is None:
        raise ReleaseError(
            f"release {part.certificate.release_id!r} does not say what its cells stand for; combine what plans "
            "made, in this version"
        )


def _check_paid(parts: Sequence[Release], ledger: Ledger) -> None:
    for part in parts:
        if not check_charged(part, ledger):
            raise ReleaseError(
                f"release {part.certificate.release_id!r} was not charged to {ledger.path.name}; give the ledger that "
                "it was charged to"
            )


def _unlike(one: Release, other: Release) -> Iterator[Unlike]:
    c, d = one.certificate, other.certificate
    assert one.source is not None
    assert other.source is not None
    here, there = one.source.domain, other.source.domain
    (table, whose), (its_table, its_whose) = _tables_of(one), _tables_of(other)
    compared = (
        ("snapshot", c.snapshot, d.snapshot, "nothing is combined across snapshots"),
        ("table", table, its_table, FOREIGN),
        ("the domain's table", here.table, there.table, FOREIGN),
        ("unit", c.privacy_unit, d.privacy_unit, "they count other persons"),
        ("the cap on a person's rows", whose, its_whose, "other rows of a person are counted in each"),
        ("noise", c.noise.name, d.noise.name, "two kinds of noise do not add up in one currency"),
    )
    yield from (one for one in compared if one[1] != one[2])
    if c.shape or d.shape:
        yield "noise", c.shape or "on a pair", d.shape or "on a pair", "noise in the shape of a batch is not combined"
    yield from other_columns(here, there)


def _tables_of(part: Release) -> tuple[str, str]:
    """Which tables a certificate names, and whose privacy, without the joins and subqueries that are made of them."""
    assert part.source is not None
    own, domain = part.certificate, part.source.domain
    counted = counted_domain(part.source.batch, domain)
    return (
        called(domain) if own.table == called(counted) else own.table,
        _whose(domain) if own.neighbours == _whose(counted) else own.neighbours,
    )


def _whose(domain: Domain) -> str:
    return str(declared_neighbours(domain))


def _design(part: Release) -> Design:
    """What a release measured of a record; refused unless its answers are those to its own SQL."""
    assert part.source is not None
    found = Design(part.source.batch, part.reader)
    if not is_answered(part.reader, found.batch):
        raise ReleaseError(f"release {part.certificate.release_id!r} answers other queries than its SQL; it was edited")
    return found


@earlier.register
def _(release: Release) -> Sequence[Earlier]:
    """Of every part, once it is known to hang together."""
    parts = release.parts or (release,)
    for part in parts:
        check_release(part)
        _check_says(part)
    return [_earlier(part) for part in parts]


def _earlier(part: Release) -> Earlier:
    assert part.source is not None
    own = part.certificate
    measured = [own.plan_digest, own.groups_digest, own.neighbours, str(own.largest_total)]
    digest = hashlib.sha256("\n".join(measured).encode()).hexdigest()
    return Earlier(own.release_id, own.snapshot, part.source.domain, _design(part), digest)


@singledispatch
def is_answered(reader: Any, batch: Any) -> bool:
    """Whether the answers of a reader are those that its batch asks for."""
    return False


@is_answered.register
def _(reader: CellReader, batch: Any) -> bool:
    asked = getattr(batch.workload, "matrix", None)
    if reader.names != getattr(batch.workload, "names", None) or asked is None:
        return False
    own = sparse.csr_array(asked)
    return own.shape == reader.workload.shape and not np.any((own - reader.workload).data)


@is_answered.register
def _(reader: LatticeReader, batch: Any) -> bool:
    return bool(hasattr(batch.workload, "asks_as") and reader.workload.asks_as(batch.workload))


@singledispatch
def _steps(reader: Any) -> Dense:
    """Of every measurement the scale of its noise, in steps of the lattice."""
    raise ReleaseError(f"release: nothing says how a {type(reader).__name__} is combined")


@_steps.register
def _(reader: CellReader) -> Dense:
    return np.full(reader.measurements, reader.noise_law.scale * 2.0**reader.bits)


@_steps.register
def _(reader: LatticeReader) -> Dense:
    return np.repeat(np.asarray(reader.scales, dtype=np.float64), reader.lattice.sizes)


class _Answers:
    """All answers of several releases, those that are the same once; of one name for two things one is numbered."""

    def __init__(self, parts: Sequence[Release], asked: Rows) -> None:
        self.names, self._kept = list[str](), list[int]()
        self._matrix = asked.matrix(placed(asked.components))
        self._known: dict[str, list[tuple[str, int]]] = {}
        self._shown: dict[str, list[Asked[int]]] = {}
        self.views: tuple[View, ...] = ()
        start = 0
        for part in parts:
            numbers, renamed = self._add_linear(part, start)
            self._add_shown(part, numbers, renamed)
            start += part.reader.answers
        self.rows = asked.chosen(np.array(self._kept, dtype=np.int64))

    @property
    def asked(self) -> tuple[Asked[int], ...]:
        """What is shown, in order; nothing where that is every linear answer as it is."""
        found = tuple(one for own in self._shown.values() for one in own)
        return () if [one.of for one in found] == list(range(len(self.names))) else found

    def _add_linear(self, part: Release, start: int) -> tuple[NDArray[np.int64], dict[str, str]]:
        """The numbers of a part's linear answers among all, and what its items are called where that is otherwise."""
        reader, layout = part.reader, part.layout
        numbers, items = np.zeros(reader.answers, dtype=np.int64), dict[str, list[tuple[str, int]]]()
        for t, size in enumerate(reader.sizes.tolist()):
            for place in range(size):
                name = layout.linear_name(t, place)
                items.setdefault(item_of(name), []).append((name, int(reader.starts[t]) + place))
        renamed: dict[str, str] = {}
        new: dict[int, str] = {}
        for item, own in items.items():
            name, there = self._free(item, own, start)
            if there is None:
                new |= {number: _called(one, name) for one, number in own}
            else:
                numbers[[number for _, number in own]] = [number for _, number in there]
            if name != item:
                renamed[item] = name
        for number in sorted(new):  # in the order of the part
            numbers[number] = len(self.names)
            self._known.setdefault(item_of(new[number]), []).append((new[number], len(self.names)))
            self.names.append(new[number])
            self._kept.append(start + number)
        return numbers, renamed

    def _free(self, item: str, own: list[tuple[str, int]], start: int) -> tuple[str, list[tuple[str, int]] | None]:
        """What an item is called, and its answers where it is known already."""
        for times in range(1, MOST_PARTS + 2):
            name = item if times == 1 else f"{item} ({times})"
            known = self._known.get(name)
            if known is None:
                return name, None
            if [_called(one, name) for one, _ in own] == [one for one, _ in known]:
                rows = [start + number for _, number in own]
                there = [self._kept[number] for _, number in known]
                if self._same(rows, there):
                    return name, known
        raise ReleaseError(f"releases: {item!r} has too many meanings")

    def _same(self, rows: list[int], others: list[int]) -> bool:
        one, other = self._matrix[rows], self._matrix[others]
        apart, size = (np.sqrt((of**2).sum(axis=1)) for of in (one - other, one))
        return bool(np.all(apart <= SAME * size))

    def _add_shown(self, part: Release, numbers: NDArray[np.int64], renamed: dict[str, str]) -> None:
        own = part.asked or [Asked("", number) for number in range(part.reader.answers)]
        items: dict[str, list[Asked[int]]] = {}
        for one in own:
            if isinstance(one.of, int):
                number = int(numbers[one.of])
                made = Asked(self.names[number], number)
            else:
                made = Asked(one.name, one.of.mapped(lambda number: int(numbers[number])))
            items.setdefault(item_of(made.name), []).append(made)
        for item, found in items.items():
            times, name = 1, item
            while name in self._shown and self._shown[name] != found:
                times, name = times + 1, f"{item} ({times + 1})"
                found = [one if isinstance(one.of, int) else Asked(_called(one.name, name), one.of) for one in found]
            if name != item:
                renamed[item] = name
            self._shown[name] = found
        fitting = (view for view in part.views if not renamed.keys() & set(view.items))
        self.views += tuple(view for view in fitting if view not in self.views)


def item_of(name: str) -> str:
    """What an answer's name has before its groups."""
    grouped = GROUPED.fullmatch(name)
    return name if grouped is None else grouped["name"]


def _called(name: str, item: str) -> str:
    """The same answer of an item of another name."""
    grouped = GROUPED.fullmatch(name)
    return item if grouped is None else f"{item}[{grouped['groups']}]"


def _bias(missed: Dense, errors: Dense, cap: int) -> tuple[int, float]:
    """The public cap up to which answers are off by at most 1 % of their noise, and by how much of it they are."""
    worst = float(np.divide(missed, errors, out=np.where(missed == 0, 0.0, np.inf), where=errors > 0).max(initial=0.0))
    for most in (cap, *(one for one in CAPS if one < cap)):
        if worst * most <= MOST_BIAS:
            return most, worst * most
    raise ReleaseError(
        f"releases: answers could be off by {worst:.2g} of their noise for every record, because measurements are "
        "rounded to a lattice; answer again with a lower max_rows"
    )


def _together(parts: Sequence[Release]) -> PrivacyCertificate:
    """What all parts promise together: their losses add up."""
    all_of = [part.certificate for part in parts]
    first = all_of[0]
    named = hashlib.sha256("\n".join(one.release_id for one in all_of).encode()).hexdigest()[:SHORT]
    loss = sum((Fraction(one.loss) for one in all_of), Fraction(0))
    budget = sum((Budget(one.noise, one.budget).amount for one in all_of), Fraction(0))
    digest = hashlib.sha256("\n".join(one.plan_digest for one in all_of).encode()).hexdigest()
    return replace(
        first,
        **_counted_together(parts),
        release_id=f"combination {named} of {len(parts)} releases",
        budget=round_up(budget),
        loss=round_up(loss),
        measurements=sum(one.measurements for one in all_of),
        largest_total=min(one.largest_total for one in all_of),
        plan_digest=digest,
        groups=tuple(group for one in all_of for group in one.groups),
    )


def _counted_together(parts: Sequence[Release]) -> dict[str, Any]:
    """The tables of all parts and whose privacy that is, with every join and subquery of any of them once."""
    first, known = parts[0], Relations()
    for part in parts:
        batch = None if part.source is None else part.source.batch
        for one in batch.statements.relations if isinstance(batch, CellBatch) else ():
            known.keep(one)
    if not known.found or first.source is None:
        return {}
    table, _ = _tables_of(first)
    domain = as_counted(first.source.domain, known.found)
    labelled = table != called(first.source.domain)
    return {"table": table if labelled else called(domain), "neighbours": _whose(domain)}


def _counted(parts: Sequence[Release]) -> Counted | None:
    """The rules of all; columns that any of them names."""
    rules = [part.counted for part in parts]
    known = [one for one in rules if one is not None]
    if len(known) < len(rules):
        return None
    columns: dict[str, ColumnRule] = {}
    for one in known:
        for column in one.columns:
            before = columns.get(column.name)
            columns[column.name] = replace(column, asked=column.asked or (before is not None and before.asked))
    return replace(known[0], own_rows=any(one.own_rows for one in known), columns=tuple(columns.values()))


@contradictions.register
def _(reader: CombinedReader, release: Release, factor: int) -> Iterator[str]:
    """What its parts contradict, and a certificate that is not what they add up to."""
    for part in release.parts:
        check_release(part)
    expected = _together(release.parts) if release.parts else release.certificate
    others = {"largest_total", "bias_share", "derived"}
    for one in fields(expected):
        if one.name not in others and getattr(expected, one.name) != getattr(release.certificate, one.name):
            yield f"its certificate says of {one.name} what its parts do not add up to"
    if not release.parts:
        yield "it has no parts"
