"""ABOUT.toml: what only people know about a publication. What they do not say is missing, and nothing is made up."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from fractions import Fraction
from functools import cache
from math import ulp
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from batchdp.archive import read_text, write_atomically
from batchdp.domain.domain import LONG_KEY
from batchdp.errors import BatchDPError, DossierError, check_finite
from batchdp.ledger import Entry, Ledger
from batchdp.ledger.chain import Standing
from batchdp.privacy import LETTERS, UNITS, shortest
from batchdp.reports.rendering import render_part


@dataclass(frozen=True)
class Books(Standing):
    """Every spend of a ledger, and what they add up to."""

    @classmethod
    def of(cls, ledger: Ledger, head: str | None = None) -> Books:
        """As the ledger is now, or was when it had this head."""
        return cls(**vars(ledger.standing(head)))

    @property
    def letter(self) -> str:
        """Of the currency that the ledger's figures are in."""
        return LETTERS[self.unit]

    @property
    def released(self) -> int:
        """Spends that have answers."""
        return sum(entry.state == "released" for entry in self.entries)

    def entry(self, release_id: str) -> Entry:
        """The spend of a release."""
        found = next((one for one in self.entries if one.release_id == release_id), None)
        if found is None:
            raise DossierError(f"release {release_id!r} is not among the ledger's spends")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The books as the evidence has them."""
        return {**asdict(self), "entries": [asdict(entry) for entry in self.entries]}

    @classmethod
    def read(cls, content: Any) -> Books:
        """From the evidence, where anything can stand."""
        try:
            if not isinstance(content, Mapping) or set(content) != {one.name for one in fields(cls)}:
                raise DossierError("its fields are others")
            numbers = {name: check_finite(name, content[name], least=0) for name in ("total", "spent", "remaining")}
            if content["unit"] not in LETTERS or not isinstance(content["head"], str):
                raise DossierError("no unit, or no head")
            if not isinstance(content["promise"], str):
                raise DossierError("no promise")
            entries = tuple(_entry(one) for one in content["entries"])
            total, spent, left = map(shortest, numbers.values())
            charged = sum((shortest(entry.charged) for entry in entries), Fraction(0))
            rounded = (len(entries) + 2) * Fraction(ulp(numbers["total"]))  # each figure to the next float
            if abs(charged - spent) > rounded or abs(total - spent - left) > rounded:
                raise DossierError("its spends do not add up")
            said: dict[str, Any] = {name: content[name] for name in ("promise", "unit", "head")}
            return cls(**{**said, **numbers, "entries": entries})
        except (BatchDPError, TypeError, KeyError) as error:
            raise DossierError(f"the ledger in the evidence is not one ({str(error)[:100]})") from error


def _entry(content: Any) -> Entry:
    entry = Entry(**content)
    texts = (entry.release_id, entry.plan_digest, entry.table, entry.time, entry.head)
    later = (entry.privacy_unit, entry.answers_digest, entry.relation, entry.share, entry.snapshot)
    if not all(isinstance(text, str) for text in (*texts, *(one for one in later if one is not None))):
        raise DossierError("a spend holds something other than texts")
    if entry.unit not in UNITS or entry.state not in ("reserved", "released"):
        raise DossierError("a spend of another kind")
    for name in ("requested", "charged", *(one for one in ("scale", "delta") if getattr(entry, one) is not None)):
        check_finite(name, getattr(entry, name), least=0)
    return entry


LARGEST_FILE = 200_000
"""Bytes."""
LONGEST_TEXT, MOST_NAMES = 5000, 50
SECTORS = Literal["", "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]
FORM = ConfigDict(frozen=True, extra="forbid", strict=True)


def _readable(text: str) -> str:
    """Without the white space around it; refused with characters that nobody can see."""
    found = next((one for one in text if not (one.isprintable() or one in "\n\t\xa0")), None)
    if found is not None:
        raise ValueError(f"holds the character U+{ord(found):04X}, which nobody can see; delete it")
    return text.replace("\t", " ").strip()


def _dated(given: Any) -> Any:
    """A day as a text, which TOML has a type of its own for."""
    text = given.isoformat() if type(given) is date else given
    if isinstance(text, str) and text.strip():
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError('is not a day such as "2026-11-30"')
        date.fromisoformat(text)
    return text


Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_readable)]
Names = Annotated[list[Text], Field(max_length=MOST_NAMES)]


CHOICES: dict[str, Any] = {
    "publication_date": Annotated[Text, BeforeValidator(_dated)],
    "data_product_sector": SECTORS,
    "release_type": Literal["", "One release", "Many releases"],
    "data_source_type": Literal["", "Static", "Dynamic"],
}
"""Answers that are not any text."""
About = Mapping[str, Mapping[str, Any]]
"""What is answered, by section and question; the empty text, or no name, where nothing is."""


def template() -> str:
    """The file to fill in, with every question and no answer."""
    return str(render_part("reports/dossier/about.toml"))


@cache
def _form() -> type[BaseModel]:
    """The template as a model: its questions and no others, each of which may be left out."""
    sections: dict[str, Any] = {}
    for section, questions in tomllib.loads(template()).items():
        asked: dict[str, Any] = {
            name: (CHOICES.get(name, Names if isinstance(empty, list) else Text), empty)
            for name, empty in questions.items()
        }
        made = create_model(section, __config__=FORM, **asked)
        sections[section] = (made, made())
    return create_model("About", __config__=FORM, **sections)


def about_text(path: Path | None) -> str:
    """What the file holds; the template, which is written to the path, where there is no such file yet."""
    if path is None:
        return template()
    if not path.exists() and not path.is_symlink():
        write_atomically(path, template().encode(), DossierError)
        return template()
    return read_text(path, "", LARGEST_FILE, "say it in fewer words", DossierError)


def read_about(text: str, *, source: str = "ABOUT.toml") -> About:
    """The answers in a TOML text; `source` names it in errors."""
    if LONG_KEY.search(text):
        raise DossierError(f"{source} holds a key of very many parts; start from the template")
    try:
        return _form().model_validate(tomllib.loads(text)).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(one) for one in first["loc"])[:100]
        problem = (
            "is not asked for; the template has all keys"
            if first["type"] == "extra_forbidden"
            else first["msg"].removeprefix("Value error, ")
        )
        raise DossierError(f"{source}: {place or 'file'}: {problem}; an answer may also be left empty") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, and integers of thousands of digits
        raise DossierError(f"{source} is not TOML: {str(error)[:200]}; start from the template") from error
