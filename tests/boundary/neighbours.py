"""Random tables, and their neighbours: a record or a person added, removed or replaced, at any position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from boundary.domains import Case, ordinary
from boundary.storages import SKIP, Storage

Row = dict[str, Any]
Storages = Mapping[str, Storage]


@dataclass(frozen=True)
class Change:
    """A neighbour of a table."""

    rows: list[Row]
    factor: int
    """How often `rows_per_unit` the counts of a block may move: once, or twice if something was replaced."""
    what: str


@dataclass(frozen=True)
class Generator:
    """Rows of a table whose columns have certain types."""

    rng: Random
    case: Case
    storages: Storages
    pools: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]

    @staticmethod
    def of(rng: Random, case: Case, storages: Storages) -> Generator:
        """For every column its ordinary and its hostile values."""
        pools = {}
        for name, storage in storages.items():
            declared = ordinary(case.domain.columns[name]) if name in case.domain.columns else ()
            usual = [fitted for value in declared if (fitted := storage.fit(value)) is not SKIP]
            pools[name] = (usual, list(storage.hostile))
        return Generator(rng, case, storages, pools)

    def value(self, name: str, hostility: float = 0.25) -> Any:
        usual, hostile = self.pools[name]
        if self.rng.random() < 0.06 or not (usual or hostile):
            return None
        if hostile and (not usual or self.rng.random() < hostility):
            return self.rng.choice(hostile)
        return self.rng.choice(usual)

    def row(self, who: Any = None, hostility: float = 0.25) -> Row:
        found = {name: self.value(name, hostility) for name in self.storages}
        if self.case.unit is not None:
            found[self.case.unit] = who
        return found

    def person(self, who: Any, hostility: float = 0.25) -> list[Row]:
        """All rows of somebody, or one row where every row is somebody."""
        rows = 1 if self.case.unit is None else self.rng.randint(1, 4)
        return [self.row(who, hostility) for _ in range(rows)]

    def table(self) -> list[Row]:
        """A few people's rows, mixed. Some tables have nothing hostile in them, so that one record can be the first."""
        hostility = self.rng.choice([0.0, 0.0, 0.2, 0.6])
        people = self.rng.choice([0, 1, 2, 4, 8])
        ids = [self.value(self.case.unit, 0.7) if self.case.unit else None for _ in range(people)]
        rows = [row for who in ids for row in self.person(who, hostility)]
        self.rng.shuffle(rows)
        return rows

    def whose(self, row: Row) -> Any:
        """What this row has in common with all rows of its person; None if it is nobody's."""
        assert self.case.unit is not None
        return self._key(row[self.case.unit])

    def _key(self, who: Any) -> Any:
        assert self.case.unit is not None
        return None if who is None else self.storages[self.case.unit].person(who)

    def neighbour(self, rows: list[Row]) -> Change:
        """One of the table's neighbours."""
        kinds: list[Callable[[list[Row]], Change]] = [self._added]
        if rows:
            kinds += [self._added, self._removed, self._removed, self._replaced]
        return self.rng.choice(kinds)(rows)

    def _position(self, rows: Sequence[Row]) -> int:
        return self.rng.choice([0, len(rows), self.rng.randint(0, len(rows))])

    def _added(self, rows: list[Row]) -> Change:
        who = None if self.case.unit is None else self.value(self.case.unit, 0.8)
        nobody = self.case.unit is not None and self._key(who) is None
        if self.case.unit is not None and not nobody and any(self.whose(row) == self._key(who) for row in rows):
            return self._removed(rows)
        found = list(rows)
        hostility = self.rng.choice([0.3, 0.9])
        for row in [self.row(who, hostility)] if nobody else self.person(who, hostility):
            found.insert(self._position(found), row)
        return Change(found, 1, "added")

    def _removed(self, rows: list[Row]) -> Change:
        chosen = self.rng.choice([0, len(rows) - 1, self.rng.randrange(len(rows))])
        key = None if self.case.unit is None else self.whose(rows[chosen])
        if key is None:
            return Change(rows[:chosen] + rows[chosen + 1 :], 1, "removed")
        return Change([row for row in rows if self.whose(row) != key], 1, "removed")

    def _replaced(self, rows: list[Row]) -> Change:
        """One record in the place of another; of the same person, if records have one."""
        chosen = self.rng.choice([0, len(rows) - 1, self.rng.randrange(len(rows))])
        who = None if self.case.unit is None else rows[chosen][self.case.unit]
        return Change([*rows[:chosen], self.row(who, 0.8), *rows[chosen + 1 :]], 2, "replaced")
