"""`batchdp init --codebook`: what a codebook says becomes a domain that loads; a wrong one ends in one clear line."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

import batchdp
from batchdp.domain import Integers, Listed
from batchdp.domain.codebooks import LARGEST_FILE, Codebook, join_codebook, read_codebook
from batchdp.domain.columns import Dates, Numbers
from batchdp.domain.draft import Described, draft
from batchdp.errors import DomainError
from commands import refused, succeeds, unchanged
from test_draft import NAMES, loads, uncommented

EXAMPLES = int(os.environ.get("BATCHDP_EXAMPLES", "60"))
PEOPLE: list[dict[str, Any]] = [
    {"name": "patient_id", "type": "integer"},
    {"name": "sex", "type": "string", "constraints": {"enum": ["m", "f", "", "NA"]}, "missingValues": ["NA"]},
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120, "required": True}},
    {"name": "weight", "type": "number", "constraints": {"minimum": "0.5", "exclusiveMaximum": 300}},
    {"name": "code", "type": "integer", "constraints": {"enum": ["1", 2, 3]}},
    {"name": "grade", "type": "number", "constraints": {"enum": [1, 1.5, 2]}},
    {"name": "seen", "type": "datetime", "constraints": {"minimum": "2019-03-01T00:00:00Z", "maximum": "2021-12-31"}},
    {"name": "born", "type": "date", "format": "%d/%m/%Y", "constraints": {"minimum": "01/01/1900"}},
    {"name": "place", "type": "geopoint"},
    {"name": "smokes", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]},
    {"name": "well", "type": "boolean"},
    {"name": "children", "type": "integer", "constraints": {"exclusiveMinimum": -1, "maximum": 12.5}},
    {"name": "stage", "type": "string", "categories": [{"value": "I", "label": "one"}, {"value": "II"}]},
    {"name": "since", "type": "year", "constraints": {"minimum": 1990}},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def book(content: object, path: str = "codebook.json", **options: Any) -> Codebook:
    Path(path).write_text(json.dumps(content), encoding="utf-8")
    return read_codebook(path, **options)


def test_a_table_schema(folder: Path) -> None:
    described = book({"fields": PEOPLE, "missingValues": ["", "99"]}).columns
    drafted = draft("visits", described, codebook="codebook.json")
    domain, _ = loads(drafted)
    assert domain.privacy.unit == "patient_id"
    columns = domain.columns
    assert columns["sex"] == Listed(values=("m", "f"))
    assert columns["age"] == Integers(integers=(0, 120))
    assert columns["code"] == Listed(values=(1, 2, 3))
    assert columns["smokes"] == Listed(values=("yes", "no"))
    assert columns["well"] == Listed(values=(True, False))
    assert columns["children"] == Integers(integers=(0, 12))
    assert columns["stage"] == Listed(values=("I", "II"))
    assert columns["seen"] == Dates(dates=(date(2019, 3, 1), date(2021, 12, 31)))
    weight, grade, born, since = (columns[name] for name in ("weight", "grade", "born", "since"))
    assert isinstance(weight, Numbers)
    assert weight.range == (0.5, 300)
    assert isinstance(grade, Numbers)  # values that are no whole numbers cannot be listed
    assert grade.range == (1, 2)
    assert isinstance(born, Dates)
    assert isinstance(since, Integers)
    assert since.integers[0] == 1990
    assert list(columns) == [field["name"] for field in PEOPLE if field["name"] not in ("patient_id", "place")]
    sections = {part.split("]")[0]: part for part in drafted.domain.split("\n[columns.")[1:]}
    assert "%d/%m/%Y" in sections["born"]
    assert "EDIT: the highest value; the other end is from the codebook" in sections["since"]
    assert "'99' stands" not in sections["age"], "required: nothing is missing"
    assert "EDIT: 99 stands for missing" in sections["weight"]
    assert "such as 'NA'" in sections["sex"]
    assert "# Left out: 'place'" in drafted.domain
    assert "The codebook is 'codebook.json'" in drafted.domain
    assert "EDIT" not in sections["sex"] + sections["age"] + sections["code"]


def test_csv_on_the_web(folder: Path) -> None:
    schema: dict[str, Any] = {
        "null": "NA",
        "columns": [
            {"name": "sex", "titles": {"en": ["Sex", "Gender"]}, "datatype": {"base": "string", "format": "^(m|f)$"}},
            {"titles": "age", "datatype": {"base": "integer", "minimum": "0", "maximum": 120}},
            {"name": "count", "datatype": "unsignedByte"},
            {"name": "weight", "datatype": {"base": "decimal", "minExclusive": 0, "maxInclusive": 300.5}},
            {"name": "children", "datatype": {"base": "nonNegativeInteger", "maxExclusive": "13"}},
            {"name": "seen", "datatype": {"base": "date", "format": "dd/MM/yyyy", "minimum": "2020-01-01"}},
            {"name": "ok", "datatype": {"base": "boolean", "format": "Y|N"}},
            {"name": "tags", "separator": ";"},
            {"name": "about", "virtual": True},
            {"name": "free"},
        ],
    }
    context = "http://www.w3.org/ns/csvw"
    content = {"@context": context, "url": "data/My Visits.csv", "tableSchema": schema, "datatype": "string"}
    found = book(content)
    assert found.table == "my_visits"
    columns = loads(draft(found.table, found.columns))[0].columns
    assert list(columns) == ["Sex", "age", "count", "weight", "children", "seen", "ok", "free"]
    assert columns["Sex"] == Listed(values=("m", "f"))
    assert columns["age"] == Integers(integers=(0, 120))
    assert columns["count"] == Integers(integers=(0, 255))
    assert columns["children"] == Integers(integers=(0, 12))
    assert columns["ok"] == Listed(values=("Y", "N"))
    weight = columns["weight"]
    assert isinstance(weight, Numbers)
    assert weight.range == (0, 300.5)
    assert book(schema).columns == book({"tables": [{"tableSchema": schema}]}).columns  # alone, and in a group
    # A database has the names, a CSV file the titles.
    by_name = join_codebook([Described("SEX", "text"), Described("gender", "unknown")], found)
    assert [column.values for column in by_name] == [("m", "f")] * 2
    assert [column.name for column in by_name] == ["SEX", "gender"]


def test_the_table_has_the_last_word_on_its_columns(folder: Path) -> None:
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute(
            """CREATE TABLE visits (SEX text, age text, smokes boolean, place double, tags text[], extra integer,
            weight decimal(10, 3))"""
        )
    Path("codebook.json").write_text(json.dumps({"fields": PEOPLE}))
    shown = succeeds("init", "clinic.duckdb", "--codebook", "codebook.json")
    assert "The table has no column 'patient_id', 'code', 'grade'" in shown
    assert "The codebook says nothing about 'tags', 'extra'." in shown
    domain = batchdp.load_domain("domain.toml")
    assert list(domain.columns) == ["SEX", "age", "smokes", "place", "extra", "weight"]
    assert domain.columns["SEX"] == Listed(values=("m", "f"))
    assert domain.columns["smokes"] == Listed(values=(True, False))
    assert isinstance(domain.columns["place"], Numbers)
    text = Path("domain.toml").read_text()
    assert "EDIT: the codebook has whole numbers here, the table texts." in text
    assert "\nstep = 0.001 " in text
    assert batchdp.plan(Path("queries.sql"), Path("domain.toml"), seconds=1)


def test_a_codebook_alone_and_one_of_several_tables(folder: Path) -> None:
    other = {"name": "staff", "schema": {"fields": [{"name": "role"}]}}
    package = {"resources": [{"name": "visits", "path": "v.csv", "schema": {"fields": PEOPLE}}, other]}
    Path("package.json").write_text(json.dumps(package))
    line = refused("init", "--codebook", "package.json")
    assert "describes the tables visits, staff; name one of them, like --codebook codebook.json#visits" in line
    assert "-o staff.plan" in succeeds("init", "--codebook", "package.json#staff")
    assert list(batchdp.load_domain("domain.toml").columns) == ["role"]
    Path("visits.csv").write_text("sex,age\n")
    succeeds("init", "visits.csv", "--codebook", "package.json", "--force")
    assert batchdp.load_domain("domain.toml").columns["sex"] == Listed(values=("m", "f"))
    refused("init", "--codebook", "package.json#nobody", "--force")
    assert "cannot read the codebook" in refused("init", "--codebook", "missing.json#a", "--force")
    plan = batchdp.plan(Path("queries.sql"), Path("domain.toml"), seconds=1)
    assert plan.domain.table == "visits"


def test_the_codebook_is_not_overwritten(folder: Path) -> None:
    Path("domain.toml").write_text(json.dumps({"fields": PEOPLE}))
    with unchanged(folder):
        assert "would be overwritten" in refused("init", "--codebook", "domain.toml", "--force")


FIELD = {"name": "a", "type": "string"}
WRONG: dict[str, tuple[str, str]] = {
    "empty": ("", "is not JSON"),
    "yaml": ("fields:\n- name: a\n", "is not JSON"),
    "not a codebook": ("{}", "no columns are described"),
    "a list": ("[1]", "not an object"),
    "a number": ("7", "not an object"),
    "fields is an object": ('{"fields": {}}', "fields: "),
    "no fields": ('{"fields": []}', "fields: "),
    "a field is a text": ('{"fields": ["a"]}', "fields.0: "),
    "no name": ('{"fields": [{"type": "string"}]}', "fields.0.name: "),
    "a number as a name": ('{"fields": [{"name": 7}]}', "fields.0.name: "),
    "a blank name": ('{"fields": [{"name": " "}]}', "is blank"),
    "an invisible name": ('{"fields": [{"name": "a\\u0000b"}]}', "U+0000"),
    "an escape sequence": ('{"fields": [{"name": "a\\u001b[31m"}]}', "U+001B"),
    "half a character": ('{"fields": [{"name": "a\\ud800"}]}', "U+D800"),
    "a long name": (json.dumps({"fields": [{"name": "a" * 201}]}), "201 characters"),
    "a name twice": (json.dumps({"fields": [FIELD, {"name": "A"}]}), "twice"),
    "a key twice": ('{"fields": [{"name": "a", "name": "b"}]}', "'name' stands twice"),
    "an unknown type": ('{"fields": [{"name": "a", "type": "strnig"}]}', "fields.0: the type 'strnig'"),
    "a type that is a list": ('{"fields": [{"name": "a", "type": []}]}', "fields.0.type: "),
    "NaN": ('{"fields": [{"name": "a", "constraints": {"minimum": NaN}}]}', "NaN is not a JSON number"),
    "infinity": ('{"fields": [{"name": "a", "type": "number", "constraints": {"minimum": 1e999}}]}', "beyond ±2^53"),
    "thousands of digits": (f'{{"fields": [{{"name": "a", "x": {"9" * 5000}}}]}}', "is not JSON"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep within": ('{"fields": [{"name": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}]}", "nested too deeply"),
    "huge": (" " * LARGEST_FILE + "{}", "larger than 5 MB"),
    "reference": (
        '{"schema": "https://example.org/schema.json"}',
        "schema is not an object but perhaps the name of another",
    ),
    "reference of the web": ('{"tableSchema": "x.json"}', "tableSchema is not an object"),
    "tables of nothing": ('{"tables": [1]}', "not an object"),
    "no name on the web": ('{"tableSchema": {"columns": [{}]}}', "columns.0: neither name nor titles"),
    "titles of a list": ('{"tableSchema": {"columns": [{"titles": [[]]}]}}', "columns.0.titles.0: "),
}
for number, (rule, said) in enumerate(
    (
        ({"minimum": 5, "maximum": 4}, "the minimum 5 is above the maximum 4"),
        ({"minimum": [5]}, "fields.0.constraints.minimum: a list where a text or number"),
        ({"minimum": True}, "True is not a number"),
        ({"minimum": "five"}, "'five' is not a number"),
        ({"maximum": 2**60}, "beyond ±2^53"),
        ({"enum": 7}, "fields.0.constraints.enum: "),
        ({"enum": [{}]}, "fields.0.constraints.enum.0: an object"),
        ({"enum": ["a\u202eb"]}, "is not a number"),
        ({"enum": list(range(100_001))}, "100001 enumerated values"),
    )
):
    WRONG[f"rule {number}"] = (json.dumps({"fields": [{**FIELD, "type": "integer", "constraints": rule}]}), said)
WRONG["hidden text"] = (json.dumps({"fields": [{**FIELD, "constraints": {"enum": ["a\u202eb"]}}]}), "U+202E")
WRONG["no day"] = (
    json.dumps({"fields": [{**FIELD, "type": "date", "constraints": {"minimum": "2020-02-31"}}]}),
    "'2020-02-31' is not a day",
)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_codebook_ends_in_one_line(folder: Path, case: str) -> None:
    content, said = WRONG[case]
    Path("codebook.json").write_text(content, encoding="utf-8")
    with unchanged(folder):
        line = refused("init", "--codebook", "codebook.json")
    assert said in line
    assert "codebook.json" in line
    assert len(line) < 600
    assert line.isprintable()


def test_files_that_are_no_text(folder: Path) -> None:
    Path("codebook.json").write_bytes(b'{"fields": "\xff"}')
    assert "not a text in UTF-8" in refused("init", "--codebook", "codebook.json")
    assert "cannot read the codebook" in refused("init", "--codebook", ".")
    assert "cannot read the codebook" in refused("init", "--codebook", "missing.json")
    Path("codebook.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"fields": [FIELD]}).encode())
    succeeds("init", "--codebook", "codebook.json")  # as some editors write it


# ── Generated codebooks ──

SCALARS = st.one_of(
    st.integers(-(2**53), 2**53),
    st.integers(-20, 20),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.sampled_from(
        ["a", "b", "1", "-3", "2.5", "2020-01-01", "9999-12-31", "0001-01-01", "x" * 200, "a." * 100, 'q"\\']
    ),
    st.text(max_size=5),
)
KINDS = ("string", "number", "integer", "year", "boolean", "date", "datetime", "any", "time", "array")
BASES = ("string", "decimal", "integer", "unsignedByte", "boolean", "date", "dateTime", "gYear", "any", "json", "odd")
WHOLE, DAYS, TEXTS = (
    st.integers(-200, 200),
    st.dates().map(str),
    st.sampled_from(["north", "south", "1", "a.b", 'q"\\', "%", "NA"]),
)
PAIRS: Any = st.one_of(*(st.lists(kind, min_size=2, max_size=2) for kind in (WHOLE, WHOLE, DAYS)))
ENDS = PAIRS.map(sorted)
LISTS = st.one_of(*(st.lists(kind, max_size=4) for kind in (WHOLE, TEXTS, DAYS, st.one_of(SCALARS, st.none()))))
RULES = st.one_of(
    ENDS.map(lambda ends: {"minimum": ends[0], "maximum": ends[1]}),
    ENDS.map(lambda ends: {"minimum": ends[0]}),
    LISTS.map(lambda values: {"enum": values}),
    st.fixed_dictionaries({}, optional={"maximum": SCALARS, "exclusiveMinimum": SCALARS, "required": st.booleans()}),
)
CALLED = st.sampled_from(["a", "b", "age", "Größe", "a b", "select", "c.d", "n_groups", "n", "patient", "a." * 100])
FIELDS = st.fixed_dictionaries(
    {"name": CALLED},
    optional={
        "type": st.sampled_from(KINDS),
        "constraints": RULES,
        "missingValues": st.lists(SCALARS, max_size=2),
        "format": st.sampled_from(["default", "any", "%d.%m.%y", "\n"]),
        "trueValues": st.just(["yes"]),
    },
)
COLUMNS = st.fixed_dictionaries(
    {"name": CALLED},
    optional={
        "titles": CALLED,
        "datatype": st.one_of(
            st.sampled_from(BASES),
            st.fixed_dictionaries(
                {"base": st.sampled_from(BASES)},
                optional={
                    "minimum": SCALARS,
                    "maxInclusive": SCALARS,
                    "minExclusive": SCALARS,
                    "format": st.one_of(st.sampled_from(["a|b", "(x|y)", "yyyy", "["]), st.dictionaries(NAMES, NAMES)),
                },
            ),
        ),
        "null": st.one_of(SCALARS, st.lists(SCALARS, max_size=2)),
    },
)


@pytest.mark.slow
@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(
    st.one_of(
        st.lists(FIELDS, min_size=1, max_size=2).map(lambda fields: {"fields": fields}),
        st.lists(COLUMNS, min_size=1, max_size=2).map(lambda columns: {"tableSchema": {"columns": columns}}),
    )
)
@example({"fields": [{"name": "a", "type": "number", "constraints": {"minimum": -(2**53), "maximum": 2**53}}]})
@example({"fields": [{"name": "a", "type": "number", "constraints": {"minimum": 1e-9, "maximum": 2e-9}}]})
@example({"fields": [{"name": "a", "type": "number", "constraints": {"minimum": 0.1, "maximum": 0.1}}]})
@example({"fields": [{"name": "a", "type": "date", "constraints": {"minimum": "9999-12-31"}}]})
@example({"fields": [{"name": "a", "type": "date", "constraints": {"maximum": "0001-01-01"}}]})
@example({"fields": [{"name": "a", "constraints": {"enum": ["a." * 100]}}, {"name": "b"}]})
def test_what_a_codebook_says_is_refused_or_loads(content: dict[str, Any]) -> None:
    path = f"codebook-{os.getpid()}.json"
    try:
        found = book(content, path)
        drafted = draft(found.table, found.columns, codebook=path)
    except DomainError as error:
        event(f"refused: {str(error).removeprefix(path)[:30]}")
        return
    finally:
        Path(path).unlink()
    event("drafted")
    domain, queries = loads(drafted)
    assert queries
    assert uncommented(drafted.domain).table == domain.table


DDL = """
-- a comment; with a semicolon
CREATE OR REPLACE TABLE db.public.visits (
    id NUMBER PRIMARY KEY, age NUMBER(3, 0) PRIVACY DOMAIN BETWEEN (0, 120), weight NUMBER(5, 2), clinic VARCHAR(20),
    smoker BOOLEAN, seen DATE, code INT PRIVACY DOMAIN IN (1, 2, 3), CONSTRAINT c UNIQUE (id));
ALTER TABLE visits ALTER COLUMN clinic SET PRIVACY DOMAIN IN ('north', 'O''Hare, south');
ALTER TABLE db.public.visits MODIFY COLUMN seen SET PRIVACY DOMAIN BETWEEN ('2020-01-01', '2021-12-31');
ALTER VIEW visits MODIFY weight SET PRIVACY DOMAIN BETWEEN (0.5, 300);
GRANT SELECT ON visits TO somebody;
"""


def test_privacy_domains_of_snowflake_are_a_codebook(tmp_path: Path) -> None:
    (tmp_path / "ddl.sql").write_text(DDL)
    book = read_codebook(str(tmp_path / "ddl.sql"))
    found = {one.name: one for one in book.columns}
    assert book.table == "visits"
    assert [(found[name].kind, found[name].low, found[name].high) for name in ("age", "weight")] == [
        ("whole", 0, 120),
        ("number", 0.5, 300),
    ]
    assert found["clinic"].values == ("north", "O'Hare, south")
    assert found["code"].values == (1, 2, 3)
    assert (found["seen"].low, found["seen"].high) == (date(2020, 1, 1), date(2021, 12, 31))
    assert found["smoker"].kind == "boolean"


@pytest.mark.parametrize(
    "text", ["", "SELECT 1", "CREATE TABLE", "ALTER TABLE t ALTER COLUMN a SET PRIVACY DOMAIN SOME (1)"]
)
def test_ddl_that_says_nothing_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "ddl.sql").write_text(text)
    with pytest.raises(DomainError):
        read_codebook(str(tmp_path / "ddl.sql"))
