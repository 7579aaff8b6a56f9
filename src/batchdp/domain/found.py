"""A domain file that was found privately: what is said of every column and how, as TOML with comments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from batchdp.domain.columns import Column, check_text
from batchdp.domain.domain import Protection
from batchdp.domain.draft import MOST_SHOWN, quote, toml_key
from batchdp.text import shorten

WIDEST = 110

HEAD = """\
# Found privately from the table, with noise: {cost}.
# Each comment says how; what has none was declared before. Nothing else about the data decided what is here, and
# whatever you change in it by what you know, and not by looking at the data, costs nothing.
"""


def write_found(
    table: str,
    privacy: Protection,
    columns: Mapping[str, Column],
    *,
    cost: str,
    how: Mapping[str, Sequence[str]],
    left_out: Sequence[str],
    cap: str | None = None,
) -> str:
    """The file.

    Args:
        table, privacy, columns: what the domain is.
        cost: what it cost, for people.
        how: for columns that were found, sentences that say how.
        left_out: columns that are not declared, and why, a line each.
        cap: how the cap was found.
    """
    lines = [HEAD.format(cost=cost), f"table = {quote(table)}", "", "[privacy]"]
    held = privacy.model_dump(mode="json", exclude_none=True)
    lines += [f"{key} = {_written(value)}" for key, value in held.items() if key != "rows_per_unit" or privacy.unit]
    lines += [f"# {cap}"] if cap else []
    for name, column in columns.items():
        lines += ["", f"[columns.{toml_key(name)}]", *(f"# {sentence}" for sentence in how.get(name, ()))]
        for key, value in column.model_dump(mode="json", exclude_none=True).items():
            if (key, value) != ("other", "keep"):
                lines += _assigned(key, value)
    more = [f"and {len(left_out) - MOST_SHOWN} more"] * (len(left_out) > MOST_SHOWN)
    lines += ["", *(f"# Left out: {line}" for line in [*left_out[:MOST_SHOWN], *more])] if left_out else []
    return "\n".join(lines) + "\n"


def spend(epsilon: float, delta: float) -> str:
    """What something cost, for people."""
    return f"ε = {epsilon:.3g}" + (f", δ = {delta:.3g}" if delta else "")


def shown_name(name: str) -> str:
    """A name of a column in a comment."""
    return f"'{shorten(name)}'"


def is_declarable(text: str) -> bool:
    """Whether a text can be a declared value."""
    try:
        check_text(text)
    except ValueError:
        return False
    return True


def _assigned(key: str, value: Any) -> list[str]:
    whole = f"{key} = {_written(value)}"
    if len(whole) <= WIDEST or not isinstance(value, list):
        return [whole]
    lines, line = [f"{key} = ["], ""
    for item in map(_written, value):
        if line and len(line) + len(item) > WIDEST:
            lines.append(f"   {line}")
            line = ""
        line += f" {item},"
    return [*lines, f"   {line}", "]"]


def _written(value: Any) -> str:
    """A value in TOML, in one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{quote(key)} = {_written(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, float):
        return repr(value)
    return quote(value) if isinstance(value, str) else json.dumps(value)
