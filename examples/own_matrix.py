"""Queries as a matrix of one's own, over counts of one's own: no SQL, no table.

Example 1 of the paper: patients in four states. How many in all, how many in NY or NJ, how many in CA or WA?
"""

import tempfile

import batchdp

states = ["NY", "NJ", "CA", "WA"]
W = [  # one query per row, one state per column
    [1, 1, 1, 1],
    [1, 1, 0, 0],
    [0, 0, 1, 1],
]

# What to measure so that all three answers have the least noise. No count is looked at.
strategy = batchdp.optimize(W)
naive = batchdp.STRATEGIES["noise-on-results"](W)
print(f"total expected squared error at ε = 1: {strategy.expected_squared_error(epsilon=1):.1f}", end="; ")
print(f"with noise on every answer instead: {naive.expected_squared_error(epsilon=1):.1f}")

# The counts must be whole numbers in the order of the columns.
counts = [82_700, 19_000, 67_000, 5_900]

# Nothing is answered without a ledger: it is charged before the counts are used.
ledger = batchdp.Ledger.create(tempfile.mkdtemp() + "/budget.db", epsilon=1.0)
release = batchdp.answer(strategy, counts, epsilon=0.5, ledger=ledger)
for question, answer in zip(["all", "NY or NJ", "CA or WA"], release.answers, strict=True):
    print(f"{question:10} {answer.value:10.1f}   95 % between {answer.low:.1f} and {answer.high:.1f}")
print(f"ε = {ledger.remaining} of {ledger.total} is left")
