"""Random domains with random batches over them: what is public, and the cells whose counts neighbours may move."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import combinations
from random import Random
from typing import Any

from batchdp.domain import Domain, as_domain
from batchdp.domain.columns import Dates, Integers, Listed, Numbers
from batchdp.engines.columns import Kind, kind_of
from batchdp.mechanism.lattice import OneGroup
from batchdp.mechanism.prepare import lattice_of
from batchdp.optimizer.families.noise_on_results import noise_on_results
from batchdp.sql import read_queries
from batchdp.workloads.encode.cells import Cells, cells_of
from batchdp.workloads.matrix import MatrixWorkload

TABLE = "visits"
UNIT = "who"
TOWNS = [f"town {i}" for i in range(45)] + ["Ω", "it's", 'a "b"', "x,y", "ß"]
OUTSIDE: list[dict[str, Any]] = [{}, {"outside": "clip"}]
CODES = [*range(1, 45), -7, 10**9, 2**53]


@dataclass(frozen=True)
class Case:
    """A domain, a batch over it, and the cells of the batch: a block for every statement."""

    domain: Domain
    statements: tuple[str, ...]
    cells: Cells
    sets: tuple[tuple[int, ...], ...] = ()
    """Where given, the engine counts these sets of the cells' columns, a table each, as plans of tables do."""
    sizes: tuple[int, ...] = ()
    """Where given, the table has codes, and so many values a column."""

    @property
    def unit(self) -> str | None:
        """The column that says whose a row is."""
        return self.domain.privacy.unit

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table: the declared ones, and the unit's."""
        declared = tuple(self.domain.columns)
        return declared if self.unit is None or self.unit in declared else (*declared, self.unit)

    @cached_property
    def lattice(self) -> OneGroup:
        """What would be measured to put noise on the results."""
        cells = self.cells
        workload = MatrixWorkload(
            cells.matrix, cells.names, blocks=cells.sizes, meetings=cells.meetings, ends=cells.ends
        )
        return lattice_of(noise_on_results(workload), largest_total=10**6)

    def kind(self, name: str) -> Kind | None:
        """What a column is declared to hold; None for a unit that is not declared."""
        return kind_of(self.domain.columns[name]) if name in self.domain.columns else None


def random_case(rng: Random) -> Case:
    """Two to four columns of any kind, a unit or none; now and then many wide columns, whose codes pass 2^31."""
    columns = _wide(rng) if rng.random() < 0.12 else _few(rng)
    for column in columns.values():
        column["other"] = rng.choice(["keep", "keep", "drop"])
    privacy: dict[str, Any] = {}
    if rng.random() < 0.6:
        # Sometimes the unit is a declared column too.
        declared = [
            name for name in columns if "dates" not in columns[name] and True not in columns[name].get("values", ())
        ]
        unit = rng.choice(declared) if declared and rng.random() < 0.25 else UNIT
        privacy = {"unit": unit, "rows_per_unit": rng.choice([1, 1, 2, 3])}
    domain = as_domain({"table": TABLE, "privacy": privacy, "columns": columns})
    statements = tuple(_statements(rng, domain))
    batches = [read_queries(statement, domain) for statement in statements]
    queries = [query for batch in batches for query in batch]
    ends = [sum(map(len, batches[: i + 1])) for i in range(len(batches))]
    partition = [list(range(end - len(batch), end)) for batch, end in zip(batches, ends, strict=True)]
    cells = cells_of(queries, domain, partition=partition)
    sets = tuple(combinations(range(len(cells.atoms)), min(2, len(cells.atoms)))) if rng.random() < 0.4 else ()
    return Case(domain, statements, cells, sets)


def random_codes(rng: Random) -> Case:
    """One to three columns of codes; only the values that the domain declares are used, to make records of."""
    sizes = tuple(rng.choice([2, 3, 3, 7, 40, 300]) for _ in range(rng.randint(1, 3)))
    columns = {f"c{i}": {"integers": [0, size - 1]} for i, size in enumerate(sizes)}
    domain = as_domain({"table": TABLE, "columns": columns})
    statements = (f"SELECT COUNT(*) AS everybody FROM {TABLE}",)
    return Case(domain, statements, cells_of(read_queries(statements[0], domain), domain), sizes=sizes)


def ordinary(column: Any) -> list[Any]:
    """Values on, beside and beyond what a column declares."""
    match column:
        case Listed(values=values) if column.kind == "text":
            return [*values[:3], *values[-5:], str(values[0]).lower(), f"{values[0]} ", "elsewhere"]
        case Listed(values=values) if column.kind == "boolean":
            return [True, False]
        case Listed(values=values):
            return [*values[:3], *values[-4:], 0, 12345]
        case Numbers(range=(low, high)):
            between = [] if column.step is None else [low + 2.5 * column.step, low + column.step / 2, 0.285, 0.1 + 0.2]
            return [low, high, (low + high) / 2, low - 1, high + 0.5, 0, 1.5, *between]
        case Integers(integers=(low, high)):
            return [low, high, (low + high) // 2, low + 1, low - 1, high + 1, low + 0.5]
        case Dates(dates=(first, last)):
            return [
                first,
                last,
                first + timedelta(days=40),
                last + timedelta(days=1),
                date(1850, 3, 1),
                date(9999, 12, 31),
            ]
    raise AssertionError(column)


def _few(rng: Random) -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {
        "state": {"values": ["NY", "NJ", "CA", "1"]},
        "town": {"values": TOWNS},
        "grade": {"values": [1, 2, 3, -4]},
        "code": {"values": CODES},
        "smoker": {"values": rng.choice([[True, False], [True]])},
        "age": {"range": [0, 120], "bins": [0, 18, 40, 65]},
        "weight": {"range": [-0.5, 99.75]},
        "children": {"integers": [0, 12]},
        "income": {"integers": [-5, 2**53 - 1], "bins": [-5, 0, 10**9], **rng.choice(OUTSIDE)},
        "charge": {"range": [0, 99_999.99], "step": 0.01, "bins": [0, 9.995, 100], **rng.choice(OUTSIDE)},
        "fare": {"range": [-2.5, 2.5], "step": 0.25, **rng.choice(OUTSIDE)},
        "visited": {"dates": ["2020-01-01", "2025-12-31"], "bins": ["2020-01-01", "2021-01-01", "2024-02-29"]},
    }
    return {name: kinds[name] for name in rng.sample(sorted(kinds), rng.randint(2, 4))}


def _wide(rng: Random) -> dict[str, dict[str, Any]]:
    # 26 atoms each: the last column's stride is a number of 32 bits, and its product with an atom's number is none.
    columns: dict[str, dict[str, Any]] = {f"n{i}": {"integers": [0, 11]} for i in range(6)}
    last = {"code": {"values": CODES}, "town": {"values": TOWNS}}
    name = rng.choice(sorted(last))
    return columns | {name: last[name]}


def _statements(rng: Random, domain: Domain) -> list[str]:
    """One that groups by every column that can be, so that its atoms are many; some with conditions."""
    found = [f"SELECT COUNT(*) AS everybody FROM {TABLE}"]
    for i, (name, column) in enumerate(domain.columns.items()):
        if column.grouped(name) is not None:
            found.append(f"SELECT {name}, COUNT(*) AS q{i} FROM {TABLE} GROUP BY {name}")
        conditions = " AND ".join(
            _condition(rng, *rng.choice(list(domain.columns.items()))) for _ in range(rng.randint(1, 2))
        )
        found.append(f"SELECT COUNT(*) AS c{i} FROM {TABLE} WHERE {conditions}")
        if isinstance(column, (Integers, Numbers)) and column.grid is not None:
            found.append(f"SELECT SUM({name}) AS s{i} FROM {TABLE}")
            found.append(f"SELECT SUM({name}) AS f{i}, COUNT(*) AS g{i} FROM {TABLE} WHERE {conditions}")
    rng.shuffle(found)
    return found


def _condition(rng: Random, name: str, column: Any) -> str:
    if rng.random() < 0.15:
        return f"{name} IS NULL"
    match column:
        case Listed():
            chosen = ", ".join(_literal(value) for value in rng.sample(column.values, min(2, len(column.values))))
            return f"{name} IN ({chosen})"
        case Numbers(range=(low, high)) | Integers(integers=(low, high)):
            return f"{name} BETWEEN {low} AND {(low + high) // 2}"
        case _:
            return f"{name} >= DATE '2022-02-02'"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
