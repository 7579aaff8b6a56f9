"""What `discover` is to find in a table, by its schema and the arguments alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from batchdp.domain import Column, Domain, Listed, as_domain
from batchdp.domain.columns import Dates, Numbers, fold, plain_name
from batchdp.domain.domain import Database, Protection
from batchdp.domain.draft import Described, is_identifier, problem_of_name
from batchdp.domain.found import shown_name, spend
from batchdp.errors import DomainError
from batchdp.mechanism.conversion import exact_delta
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.thresholds import Threshold, threshold_for
from batchdp.plans.finding import declared_by
from batchdp.plans.planned import declared_neighbours
from batchdp.privacy import LAPLACE, Amount, Budget, round_down, shortest

FOR_KINDS = Fraction(8, 100)
"""Of ε, for what kind of values every column has."""
LINE_WEIGHT = 2
"""Of what is left: so many times as much for a column of numbers or dates as for one of texts."""

AnyDomain = Domain | Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class Search:
    """What is to be found, by the schema and the arguments alone."""

    table: Any
    name: str
    privacy: Protection
    known: Mapping[str, Column]
    declared: Mapping[str, str]
    """Of those that are known, which the schema itself declares: who says so."""
    asked: tuple[Described, ...]
    """Columns whose values nobody knows."""
    left_out: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction | None
    types: Mapping[str, Column] = field(repr=False)
    """All columns that are looked at, each as something that its type can be read as."""

    @property
    def neighbours(self) -> Neighbours:
        """Whose privacy."""
        return declared_neighbours(Domain(table=self.name, privacy=self.privacy, columns=dict(self.types)))

    def splits(self, lines: int, texts: int) -> tuple[Fraction, Fraction, Fraction]:
        """Parts of ε: for kinds, for all lines together, for one column of texts; each a decimal number, rounded down.

        Args:
            lines: columns of numbers or dates, and the rows of units.
            texts: columns of texts.
        """
        kinds = shortest(round_down(self.epsilon * FOR_KINDS))
        rest, weights = self.epsilon - kinds, LINE_WEIGHT * lines + texts
        if not weights:
            return kinds, Fraction(0), Fraction(0)
        line = shortest(round_down(rest * LINE_WEIGHT * lines / weights)) if lines else Fraction(0)
        return kinds, line, shortest(round_down((rest - line) / texts)) if texts else Fraction(0)

    def threshold(self, texts: int, epsilon: Fraction) -> Threshold:
        """Of each of so many columns of texts."""
        assert self.delta is not None
        return threshold_for(epsilon, shortest(round_down(self.delta / texts)), self.neighbours)

    @property
    def outlook(self) -> tuple[str, ...]:
        """What it will cost and find, in sentences, before anything is charged or read."""
        texts = sum(one.kind in ("text", "unknown") for one in self.asked)
        sure = sum(one.kind == "text" for one in self.asked)
        lines = len(self.asked) - sure + bool(self.privacy.unit)
        said = [f"{len(self.asked)} columns are looked at, for {spend(float(self.epsilon), float(self.delta or 0))}."]
        if self.declared:
            said.append(f"The schema declares {len(self.declared)} more, which cost nothing.")
        if texts and self.delta is None:
            said.append("Without delta no values of texts are found; these columns are left to you, by name.")
        elif texts:
            few, many = max(1, sure), texts
            least = self.threshold(few, self.splits(len(self.asked) - few, few)[2]).least
            most = self.threshold(many, self.splits(lines - texts + sure, many)[2]).least
            between = f"{least:,}" if least == most else f"{min(least, most):,} to {max(least, most):,}"
            by = "" if least == most else ", by how many columns are texts"
            said.append(f"A value of a text is found if about {between} persons have it{by}.")
        called = [one for one in self.left_out if "looks like an id" in one]
        if called and self.privacy.unit is None:
            said.append("Every row is taken for a person: give the unit, if one person can have several rows.")
        if lines:
            part = self.splits(lines, sure)[1]
            rows = float(12 * lines * self.neighbours.factor / part)
            said.append(f"A bound of a number or a date is found where about {rows:,.0f} rows or more lie in a bin.")
        return tuple(said)


def prepare(
    table: Any,
    epsilon: Amount,
    delta: Amount | None,
    privacy: Mapping[str, Any],
    domain: AnyDomain | None,
    name: str | None,
    *,
    header: bool = False,
) -> Search:
    """What is to be found, by the names and types of the table's columns."""
    from batchdp.engines.schema import describe_table, name_table

    known = None if domain is None else as_domain(domain)  # type: ignore[arg-type]
    if isinstance(known, Database):
        raise DomainError("domain describes several tables; discover each by itself")
    budget = Budget(LAPLACE, epsilon)
    called = name or (known.table if known is not None else plain_name(name_table(table)))
    held = Protection() if known is None else known.privacy
    given = {key: value for key, value in privacy.items() if value is not None}
    protection = Protection.model_validate(held.model_dump() | given)
    declared = dict(known.columns) if known is not None else {}
    kept, left_out = _sort_out(describe_table(table, called, has_header=header), declared, protection.unit)
    said = {one.name: own for one in kept if (own := _said_of(one)) is not None}
    asked = tuple(one for one in kept if one.name not in said)
    if not asked:
        raise DomainError(
            "nothing could be found about any column of the table; declare them in a domain file, which batchdp init "
            "drafts from the schema"
        )
    origins = {one.name: one.origin for one in kept if one.name in said and one.kind != "boolean"}
    types = {one.name: _readable(one) for one in asked}
    exact = None if delta is None else exact_delta(delta)
    return Search(
        table,
        called,
        protection,
        declared | said,
        origins,
        asked,
        tuple(left_out),
        shortest(round_down(budget.amount)),
        exact,
        types,
    )


def _said_of(column: Described) -> Column | None:
    """What the schema declares of a column, at no cost."""
    return Listed(values=(True, False)) if column.kind == "boolean" else declared_by(column)


def _sort_out(
    columns: Sequence[Described], declared: Mapping[str, Column], unit: str | None
) -> tuple[list[Described], list[str]]:
    """The columns to look at, and why not the others."""
    kept, left_out = [], []
    taken = [fold(one.name) for one in columns]
    apart = {fold(name) for name in declared} | ({fold(unit)} if unit else set())
    for one in columns:
        reason = None
        if fold(one.name) in apart:
            continue
        if taken.count(fold(one.name)) > 1:
            reason = "several columns have this name, upper or lower case"
        elif one.kind == "other":
            reason = "no kind of column fits its type"
        elif is_identifier(one.name) and not one.values:
            reason = "its name looks like an id; if it is not one, rename it or declare it"
        else:
            reason = problem_of_name(one.name)
        if reason is None:
            kept.append(one)
        else:
            left_out.append(f"{shown_name(one.name)}: {reason}")
    return kept, left_out


def _readable(column: Described) -> Column:
    """A declaration that a column of this type can be read by, whatever it holds."""
    if column.kind in ("number", "whole"):
        return Numbers(range=(0, 1))
    return Dates(dates=("1900-01-01", "2100-12-31")) if column.kind == "date" else Listed(values=("A",))  # type: ignore[arg-type]
