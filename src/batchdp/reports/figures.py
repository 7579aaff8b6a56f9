"""Figures as text: as many digits as the noise leaves meaning to."""

from __future__ import annotations

import math

import numpy as np

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


def percent(share: float) -> str:
    """A place along an axis, for SVG."""
    return f"{100 * share:.3f}%"


def _signed(text: str) -> str:
    if not text.startswith("-"):
        return text
    return text[1:] if float(text.replace(",", "")) == 0 else "−" + text[1:]
