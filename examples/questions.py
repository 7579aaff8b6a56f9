"""What a statistician asks of court cases (questions.sql), of invented ones: all answered, but what is not private.

COUNT(DISTINCT …) and MAX are refused: one record may decide them.
"""

import random
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pandas as pd

import batchdp

DOMAIN = """
table = "cases"
[privacy]
max_rows = 1_000_000
[columns.charge]
values = ["Battery", "Aggravated Battery", "Theft", "Retail Theft", "DUI", "Burglary"]
groups = "all"
[columns.district]
values = [1, 2, 3]
[columns.felony]
values = [true, false]
[columns.age]
integers = [14, 90]
outside = "clip"
[columns.filed]
dates = ["2021-01-01", "2022-12-31"]
[columns.closed]
dates = ["2021-01-01", "2023-12-31"]
"""


def invent(n: int) -> pd.DataFrame:
    """Cases that nobody had, some with a charge that is not declared."""
    chance = random.Random(0)
    charges = ["Battery", "Aggravated Battery", "Theft", "Retail Theft", "DUI", "Burglary", "Arson"]
    filed = [date(2021, 1, 1) + timedelta(days=chance.randrange(730)) for _ in range(n)]
    closed = [None if chance.random() < 0.2 else day + timedelta(days=chance.randrange(365)) for day in filed]
    return pd.DataFrame(
        {
            "charge": chance.choices(charges, [9, 3, 8, 5, 6, 2, 1], k=n),
            "district": chance.choices([1, 2, 3], [5, 3, 2], k=n),
            "felony": [chance.random() < 0.3 for _ in range(n)],
            "age": [round(min(90, max(14, chance.gauss(34, 11)))) for _ in range(n)],
            "filed": filed,
            "closed": closed,
        }
    )


plan = batchdp.plan(Path(__file__).with_name("questions.sql"), DOMAIN, seconds=1, cache=False)
ledger = batchdp.Ledger.create(Path(tempfile.mkdtemp()) / "budget.db", epsilon=4.0)
release = batchdp.answer(plan, invent(5000), epsilon=4.0, ledger=ledger)
for name, frame in release.shown().items():
    print(f"{name}: {len(frame)} rows, the first {frame['value'][0]:.1f}")
for refused in ("SELECT COUNT(DISTINCT age) FROM cases", "SELECT MAX(age) FROM cases"):
    try:
        batchdp.plan(refused, DOMAIN)
    except batchdp.QueryError as error:
        print(error)
