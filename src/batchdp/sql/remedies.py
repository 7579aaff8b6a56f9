"""What to do instead of the SQL that is refused."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from batchdp.sql.script import EXAMPLE

_RANGES = "count in ranges instead, with bins and GROUP BY, or with CASE"
_PLAIN = "compare a column with constants: =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL"
_SUM_OF_CASE = "write SUM(CASE WHEN … THEN 1 ELSE 0 END), or COUNT(*) FILTER (WHERE …)"
_DAYS = "compare the column with days, like visited >= DATE '2024-01-01'"
_LIST = "list the values: column IN ('a', 'b')"
_CONSTANT = "write the constant itself"
_ONE_TABLE = "every query reads the declared table alone; join before counting"

_NODES = {
    "Union": ("UNION", "write the queries one after another, separated by ;"),
    "Except": ("EXCEPT", "write the queries one after another, separated by ;"),
    "Intersect": ("INTERSECT", "write the queries one after another, separated by ;"),
    "Subquery": ("a subquery", "write the condition on the columns of the declared table"),
    "Exists": ("EXISTS", "write the condition on the columns of the declared table"),
    "Join": ("a join", _ONE_TABLE),
    "Lateral": ("LATERAL", _ONE_TABLE),
    "Min": ("MIN", _RANGES),
    "Max": ("MAX", _RANGES),
    "PercentileDisc": ("PERCENTILE_DISC", "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column)"),
    "Stddev": ("STDDEV", _RANGES),
    "Variance": ("VARIANCE", _RANGES),
    "Distinct": ("DISTINCT", "GROUP BY the column counts every declared value"),
    "Window": ("a window function", "GROUP BY gives one count a group"),
    "CountIf": ("COUNT_IF", "write COUNT(*) FILTER (WHERE …)"),
    "If": ("IF", _SUM_OF_CASE),
    "Coalesce": ("COALESCE", "ask for IS NULL in a condition"),
    "Like": ("LIKE", _LIST),
    "ILike": ("ILIKE", _LIST),
    "SimilarTo": ("SIMILAR TO", _LIST),
    "RegexpLike": ("a regular expression", _LIST),
    "RegexpILike": ("a regular expression", _LIST),
    "Glob": ("GLOB", _LIST),
    "Any": ("ANY", _LIST),
    "All": ("ALL", _LIST),
    "NullSafeEQ": ("IS NOT DISTINCT FROM", "write column = constant, or column IS NULL"),
    "NullSafeNEQ": ("IS DISTINCT FROM", "write column <> constant OR column IS NULL"),
    "Placeholder": ("a parameter", _CONSTANT),
    "Parameter": ("a parameter", _CONSTANT),
    "Interval": ("INTERVAL", _DAYS),
    "CurrentDate": ("CURRENT_DATE", "write the day itself, like DATE '2024-01-31'"),
    "CurrentTimestamp": ("the current time", "write the day itself, like DATE '2024-01-31'"),
    "Extract": ("EXTRACT", _DAYS),
    "Year": ("YEAR", _DAYS),
    "Month": ("MONTH", _DAYS),
    "Day": ("DAY", _DAYS),
    "Date": ("the function DATE", "write DATE '2024-01-31'"),
    "TryCast": ("TRY_CAST", "write DATE '2024-01-31'"),
    "Tuple": ("a tuple", "compare one column at a time, joined by AND"),
    "Concat": ("a text in pieces", "write one text"),
    "Collate": ("COLLATE", "texts are compared as they are"),
    "AtTimeZone": ("AT TIME ZONE", _DAYS),
    "Dot": ("a name of several parts", "write column or table.column"),
    "Rollup": ("ROLLUP", "it belongs to GROUP BY"),
    "Cube": ("CUBE", "it belongs to GROUP BY"),
    "GroupingSets": ("GROUPING SETS", "they belong to GROUP BY"),
    "Xor": ("XOR", "write it with AND, OR and NOT"),
}
"""By the name of sqlglot's class: what it is called, and what to write instead."""

_PARTS = {
    "with": ("WITH", "write the condition into the query itself", "WITH"),
    "with_": ("WITH", "write the condition into the query itself", "WITH"),
    "joins": ("a second table", _ONE_TABLE, "FROM"),
    "laterals": ("LATERAL", _ONE_TABLE, "LATERAL"),
    "distinct": ("DISTINCT", "GROUP BY the column counts every declared value", "DISTINCT"),
    "having": ("HAVING", "leave it out and pick from the answers: that costs no privacy", "HAVING"),
    "order": ("ORDER BY", "leave it out: answers come in the order of the queries", "ORDER"),
    "limit": ("LIMIT", "leave it out and pick from the answers: that costs no privacy", "LIMIT FETCH TOP"),
    "offset": ("OFFSET", "leave it out and pick from the answers: that costs no privacy", "OFFSET"),
    "qualify": ("QUALIFY", "leave it out and pick from the answers: that costs no privacy", "QUALIFY"),
    "windows": ("WINDOW", "GROUP BY gives one count a group", "WINDOW"),
    "into": ("INTO", "queries only read", "INTO"),
    "locks": ("a lock", "queries only read; leave it out", "FOR"),
    "sample": ("a sample", "count all rows: privacy is spent on the answers, not on the rows read", "TABLESAMPLE"),
    "pivots": ("PIVOT", "GROUP BY gives one count a group", "PIVOT"),
    "db": ("a table of another schema", "write the declared table's name alone", ""),
    "catalog": ("a table of another catalog", "write the declared table's name alone", ""),
    "query": ("a subquery", "write the condition on the columns of the declared table", ""),
    "symmetric": ("SYMMETRIC", "give the lower end first", "SYMMETRIC"),
    "all": ("GROUP BY ALL", "name the columns", "GROUP"),
    "rollup": ("WITH ROLLUP", "write GROUP BY ROLLUP (a, b)", "ROLLUP"),
    "cube": ("WITH CUBE", "write GROUP BY CUBE (a, b)", "CUBE"),
    "totals": ("WITH TOTALS", "write GROUP BY ROLLUP (a, b)", "TOTALS"),
}
"""By the name of the part: what it is called, what to write instead, and the keyword to point at."""

_STATEMENTS = {
    "WITH": ("WITH", "write the condition into the query itself"),
    "FROM": ("FROM before SELECT", EXAMPLE),
    "(": ("a statement in parentheses", "begin with SELECT"),
    "EXPLAIN": ("EXPLAIN", "the plan shows what a batch costs; begin with SELECT"),
}


def advice_on_node(node: Any) -> tuple[str, str, str]:
    """What is wrong with a node that is not understood, the remedy, and the keyword to point at, if any."""
    name = type(node).__name__
    if name in _NODES:
        what, remedy = _NODES[name]
        # Operators are shown with both sides, functions know their place, and other keywords are looked for.
        word = "" if isinstance(node, exp.Binary) or "start" in node.meta else what
        return f"{what} is not supported", remedy, word.split()[0] if word.isupper() else ""
    if isinstance(node, exp.Query):
        return "a subquery is not supported", "write the condition on the columns of the declared table", ""
    if isinstance(node, exp.Func):
        return "a function is not supported", f"only COUNT, SUM, AVG and MEDIAN are; {_PLAIN}", ""
    if isinstance(node, exp.Binary):
        return "this operator is not supported", _PLAIN, ""
    return "this is not supported", EXAMPLE, ""


def advice_on_part(kind: str, part: str) -> tuple[str, str, str]:
    """What is wrong with a part that is not understood, the remedy, and the keyword to point at."""
    if part in _PARTS:
        what, remedy, word = _PARTS[part]
        return f"{what} is not supported", remedy, word
    if (kind, part) == ("Count", "expressions"):
        return "COUNT of several columns is not supported", "write COUNT(*) FILTER (WHERE …)", ""
    if (kind, part) == ("If", "false"):
        return "IF is not supported", _SUM_OF_CASE, "IF"
    if (kind, part) == ("In", "field"):
        return "IN without a list is not supported", _LIST, ""
    return f"{part.strip('_').replace('_', ' ').upper()} is not supported", EXAMPLE, ""


def advice_on_statement(word: str) -> tuple[str, str]:
    """What is wrong with a statement that begins with this word, and the remedy."""
    if word in _STATEMENTS:
        what, remedy = _STATEMENTS[word]
        return f"{what} is not supported", remedy
    return "only SELECT is supported", EXAMPLE
