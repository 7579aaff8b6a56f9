"""How figures look on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from batchdp.comparison import Comparison

console = Console() if Console().is_terminal else Console(width=100)
"""Tables keep their figures whole when they are piped."""


def tracked(items: Iterable[str], what: str) -> Iterable[str]:
    """The items, with a progress bar on stderr if that is a terminal."""
    bar = Console(stderr=True)
    return track(list(items), description=what, console=bar, transient=True, disable=not bar.is_terminal)


def comparison_table(comparison: Comparison, title: str, queries: Sequence[str] = ()) -> Table:
    """The methods, best first, with the lower bound as the last line."""
    caption = "Total expected squared error at ε = 1; divide by ε² for another budget."
    if queries:
        caption = "Queries: " + "; ".join(queries) + ".\n" + caption
    table = Table(
        title=escape(title), caption=caption, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("method", no_wrap=True)
    for heading in ("error", "× bound", "Δ", "residual", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in sorted(comparison.methods, key=lambda row: row.expected_squared_error):
        ratio = row.expected_squared_error / comparison.lower_bound if comparison.lower_bound else 1.0
        table.add_row(
            row.name,
            f"{row.expected_squared_error:,.6g}",
            f"{ratio:.2f}",
            f"{row.sensitivity:.4g}",
            f"{row.residual:.0e}",
            f"{row.seconds:.2f}",
        )
    table.add_section()
    table.add_row("no Laplace strategy is below", f"{comparison.lower_bound:,.6g}", "1.00", "", "", "")
    best = comparison.gaussian
    table.add_row(
        "Gaussian noise, ρ = ε²/2",
        f"{best.expected_squared_error:,.6g}",
        "",
        f"{best.sensitivity:.4g}",
        f"{best.residual:.0e}",
        f"{best.seconds:.2f}",
    )
    return table
