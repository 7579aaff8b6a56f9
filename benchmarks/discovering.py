"""How well `discover` finds a domain: bounds, widths and values over many runs.

    python benchmarks/discovering.py --runs 20 [--sizes adult-domain.json] [--tables tables.py]

`--sizes` is a JSON of columns and their sizes, from which 48 842 persons are invented with the skew of UCI Adult,
labels as texts; without it, sizes of our own. `--tables` is a module with `flights(n)`, a dictionary of columns. Both
are given as CSV files, which have no types: every column's kind is found too.
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


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--sizes", type=Path)
    parser.add_argument("--tables", type=Path)
    given = parser.parse_args()
    sizes = SIZES if given.sizes is None else json.loads(given.sizes.read_text())
    shown = {"people": measure(invented(sizes), given.runs)}
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
