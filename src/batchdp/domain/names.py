"""Names that people can tell apart: no invisible characters, no letters that only look like others."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 200
LOOK_ALIKES = str.maketrans(
    "аеорсухіѕјԁһԛԝьᴠАВЕКМНОРСТУХІЅЈԌαοντρυκιΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxisjdhqwbvABEKMHOPCTYXISJGaovtpukiABEZHIKMNOPTYX",
)
"""Letters of other scripts that look like Latin ones."""


def check_text(text: str) -> str:
    """A value or name as it is; refused if it is blank, long or holds characters that cannot be seen."""
    if not text.strip():
        raise ValueError(f"{text!r} is blank")
    if len(text) > LONGEST:
        raise ValueError(f"a text of {len(text)} characters; at most {LONGEST} are allowed")
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise ValueError(f"{text!r} holds the invisible character U+{ord(character):04X}")
    return text


def check_name(name: str) -> str:
    """An identifier or alias; refused if it looks like another one."""
    check_text(name)
    if unicodedata.normalize("NFKC", name) != name:
        raise ValueError(f"{name!r} holds characters that look like {unicodedata.normalize('NFKC', name)!r}; use those")
    if not name.isascii() and (plain := skeleton(name)).isascii():
        odd = next(character for character in name if not character.isascii())
        raise ValueError(
            f"{name!r} looks like {plain!r} but holds {unicodedata.name(odd, 'a foreign letter')} (U+{ord(odd):04X})"
        )
    return name


def skeleton(name: str) -> str:
    """The name with look-alike letters replaced by the Latin ones."""
    return name.translate(LOOK_ALIKES)


def fold(name: str) -> str:
    """The form under which two identifiers are the same: SQL does not tell upper from lower case."""
    return name.casefold()


def plain_name(text: str) -> str:
    """A name for a table that SQL takes without quotes, from whatever its file is called."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()[:100] or "records"
