"""What a refusal advises is accepted: every remedy is followed."""

from __future__ import annotations

import pytest

from batchdp.domain import Domain, read_domain
from batchdp.errors import QueryError
from batchdp.sql import read_queries

TEXT = """
table = "patients"
[columns.state]
values = ["NY", "NJ", "CA", "WA"]
[columns.home]
values = ["NY", "NJ", "CA", "WA"]
[columns.clinic]
values = [1, 2, 3]
[columns.age]
range = [0, 120]
[columns.weight]
range = [0, 200]
step = 0.5
[columns.children]
integers = [0, 12]
[columns.siblings]
integers = [0, 12]
[columns.smoker]
values = [true, false]
[columns.visited]
dates = ["2020-01-01", "2025-12-31"]
[columns.born]
dates = ["2020-01-01", "2020-12-31"]
"""
COUNT = "SELECT COUNT(*) AS n FROM patients"


def of(condition: str) -> str:
    return f"{COUNT} WHERE {condition}"


def item(text: str) -> str:
    return f"SELECT {text} AS n FROM patients"


def by(key: str) -> str:
    return f"{COUNT} GROUP BY {key}"


QUANTILE = item("PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY age)")
BOTH = item("AVG(children)") + "; SELECT COUNT(*) AS m FROM patients"
FOLLOWED: list[tuple[str, str, str]] = [
    # conditions
    (of("state = 'Ny'"), "did you mean NY?", of("state = 'NY'")),
    (of("state = 3"), "write state = 'NY'", of("state = 'NY'")),
    (of("smoker = 1"), "write smoker = TRUE", of("smoker = TRUE")),
    (of("clinic = 1.5"), "declared are 1, 2, 3", of("clinic = 2")),
    (of("children = 1.5"), "write 1 or 2", of("children = 1")),
    (of("age > 130"), "it goes from 0 to 120", of("age > 120")),
    (of("age = '18'"), "write it without quotes", of("age = 18")),
    (of("visited > '2024'"), "write it as DATE '2024-01-31'", of("visited > DATE '2024-01-31'")),
    (of("age = CAST('18' AS INTEGER)"), "write constants as they are, like 5", of("age = 5")),
    (of("age = NULL"), "write IS NULL", of("age IS NULL")),
    (of("NULL"), "write column IS NULL", of("age IS NULL")),
    (of("age"), "compare age with a constant", of("age = 3")),
    (of("age IS TRUE"), "write IS NULL", of("age IS NULL")),
    (of("1 = 1"), "compare a column with a constant", of("age = 1")),
    (of("state < 'NY'"), "list the values, state IN (…)", of("state IN ('NJ', 'CA')")),
    (of("clinic < 3"), "list the values, clinic IN (…)", of("clinic IN (1, 2)")),
    (of("age BETWEEN 5 AND 3"), "give the lower end first", of("age BETWEEN 3 AND 5")),
    (of("UPPER(state) = 'ny'"), "it is one of NY", of("UPPER(state) = 'NY'")),
    (of("COUNT(*) > 3"), "HAVING COUNT(*) >= 100", f"{COUNT} HAVING COUNT(*) >= 100"),
    (of("stat = 'NY'"), "did you mean state?", of("state = 'NY'")),
    (of("age > children * siblings"), "add and subtract columns", of("children > 2 * siblings")),
    (of("ABS(children - siblings) < siblings"), "compare ABS(…) with a number", of("ABS(children - siblings) < 3")),
    (of("children - children > 0"), "it is one of 0", of("children - children = 0")),
    (of("visited + born > 7"), "like ended - began <= 7", of("visited - born <= 7")),
    (of("state < home"), "write state = home", of("state = home")),
    (
        of("children + siblings BETWEEN SYMMETRIC 5 AND 3"),
        "two comparisons with OR",
        of("children + siblings BETWEEN 3 AND 5 OR children + siblings BETWEEN 5 AND 3"),
    ),
    (of("state LIKE 'N%' ESCAPE '!!'"), "write ESCAPE '!'", of("state LIKE 'N%' ESCAPE '!'")),
    (
        of("visited + INTERVAL '3' HOUR > DATE '2021-01-01'"),
        "INTERVAL '3' MONTH",
        of("visited + INTERVAL '3' MONTH > DATE '2021-01-01'"),
    ),
    (of("LENGTH(age) = 3"), "give it a text", of("LENGTH(state) = 2")),
    (of("children / 0 = 3"), "divide by another number", of("children / 2 = 3")),
    # functions and amounts
    (item("SUM(age)"), "like step = 0.01", item("SUM(weight)")),
    (item("SUM(state)"), "SUM(CASE WHEN … THEN number END)", item("SUM(CASE WHEN state = 'NY' THEN 1 ELSE 0 END)")),
    (item("COUNT(age + 1)"), "COUNT(*) FILTER (WHERE …)", item("COUNT(*) FILTER (WHERE age IS NOT NULL)")),
    (item("CASE WHEN age > 3 THEN 1 ELSE 0 END"), "SUM(CASE WHEN", item("SUM(CASE WHEN age > 3 THEN 1 ELSE 0 END)")),
    (
        item("CASE WHEN age > 3 THEN 'a' END"),
        "name it with AS and GROUP BY that name",
        "SELECT CASE WHEN age > 3 THEN 'a' END AS band, COUNT(*) AS n FROM patients GROUP BY band",
    ),
    (item("AVG(children) * COUNT(*)"), "ask for both", BOTH),
    (item("AVG(children) / COUNT(*)"), "ask for both", BOTH),
    (item("ROUND(AVG(children), 1)"), "ask for both", item("AVG(children)")),
    (item("CAST(COUNT(*) AS INTEGER)"), "leave it out", COUNT),
    (item("COUNT(*) / NULLIF(COUNT(*), 1)"), "write NULLIF(…, 0)", item("COUNT(*) / NULLIF(COUNT(*), 0)")),
    (item("MEDIAN(children) + 1"), "ask for it by itself", item("MEDIAN(children)")),
    (item("MEDIAN(state)"), "declare it as integers", item("MEDIAN(children)")),
    (item("MEDIAN(children + siblings)"), "write MEDIAN(column)", item("MEDIAN(children)")),
    (
        item("MEDIAN(-children)"),
        "a column times a number above 0, plus or minus another",
        item("MEDIAN(2 * children - 1)"),
    ),
    (item("MEDIAN(visited)"), "write MEDIAN(visited - DATE '2020-01-01')", item("MEDIAN(visited - DATE '2020-01-01')")),
    (item("APPROX_QUANTILE(age, 1)"), "above 0 and below 1", item("APPROX_QUANTILE(age, 0.99)")),
    (item("PERCENTILE_CONT(0.5)"), "WITHIN GROUP (ORDER BY column)", QUANTILE),
    (item("COVAR_POP(children, children)"), "write VARIANCE(column)", item("VARIANCE(children)")),
    (item("state"), "add GROUP BY state", "SELECT state, COUNT(*) AS n FROM patients GROUP BY state"),
    (item("5"), "write COUNT(*) or SUM(…)", COUNT),
    ("SELECT * FROM patients", "write COUNT(*)", COUNT),
    (
        item("COUNT(*) + SUM(COUNT(*)) OVER ()"),
        "COUNT(*) / SUM(COUNT(*)) OVER ()",
        "SELECT state, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM patients GROUP BY state",
    ),
    (
        item("AVG(COUNT(*)) OVER ()"),
        "SUM(COUNT(*)) OVER ()",
        "SELECT state, COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM patients GROUP BY state",
    ),
    (
        "SELECT state, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY home) AS n FROM patients GROUP BY state",
        "add it to GROUP BY",
        "SELECT state, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY home) AS n FROM patients GROUP BY state, home",
    ),
    # groups and what is shown
    (by("age + children"), "declare a column that holds the result", by("children")),
    (
        by("smoker = TRUE"),
        "GROUP BY a declared column",
        "SELECT CASE WHEN smoker THEN 'label' ELSE 'other' END AS k, COUNT(*) AS n FROM patients GROUP BY k",
    ),
    (
        by("state LIKE 'N%'"),
        "write CASE WHEN",
        "SELECT CASE WHEN state LIKE 'N%' THEN 'label' ELSE 'other' END AS k, COUNT(*) AS n FROM patients GROUP BY k",
    ),
    (
        by("CASE WHEN age > 3 THEN 'a' END"),
        "name it",
        "SELECT CASE WHEN age > 3 THEN 'a' END AS band, COUNT(*) FROM patients GROUP BY band",
    ),
    (by("7"), "positions go from 1 to 1", "SELECT state, COUNT(*) FROM patients GROUP BY 1"),
    (by("GROUPING SETS ((state), (state))"), "every set once", by("GROUPING SETS ((state), ())")),
    (f"{COUNT}; {COUNT}", "its own name with AS", f"{COUNT}; SELECT COUNT(*) AS m FROM patients"),
    (f"{COUNT} GROUP BY state ORDER BY age", "order by an item", f"{COUNT} GROUP BY state ORDER BY n"),
    (f"{COUNT} GROUP BY state LIMIT 2.5", "like LIMIT 5", f"{COUNT} GROUP BY state LIMIT 5"),
    (
        f"{COUNT} GROUP BY clinic HAVING clinic > 1",
        "write it in WHERE",
        f"{COUNT} WHERE clinic IN (2, 3) GROUP BY clinic",
    ),
    (
        f"{COUNT} GROUP BY state HAVING SUM(children) > 1",
        "add it to the SELECT",
        "SELECT COUNT(*) AS n, SUM(children) AS s FROM patients GROUP BY state HAVING s > 1",
    ),
    (
        f"{COUNT} GROUP BY state HAVING n",
        "like HAVING COUNT(*) >= 100",
        f"{COUNT} GROUP BY state HAVING COUNT(*) >= 100",
    ),
    # tables, subqueries and texts
    ("SELECT COUNT(*) FROM doctors", "write FROM patients", COUNT),
    (of("doctors.age > 3"), "write patients.age", of("patients.age > 3")),
    (
        "SELECT COUNT(*) AS n FROM (SELECT state, COUNT(*) AS m FROM patients GROUP BY state) a",
        "FROM (SELECT columns",
        "SELECT COUNT(*) AS n FROM (SELECT state FROM patients WHERE age > 3) a GROUP BY state",
    ),
    (
        "SELECT COUNT(*) AS n FROM (SELECT state FROM patients) a WHERE age > 3",
        "with age or *",
        "SELECT COUNT(*) AS n FROM (SELECT state, age FROM patients) a WHERE age > 3",
    ),
    (
        "SELECT COUNT(*) AS n FROM (SELECT age + 1 FROM patients) a",
        "give it a name with AS",
        "SELECT COUNT(*) AS n FROM (SELECT age + 1 AS older FROM patients) a",
    ),
    ("SELECT COUNT(*) FROM", "a query looks like", "SELECT COUNT(*) AS adults FROM patients WHERE age >= 18"),
    (of("age > 1_0"), "1000, 0.5 or 1e3", of("age > 1e1")),
    (of("state = E'NY'"), "in plain quotes", of("state = 'NY'")),
    (of("age == 3"), "compare with =", of("age = 3")),
    (
        "SELECT /*+ fast */ COUNT(*) AS n FROM patients",
        "write /*+ weight(3) */",
        "SELECT /*+ weight(3) */ COUNT(*) AS n FROM patients",
    ),
    # what _NODES, _PARTS and _STATEMENTS advise
    (item("MAX(age)"), "PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY column)", QUANTILE),
    (item("MIN(age)"), "PERCENTILE_CONT(0.01) WITHIN GROUP (ORDER BY column)", QUANTILE.replace("0.99", "0.01")),
    (
        "SELECT LEFT(state, 1) AS l, COUNT(*) AS n FROM patients GROUP BY l",
        "of a column LIKE, LOWER, UPPER, SUBSTR",
        "SELECT SUBSTR(state, 1, 1) AS l, COUNT(*) AS n FROM patients GROUP BY l",
    ),
    (item("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age)"), "PERCENTILE_CONT(0.5)", QUANTILE),
    (item("COUNT(DISTINCT state)"), "GROUP BY a declared column counts each of its values", by("state")),
    ("SELECT DISTINCT state FROM patients", "GROUP BY a declared column counts each of its values", by("state")),
    (item("COUNT_IF(smoker)"), "COUNT(*) FILTER (WHERE …)", item("COUNT(*) FILTER (WHERE smoker)")),
    (item("SUM(IF(smoker, 1, 0))"), "SUM(CASE WHEN", item("SUM(CASE WHEN smoker THEN 1 ELSE 0 END)")),
    (of("state GLOB 'N*'"), "column IN ('a', 'b')", of("state IN ('NY', 'NJ')")),
    (of("state SIMILAR TO 'N.'"), "column IN ('a', 'b')", of("state IN ('NY', 'NJ')")),
    (of("state = ANY (ARRAY['NY'])"), "IN ('a', 'b')", of("state IN ('NY', 'NJ')")),
    (of("REGEXP_LIKE(state, 'N.')"), "column IN ('a', 'b')", of("state IN ('NY', 'NJ')")),
    (of("age > ?"), "write the constant itself", of("age > 3")),
    (of("visited > CURRENT_DATE"), "DATE '2024-01-31'", of("visited > DATE '2024-01-31'")),
    (of("visited > CURRENT_TIMESTAMP"), "DATE '2024-01-31'", of("visited > DATE '2024-01-31'")),
    (of("visited > DATE('2024-01-31')"), "DATE '2024-01-31'", of("visited > DATE '2024-01-31'")),
    (of("visited > TRY_CAST('2024-01-31' AS DATE)"), "DATE '2024-01-31'", of("visited > DATE '2024-01-31'")),
    (of("(state, home) IN (('NY', 'NJ'))"), "one column at a time, joined by AND", of("state = 'NY' AND home = 'NJ'")),
    (of("state = 'NY' COLLATE nocase"), "texts are compared as they are", of("state = 'NY'")),
    (
        of("visited AT TIME ZONE 'UTC' > DATE '2024-01-01'"),
        "visited >= DATE '2024-01-01'",
        of("visited >= DATE '2024-01-01'"),
    ),
    (f"{COUNT} UNION ALL {COUNT}", "separated by ;", f"{COUNT}; SELECT COUNT(*) AS m FROM patients"),
    (of("EXISTS (SELECT 1 FROM patients)"), "on the columns of the declared table", of("age > 3")),
    (of("state IN (SELECT home FROM patients)"), "on the columns of the declared table", of("state = home")),
    (f"{COUNT} GROUP BY state QUALIFY n > 3", "write HAVING", f"{COUNT} GROUP BY state HAVING n > 3"),
    (f"{COUNT} GROUP BY ALL", "name the columns", by("state, home")),
    (f"{COUNT} GROUP BY state, home WITH ROLLUP", "GROUP BY ROLLUP (a, b)", by("ROLLUP (state, home)")),
    (f"{COUNT} GROUP BY state, home WITH CUBE", "GROUP BY CUBE (a, b)", by("CUBE (state, home)")),
    (f"{COUNT} GROUP BY state WITH TOTALS", "GROUP BY ROLLUP (a, b)", by("ROLLUP (state, home)")),
    ("SELECT COUNT(*) AS n FROM main.patients", "the declared table's name alone", COUNT),
    ("SELECT COUNT(*) AS n FROM a.b.patients", "the declared table's name alone", COUNT),
    ("SELECT COUNT(*) AS n FROM patients TABLESAMPLE (10 PERCENT)", "count all rows", COUNT),
    (f"{COUNT} FOR UPDATE", "leave it out", COUNT),
    ("FROM patients SELECT COUNT(*)", "a query looks like", COUNT),
    (f"({COUNT})", "begin with SELECT", COUNT),
    (f"EXPLAIN {COUNT}", "begin with SELECT", COUNT),
]


@pytest.fixture(scope="module")
def domain() -> Domain:
    return read_domain(TEXT)


@pytest.mark.parametrize(("wrong", "advice", "right"), FOLLOWED)
def test_what_a_refusal_advises_is_accepted(wrong: str, advice: str, right: str, domain: Domain) -> None:
    with pytest.raises(QueryError) as refused:
        read_queries(wrong, domain)
    assert any(advice in one for one in refused.value.refusals), refused.value.refusals
    assert read_queries(right, domain)
