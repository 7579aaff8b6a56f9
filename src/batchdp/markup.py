"""Text as HTML: templates that escape whatever is put into them, so that a query's name is never anything but text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


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


@dataclass(frozen=True)
class Excerpt:
    """Some rows of a table: the first column is text, the others are numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    more: int = 0
    """How many rows were left out."""


def summary(
    title: str,
    facts: Mapping[str, object],
    *,
    headings: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    more: int = 0,
    tables: Sequence[Excerpt] = (),
    more_tables: int = 0,
) -> str:
    """A value in a notebook: a title, what is known of it, perhaps some tables; in the notebook's own colours.

    Args:
        title: what it is.
        facts: a label and a value a line.
        headings, rows: of one short table; the first column is text, the others are numbers.
        more: how many of its rows were left out.
        tables: several tables instead.
        more_tables: how many of these were left out.
    """
    shown = [Excerpt(headings, list(rows), more=more)] if headings else list(tables)
    return str(render("summary.html", title=title, facts=facts, tables=shown, more_tables=more_tables))
