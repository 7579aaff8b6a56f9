"""Golden cases: what each gives, what came of it when it was made, and what comes of it now.

A case is one file of plain data. `given` starts from a stored strategy, never from a search. `found` has texts and
whole numbers, which must be the same to the last digit, exact fractions and the bits of floats among them, and JSON
numbers with a point, which may differ by rounding.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from golden import adapter
from golden.adapter import Given

FOLDER = Path(__file__).parent / "cases"
CLOSE = 1e-9
"""By how much two floats may differ, relative to the larger one."""
ROUNDING = {"bias_share": 0.02}
"""Over many columns the bias is rounding itself, which differs from one kind of processor to the next."""
LISTED = 48
"""Whole numbers up to which all stand in the file; of more there are some, and a digest."""
MOST_CELLS = 400
"""Cells over many columns up to which all of Q is looked at."""


def names() -> list[str]:
    """Of all cases."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str) -> dict[str, Any]:
    """A case: `about`, `given` and `found`."""
    case: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return case


def write(name: str, case: dict[str, Any]) -> None:
    """One line an entry, so that a change can be read."""
    FOLDER.mkdir(exist_ok=True)
    parts = [f'"about": {json.dumps(case["about"])}']
    for part in ("given", "found"):
        lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in case[part].items()]
        parts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def noise_of(given: Given, count: int) -> list[int]:
    """The noise that is added instead of a draw: whole numbers that anybody can work out."""
    return [((7919 * k + 13) % 2001 - 1000) * int(given["noise_step"]) for k in range(count)]


def integers(made: Any, given: Given) -> list[list[int]] | None:
    """Q by columns: what is measured of one record in every cell, or of one step; None where there are too many."""
    if "sizes" not in given["workload"]:
        count = len(given["data"]["counts"])
        units: list[Given] = [{"counts": [int(i == j) for i in range(count)]} for j in range(count)]
    elif math.prod(given["workload"]["sizes"]) <= MOST_CELLS:
        units = [{"codes": [list(cell)], "times": [1]} for cell in np.ndindex(*given["workload"]["sizes"])]
    else:
        return None
    return [adapter.measure(made, given, unit) for unit in units]


def observe(given: Given, folder: Path) -> dict[str, Any]:
    """Everything about a case that must stay, as plain data."""
    made = adapter.quantise(adapter.rebuild(given), given)
    groups, measured = adapter.calibrate(made), adapter.measure(made, given, given["data"])
    Q = integers(made, given)
    released = adapter.answer_with_noise(given, noise_of(given, len(measured)), folder)
    fine = adapter.fine_integers(made)
    return {
        "largest_total": adapter.largest_total(made),
        "groups": groups,
        "loss": str(sum((Fraction(group["loss"]) for group in groups), Fraction(0))),
        "record": adapter.sizes_of_a_record(made),
        "integers": None
        if Q is None
        else _digest([[i, j, q] for j, own in enumerate(Q) for i, q in enumerate(own) if q]),
        "fine_integers": None if fine is None else _digest(fine),
        "measured": _digest(measured),
        **adapter.bias(made),
        **released,
    }


def compare(found: Given, case: Given) -> list[str]:
    """Where what is found differs from what a case has stored."""
    return list(differences(found, case["found"], close=case["given"].get("close", CLOSE)))


def differences(found: Any, expected: Any, place: str = "", *, close: float = CLOSE, size: Any = 0.0) -> Iterator[str]:
    """Where two trees of plain data differ, floats by more than rounding relative to the larger one, or to a size."""
    if type(found) is not type(expected):
        yield f"{place}: {found!r} instead of {expected!r}"
    elif isinstance(expected, float):
        alike = math.isclose(found, expected, rel_tol=close, abs_tol=0.0 if math.isnan(size) else close * size)
        if not (alike or (math.isnan(found) and math.isnan(expected))):
            yield f"{place}: {found!r} instead of {expected!r}"
    elif isinstance(expected, dict):
        for key in sorted(found.keys() | expected.keys()):
            own = f"{place}/{key}"
            if key not in found or key not in expected:
                yield f"{own}: is only in what is {'found' if key in found else 'stored'}"
            else:
                # An answer near 0 is a difference of larger numbers: it is held against its noise.
                errors = expected["standard_errors"] if key == "values" else 0.0
                yield from differences(found[key], expected[key], own, close=ROUNDING.get(key, close), size=errors)
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{place}: {len(found)} entries instead of {len(expected)}"
        for i, (one, other) in enumerate(zip(found, expected, strict=False)):
            own_size = size[i] if isinstance(size, list) else size
            yield from differences(one, other, f"{place}/{i}", close=close, size=own_size)
    elif found != expected:
        yield f"{place}: {found!r} instead of {expected!r}"


def _digest(entries: Sequence[Any]) -> Any:
    """The entries themselves where they are few; else some of them and the SHA-256 of all."""
    if len(entries) <= LISTED:
        return list(entries)
    text = json.dumps(entries, separators=(",", ":")).encode()
    some = [entries[i] for i in range(0, len(entries), -(-len(entries) // 8))]
    return {"count": len(entries), "some": some, "sha256": hashlib.sha256(text).hexdigest()}
