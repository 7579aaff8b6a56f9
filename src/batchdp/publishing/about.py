"""ABOUT.toml: what only people know about a publication. What they do not say is missing, and nothing is made up."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from batchdp.archive import write_atomically
from batchdp.domain.domain import LONG_KEY
from batchdp.errors import DossierError
from batchdp.markup import render_part
from batchdp.regular import read_text

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
Day = Annotated[Text, BeforeValidator(_dated)]


class Basic(BaseModel):
    """What is published, by whom."""

    model_config = FORM

    name: Text = ""
    data_curators: Names = []
    description: Text = ""
    intended_use: Text = ""
    data_product_region: Text = ""
    publication_date: Day = ""
    data_product_sector: SECTORS = ""


class Variant(BaseModel):
    """What is protected, and what is not."""

    model_config = FORM

    data_domain: Text = ""
    unprotected_quantities: Text = ""


class Loss(BaseModel):
    """Who stands behind a privacy unit."""

    model_config = FORM

    privacy_unit_details: Text = ""


class Model(BaseModel):
    """Who holds, runs and reads what."""

    model_config = FORM

    actors: Text = ""
    release_type: Literal["", "One release", "Many releases"] = ""
    release_type_details: Text = ""
    data_source_type: Literal["", "Static", "Dynamic"] = ""
    data_source_type_details: Text = ""
    access_type_details: Text = ""


class Accounting(BaseModel):
    """What the ledger and the release do not know."""

    model_config = FORM

    post_processing: Text = ""
    composition: Text = ""


class Implementation(BaseModel):
    """What was done before, and why."""

    model_config = FORM

    preprocessing_and_hyperparameter_tuning: Text = ""
    justification: Text = ""


class Administrative(BaseModel):
    """Who wrote the record, and where there is more."""

    model_config = FORM

    registry_authors: Names = []
    sources: Text = ""
    notes: Text = ""


class Declared(BaseModel):
    """What the checklist asks people."""

    model_config = FORM

    side_channels: Text = ""
    data_collection: Text = ""
    access: Text = ""
    review: Text = ""


class About(BaseModel):
    """The whole file; every answer may be missing."""

    model_config = FORM

    basic: Basic = Basic()
    dp_variant: Variant = Variant()
    privacy_loss: Loss = Loss()
    deployment_model: Model = Model()
    accounting: Accounting = Accounting()
    implementation: Implementation = Implementation()
    administrative: Administrative = Administrative()
    checklist: Declared = Declared()


def template() -> str:
    """The file to fill in, with every question and no answer."""
    return str(render_part("publishing/about.toml"))


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
        return About.model_validate(tomllib.loads(text))
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
