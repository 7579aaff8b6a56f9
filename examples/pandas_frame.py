"""SQL over a pandas frame. Polars, PyArrow, DuckDB, PostgreSQL, Spark and files work the same way."""

import tempfile

import numpy as np
import pandas as pd

import batchdp

rng = np.random.default_rng(0)
visits = pd.DataFrame(
    {
        "person_id": rng.integers(0, 3000, 4000),
        "clinic": rng.choice(["north", "south", "east"], 4000),
        "age": rng.integers(0, 100, 4000),
    }
)

# What is public about the table: never looked up in the data, because that would give people away.
domain = {
    "table": "visits",
    "privacy": {"unit": "person_id", "rows_per_unit": 2, "max_rows": 1_000_000},
    "columns": {
        "clinic": {"values": ["north", "south", "east", "west"]},
        "age": {"range": [0, 120], "bins": [0, 18, 40, 65]},
    },
}
sql = """
SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;
SELECT age, COUNT(*) AS visits FROM visits GROUP BY age;
SELECT COUNT(*) AS "adults in the north" FROM visits WHERE clinic = 'north' AND age >= 18;
"""

plan = batchdp.plan(sql, domain)  # reads no data
ledger = batchdp.Ledger.create(tempfile.mkdtemp() + "/budget.db", epsilon=1.0)
release = batchdp.answer(plan, visits, epsilon=0.5, ledger=ledger)

answers = pd.DataFrame(release.answers).set_index("name")  # value, standard_error, low, high
print(answers.round(1))
