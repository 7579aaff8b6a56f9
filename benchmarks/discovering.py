"""How well `discover` finds a domain, and `check` finds what is wrong with one, over many runs.

    python benchmarks/discovering.py --runs 20 [--seed 1] [--sizes adult-domain.json] [--tables tables.py]
    python benchmarks/discovering.py --checks 100

`--sizes` is a JSON of columns and their sizes, from which 48 842 persons are invented with the skew of UCI Adult,
labels as texts; without it, sizes of our own; `--seed` invents others. `--tables` is a module with `flights(n)`, a
dictionary of columns. Both are given as CSV files, which have no types: every column's kind is found too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import batchdp
from batchdp.domain import Listed
from batchdp.release.checking import findings

PERSONS = 48_842
SIZES = {"age": 70, "job": 15, "weight": 100, "grade": 16, "gain": 100, "hours": 99, "country": 42, "sex": 2}
NUMBERS = {"age", "weight", "grade", "gain", "hours", "fnlwgt", "education-num"}
NUMBERS |= {"capital-gain", "capital-loss", "hours-per-week"}


def invented(sizes: dict[str, int], persons: int = PERSONS, seed: int = 0) -> pd.DataFrame:
    """Persons whose columns are skewed and hang together; texts but for those that are numbers."""
    rng = np.random.default_rng(seed)
    common, columns = rng.standard_normal(persons), {}
    for i, (name, size) in enumerate(sizes.items()):
        ranks = (0.5 * common + rng.standard_normal(persons)).argsort().argsort() / persons
        codes = np.minimum((size * ranks ** (1.5 + 0.25 * (i % 5))).astype(int), size - 1)
        if name in ("weight", "fnlwgt"):
            columns[name] = np.exp(12 + 0.6 * rng.standard_normal(persons)).astype(int)
        elif name in ("gain", "capital-gain", "capital-loss"):
            gains = np.exp(8.5 + 0.7 * rng.standard_normal(persons))
            columns[name] = np.where(rng.random(persons) < 0.92, 0, gains).astype(int)
        else:
            offset = 17 if name == "age" else 1
            columns[name] = codes + offset if name in NUMBERS else np.array([f"{name} {j}" for j in range(size)])[codes]
    return pd.DataFrame(columns)


def judged(table: pd.DataFrame, domain: Any) -> tuple[list[tuple[str, float, float]], dict[str, bool]]:
    """Of every column of numbers the share that is held and the width over that of 99 % of the records; of every text
    of at least 1 000 records whether it was found."""
    lines: list[tuple[str, float, float]] = []
    texts: dict[str, bool] = {}
    for name in table:
        column = domain.columns.get(name)
        values = table[name].dropna()
        if values.dtype.kind in "if":
            if column is None or isinstance(column, Listed):
                lines.append((name, 0.0, float("inf")))
                continue
            low, high = column.ends()
            first, last = np.quantile(values, [0.005, 0.995])
            lines.append(
                (name, float(((values >= low) & (values <= high)).mean()), float((high - low) / (last - first)))
            )
        else:
            counts = values.value_counts()
            known = set(column.values) if isinstance(column, Listed) else set()
            texts |= {f"{name}: {value}": value in known for value in counts.index[counts >= 1000]}
    return lines, texts


def measure(table: pd.DataFrame, runs: int, epsilon: float = 0.5, delta: float = 1e-6) -> dict[str, Any]:
    """Many runs on one table."""
    lines: dict[str, list[tuple[float, float]]] = {}
    texts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        table.to_csv(path, index=False)
        for i in range(runs):
            ledger = batchdp.Ledger.create(Path(folder) / f"{i}.db", epsilon=epsilon, delta=delta)
            domain = batchdp.discover(path, epsilon=epsilon, delta=delta, ledger=ledger)
            found, values = judged(table, domain)
            for name, held, width in found:
                lines.setdefault(name, []).append((held, width))
            for name, seen in values.items():
                texts[name] = texts.get(name, 0) + seen
    return {
        "runs": runs,
        "least held": {name: min(held for held, _ in own) for name, own in lines.items()},
        "largest width": {name: round(max(width for _, width in own), 2) for name, own in lines.items()},
        "runs within both": {name: sum(bool(h >= 0.99 and w <= 4) for h, w in own) for name, own in lines.items()},
        "texts of 1000": len(texts),
        "found in the fewest runs": min(texts.values(), default=runs),
    }


def visits(rows: int = 50_000, seed: int = 0) -> pd.DataFrame:
    """Records to check: four visits a person, in two years, of which the last month is new."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 731, rows), "D")
    return pd.DataFrame(
        {
            "patient": rng.integers(0, rows // 4, rows),
            "clinic": rng.choice([f"clinic {i}" for i in range(20)], rows),
            "sex": rng.choice(["Male", "Female"], rows),
            "day": days.strftime("%Y-%m-%d"),
            "age": rng.integers(18, 91, rows),
        }
    )


FITTING: dict[str, Any] = {
    "table": "visits",
    "privacy": {"unit": "patient", "rows_per_unit": 4},
    "columns": {
        "sex": {"values": ["Male", "Female"]},
        "day": {"dates": ["2024-01-01", "2025-12-31"]},
        "age": {"integers": [0, 120]},
    },
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "misspelt values": (
        {"columns": FITTING["columns"] | {"sex": {"values": [" Male", " Female"]}}},
        "sex: next to none of the rows has one of the declared values",
    ),
    "dates that ended": (
        {"columns": FITTING["columns"] | {"day": {"dates": ["2024-01-01", "2025-11-30"]}}},
        "day: the range ended",
    ),
    "wrong unit": ({"privacy": {"unit": "clinic", "rows_per_unit": 4}}, "Hardly any rows are counted"),
}
"""What is wrong with a domain, and how its finding begins."""


def checked(runs: int, epsilon: float = 0.1) -> dict[str, Any]:
    """In how many runs a check says what is wrong, and in how many it says anything else."""
    found = {name: {"runs": runs, "found": 0, "anything else said": 0} for name in WRONG}
    with tempfile.TemporaryDirectory() as folder:
        for name, (change, said) in WRONG.items():
            domain = FITTING | change
            ledger = batchdp.Ledger.create(Path(folder) / f"{name}.db", epsilon=2 * epsilon * runs)
            for seed in range(runs):
                release = batchdp.check(domain, visits(seed=seed), epsilon=epsilon, ledger=ledger)
                told = findings(release, domain)
                found[name]["found"] += sum(bool(said) and one.startswith(said) for one in told)
                found[name]["anything else said"] += sum(not said or not one.startswith(said) for one in told)
    return found


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--sizes", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the invented persons")
    parser.add_argument("--checks", type=int, help="runs of check, in place of discover")
    given = parser.parse_args()
    if given.checks is not None:
        print(json.dumps(checked(given.checks), indent=1))
        return
    sizes = SIZES if given.sizes is None else json.loads(given.sizes.read_text())
    shown = {"people": measure(invented(sizes, seed=given.seed), given.runs)}
    if given.tables is not None:
        spec = importlib.util.spec_from_file_location("tables", given.tables)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        shown["flights"] = measure(pd.DataFrame(module.flights()), given.runs)
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
