"""What is counted is said wherever a release is read: only the rules that apply, in the words of the table at hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import batchdp
from batchdp import Ledger, Release, ReleaseError, answer, load_release, optimize
from batchdp.archive import load, save
from batchdp.domain.domain import as_domain
from batchdp.plans.criteria import as_criteria
from batchdp.plans.outlook import outlook
from batchdp.reports.page import page
from batchdp.reports.planned import Prospect, plan_page
from batchdp.workloads.ready import marginals
from commands import succeeds

ALONE = "Standard errors and intervals are of the noise alone: they do not cover what these rules change."
CODES = "A record with a code that is missing, not a whole number or out of range is not counted."
COUNTS = (
    "The counts are the caller's: a text is the number that it spells, one that is not a whole number is rounded down, "
    "one that is not a number, missing, infinite or below 0 is taken as 0, and one above 2^62 as 2^62."
)
"""Written out, not imported: code that does not say them fails by what it says."""

DOMAIN = """
table = "ratings"
[privacy]
unit = "student"
rows_per_unit = 20
max_rows = 1_000_000
[columns.course]
values = ["math", "art", "law"]
[columns.rating]
integers = [1, 5]
[columns.fee]
range = [0, 2000]
step = 0.01
outside = "clip"
bins = [0, 25, 50, 100]
[columns.hours]
integers = [0, 40]
outside = "clip"
other = "drop"
[columns.taken]
dates = ["2020-01-01", "2025-12-31"]
other = "drop"
[columns.unused]
values = [1]
"""
SQL = """
SELECT COUNT(*) AS total FROM ratings;
SELECT course, COUNT(*) AS by_course, AVG(fee) AS mean_fee, MEDIAN(fee) AS middle FROM ratings GROUP BY course;
SELECT SUM(rating) AS stars FROM ratings;
"""
SENTENCES = (
    "Left out: rows whose hours is a fraction within 0 to 40 or NULL; whose taken is not within 2020-01-01 to "
    "2025-12-31 or NULL.",
    "Of the rows that remain, at most 20 of each student are counted, whatever a query asks for; where there are more, "
    "a fixed rule picks them as a lottery would, the same ones every time. So counts may be too low, and other "
    "answers too low or too high. Rows whose student is NULL are left out.",
    "Values outside their range count as the nearer end, also in conditions such as WHERE: fee (0 to 2,000).",
    "Values are rounded to the nearest step, also in conditions: fee (to 0.01).",
    "Counted, but in no group, sum, average or quantile of that column: rows whose course is not declared or NULL; "
    "whose rating is not within 1 to 5 or NULL; whose fee is NULL.",
    "Conditions such as WHERE also see values that are not declared; functions such as LIKE see declared values only.",
    "Values that are not whole numbers count in bins, quantiles and conditions, but in no sum, average or group of a "
    "single number: rating.",
    "Values that are not numbers count as NULL: rating, fee, hours.",
    "Values that are not dates count as NULL: taken.",
    "If more than 1,000,000 rows are counted, answers may be far off.",
    ALONE,
)
FALSE = (
    "true answer",
    "true count",
    "Every answer is a fixed linear",
    "holds the true",
    "holds its truth",
    "off apart",
    "Every answer carries",
    "Nothing was rounded",
)
"""What no text says of such a release."""


def ratings() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = 4000
    days = pd.to_datetime(rng.choice(["2019-05-05", "2021-05-05", "2024-05-05"], n))
    return pd.DataFrame(
        {
            "student": rng.integers(0, 60, n),
            "course": rng.choice(["math", "art", "law", "cooking"], n),
            "rating": rng.choice([1, 2, 5, 9, 2.5, np.nan], n),
            "fee": rng.gamma(2, 700, n),
            "hours": rng.choice([3, 90, np.nan], n),
            "taken": days.date,
            "unused": 1,
        }
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capped, clipped release, made by the command line, with its page, dossier and tables."""
    folder = tmp_path_factory.mktemp("ratings")
    ratings().to_csv(folder / "ratings.csv", index=False)
    (folder / "domain.toml").write_text(DOMAIN)
    (folder / "queries.sql").write_text(SQL)
    made = ("-o", folder / "r.plan", "--seconds", 1)
    said = {"plan": succeeds("plan", folder / "queries.sql", "-d", folder / "domain.toml", *made, "--verbose")}
    succeeds("budget", folder / "b.db", "--create", "-e", 9)
    given = ("answer", folder / "r.plan", "-t", folder / "ratings.csv", "-e", 2, "-l", folder / "b.db", "-y")
    said["answer"] = succeeds(*given, "-o", folder / "out.csv", "--release-id", "r", "--verbose")
    said["json"] = succeeds(*given, "-o", folder / "out.csv", "--release-id", "r", "--json")
    succeeds("report", folder / "out.release", "-o", folder / "page.html", "-l", folder / "b.db")
    succeeds("report", folder / "r.plan", "-o", folder / "plan.html")
    succeeds("dossier", folder / "out.release", "-l", folder / "b.db", "-o", folder / "pub")
    said["export"] = succeeds("export", folder / "out.release", "-o", folder / "tables")
    for name, text in said.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def words(path: Path) -> str:
    """A file's text with Markdown's escapes and line ends gone."""
    return " ".join(path.read_text(encoding="utf-8").replace("\\", "").split())


@pytest.mark.parametrize(
    "name",
    [
        *("page.html", "plan.html", "plan.txt", "answer.txt", "export.txt", "json.txt", "tables/tables.json"),
        *("pub/note.md", "pub/note.html", "pub/record.yaml", "pub/checklist.md", "pub/datapackage.json"),
    ],
)
def test_every_text_says_what_is_counted_and_nothing_that_is_false(study: Path, name: str) -> None:
    text = words(study / name)
    for sentence in SENTENCES:
        assert sentence in text
    for sentence in FALSE:
        assert sentence not in text
    assert "unused" not in text  # nobody asks for it


def test_the_notebook_the_release_and_parquet_files_say_it_too(study: Path) -> None:
    release = load_release(study / "out.release")
    assert release.notes == SENTENCES
    assert " ".join(SENTENCES) in release._repr_html_()
    assert " ".join(SENTENCES) in batchdp.load_plan(study / "r.plan")._repr_html_()
    assert "95 %, of the noise" in release._repr_html_()
    for path in (study / "tables").glob("*.parquet"):
        assert pq.read_schema(path).metadata[b"notes"].decode() == " ".join(SENTENCES)
    assert release.notes == release.with_confidence(0.9).notes == SENTENCES


def test_the_record_tells_linear_answers_from_derived_ones(study: Path) -> None:
    record, note = words(study / "pub/record.yaml"), words(study / "pub/note.md")
    assert "neither rounded nor cut off at 0: 5 of the answers." in record
    assert "Computed from such combinations: 6 of the answers" in record
    assert "one row and one column for each answer that is not derived" in note
    assert "They cover the noise and not the rules above." in note
    assert "12 planned answers" not in words(study / "plan.html")
    assert "11 planned answers" in words(study / "plan.html")


def test_the_dossier_is_verified_and_an_edited_rule_is_noticed(study: Path, tmp_path: Path) -> None:
    assert "is what it claims to be" in succeeds("verify", study / "pub", "-l", study / "b.db")
    release = load_release(study / "out.release")
    assert release.counted is not None
    edited = replace(release, counted=replace(release.counted, rows_per_unit=21))
    with pytest.raises(ReleaseError, match="its queries, or what they are called"):
        page(edited, ledger=Ledger.open(study / "b.db"))


def test_a_table_release_says_it_and_its_digest_covers_it(tmp_path: Path) -> None:
    domain = as_domain(DOMAIN.replace("[columns.hours]", "[columns.hours]\nbins = [0, 10]"))
    small = domain.model_copy(update={"columns": {name: domain.columns[name] for name in ("course", "fee", "hours")}})
    made = batchdp.plan(domain=small, marginals=1, privacy="zcdp", cache=False)
    ledger = Ledger.create(tmp_path / "b.db", rho=1)
    done = answer(made, ratings(), rho=0.5, ledger=ledger, release_id="t")
    assert isinstance(done, Release)
    rows = "Counted as “anything else” or “NULL”, where a table has such rows, and in no other group, sum, average or "
    assert f"{rows}quantile of that column: rows whose course is not declared or NULL; whose fee is NULL." in done.notes
    assert SENTENCES[1] in done.notes
    assert "Left out: rows whose hours is a fraction within 0 to 40 or NULL." in done.notes
    done.save(tmp_path / "t.release")
    assert load_release(tmp_path / "t.release").notes == done.notes
    assert answer(made, ratings(), rho=0.5, ledger=ledger, release_id="t").notes == done.notes
    for text in (page(done), done._repr_html_(), plan_page(Prospect(made, None, None)), made._repr_html_()):
        assert ALONE in text
        assert SENTENCES[1] in text
    assert done.counted is not None
    wrong = replace(done, counted=replace(done.counted, unit=None))
    with pytest.raises(ReleaseError, match="not those of its certificate"):
        page(wrong)


@pytest.mark.parametrize("given", [[1.5, -1.0, np.nan], [1, 2, 3], [5, "<5", [3]], np.array([3, 4, 5])])
def test_counts_have_the_same_note_whatever_they_are(given: Any, tmp_path: Path) -> None:
    """Which would tell about them otherwise."""
    strategy = optimize(np.eye(3))
    done = answer(strategy, given, epsilon=1.0, ledger=Ledger.create(tmp_path / "b.db", epsilon=1), max_rows=10**6)
    assert done.notes == (COUNTS, "If more than 1,000,000 records are counted, answers may be far off.", ALONE)
    assert "one that is not a number, missing, infinite or below 0 is taken as 0" in page(done)


def test_codes_have_a_note_of_their_own(tmp_path: Path) -> None:
    from test_components import structure

    ledger = Ledger.create(tmp_path / "b.db", rho=2)
    plain = marginals([3, 2], [1])
    for planned in (optimize(plain, privacy="zcdp"), optimize(structure(plain), privacy="zcdp")):
        by_codes = answer(planned, np.array([[0, 1], [2, 7], [1, 0]]), rho=0.5, ledger=ledger)
        by_counts = answer(planned, np.ones(6), rho=0.5, ledger=ledger)
        assert [done.notes[0] for done in (by_codes, by_counts)] == [CODES, COUNTS]
        assert [done.notes[-1] for done in (by_codes, by_counts)] == [ALONE, ALONE]


def test_only_what_applies_is_said() -> None:
    from batchdp.domain.counted import LARGE, SHOWN, what_is_counted

    plain = {"table": "t", "columns": {"a": {"values": [1, 2], "other": "drop"}, "b": {"integers": [0, 9]}}}
    none = what_is_counted(as_domain({"table": "t", "columns": {"a": {"values": [1]}}}), ())
    assert none.sentences(LARGE) == ()
    some = what_is_counted(as_domain(plain), ()).sentences()
    assert some == ("Left out: rows whose a is not declared or NULL.", ALONE)
    both = what_is_counted(as_domain(plain), {"b"}).sentences()
    assert len(both) == 6
    many = {"table": "t", "columns": {f"c{i}": {"values": [1]} for i in range(SHOWN + 5)}}
    (listed, _, _) = what_is_counted(as_domain(many), set(many["columns"])).sentences()
    assert listed.endswith("(and 5 more such columns).")
    once = {"table": "t", "privacy": {"unit": "p"}, "columns": {"a": {"values": [1]}}}
    assert what_is_counted(as_domain(once), ()).sentences()[0].startswith("At most 1 row of each p is counted")


def test_rules_are_read_as_they_were_written_and_nothing_else_is() -> None:
    from batchdp.domain.counted import Counted, what_is_counted

    rules = what_is_counted(as_domain(DOMAIN), {"course", "rating", "fee"})
    written = json.loads(json.dumps(rules.header()))
    assert Counted.read(written) == rules
    assert Counted.read({}) == Counted()
    column: dict[str, Any] = {"name": "a"}
    wrong: Any
    for wrong in (
        *(None, [], "rows", {"given": "all"}, {"given": 1}, {"unit": 3}, {"unit": "x" * 1001}, {"rows_per_unit": True}),
        *({"rows_per_unit": 0}, {"rows_per_unit": 2.0}, {"own_rows": 1}, {"columns": {}}, {"columns": [3]}),
        *({"more": 1}, {"columns": [{"more": 1}]}, {"columns": [{}]}),
        *({"columns": [column | {"low": float("nan")}]}, {"columns": [column | {"clip": "yes"}]}),
    ):
        with pytest.raises((ValueError, TypeError)):
            Counted.read(wrong)


def test_a_file_with_rules_that_are_none_is_refused(study: Path, tmp_path: Path) -> None:
    header, arrays = load(study / "out.release", "batchdp-release-0.3", ReleaseError, "release")
    save(tmp_path / "x.release", header | {"counted": {"given": "guesses"}}, arrays, ReleaseError)
    with pytest.raises(ReleaseError, match="damaged"):
        load_release(tmp_path / "x.release")


def test_answers_in_csv_have_what_is_counted_beside_them(study: Path) -> None:
    beside = json.loads((study / "out.csv-metadata.json").read_text())
    assert beside["@context"] == "http://www.w3.org/ns/csvw"
    assert beside["url"] == "out.csv"
    assert tuple(beside["rdfs:comment"]) == SENTENCES
    titles = [one["titles"] for one in beside["tableSchema"]["columns"]]
    assert ",".join(titles) == (study / "out.csv").read_text().splitlines()[0]


def test_page_notebook_note_and_record_count_the_same_tables(study: Path) -> None:
    release = load_release(study / "out.release")
    assert len(release.tables) == 5
    assert "Release of 11 private answers in 5 tables" in release._repr_html_()
    assert "11 answers in 5 tables" in words(study / "pub/note.md")
    assert "11 answers in 5 tables" in words(study / "pub/record.yaml")
    assert "1 of 5 tables, by group, with 3 answers; the others are single answers or derived." in words(
        study / "page.html"
    )


RULES = """
table = "t"
privacy = { max_rows = 1000 }
columns.kept = { integers = [0, 10] }
columns.ends = { integers = [0, 10], outside = "clip" }
columns.line = { range = [0, 10], step = 0.5, bins = [0, 5] }
columns.day = { dates = ["2020-01-01", "2020-12-31"] }
columns.name = { values = ["x", "y"] }
"""
ODD = {
    **{name: [3, 2.5, 12, 12.5, -1, "n/k", None, 2.75] for name in ("kept", "ends", "line")},
    "day": ["2020-03-01", "2019-01-01", "2021-05-05", "n/k", None, "2020-12-31", "2020-08-01", "2020-08-02"],
    "name": ["x", "y", "z", None, "X", "y", "x", "x"],
}
FOUND = {
    "SELECT COUNT(*) AS n FROM t WHERE kept > 10": 2,  # as they are, though not declared
    "SELECT COUNT(*) AS n FROM t WHERE kept > 2 AND kept < 3": 2,
    "SELECT COUNT(*) AS n FROM t WHERE ends > 10": 0,  # clipped in conditions too
    "SELECT COUNT(*) AS n FROM t WHERE ends = 10": 2,
    "SELECT COUNT(*) AS n FROM t WHERE line = 3": 2,  # rounded in conditions too
    "SELECT COUNT(*) AS n FROM t WHERE line > 10": 2,
    "SELECT COUNT(*) AS n FROM t WHERE kept IS NULL": 2,  # a text too
    "SELECT COUNT(*) AS n FROM t WHERE ends IS NULL": 2,
    "SELECT COUNT(*) AS n FROM t WHERE day IS NULL": 2,
    "SELECT COUNT(*) AS n FROM t WHERE day < '2020-06-01'": 2,
    "SELECT COUNT(*) AS n FROM t WHERE name <> 'x'": 4,
    "SELECT SUM(kept) AS n FROM t": 3,  # whole numbers within the range alone
    "SELECT SUM(ends) AS n FROM t": 23,
    "SELECT MEDIAN(ends) AS n FROM t": 2.5,  # 0, 2 (2.5 and 2.75), 3, 10, 10: fractions count in quantiles
}


@pytest.mark.parametrize("sql", FOUND)
def test_conditions_sums_and_quantiles_see_what_the_sentences_say(sql: str, tmp_path: Path) -> None:
    pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in ODD.items()}).to_csv(
        tmp_path / "t.csv", index=False
    )
    ledger = Ledger.create(tmp_path / "b.db", epsilon=1e5)
    made = batchdp.plan(sql, RULES, seconds=0.3, cache=False)
    (found,) = answer(made, tmp_path / "t.csv", epsilon=1e4, ledger=ledger).answers
    assert found.value == pytest.approx(FOUND[sql], abs=0.51 if "MEDIAN" in sql else 0.1)


def test_the_rules_are_those_by_which_rows_are_counted(tmp_path: Path) -> None:
    """At a budget at which noise is nothing, answers are what the sentences say, and not what the table holds."""
    table = ratings()
    ledger = Ledger.create(tmp_path / "b.db", epsilon=1e9)
    done = answer(batchdp.plan(SQL, DOMAIN, seconds=1, cache=False), table, epsilon=1e5, ledger=ledger)
    found = {one.name: one.value for one in done.answers}
    kept = table[table.hours.notna() & (table.taken >= pd.Timestamp("2020-01-01").date())]
    counted = kept.groupby("student").size().clip(upper=20).sum()
    assert counted < len(kept)
    assert found["total"] == pytest.approx(counted, abs=0.1)
    assert sum(found[f"by_course[course={name}]"] for name in ("math", "art", "law")) < counted - 100
    assert found["mean_fee[course=math]"] < 2000 < table.fee.max()


def typical(text: str) -> list[str]:
    """What the head of a page says of the typical margin: the figure and what it is of."""
    found = re.search(r"<dt>Typical margin</dt><dd><strong>(.*?)</strong><span>(.*?)</span>", text)
    return [] if found is None else list(found.groups())


def test_a_typical_margin_is_one_of_counts_alone(study: Path, tmp_path: Path) -> None:
    release = load_release(study / "out.release")
    counts = [one.high - one.value for one in release.answers if one.name.startswith(("total", "by_course"))]
    shown, of = typical((study / "page.html").read_text())
    assert float(shown.removeprefix("± ").replace(",", "")) == pytest.approx(np.median(counts), abs=0.1)
    assert of == "of the counts; half of a 95 % interval"
    ledger = Ledger.create(tmp_path / "b.db", epsilon=9)

    def of_strategy(W: Any) -> list[str]:
        strategy = optimize(W, seconds=0.2)
        return typical(page(answer(strategy, np.ones(4), epsilon=1.0, ledger=ledger)))

    assert of_strategy(np.tri(4))[1] == "half of a 95 % interval"
    assert of_strategy(np.tri(4) * [[1], [1], [7], [7]])[1] == "of the counts; half of a 95 % interval"
    assert of_strategy(7 * np.tri(4)) == []


def test_a_typical_margin_of_many_tables_is_one_of_counts_alone(tmp_path: Path) -> None:
    from batchdp.workloads.kronecker import in_factors

    ledger, amounts = Ledger.create(tmp_path / "b.db", rho=9), np.array([[0.0, 50.0, 1000.0]])

    def shown(*terms: Any) -> list[str]:
        strategy = optimize(in_factors([3, 2], terms), privacy="zcdp")
        done = answer(strategy, np.ones(6), rho=0.5, ledger=ledger)
        assert done.layout.is_lazy
        if len(terms) > 1:
            assert float(done.figures(0).half_widths[0]) < 20 < float(done.figures(1).half_widths[0])
        return typical(page(done))

    margin, of = shown([np.eye(3), None], [amounts, np.eye(2)])
    assert float(margin.removeprefix("± ")) < 20
    assert of == "of the counts; half of a 95 % interval"
    assert shown([amounts, np.eye(2)]) == []
    assert shown([np.eye(3), np.eye(2)])[1] == "half of a 95 % interval"


def test_the_page_and_the_dossier_count_the_same_tables_and_answers(study: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", (study / "page.html").read_text())
    assert re.search(r"Answers\s+11\s+from", text)
    assert re.search(r"Tables\s+5\s+one per statement", text)


def test_who_is_a_person_is_declared_and_not_checked(study: Path) -> None:
    rows = (study / "pub/checklist.md").read_text(encoding="utf-8").splitlines()
    (asked,) = (row for row in rows if "Whose privacy is protected?" in row)
    assert "| declared by the custodian | whoever is behind one value of student; the tool caps" in asked
    for name in ("answer.txt", "page.html", "pub/note.md", "pub/record.yaml"):
        assert "whoever is behind one value of student" in words(study / name).replace("</bdi>", "")
    assert "Somebody with more rows in the table is protected just as well" in words(study / "page.html")


def test_a_person_of_several_rows_is_not_called_a_record(tmp_path: Path) -> None:
    ledger, strategy = Ledger.create(tmp_path / "b.db", epsilon=2), optimize(np.eye(2), seconds=0.2)
    for rows, said in ((1, "one unit’s record is one thing"), (5, "one unit’s rows are one thing")):
        done = answer(strategy, [1, 2], epsilon=1.0, ledger=ledger, neighbours="replace", rows_per_unit=rows)
        assert said in page(done)


def test_parts_of_averages_say_from_where_they_are_summed(study: Path) -> None:
    said = "mean_fee.numerator adds up fee − 1,000: a sum from the middle of its column's range."
    assert said in words(study / "plan.txt")
    assert said in words(study / "plan.html").replace("&#39;", "'")
    assert said in batchdp.load_plan(study / "r.plan")._repr_html_().replace("&#39;", "'")
    filtered = "SELECT course, AVG(hours) FILTER (WHERE rating > 2) AS h FROM ratings GROUP BY course"
    for privacy in ("pure", "zcdp"):
        made = batchdp.plan(filtered, DOMAIN, privacy=privacy, seconds=0.3, cache=False)
        assert "h.numerator adds up hours − 20: " in outlook(made).explained()
    even = batchdp.plan("SELECT AVG(a) AS m FROM t", {"table": "t", "columns": {"a": {"integers": [-3, 3]}}})
    assert "adds up" not in outlook(even).explained()


def test_a_budget_for_an_accuracy_says_that_it_is_rounded_up(study: Path) -> None:
    made = batchdp.load_plan(study / "r.plan")
    expected = outlook(made, accuracy=10_000)
    (line,) = (one for one in expected.summary().splitlines() if one.startswith("For ±"))
    assert line.startswith("For ±10000 at 95 % on every query, parts of derived answers too, you need ε = ")
    assert line.endswith(" (rounded up).")
    assert "parts of derived answers too, you need ε = " in words(study / "plan.txt")
    criteria = as_criteria({"total": 17.3})
    text = plan_page(Prospect(made, criteria, None))
    assert "the least that meets all criteria, rounded up" in text
    rows = text.partition("Needs ε")[2].partition("</table>")[0]
    ((needs, shown),) = re.findall(r'data-needs="([^"]+)".*?<td>([0-9.]+)</td></tr>', rows, re.DOTALL)
    assert float(needs) <= float(shown) <= 1.01 * float(needs)


def test_what_is_said_of_derived_answers_is_true_of_them(study: Path) -> None:
    note, checklist = words(study / "pub/note.md"), words(study / "pub/checklist.md")
    beside = words(study / "out.csv-metadata.json")
    assert "No answer was rounded" not in note  # a median is a declared value
    assert "Derived answers have no covariances here" in note
    assert "their standard errors are approximations" in note
    assert "half of a typical 95 % interval" in note  # which need not lie around the answer
    assert "each in its own unit; note.md has every table's" in checklist
    assert "whether value is computed from noisy counts or sums" in beside
    assert "computed from other answers" not in beside + words(study / "page.html")
    assert "have about this margin at most" in words(study / "plan.txt")
    assert "have about this margin at most" in words(study / "plan.html")


def test_consistent_answers_claim_no_more_than_they_keep(study: Path) -> None:
    """Blocks are fitted together, over kinds of records, so nothing is said of them."""
    said = load_release(study / "out.release").consistent().notes
    assert not any("closer to the truth on average" in one or "need not agree" in one for one in said)
