"""Python objects in a pandas column, as texts that are read like any other. What one becomes depends on it alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np

from batchdp.tables.cleaning import MARK, digits, told

LONGEST_NUMBER = 300
"""Digits up to which a whole number is spelled out."""
MOST_DIGITS = 4000
"""Before and after the point, up to which a decimal is; Python refuses to read more."""


def as_text(value: Any) -> str | None:
    """A text, number, truth or day as it would stand in a CSV file; a mark for any other object."""
    try:
        return None if _is_missing(value) else _text(value)
    except Exception:  # whatever an object does when it is looked at
        return MARK


def as_unit(value: Any) -> str | None:
    """A text that is equal for equal units: whole numbers are spelled as such, whatever their type.

    A number and its text are one unit, as in a CSV file; objects of other types have their type before them.
    """
    try:
        if _is_missing(value):
            return None
        if isinstance(value, (str, int, float, Decimal, np.integer, np.floating)) and not isinstance(value, bool):
            return _text(value)
        return _encoded(f"{MARK}{_kind(value)} {_moment(value)}")
    except Exception:  # nobody, then
        return None


def _kind(value: Any) -> str:
    if isinstance(value, bytes):
        return bytes.__name__
    return "moment" if isinstance(value, (datetime, np.datetime64)) else type(value).__name__


def _moment(value: Any) -> str:
    """A moment as it is in UTC; anything else as it spells itself."""
    import pandas as pd  # type: ignore[import-untyped]

    if isinstance(value, np.datetime64):
        try:
            value = pd.Timestamp(value)
        except Exception:  # beyond what pandas has
            return str(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return _whole(int(value))
    if isinstance(value, (float, np.floating)):
        real = float(value)
        return _whole(int(real)) if isfinite(real) and real == int(real) else repr(real)
    if isinstance(value, Decimal):
        if not value.is_finite() or (value and abs(value.adjusted()) > MOST_DIGITS):
            return str(value)
        text = digits(value)
        return text if "." in text else _whole(int(text))
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[D]"))
    return MARK


def _whole(number: int) -> str:
    return str(number) if abs(number) < 10**LONGEST_NUMBER else f"{MARK}{number:x}"


def _is_missing(value: Any) -> bool:
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _encoded(text: str) -> str:
    return told(text.encode("utf-8", "surrogatepass"))
