"""Templates that escape whatever is put into them, and figures with as many digits as the noise leaves meaning to."""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.resources import files

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from batchdp.linalg.matrix import Dense

MOST_DECIMALS = 6


def decimals_for(errors: Dense) -> int | None:
    """Decimals that give the smallest error two significant digits; None where figures need exponents."""
    sizes = np.abs(errors[errors != 0])
    if sizes.size == 0:
        return 0
    decimals = 1 - math.floor(math.log10(float(sizes.min())))
    return None if decimals > MOST_DECIMALS or float(sizes.max()) >= 1e12 else max(0, decimals)


def number(value: float, decimals: int | None) -> str:
    """With thousands separated, a true minus sign, and no minus zero."""
    return _signed(f"{value:.4g}" if decimals is None or abs(value) >= 1e15 else f"{value:,.{decimals}f}")


def significant(value: float) -> str:
    """Four digits that matter, without an exponent where people can do without."""
    if value == 0 or not 1e-4 <= abs(value) < 1e12:
        return number(value, None)
    digits = 3 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(0, digits)}f}"
    return _signed(text.rstrip("0").rstrip(".") if "." in text else text)


def rounded_up(value: float, digits: int = 4) -> float:
    """To so many digits behind the point, never down: what is promised is at most this."""
    return float(math.ceil(value * 10.0**digits - 1e-9) / 10.0**digits)


def percent(share: float) -> str:
    """A place along an axis, for SVG."""
    return f"{100 * share:.3f}%"


def _signed(text: str) -> str:
    if not text.startswith("-"):
        return text
    return text[1:] if float(text.replace(",", "")) == 0 else "−" + text[1:]


UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What HTML does not allow, or UTF-8 cannot hold."""


def render(template: str, **values: object) -> Markup:
    """A template of this package, named by its path in it, with every value escaped that is not HTML already."""
    return Markup(_environment().get_template(template).render(**values))


def render_part(name: str) -> Markup:
    """A file of this package as it stands: style or script of our own, which a browser must read unescaped."""
    return Markup(_source(name))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_showable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"isolated": _isolate, "grouped": "{:,}".format, "short": "{:g}".format}
    made.filters |= {"number": number, "significant": significant, "percent": percent}
    return made


def _source(name: str) -> str:
    return files("batchdp").joinpath(name).read_text(encoding="utf-8")


def _showable(value: object) -> object:
    """A value without characters that HTML cannot hold; Jinja2 escapes it afterwards."""
    return value if hasattr(value, "__html__") else UNSHOWABLE.sub("\ufffd", str(value))


def _isolate(value: object) -> Markup:
    """Text of any direction: a name from right to left leaves its neighbours where they are."""
    return Markup('<bdi dir="auto">{}</bdi>').format(_showable(value))
