"""Statements over tables, joins, persons, lookups and rows for each person: as SQL, and counted in plain Python.

A condition is true, false or None, as SQL has it, of a row; a row is a dictionary that has None for NULL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from random import Random
from typing import Any

Row = dict[str, Any]
Test = Callable[[Row], bool | None]
CLINICS = "id,region,kind,beds\nc1,north,large,100\nc2,south,small,20\nc4,south,large,\n"
LOOKED_UP = {"c1": ("north", 100), "c2": ("south", 20)}
"""What the lookup says of declared values."""
DECLARED: dict[str, Sequence[Any]] = {"sex": ("f", "m"), "clinic": ("c1", "c2", "c3"), "region": ("north", "south")}
FEES = range(4)


def known(name: str, holds: Callable[[Any], bool]) -> Test:
    """A comparison: of nothing, nothing is known."""
    return lambda row: None if row[name] is None else holds(row[name])


def either(one: Test, other: Test) -> Test:
    """OR."""

    def holds(row: Row) -> bool | None:
        both = (one(row), other(row))
        return True if True in both else None if None in both else False

    return holds


OF_VISITS: dict[str, Test] = {
    "fee >= 2": known("fee", lambda fee: fee >= 2),
    "clinic <> 'c1'": known("clinic", lambda clinic: clinic != "c1"),
    "clinic IS NULL OR fee = 0": either(lambda row: row["clinic"] is None, known("fee", lambda fee: fee == 0)),
}
OF_PATIENTS: dict[str, Test] = {"sex = 'f'": known("sex", lambda sex: sex == "f")}
OF_LOOKUP: dict[str, Test] = {
    "clinics.beds > 50": known("beds", lambda beds: beds > 50),
    "region = 'south'": known("region", lambda region: region == "south"),
}
OF_PERSONS: dict[str, Test] = {
    "n >= 2": known("n", lambda n: n >= 2),
    "fees > 2": known("fees", lambda fees: fees > 2),
    "fees IS NULL OR most = 3": either(lambda row: row["fees"] is None, known("most", lambda most: most == 3)),
    "least <= 1": known("least", lambda least: least <= 1),
    "k <> 'c2'": known("k", lambda k: k != "c2"),
    "seen = n": lambda row: None if row["n"] is None else row["seen"] == row["n"],
}
PER_PERSON = (
    "SELECT pid, COUNT(*) AS n, SUM(fee) AS fees, MAX(fee) AS most, MIN(fee) AS least, COUNT(clinic) AS seen, "
    "ANY_VALUE(clinic) AS k FROM visits{where} GROUP BY pid"
)
DUCKDBS = {
    "SUM(fee)": "SUM(CASE WHEN fee BETWEEN 0 AND 3 THEN fee END)",
    "ANY_VALUE(clinic)": "MIN(CASE WHEN clinic IN ('c1', 'c2', 'c3') THEN clinic END)",
}
"""What only declared values are taken of, as DuckDB has to write it."""


@dataclass(frozen=True)
class Statement:
    """One SELECT, and what it counts."""

    sql: str
    keys: tuple[str, ...]
    rows: Callable[[list[Row], list[Row]], list[Row]]
    """From patients and visits."""
    counted: Test
    persons: str | None
    """The column whose different values are counted; None where rows are."""

    @property
    def in_duckdb(self) -> str:
        """The same for DuckDB."""
        found = self.sql
        for ours, theirs in DUCKDBS.items():
            found = found.replace(ours, theirs)
        return found

    def count(self, patients: list[Row], visits: list[Row]) -> Mapping[tuple[str, ...], int]:
        """The answer of every group, by its keys as texts."""
        found: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
        for row in self.rows(patients, visits):
            if self.counted(row):
                found[tuple(str(row[key]) for key in self.keys)].append(row[self.persons or "id"])
        return {key: len(set(who) if self.persons else who) for key, who in found.items()}


def joined(patients: list[Row], visits: list[Row], *, outer: bool) -> list[Row]:
    """Rows of the same person, side by side."""
    nothing = dict.fromkeys(visits[0] if visits else (), None)
    found = []
    for one in patients:
        met = [other for other in visits if other["pid"] == one["id"]]
        found += [{**other, **one} for other in met or ([nothing] if outer else [])]
    return found


def looked_up(rows: list[Row]) -> list[Row]:
    """With what the lookup says; without rows of which it says nothing."""
    return [
        {**row, "region": LOOKED_UP[row["clinic"]][0], "beds": LOOKED_UP[row["clinic"]][1]}
        for row in rows
        if row["clinic"] in LOOKED_UP
    ]


def per_person(visits: list[Row], holds: Test) -> list[Row]:
    """One row for everybody with a row that counts."""
    whose: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in visits:
        if holds(row):
            whose[row["pid"]].append(row)
    found = []
    for who, own in whose.items():
        fees = [row["fee"] for row in own if row["fee"] is not None]
        declared = [fee for fee in fees if fee in FEES]
        clinics = [row["clinic"] for row in own if row["clinic"] is not None]
        row = {"pid": who, "n": len(own), "fees": sum(declared) if declared else None, "seen": len(clinics)}
        row |= {"most": max(fees, default=None), "least": min(fees, default=None)}
        found.append({**row, "k": next((one for one in DECLARED["clinic"] if one in clinics), None), "id": who})
    return found


def statements(seed: int) -> Iterator[Statement]:
    """Without end."""
    chance = Random(seed)
    while True:
        yield _of_persons(chance) if chance.random() < 0.3 else _of_rows(chance)


def _of_rows(chance: Random) -> Statement:
    """Over a table, a join, and perhaps a lookup."""
    way = chance.choice(["", "JOIN", "LEFT JOIN"])
    source = f"patients p {way} visits ON p.id = visits.pid" if way else "visits"
    looked = way != "LEFT JOIN" and chance.random() < 0.5
    source += " JOIN clinics ON visits.clinic = clinics.id" * looked
    tests = OF_VISITS | (OF_PATIENTS if way else {}) | (OF_LOOKUP if looked else {})

    def rows(patients: list[Row], visits: list[Row]) -> list[Row]:
        found = joined(patients, visits, outer=way == "LEFT JOIN") if way else visits
        return looked_up(found) if looked else found

    keys = ["clinic", *["sex"] * bool(way), *["region"] * looked]
    return _made(chance, source, rows, tests, keys, "p.id" if way else "pid", "fee = 1")


def _of_persons(chance: Random) -> Statement:
    """Over a subquery that is grouped by the unit, perhaps joined to patients."""
    said, holds = _where(chance, OF_VISITS)
    inner = f"({PER_PERSON.format(where=said)}) s"
    way = chance.choice(["", "JOIN", "LEFT JOIN"])
    nobody = dict.fromkeys(("pid", "n", "fees", "most", "least", "seen", "k"), None)

    def rows(patients: list[Row], visits: list[Row]) -> list[Row]:
        found = per_person(visits, holds)
        if not way:
            return found
        by = {row["pid"]: row for row in found}
        return [{**by.get(one["id"], nobody), **one} for one in patients if way == "LEFT JOIN" or one["id"] in by]

    tests = OF_PERSONS | (OF_PATIENTS if way else {})
    source = f"patients p {way} {inner} ON p.id = s.pid" if way else inner
    return _made(chance, source, rows, tests, ["n", "k", *["sex"] * bool(way)], None, "most >= 2")


def _where(chance: Random, tests: Mapping[str, Test]) -> tuple[str, Test]:
    """A condition, its negation, or none."""
    said = chance.choice(sorted(tests))
    wanted = chance.choice([None, True, False])
    if wanted is None:
        return "", lambda row: True
    return f" WHERE {said}" if wanted else f" WHERE NOT ({said})", lambda row: tests[said](row) is wanted


def _made(
    chance: Random,
    source: str,
    rows: Callable[[list[Row], list[Row]], list[Row]],
    tests: Mapping[str, Test],
    keys: Sequence[str],
    unit: str | None,
    filtered: str,
) -> Statement:
    by = tuple(chance.sample(keys, chance.choice([0, 1, 1, min(2, len(keys))])))
    said, holds = _where(chance, tests)
    persons = unit is not None and chance.random() < 0.6
    what = f"COUNT(DISTINCT {unit})" if persons else "COUNT(*)"
    also: Test = known("fee", lambda fee: fee == 1) if filtered == "fee = 1" else known("most", lambda most: most >= 2)
    filters = chance.random() < 0.3
    what += f" FILTER (WHERE {filtered})" * filters
    group = f" GROUP BY {', '.join(by)}" if by else ""
    sql = f"SELECT {', '.join([*by, f'{what} AS n0'])} FROM {source}{said}{group}"
    name = None if not persons else "id" if unit == "p.id" else "pid"
    return Statement(sql, by, rows, lambda row: holds(row) and (not filters or bool(also(row))), name)


def capped(rows: Sequence[Row], unit: str, cap: int) -> list[Row]:
    """At most so many rows of everybody, by the lot that engines draw, written again here; nobody's are left out."""
    whose: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row[unit] is not None:
            whose[row[unit]].append(row)
    return [row for who, own in whose.items() for row in sorted(own, key=lambda row: _lot(who, row, unit))[:cap]]


def _lot(who: str, row: Row, unit: str) -> tuple[Any, ...]:
    """By the person and the declared columns, whatever is asked; then by the values themselves."""
    told = []
    for name, value in row.items():
        if name in ("sex", "clinic"):
            told.append("-" if value is None else f"={value}")
        elif name == "fee":
            told.append("-" if value is None else f"={value}" if value in FEES else "?")
    return md5(":".join([who, *told]).encode()).hexdigest(), row.get("fee")
