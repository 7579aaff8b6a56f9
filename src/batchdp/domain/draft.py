"""A domain file and a query file to start from, drafted from the names and types of columns alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

ColumnType = Literal["text", "number", "whole", "date", "boolean", "unknown"]

EXAMPLE: dict[str, ColumnType] = {"state": "text", "age": "number", "children": "whole", "visited": "date"}

HEAD = """\
# What is public about the table. batchdp believes this file and never looks at the data to fill it in,
# so write what you know without the data: from a codebook, a form or the law.

table = {table}               # the name that the queries use

[privacy]
# unit = "person_id"             # whose privacy: one value = one person; left out, every row is a person
# rows_per_unit = 1              # at most this many rows of one person are counted
neighbours = "add-remove"        # or "replace": the number of people is public
max_rows = 10_000_000            # a public cap on the number of rows

# Columns that queries may use. Delete those that none uses. Every column is one of
#   values = ["a", "b"]          a few values: texts, whole numbers, or true and false
#   range = [0, 120]             any number between the two, both included; bins = [0, 18, 65] for GROUP BY
#   integers = [0, 12]           whole numbers, each by itself; SUM is allowed
#   dates = ["2020-01-01", "2025-12-31"]
# Anything else in the data counts as "anything else" (other = "keep") or is left out (other = "drop").
"""
RESERVED = frozenset(
    re.findall(
        r"\w+",
        "all and any as asc between by case cast column count cross date desc distinct else end exists false filter "
        "from full group having in index inner interval into is join left like limit not null on or order outer over "
        "primary references right row rows select set sum table then time timestamp to true union unique update user "
        "using values view when where with",
    )
)
KINDS: dict[ColumnType, str] = {
    "text": 'values = ["A", "B"]              # EDIT: the values that can occur',
    "number": "range = [0, 100]                 # EDIT: the lowest and the highest value\n"
    "bins = [0, 25, 50, 75]           # EDIT: lower edges of the groups of GROUP BY",
    "whole": "integers = [0, 10]               # EDIT: the lowest and the highest value",
    "date": 'dates = ["2020-01-01", "2025-12-31"]   # EDIT: the first and the last day',
    "boolean": "values = [true, false]",
    "unknown": 'values = ["A", "B"]              # EDIT: the values that can occur, or range, integers, dates',
}


def draft_domain(table: str, columns: Mapping[str, ColumnType] | None = None) -> str:
    """A domain file with every column in it, to be edited."""
    parts = [HEAD.format(table=_quoted(table))]
    for name, kind in (EXAMPLE if columns is None else columns).items():
        parts.append(f"[columns.{_key(name)}]\n{KINDS[kind]}\n")
    return "\n".join(parts)


def draft_queries(table: str, columns: Mapping[str, ColumnType] | None = None) -> str:
    """A query file that fits the drafted domain."""
    given = EXAMPLE if columns is None else columns
    lines = [
        "-- One SELECT after the other; each count becomes one private answer. COUNT, SUM, WHERE, CASE, FILTER and",
        "-- GROUP BY over declared columns are understood, and sums and multiples of counts.",
        "",
        f"SELECT COUNT(*) AS total FROM {_identifier(table)};",
    ]
    for name, kind in given.items():
        column, source = _identifier(name), _identifier(table)
        alias = _identifier(f"by_{name}")
        if kind in ("text", "unknown", "boolean", "number"):
            lines.append(f"SELECT {column}, COUNT(*) AS {alias} FROM {source} GROUP BY {column};")
        elif kind == "whole":
            lines.append(f"SELECT SUM({column}) AS {_identifier(f'all_{name}')} FROM {source};")
        else:
            alias = _identifier(f"{name}_since_2024")
            lines.append(f"SELECT COUNT(*) AS {alias} FROM {source} WHERE {column} >= DATE '2024-01-01';")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """A bare TOML key where that is possible."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _identifier(name: str) -> str:
    """An SQL identifier, quoted where it has to be."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'
