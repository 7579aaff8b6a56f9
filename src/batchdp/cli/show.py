"""How figures look on a terminal: tables on stdout, progress on stderr and only on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from batchdp.cli import streams
from batchdp.text import sanitise

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from batchdp.plans.comparison import Comparison


WIDTH = 100
"""Of what is piped, so that tables keep their figures whole."""
ROWS = 200
"""Of a table on a terminal; files and JSON hold all."""
RULES = 2
"""Of what is counted, that are said without being asked for."""
PIECE = 1000
"""Rows of a long table that are laid out at a time."""
CUT = "Of large tables the top rows are shown; --all shows every one, files and --json hold all."


@cache
def console() -> Console:
    """Standard output. A command goes on when the reader of its output leaves: it may have spent something."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            streams.discard_output()

    return Output() if Console().is_terminal else Output(width=WIDTH)


def say(text: str) -> None:
    """Sentences as they are: no markup, no line breaks in the middle of a path."""
    console().print(sanitise(text, keep="\n"), soft_wrap=True, markup=False, highlight=False)


def say_rules(rules: Sequence[str], *, verbose: bool) -> None:
    """What is counted: the first rules, about rows that are left out, or all of them."""
    shown = rules if verbose or len(rules) <= RULES + 1 else rules[:RULES]
    for rule in shown:
        say(rule)
    if len(shown) < len(rules):
        say(f"{len(rules) - len(shown)} more sentences on what is counted: --verbose.")


def print_json(content: Any) -> None:
    """One object for machines; what is not finite has no figure there."""
    text = json.dumps(_finite(content), indent=2, allow_nan=False, ensure_ascii=False)
    try:
        print(_escaped(text), flush=True)
    except BrokenPipeError:
        streams.discard_output()


def _escaped(text: str) -> str:
    """JSON with the characters that a terminal might act upon as JSON's own escapes; the value is the same."""
    if all(one.isprintable() or one in "\n\xa0" for one in text):
        return text
    return "".join(one if one.isprintable() or one in "\n\xa0" else json.dumps(one)[1:-1] for one in text)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    texts: int = 1,
    important: str | None = None,
) -> Table:
    """Figures to the right, the first `texts` columns to the left; long tables are cut, and say so."""
    from rich import box
    from rich.table import Table

    rows = list(rows)
    if len(rows) > ROWS:
        caption = f"The first {ROWS} of {len(rows)}; files and --json hold all. {caption}"
    shown = Table(title=_cell(title), caption=_cell(caption), box=box.SIMPLE_HEAD)
    shown.title_justify = shown.caption_justify = "left"
    for i, heading in enumerate(headings):
        style = "bold cyan" if heading == important else ""
        justify: Literal["left", "right"] = "left" if i < texts else "right"
        shown.add_column(_cell(heading), justify=justify, no_wrap=i >= texts, overflow="fold", style=style)
    for row in rows[:ROWS]:
        shown.add_row(*(_cell(cell) for cell in row))
    return shown


@dataclass(frozen=True)
class Part:
    """One table of several that are shown under the same headings."""

    heading: Sequence[str] | None
    """A row of its own, the first cell of which is the title; None where the rows speak for themselves."""
    rows: Iterable[Sequence[str]]
    """Those that are shown."""
    more: int = 0
    """How many are not."""


def parts(
    title: str,
    headings: Sequence[str],
    found: Iterable[Part],
    caption: str = "",
    *,
    important: str | None = None,
    more: int = 0,
) -> Table:
    """Several tables under the same headings, each with its title and the rows that are shown of it."""
    shown = table(title, headings, (), caption, important=important)
    blank, cut = [""] * (len(headings) - 1), False
    for part in found:
        if part.heading is not None:
            shown.add_row(*(_cell(cell) for cell in part.heading), style="bold")
        indent, opened = "" if part.heading is None else "  ", False
        for opened, row in ((True, row) for row in part.rows):  # noqa: B007
            first, *figures = (_cell(cell) for cell in row)
            shown.add_row(indent + first, *figures)
        if part.more and opened:
            shown.add_row(f"{indent}… and {part.more:,} more", *blank)
        cut = cut or part.more > 0
        shown.add_section()
    if more:
        shown.add_row(f"… and {more:,} more tables", *blank)
    if cut or more:
        shown.caption = _cell(" ".join(filter(None, (CUT, caption))))
    return shown


def pieces(found: Iterable[Part]) -> Iterator[list[Part]]:
    """Parts of any length in pieces that are printed one after the other."""
    for part in found:
        rows, heading = iter(part.rows), part.heading
        while first := list(islice(rows, PIECE)):
            yield [Part(heading, first)]
            heading = None


def _cell(text: str) -> str:
    from rich.markup import escape

    return escape(sanitise(text))


def figure(value: float) -> str:
    """A figure with as many digits as people read."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}".removesuffix(".0") if size >= 10 else f"{value:.3g}"


def tracked(items: Iterable[str], what: str) -> Iterable[str]:
    """The items, with a progress bar on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    bar = Console(stderr=True)
    return track(list(items), description=what, console=bar, transient=True, disable=not bar.is_terminal)


class Bar:
    """Shows (share, what is being done) on a terminal."""

    def __init__(self, shown: Progress, what: str) -> None:
        self._shown, self._task = shown, shown.add_task(what, total=None)

    def __call__(self, share: float, doing: str) -> None:
        """So much of the work is done."""
        known = math.isfinite(share)
        total, completed = (1.0, share) if known else (None, 0)
        self._shown.update(self._task, description=_cell(doing), total=total, completed=completed)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """The terminal is somebody else's meanwhile, such as a question's."""
        self._shown.stop()
        try:
            yield
        finally:
            self._shown.start()


@contextmanager
def progress(what: str, *, time_left: bool = False) -> Iterator[Bar]:
    """A bar on stderr, if that is a terminal, for work that reports (share, what it is doing)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Console(stderr=True)
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    columns += [TextColumn("left:"), TimeRemainingColumn()] * time_left
    # The bar makes room for what is printed meanwhile, unless that goes somewhere else.
    with Progress(
        *columns,
        console=bar,
        transient=True,
        disable=not bar.is_terminal,
        speed_estimate_period=math.inf,  # a step may take minutes
        redirect_stdout=sys.stdout.isatty(),
    ) as shown:
        yield Bar(shown, what)


def comparison_table(comparison: Comparison, title: str) -> Table:
    """The methods, best first, with the lower bound as the last line."""
    bound, rest = comparison.lower_bound, ("{:.4g}", "{:.0e}", "{:.2f}")

    def row_of(name: str, one: Any, times: str = "") -> tuple[str, ...]:
        figures = zip(rest, (one.sensitivity, one.residual, one.seconds), strict=True)
        return name, f"{one.expected_squared_error:,.6g}", times, *(form.format(own) for form, own in figures)

    methods = sorted(comparison.methods, key=lambda row: row.expected_squared_error)
    shown = table(
        title,
        ("method", "error", "× bound", "Δ", "residual", "seconds"),
        (row_of(one.name, one, f"{one.expected_squared_error / bound if bound else 1.0:.2f}") for one in methods),
        f"Total expected squared error at ε = 1{', each times its weight in the plan' * comparison.weighted}; "
        f"divide by ε² for another budget. {comparison.note}".rstrip(),
        important="error",
    )
    shown.add_section()
    shown.add_row("no Laplace strategy is below", f"{bound:,.6g}", "1.00", "", "", "")
    shown.add_row(*row_of("Gaussian noise, ρ = ε²/2", comparison.gaussian))
    if (shape := comparison.shaped) is not None:
        error = f"{shape.expected_squared_error:,.4g} ± {shape.standard_error:.2g}"
        name = "noise in the batch's shape, simulated"
        shown.add_row(name, error, "", "", f"{shape.residual:.0e}", f"{shape.seconds:.2f}")
    return shown
