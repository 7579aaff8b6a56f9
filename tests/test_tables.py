"""Every engine counts the same records alike: as a loop over them in Python does."""

from __future__ import annotations

import gc
import hashlib
import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from batchdp.domain import Dates, Domain, Integers, Listed, as_domain
from batchdp.engines import count, open_table
from batchdp.engines.coding import pack, unpack
from batchdp.queries.query import Cut, Place
from batchdp.workloads.encode.atoms import Atoms, LineAtoms, ListedAtoms
from engines import ALIKE, ENGINES, every_engine, on_spark

Counts = dict[tuple[int, ...], int]
ODD = [
    "it's",
    'say "hi"',
    "back\\slash",
    "tab\there",
    "1; DROP TABLE patients; --",
    "naïve ☃ 𝒳",
    "%s {x} $1",
    "--",
    "NULL",
]
EVIL = 'x"; DROP TABLE patients; --'
"""As the name of a column."""


def day(text: str) -> int:
    return date.fromisoformat(text).toordinal()


def cuts(*places: Place) -> tuple[Cut, ...]:
    """Before and after each place."""
    return tuple(Cut(place, after) for place in places for after in (False, True))


def records() -> Any:
    """Values on, beside and far from every cut; all kinds of nothing."""
    floats = [
        0.1,
        np.nextafter(0.1, 1),
        np.nextafter(0.1, 0),
        math.nan,
        math.inf,
        -math.inf,
        None,
        0.0,
        -0.0,
        1e300,
        7.5,
    ]
    singles = [0.1, 0.5, 16777216.0, math.nan, math.inf, None, -3.25]
    integers = [None, -1, 0, 1, 17, 18, 19, 64, 65, 120, 121, 2**40]
    decimals = [None, "0.10", "0.09", "0.11", "-0.01", "99999999.99", "-99999999.99", "5.00"]
    moments = [None, "2020-01-01T00:00:00", "2019-12-31T23:59:59.999999", "2020-06-15T12:00:00", "1850-03-01T00:00:00"]
    moments += ["2025-12-31T23:59:59", "2026-01-01T00:00:00", "9999-12-31T00:00:00"]
    rows = 300
    rng = np.random.default_rng(0)

    def draw(values: Sequence[Any]) -> list[Any]:
        return [values[i] for i in rng.integers(len(values), size=rows)]

    found = draw(moments)
    return pa.table(
        {
            "patient_id": pa.array(draw([None, *range(60)]), pa.int64()),
            "Age": pa.array(draw(integers), pa.int64()),
            "income": pa.array(draw(floats), pa.float64()),
            "dose": pa.array(draw(singles), pa.float32()),
            "price": pa.array(
                [None if text is None else Decimal(text) for text in draw(decimals)], pa.decimal128(10, 2)
            ),
            "state": pa.array(draw([None, "NY", "ny", "NY ", "NJ", "elsewhere", *ODD]), pa.string()),
            "visited": pa.array(
                [None if text is None else datetime.fromisoformat(text) for text in found], pa.timestamp("us")
            ),
            "born": pa.array(
                [None if text is None else date.fromisoformat(text[:10]) for text in draw(moments)], pa.date32()
            ),
            "smoker": pa.array(draw([None, True, False]), pa.bool_()),
            EVIL: pa.array(draw([1, 2, 3, None]), pa.int32()),
        }
    )


def domain(**privacy: Any) -> Domain:
    return as_domain(
        {
            "table": "patients",
            "privacy": {"unit": "patient_id", **privacy},
            "columns": {
                "age": {"integers": [0, 120]},
                "income": {"range": [0, 10]},
                "dose": {"range": [0, 10]},
                "price": {"range": [0, 10]},
                "state": {"values": ["NY", "NJ", "it's", 'say "hi"', "back\\slash", "1; DROP TABLE patients; --"]},
                "visited": {"dates": ["2020-01-01", "2025-12-31"]},
                "born": {"dates": ["2020-01-01", "2025-12-31"]},
                "smoker": {"values": [True, False]},
                EVIL: {"values": [1, 2]},
            },
        }
    )


ATOMS: dict[str, Atoms] = {
    "whole numbers": LineAtoms(
        "age",
        "number",
        (Cut(0), Cut(0.5), Cut(18), Cut(18, after=True), Cut(64.5, after=True), Cut(120, after=True)),
        None,
    ),
    "numbers": LineAtoms("income", "number", cuts(-1.5, 0, 0.1, 7.5), None),
    "floats of 32 bits": LineAtoms("dose", "number", cuts(0.1, 0.5, 16777216), None),
    "decimals": LineAtoms(
        "price", "number", (*cuts(-(10**10), 0.095, 0.1), Cut(0.101), *cuts(99999999.99, 10**12)), None
    ),
    "texts": ListedAtoms(
        "state", "text", (("NY",), ("it's", "back\\slash", 'say "hi"'), ("1; DROP TABLE patients; --", "NULL")), None
    ),
    "moments": LineAtoms(
        "visited", "date", (Cut(day("2020-01-01")), Cut(day("2020-06-16")), Cut(day("2026-01-01"))), None
    ),
    "days": LineAtoms(
        "born", "date", (Cut(day("1900-01-01")), Cut(day("2020-01-01")), Cut(day("9999-12-31") + 1)), None
    ),
    "booleans": ListedAtoms("smoker", "boolean", ((True,), (False,)), None),
    "one boolean": ListedAtoms("smoker", "boolean", ((False,),), None),
    "an evil name": ListedAtoms(EVIL, "integer", ((1,), (2,)), None),
    "whole numbers listed": ListedAtoms("age", "integer", ((0, 18), (65,), (121, 5)), None),
    "floats listed": ListedAtoms("income", "integer", ((0,), (1, 7)), None),
    "decimals listed": ListedAtoms("price", "integer", ((5, 10**12), (0,)), None),
    "dropped numbers": LineAtoms("income", "number", cuts(0.1), (0, 7.5)),
    "dropped to whole": LineAtoms("income", "number", cuts(0), (-5, 2**53), whole=True),
    "dropped decimals": LineAtoms("price", "number", cuts(0.1), (0, 7.5), whole=True),
    "dropped ages": LineAtoms("age", "number", cuts(18), (0, 120), whole=True),
    "dropped days": LineAtoms("visited", "date", (Cut(day("2020-06-01")),), (day("2020-01-01"), day("2025-12-31"))),
    "dropped texts": ListedAtoms("state", "text", (("NY",),), ("NY", "NJ", "it's")),
    "dropped booleans": ListedAtoms("smoker", "boolean", ((True,),), (True,)),
    "long list of texts": ListedAtoms("state", "text", tuple((f"v{i}", *ODD[i : i + 1]) for i in range(40)), None),
    "long list, dropped": ListedAtoms(
        "state", "text", (("NY", "it's"), ("ny",)), (*ODD, "NY", "ny", *map(str, range(40)))
    ),
    "long list of ages": ListedAtoms("age", "integer", tuple((i,) for i in range(60)), None),
    "long list of floats": ListedAtoms("income", "integer", tuple((i,) for i in range(-5, 40)), tuple(range(-5, 50))),
    "long list of decimals": ListedAtoms("price", "integer", tuple((i,) for i in range(-5, 40)), None),
}


# ── the loop ──


def value_of(record: dict[str, Any], atoms: Atoms) -> Any:
    value = next(value for name, value in record.items() if name.lower() == atoms.column.lower())
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if atoms.kind == "date":
        return value.toordinal()
    return Decimal(value) if isinstance(value, Decimal) else value


def atom_of(value: Any, atoms: Atoms, single: bool) -> int | None:
    """The number of a value's atom; None if the record is dropped."""

    def exactly(place: Place) -> Any:
        if isinstance(value, Decimal):
            return Decimal(str(place))
        return float(np.float32(place)) if single else place

    if isinstance(atoms, ListedAtoms):
        if atoms.declared is not None and value not in atoms.declared:
            return None
        found = [i for i, group in enumerate(atoms.groups) if value is not None and value in group]
        return found[0] if found else len(atoms.groups) + (value is None)
    assert isinstance(atoms, LineAtoms)
    if atoms.declared is not None:
        low, high = atoms.declared
        if value is None or not exactly(low) <= value <= exactly(high) or (atoms.whole and value != int(value)):
            return None
    if value is None:
        return len(atoms.cuts) + 1
    return bisect(atoms.cuts, (value, False), key=lambda cut: (exactly(cut.value), cut.after))


def capped() -> Domain:
    """Without the floats of 32 bits, which a text file spells as other numbers."""
    columns = {name: column for name, column in domain().columns.items() if name != "dose"}
    return domain().model_copy(update={"columns": columns})


def lot_of(record: dict[str, Any], unit: str) -> tuple[Any, ...]:
    """What decides which of a person's records count: the person and the declared columns, whatever is asked."""
    told, beyond = [str(record[unit])], []
    for name, column in capped().columns.items():
        value = value_of(record, LineAtoms(name, "date" if isinstance(column, Dates) else "number", (), None))
        if isinstance(column, Listed) and column.kind != "integer":
            told.append("-" if value is None else f"={int(value) if column.kind == 'boolean' else value}")
            continue
        ends: Any = (min(column.values), max(column.values)) if isinstance(column, Listed) else column.ends()
        low, high = ends
        whole = isinstance(column, Listed | Integers)
        if value is None:
            told.append("-")
        elif not low <= value <= high or (whole and value != int(value)):
            told.append("?")
        elif isinstance(column, Dates):
            told.append(f"={date.fromordinal(value):%Y%m%d}")
        elif whole:
            told.append(f"={int(value) - low}")
        else:
            step = (high - low) / 2**40
            told.append(f"={math.floor((float(value) - low + step / 2) / step)}")
        beyond.append(0 if value is None else value)
    return hashlib.md5(":".join(told).encode()).hexdigest(), *beyond


def looped(table: Any, atoms: Sequence[Atoms], unit: str | None = None, rows_per_unit: int = 1) -> Counts:
    counted: Counter[tuple[int, ...]] = Counter()
    units: dict[Any, list[tuple[Any, ...]]] = {}
    for record in table.to_pylist():
        found = [atom_of(value_of(record, one), one, one.column == "dose") for one in atoms]
        codes = tuple(code for code in found if code is not None)
        if len(codes) < len(atoms):
            continue
        if unit is None:
            counted[codes] += 1
        elif record[unit] is not None:
            units.setdefault(record[unit], []).append((*lot_of(record, unit), codes))
    for rows in units.values():
        counted.update(codes for *_, codes in sorted(rows)[:rows_per_unit])
    return dict(counted)


def counted(table: Any, atoms: Sequence[Atoms], unit: str | None = None, rows_per_unit: int = 1, **more: Any) -> Counts:
    found: Counts = {}
    with open_table(table, more.pop("domain", None) or (domain() if unit is None else capped())) as source:
        for codes, counts in count(source, atoms, unit=unit, rows_per_unit=rows_per_unit, **more):
            assert codes.dtype == np.int32
            assert counts.dtype == np.int64
            for row, number in zip(codes.tolist(), counts.tolist(), strict=True):
                assert tuple(row) not in found
                found[tuple(row)] = number
    return found


# ── tests ──


@pytest.fixture(autouse=True)
def _collect_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever Spark leaves behind goes while its test still is the one to blame."""
    yield
    if request.node.get_closest_marker("slow"):
        gc.collect()


@every_engine(slow=ALIKE)
def test_every_kind_of_atom(engine: str, tmp_path: Path) -> None:
    with open_table(ENGINES[engine](records(), tmp_path), domain()) as source:
        for title, atoms in ATOMS.items():
            found = {
                tuple(row): number
                for codes, counts in count(source, [atoms])
                for row, number in zip(codes.tolist(), counts.tolist(), strict=True)
            }
            assert found == looped(records(), [atoms]), title


@every_engine(slow=ALIKE)
def test_several_columns_and_a_unit(engine: str, tmp_path: Path) -> None:
    table = ENGINES[engine](records(), tmp_path)
    several = [ATOMS[title] for title in ("moments", "texts", "numbers", "booleans", "an evil name")]
    dropping = [ATOMS[title] for title in ("dropped numbers", "days", "long list, dropped")]
    for atoms in (several, dropping, []):
        assert counted(table, atoms) == looped(records(), atoms)
        for cap in (1, 3):
            assert counted(table, atoms, "patient_id", cap) == looped(records(), atoms, "patient_id", cap)


@every_engine(*ALIKE, slow=["csv", "parquet", "pandas", "ibis", "postgres"])
def test_more_combinations_than_one_integer_holds(engine: str, tmp_path: Path) -> None:
    atoms = [ATOMS[title] for title in ("whole numbers", "numbers", "decimals", "texts", "moments", "days") * 5]
    assert math.prod(one.size for one in atoms) > 2**70
    table = ENGINES[engine](records(), tmp_path)
    assert counted(table, atoms) == looped(records(), atoms)
    for cap in (1, 2):
        assert counted(table, atoms, "patient_id", cap) == looped(records(), atoms, "patient_id", cap)


@every_engine(slow=ALIKE)
def test_a_person_with_many_rows_changes_the_counts_by_the_cap(engine: str, tmp_path: Path) -> None:
    others = records()
    crowd = pa.table({name: others[name].take(np.arange(10_000) % len(others)) for name in others.column_names})
    heavy = crowd.set_column(0, "patient_id", pa.array([1000] * len(crowd), pa.int64()))
    atoms = [ATOMS["numbers"], ATOMS["texts"]]
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    with_heavy = ENGINES[engine](pa.concat_tables([others, heavy]), tmp_path / "with")
    without = ENGINES[engine](others, tmp_path / "without")
    for cap in (1, 4):
        more, fewer = (Counter(counted(table, atoms, "patient_id", cap)) for table in (with_heavy, without))
        assert sum((more - fewer).values()) == cap
        assert not fewer - more


@every_engine()
def test_an_empty_table(engine: str, tmp_path: Path) -> None:
    table = ENGINES[engine](records()[:0], tmp_path)
    assert counted(table, [ATOMS["numbers"], ATOMS["texts"]]) == {}
    assert counted(table, [], "patient_id") == {}


@every_engine("csv", "csv.gz", "tsv")  # these read all numbers as float64
def test_integers_beyond_what_floats_hold(engine: str, tmp_path: Path) -> None:
    values = [2**53 - 1, 2**53, 2**53 + 1, 2**62, -(2**53) - 1, -(2**53), -(2**63), 2**63 - 1]
    table = pa.table({"patient_id": pa.array(range(8), pa.int64()), "big": pa.array(values, pa.int64())})
    atoms = LineAtoms("big", "number", cuts(-(2**53), 2**53), None)
    big = as_domain({"table": "patients", "columns": {"big": {"range": [-(2**53), 2**53]}}})
    assert counted(ENGINES[engine](table, tmp_path), [atoms], domain=big) == looped(table, [atoms])


@every_engine(slow=ALIKE)
def test_texts_as_units(engine: str, tmp_path: Path) -> None:
    names = pa.array(
        [None if i is None else ODD[i % len(ODD)] for i in records()["patient_id"].to_pylist()], pa.string()
    )
    table = records().set_column(0, "patient_id", names)
    atoms = [ATOMS["numbers"], ATOMS["days"]]
    assert counted(ENGINES[engine](table, tmp_path), atoms, "patient_id", 2) == looped(table, atoms, "patient_id", 2)


def test_which_records_of_a_person_count_is_drawn_by_lot() -> None:
    size = 50_000
    groups = np.random.default_rng(0).integers(4, size=(size, 5))
    table = pa.table(
        {"patient_id": np.repeat(np.arange(size), 5), "state": np.array(["NY", "NJ", "CA", "WA"])[groups.ravel()]}
    )
    atoms = ListedAtoms("state", "text", (("NY",), ("NJ",), ("CA",), ("WA",)), None)
    columns = {"state": {"values": ["NY", "NJ", "CA", "WA"]}}
    one = as_domain({"table": "patients", "privacy": {"unit": "patient_id"}, "columns": columns})
    found = np.array(sorted(counted(table, [atoms], "patient_id", 1, domain=one).values()))
    assert found.sum() == size
    assert np.abs(found - size / 4).max() < 6 * np.sqrt(size / 4)


def test_packing_is_undone() -> None:
    sizes = [2, 3, 10**9, 10**9, 7, 10**12, 10**12, 2**31 - 1]
    packs = pack(sizes)
    rng = np.random.default_rng(0)
    atoms = np.stack([rng.integers(size, size=100) for size in sizes], axis=1)
    codes = [sum(atoms[:, i] * stride for i, stride in pack) for pack in packs]
    assert sorted(i for pack in packs for i, _ in pack) == list(range(len(sizes)))
    small = [i for i, size in enumerate(sizes) if size < 2**31]
    assert (unpack([np.asarray(code) for code in codes], packs, sizes)[:, small] == atoms[:, small]).all()


def test_many_cuts_are_found_by_halving() -> None:
    atoms = LineAtoms("income", "number", tuple(Cut(i / 8) for i in range(1000)), None)
    values = [i / 16 - 1 for i in range(2500)]
    table = pa.table({"income": pa.array(values, pa.float64()), "patient_id": pa.array(range(2500), pa.int64())})
    one = as_domain({"table": "patients", "columns": {"income": {"range": [0, 1000]}}})
    assert counted(table, [atoms], domain=one) == looped(table, [atoms])


def test_progress_says_how_far_and_nothing_else() -> None:
    told: list[tuple[float, str]] = []
    counted(records(), [ATOMS["numbers"]], progress=lambda share, text: told.append((share, text)))
    assert told[-1] == (1.0, "counting in the PyArrow Table")
    assert all(math.isnan(share) or 0 <= share <= 1 for share, _ in told)
    assert {text for _, text in told} == {"counting in the PyArrow Table"}


@on_spark
def test_many_records_are_counted_alike_in_every_engine(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    size = 200_000
    income = np.round(np.exp(rng.normal(10, 1, size)), 2)
    income[rng.random(size) < 0.01] = math.nan
    first = datetime(2019, 12, 1)
    seconds = rng.integers(7 * 365 * 86400, size=size)
    states = np.array(["NY", "NJ", "CA", "WA", "it's", "back\\slash", "elsewhere", None], object)
    table = pa.table(
        {
            "patient_id": pa.array(rng.zipf(1.5, size) % 300_000, pa.int64(), mask=rng.random(size) < 0.01),
            "age": pa.array(rng.integers(-5, 130, size), pa.int64(), mask=rng.random(size) < 0.01),
            "income": pa.array(income, pa.float64(), mask=rng.random(size) < 0.01),
            "state": pa.array(states[rng.integers(len(states), size=size)], pa.string()),
            "visited": pa.array([first + timedelta(seconds=int(second)) for second in seconds], pa.timestamp("us")),
        }
    )
    atoms: list[Atoms] = [
        LineAtoms("age", "number", tuple(Cut(i) for i in range(0, 121, 10)), (0, 120), whole=True),
        LineAtoms("income", "number", cuts(*range(5_000, 100_000, 5_000)), None),
        ListedAtoms("state", "text", (("NY", "NJ"), ("it's",), ("back\\slash", "CA")), None),
        LineAtoms("visited", "date", tuple(Cut(day("2020-01-01") + 90 * i) for i in range(24)), None),
    ]
    names = ("age", "income", "state", "visited")
    million = as_domain(
        {
            "table": "patients",
            "privacy": {"unit": "patient_id"},
            "columns": {name: domain().columns[name].model_dump(exclude_none=True) for name in names},
        }
    )
    expected: dict[int | None, Counts] = {}
    for engine, make in ENGINES.items():
        folder = tmp_path / engine.replace(" ", "-")
        folder.mkdir()
        given = make(table, folder)
        for cap in (None, 1, 3):
            found = counted(given, atoms, None if cap is None else "patient_id", cap or 1, domain=million)
            assert found == expected.setdefault(cap, found), (engine, cap)
    ages = table["age"].to_pandas()
    assert sum(expected[None].values()) == ages.between(0, 120).sum()
    assert sum(expected[1].values()) == table["patient_id"].to_pandas()[ages.between(0, 120)].nunique()
    assert sum(expected[1].values()) < sum(expected[3].values()) < sum(expected[None].values())
