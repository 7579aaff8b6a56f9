"""Make the golden cases again: `.venv/bin/python tests/golden/make.py`.

What comes of a case now is written where it differs, so look at the difference before it is committed: it is a change
of what is measured, charged or said. `--given` makes the strategies anew as well, some of them by a search, which may
end elsewhere on another machine. Figures that cannot be right are refused, by sums over every cell in whole numbers.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")  # as in the tests
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from golden import adapter, cases
from golden.adapter import Given
from golden.given import everything


def main() -> None:
    """Write what has changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--given", action="store_true", help="make the strategies anew as well")
    if parser.parse_args().given:
        made = list(everything())
        for path in cases.FOLDER.glob("*.json"):
            path.unlink()
        for name, about, given in made:
            cases.write(name, {"about": about, "given": given, "found": {}})
    for name in cases.names():
        case = cases.read(name)
        with tempfile.TemporaryDirectory() as folder:
            found = cases.observe(case["given"], Path(folder))
        check(case["given"], found)
        changed = any(cases.compare(found, case))
        if changed:
            cases.write(name, {**case, "found": found})
        print(f"{name}: {'written' if changed else 'as it was'}")


def check(given: Given, found: Given) -> None:
    """Refuse figures that cannot be right."""
    rows = given["rows_per_unit"] * (2 if given["neighbours"] == "replace" else 1)
    assert Fraction(found["loss"]) <= Fraction(str(given["budget"])) == Fraction(found["charged"])
    for group in found["groups"]:
        scale, unit = Fraction(float.fromhex(group["scale"])), group["unit"]
        assert unit == group["record"] * rows ** (2 if group["norm"] == "2, squared" else 1)
        share = Fraction(group["share"]) if group["norm"] == "of the body" else 1
        squares = {"2": unit**2, "2, squared": unit}.get(group["norm"])
        lost = share * unit / scale if squares is None else squares / scale**2 / 2
        assert 0 < lost <= Fraction(group["loss"])
    made = adapter.quantise(adapter.rebuild(given), given)
    Q = cases.integers(made, given)
    if Q is not None and not given["workload"].get("ends"):  # the totals of amounts are cut
        x = counts_of(given)
        check_measured(Q, x, given, made)
        check_sensitivities(Q, given, found)
        if sum(x) <= found["largest_total"] and "answers" not in given:
            check_answers(x, given, found)


def check_measured(Q: list[list[int]], x: list[int], given: Given, made: Any) -> None:
    """Q x is what is measured, clamped but for noise in a shape."""
    exact = [sum(q * count for q, count in zip(row, x, strict=True)) for row in zip(*Q, strict=True)]
    most = math.inf if given["noise"] == "k-norm" else 2**61
    assert adapter.measure(made, given, given["data"]) == [max(-most, min(most, z)) for z in exact]


def check_sensitivities(Q: list[list[int]], given: Given, found: Given) -> None:
    """No record changes a group by more than its sensitivity, and some record by as much; one block at a time."""
    start = 0
    for group in found["groups"]:
        rows = slice(start, start + group["measurements"])
        start = rows.stop
        columns = {tuple(column[rows]) for column in Q}
        if group["norm"] == "of the body":
            corners = {tuple(corner) for corner in group["corners"]}
            assert all(own in corners or tuple(-q for q in own) in corners or not any(own) for own in columns)
        elif len(given["workload"].get("blocks", [1])) == 1:
            largest = max(sum(abs(q) ** (1 if group["norm"] == "1" else 2) for q in own) for own in columns)
            record = group["record"]
            assert (record - 1) ** 2 < largest <= record**2 if group["norm"] == "2" else largest == record
    assert start == len(Q[0])


def check_answers(x: list[int], given: Given, found: Given) -> None:
    """Without noise the answers are what was asked for, but for a bias far below the noise."""
    with tempfile.TemporaryDirectory() as folder:
        none = [0] * sum(group["measurements"] for group in found["groups"])
        said = adapter.answer_with_noise(given, none, Path(folder))
    off = np.abs(np.array(said["values"]) - asked(given) @ np.array(x, dtype=np.float64))
    assert np.all(off <= 0.01 * np.array(said["standard_errors"]))


def counts_of(given: Given) -> list[int]:
    """Of every cell; over many columns the last one is the fastest."""
    data = given["data"]
    if "counts" in data:
        return [int(count) for count in data["counts"]]
    counts = np.zeros(given["workload"]["sizes"], dtype=object)
    for code, times in zip(data["codes"], data["times"], strict=True):
        counts[tuple(code)] += times
    return [int(count) for count in counts.reshape(-1)]


def asked(given: Given) -> Any:
    """W, query × cell."""
    workload = given["workload"]
    if "sizes" not in workload:
        return plain(workload["matrix"])
    found = []
    for table in workload["tables"]:
        rows: Any = np.ones((1, 1))
        for n, factor in zip(workload["sizes"], table, strict=True):
            own = np.ones((1, n)) if factor is None else np.eye(n) if factor == "each" else np.array(factor)
            rows = np.kron(rows, own)
        found.append(rows)
    return np.vstack(found)


def plain(stored: Any) -> Any:
    """A stored matrix, entry by entry."""
    if isinstance(stored, list):
        return np.array(stored)
    if "cells" in stored:
        return plain(stored["columns"])[:, stored["cells"]]
    matrix = np.zeros(stored["shape"])
    matrix[stored["rows"], stored["places"]] = stored["values"]
    return matrix


if __name__ == "__main__":
    main()
