"""How long work tells how far it is: `plan`, `answer`, counting and the paper's evaluation alike."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], object]
"""Called with the share of the work that is done, not a number where nobody knows, and with what is being done."""
