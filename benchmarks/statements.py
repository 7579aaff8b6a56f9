"""How long planning takes of 2 000 statements as people write them, with either noise, and of refusing 30 wrong ones.

    python benchmarks/statements.py [--statements 2000] [--seed 0]

The kinds are those of examples/questions.sql, each with conditions drawn by the seed.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable
from datetime import date, timedelta

import batchdp

DOMAIN = """
table = "cases"
[columns.charge]
values = ["Battery", "Aggravated Battery", "Theft", "Retail Theft", "DUI", "Burglary", "Arson", "Fraud"]
[columns.district]
values = [1, 2, 3, 4, 5]
[columns.felony]
values = [true, false]
[columns.age]
integers = [14, 90]
[columns.priors]
integers = [0, 12]
[columns.filed]
dates = ["2021-01-01", "2022-12-31"]
"""
PATTERNS = ("%Battery%", "%Theft", "B%", "%r%", "Fraud")
WRONG = (
    "SELECT COUNT(*) FROM cases WHERE charges = 'DUI'",
    "SELECT COUNT(*) FROM cases WHERE charge = 'Dui'",
    "SELECT COUNT(*) FROM cases WHERE age ? 3",
    "SELECT COUNT(*) FROM",
    "DROP TABLE cases",
    "SELECT COUNT(*) FROM courts",
    "SELECT MAX(age) FROM cases",
    "SELECT COUNT(DISTINCT charge) FROM cases",
    "SELECT MEDIAN(charge) FROM cases",
    "SELECT AVG(age) OVER (ORDER BY filed) FROM cases",
)


def condition(chance: random.Random) -> str:
    """One that some record fulfils."""
    low = chance.randint(14, 60)
    day = date(2021, 1, 1) + timedelta(days=chance.randrange(600))
    return chance.choice(
        [
            f"charge LIKE '{chance.choice(PATTERNS)}'",
            f"district IN ({chance.randint(1, 2)}, {chance.randint(3, 5)})",
            "felony",
            f"age BETWEEN {low} AND {low + chance.randint(3, 30)}",
            f"priors >= {chance.randint(1, 8)}",
            f"filed >= '{day}'",
            f"filed BETWEEN '{day}' AND '{day + timedelta(days=chance.randint(7, 120))}'",
            f"EXTRACT(QUARTER FROM filed) = {chance.randint(1, 4)}",
        ]
    )


def either(chance: random.Random) -> str:
    """Two conditions of which one is enough."""
    return f"({condition(chance)} OR {condition(chance)})"


KINDS: tuple[Callable[[str, str, random.Random], str], ...] = (
    lambda name, where, _: f"SELECT COUNT(*) AS {name} FROM cases{where}",
    lambda name, where, _: f"SELECT district, felony, COUNT(*) AS {name} FROM cases{where} GROUP BY district, felony",
    lambda name, where, _: f"SELECT district, AVG(age) AS {name} FROM cases{where} GROUP BY district",
    lambda name, where, _: f"SELECT MEDIAN(age) AS {name} FROM cases{where}",
    lambda name, where, chance: (
        f"SELECT district, COUNT(*) FILTER (WHERE {condition(chance)}) * 100.0 / COUNT(*) AS {name} FROM cases{where} "
        "GROUP BY district"
    ),
    lambda name, where, _: (
        f"SELECT charge, COUNT(*) AS {name} FROM cases{where} GROUP BY charge ORDER BY {name} DESC LIMIT 5"
    ),
    lambda name, where, _: f"SELECT EXTRACT(YEAR FROM filed) AS year, COUNT(*) AS {name} FROM cases{where} GROUP BY 1",
    lambda name, where, _: (
        f"SELECT DATE_TRUNC('month', filed) AS month, SUM(priors) AS {name} FROM cases{where} GROUP BY 1"
    ),
    lambda name, where, chance: (
        f"SELECT CASE WHEN age < {chance.randint(18, 30)} THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS "
        f"band, COUNT(*) AS {name} FROM cases{where} GROUP BY band"
    ),
    lambda name, where, chance: f"SELECT COUNT(*) FILTER (WHERE {either(chance)}) AS {name} FROM cases",
    lambda name, where, _: f"SELECT charge, COUNT(*) AS {name} FROM cases{where} GROUP BY charge HAVING {name} > 300",
    lambda name, where, chance: (
        f"SELECT district, COUNT(*) AS {name} FROM (SELECT * FROM cases WHERE {condition(chance)}) AS some GROUP BY 1"
    ),
    lambda name, where, _: (
        f"SELECT district, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS {name} FROM cases{where} GROUP BY district"
    ),
    lambda name, where, _: f"SELECT STDDEV(age) AS {name} FROM cases{where}",
)


def statements(many: int, seed: int) -> str:
    """So many statements of all kinds, each with one or two conditions or none."""
    found = []
    for i in range(many):
        chance = random.Random(f"{seed} {i}")
        conditions = [condition(chance) for _ in range(chance.choice([0, 1, 1, 2]))]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        found.append(KINDS[i % len(KINDS)](f"n{i}", where, chance))
    return ";\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--statements", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sql = statements(given.statements, given.seed)
    for privacy in ("pure", "zcdp"):
        start, used = time.perf_counter(), time.process_time()
        try:
            made = batchdp.plan(sql, DOMAIN, privacy=privacy, cache=False)
        except batchdp.BatchDPError as error:
            print(f"{given.statements:,} statements, {privacy}: refused, {error}")
            continue
        print(
            f"{given.statements:,} statements, {privacy}: {time.perf_counter() - start:.0f} s "
            f"({time.process_time() - used:.0f} of a processor), {len(made.batch.asked):,} answers, "
            f"{made.strategy.method}, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MB",
            flush=True,
        )
    start = time.perf_counter()
    try:
        batchdp.plan(";\n".join(WRONG * 3), DOMAIN, cache=False)
    except batchdp.QueryError as error:
        seconds = time.perf_counter() - start
        print(f"{len(error.refusals)} refusals of {3 * len(WRONG)} wrong statements: {seconds:.1f} s")


if __name__ == "__main__":
    main()
