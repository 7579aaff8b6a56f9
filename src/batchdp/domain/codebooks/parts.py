"""The parts of a codebook, each checked: names, enumerations, ends. A complaint is one short line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictStr

from batchdp.domain.columns import LARGEST, MOST_VALUES
from batchdp.domain.described import ColumnType, Described
from batchdp.domain.names import checked_text
from batchdp.terminal import harmless

DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?=$|[T ])")
DECIMAL = re.compile(r"[-+]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][-+]?\d{1,3})?")
MOST_SHOWN = 60

Scalar = bool | int | float | str


def _scalar(value: Any) -> Any:
    """A text, number, truth or null; of a value with a label, the value."""
    if isinstance(value, dict) and "value" in value:
        value = value["value"]
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"{'an object' if isinstance(value, dict) else 'a list'} where a text or number is expected")
    return value


Value = Annotated[Any, BeforeValidator(_scalar)]
Name = Annotated[StrictStr, BeforeValidator(lambda name: checked_text(name) if isinstance(name, str) else name)]


class Part(BaseModel):
    """An object of a codebook; keys that say nothing about values are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def at(place: str, read: Callable[..., Described], *given: Any) -> Described:
    """What a column's part says, or a complaint that names the place."""
    try:
        return read(*given)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def shown(value: object) -> str:
    """A value in an error or a comment: short, in one line, whatever it holds."""
    text = harmless(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def described(
    name: str,
    kind: ColumnType,
    *,
    listed: Iterable[Scalar | None] = (),
    low: Scalar | None = None,
    high: Scalar | None = None,
    missing: Iterable[str] = (),
    foreign: str | None = None,
) -> Described:
    """A column from what a codebook says of it, in the terms of its kind.

    Args:
        name: as the table has it.
        kind: by the codebook's type.
        listed: the enumeration, if there is one.
        low, high: the ends, if they are given.
        missing: texts that stand for a missing value.
        foreign: how days or numbers are spelled, if not as here; ends in that spelling cannot be read.
    """
    absent = tuple(dict.fromkeys(text for text in missing if text.strip()))
    notes: tuple[str, ...] = ()
    if foreign is not None:
        plain = "2020-01-31" if kind == "date" else "1234.5"
        notes = (f"EDIT: the data spells it like {shown(foreign)}; give it like {plain} in a view.",)
    if kind == "date" and foreign is not None:
        listed, low, high = (), *(end if _is_day(end) else None for end in (low, high))
    values = list(dict.fromkeys(v for v in listed if v is not None and str(v).strip() and str(v) not in absent))
    if len(values) > MOST_VALUES:
        raise ValueError(f"{len(values)} enumerated values, more than {MOST_VALUES}; give a minimum and a maximum")
    kind = _kind_of(values) if kind == "unknown" and values else kind
    column = Described(name, kind, missing=absent, notes=notes, documented=True)
    if kind == "text":
        return replace(column, values=tuple(checked_text(_text(value)) for value in values))
    if kind not in ("whole", "number", "date"):
        return column
    read: Callable[[Any], Any] = day if kind == "date" else number
    steps = [read(value) for value in values]
    if steps and kind != "date" and all(isinstance(step, int) for step in steps):
        return replace(column, kind="whole", values=tuple(dict.fromkeys(steps)))
    ends = [min(steps), max(steps)] if steps else [None if end is None else read(end) for end in (low, high)]
    first, last = _whole(*ends) if kind == "whole" else ends
    if first is not None and last is not None and first > last:
        raise ValueError(f"the minimum {first} is above the maximum {last}")
    within = next((text for text in absent if _lies_in(text, first, last, read)), None)
    if within is not None:
        notes += (f"EDIT: {shown(within)} stands for missing, but lies between the ends.",)
    return replace(column, low=first, high=last, notes=notes)


def number(value: Scalar) -> int | float:
    """A number, or a text that spells one."""
    if isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
        value = int(value) if re.fullmatch(r"[-+]?\d{1,30}", value.strip()) else float(value)
    if isinstance(value, (bool, str)):
        raise ValueError(f"{shown(repr(value))} is not a number")
    if not abs(value) <= LARGEST:  # NaN, too
        raise ValueError("a number beyond ±2^53")
    return int(value) if value == int(value) else value


def day(value: Scalar) -> date:
    """A day, or the day of a moment."""
    if not _is_day(value):
        raise ValueError(f'{shown(repr(value))} is not a day like "2020-01-31"')
    return date.fromisoformat(str(value)[:10])


def _is_day(value: Scalar | None) -> bool:
    if not isinstance(value, str) or not DAY.match(value):
        return False
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _whole(low: float | None, high: float | None) -> tuple[int | None, int | None]:
    """The whole numbers within."""
    return None if low is None else math.ceil(low), None if high is None else math.floor(high)


def _lies_in(text: str, low: Any, high: Any, read: Callable[[Any], Any]) -> bool:
    if low is None or high is None:
        return False
    try:
        return bool(low <= read(text) <= high)
    except ValueError:
        return False


def _kind_of(values: Iterable[Scalar]) -> ColumnType:
    types = {type(value) for value in values}
    return "boolean" if types == {bool} else "number" if types <= {int, float} else "text"


def _text(value: Scalar) -> str:
    if isinstance(value, (bool, float)):
        raise ValueError(f"{value!r} is not a text; write enumerated texts in quotation marks")
    return str(value)
