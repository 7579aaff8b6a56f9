"""`batchdp init`: what it drafts can be planned as it is, whatever the columns are called; no value is read."""

from __future__ import annotations

import gzip
import json
import os
import re
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, get_args

import duckdb
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import batchdp
from batchdp.domain import Domain, Integers, Listed, read_domain
from batchdp.domain.columns import Dates, Numbers
from batchdp.domain.draft import RESERVED, ColumnType, Described, Draft, draft, is_free_text, is_identifier
from batchdp.engines.constraints import describe_said, read_check
from batchdp.engines.source import Said
from batchdp.errors import DomainError
from batchdp.queries.query import Query
from batchdp.sql import read_queries
from batchdp.workloads.encode.cells import cells_of
from commands import refused, succeeds, unchanged
from engines import postgres

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "60"))
TYPES = st.sampled_from(get_args(ColumnType))
ODD: tuple[str, ...] = (
    "",
    " ",
    "a b",
    'a"b',
    "a'b",
    "a]b",
    "a.b",
    "a\nb",
    "Größe",
    "年齢",
    "аge",
    "ﬁ",
    "x" * 200,
    "x" * 201,
    "a\u200bb",
)
ODD += ("SELECT", "count", "total", "by_x", "x", "X", "1st", "-1", "#", "a;--", "/*", "\\", "\\n", "%", "ß", "SS", "ſ")
ODD += ("a." * 150, "\u2028", "\x7f", "🙂", "é", "e\u0301", "İ", "_", "person", "Patient_ID", "age", "date", "яа", "яa")
NAMES = st.one_of(st.sampled_from(ODD), st.text(max_size=12), st.sampled_from(sorted(RESERVED)))


def loaded(table: str, columns: list[tuple[str, ColumnType]]) -> tuple[Domain, tuple[Query, ...]]:
    return loads(draft(table, described(columns)))


def described(columns: list[tuple[str, ColumnType]]) -> list[Described]:
    return [Described(name, kind) for name, kind in columns]


def loads(drafted: Draft) -> tuple[Domain, tuple[Query, ...]]:
    """What is drafted, as it is; with its comments it loads, too."""
    domain = read_domain(drafted.domain, source="domain.toml")
    queries = read_queries(drafted.queries, domain, source="queries.sql")
    assert read_queries(drafted.queries.replace("\n-- SELECT", "\nSELECT"), domain)  # what is in comments holds, too
    cells_of(queries, domain)
    assert set(uncommented(drafted.domain).columns) == set(domain.columns)
    return domain, queries


def uncommented(text: str) -> Domain:
    """The domain with everything that is drafted as a comment behind the columns' heads."""
    head, *sections = text.split("\n[columns.")
    known = "bins|groupings|other" + "|step|outside" * ("step" in Numbers.model_fields)
    return read_domain("\n[columns.".join([head, *(re.sub(rf"(?m)^# ({known}) =", r"\1 =", one) for one in sections)]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(NAMES, TYPES), max_size=8))
@example([(name, "unknown") for name in ODD])
@example([("x", "number"), ("X", "number")])
@example([("patient", "other"), ("x", "text")])
def test_every_draft_loads(columns: list[tuple[str, ColumnType]]) -> None:
    try:
        draft("visits", described(columns))
    except DomainError:
        with pytest.raises(DomainError, match="no column that can be declared"):
            draft("visits", described(columns))
        return
    domain, queries = loaded("visits", columns)
    assert queries[0].name == "total"
    names = [name for name, _ in columns]
    assert set(domain.columns) <= set(names)
    for name in domain.columns:
        assert sum(other.casefold() == name.casefold() for other in names) == 1, "the table could not tell them apart"
    if domain.privacy.unit is not None:
        assert domain.privacy.unit in names


@pytest.mark.slow
def test_words_that_sql_keeps_for_itself() -> None:
    from sqlglot.tokens import Tokenizer

    words = sorted({word.lower() for word in Tokenizer.KEYWORDS if word.isidentifier() and word.isascii()} | RESERVED)
    assert len(words) > 200
    asked = [word for word in words if not is_identifier(word) and not is_free_text(word)]
    for start in range(0, len(asked), 3):  # as many as are asked about
        some = asked[start : start + 3]
        domain, queries = loaded("visits", [(word, "text") for word in some])
        assert set(domain.columns) == set(some)
        assert len(queries) >= 3
    for word in words:
        loaded(word, [("x", "text")])


def test_the_types_are_kept() -> None:
    columns: list[tuple[str, ColumnType]] = [("t", "text"), ("n", "number"), ("w", "whole"), ("d", "date")]
    columns += [("b", "boolean"), ("u", "unknown"), ("o", "other")]
    domain, _ = loaded("visits", columns)
    kinds = {name: type(column) for name, column in domain.columns.items()}
    assert kinds == {"t": Listed, "n": Numbers, "w": Integers, "d": Dates, "b": Listed, "u": Listed}
    assert "# Left out: 'o'" in draft("visits", described(columns)).domain


def test_comments_say_what_else_there_is() -> None:
    columns: list[tuple[str, ColumnType]] = [("t", "text"), ("n", "number"), ("w", "whole"), ("d", "date")]
    text = draft(
        "visits", [*described(columns), Described("paid", "number", step=0.001), Described("n_groups", "text")]
    )
    sections = {part.split("]")[0]: part for part in text.domain.split("\n[columns.")[1:]}
    assert "# bins = [0, 3, 6, 9] " in sections["w"]
    assert "# groupings = { w_groups = [0, 6] }" in sections["w"]
    assert '# bins = ["2020-01-01", "2022-01-01", "2024-01-01"]' in sections["d"]
    assert '# groupings = { t_groups = { first = ["A"], second = ["B"] } }' in sections["t"]
    assert "# step = 0.01 " in sections["n"]
    assert '# outside = "clip"' in sections["n"]
    assert "\nstep = 0.001 " in sections["paid"]  # the last digit of the type
    assert "# groupings" not in sections["n"], "its grouping would have the name of a column"
    assert "step" not in sections["w"] + sections["d"] + sections["t"]
    domain = uncommented(text.domain)
    assert set(domain.columns["w"].groupings or ()) == {"w_groups"}


def test_names_that_tell_something() -> None:
    columns: list[tuple[str, ColumnType]] = [("visit_id", "unknown"), ("Patient_ID", "unknown"), ("age", "unknown")]
    domain, _ = loaded("visits", [*columns, ("admission date", "unknown")])
    assert domain.privacy.unit == "Patient_ID"
    assert list(domain.columns) == ["age", "admission date"]
    assert isinstance(domain.columns["age"], Numbers)
    assert isinstance(domain.columns["admission date"], Dates)


IDS = ("id", "visit_id", "patientKey", "siteId", "ID2", "uuid", "ssn", "CustomerNo")
FREE = ("name", "first_name", "LastName", "surname", "patient_name", "email", "E-Mail", "home address", "phone_no")
SENTENCES = ("comment", "doctorNotes", "remarks2", "free_text", "description")
ASKED = ("grid", "valid", "country_name", "state", "phones", "context", "mailing", "paid", "clinic", "notesize")


def test_no_query_asks_of_ids_names_or_free_text() -> None:
    kinds: tuple[ColumnType, ...] = ("text", "unknown")
    for kind, own in product(kinds, (IDS, FREE + SENTENCES)):
        drafted = draft("visits", described([(name, kind) for name in (*own, *ASKED)]))
        domain, _ = loads(drafted)
        assert list(domain.columns) == list(ASKED)
        for name in set(own) - {domain.privacy.unit}:
            assert f"# Left out: '{name}': its name " in drafted.domain
        groups = re.findall(r'FROM visits GROUP BY "?([^";]+)"?;', drafted.queries)
        assert groups == list(ASKED)
    # What is called so and is something else.
    others = [Described("comments", "whole"), Described("valid_id", "boolean"), Described("name", "text", ("a", "b"))]
    assert list(loads(draft("visits", [*others, Described("site_id", "whole", (1, 2))]))[0].columns) == [
        "comments", "valid_id", "name", "site_id",
    ]  # fmt: skip


def test_what_is_called_like_an_id_is_proposed_as_the_unit() -> None:
    clinic = Described("clinic", "text")
    drafted = draft("visits", [Described("visit_id", "other"), Described("siteId", "whole"), clinic])
    assert '# unit = "visit_id" ' in drafted.domain
    assert loads(drafted)[0].privacy.unit is None
    proposed = drafted.domain.replace("# unit =", "unit =").replace("# rows_per_unit", "rows_per_unit")
    assert read_domain(proposed).privacy.unit == "visit_id"
    drafted = draft("visits", [Described("visit_id", "whole"), Described("patient_no", "whole"), clinic])
    assert loads(drafted)[0].privacy.unit == "patient_no"
    assert '# unit = "person_id" ' in draft("visits", [clinic]).domain


def test_three_hundred_and_three_thousand_columns() -> None:
    domain, queries = loaded("visits", [(f"column {i}", "unknown") for i in range(300)])
    assert len(domain.columns) == 300
    assert len(queries) == 7
    domain, _ = loaded("visits", [(f"column {i}", "unknown") for i in range(3000)])
    assert len(domain.columns) == 1000


def test_no_columns_at_all() -> None:
    for columns in ([], [("", "unknown")], [("a", "text"), ("A", "text")], [("o", "other")]):
        with pytest.raises(DomainError, match="no column that can be declared"):
            draft("visits", described(columns))  # type: ignore[arg-type]


# ── The command ──


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned() -> batchdp.Plan:
    return batchdp.plan(Path("queries.sql"), Path("domain.toml"), seconds=1)


def written() -> str:
    return Path("domain.toml").read_text(encoding="utf-8") + Path("queries.sql").read_text(encoding="utf-8")


def test_an_example_without_a_table(folder: Path) -> None:
    assert "batchdp plan queries.sql --domain domain.toml -o patients.plan" in succeeds("init")
    assert planned().domain.table == "patients"


def test_from_csv_only_the_header_is_looked_at(folder: Path) -> None:
    garbage = b'\xff\xfe\x00CANARY-4711,,,"\n\n,,\x00' * 100
    for name, content in (
        ("My visits!.csv", b"clinic,age\n" + garbage),
        ("z.tsv.gz", gzip.compress(b"clinic\tage\nCANARY")),
    ):
        Path(name).write_bytes(content)
        shown = succeeds("init", name, "--force")
        assert "CANARY" not in shown + written()
        domain = batchdp.load_domain("domain.toml")
        assert list(domain.columns) == ["clinic", "age"]
    assert domain.table == "z"


def test_from_parquet_with_types(folder: Path) -> None:
    frame = pa.table(
        {
            "clinic": ["CANARY-4711"],
            "weight": [4711.25],
            "children": [4711],
            "smokes": [True],
            "seen": pa.array([4711], pa.timestamp("us")),
            "tags": [["CANARY-4711"]],
        }
    )
    parquet.write_table(frame, "visits.parquet")
    succeeds("init", "visits.parquet")
    assert "4711" not in written()
    plan = planned()
    kinds = {name: type(column) for name, column in plan.domain.columns.items()}
    assert kinds == {"clinic": Listed, "weight": Numbers, "children": Integers, "smokes": Listed, "seen": Dates}
    ledger = batchdp.Ledger.create("budget.db", epsilon=1)
    assert batchdp.answer(plan, "visits.parquet", epsilon=1, ledger=ledger).answers


def test_from_a_damaged_parquet_file_with_its_footer_intact(folder: Path) -> None:
    parquet.write_table(
        pa.table({"clinic": [f"CANARY-{i}" for i in range(10_000)]}),
        "visits.parquet",
        compression="none",
        write_statistics=False,
    )
    content = bytearray(Path("visits.parquet").read_bytes())
    content[4:100] = b"\xff" * 96
    Path("visits.parquet").write_bytes(content)
    succeeds("init", "visits.parquet")
    assert "CANARY" not in written()
    assert planned()


def test_from_duckdb(folder: Path) -> None:
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("""CREATE TABLE "My Visits" AS SELECT 'CANARY' AS clinic, 3 AS "select", uuid() AS odd""")
    for table in ("clinic.duckdb", "duckdb://clinic.duckdb", "duckdb://clinic.duckdb#My Visits"):
        shown = succeeds("init", table, "--force")
        assert "-o My_Visits.plan" in shown
        assert "CANARY" not in written()
        plan = planned()
        assert plan.domain.table == "My Visits"
        assert list(plan.domain.columns) == ["clinic", "select"]
    succeeds("budget", "budget.db", "--create", "--epsilon", 1)
    plan.save("visits.plan")
    arguments = ("--epsilon", 0.1, "--ledger", "budget.db", "-o", "answers.csv", "--yes")
    succeeds("answer", "visits.plan", "--table", "clinic.duckdb", *arguments)
    succeeds("answer", "visits.plan", "--table", "duckdb://clinic.duckdb#My Visits", *arguments)
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("CREATE TABLE other AS SELECT 1 AS a")
    line = refused("init", "clinic.duckdb", "--force")
    assert "'My Visits'" in line
    assert "duckdb://clinic.duckdb#" in line


def test_what_a_schema_in_duckdb_declares(folder: Path) -> None:
    dictionary = pa.table({"kind": pa.array(["CANARY", "x"]).dictionary_encode()})
    parquet.write_table(dictionary, "visits.parquet")
    succeeds("init", "visits.parquet")
    assert "CANARY" not in written()
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('bad', 'it''s')")
        connection.execute("CREATE TABLE made AS SELECT * FROM dictionary")
        connection.execute(DUCKDB)
    succeeds("init", "duckdb://clinic.duckdb#made", "--force")
    assert "CANARY" not in written(), "a dictionary is data, though DuckDB calls it an ENUM"
    shown = succeeds("init", "duckdb://clinic.duckdb#Visits", "--force")
    assert shown.splitlines()[-1] == "  batchdp plan queries.sql --domain domain.toml -o Visits.plan"
    domain, _ = loads(Draft(Path("domain.toml").read_text(), Path("queries.sql").read_text()))
    columns = dict(domain.columns)
    assert columns.pop("mood") == Listed(values=("bad", "it's"))
    assert columns.pop("My Site") == Listed(values=("north", "south"))
    assert columns.pop("age") == Integers(integers=(0, 120))
    assert columns.pop("paid") == Numbers(range=(0, 500.5), bins=(0, 125.125, 250.25, 375.375), step=0.01)
    assert columns.pop("born") == Dates(dates=(date(1900, 1, 1), date(2024, 12, 31)))
    assert columns.pop("smokes") == Listed(values=(True, False))
    assert columns.pop("whole") == Integers(integers=(0, 10))
    assert isinstance(columns.pop("large"), Numbers)
    assert not columns
    assert "Make sure that it was known without these data" in written()
    assert "# from its CHECK" in written()
    assert "# from its ENUM type" in written()
    # A codebook that is silent about a column leaves it as it is, and any other has the last word.
    fields = [{"name": "age", "type": "integer"}, {"name": "My Site", "constraints": {"enum": ["west"]}}]
    Path("codebook.json").write_text(json.dumps({"fields": fields}))
    succeeds("init", "duckdb://clinic.duckdb#Visits", "--codebook", "codebook.json", "--force")
    columns = dict(batchdp.load_domain("domain.toml").columns)
    assert (columns["age"], columns["My Site"]) == (Integers(integers=(0, 120)), Listed(values=("west",)))


DUCKDB = """
    CREATE TABLE Visits (visit_id integer, mood mood, "My Site" text CHECK ("My Site" IN ('north', 'south')),
    age integer CHECK (age BETWEEN 0 AND 120), paid decimal(8, 2) CHECK (paid >= 0 AND paid <= 500.5),
    born date CHECK (born >= DATE '1900-01-01' AND '2024-12-31' >= born), smokes boolean, whole decimal(9, 0),
    large hugeint, full_name text)
"""
A, B = "duckdb", "postgres"
CHECKS: tuple[tuple[str, str, list[tuple[Any, ...]]], ...] = (
    (A, "x > 0 AND (x IS NULL OR x < 5)", [("x", "low", ("0",), True), ("x", "high", ("5",), True)]),
    (A, "x = 'a' OR x = 'b'", [("x", "among", ("a", "b"), False)]),
    (A, "x IN ('a', NULL)", []),  # holds for anything
    (A, "x IN (1) OR y IN (2)", []),
    (A, "x > 3 OR y IS NULL", []),
    (A, "x > 3 OR x < 1", []),
    (A, "NOT (x IN (1, 2))", []),
    (A, "x < y AND lower(x) = 'a' AND x % 2 = 0 AND x >= 1 + 1", []),
    (A, "CAST(x AS INTEGER) >= 5", []),  # 4.6, too
    (A, "x IN (SELECT 1)", []),
    (A, "x IS NULL", []),
    (A, "this is (no SQL", []),
    (B, "((x)::text = ANY ((ARRAY['a'::character varying])::text[]))", [("x", "among", ("a",), False)]),
    (B, "(x = ANY (ARRAY[1, '-2'::integer]))", [("x", "among", ("1", "-2"), False)]),
    (B, "(x = ANY (ARRAY[1, NULL::integer]))", []),
    (B, "('-1.5'::numeric)::double precision <= x", [("x", "low", ("-1.5",), False)]),
    (B, "(VALUE <= 7)", [("of", "high", ("7",), False)]),
)


@pytest.mark.parametrize(("dialect", "check", "bounds"), CHECKS)
def test_what_a_check_says_for_sure(dialect: str, check: str, bounds: list[tuple[Any, ...]]) -> None:
    assert read_check(check, dialect, "of") == bounds


@pytest.mark.parametrize(
    ("kind", "check", "known"),
    [
        ("whole", "x > 0.5 AND x < 3", ((), 1, 2)),
        ("whole", "x >= 5 AND x <= 3", ((), None, None)),  # nothing lies there
        ("number", "x > 0.5 AND x >= 0.25", ((), 0.5, None)),
        ("whole", "x <= 100000000000000000000", ((), None, None)),
        ("text", "x IN ('a', 'b') AND x IN ('b', 'c') AND x >= 'a'", (("b",), None, None)),
        ("text", "x >= '1'", ((), None, None)),
        ("text", "x IN ('a\u200bb')", ((), None, None)),
        ("date", "x >= 'soon'", ((), None, None)),
        ("other", "x IN (1)", ((), None, None)),
    ],
)
def test_what_cannot_be_declared_is_left_open(kind: ColumnType, check: str, known: tuple[Any, ...]) -> None:
    (found,) = describe_said([Described("x", kind)], Said(checks=[(None, check)]), "duckdb")
    assert (found.values, found.low, found.high) == known
    assert found.kind == kind


@pytest.mark.xdist_group("postgres")
def test_from_postgresql(folder: Path) -> None:
    schema = f"init_{os.getpid()}"
    with psycopg.connect(postgres()) as connection:
        for statement in POSTGRES:
            connection.execute(statement.format(schema=schema).encode())
    address = f"{postgres()}#{schema}.My Visits"
    shown = succeeds("init", address)
    assert "-o My_Visits.plan" in shown
    assert "CANARY" not in shown + written()
    assert "4711" not in written()
    plan = planned()
    kinds = {name: type(column) for name, column in plan.domain.columns.items()}
    assert plan.domain.table == "My Visits"
    assert plan.domain.privacy.unit == "patient_id"
    assert kinds == {
        "clinic": Listed,
        "weight": Numbers,
        "paid": Numbers,
        "select": Integers,
        "smokes": Listed,
        "seen": Dates,
        "born": Dates,
        "mood": Listed,
        "site": Listed,
        "share": Numbers,
        "visits": Integers,
        "code": Listed,
    }
    columns = plan.domain.columns
    assert columns["mood"] == Listed(values=("bad", "it's"))
    assert columns["site"] == Listed(values=("north", "south"))
    assert columns["code"] == Listed(values=(-1, 2))
    assert columns["clinic"] == Listed(values=("a", "b'c"))
    assert columns["visits"] == Integers(integers=(0, 12))
    assert columns["share"] == Numbers(range=(0, 1), bins=(0, 0.25, 0.5, 0.75), step=0.01)
    assert columns["paid"] == Numbers(range=(0, 500.5), bins=(0, 125.125, 250.25, 375.375), step=0.01)
    assert columns["born"] == Dates(dates=(date(1900, 1, 1), date(2025, 12, 31)))
    for name in ("id", "tags", "doc"):
        assert f"# Left out: '{name}'" in written()
    assert uncommented(Path("domain.toml").read_text())
    ledger = batchdp.Ledger.create("budget.db", epsilon=1)
    assert batchdp.answer(plan, address, epsilon=1, ledger=ledger).answers
    for wrong in (postgres(), f"{postgres()}#nothing", f"{postgres()}#{schema}.nothing"):
        with unchanged(folder):
            refused("init", wrong, "--force")


POSTGRES = (
    "CREATE SCHEMA {schema}",
    "CREATE TYPE {schema}.mood AS ENUM ('bad', 'it''s')",
    "CREATE DOMAIN {schema}.share AS numeric(5, 2) CHECK (value >= 0 AND value <= 1)",
    "CREATE DOMAIN {schema}.site AS text CHECK (value IN ('north', 'south'))",
    """CREATE TABLE {schema}."My Visits" (patient_id bigint CHECK (patient_id > 0),
    clinic varchar(40) CHECK (clinic IN ('a', 'b''c')), weight double precision,
    paid numeric(10, 2) CHECK (paid >= 0 AND 500.5 >= paid), "select" smallint, smokes boolean, seen timestamptz,
    born date CHECK (born >= '1900-01-01'), mood {schema}.mood, site {schema}.site, share {schema}.share,
    visits numeric(6, 0) CHECK (visits > -1 AND visits < 13), code smallint CHECK (code IN (-1, 2) OR code IS NULL),
    id uuid, tags text[], doc jsonb CHECK (doc <> '"CANARY"'))""",
    """INSERT INTO {schema}."My Visits" VALUES (4711, 'a', 4711, 47.11, 4711, true, now(), now(), 'bad', 'north', 0.47,
    4, 2, gen_random_uuid(), ARRAY['CANARY'], '4711')""",
)


NO_HEADER = ("NY,4711,CANARY", "CANARY,2020-01-01", "CANARY,", "true,CANARY", "CANARY,-3.5", "CANARY,n/a")


@pytest.mark.parametrize("line", NO_HEADER)
def test_a_first_line_that_may_be_a_record_is_not_written_down(folder: Path, line: str) -> None:
    Path("visits.csv").write_text(f"{line}\nNJ,3,x\n")
    with unchanged(folder):
        told = refused("init", "visits.csv")
    assert "CANARY" not in told
    assert "may be a record" in told
    assert "--header" in told


def test_somebody_can_say_that_the_first_line_names_the_columns(folder: Path) -> None:
    Path("visits.csv").write_text("clinic,2020,2021\nnorth,CANARY,3\n")
    shown = succeeds("init", "visits.csv", "--header")
    assert list(batchdp.load_domain("domain.toml").columns) == ["clinic", "2020", "2021"]
    assert "The names of the columns are those in the first line of visits.csv" in shown
    assert "CANARY" not in shown + written()
    assert "first line" not in succeeds("init", "--force")


@pytest.mark.parametrize("options", [(), ("--header",)])
def test_a_header_that_says_the_same_twice_is_refused_by_the_positions(folder: Path, options: tuple[str, ...]) -> None:
    Path("visits.csv").write_text("clinic,CANARY,age, canary\nnorth,1,2,3\n")
    with unchanged(folder):
        told = refused("init", "visits.csv", *options)
    assert "the same text in columns 2, 4 " in told
    assert "may be a record" in told
    assert "canary" not in told.lower()


def test_from_a_folder_of_files(folder: Path) -> None:
    Path("visits").mkdir()
    for part in ("a", "b"):
        Path(f"visits/{part}.csv").write_text("clinic;age\nCANARY;4711\n")
    succeeds("init", "visits")
    assert batchdp.load_domain("domain.toml").table == "visits"
    assert "CANARY" not in written()


def test_nothing_is_overwritten_unless_forced(folder: Path) -> None:
    Path("visits.csv").write_text("clinic,age\nnorth,3\n")
    Path("queries.sql").write_text("precious")
    with unchanged(folder):
        assert "queries.sql exists already" in refused("init", "visits.csv")
    succeeds("init", "visits.csv", "--force")
    assert "precious" not in written()
    Path("study").mkdir()
    assert "study/domain.toml" in succeeds("init", "visits.csv", "--folder", "study")
    assert batchdp.plan(Path("study/queries.sql"), Path("study/domain.toml"), seconds=1)


def test_several_tables_of_the_same_persons(folder: Path) -> None:
    """The person is what both call so; what one table alone has, such as visit_id, is never taken for it."""
    Path("patients.csv").write_text("Patient_ID,sex\nCANARY,f\n")
    Path("visits.csv").write_text("visit_id,patient_id,clinic,seen_date\n1,CANARY,c1,2020-01-01\n")
    Path("bills.csv").write_text("bill_id,payer,amount\n1,CANARY,3\n")
    shown = succeeds("init", "patients.csv", "visits.csv", "bills.csv")
    assert all(f"first line of {name}.csv" in shown for name in ("patients", "visits", "bills"))
    assert "CANARY" not in shown + written()
    domain: Any = batchdp.load_domain("domain.toml")
    assert {name: own.privacy.unit for name, own in domain.tables.items()} == {
        "patients": "Patient_ID",
        "visits": "patient_id",
        "bills": "Patient_ID",
    }
    assert Path("domain.toml").read_text().count("EDIT: what this table calls the person") == 1
    assert {name: own.privacy.rows_per_unit for name, own in domain.tables.items()} == dict.fromkeys(domain.tables, 1)
    assert list(domain.tables["visits"].columns) == ["clinic", "seen_date"]
    plan = batchdp.plan(Path("queries.sql"), Path("domain.toml"), seconds=1)
    assert {"patients_total", "visits_total", "bills_total"} <= {one.name for one in plan.asked}
    assert "one table" in refused("init", "patients.csv", "visits.csv", "--codebook", "book.json", "--force")
    assert "same name" in refused("init", "visits.csv", "visits.csv", "--force")


@pytest.mark.parametrize(
    "table", ["missing.csv", "empty.csv", "text.txt", "blank.csv", "nowhere", "mysql://a/b", "x.duckdb"]
)
def test_a_table_that_cannot_be_drafted_from_leaves_nothing_behind(folder: Path, table: str) -> None:
    Path("empty.csv").write_text("")
    Path("text.txt").write_text("clinic,age\n")
    Path("blank.csv").write_text(",,\n1,2,3\n")
    with unchanged(folder):
        refused("init", table)
        assert "does not exist" in refused("init", "--folder", "nowhere")
