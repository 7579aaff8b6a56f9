"""Several tables: a million visits of 200 000 patients within a minute, and one plan against the best split by hand.

    python benchmarks/visits.py                        a DuckDB file and Parquet files, two processors
    python benchmarks/visits.py --visits 100000        fewer
    python benchmarks/visits.py --splits               errors against a search over splits of the budget

Plans a batch over tables, a join, a lookup, persons and rows for each person, answers it and writes its page, in one
process for each way to hand over the tables. Ends with 1 if a way takes more than 60 s at the full size, or a plan has
more error than the best split.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import duckdb

import batchdp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

SECONDS = 60.0
EACH = 5
"""Visits of a patient."""
DOMAIN = """
[privacy]
unit = "patient_id"
[tables.patients]
max_rows = 10_000_000
[tables.patients.columns.sex]
values = ["f", "m"]
[tables.patients.columns.age]
integers = [0, 100]
[tables.visits]
unit = "pid"
rows_per_unit = 5
max_rows = 10_000_000
[tables.visits.columns.clinic]
values = [{clinics}]
[tables.visits.columns.visited]
dates = ["2024-01-01", "2024-12-31"]
[tables.visits.columns.fee]
integers = [0, 200]
[lookups.clinics]
file = "{folder}/clinics.csv"
key = "id"
columns = ["region"]
"""
CLINICS = [f"c{i:02}" for i in range(20)]
SQL = """
SELECT sex, COUNT(*) AS patients, AVG(age) AS age FROM patients GROUP BY ROLLUP (sex);
SELECT COUNT(*) AS children FROM patients WHERE age < 18;
SELECT clinic, COUNT(*) AS visits, SUM(fee) AS fees FROM visits GROUP BY ROLLUP (clinic);
SELECT EXTRACT(MONTH FROM visited) AS month, COUNT(*) AS in_month FROM visits GROUP BY EXTRACT(MONTH FROM visited);
SELECT region, COUNT(*) AS in_region FROM visits JOIN clinics ON visits.clinic = clinics.id GROUP BY region;
SELECT clinic, COUNT(DISTINCT pid) AS persons FROM visits GROUP BY ROLLUP (clinic);
SELECT sex, clinic, COUNT(*) AS seen FROM patients p JOIN visits v ON p.patient_id = v.pid GROUP BY sex, clinic;
SELECT sex, COUNT(DISTINCT p.patient_id) AS old FROM patients p JOIN visits v ON p.patient_id = v.pid WHERE age >= 65
  GROUP BY sex;
SELECT sex, COUNT(*) FILTER (WHERE n IS NULL) AS never, AVG(n) AS visits_each,
  COUNT(*) FILTER (WHERE spent > 300) AS dear
  FROM patients p LEFT JOIN (SELECT pid, COUNT(*) AS n, SUM(fee) AS spent FROM visits GROUP BY pid) v
  ON p.patient_id = v.pid GROUP BY sex
"""
WAYS = ("DuckDB file", "Parquet files")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=1_000_000)
    parser.add_argument("--splits", action="store_true")
    parser.add_argument("--answer", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.splits:
        return splits()
    if asked.answer:
        print(json.dumps(answered(asked.answer[0], Path(asked.answer[1]))))
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), asked.visits)
        for way in WAYS:
            command = [sys.executable, __file__, "--answer", way, folder]
            took = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            said = ", ".join(f"{name} {seconds:.1f} s ({processor:.1f})" for name, (seconds, processor) in took.items())
            total, processor = (sum(own) for own in zip(*took.values(), strict=True))
            print(f"{way}: {said}, in all {total:.1f} s ({processor:.1f} of processor time)", flush=True)
            failed |= total > SECONDS and asked.visits >= 1_000_000
    return 1 if failed else 0


def generate(folder: Path, visits: int) -> None:
    """Some patients never came, some more often than the cap says."""
    with duckdb.connect(str(folder / "care.duckdb")) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"""
            CREATE TABLE patients AS SELECT range AS patient_id, if(random() < 0.5, 'f', 'm') AS sex,
                floor(100 * random())::INTEGER AS age FROM range({visits // EACH});
            CREATE TABLE visits AS SELECT floor({visits // EACH} * random())::BIGINT AS pid,
                'c' || lpad(floor({len(CLINICS)} * random())::INTEGER::VARCHAR, 2, '0') AS clinic,
                DATE '2024-01-01' + floor(366 * random())::INTEGER AS visited,
                floor(-ln(random()) * 40)::INTEGER AS fee FROM range({visits});
            """
        )
        for name in ("patients", "visits"):
            connection.execute(f"COPY {name} TO '{folder / name}.parquet'")
    rows = [f"{clinic},{'north' if i < 8 else 'south'}" for i, clinic in enumerate(CLINICS)]
    (folder / "clinics.csv").write_text("\n".join(["id,region", *rows, ""]))


def answered(way: str, folder: Path) -> dict[str, tuple[float, float]]:
    """Seconds of every step, and of processor time."""
    times = [(time.perf_counter(), time.process_time())]
    clinics = ", ".join(f'"{clinic}"' for clinic in CLINICS)
    plan = batchdp.plan(SQL, DOMAIN.format(clinics=clinics, folder=folder), cache=False)
    times.append((time.perf_counter(), time.process_time()))
    files = {name: folder / f"{name}.parquet" for name in ("patients", "visits")}
    table = files if way == "Parquet files" else folder / "care.duckdb"
    ledger = batchdp.Ledger.create(folder / f"{way}.db", epsilon=1.0)
    release = batchdp.answer(plan, table, epsilon=1.0, ledger=ledger)
    times.append((time.perf_counter(), time.process_time()))
    batchdp.report(release, folder / "page.html")
    times.append((time.perf_counter(), time.process_time()))
    taken = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(times)]
    return dict(zip(("plan", "answer", "page"), taken, strict=True))


def splits() -> int:
    """The total error of one plan, and of the best split of the budget between plans made apart."""
    from test_several_tables import BATCHES, split_by_hand

    failed = False
    print(f"{'batch':<10} {'noise':<8} {'one plan':>9} {'best split':>10} {'less':>6}")
    for name in BATCHES:
        for noise, privacy in (("Laplace", "pure"), ("Gaussian", "zcdp")):
            _, together, best = split_by_hand(name, privacy)
            print(f"{name:<10} {noise:<8} {together:>9.1f} {best:>10.1f} {1 - together / best:>6.1%}", flush=True)
            failed |= together > best * (1 + 1e-4)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
