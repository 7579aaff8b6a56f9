"""`batchdp init`: what it drafts can be planned as it is, whatever the columns are called; no value is read."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import get_args

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
from batchdp.domain.draft import RESERVED, ColumnType, Described, Draft, draft
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
    for start in range(0, len(words), 3):  # as many as are asked about
        some = words[start : start + 3]
        domain, queries = loaded("visits", [(word, "text") for word in some])
        assert set(domain.columns) | {domain.privacy.unit} >= set(some)
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
    assert "# step = 0.001 " in sections["paid"]  # the last digit of the type
    assert "# groupings" not in sections["n"], "its grouping would have the name of a column"
    assert "step" not in sections["w"] + sections["d"] + sections["t"]
    domain = uncommented(text.domain)
    assert set(domain.columns["w"].groupings or ()) == {"w_groups"}


def test_names_that_tell_something() -> None:
    columns: list[tuple[str, ColumnType]] = [("visit_id", "unknown"), ("Patient_ID", "unknown"), ("age", "unknown")]
    domain, _ = loaded("visits", [*columns, ("admission date", "unknown")])
    assert domain.privacy.unit == "Patient_ID"
    assert list(domain.columns) == ["visit_id", "age", "admission date"]
    assert isinstance(domain.columns["age"], Numbers)
    assert isinstance(domain.columns["admission date"], Dates)


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
        "mood": Listed,  # with placeholders: what a type lists may have been looked up in the data
    }
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
    "CREATE TYPE {schema}.mood AS ENUM ('CANARY', 'other')",
    """CREATE TABLE {schema}."My Visits" (patient_id bigint, clinic varchar(40), weight double precision,
    paid numeric(10, 2), "select" smallint, smokes boolean, seen timestamptz, born date, mood {schema}.mood, id uuid,
    tags text[], doc jsonb CHECK (doc <> '"CANARY"'))""",
    """INSERT INTO {schema}."My Visits" VALUES (4711, 'CANARY', 4711, 4711, 4711, true, now(), now(), 'CANARY',
    gen_random_uuid(), ARRAY['CANARY'], '4711')""",
)


NO_HEADER = (
    "NY,4711,CANARY",
    "CANARY,2020-01-01",
    "CANARY,",
    "CANARY,CANARY",
    "true,CANARY",
    "CANARY,-3.5",
    "CANARY,n/a",
)


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
    assert "The columns are called what the first line of visits.csv says" in shown
    assert "CANARY" not in shown + written()
    assert "first line" not in succeeds("init", "--force")


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
        assert "queries.sql is there already" in refused("init", "visits.csv")
    succeeds("init", "visits.csv", "--force")
    assert "precious" not in written()
    Path("study").mkdir()
    assert "study/domain.toml" in succeeds("init", "visits.csv", "--folder", "study")
    assert batchdp.plan(Path("study/queries.sql"), Path("study/domain.toml"), seconds=1)


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
