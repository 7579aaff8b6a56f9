"""A text for people, written once: the same words as Markdown and as a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from batchdp.reports.rendering import render, render_part
from batchdp.text import sanitise

LINES = re.compile(r"[^ \n][^\n]*(\n[^ \n][^\n]*)*\n")
"""Of several lines, none of them empty or indented: such a text stands as it is."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Texts stand between quotes, or as they are where they have several lines: YAML 1.1 and 1.2 read them the same."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        """Keys are plain words."""
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node

    def represent_text(self, text: str) -> Any:
        """A text, without halves of characters, which no file can hold."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        lines = text.split("\n")
        stands = len(lines) > 2 and LINES.fullmatch(text) and all(line.isprintable() for line in lines)
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if stands else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


def as_yaml(content: Mapping[str, Any]) -> str:
    """The text of a YAML 1.2 file that YAML 1.1 reads the same."""
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf))


SPECIAL = re.compile(r"([\\`*_\[\]<>|~])")
BEGINNING = re.compile(r"^(\d*)([-+#=.)])(?!\w)")
"""Of a line that would be a point, a heading or a rule."""


@dataclass(frozen=True)
class Bullets:
    """Points, one a line."""

    points: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table; the first `texts` columns are words, the others figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1


@dataclass(frozen=True)
class Code:
    """Lines to type, our own words only."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A picture that stands beside the document."""

    file: str
    shows: str


Block = str | Bullets | Grid | Code | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A title, a sentence about it, and sections."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    made_by: str


def as_markdown(document: Document) -> str:
    """The document as Markdown, in which every value is only text."""
    lines = [f"# {_plain(document.title)}", "", _plain(document.lead), ""]
    for section in document.sections:
        lines += [f"## {_plain(section.title)}", ""]
        for block in section.blocks:
            lines += [*_lines(block), ""]
    return "\n".join([*lines, _plain(document.made_by), ""])


def as_page(document: Document, pictures: dict[str, str]) -> str:
    """The document as one HTML page, with its pictures in it; no script, nothing from anywhere.

    Args:
        document: what it says.
        pictures: SVG by file name.
    """
    kinds = {Bullets: "bullets", Grid: "grid", Code: "code", Picture: "picture", str: "paragraph"}
    sections = [
        (section.title, [(kinds[type(block)], block) for block in section.blocks]) for section in document.sections
    ]
    return str(
        render(
            "reports/dossier/document.html",
            document=document,
            sections=sections,
            pictures=pictures,
            style=render_part("reports/page.css"),
        )
    )


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield _plain(block)
    elif isinstance(block, Bullets):
        yield from (f"- {_plain(point)}" for point in block.points)
    elif isinstance(block, Grid):
        yield _row(block.headings)
        marks = ("---" if i < block.texts else "---:" for i in range(len(block.headings)))
        yield f"| {' | '.join(marks)} |"
        yield from (_row(row) for row in block.rows)
    elif isinstance(block, Code):
        yield from ("```python", *block.text.splitlines(), "```")
    else:
        yield f"![{_plain(block.shows)}]({block.file})"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(text: str) -> str:
    """One line in which no character has a meaning of its own."""
    line = sanitise(" ".join(text.split())).replace("&", "&amp;")
    return BEGINNING.sub(r"\1\\\2", SPECIAL.sub(r"\\\1", line))
