"""A record as YAML: mappings, lists, numbers and texts, which is all that a registry record holds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

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
