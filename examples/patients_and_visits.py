"""Patients, their visits and a public list of clinics: one batch over all of them, planned and charged together."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import batchdp

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
patients = pd.DataFrame({"patient_id": range(5000), "sex": rng.choice(["f", "m"], 5000)})
visits = pd.DataFrame({"pid": rng.integers(0, 5000, 12_000), "clinic": rng.choice(["c1", "c2", "c3"], 12_000)})
(folder / "clinics.csv").write_text("id,region\nc1,north\nc2,north\nc3,south\n")

# A person has one row in patients, and at most five visits are counted: that decides about the noise.
domain = {
    "privacy": {"unit": "patient_id"},
    "tables": {
        "patients": {"rows_per_unit": 1, "columns": {"sex": {"values": ["f", "m"]}}},
        "visits": {"unit": "pid", "rows_per_unit": 5, "columns": {"clinic": {"values": ["c1", "c2", "c3"]}}},
    },
    "lookups": {"clinics": {"file": str(folder / "clinics.csv"), "key": "id", "columns": ["region"]}},
}
sql = """
SELECT sex, COUNT(*) AS patients FROM patients GROUP BY sex;
SELECT region, COUNT(*) AS visits FROM visits JOIN clinics ON visits.clinic = clinics.id GROUP BY region;
SELECT clinic, COUNT(DISTINCT pid) AS persons FROM visits GROUP BY clinic;
SELECT sex, AVG(n) AS "visits of one who came" FROM patients p
  JOIN (SELECT pid, COUNT(*) AS n FROM visits GROUP BY pid) v ON p.patient_id = v.pid GROUP BY sex;
"""

plan = batchdp.plan(sql, domain)  # reads no data
ledger = batchdp.Ledger.create(folder / "budget.db", epsilon=1.0)
release = batchdp.answer(plan, {"patients": patients, "visits": visits}, epsilon=1.0, ledger=ledger)

print(pd.DataFrame(release.answers).set_index("name").round(2))
print(release.certificate.neighbours)
