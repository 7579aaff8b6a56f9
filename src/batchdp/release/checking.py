"""`check`: does a domain fit its table? An ordinary plan over the domain itself, released as any other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchdp.domain import Column, Dates, Domain, Listed, as_domain
from batchdp.domain.columns import fold
from batchdp.ledger import AnyLedger
from batchdp.plans import Plan, plan
from batchdp.private import CellCounts
from batchdp.release.answering import Confirm, answer
from batchdp.release.release import Release
from batchdp.sql import read_queries
from batchdp.text import Progress
from batchdp.workloads.encode.cells import cells_of

DECLARED = "declared"
SURE = 4.0
"""Standard errors: what a finding must be away from what it denies."""
MANY_OUTSIDE, MANY_MISSING = 0.05, 0.5
"""Shares of the rows above which it is said that many are not declared, or NULL."""

AnyDomain = Domain | dict[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Fit:
    """How many rows of a column are declared, something else, and NULL; of dates, how many are later than declared.

    Each is a count with its standard error.
    """

    column: str
    declared: tuple[float, float]
    outside: tuple[float, float]
    missing: tuple[float, float]
    later: tuple[float, float] | None = None


def plan_check(domain: AnyDomain) -> Plan:
    """The batch of a check, planned without data: rows, and those of every column that its declaration misses.

    Nothing is dropped, clipped or rounded in it; the unit and its cap are the domain's.
    """
    given = as_domain(domain)
    marks = _marks(given)
    whole, later = _titles(given)
    table = _quote(given.table)
    statements = [f"SELECT COUNT(*) AS {_quote(whole)} FROM {table}"]
    for name, column in given.columns.items():
        mark = marks[name]
        statements.append(f"SELECT {mark}, COUNT(*) AS {_quote(name)} FROM {table} GROUP BY {mark}")
        if isinstance(column, Dates):
            beyond = f"{_quote(name)} > DATE '{column.dates[1].isoformat()}'"
            statements.append(f"SELECT COUNT(*) AS {_quote(later[name])} FROM {table} WHERE {beyond}")
    return plan(";\n".join(statements), _asked(given))


def check(
    domain: AnyDomain,
    table: Any,
    *,
    epsilon: float,
    ledger: AnyLedger,
    share: str | None = None,
    release_id: str | None = None,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Release:
    """Check privately whether a domain fits its table: how many rows of each column are declared, anything else, NULL.

    Guarantee: that of `answer`, which it is: ε-differential privacy for the domain's unit; the ledger is charged
    before the data is read. `batchdp.release.checking.findings(release, domain)` says what would go wrong.

    Args:
        domain: the declaration to check: a path, TOML text, a dictionary or a `Domain`.
        table: as in `answer`.
        epsilon: what the check may cost; 0.02 to 0.1 is enough for tens of thousands of rows.
        ledger, share, release_id, progress, confirm: as in `answer`.
    """
    return answer(
        plan_check(domain),
        table,
        epsilon=epsilon,
        ledger=ledger,
        share=share,
        release_id=release_id,
        progress=progress,
        confirm=confirm,
    )


def look(domain: AnyDomain, table: Any) -> CellCounts:
    """The exact counts behind a check, a row a column: declared, anything else, NULL. For the owner's eyes alone.

    Guarantee: none. Nothing of it may be published, written down, or decide what is released.
    """
    from batchdp.engines import open_table, prepare_count

    asked, found = _asked(as_domain(domain)), []
    privacy = asked.privacy
    with open_table(table, asked) as source:
        for name, column in asked.columns.items():
            mark = next(iter(column.groupings or {}))
            sql = f"SELECT {mark}, COUNT(*) AS {_quote(name)} FROM {_quote(asked.table)} GROUP BY {mark}"
            cells = cells_of(read_queries(sql, asked), asked)
            count = prepare_count(source, cells.atoms, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
            found.append(cells.answers(cells.counts(count(None))))
    return CellCounts(np.array(found))


def fits(release: Release, domain: AnyDomain) -> tuple[Fit, ...]:
    """What a check found of every column."""
    given = as_domain(domain)
    _, later = _titles(given)
    counts = {table.name: release.table(name=table.name) for table in release.tables}
    return tuple(
        Fit(name, *_pairs(counts[name]), *(_pairs(counts[later[name]]) if name in later else ()))
        for name in given.columns
    )


def findings(release: Release, domain: AnyDomain) -> tuple[str, ...]:
    """What would go wrong, in sentences, from a check alone; none where nothing is seen.

    A finding is told where it is 4 standard errors away from what it denies, so hardly ever by noise.
    """
    given = as_domain(domain)
    (rows, error), *_ = _pairs(release.table(name=_titles(given)[0]))
    if rows < 2 * SURE * error:
        unit = given.privacy.unit
        about = "" if unit is None else f" Does {unit!r} tell persons apart, and is it never NULL?"
        return (
            f"Hardly any rows are counted: {rows:,.0f}, with a standard error of {error:,.0f}.{about} With so few, "
            "answers are mostly noise.",
        )
    return tuple(sentence for fit in fits(release, given) for sentence in _wrong(fit, rows, given.columns[fit.column]))


def _wrong(fit: Fit, rows: float, column: Column) -> Iterator[str]:
    declared, outside, missing = fit.declared, fit.outside, fit.missing

    def above(count: tuple[float, float], share: float) -> bool:
        return count[0] - SURE * count[1] > share * rows

    ended = fit.later is not None and above(fit.later, MANY_OUTSIDE / 5)
    if fit.later is not None and ended and isinstance(column, Dates):
        last = column.dates[1].isoformat()
        yield f"{fit.column}: the range ended; about {_share(fit.later[0], rows)} of the rows are later than {last}."
    elif declared[0] < SURE * declared[1]:
        what = "one of the declared values" if isinstance(column, Listed) else "a value in the declared range"
        yield f"{fit.column}: next to none of the rows has {what}; are they written as in the data?"
    elif above(outside, MANY_OUTSIDE):
        yield f"{fit.column}: about {_share(outside[0], rows)} of the rows have a value that is not declared."
    if above(missing, MANY_MISSING):
        yield f"{fit.column}: about {_share(missing[0], rows)} of the rows are NULL, or cannot be read as declared."


def _share(count: float, rows: float) -> str:
    return f"{100 * min(1.0, count / rows):.0f} %"


def _pairs(frame: Any) -> Iterator[tuple[float, float]]:
    return zip(frame["value"].tolist(), frame["standard_error"].tolist(), strict=True)


def _asked(domain: Domain) -> Domain:
    """The domain of a check."""
    marks = _marks(domain)
    columns = {name: _marked(column, marks[name]) for name, column in domain.columns.items()}
    return Domain.model_validate(domain.model_copy(update={"columns": columns}).model_dump(mode="json"))


def _marked(column: Column, mark: str) -> Column:
    """The column with one group of all that is declared, and rows for anything else and NULL; nothing is dropped."""
    first: Any = column.values if isinstance(column, Listed) else column.ends()[0]
    if isinstance(column, Dates):
        first = column.dates[0]
    plain: dict[str, Any] = {"other": "keep", "groups": "all", "groupings": {mark: {DECLARED: first}}}
    plain |= {key: None for key in ("bins", "step", "outside") if hasattr(column, key)}
    return column.model_copy(update=plain)


def _marks(domain: Domain) -> dict[str, str]:
    """Names for the groupings, which nothing else in the domain has."""
    taken = {fold(name) for name in (*domain.columns, domain.privacy.unit or "", domain.table)}
    prefix = "fit"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return {name: f"{prefix}{i}" for i, name in enumerate(domain.columns)}


def _titles(domain: Domain) -> tuple[str, dict[str, str]]:
    """What the count of all rows is called, and by column that of later dates: as no column is."""
    taken = {fold(name) for name in domain.columns}
    whole = "rows"
    while fold(whole) in taken:
        whole += "_"
    dates = [name for name, column in domain.columns.items() if isinstance(column, Dates)]
    ending = " later"
    while any(fold(f"{i}{ending}") in taken for i in range(len(dates))):
        ending += "_"
    return whole, {name: f"{i}{ending}" for i, name in enumerate(dates)}


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
