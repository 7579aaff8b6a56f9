"""`discover`: a domain whose values, bounds and cap are found with noise, for one charge before anything is read.

The charge is for all of it. What it pays for is then spent from a ledger of its own, which holds exactly that much:
two small batches by `answer`, of which the second looks only at what the first found to be numbers or dates, and the
values of texts by a threshold. What is stored under the release's id is the file, and a repeat gets it again.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from batchdp.domain import Column, Domain, Listed
from batchdp.domain.domain import read_domain
from batchdp.domain.draft import Described
from batchdp.domain.found import is_declarable, shown_name, spend, write_found
from batchdp.errors import DomainError, LedgerError, ReleaseError
from batchdp.ledger import AnyLedger, Ledger, Reservation, StoredRelease, as_ledger
from batchdp.mechanism.measurement import Relation
from batchdp.mechanism.sample import sample_independent
from batchdp.plans import plan
from batchdp.plans.finding import Kinds, LineKind, found_line, kind_column, line_column, propose_cap, rows_column
from batchdp.privacy import LAPLACE, Amount, Budget
from batchdp.release.answering import Confirm, answer, cost_of_budget, paid, uninterrupted
from batchdp.release.release import Release
from batchdp.release.sought import AnyDomain, Search, prepare
from batchdp.release.verify import digest_of
from batchdp.text import Progress

FORMAT = "batchdp-domain-0.3"
REPORT = "finding a domain"
SAID = "From {origin}, at no cost. Make sure that it was known without these data."


class _NothingFoundError(ReleaseError):
    """The file declares no column; what it says is stored, and was paid for."""


@dataclass(frozen=True)
class Discovery:
    """A domain that was found, as a file says it."""

    domain: Domain
    text: str
    """The domain file, with comments that say how each column was found and what it cost."""
    release_id: str


def discover(
    table: Any,
    *,
    epsilon: Amount,
    delta: Amount | None = None,
    ledger: AnyLedger,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    neighbours: Relation | None = None,
    domain: AnyDomain | None = None,
    name: str | None = None,
    header: bool = False,
    share: str | None = None,
    release_id: str | None = None,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
) -> Domain:
    """Find a domain privately: the values, bounds and cap that the table has.

    Guarantee: (ε, δ)-differential privacy, ε alone without delta, when one privacy unit is added or removed (or
    replaced), whatever the data are. The ledger is charged once, before any record is read.

    Args:
        table: as in `answer`.
        epsilon: what all of it may cost.
        delta: for the values of texts, which are found where enough persons have them. The ledger must then be one of
            (ε, δ). Without it, columns of texts are left out.
        ledger, share, progress, confirm: as in `answer`.
        unit: the column that says whose row it is; if left out, every row is a person.
        rows_per_unit: the most rows of one person that are looked at; 1 if left out. A cap for later is proposed.
        neighbours: "add-remove" (default) or "replace".
        domain: what is known already; it is kept, and costs nothing.
        name: what the domain calls the table.
        header: the first line of the CSV file names its columns, although it does not look like it.
        release_id: a repeat with the same id returns the same domain; made up if left out.
    """
    return find(**locals()).domain


def find(
    table: Any,
    *,
    epsilon: Amount,
    delta: Amount | None = None,
    ledger: AnyLedger,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    neighbours: Relation | None = None,
    domain: AnyDomain | None = None,
    name: str | None = None,
    header: bool = False,
    share: str | None = None,
    release_id: str | None = None,
    progress: Progress | None = None,
    confirm: Confirm | None = None,
    tell: Callable[[str], None] | None = None,
) -> Discovery:
    """`discover`, with the file that says how; `tell` gets the sentences of what it will cost and find, before."""
    books, identity = as_ledger(ledger), release_id or uuid.uuid4().hex
    privacy = {"unit": unit, "rows_per_unit": rows_per_unit, "neighbours": neighbours}
    search = prepare(table, epsilon, delta, privacy, domain, name, header=header)
    budget, whose = Budget(LAPLACE, search.epsilon), search.neighbours
    said = [search.name, search.privacy.model_dump(), [(one.name, one.kind) for one in search.asked]]
    said += [{known: one.model_dump(mode="json") for known, one in search.known.items()}, str(search.delta)]
    spent: dict[str, Any] = {
        "epsilon": budget,
        "delta": search.delta,
        "plan_digest": digest_of({"discover": said}),
        "table": search.name,
        "privacy_unit": whose.privacy_unit,
        "neighbours": whose.relation,
        "share": share,
    }
    if books.stored(identity) is not None:
        return _again(books.reserve(identity, **spent), identity)
    if tell is not None:
        for sentence in search.outlook:
            tell(sentence)
    if not books.is_used(identity):
        books.check_left(budget, None, whose.relation, share, search.delta)
    reserved: list[Reservation] = []

    def charge(_: Any) -> bool:
        cost = cost_of_budget(budget, whose, books, identity, share, delta=search.delta)
        if confirm is not None and cost.is_due and not confirm(cost):
            return False
        granted = books.reserve(identity, **spent)
        if isinstance(granted, StoredRelease):
            raise LedgerError(f"release_id={identity!r} was released meanwhile; repeat the call to get it")
        opened.enter_context(uninterrupted())
        reserved.append(granted)
        return True

    def everything() -> StoredRelease:
        steps = _Steps(search, _own_ledger(Path(folder), search), identity, progress)
        text = steps.find(steps.kinds(charge))  # which charges once nothing more can be refused, and reads then
        return books.complete(reserved[0], json.dumps({"format": FORMAT, "domain": text}).encode())

    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        try:
            return _again(everything(), identity)
        except Exception as error:
            if not reserved or isinstance(error, _NothingFoundError):
                raise
            failure = error
        return paid(lambda: _fail(failure), identity)


def _fail(failure: Exception) -> Discovery:
    raise failure


def _again(stored: Any, identity: str) -> Discovery:
    """The file that is stored under this id."""
    try:
        content = json.loads(stored.output)
        if content["format"] != FORMAT:
            raise ValueError(content["format"])
        text = content["domain"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LedgerError(f"release_id={identity!r} has something else stored; choose a new release_id") from None
    try:
        return Discovery(read_domain(text, source="what was found"), text, identity)
    except DomainError:
        raise _NothingFoundError(
            f"release {identity!r} found no column that could be declared; its budget stays spent: raise epsilon, or "
            "declare columns in domain"
        ) from None


def _own_ledger(folder: Path, search: Search) -> Ledger:
    """A ledger that holds what was paid for, and no more."""
    path, epsilon = folder / "paid.db", search.epsilon
    relation = search.privacy.neighbours
    if search.delta is None:
        return Ledger.create(path, epsilon=epsilon, neighbours=relation)
    return Ledger.create(path, epsilon=epsilon, delta=search.delta, thresholds=1, neighbours=relation)


class _Steps:
    """What is done with what was paid, step by step; every step is charged to the ledger that holds it."""

    def __init__(self, search: Search, own: Ledger, identity: str, progress: Progress | None) -> None:
        self.search, self.own, self.identity, self.progress = search, own, identity, progress

    def kinds(self, charge: Confirm) -> dict[str, Kinds]:
        """Which kinds of values every column has."""
        asked = self.search.asked
        columns: dict[str, Column] = {f"c{i}": kind_column() for i in range(len(asked))}
        derived = {f"c{i}": ("kind", one.name) for i, one in enumerate(asked)}
        release = self._answer(columns, derived, self.search.splits(1, 1)[0], charge)
        found = {}
        for i, one in enumerate(asked):
            whole, number, day, other, _, missing = _values(release, f"c{i}")
            counts = {"whole": whole, "number": number, "date": day, "text": other}
            found[one.name] = Kinds(counts, missing, _error(release, f"c{i}"))
        return found

    def find(self, kinds: Mapping[str, Kinds]) -> str:
        """The file."""
        search = self.search
        how = {name: [SAID.format(origin=origin)] for name, origin in search.declared.items()}
        left_out = list(search.left_out)
        sorted_ = {one.name: _kind_of(one, kinds[one.name]) for one in search.asked}
        lines = {name: kind for name, kind in sorted_.items() if kind in ("whole", "number", "date")}
        texts = [name for name, kind in sorted_.items() if kind == "text" and search.delta is not None]
        for name, kind in sorted_.items():
            if kind is None:
                left_out.append(f"{shown_name(name)}: hardly any values can be seen in it")
            elif kind == "text" and search.delta is None:
                left_out.append(f"{shown_name(name)}: its values are texts, which need delta; declare values = [...]")
        _, for_lines, for_text = search.splits(len(lines) + bool(search.privacy.unit), len(texts))
        columns = dict(search.known)
        cap = self._lines(lines, for_lines, columns, how, left_out)
        self._texts(texts, for_text, columns, how, left_out)
        for name in kinds.keys() & how.keys():
            how[name].append(f"About {100 * kinds[name].share_missing():.0f} % of the rows are NULL.")
        order = [one.name for one in search.asked]
        columns = dict(sorted(columns.items(), key=lambda item: order.index(item[0]) if item[0] in order else -1))
        privacy = search.privacy
        if cap is not None:
            privacy = privacy.model_copy(update={"rows_per_unit": cap})
        return write_found(
            search.name,
            privacy,
            columns,
            cost=spend(float(search.epsilon), float(search.delta or 0)),
            how=how,
            left_out=left_out,
            cap=None if cap is None else f"{cap} rows are enough for about 95 % of the persons, found with noise.",
        )

    def _lines(
        self,
        lines: Mapping[str, Any],
        epsilon: Fraction,
        columns: dict[str, Column],
        how: dict[str, list[str]],
        left_out: list[str],
    ) -> int | None:
        """Put the bounds of numbers and dates to the columns; the proposed cap, where there is a unit."""
        asked: dict[str, Column] = {f"c{i}": line_column(kind) for i, kind in enumerate(lines.values())}
        derived: dict[str, Any] = {
            f"c{i}": ("month" if kind == "date" else "value", name) for i, (name, kind) in enumerate(lines.items())
        }
        if self.search.privacy.unit is not None:
            asked["rows"], derived["rows"] = rows_column(), ("rows", None)
        if not asked:
            return None
        release = self._answer(asked, derived, epsilon)
        for i, (name, kind) in enumerate(lines.items()):
            scale = _error(release, f"c{i}") / np.sqrt(2)
            known = next((one.low, one.high) for one in self.search.asked if one.name == name)
            found = found_line(kind, _values(release, f"c{i}")[:-2], scale, known)
            if found is None:
                left_out.append(f"{shown_name(name)}: no bound can be seen with so little of the budget")
                continue
            columns[name] = found
            cost = spend(float(epsilon) / len(asked), 0)
            how[name] = [f"Bounds are where counts in public bins end, each ± {np.sqrt(2) * scale:.3g} ({cost})."]
        if "rows" not in asked:
            return None
        error = _error(release, "rows")
        return propose_cap(_values(release, "rows")[:-2], error, self.search.privacy.rows_per_unit)

    def _texts(
        self,
        texts: Sequence[str],
        epsilon: Fraction,
        columns: dict[str, Column],
        how: dict[str, list[str]],
        left_out: list[str],
    ) -> None:
        """Put the values of texts to the columns."""
        if not texts:
            return
        from batchdp.engines import open_table, prepare_values

        search, privacy = self.search, self.search.privacy
        threshold = search.threshold(len(texts), epsilon)
        own = Domain(table=search.name, privacy=privacy, columns={name: search.types[name] for name in texts})
        with open_table(search.table, own) as source:
            read = prepare_values(source, texts, unit=privacy.unit, rows_per_unit=privacy.rows_per_unit)
            spends: dict[str, Any] = {"epsilon": threshold.epsilon * len(texts), "delta": threshold.delta * len(texts)}
            self.own.reserve("texts", **spends, plan_digest="texts", table=search.name)
            if self.progress is not None:
                self.progress(0.5, f"{REPORT}: values of texts")
            counted = read()
        for name, one in zip(texts, counted, strict=True):
            noise = sample_independent(LAPLACE, np.array([threshold.scale]), np.array([len(one.texts)]))
            seen = [one.texts[i] for i in np.flatnonzero(one.counts + noise >= threshold.least)]
            values = tuple(sorted(filter(is_declarable, seen)))
            if not values:
                left_out.append(
                    f"{shown_name(name)}: no text is in the rows of about {threshold.least:,} persons; it may be an id "
                    "or free text"
                )
                continue
            columns[name] = Listed(values=values)
            cost = spend(float(threshold.epsilon), float(threshold.delta))
            how[name] = [f"Values that at least about {threshold.least:,} persons have ({cost}); others are not here."]

    def _answer(
        self,
        columns: Mapping[str, Column],
        derived: Mapping[str, Any],
        epsilon: Fraction,
        confirm: Confirm | None = None,
    ) -> Release:
        """One table of counts for each column, through `answer`."""
        from batchdp.engines.derived import Derived

        search = self.search
        asked = Domain(table=search.name, privacy=search.privacy, columns=dict(columns))
        return answer(
            plan(domain=asked, marginals=1, privacy="pure", seconds=1, cache=False),
            Derived(search.table, dict(derived), search.types),
            epsilon=float(epsilon),
            ledger=self.own,
            release_id=self.identity if confirm is not None else "lines",
            progress=self.progress,
            confirm=confirm,
        )


def _kind_of(column: Described, found: Kinds) -> LineKind | str | None:
    """What a column holds: by its type, and where that says nothing as was found."""
    kind = found.kind()
    if kind is None or column.kind == "unknown":
        return kind
    return "whole" if (column.kind, kind) == ("number", "whole") else column.kind


def _values(release: Release, column: str) -> Any:
    return release.table(column)["value"].to_numpy()


def _error(release: Release, column: str) -> float:
    return float(release.table(column)["standard_error"].max())
