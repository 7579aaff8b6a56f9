"""SQL statements and all tables of a domain as demands: what each table is grouped by, and what its records add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from batchdp.asking.legend import Key, extra_titles
from batchdp.asking.marginals import Orders, column_sets
from batchdp.asking.parting import Indices, Parting, alive_of, of_cases, of_column
from batchdp.asking.rows import Rows, rows_of
from batchdp.cells.atoms import Atoms
from batchdp.cells.splitting import Part, parts_of, split_by
from batchdp.domain import Domain
from batchdp.queries import Choice, Constant, Query
from batchdp.sql.batch import comparable

if TYPE_CHECKING:
    from batchdp.sql.groupings import Key as Grouped
    from batchdp.sql.selections import Selection

OTHER, MISSING = "anything else", "NULL"


@dataclass(frozen=True)
class Demand:
    """One table: its name, and the numbers of its keys and of what its records add (None where each adds 1)."""

    name: str
    keys: tuple[int, ...]
    amount: int | None = None


@dataclass(eq=False)
class Demands:
    """All tables that are asked, over atoms; keys and amounts are held once."""

    atoms: tuple[Atoms, ...]
    alive: tuple[Indices, ...]
    keys: list[tuple[Key, Parting]] = field(default_factory=list)
    amounts: list[Rows] = field(default_factory=list)
    tables: list[Demand] = field(default_factory=list)
    _known: dict[tuple[Key, tuple[int, ...], bytes], int] = field(default_factory=dict)

    def key(self, key: Key, parting: Parting) -> int:
        """The number of a key, the same for the same."""
        if not parting.looked:  # a CASE that looks at no column stands on the first
            parting = Parting((0,), np.repeat(parting.group, len(self.alive[0])))
        same = key, parting.looked, parting.group.tobytes()
        if same not in self._known:
            self._known[same] = len(self.keys)
            self.keys.append((key, parting))
        return self._known[same]

    def amount(self, query: Query) -> int | None:
        """The number of what a query adds; None where that is 1."""
        found = rows_of(query, self.atoms, self.alive)
        if not found.looked:
            constant = float(found.whole)
            if constant == 1:
                return None
            found = Rows({0: np.full(len(self.alive[0]), constant)}, (0,), found.whole)
        self.amounts.append(found)
        return len(self.amounts) - 1


def demands(selections: Sequence[Selection], orders: Orders | None, domain: Domain) -> Demands:
    """What the statements ask, then all tables of so many columns."""
    whole = orders is not None and max(orders) > 0
    atoms = split_by(_looking(selections, domain if whole else None), domain)
    found = Demands(atoms, tuple(map(alive_of, atoms)))
    taken: dict[tuple[str, frozenset[str]], None] = {}
    for selected in selections:
        _add_statement(found, selected, domain, taken)
    if orders is not None:
        keys = _domain_keys(found, domain) if whole else []
        names = list(domain.columns)
        for own in column_sets(orders, len(names)):
            name = " × ".join(names[i] for i in own) or "total"
            found.tables.append(Demand(name, tuple(keys[i] for i in own)))
    return found


def _looking(selections: Sequence[Selection], domain: Domain | None) -> Iterator[Part]:
    """Everything that looks at a column."""
    from batchdp.sql.groupings import restricted

    for selected in selections:
        for _, amount in selected.amounts():
            yield from parts_of(restricted(amount, [], selected.where))
        for key in selected.grouping.keys:
            for holds, _ in (case for group in key.groups for case in group.cases):
                yield from parts_of(Choice(holds, Constant(1.0), Constant(0.0)))
    for name, column in (domain.columns if domain is not None else {}).items():
        for _, holds in column.groups(name) or ():
            yield holds


def _domain_keys(found: Demands, domain: Domain) -> list[int]:
    """For every column the key with all of its groups, and with what is left of it."""
    place = {one.column: i for i, one in enumerate(found.atoms)}
    keys = []
    for name, column in domain.columns.items():
        groups = column.groups(name) or ()
        i = place[name]
        holding = [holds for _, holds in groups]
        parting, _, other, missing = of_column(i, found.atoms[i], found.alive[i], holding, every=True)
        extra = [OTHER] * other + [MISSING] * missing
        keys.append(found.key(Key(name, extra_titles([title for title, _ in groups], *extra)), parting))
    return keys


def _add_statement(
    found: Demands, selected: Selection, domain: Domain, taken: dict[tuple[str, frozenset[str]], None]
) -> None:
    """Its items times its grouping sets, a table each."""
    from batchdp.sql.groupings import restricted

    numbers = {key.name: _sql_key(found, key) for key in selected.grouping.keys}
    sets = selected.grouping.sets
    for item, added in selected.amounts():
        amount = found.amount(Query(item.name, restricted(added, [], selected.where)))
        for own in sets:
            same = comparable(item.name), own
            if same in taken:
                problem = f"the name {item.name} is taken by another query of the same groups"
                raise selected.statement.refusal(item.node, problem, "give every query its own name with AS")
            taken[same] = None
            keys = [name for name in numbers if name in own]
            name = f"{item.name} by {', '.join(keys)}" if len(sets) > 1 and keys else item.name
            found.tables.append(Demand(name, tuple(numbers[key] for key in keys), amount))


def _sql_key(found: Demands, key: Grouped) -> int:
    groups = key.groups
    titled = Key(key.name, tuple(group.title for group in groups))
    single = [group.condition for group in groups]
    names = {getattr(holds, "column", None) for holds in single}
    place = {one.column: i for i, one in enumerate(found.atoms)}
    if None not in single and len(names) == 1 and names <= set(place):
        (name,) = names
        i = place[str(name)]
        holding = [holds for holds in single if holds is not None]
        return found.key(titled, of_column(i, found.atoms[i], found.alive[i], holding, every=False)[0])  # type: ignore[arg-type]
    numbers = [
        next((g for g, group in enumerate(groups) if group.cases[j][1]), -1) for j in range(len(groups[0].cases))
    ]
    cases = [(holds, g) for (holds, _), g in zip(groups[0].cases, numbers, strict=True)]
    rest = next((g for g, group in enumerate(groups) if group.rest), -1)
    return found.key(titled, of_cases(cases, rest, found.atoms, found.alive))
