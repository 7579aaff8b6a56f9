"""A team with one budget: whoever answers charges the same ledger, at the same time if need be.

However many processes spend at once, they never get more than the total together.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor

import batchdp

path = tempfile.mkdtemp() + "/budget.db"  # a local disk that all can write to, not a network folder
batchdp.Ledger.create(path, epsilon=1.0)

strategy = batchdp.optimize([[1, 1, 0], [0, 1, 1], [1, 1, 1]], seconds=1)
counts = [300, 500, 200]


def colleague(name: str) -> str:
    """Answer under a name, if the budget still allows it."""
    ledger = batchdp.Ledger.open(path)
    try:
        release = batchdp.answer(strategy, counts, epsilon=0.3, ledger=ledger, release_id=f"report of {name}")
    except batchdp.BudgetError as refusal:  # nothing was charged, nothing was counted
        return f"{name}: refused, {refusal}"
    return f"{name}: {release.answers[2].value:.0f} records"


with ThreadPoolExecutor() as team:
    for line in team.map(colleague, ["Ada", "Ben", "Cleo", "Dan"]):  # three times 0.3 fit into 1, four times do not
        print(line)

ledger = batchdp.Ledger.open(path)
print(f"{ledger.spent:g} of {ledger.total:g} is spent, by:")
for spend in ledger.history():
    print(f"  {spend.time[:19]}  {spend.release_id}  {spend.charged:g}")

# The same name again gives the stored answers, not fresh noise, and is free.
first = ledger.history()[0].release_id
again = [batchdp.answer(strategy, counts, epsilon=0.3, ledger=ledger, release_id=first).values for _ in range(2)]
print("the same again, free:", (again[0] == again[1]).all(), f"{ledger.remaining:g} left")

# Nobody has edited the ledger or put it back: compare with the head that was written down with a release.
print("verified, head", ledger.verify()[:12])
