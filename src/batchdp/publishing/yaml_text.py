"""A record as YAML: mappings, lists, numbers and texts, which is all that a registry record holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Value = Mapping[str, "Value"] | Sequence[str] | str | int | float

LINES = re.compile(r"[^ \n][^\n]*(\n[^ \n][^\n]*)*\n")
"""Of several lines, none of them empty or indented: such a text stands as it is."""


def as_yaml(content: Mapping[str, Value]) -> str:
    """The text of a YAML 1.2 file that YAML 1.1 reads the same."""
    return "\n".join(_lines(content, "")) + "\n"


def _lines(content: Mapping[str, Value], indent: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, str) and _as_it_stands(value):
            yield f"{indent}{key}: |"
            yield from (f"{indent}  {line}" for line in value.splitlines())
        elif isinstance(value, (str, int, float)):
            yield f"{indent}{key}: {_quoted(value) if isinstance(value, str) else _number(value)}"
        else:
            yield f"{indent}{key}:" if value else f"{indent}{key}: []"
            yield from (f"{indent}  - {_quoted(one)}" for one in value)


def _as_it_stands(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 2 and LINES.fullmatch(text) is not None and all(line.isprintable() for line in lines)


def _quoted(text: str) -> str:
    """Between double quotes, with JSON's escapes; also for letters that some readers of YAML refuse."""
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(short.get(one) or (one if one.isprintable() else _escaped(one)) for one in text) + '"'


def _escaped(one: str) -> str:
    number = 0xFFFD if 0xD800 <= ord(one) <= 0xDFFF else ord(one)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _number(value: float) -> str:
    """With a point, without which YAML 1.1 takes 1e-10 for a text."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa or not mark else '.0'}{mark}{exponent}"
