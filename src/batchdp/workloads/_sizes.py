"""The check that every generator makes of its sizes."""

from __future__ import annotations

import operator

from batchdp.errors import WorkloadError


def whole(**named: int) -> tuple[int, ...]:
    """The values, each checked to be a whole number of at least 1."""
    checked = []
    for name, value in named.items():
        try:
            number = operator.index(value)
        except TypeError:
            number = 0
        if number < 1:
            raise WorkloadError(f"{name}={value!r} must be a whole number of at least 1")
        checked.append(number)
    return tuple(checked)
