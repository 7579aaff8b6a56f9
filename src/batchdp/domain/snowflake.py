"""Snowflake's PRIVACY DOMAIN in DDL, as a codebook: CREATE TABLE, and ALTER TABLE … SET PRIVACY DOMAIN.

The text is read, never run; whatever else stands in it is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from batchdp.domain.codebook_formats import describe_column
from batchdp.domain.columns import fold, plain_name
from batchdp.domain.draft import ColumnType, Described

_TOKEN = re.compile(
    r"""\s+|--[^\n]*|//[^\n]*|/\*.*?\*/|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")+")
    |(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<word>[^\W\d][\w$]*)|(?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_WHOLE = ("INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "BYTEINT")
_KINDS: dict[str, ColumnType] = {
    **dict.fromkeys(_WHOLE, "whole"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"), "number"),
    **dict.fromkeys(("DATE", "DATETIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIMESTAMP_TZ"), "date"),
    "BOOLEAN": "boolean",
    **dict.fromkeys(("VARCHAR", "STRING", "TEXT", "CHAR", "CHARACTER"), "text"),
}
EXAMPLE = "ALTER TABLE visits ALTER COLUMN age SET PRIVACY DOMAIN BETWEEN (0, 120)"

Token = tuple[str, str]
"""Its kind, and its text; a name or text without its quotes."""


@dataclass
class _Column:
    name: str
    kind: ColumnType | None = None
    low: Any = None
    high: Any = None
    listed: list[Any] = field(default_factory=list)


def snowflake_tables(text: str) -> list[tuple[str, list[Described]]]:
    """The tables that a text of DDL describes, in its order; a `ValueError` says what cannot be read."""
    found: dict[str, tuple[str, dict[str, _Column]]] = {}
    for statement in _statements(text):
        words = [text.upper() if kind == "word" else "" for kind, text in statement]
        if words[:1] == ["CREATE"] and "TABLE" in words:
            name, at = _name(statement, words, words.index("TABLE") + 1)
            columns = found.setdefault(fold(name), (name, {}))[1]
            for part in _parts(statement[at:]):
                _define(part, columns)
        elif words[:1] == ["ALTER"] and "PRIVACY" in words and "SET" in words:
            name, at = _name(statement, words, 2)
            columns = found.setdefault(fold(name), (name, {}))[1]
            while at < len(words) and (words[at] in ("ALTER", "MODIFY", "COLUMN") or statement[at][1] == "("):
                at += 1
            for part in _parts([("symbol", "("), *statement[at:]]):
                begin = 1 if part[0][1].upper() == "COLUMN" else 0
                _constrain(columns.setdefault(fold(part[begin][1]), _Column(part[begin][1])), part[begin + 1 :])
    return [
        (plain_name(name), [_described(one) for one in columns.values()]) for name, columns in found.values() if columns
    ]


def _statements(text: str) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for match in _TOKEN.finditer(text):
        kind, own = str(match.lastgroup or ""), match.group()
        if own == ";":
            found.append([])
        elif kind:
            quote = own[0] if kind in ("text", "quoted") else ""
            found[-1].append((kind, own[1:-1].replace(quote * 2, quote) if quote else own))
    return [one for one in found if one]


def _name(statement: list[Token], words: list[str], at: int) -> tuple[str, int]:
    """A table's name without its schema, and what comes behind it."""
    while at < len(words) and words[at] in ("IF", "NOT", "EXISTS"):
        at += 1
    if at >= len(statement):
        raise ValueError(f"a statement without a table; write {EXAMPLE}")
    while at + 2 < len(statement) and statement[at + 1][1] == ".":
        at += 2
    return statement[at][1], at + 1


def _parts(tokens: list[Token]) -> list[list[Token]]:
    """What stands between the commas within the first parentheses."""
    found: list[list[Token]] = [[]]
    depth = 0
    for kind, text in tokens:
        step = (text == "(") - (text == ")") if kind == "symbol" else 0
        depth += step
        if depth <= 0 and step < 0:
            break
        if depth == 1 and kind == "symbol" and text in "(,":
            found += [[]] * (text == ",")
        elif depth >= 1:
            found[-1].append((kind, text))
    return [one for one in found if len(one) > 1]


def _define(part: list[Token], columns: dict[str, _Column]) -> None:
    """A column of CREATE TABLE; keys and other constraints are passed over."""
    (kind, name), (_, type_), *rest = part
    if kind == "word" and name.upper() in ("PRIMARY", "FOREIGN", "UNIQUE", "CONSTRAINT"):
        return
    found = columns.setdefault(fold(name), _Column(name))
    known = _KINDS.get(type_.upper())
    if type_.upper() in ("NUMBER", "DECIMAL", "NUMERIC"):
        scale = [text for kind, text in rest[:4] if kind == "number"]
        known = "number" if len(scale) > 1 and scale[1] != "0" else "whole"
    found.kind = known or found.kind
    _constrain(found, rest)


def _constrain(column: _Column, tokens: list[Token]) -> None:
    words = [text.upper() for _, text in tokens]
    place = next((i for i in range(len(words) - 1) if words[i : i + 2] == ["PRIVACY", "DOMAIN"]), None)
    if place is None or place + 2 >= len(words):
        return
    how, given = words[place + 2], tokens[place + 3 :]
    values = [(kind, text) for kind, text in given[: _closing(given)] if text not in ("(", ",", ")") or kind == "text"]
    if how == "BETWEEN" and len(values) == 2:
        column.low, column.high = (_value(one) for one in values)
        column.kind = column.kind or ("date" if values[0][0] == "text" else _number_kind(values))
    elif how == "IN" and values:
        column.listed = [_value(one) for one in values]
        column.kind = column.kind or ("text" if values[0][0] == "text" else _number_kind(values))
    elif how != "REFERENCES":  # whose values stand in another table, which is not read
        raise ValueError(f"the privacy domain of {column.name} cannot be read; write {EXAMPLE}")


def _closing(tokens: list[Token]) -> int:
    return next((i for i, one in enumerate(tokens) if one == ("symbol", ")")), len(tokens))


def _number_kind(values: list[Token]) -> ColumnType:
    return "whole" if all(re.fullmatch(r"-?[0-9]+", text) for _, text in values) else "number"


def _value(token: Token) -> Any:
    kind, text = token
    if kind == "number":
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else float(text)
    return {"TRUE": True, "FALSE": False}.get(text.upper(), text) if kind == "word" else text


def _described(one: _Column) -> Described:
    return describe_column(one.name, one.kind or "text", listed=one.listed, low=one.low, high=one.high)
