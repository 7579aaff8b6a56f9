"""Text for a terminal: what comes from a file is shown, and never obeyed."""

from __future__ import annotations

import unicodedata


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
