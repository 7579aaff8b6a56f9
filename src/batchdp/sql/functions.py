"""Functions of one column and constants, worked out at planning for every declared value, with DuckDB's meaning.

Nothing of this reaches an engine: a record is told by its column's value alone.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

from sqlglot import exp

from batchdp.domain.lookups import key_of
from batchdp.sql.constants import checked, exact_number
from batchdp.sql.pieces import (
    Constant,
    Function,
    FunctionError,
    absolute,
    arithmetic,
    both,
    compared,
    computed,
    constant,
    identity,
    rounded,
)
from batchdp.sql.refusals import Node
from batchdp.sql.sources import LookedUp
from batchdp.sql.syntax import ARITHMETIC, FUNCTIONS, Scope, unwrapped

LONGEST_TEXT = 10_000
LARGEST_DECIMALS = 30
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KINDS = {str: "a text", bool: "true or false", Fraction: "a number", date: "a day"}
_SIGNS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


def is_function(node: Node) -> bool:
    """Whether a node is a function or arithmetic, and not a column or a constant as it stands."""
    return isinstance(unwrapped(node), (*FUNCTIONS, *ARITHMETIC, exp.Like, exp.ILike, exp.Escape, exp.Neg))


def columns_in(scope: Scope, node: Node) -> list[str]:
    """The declared columns that a node looks at, each once."""
    return list(dict.fromkeys(scope.column(column)[0] for column in node.find_all(exp.Column)))


def function(scope: Scope, node: Node) -> Function:
    """What a node is for every declared value of its column."""
    check_columns(scope, node)
    return _function(scope, unwrapped(node))


def check_columns(scope: Scope, node: Node) -> None:
    """Refuse what looks at several columns."""
    columns = columns_in(scope, node)
    if len(columns) > 1:
        problem = f"a function of {len(columns)} columns, {' and '.join(columns[:2])}"
        remedy = "write each as a condition or a sum of its own, or declare a column that holds the result"
        raise scope.refusal(node, problem, remedy)


def _function(scope: Scope, node: Node) -> Function:
    known = scope.declared.functions
    same = node if isinstance(node, (exp.Func, *ARITHMETIC)) else None
    if same is not None and same in known:
        held: Function = known[same]
        return held
    with refused_at(scope, node):
        found = _of(scope, node)
    if same is not None:
        known[same] = found
    return found


@contextmanager
def refused_at(scope: Scope, node: Node) -> Iterator[None]:
    """What cannot be computed is refused at a node."""
    try:
        yield
    except FunctionError as error:
        raise scope.refusal(node, error.problem, error.remedy) from None


def _of(scope: Scope, node: Node) -> Function:
    node = unwrapped(node)
    if isinstance(node, exp.Column):
        return identity(*scope.column(node))
    if isinstance(node, (exp.Literal, exp.Boolean, exp.Null, exp.Cast)):
        return constant(_constant(scope, node))
    if isinstance(node, exp.Neg):
        return arithmetic(constant(Fraction(0)), _numbers(scope, node.this), "-")
    if isinstance(node, ARITHMETIC):
        return _arithmetic(scope, node)
    if type(node) in _COMPARISONS:
        return comparison(scope, node, node.this, node.expression, _COMPARISONS[type(node)])
    if type(node) in _OF:
        return _OF[type(node)](scope, node)
    raise scope.refusal(node, "not a function of declared values", f"these are: {LISTED}")


def _constant(scope: Scope, node: Node) -> Constant | None:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Cast):
        kind = node.args["to"].this
        inner = unwrapped(node.this)
        if getattr(kind, "name", kind) != "DATE" or not (isinstance(inner, exp.Literal) and inner.is_string):
            raise scope.refusal(node, "a CAST to anything but DATE", "write constants as they are, like 5 or 'NY'")
        return _day(scope, node, str(inner.this))
    if node.is_string:
        return str(node.this)
    return exact_number(scope, node)


def _day(scope: Scope, node: Node, text: str) -> date:
    try:
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        return date.fromisoformat(text)
    except ValueError:
        raise scope.refusal(node, "not a day", "write it as DATE '2024-01-31'") from None


def kind_of(own: Function) -> type | None:
    """What kind of values a function has; None where all are NULL."""
    for result in (*own.results, own.missing):
        if result is not None:
            return type(result) if isinstance(result, str | bool | date) else Fraction
    return None


def _typed(scope: Scope, node: Node, kind: type, *, remedy: str = "") -> Function:
    found = _function(scope, unwrapped(node))
    own = kind_of(found)
    if own not in (kind, None):
        said = f"not {_KINDS[kind]} but {_KINDS[own or str]}"
        raise scope.refusal(node, said, remedy or f"give it {_KINDS[kind]}")
    return found


def _numbers(scope: Scope, node: Node) -> Function:
    return _typed(scope, node, Fraction)


def _texts(scope: Scope, node: Node) -> Function:
    return _typed(scope, node, str)


def _days(scope: Scope, node: Node) -> Function:
    found = _function(scope, unwrapped(node))
    if not found.column and isinstance(found.constant, str):
        return constant(_day(scope, node, found.constant))
    return _typed(scope, node, date)


def _fixed(scope: Scope, node: Node, kind: type) -> Any:
    """The value of a constant of this kind."""
    found = _typed(scope, node, kind)
    if found.column or found.constant is None:
        raise scope.refusal(node, "not a constant", f"write {_KINDS[kind]} as it is")
    return found.constant


def _whole(scope: Scope, node: Node, low: int, high: int) -> int:
    number = _fixed(scope, node, Fraction)
    if number.denominator != 1 or not low <= number <= high:
        raise scope.refusal(node, "not a whole number that can be used here", f"write one from {low} to {high}")
    return int(number)


def _arithmetic(scope: Scope, node: Node) -> Function:
    if isinstance(node.expression, exp.Interval) and isinstance(node, exp.Add | exp.Sub):
        return _moved(scope, node.this, node.expression, -1 if isinstance(node, exp.Sub) else 1)
    if isinstance(node.this, exp.Interval) and isinstance(node, exp.Add):
        return _moved(scope, node.expression, node.this, 1)
    chain = []
    while isinstance(node, ARITHMETIC) and not isinstance(node.expression, exp.Interval):
        chain.append(node)
        node = unwrapped(node.this)
    found = _function(scope, node)
    for step in reversed(chain):
        found = _step(scope, step, found, _function(scope, unwrapped(step.expression)))
    return found


def _step(scope: Scope, node: Node, one: Function, other: Function) -> Function:
    """One operation. A difference of days is a number of days; a day and a number are a day."""
    kinds = kind_of(one), kind_of(other)
    sign = _SIGNS[type(node)]
    if kinds == (date, date) and sign == "-":
        return computed(one, other, lambda a, b: Fraction((a - b).days))  # type: ignore[operator,union-attr]
    if kinds == (date, Fraction) and sign in "+-":
        more = 1 if sign == "+" else -1
        return computed(one, other, lambda a, b: _shifted(a, more * b))  # type: ignore[operator]
    wrong = next((k for k in kinds if k not in (Fraction, None)), None)
    if wrong is not None:
        raise scope.refusal(
            node, f"arithmetic with {_KINDS[wrong]}", "compute with numbers, or with a day and INTERVAL"
        )
    found = arithmetic(one, other, sign)
    for result in found.results:
        checked(scope, node, result if isinstance(result, Fraction) else getattr(result, "start", Fraction(0)))
    return found


def _shifted(day: Any, days: Any) -> date:
    if days.denominator != 1:
        raise FunctionError("a part of a day", "add whole days")
    try:
        return date.fromordinal(day.toordinal() + int(days))
    except (ValueError, OverflowError):
        raise FunctionError("a day before the year 1 or after 9999", "add fewer days") from None


_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120}
_NUMBER_OF_DAYS = {"DAY": 1, "WEEK": 7}


def _moved(scope: Scope, node: Node, interval: Node, sign: int) -> Function:
    """Days moved by an interval; the last day of a shorter month is as far as it goes."""
    own = _days(scope, node)
    unit = str(interval.args["unit"].this if interval.args.get("unit") else "").upper().rstrip("S")
    text = str(unwrapped(interval.this).this) if isinstance(unwrapped(interval.this), exp.Literal) else ""
    if not re.fullmatch(r"-?[0-9]{1,6}", text) or unit not in {**_MONTHS, **_NUMBER_OF_DAYS}:
        remedy = "write INTERVAL '3' MONTH, with DAY, WEEK, MONTH, QUARTER or YEAR"
        raise scope.refusal(interval, "an interval that is not known", remedy)
    many = sign * int(text)

    def move(day: Any) -> date:
        if unit in _NUMBER_OF_DAYS:
            return _shifted(day, Fraction(many * _NUMBER_OF_DAYS[unit]))
        months = day.year * 12 + day.month - 1 + many * _MONTHS[unit]
        if not 12 <= months < 120_000:
            raise FunctionError("a day before the year 1 or after 9999", "add less")
        year, month = divmod(months, 12)
        return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))

    return own.mapped(move)


def comparison(scope: Scope, node: Node, left: Node, right: Node, sign: str) -> Function:
    """A comparison as a function that is true or false; texts that are compared with days are days."""
    one, other = (_function(scope, unwrapped(side)) for side in (left, right))
    kinds = kind_of(one), kind_of(other)
    if kinds == (date, str):
        other = _days(scope, right)
    elif kinds == (str, date):
        one = _days(scope, left)
    elif None not in kinds and kinds[0] is not kinds[1]:
        said = " with ".join(_KINDS[kind] for kind in kinds if kind is not None)
        raise scope.refusal(node, f"a comparison of {said}", "compare values of one kind")
    with refused_at(scope, node):
        return compared(one, other, sign)


# ── texts ──


def lower(text: Any) -> str:
    """As DuckDB has it: letter by letter."""
    return "".join(c.lower()[0] for c in text)


def upper(text: Any) -> str:
    """As DuckDB has it: letter by letter, so that ß becomes its capital."""
    return "".join(next((one for one in (c.upper(), c.title()) if len(one) == 1), "ẞ" if c == "ß" else c) for c in text)


def substring(text: Any, start: int, length: int | None) -> str:
    """From the first, which is 1, or from the end if below 0; so many letters, backwards if below 0."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else -1
    if start < 0 and begin < 0 and length is None:
        begin = 0
    end = len(text) if length is None else begin + length
    begin, end = (end, begin) if end < begin else (begin, end)
    return str(text[max(begin, 0) : max(end, 0)])


def like(pattern: str, escape: str | None) -> re.Pattern[str]:
    """A pattern of LIKE as a regular expression; a `ValueError` where the escape stands before nothing."""
    found, place = "", 0
    while place < len(pattern):
        letter = pattern[place]
        if escape is not None and letter == escape:
            place += 1
            if place == len(pattern) or pattern[place] not in ("%", "_", escape):
                raise ValueError(pattern)
            found += re.escape(pattern[place])
        else:
            found += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
        place += 1
    return re.compile(re.sub(r"(?:\.\*)+", ".*", found), re.DOTALL)


def _like(scope: Scope, node: Node) -> Function:
    escape = None
    if isinstance(node, exp.Escape):
        escape = _fixed(scope, node.expression, str)
        if len(escape) != 1:
            raise scope.refusal(node, "an ESCAPE that is not one letter", "write ESCAPE '!'")
        node = node.this
    own, pattern = _texts(scope, node.this), _fixed(scope, node.expression, str)
    insensitive = isinstance(node, exp.ILike)
    try:
        told = like(lower(pattern) if insensitive else pattern, escape)
    except ValueError:
        raise scope.refusal(node, "an ESCAPE before nothing that it is for", "write it before %, _ or itself") from None
    if sum(letter == "%" for letter in pattern) > 10:
        raise scope.refusal(node, "a pattern with more than ten %", "use fewer")
    wanted = not node.args.get("negate")
    return own.mapped(lambda text: bool(told.fullmatch(lower(text) if insensitive else str(text))) is wanted)


def _substring(scope: Scope, node: Node) -> Function:
    own = _texts(scope, node.this)
    start = _whole(scope, node.args["start"], -1000, 1000) if node.args.get("start") is not None else 1
    length = None if node.args.get("length") is None else _whole(scope, node.args["length"], 0, 1000)
    return own.mapped(lambda text: substring(text, start, length))


def _together(scope: Scope, node: Node) -> Function:
    one, other = _texts(scope, node.this), _texts(scope, node.expression)
    return computed(one, other, lambda a, b: (str(a) + str(b))[:LONGEST_TEXT])


# ── NULL, numbers and days ──


def _coalesced(scope: Scope, node: Node) -> Function:
    found = _function(scope, unwrapped(node.this))
    for each in node.expressions:
        other = _function(scope, unwrapped(each))
        kinds = {kind_of(found), kind_of(other)} - {None}
        if kinds == {date, str} and not other.column:
            other = _days(scope, each)
        elif len(kinds) > 1:
            raise scope.refusal(node, "COALESCE of different kinds of values", "give it values of one kind")
        own = found if found.column else other
        pieces = tuple((region, b if a is None else a) for region, a, b in both(found, other))
        missing = other.missing if found.missing is None else found.missing
        found = replace(own, pieces=pieces, missing=missing)
    return found


def _rounded(how: str) -> Callable[[Scope, Node], Function]:
    def compute(scope: Scope, node: Node) -> Function:
        own = _numbers(scope, node.this)
        if node.args.get("decimals") is None:
            return rounded(own, how)
        digits = _whole(scope, node.args["decimals"], -LARGEST_DECIMALS, LARGEST_DECIMALS)
        scale = constant(Fraction(10) ** digits)
        return arithmetic(rounded(arithmetic(own, scale, "*"), how), scale, "/")

    return compute


PARTS_OF_DAYS: dict[str, Callable[[Any], int]] = {
    "YEAR": lambda day: day.year,
    "QUARTER": lambda day: (day.month + 2) // 3,
    "MONTH": lambda day: day.month,
    "WEEK": lambda day: day.isocalendar()[1],
    "DAY": lambda day: day.day,
    "DOW": lambda day: day.isoweekday() % 7,
    "ISODOW": lambda day: day.isoweekday(),
    "DOY": lambda day: day.timetuple().tm_yday,
}
_NAMED_PARTS = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.DayOfMonth: "DAY",
    exp.DayOfWeek: "DOW",
    exp.DayOfYear: "DOY",
    exp.Week: "WEEK",
}


def _part(scope: Scope, own: Node, part: str) -> Function:
    compute = PARTS_OF_DAYS[part]
    return _days(scope, own).mapped(lambda day: Fraction(compute(day)))


def _extracted(scope: Scope, node: Node) -> Function:
    part = str(node.this.this).upper()
    if part not in PARTS_OF_DAYS:
        remedy = f"write one of {', '.join(PARTS_OF_DAYS)}"
        raise scope.refusal(node, f"EXTRACT of {part[:20]}, which is not known", remedy)
    return _part(scope, node.expression, part)


TRUNCATED: dict[str, Callable[[Any], date]] = {
    "DAY": lambda day: date.fromordinal(day.toordinal()),
    "WEEK": lambda day: date.fromordinal(max(day.toordinal() - day.weekday(), 1)),
    "MONTH": lambda day: day.replace(day=1),
    "QUARTER": lambda day: date(day.year, (day.month - 1) // 3 * 3 + 1, 1),
    "YEAR": lambda day: date(day.year, 1, 1),
    "DECADE": lambda day: date(max(day.year // 10 * 10, 1), 1, 1),
}


def _truncated(scope: Scope, node: Node) -> Function:
    unit = str(node.args["unit"].this).upper()
    if unit not in TRUNCATED:
        remedy = "write one of " + ", ".join(f"'{name.lower()}'" for name in TRUNCATED)
        raise scope.refusal(node, f"DATE_TRUNC to {unit[:20]}, which is not known", remedy)
    return _days(scope, node.this).mapped(TRUNCATED[unit])


def _looked_up(scope: Scope, node: Node) -> Function:
    """What a lookup has for every declared value; NULL for those without a row."""
    lookup, _, column = str(node.args["name"].this).partition(".")
    meant = scope.declared.lookups[lookup].values(column)
    return _function(scope, node.this).mapped(lambda value: meant.get(key_of(value)))


_OF: dict[type, Callable[[Scope, Node], Function]] = {
    exp.Lower: lambda scope, node: _texts(scope, node.this).mapped(lower),
    exp.Upper: lambda scope, node: _texts(scope, node.this).mapped(upper),
    exp.Length: lambda scope, node: _texts(scope, node.this).mapped(lambda text: Fraction(len(text))),  # type: ignore[arg-type]
    exp.Substring: _substring,
    exp.DPipe: _together,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Coalesce: _coalesced,
    LookedUp: _looked_up,
    exp.Abs: lambda scope, node: absolute(_numbers(scope, node.this)),
    exp.Floor: _rounded("floor"),
    exp.Ceil: _rounded("ceil"),
    exp.Round: _rounded("round"),
    exp.Extract: _extracted,
    exp.DateTrunc: _truncated,
    **{kind: lambda scope, node, part=part: _part(scope, node.this, part) for kind, part in _NAMED_PARTS.items()},  # type: ignore[misc]
}
"""By the kind of node."""
LISTED = (
    "LIKE, ILIKE, LOWER, UPPER, SUBSTR, LENGTH, ||, COALESCE, ABS, FLOOR, CEIL, ROUND, + - * /, EXTRACT, YEAR, MONTH, "
    "DATE_TRUNC and INTERVAL"
)
