"""Text for terminals and pages: what is put into it is escaped, and of many tables a part is shown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def sanitise(text: object, *, keep: str = "") -> str:
    """The text with every character that a terminal might act upon, or that nobody can see, written out.

    Escape sequences could hide entries or rewrite lines that were printed before; so could characters that change the
    direction of writing.

    Args:
        text: anything; its `str` is taken.
        keep: characters that are meant, such as line breaks.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() or one in keep else _write_out(one) for one in shown)


def _write_out(one: str) -> str:
    if unicodedata.category(one) == "Zs":
        return " "
    number = ord(one)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


WHOLE = 60
"""Answers that are all shown."""
NOTEBOOK = 20
"""Answers that are all shown in a notebook."""
LISTED = 40
"""Tables that are named."""
OPENED = 6
"""Tables of which rows are shown too."""
ROWS = 5
"""Rows of each, at least: fewer tables show more."""


def excerpt(sizes: Sequence[int], whole: int = WHOLE) -> list[int]:
    """How many rows to show of each of the first tables; the others are not even named.

    Args:
        sizes: how many rows every table has.
        whole: rows in all of a batch that is shown whole.
    """
    if sum(sizes) <= whole:
        return list(sizes)
    opened = min(len(sizes), OPENED)
    most = max(ROWS, (whole - 2 * opened) // (2 * opened))
    return [min(size, most) if t < opened else 0 for t, size in enumerate(sizes[:LISTED])]


def full_title(name: str, columns: Sequence[str]) -> str:
    """A table's title: its name, and its columns where the name does not say them."""
    listed = " × ".join(columns)
    return name if not columns or name == listed else f"{name} by {listed}"


UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What HTML does not allow, or UTF-8 cannot hold."""


def render(template: str, **values: object) -> Markup:
    """A template of this package, named by its path in it, with every value escaped that is not HTML already."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**values))


def render_part(name: str) -> Markup:
    """A file of this package as it stands: style or script of our own, which a browser must read unescaped."""
    from markupsafe import Markup

    return Markup(_source(name))


@cache
def _environment() -> Environment:
    """Made when the first page or notebook needs it: importing batchdp does not import Jinja2."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_showable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["isolated"] = _isolate
    made.filters["grouped"] = lambda number: f"{number:,}"
    made.filters["short"] = lambda number: f"{number:g}"
    return made


def _source(name: str) -> str:
    return files("batchdp").joinpath(name).read_text(encoding="utf-8")


def _showable(value: object) -> object:
    """A value without characters that HTML cannot hold; Jinja2 escapes it afterwards."""
    return value if hasattr(value, "__html__") else UNSHOWABLE.sub("\ufffd", str(value))


def _isolate(value: object) -> Markup:
    """Text of any direction: a name from right to left leaves its neighbours where they are."""
    from markupsafe import Markup

    return Markup('<bdi dir="auto">{}</bdi>').format(_showable(value))


class Shown:
    """A value that notebooks show; `batchdp.reports`, which is loaded when it is asked for, knows how."""

    def _repr_html_(self) -> str:
        return str(ask_reports("notebook.show", self))


def ask_reports(function: str, value: object, **options: object) -> Any:
    """What a function of `batchdp.reports` makes of a value; what shows and draws is above what it shows."""
    module, name = function.split(".")
    return getattr(import_module(f"batchdp.reports.{module}"), name)(value, **options)
