"""The relations of a batch: joins as they are asked for, and one of persons for every set of groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from batchdp.domain.relations import DeclaredTable, Persons, Relation, persons
from batchdp.queries.query import Choice, Constant, Group, Person, restricted

if TYPE_CHECKING:
    from batchdp.sql.selections import Selection


class Relations:
    """What statements count that is no declared table: each once, under a name of its own."""

    def __init__(self, known: Iterable[Relation] = ()) -> None:
        self._found: list[Relation] = []
        self._placed: dict[tuple[int, Person], dict[tuple[Group, ...], tuple[Persons, int]]] = {}
        for one in known:
            self.keep(one)

    @property
    def found(self) -> tuple[Relation, ...]:
        """In the order in which they are asked for."""
        return tuple(self._found)

    def table(self, selected: Selection) -> str:
        """What the queries of a statement call its relation; nothing where a domain has but one table."""
        own = selected.relation
        return selected.table if isinstance(own, DeclaredTable) else self.keep(own).name

    def persons(self, selected: Selection, person: Person, groups: list[Group]) -> tuple[Persons, int]:
        """The relation with a row for every person in these groups, and their number in it."""
        key = selected.statement.number, person
        if key not in self._placed:
            self._placed[key] = self._of_sets(selected, person)
        return self._placed[key][tuple(groups)]

    def _of_sets(self, selected: Selection, person: Person) -> dict[tuple[Group, ...], tuple[Persons, int]]:
        """One relation for every set of keys that rows are made for: within a set, groups exclude each other."""
        adds = Constant(1.0) if person.condition is None else Choice(person.condition, Constant(1.0), Constant(0.0))
        sets: dict[tuple[str, ...], list[tuple[Group, ...]]] = {}
        for row in selected.grouping.rows():
            keys = tuple(key.name for key, group in row if group is not None)
            sets.setdefault(keys, []).append(tuple(group for _, group in row if group is not None))
        found: dict[tuple[Group, ...], tuple[Persons, int]] = {}
        for keys, rows in sets.items():
            amounts = tuple(restricted(adds, list(groups), selected.where) for groups in rows)
            called = f"persons of {selected.relation.name}" + (f" by {', '.join(keys)}" if keys else "")
            relation = self.keep(persons(selected.relation, amounts, called))
            assert isinstance(relation, Persons)
            found |= {groups: (relation, number) for number, groups in enumerate(rows)}
        return found

    def keep(self, relation: Relation) -> Relation:
        """The relation, or the same one that is there already; two that differ have names that do."""
        known = next((one for one in self._found if one == relation), None)
        if known is not None:
            return known
        name, number = relation.name, 1
        while any(one.name == relation.name for one in self._found):
            number += 1
            relation = replace(relation, domain=relation.domain.model_copy(update={"table": f"{name} ({number})"}))
        self._found.append(relation)
        return relation
