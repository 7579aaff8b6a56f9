"""What people are told: escaped text, a part of many tables, how far long work is and how it ended."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def shorten(value: object, most: int = 60) -> str:
    """A value in an error, a comment or a label: short, in one line, whatever it holds."""
    text = sanitise(value)
    return text if len(text) <= most else text[: most - 1] + "…"


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


class Shown:
    """A value that notebooks show; `batchdp.reports`, which is loaded when it is asked for, knows how."""

    def _repr_html_(self) -> str:
        return str(ask_reports("notebook.show", self))


class Live(Shown):
    """A value that notebooks show as a widget where anywidget is installed, and else as any other."""

    def widget(self) -> Any:
        """The widget that notebooks show, which needs anywidget: pip install 'batchdp[notebook]'."""
        return ask_reports("widget.widget", self)

    def _repr_mimebundle_(self, **_: object) -> Any:
        return ask_reports("widget.bundle", self)


def ask_reports(function: str, value: object, **options: object) -> Any:
    """What a function of `batchdp.reports` makes of a value; what shows and draws is above what it shows."""
    module, name = function.split(".")
    return getattr(import_module(f"batchdp.reports.{module}"), name)(value, **options)


def draw(value: object, *, function: str = "draw", axes: object = None) -> Figure:
    """The value as a matplotlib figure, on axes of your own if given."""
    drawn: Figure = ask_reports(f"plots.{function}", value, axes=axes)
    return drawn


Progress = Callable[[float, str], object]
"""Called with the share of the work that is done, not a number where nobody knows, and with what is being done."""


LOG = logging.getLogger("batchdp")
INSTANT = 0.0005
"""Seconds of what was hardly begun, and is not worth an entry."""


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say to the log, at its level DEBUG, what was done and how long it took.

    Args:
        what: a text that does not depend on the records of any table: neither counts nor sizes of what they give.
    """
    began = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - began
        if seconds >= INSTANT:
            LOG.debug("%s: %.3f s", what, seconds)


class Outcome(StrEnum):
    """A text for people, which files keep too; `advice` says what to try next. From the best to the worst."""

    CLOSED_FORM = "closed form"
    OPTIMAL = "optimal"
    OPTIMAL_BY_BLOCK = "optimal in every block"
    CONVERGED = "converged"
    BEST_OF_STARTS = "best of several starts"
    BUDGET_SPENT = "budget spent"
    UNKNOWN = "not recorded"
    STALLED = "stalled"
    OUT_OF_ROUNDS = "out of rounds"
    PENALTY_AT_LIMIT = "penalty at its limit"
    OUT_OF_TIME = "out of time"
    CANCELLED = "cancelled"
    START = "fell back to its start"
    QUERIES = "fell back to the queries"

    @property
    def advice(self) -> str:
        """What to try next; empty where there is nothing to try."""
        return _ADVICE.get(self, "")

    @property
    def fell_back(self) -> bool:
        """Whether the search found nothing better than what it began with."""
        return self in (Outcome.START, Outcome.QUERIES)

    @classmethod
    def read(cls, text: str) -> Outcome:
        """From a file, where anything can stand."""
        try:
            return cls(text)
        except ValueError:
            return cls.UNKNOWN

    @classmethod
    def of_all(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """The worst: what can be said of several searches together."""
        order = list(cls)
        return max(outcomes, key=order.index, default=cls.CLOSED_FORM)


_ADVICE = {
    Outcome.OPTIMAL_BY_BLOCK: "measurements that span blocks were not tried, and the limit is not tight over blocks",
    Outcome.BEST_OF_STARTS: "another seed may find a better valley",
    Outcome.BUDGET_SPENT: "give more seconds, or another seed, for a better strategy",
    Outcome.UNKNOWN: "plan again to know how the search ended",
    Outcome.STALLED: "rounding allows no smaller gap; ask for a larger tolerance",
    Outcome.OUT_OF_ROUNDS: "give more max_rounds, or ask for a larger tolerance",
    Outcome.PENALTY_AT_LIMIT: "the pair is exact but may be far from the best; try another seed or a larger rank",
    Outcome.OUT_OF_TIME: "the work that was planned with is done, and more of it would have come closer",
    Outcome.CANCELLED: "the best so far; let the search end for a better one",
    Outcome.START: "nothing better than the start was found; try another seed, a larger rank or optimize",
    Outcome.QUERIES: "nothing better than the queries was found; try another seed, a larger rank or optimize",
}
