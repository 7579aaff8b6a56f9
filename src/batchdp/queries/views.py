"""What a statement shows of its answers, after the noise: an order, some of the rows, conditions on answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

SIGNS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
MOST_DEEP = 50

Test = tuple[Any, ...]
"""("and", tests), ("or", tests), ("not", test), or (sign, the name of an answer, a number)."""


@dataclass(frozen=True)
class View:
    """What is shown of the answers of a statement: they cost nothing more, and all stay in the release.

    Args:
        items: the names of its answers before their groups.
        keys: what it is grouped by.
        order: names of items or keys, each with whether it goes down.
        limit: at most so many rows; None for all.
        offset: rows that are left out before these.
        having: what the answers of a row must fulfil.
        texts: the keys whose groups are ordered as texts.
    """

    items: tuple[str, ...]
    keys: tuple[str, ...]
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    having: Test | None = None
    texts: tuple[str, ...] = ()

    @property
    def selects(self) -> bool:
        """Whether rows are left out."""
        return self.limit is not None or self.offset > 0 or self.having is not None

    @property
    def by(self) -> str | None:
        """The answer that rows are ordered by first, if it is one."""
        return next((name for name, _ in self.order[:1] if name in self.items), None)

    def holds(self, answers: Mapping[str, float]) -> bool:
        """Whether a row with these answers is shown; an answer that is not determined fulfils nothing."""
        return self.having is None or _holds(self.having, answers) is True

    def renamed(self, names: Mapping[str, str]) -> View:
        """The same with other names of its answers."""
        return replace(
            self,
            items=tuple(names[item] for item in self.items),
            order=tuple((names.get(name, name), down) for name, down in self.order),
            having=None if self.having is None else _renamed(self.having, names),
        )

    def header(self) -> dict[str, Any]:
        """For files and digests."""
        return {
            "items": list(self.items),
            "keys": list(self.keys),
            "order": [list(one) for one in self.order],
            "limit": self.limit,
            "offset": self.offset,
            "having": self.having,
            "texts": list(self.texts),
        }

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> View:
        """From a file, where anything can stand; a `ValueError` if it is none."""
        if set(content) != {"items", "keys", "order", "limit", "offset", "having", "texts"}:
            raise ValueError("something that is not a view")
        items, keys = (tuple(map(_text, content[name])) for name in ("items", "keys"))
        order = tuple((_text(name), _truth(down)) for name, down in content["order"])
        if any(name not in (*items, *keys) for name, _ in order):
            raise ValueError("a view that is ordered by something else")
        limit = None if content["limit"] is None else _whole(content["limit"])
        having = None if content["having"] is None else _test(content["having"], items, 0)
        return cls(items, keys, order, limit, _whole(content["offset"]), having, tuple(map(_text, content["texts"])))


def _renamed(test: Test, names: Mapping[str, str]) -> Test:
    if test[0] == "not":
        return "not", _renamed(test[1], names)
    if test[0] in ("and", "or"):
        return test[0], tuple(_renamed(one, names) for one in test[1])
    sign, name, number = test
    return sign, names[name], number


def _holds(test: Test, answers: Mapping[str, float]) -> bool | None:
    if test[0] == "not":
        inner = _holds(test[1], answers)
        return None if inner is None else not inner
    if test[0] in ("and", "or"):
        found = [_holds(one, answers) for one in test[1]]
        decisive = test[0] == "or"
        return decisive if decisive in found else None if None in found else not decisive
    value = answers[test[1]]
    return None if math.isnan(value) else bool(SIGNS[test[0]](value, test[2]))


def _test(content: Any, items: tuple[str, ...], depth: int) -> Test:
    if depth > MOST_DEEP:
        raise ValueError("a condition that is too deep")
    kind = _text(content[0])
    if kind == "not":
        return kind, _test(content[1], items, depth + 1)
    if kind in ("and", "or"):
        return kind, tuple(_test(one, items, depth + 1) for one in content[1])
    sign, name, number = content
    if sign not in SIGNS or name not in items or isinstance(number, bool) or not math.isfinite(float(number)):
        raise ValueError("something that is not a condition")
    return sign, name, float(number)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("something that is not a text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("something that is neither true nor false")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("something that is not a whole number")
    return value
