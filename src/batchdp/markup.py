"""Text as HTML: escaped, so that a query's name is never anything but text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What HTML does not allow, or UTF-8 cannot hold."""

FACT = "text-align:left;padding:.15em 1.2em .15em 0;font-weight:normal;opacity:.75;vertical-align:top"
VALUE = "text-align:left;padding:.15em 0;max-width:44em;overflow-wrap:anywhere"
TITLE = "caption-side:top;text-align:left;padding:0 0 .2em;color:inherit;font-weight:bold;white-space:nowrap"
CELL = "text-align:right;padding:.15em 0 .15em 1.2em;font-variant-numeric:tabular-nums"
NAME = "text-align:left;padding:.15em 0;max-width:28em;overflow-wrap:anywhere"


def escaped(text: object) -> str:
    """The text for any place in HTML, quoted attributes among them."""
    return html.escape(UNSHOWABLE.sub("\ufffd", str(text)), quote=True)


def isolated(text: object) -> str:
    """As `escaped`, for text of any direction: a name from right to left leaves its neighbours where they are."""
    return f'<bdi dir="auto">{escaped(text)}</bdi>'


def summary(
    title: str,
    facts: Mapping[str, object],
    *,
    headings: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    more: int = 0,
) -> str:
    """A value in a notebook: a title, what is known of it, perhaps a short table; in the notebook's own colours.

    Args:
        title: what it is.
        facts: a label and a value a line.
        headings, rows: of the table; the first column is text, the others are numbers.
        more: how many rows were left out.
    """
    lines = "".join(
        f'<tr><th scope="row" style="{FACT}">{escaped(label)}</th><td style="{VALUE}">{isolated(value)}</td></tr>'
        for label, value in facts.items()
    )
    parts = [f'<table><caption style="{TITLE}">{escaped(title)}</caption><tbody>{lines}</tbody></table>']
    if headings:
        head = "".join(
            f'<th scope="col" style="{CELL if i else NAME}">{escaped(one)}</th>' for i, one in enumerate(headings)
        )
        body = "".join(_row(row) for row in rows)
        foot = f"<div style='opacity:.75'>… and {more:,} more</div>" if more else ""
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}")
    return f'<div class="batchdp">{"".join(parts)}</div>'


def _row(row: Sequence[object]) -> str:
    cells = "".join(f'<td style="{CELL if i else NAME}">{isolated(one)}</td>' for i, one in enumerate(row))
    return f"<tr>{cells}</tr>"
