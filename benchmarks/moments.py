"""How often intervals of STDDEV and CORR hold what they should, by the size of the group, over many releases."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import batchdp

DOMAIN = {
    "table": "t",
    "columns": {"x": {"integers": [0, 20], "other": "drop"}, "y": {"integers": [0, 20], "other": "drop"}},
}
SQL = "SELECT STDDEV(x) AS deviation, CORR(x, y) AS correlation, COVAR_POP(x, y) AS covariance FROM t"


def main() -> None:
    """Print a line for every answer and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    plan = batchdp.plan(SQL, DOMAIN, seconds=2, cache=False)
    for size in (100, 1000, 10_000):
        rng = np.random.default_rng(size)
        x = np.clip(rng.normal(8, 4, size).round(), 0, 20).astype(int)
        y = np.clip((x + rng.normal(2, 4, size)).round(), 0, 20).astype(int)
        true = np.array([x.std(ddof=1), np.corrcoef(x, y)[0, 1], np.cov(x, y, ddof=0)[0, 1]])
        table = pd.DataFrame({"x": x, "y": y})
        ledger = batchdp.Ledger.create(tempfile.mkdtemp() + "/b.db", epsilon=given.epsilon * given.runs)
        known, held = np.zeros(3), np.zeros(3)
        for _ in range(given.runs):
            answers = list(batchdp.answer(plan, table, epsilon=given.epsilon, ledger=ledger).answers)
            found = np.array([one.determined for one in answers])
            known += found
            held += [one.low <= right <= one.high for one, right in zip(answers, true, strict=True)]
        for name, of, inside in zip(("STDDEV", "CORR", "COVAR"), known, held, strict=True):
            print(f"{name} {size}: determined {of / given.runs:.1%}, of these covered {inside / max(of, 1):.1%}")


if __name__ == "__main__":
    main()
