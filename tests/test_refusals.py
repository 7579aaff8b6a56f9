"""Everything that is wrong with a file is said at once, with its place and a remedy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import batchdp
from batchdp.domain import read_domain
from batchdp.errors import QueryError
from batchdp.sql import read_queries
from commands import run

DOMAIN_TEXT = """
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA", "WA"]
[columns.age]
range = [0, 120]
[columns.children]
integers = [0, 12]
[columns.visited]
dates = ["2020-01-01", "2025-12-31"]
"""
DOMAIN = read_domain(DOMAIN_TEXT)


def refusals(sql: str) -> tuple[str, ...]:
    with pytest.raises(QueryError) as refused:
        read_queries(sql, DOMAIN)
    return refused.value.refusals


WRONG = [
    "SELECT COUNT(*) FROM patients WHERE stat = 'NY'",
    "SELECT COUNT(*) FROM patients WHERE state = 'NZ'",
    "SELECT COUNT(*) FROM patients WHERE age ? 3",
    "SELECT COUNT(*) FROM",
    "DROP TABLE patients",
    "SELECT COUNT(*) FROM doctors",
    "SELECT MAX(age) FROM patients",
    "SELECT SUM(age) FROM patients",
    "SELECT COUNT(*) FROM patients GROUP BY age",
    "SELECT COUNT(DISTINCT state) FROM patients",
]


def test_thirty_wrong_statements_are_thirty_refusals_in_their_order_and_soon() -> None:
    begin = time.process_time()
    found = refusals(";\n".join(WRONG * 3))
    assert time.process_time() - begin < 5
    lines = [int(line.split("line ")[1].split(",")[0]) for line in found]
    assert lines == list(range(1, 31))


def test_right_statements_between_wrong_ones_are_not_mentioned() -> None:
    right = "SELECT COUNT(*) FROM patients"
    found = refusals(";\n".join(one for wrong in WRONG for one in (right, wrong)))
    assert [int(line.split("line ")[1].split(",")[0]) for line in found] == list(range(2, 21, 2))


def test_one_statement_may_be_wrong_in_several_places() -> None:
    found = refusals(
        "SELECT MAX(age), SUM(state), COUNT(*) FROM patients WHERE stat = 'NY' AND age > 200 GROUP BY visited"
    )
    said = ("MAX", "a column that is not declared", "beyond the declared range", "visited has no groups")
    assert [any(word in line for line in found) for word in said] == [True] * 4


def test_an_unclosed_text_hides_what_comes_behind_it_and_no_more() -> None:
    found = refusals("SELECT MAX(age) FROM patients;\nSELECT COUNT(*) FROM patients WHERE state = 'NY;\nSELECT 1")
    assert ["MAX" in found[0], "not closed" in found[1], len(found)] == [True, True, 2]


def test_the_error_shows_the_first_and_has_the_others_as_notes() -> None:
    with pytest.raises(QueryError, match=r"stat = 'NY'|not declared \(stat\).*\(and 1 more") as refused:
        batchdp.plan(";".join(WRONG[:2]), DOMAIN)
    assert refused.value.__notes__ == list(refused.value.refusals[1:])


def test_the_command_line_lists_all(tmp_path: Path) -> None:
    domain, queries = tmp_path / "domain.toml", tmp_path / "queries.sql"
    domain.write_text(DOMAIN_TEXT)
    queries.write_text(";\n".join(WRONG))
    done = run("plan", queries, "--domain", domain, "-o", tmp_path / "x.plan")
    assert done.code == 1
    assert [line.startswith(f"batchdp: {queries} line ") for line in done.err.splitlines()] == [True] * 10


def test_what_is_nested_too_deeply_does_not_hide_the_next_statement() -> None:
    found = refusals(f"SELECT {'(' * 30}COUNT(*){')' * 30} FROM patients; SELECT MAX(age) FROM patients")
    assert ["nested too deeply" in found[0], "MAX" in found[1]] == [True, True]


def test_refusals_of_batches_of_very_many_answers_have_their_places() -> None:
    domain = {"table": "t", "columns": {name: {"integers": [0, 200]} for name in "ab"}}
    many = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"
    either = "CASE WHEN a = 1 OR b = 1 THEN 'x' ELSE 'y' END"
    cases = ";\n".join(f"SELECT {either} AS k, COUNT(*) AS n{i} FROM t GROUP BY k" for i in range(2))
    with pytest.raises(QueryError) as found:
        batchdp.plan(f"{many};\n{cases}", domain, cache=False)
    assert len(found.value.refusals) == 2
    for line, refusal in enumerate(found.value.refusals, start=2):
        assert refusal.startswith(f"queries line {line}, column ")
        assert "a CASE looks at 2 columns with more than 10,000 combinations" in refusal
        assert refusal.endswith("; use fewer columns in it, or ask for it in a batch of its own")
    tied = "SELECT COUNT(*) AS m FROM t WHERE a = 1 OR b = 1"
    with pytest.raises(
        QueryError, match=r"queries line 2, column \d+: the columns a, b are tied together by an OR"
    ) as one:
        batchdp.plan(f"{many};\n{tied}", domain, cache=False)
    assert str(one.value).endswith("; compare fewer values in them, or ask for it in a batch of its own")
    assert batchdp.plan(tied, domain, seconds=0.2, cache=False).workload.queries == 1


def test_what_ties_columns_beyond_what_gaussian_noise_can_solve_is_named_before_any_search() -> None:
    domain = {"table": "t", "columns": {name: {"integers": [0, 100]} for name in "ab"}}
    medians = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b; SELECT MEDIAN(a) AS h, MEDIAN(b) AS i FROM t"
    tied = "SELECT COUNT(*) AS m FROM t WHERE a > 50 OR b > 50"
    begin = time.process_time()
    with pytest.raises(batchdp.StrategyError, match=r"'m' ties the columns a, b together.* \d+ × \d+ groups") as one:
        batchdp.plan(f"{medians};\n{tied}", domain, privacy="zcdp", cache=False)
    assert time.process_time() - begin < 10
    assert str(one.value).endswith("; compare fewer values in them, or ask for it in a batch of its own")
    assert batchdp.plan(tied, domain, privacy="zcdp", cache=False).workload.queries == 1
    added = "SELECT SUM(a) + SUM(b) AS m FROM t"  # which ties them too, and has no component of both
    made = batchdp.plan(f"{medians};\n{added}", domain, privacy="zcdp", seconds=1, cache=False)
    assert made.workload.queries > 10_000
